//! The threads of a mounted queue: the watcher, which sleeps until something is published and wakes the fetches that wait, and
//! where clients produce, that of the [intake](super::intake).
//!
//! Appenders wake the watcher only while a fetch waits, so an append without waiting fetches costs no more than without a
//! server. Now and then the watcher looks whether the queue is still there.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{MountedQueue, Mounts};
use crate::supervisor::Supervisor;

/// Time between two looks at a queue's directory.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The sleep of a queue's thread while no fetch waits.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    is_stopping: Mutex<bool>,
    called: Condvar,
}

impl Sleeper {
    /// Wakes the thread, because a fetch waits for the queue now.
    pub(super) fn call(&self) {
        // Under the lock: the thread has not looked yet, or sleeps already.
        let _looking = self.is_stopping.lock();
        self.called.notify_one();
    }

    fn stop(&self) {
        *self.is_stopping.lock() = true;
        self.called.notify_one();
    }
}

/// The threads of all mounted queues.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    running: Vec<(Arc<MountedQueue>, JoinHandle<()>)>,
}

impl Watchers {
    /// Starts the threads of each queue.
    pub(crate) fn start(mounts: &Mounts, supervisor: &Arc<Supervisor>) -> io::Result<Self> {
        let mut watchers = Self::default();
        for queue in mounts.all() {
            watchers.spawn(supervisor, queue, "riverrun-mount", MountedQueue::watch)?;
            if queue.is_writable() {
                watchers.spawn(supervisor, queue, "riverrun-intake", MountedQueue::take_in)?;
            }
        }
        Ok(watchers)
    }

    fn spawn(
        &mut self,
        supervisor: &Arc<Supervisor>,
        queue: &Arc<MountedQueue>,
        name: &str,
        work: fn(&MountedQueue),
    ) -> io::Result<()> {
        let worked = Arc::clone(queue);
        let thread = supervisor.thread(&format!("{name} {}", queue.name()), move || work(&worked))?;
        self.running.push((Arc::clone(queue), thread));
        Ok(())
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for (queue, _) in &self.running {
            queue.sleeper.stop();
            queue.stop_taking_in();
        }
        for (_, thread) in self.running.drain(..) {
            // The supervisor has caught its panic.
            let _ = thread.join();
        }
    }
}

impl MountedQueue {
    fn watch(&self) {
        let bell = self.view.bell(self.shows_synced_only());
        if !bell.is_woken() {
            tracing::warn!(
                topic = &**self.name(),
                dir = %self.dir().display(),
                "the queue's control file cannot be written: appenders do not wake readers, who look each millisecond"
            );
        }
        let mut seen = bell.position();
        let mut looked = Instant::now();
        while self.sleep_until_awaited() {
            if looked.elapsed() >= LOOK_INTERVAL {
                self.look();
                looked = Instant::now();
            }
            if !self.waiters.any() {
                continue;
            }
            let position = bell.wait(seen, LOOK_INTERVAL);
            if position != seen {
                seen = position;
                self.waiters.wake();
            }
        }
    }

    /// Sleeps until a fetch waits, or a look is due. False once the server stops.
    fn sleep_until_awaited(&self) -> bool {
        let mut is_stopping = self.sleeper.is_stopping.lock();
        if !*is_stopping && !self.waiters.any() {
            self.sleeper.called.wait_for(&mut is_stopping, LOOK_INTERVAL);
        }
        !*is_stopping
    }
}
