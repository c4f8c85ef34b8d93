//! The clock as the server sees it: wall time for what users read, monotonic time for what is measured.

use std::time::Duration;

use riverrun_types::TimestampMs;

/// Two clocks. Wall time may jump in either direction; monotonic time never goes back.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn wall(&self) -> TimestampMs;

    /// Time since some fixed point of this process.
    fn monotonic(&self) -> Duration;
}
