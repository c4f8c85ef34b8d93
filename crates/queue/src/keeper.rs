//! The background of a process that appends: memory ahead of the append, the next segment, retention; and
//! beside it the syncs (`syncer.rs`).
//!
//! Two threads for each open queue that has appenders in this process, so that memory is made ready while a
//! sync waits for the disk. Everything they do an append can do without: if a thread is late, the append makes
//! its own room. Their errors are those that the appends meet themselves; what a sync loses poisons the queue,
//! which every append reports.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use riverrun_types::Offset;

use crate::error::{At as _, QueueError};
use crate::layout::PREPARE_BYTE;
use crate::lock::Owner;
use crate::options::{AppendOptions, Durability, Retention};
use crate::passed::Passed;
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
    /// Bytes from one call of the keeper to the next, where it makes `ahead_bytes` present.
    fn step_bytes(&self, segment_bytes: u64, ahead_bytes: u64) -> u64 {
        // Each segment has to be prepared, and synced when it is full, so one call at least for each.
        let ahead = if ahead_bytes > 0 { ahead_bytes / 2 } else { segment_bytes };
        let sync = self.sync_interval.map_or(u64::MAX, |_| self.sync_bytes);
        ahead.min(segment_bytes / 2).min(sync).max(1)
    }
}

/// How far ahead memory is made present: as much as is appended while the thread may be kept from running.
///
/// Pages that are made present are written to disk one day, used or not, so it is no more than that.
#[derive(Clone, Copy, Debug)]
struct Pace {
    ahead_bytes: u64,
    called_at: Instant,
}

impl Pace {
    /// Ahead at first, and where little is appended.
    const AHEAD_BYTES_MIN: u64 = 1 << 20;
    /// How long the thread may be kept from running.
    const DELAY: Duration = Duration::from_millis(100);

