//! Work that waits for a disk: on a thread of its own, or, simulated, one step after the other.
//!
//! A part of the server that blocks is written as [`Work`]: it does one step when it is called, and says what is next. Who calls
//! it is the environment's affair. So the same code runs on a thread of the operating system and under a scheduler that
//! interleaves all parts of several machines in an order which follows from a seed.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next step, at once.
    Again,
    /// The next step once the worker is woken, or after this time. A wake-up that came during the step counts.
    Sleep(Option<Duration>),
    /// Nothing any more.
    Done,
}

/// What a worker does, by one thread at a time.
pub trait Work: Send {
    /// Does one step.
    fn step(&mut self) -> Step;
}

/// Starts workers.
pub trait Workers: Send + Sync {
    /// Starts a worker of that name. Fails where the system has no thread for it; the work is dropped then.
    fn start(&self, name: &str, work: Box<dyn Work>) -> io::Result<Box<dyn Worker>>;
}

/// A worker that was started. It goes on if this is dropped.
pub trait Worker: Send {
    /// What wakes it.
    fn wake(&self) -> Wake;

    /// Waits until it is done; false if it has panicked. The worker itself, which cannot wait for its own end, is answered at
    /// once.
    fn join(self: Box<Self>) -> bool;
}

/// Wakes a worker that sleeps. One that does not sleep goes on at once the next time that it would.
#[derive(Clone)]
pub struct Wake(Waking);

#[derive(Clone)]
enum Waking {
    Thread(Thread),
    Simulated(Arc<dyn Fn() + Send + Sync>),
}

impl From<Thread> for Wake {
    /// Wakes a thread that parks.
    fn from(thread: Thread) -> Self {
        Self(Waking::Thread(thread))
    }
}

impl Wake {
    pub(crate) fn simulated(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self(Waking::Simulated(wake))
    }

    /// Wakes it.
    pub fn wake(&self) {
        match &self.0 {
            Waking::Thread(thread) => thread.unpark(),
            Waking::Simulated(wake) => wake(),
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}
