//! The background of a process that appends: memory ahead of the append, the next segment, syncs, retention.
//!
//! One thread for each open queue that has appenders in this process. Everything it does an append can do
//! without: if the thread is late, the append makes its own room. Its errors are those that the appends meet
//! themselves; what a sync of it loses poisons the queue, which every append reports.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{At as _, QueueError};
use crate::layout::PREPARE_BYTE;
use crate::lock::Owner;
use crate::options::{AppendOptions, Durability, Retention};
use crate::queue::Core;
use crate::retention;
use crate::segment::Segment;
use crate::sync::sync_to;
use crate::sys::{self, LockKind};

/// How often retention is looked after, and how long the thread sleeps if nobody calls it.
const ROUND: Duration = Duration::from_secs(1);

/// What the appenders of this process have asked for, all together.
#[derive(Clone, Copy, Debug, Default)]
struct Duties {
    ahead_bytes: u64,
    sync_interval: Option<Duration>,
    sync_bytes: u64,
    retention: Retention,
}

impl Duties {
    /// Bytes from one call of the keeper to the next, when there is something for it to do.
    fn step_bytes(&self, segment_bytes: u64) -> u64 {
        // Each segment has to be prepared, so one call at least for each.
        let ahead = Some((self.ahead_bytes / 2).min(segment_bytes / 2)).filter(|step| *step > 0);
        let sync = self.sync_interval.map(|_| self.sync_bytes.max(1));
        [ahead, sync].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
struct Orders {
    duties: Mutex<Duties>,
    stop: AtomicBool,
}

impl Orders {
    fn duties(&self) -> MutexGuard<'_, Duties> {
        self.duties.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's handle. Dropping it, with the last appender, ends the thread after a last sync if syncs were
/// asked for.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: Arc<Orders>,
    segment_bytes: u64,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self, QueueError> {
        let owner = Owner::attach(&core.control)?;
        let orders = Arc::new(Orders::default());
        let mut rounds = Rounds {
            core: Arc::clone(core),
            owner,
            orders: Arc::clone(&orders),
            segment: None,
            present: 0,
            synced_at: Instant::now(),
            kept_at: None,
            mark_on_disk: core.control.mark().map_or(0, |mark| mark.sequence),
        };
        let thread = std::thread::Builder::new()
            .name("queue-keeper".to_owned())
            .spawn(move || rounds.run())
            .at("start a thread for", core.segments.dir())?;
        Ok(Self { orders, segment_bytes: core.segments.segment_bytes(), thread: Some(thread) })
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
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Tells the thread that the queue has got as far as `position`. Returns the position at which it wants
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
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is reported where it happened, and there is nothing left to do for it
            // here.
            let _ = thread.join();
        }
    }
}

/// What the thread knows from one round to the next.
///
/// Invariants: pages of `segment` below `present` are in memory, as far as they lie above where the head was.
struct Rounds {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    segment: Option<Arc<Segment>>,
    present: u64,
    synced_at: Instant,
    kept_at: Option<Instant>,
    /// Sequence of the newest synced mark that is on disk itself.
    mark_on_disk: u64,
}

impl Rounds {
    fn run(&mut self) {
        while !self.orders.stop.load(Acquire) {
            let duties = *self.orders.duties();
            let pause = self.round(&duties).unwrap_or(ROUND);
            std::thread::park_timeout(pause);
        }
        if self.orders.duties().sync_interval.is_some() {
            // A failure poisons the queue, which is where appenders look.
            let _ = sync_to(&self.core, &self.owner, self.core.control.published());
        }
        // Without it a recovery reads more.
        let _ = self.sync_mark();
    }

    /// Writes the synced mark to disk if it has moved, so that a recovery need not read what is synced, and
    /// takes damage there for damage and not for a torn end. No append waits for it.
    fn sync_mark(&mut self) -> Result<(), QueueError> {
        let sequence = self.core.control.mark().map_or(0, |mark| mark.sequence);
        if sequence != self.mark_on_disk {
            self.core.control.sync()?;
            self.mark_on_disk = sequence;
        }
        Ok(())
    }

    /// Does what is due. Returns when the next round is.
    fn round(&mut self, duties: &Duties) -> Result<Duration, QueueError> {
        if duties.ahead_bytes > 0 {
            self.make_present(duties.ahead_bytes)?;
            // Short of space an append tries again, and says so.
            let _ = self.prepare(duties.ahead_bytes);
        }
        let pause = self.sync(duties)?;
        if self.kept_at.is_none_or(|kept_at| kept_at.elapsed() >= ROUND) {
            self.kept_at = Some(Instant::now());
            self.sync_mark()?;
            retention::apply(&self.core, &duties.retention)?;
        }
        Ok(pause.min(ROUND))
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
            const PAGE_BYTES: u64 = 4096;
            let within = (begin - segment.start()) / PAGE_BYTES * PAGE_BYTES;
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

    /// Syncs if it is time. Returns when it will be.
    fn sync(&mut self, duties: &Duties) -> Result<Duration, QueueError> {
        let Some(interval) = duties.sync_interval else { return Ok(ROUND) };
        let (published, synced) = (self.core.control.published(), self.core.control.synced());
        let waited = self.synced_at.elapsed();
        // Another process may have appended and synced between the two looks.
        let unsynced = published.saturating_sub(synced);
        if unsynced == 0 {
            // The interval begins with the first byte that is not synced, about.
            self.synced_at = Instant::now();
            return Ok(interval);
        }
        if waited < interval && unsynced < duties.sync_bytes {
            return Ok(interval.saturating_sub(waited));
        }
        sync_to(&self.core, &self.owner, published)?;
        self.synced_at = Instant::now();
        Ok(interval)
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
            (0, None, 0, u64::MAX),
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
