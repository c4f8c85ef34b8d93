//! The background of a process that appends: memory ahead of the append, the next segment, retention; and
//! beside it the syncs (`syncer.rs`).
//!
//! Two threads for each open queue that has appenders in this process, so that memory is made ready while a
//! sync waits for the disk. Everything they do an append can do without: if a thread is late, the append makes
//! its own room. Their errors are those that the appends meet themselves; what a sync loses poisons the queue,
//! which every append reports.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{At as _, QueueError};
use crate::layout::{PAGE_BYTES, PREPARE_BYTE};
use crate::lock::Owner;
use crate::options::{AppendOptions, Durability, Retention};
use crate::queue::Core;
use crate::retention;
use crate::segment::Segment;
use crate::syncer::Syncer;
use crate::sys::{self, LockKind};

/// How often retention is looked after, and how long the threads sleep if nobody calls them.
pub(crate) const ROUND: Duration = Duration::from_secs(1);

/// What the appenders of this process have asked for, all together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Duties {
    ahead_bytes: u64,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) sync_bytes: u64,
    retention: Retention,
}

impl Duties {
    /// Bytes from one call of the keeper to the next.
    fn step_bytes(&self, segment_bytes: u64) -> u64 {
        // Each segment has to be prepared, and synced when it is full, so one call at least for each.
        let ahead = if self.ahead_bytes > 0 { self.ahead_bytes / 2 } else { segment_bytes };
        let sync = self.sync_interval.map_or(u64::MAX, |_| self.sync_bytes);
        ahead.min(segment_bytes / 2).min(sync).max(1)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Orders {
    duties: Mutex<Duties>,
    stop: AtomicBool,
}

impl Orders {
    pub(crate) fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Acquire)
    }
}

/// The threads' handle. Dropping it, with the last appender, ends them after a last sync of everything.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Arc<Orders>,
    segment_bytes: u64,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self, QueueError> {
        let orders = Arc::new(Orders::default());
        // Made before the threads, so that a failure to start one ends the other.
        let segment_bytes = core.segments.segment_bytes();
        let mut keeper = Self { orders: Arc::clone(&orders), segment_bytes, threads: Vec::new() };
        let mut syncer = Syncer::new(core, &orders)?;
        keeper.spawn(core, "queue-syncer", move || syncer.run())?;
        let owner = Owner::attach(&core.control)?;
        let mut rounds =
            Rounds { core: Arc::clone(core), owner, orders, segment: None, present: 0, kept_at: None };
        keeper.spawn(core, "queue-keeper", move || rounds.run())?;
        Ok(keeper)
    }

    fn spawn(
        &mut self,
        core: &Core,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.at("start a thread for", core.segments.dir())?);
        Ok(())
    }

    /// Adds what another appender wants to what the others want.
    pub(crate) fn serve(&self, options: &AppendOptions) {
        let mut duties = self.orders.duties();
        duties.ahead_bytes = duties.ahead_bytes.max(options.ahead_bytes);
        if let Durability::SyncEvery { interval, bytes } = options.durability {
            let before = duties.sync_interval.map_or((interval, bytes), |old| (old, duties.sync_bytes));
            duties.sync_interval = Some(before.0.min(interval));
            duties.sync_bytes = before.1.min(bytes);
        }
        let wanted = options.retention;
        if wanted != Retention::default() {
            duties.retention = wanted;
        }
        drop(duties);
        self.wake();
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }

    /// Tells the threads that the queue has got as far as `position`. Returns the position at which they want
    /// to be told next.
    #[cold]
    pub(crate) fn call(&self, position: u64) -> u64 {
        self.wake();
        position.saturating_add(self.orders.duties().step_bytes(self.segment_bytes))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders.stop.store(true, Release);
        self.wake();
        for thread in self.threads.drain(..) {
            // A panic of the thread is reported where it happened, and there is nothing left to do for it
            // here.
            let _ = thread.join();
        }
    }
}

/// What the keeper's thread knows from one round to the next.
///
/// Invariants: pages of `segment` below `present` are in memory, as far as they lie above where the head was.
struct Rounds {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    segment: Option<Arc<Segment>>,
    present: u64,
    kept_at: Option<Instant>,
}

impl Rounds {
    fn run(&mut self) {
        while !self.orders.stopped() {
            let duties = *self.orders.duties();
            // What fails here an append meets too, and says so.
            let _ = self.round(&duties);
            std::thread::park_timeout(ROUND);
        }
    }

    fn round(&mut self, duties: &Duties) -> Result<(), QueueError> {
        if duties.ahead_bytes > 0 {
            self.make_present(duties.ahead_bytes)?;
            // Short of space an append tries again, and says so.
            let _ = self.prepare(duties.ahead_bytes);
        }
        if self.kept_at.is_none_or(|kept_at| kept_at.elapsed() >= ROUND) {
            self.kept_at = Some(Instant::now());
            retention::apply(&self.core, &duties.retention)?;
        }
        Ok(())
    }

    /// Makes the bytes that the next appends store into present in this process.
    fn make_present(&mut self, ahead_bytes: u64) -> Result<(), QueueError> {
        let head = self.core.head()?;
        let number = head.position / self.core.segments.segment_bytes();
        if self.segment.as_ref().is_none_or(|segment| segment.number != number) {
            self.segment = Some(self.core.segments.expect(head.segment_base, number)?);
            self.present = head.position;
        }
        let Some(segment) = &self.segment else { return Ok(()) };
        let end = (head.position + ahead_bytes).min(segment.start() + segment.map.len() as u64);
        let begin = self.present.max(head.position);
        if begin < end {
            let page_bytes = PAGE_BYTES as u64;
            let within = (begin - segment.start()) / page_bytes * page_bytes;
            segment.map.populate(within as usize, (end - segment.start() - within) as usize);
            self.present = end;
        }
        Ok(())
    }

    fn prepare(&self, ahead_bytes: u64) -> Result<(), QueueError> {
        let (file, path) = (self.owner.file(), self.core.control.path());
        if !sys::try_lock_byte(file, PREPARE_BYTE, LockKind::Exclusive).at("lock", path)? {
            return Ok(());
        }
        let prepared = self.core.segments.prepare(ahead_bytes);
        sys::unlock_byte(file, PREPARE_BYTE).at("unlock", path)?;
        prepared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_is_called_for_whatever_it_has_to_do() {
        const SEGMENT: u64 = 1 << 20;
        let hour = Some(Duration::from_hours(1));
        for (ahead_bytes, sync_interval, sync_bytes, step) in [
            (0, None, 0, SEGMENT / 2),
            (1 << 16, None, 0, 1 << 15),
            (1 << 30, None, 0, SEGMENT / 2),
            (1 << 16, hour, 4000, 4000),
            (1 << 16, hour, u64::MAX, 1 << 15),
            (0, hour, 4000, 4000),
            (1 << 16, hour, 0, 1),
        ] {
            let duties = Duties { ahead_bytes, sync_interval, sync_bytes, retention: Retention::default() };
            assert_eq!(duties.step_bytes(SEGMENT), step, "{duties:?}");
        }
    }
}
