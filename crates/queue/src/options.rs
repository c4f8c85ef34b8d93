//! How a queue is made, opened and written.

use std::time::Duration;

use crate::error::QueueError;

/// Smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 4096;
/// Largest segment: places in a log file are 31 bits wide in the whole system.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// What a queue is made with, and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Bytes of a segment, a multiple of 4096. A batch never spans two segments, so this also bounds a
    /// record.
    pub segment_bytes: u64,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20 }
    }
}

impl CreateOptions {
    pub(crate) fn check(self) -> Result<(), QueueError> {
        let in_range = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes);
        if in_range && self.segment_bytes.is_multiple_of(4096) {
            return Ok(());
        }
        Err(QueueError::Options(format!(
            "a segment has a multiple of 4096 bytes, from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}, not {}",
            self.segment_bytes
        )))
    }
}

/// When an append is over, by what its record survives then. Every record is visible to tailers as soon as it
/// is published; a tailer may ask for synced ones only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is published: the record survives the end of any process, and a cut of power as luck has it.
    #[default]
    Async,
    /// When it is published. In the background everything is synced again and again, so that a cut of power
    /// takes no more than what was appended since about an interval, or somewhat more than that many bytes.
    SyncEvery {
        /// Time from one sync to the next, while there is anything to sync.
        interval: Duration,
        /// Bytes after which a sync begins before its time.
        bytes: u64,
    },
    /// When it is synced: the record survives a cut of power. Appenders that wait at the same time share a
    /// sync.
    Sync,
}

/// Which old segments are removed. A segment goes as a whole, the oldest first, and never the one that is
/// appended to.
///
/// Only tailers that are open keep a segment. A named one that is closed keeps nothing: what it has not read goes too,
/// and [`Tailer::missed`](crate::Tailer::missed) tells how much that was.
///
/// Where files lie in memory (tmpfs), up to three removed segments are kept besides, empty, and are the next ones:
/// the memory of a queue that is as large as it gets is used again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// A segment goes when its first record and the first one after it are older than this.
    pub age: Option<Duration>,
    /// Segments go while all together take more than this.
    pub bytes: Option<u64>,
    /// Removes segments also while a tailer, in whatever process, has them open. Such a tailer reads them to
    /// their end, and finds then that the next ones are gone.
    pub ignore_readers: bool,
}

/// How an appender works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOptions {
    /// How long an append waits while another appender holds the queue; none waits for ever. Appenders hold
    /// it for well under a microsecond, unless they are stopped or keep a reservation open.
    pub patience: Option<Duration>,
    /// When an append is over.
    pub durability: Durability,
    /// How many bytes ahead of the append the background makes present in memory at most (fewer while little is
    /// appended), and whether it prepares the next segment: with 0 both are done when they are needed, by the
    /// append. Where the process has one or two cores and files lie in memory, appends do both by themselves, a
    /// little at a time, unless they come as fast as they can. One process at a time prepares segments for all; while that one is
    /// stopped at it, the append that finds a segment full makes the next one.
    pub ahead_bytes: u64,
    /// What the background removes.
    pub retention: Retention,
}

impl Default for AppendOptions {
    fn default() -> Self {
        Self {
            patience: None,
            durability: Durability::Async,
            ahead_bytes: 32 << 20,
            retention: Retention::default(),
        }
    }
}

impl AppendOptions {
    pub(crate) fn check(&self) -> Result<(), QueueError> {
        if matches!(self.durability, Durability::SyncEvery { interval, .. } if interval.is_zero()) {
            return Err(QueueError::Options("the interval between syncs is more than nothing".to_owned()));
        }
        Ok(())
    }
}
