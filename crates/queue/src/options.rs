//! Options for making, opening and writing a queue.

use std::time::Duration;

use crate::error::QueueError;

/// Smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 4096;
/// Largest segment: positions in a log file are 31 bits wide in the whole system.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Properties that a queue is made with, and keeps.
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

/// The point at which an append returns, by the failures that its record survives then. Every record is visible to
/// tailers as soon as it is published; a tailer may ask for synced ones only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On publication: the record survives the end of any process. Whether it survives a power cut is left to chance.
    #[default]
    Async,
    /// On publication. The syncer syncs everything repeatedly, so that a power cut takes no more than what was
    /// appended in the last interval or so, or somewhat more than `bytes` bytes.
    SyncEvery {
        /// Time from one sync to the next, while there is anything to sync.
        interval: Duration,
        /// Bytes after which a sync begins early.
        bytes: u64,
    },
    /// After a sync: the record survives a power cut. Appenders that wait at the same time share a sync.
    Sync,
}

/// Which old segments are removed. A segment goes as a whole, the oldest first, and never the active one.
///
/// Only open tailers keep a segment. A closed named tailer keeps none: records that it has not read are removed too,
/// and [`Tailer::missed`](crate::Tailer::missed) returns how many these were.
///
/// With files in memory (tmpfs), up to three removed segments are kept as empty files and become the next
/// segments: a queue that has reached its full size reuses its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// A segment is removed when its first record and the first one after it are older than this.
    pub age: Option<Duration>,
    /// Segments are removed while all together take more than this.
    pub bytes: Option<u64>,
    /// Removes segments also while a tailer of any process has them open. Such a tailer reads its segment to the end,
    /// and then finds the next ones gone.
    pub ignore_readers: bool,
}

/// How an appender works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOptions {
    /// How long an append waits while another appender has the writer lock; `None` waits without limit. Appenders
    /// keep it for well under a microsecond, unless they are stopped or keep a reservation open.
    pub patience: Option<Duration>,
    /// When an append returns.
    pub durability: Durability,
    /// How many bytes ahead of the append the keeper makes present in memory at most (fewer while little is
    /// appended), and whether it prepares the next segment. With 0, the append does both when they are needed. Where
    /// the process has one or two cores and files lie in memory, appends do both themselves, a little at a time,
    /// unless they come at full speed. One process at a time prepares segments for all; while it is stopped, the
    /// append that finds a segment full makes the next one.
    pub ahead_bytes: u64,
    /// The segments that the keeper removes.
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
