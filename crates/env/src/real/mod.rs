//! The real half: the operating system's files, clocks and randomness, and its limits for the process.

mod descriptors;
mod file;
mod file_size;
mod file_system;
#[cfg(feature = "net")]
mod net;
mod opening;
mod volume;
mod workers;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use riverrun_types::TimestampMs;

use crate::{Clock, Random};

pub use descriptors::raise_descriptor_limit;
pub use file_size::ignore_file_size_signal;
pub use file_system::RealFileSystem;
#[cfg(feature = "net")]
pub use net::{RealNetwork, RealTasks};
pub use workers::RealWorkers;

/// The operating system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock whose monotonic time counts from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn wall(&self) -> TimestampMs {
        // A clock set before 1970 reads as 1970: no later code has to think about negative wall time.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TimestampMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn boot(&self) -> Duration {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Never negative, since it counts from the boot.
        let seconds = u64::try_from(boot.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(boot.tv_nsec).unwrap_or_default())
    }
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealRandom;

impl Random for RealRandom {
    /// # Panics
    /// If the kernel has no random numbers, which every supported platform has once it has booted.
    fn fill(&self, buffer: &mut [u8]) {
        getrandom::fill(buffer).expect("the kernel gives random numbers");
    }
}
