//! The server's only door to files, clocks, randomness, threads and other nodes, with a real and a simulated half.
//!
//! Owns, for a single server, the traits [`FileSystem`], [`File`], [`Directory`], [`Volume`], [`Clock`], [`Random`]
//! and [`Workers`]; for nodes of a cluster also [`Tasks`] and [`Network`]. Each has a real implementation (the last
//! two with the feature `net`), and a simulated one in [`sim`], with which a test crashes the machine at any write or
//! sync. Both halves pass the same tables of behaviours (`tests/behaviour.rs`, `tests/nodes.rs`). A thread waits for
//! a time by [`Clock::sleep`] or by an [`Alarm`].
//!
//! Refuses nothing by itself: it adds no policy to the operating system, and every error is the system's own.
//!
//! ```
//! use riverrun_env::{OpenMode, sim::SimEnv};
//!
//! let sim = SimEnv::new(1);
//! let env = sim.env();
//! let file = env.fs.open("/log".as_ref(), OpenMode::CreateNew)?;
//! file.write_all_at(b"not yet durable", 0)?;
//! assert_eq!(file.len()?, 15);
//! # Ok::<(), std::io::Error>(())
//! ```

mod alarm;
mod aligned;
mod clock;
mod fs;
mod net;
mod prefetch;
mod presence;
mod random;
mod real;
pub mod sim;
mod tasks;
mod workers;

use std::fmt;
use std::sync::Arc;

pub use alarm::Alarm;
pub use aligned::AlignedBuffer;
pub use clock::{Clock, PatientWall};
pub use fs::{
    ChangeError, DirEntry, Directory, File, FileSystem, Identity, LockGuard, OddFile, OpenMode, Stat, Volume,
    atomic_replace, is_at_descriptor_limit, is_descriptor_shortage, is_device_error, is_odd_file,
    is_shortage, read_whole, readable_bytes,
};
pub use net::{Link, LinkListener, LinkReceiver, LinkSender, Network, NodeEnv};
pub use prefetch::{prefetch, prefetch_arc, prefetch_at, prefetch_shared};
pub use presence::Vanishing;
pub use random::Random;
pub use real::{
    RealClock, RealFileSystem, RealRandom, RealWorkers, ignore_file_size_signal, raise_descriptor_limit,
};
#[cfg(feature = "net")]
pub use real::{RealNetwork, RealTasks};
pub use tasks::{BoxFuture, TaskHandle, Tasks};
pub use workers::{Step, Wake, Work, Worker, Workers};

/// The server's access to the world outside.
#[derive(Clone)]
pub struct Env {
    /// Files and directories.
    pub fs: Arc<dyn FileSystem>,
    /// Wall clock, monotonic clock and boot clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Threads for work that waits for disks.
    pub workers: Arc<dyn Workers>,
}

impl Env {
    /// The operating system's files, clocks, randomness and threads.
    pub fn real() -> Self {
        Self {
            fs: Arc::new(RealFileSystem),
            clock: Arc::new(RealClock::new()),
            random: Arc::new(RealRandom),
            workers: Arc::new(RealWorkers),
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}
