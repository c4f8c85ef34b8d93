//! Workers, for work that waits for a disk: each on a thread of its own or, simulated, one step after the other.
//!
//! A part of the server that blocks is written as [`Work`]: each call runs one step and returns what comes next. The
//! environment decides how it is called. So the same code runs on a thread of the operating system, and under a
//! scheduler that interleaves all parts of several machines in an order which follows from a seed.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

/// The next step of a worker, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next step, at once.
    Again,
    /// The next step, once the worker is woken, or after this time. A wake-up that came during the step counts.
    Sleep(Option<Duration>),
    /// The end of the worker.
    Done,
}

/// The work of a worker, done by one thread at a time.
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
    /// The handle that wakes it.
    fn wake(&self) -> Wake;

    /// Waits until it is done; returns `false` if it has panicked. The worker itself, which cannot wait for its own
    /// end, gets an answer at once.
    fn join(self: Box<Self>) -> bool;
}

/// Wakes a worker that sleeps. A worker that does not sleep skips its next sleep.
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