    /// Adapts to how long ago the last call was, which is about half of what is ahead.
    fn call(&mut self, now: Instant, ahead_bytes_max: u64) -> u64 {
        let passed = now.saturating_duration_since(self.called_at);
        self.called_at = now;
        if passed < Self::DELAY / 2 {
            self.ahead_bytes = self.ahead_bytes.saturating_mul(2);
        } else if passed > Self::DELAY * 2 {
            self.ahead_bytes /= 2;
        }
        self.ahead_bytes = self.ahead_bytes.max(Self::AHEAD_BYTES_MIN).min(ahead_bytes_max);
        self.ahead_bytes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Orders {
    duties: Mutex<Duties>,
    /// How far ahead the keeper is at the moment.
    ahead_bytes: AtomicU64,
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
        let pace = Pace { ahead_bytes: 0, called_at: Instant::now() };
        let mut rounds = Rounds {
            core: Arc::clone(core),
            owner,
            orders,
            pace,
            segment: None,
            present: 0,
            passed: Passed::default(),
            kept_at: None,
        };
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
        let least = Pace::AHEAD_BYTES_MIN.min(duties.ahead_bytes);
        drop(duties);
        // Before the first call, which asks for the next by it.
        self.orders.ahead_bytes.fetch_max(least, Relaxed);
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
        let ahead_bytes = self.orders.ahead_bytes.load(Relaxed);
        position.saturating_add(self.orders.duties().step_bytes(self.segment_bytes, ahead_bytes))
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
/// `passed` are segments before it.
struct Rounds {
    core: Arc<Core>,
    owner: Owner,
    orders: Arc<Orders>,
    pace: Pace,
    segment: Option<Arc<Segment>>,
    present: u64,
    passed: Passed,
    /// When retention was looked after, and the number of the segment that was appended to.
    kept_at: Option<(Instant, u64)>,
}

impl Rounds {
    fn run(&mut self) {
        while !self.orders.stopped() {
            let duties = *self.orders.duties();
            // What fails here an append meets too, and says so.
            let _ = self.round(&duties);
            self.passed.let_go();
            std::thread::park_timeout(ROUND);
        }
    }

    fn round(&mut self, duties: &Duties) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        let ahead_bytes = self.pace.call(Instant::now(), duties.ahead_bytes);
        if duties.ahead_bytes > 0 {
            self.orders.ahead_bytes.store(ahead_bytes, Relaxed);
            self.make_present(ahead_bytes)?;
        }
        let path = core.control.path();
        let prepares = duties.ahead_bytes > 0
            && sys::try_lock_byte(self.owner.file(), PREPARE_BYTE, LockKind::Exclusive).at("lock", path)?;
        if prepares {
            // What can be used again is ready at once.
            let _ = core.segments.renew_spares(&mut || drop(self.make_present(ahead_bytes)));
        }
        // And what goes now may be, before anything is made.
        let kept = self.keep(&duties.retention, prepares);
        if prepares {
            // Short of space an append tries again, and says so.
            let _ = self.prepare(ahead_bytes);
            sys::unlock_byte(self.owner.file(), PREPARE_BYTE).at("unlock", path)?;
        }
        kept
    }

    /// Looks after retention, each second and whenever a segment is full.
    fn keep(&mut self, retention: &Retention, prepares: bool) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        let number = core.published() / core.segments.segment_bytes();
        if self.kept_at.is_some_and(|(at, kept)| kept == number && at.elapsed() < ROUND) {
            return Ok(());
        }
        self.kept_at = Some((Instant::now(), number));
        let kept = retention::apply(&core, retention, |base| {
            Ok(self.make_spare(base, prepares)? || core.segments.remove(base, retention.ignore_readers)?)
        });
        kept.map(|_| ())
    }

    /// Keeps the file of the segment that begins with `base` for the next one, if it can.
    fn make_spare(&mut self, base: Offset, prepares: bool) -> Result<bool, QueueError> {
        let spare = if prepares { self.core.segments.make_spare(base)? } else { None };
        let Some(inode) = spare else { return Ok(false) };
        if let Some(segment) = self.passed.take(base) {
            self.core.segments.keep_mapping(inode, segment);
        }
        Ok(true)
    }

    /// Makes the bytes that the next appends store into present in this process.
    fn make_present(&mut self, ahead_bytes: u64) -> Result<(), QueueError> {
        let head = self.core.head()?;
        let number = head.position / self.core.segments.segment_bytes();
        if self.segment.as_ref().is_none_or(|segment| segment.number != number) {
            let segment = self.core.segments.expect(head.segment_base, number)?;
            self.present = head.position.max(segment.start() + segment.present);
            if let Some(passed) = self.segment.replace(segment) {
                self.passed.push(passed);
            }
        }
        let Some(segment) = &self.segment else { return Ok(()) };
        let end = (head.position + ahead_bytes).min(segment.start() + segment.map.len() as u64);
        let begin = self.present.max(head.position);
        if begin < end {
            segment.map.populate((begin - segment.start()) as usize, (end - begin) as usize);
            self.present = end;
        }
        Ok(())
    }

    /// Prepares the next segment, and goes on making memory present meanwhile: to allocate takes longer than an
    /// appender takes for what is ahead of it.
    fn prepare(&mut self, ahead_bytes: u64) -> Result<(), QueueError> {
        let core = Arc::clone(&self.core);
        // What is ahead of the append beyond the end of its segment.
        let segment_bytes = core.segments.segment_bytes();
        let within = core.published() % segment_bytes;
        let beyond = (within + ahead_bytes).saturating_sub(segment_bytes).min(segment_bytes);
        // What fails there fails in the next round, too.
        core.segments.prepare(beyond, || drop(self.make_present(ahead_bytes)))
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
            assert_eq!(duties.step_bytes(SEGMENT, ahead_bytes), step, "{duties:?}");
        }
    }

    #[test]
    fn what_is_ahead_grows_while_much_is_appended_and_shrinks_after() {
        let begin = Instant::now();
        let mut pace = Pace { ahead_bytes: 0, called_at: begin };
        let mut now = begin;
        let mut call = |after_ms: u64| {
            now += Duration::from_millis(after_ms);
            pace.call(now, 20 << 20) >> 20
        };
        assert_eq!([1, 1, 1, 1, 1, 1].map(&mut call), [1, 2, 4, 8, 16, 20]);
        assert_eq!([100, 60, 190].map(&mut call), [20, 20, 20], "that is about the pace");
        assert_eq!([1000, 1000, 1000, 1000, 1000].map(&mut call), [10, 5, 2, 1, 1]);
        assert_eq!(
            Pace { ahead_bytes: 0, called_at: begin }.call(begin, 4096),
            4096,
            "no more than asked for"
        );
    }
}
