//! The simulated half: files with a live and a durable image, a clock that a test moves, seeded randomness.
//!
//! Owns a test's means to stop the world at any write or sync, and to examine each state that a power cut may leave.
//! Everything follows from one seed, so a failing run is repeated by its seed. A [`SimEnv`] by itself is one machine
//! whose workers are threads of the operating system. In a [`World`] several machines, with a network between them,
//! are stepped in an order that follows from the seed, too.

mod clock;
mod crash_states;
mod disk;
mod file_system;
mod image;
mod network;
mod node;
mod random;
mod world;

use std::sync::Arc;

use crate::{Env, RealWorkers};

pub use clock::SimClock;
pub use crash_states::CrashStates;
pub use disk::PlantedBug;
pub use file_system::SimFileSystem;
pub use node::SimNode;
pub use random::SimRandom;
pub use world::World;

/// A simulated world. Cloning it gives another handle on the same world.
#[derive(Clone, Debug)]
pub struct SimEnv {
    /// The files; also the place to inject faults.
    pub fs: Arc<SimFileSystem>,
    /// The clock; also the place to move it.
    pub clock: Arc<SimClock>,
    /// The randomness that code under test sees.
    pub random: Arc<SimRandom>,
}

impl SimEnv {
    /// A new world with an empty disk of unlimited size.
    pub fn new(seed: u64) -> Self {
        Self::of(SimFileSystem::new(seed), SimClock::new(), SimRandom::new(seed ^ 0x5eed))
    }

    /// The worlds in which a power cut at this moment may leave this one; see [`SimFileSystem::crash_states`]. In
    /// each, time and randomness go on as they would here.
    pub fn crash_states(&self, bound: usize) -> impl Iterator<Item = Self> + '_ {
        self.fs.crash_states(bound).map(|fs| Self::of(fs, self.clock.fork(), self.random.fork()))
    }

    fn of(fs: SimFileSystem, clock: SimClock, random: SimRandom) -> Self {
        let clock = Arc::new(clock);
        fs.follow(&clock);
        Self { fs: Arc::new(fs), clock, random: Arc::new(random) }
    }

    /// The world as code under test sees it.
    pub fn env(&self) -> Env {
        Env {
            fs: self.fs.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            workers: Arc::new(RealWorkers),
        }
    }
}
