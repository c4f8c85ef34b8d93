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
    /// Bytes of a segment, a multiple of 4096. A batch never spans two segments, so this also bounds a record.
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

/// How an appender works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendOptions {
    /// How long an append waits while another appender holds the queue; none waits for ever. Appenders hold it for
    /// well under a microsecond, unless they are stopped or keep a reservation open.
    pub patience: Option<Duration>,
}
