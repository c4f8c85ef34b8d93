//! The clocks as the server sees them: wall time for what users read and what another run reads, monotonic time for what
//! is measured and what waits, boot time for what becomes old.

use std::time::Duration;

use riverrun_types::TimestampMs;

/// Three clocks. Wall time may jump in either direction; the other two never go back.
///
/// A deadline goes by monotonic time: it does not end while the machine sleeps, since nobody can be heard then. How old a
/// thing of this run is goes by boot time. What is written down and compared with another run's is wall time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn wall(&self) -> TimestampMs;

    /// Time since some fixed point of this process in which the machine was awake.
    fn monotonic(&self) -> Duration;

    /// Time since some fixed point, the machine's sleep among it. A clock that knows of no sleep has monotonic time for it.
    fn boot(&self) -> Duration {
        self.monotonic()
    }
}
