//! Which logs of a store are open, so that they are not too many: each takes some kilobytes of memory.
//!
//! Owns the bound and who goes before it is met: the logs that went longest without use. A log is closed only if nobody is
//! using it at that moment and a checkpoint covers it; where there is none such, one is made of those alone that are to go. That
//! is the work of a job for each log dir, which begins when an eighth of the room is left. From there on whoever wants to open
//! one more waits for some milliseconds first, the longer the less is left, so that opening goes no faster than closing, however
//! many are opened by whomever. Only where no room is left, because a disk is slow or the job does not run, the thread that wants to
//! open one more closes others itself, before it has taken any lock of a log, so that appends to others go on meanwhile. The bound is
//! exceeded where nothing can be closed, which is by as many logs as there are threads using one, or while a log dir has failed or is
//! full. Where none could be closed, this is tried again when one has gone or a sixteenth more are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::pace::Haste;
use crate::partition_log::PartitionLog;
use crate::producer_state::{ProducerRoom, REMEMBERED_MAX};
use crate::rank::{self, Ranked};
use crate::segment::FilePool;

/// This part of all logs is closed at once, so that the search for them is rare.
const CLOSED_AT_ONCE_DIVISOR: usize = 16;
/// Logs are closed in the background once no more than this part of the room is left.
const RESERVE_DIVISOR: usize = 8;
/// What an opening waits for at most, where hardly any room is left.
const OPENING_WAIT_MAX: Duration = Duration::from_millis(10);

/// Told when logs are to be closed.
type Hook = Box<dyn Fn() + Send + Sync>;

/// The open logs of a store.
///
/// Invariants: every log that is open is in `logs`, by its address. `making_room` is taken before any other lock of
/// the store, and `logs` after all of them.
pub(crate) struct OpenLogs {
    logs_max: usize,
    pool: Arc<FilePool>,
    producers: Arc<ProducerRoom>,
    /// Counts the logs that were opened: the time in which last uses are told apart.
    openings: AtomicU64,
    logs: Mutex<HashMap<usize, Weak<PartitionLog>>>,
    making_room: Ranked<rank::MakingRoom, ()>,
    /// With fewer open logs than this nothing is tried: with hardly fewer none could be closed, and none has gone since.
    stuck_below: AtomicUsize,
    on_crowd: OnceLock<Hook>,
}

impl OpenLogs {
    /// For up to `logs_max` open logs and `files_max` open files of theirs, but at least one of each.
    pub(crate) fn new(logs_max: usize, files_max: usize) -> Self {
        Self {
            logs_max: logs_max.max(1),
            pool: Arc::new(FilePool::new(files_max)),
            producers: ProducerRoom::new(REMEMBERED_MAX),
            openings: AtomicU64::new(0),
            logs: Mutex::default(),
            making_room: Ranked::default(),
            stuck_below: AtomicUsize::new(0),
            on_crowd: OnceLock::new(),
        }
    }

    /// Has `hook` called with each log that is opened while others are to be closed. It must not wait for anything.
    pub(crate) fn on_crowd(&self, hook: Hook) {
        self.on_crowd.get_or_init(|| hook);
    }

    /// The files that may stay open.
    pub(crate) fn pool(&self) -> &Arc<FilePool> {
        &self.pool
    }

    /// The room for what they remember of producers.
    pub(crate) fn producers(&self) -> &Arc<ProducerRoom> {
        &self.producers
    }

    /// The time of a use.
    pub(crate) fn now(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// How many logs are open.
    pub(crate) fn count(&self) -> usize {
        self.logs.lock().len()
    }

    /// Takes in a log that was opened; returns the time of it.
    pub(crate) fn insert(&self, log: &Weak<PartitionLog>) -> u64 {
        let open = {
            let mut logs = self.logs.lock();
            logs.insert(log.as_ptr().addr(), log.clone());
            logs.len()
        };
        if open >= self.crowd() {
            self.on_crowd.get().into_iter().for_each(|hook| hook());
        }
        self.openings.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a log is closed.
    pub(crate) fn remove(&self, log: &Weak<PartitionLog>) {
        self.logs.lock().remove(&log.as_ptr().addr());
        self.stuck_below.store(0, Ordering::Relaxed);
    }

    /// To be called by who wants to open one more for a client, and holds no lock of the store. Lets those who close others get
    /// on if little room is left, and closes some itself if none is, which may make a checkpoint.
    pub(crate) fn make_room(&self) {
        match self.opening_wait() {
            Some(wait) if !self.is_to_try() => std::thread::sleep(wait),
            _ => self.make_room_at_once(),
        }
    }

    /// The same for a start, which is in haste: waits for nobody.
    pub(crate) fn make_room_at_once(&self) {
        if self.is_to_try() {
            self.close_for_one_more();
        }
    }

    /// Closes some logs of `dir` if little room is left, of those that went longest without use. Returns whether others of it
    /// are to follow.
    pub(crate) fn close_some_of(&self, dir: &LogDir) -> bool {
        let surplus = (self.count() + self.step()).saturating_sub(self.crowd());
        if surplus <= self.step() {
            return false;
        }
        let mut logs = self.by_last_use();
        logs.truncate(surplus);
        logs.retain(|log| std::ptr::eq(Arc::as_ptr(log.dir()), dir));
        close_oldest(&logs, self.step(), Haste::Spread).closed > 0
    }

    /// Whether the next opening waits for room.
    pub(crate) fn is_crowded(&self) -> bool {
        self.count() >= self.crowd()
    }

    /// Closes others, so that one more is not too many.
    fn close_for_one_more(&self) {
        let _making_room = self.making_room.lock();
        // Another thread may have done it while this one waited.
        if !self.is_to_try() {
            return;
        }
        let logs = self.by_last_use();
        let excess = logs.len().saturating_sub(self.logs_max);
        let closing = close_oldest(&logs, excess + self.step(), Haste::AtOnce);
        let open = self.count();
        if closing.closed == 0 {
            self.stuck_below.store(open + self.step(), Ordering::Relaxed);
        }
        if open >= self.logs_max {
            let error = closing.failed.first().map(|(_, error)| tracing::field::display(error));
            tracing::warn!(
                open,
                max = self.logs_max,
                error,
                "more logs are open than should be: none can be closed"
            );
        }
    }

    /// Whether there are too many, and other ones than when none could be closed: each try looks at all, and may fail to
    /// make a checkpoint.
    fn is_to_try(&self) -> bool {
        self.count() >= self.logs_max.max(self.stuck_below.load(Ordering::Relaxed))
    }

    /// How long an opening waits, if it does: the longer the less of the reserve is left. Where nobody closes others in the
    /// background there is nothing to wait for.
    fn opening_wait(&self) -> Option<Duration> {
        self.on_crowd.get()?;
        let taken = self.count().checked_sub(self.crowd()).filter(|taken| *taken > 0)?;
        let per_log = OPENING_WAIT_MAX / u32::try_from(self.reserve()).unwrap_or(u32::MAX);
        Some((per_log * u32::try_from(taken).unwrap_or(u32::MAX)).min(OPENING_WAIT_MAX))
    }

    /// With so many open logs others are closed in the background.
    fn crowd(&self) -> usize {
        self.logs_max - self.reserve()
    }

    /// So many more may be opened until those are closed.
    fn reserve(&self) -> usize {
        (self.logs_max / RESERVE_DIVISOR).max(1)
    }

    /// So many are closed at once.
    fn step(&self) -> usize {
        (self.logs_max / CLOSED_AT_ONCE_DIVISOR).max(1)
    }

    /// All open logs, the one first that went longest without use.
    fn by_last_use(&self) -> Vec<Arc<PartitionLog>> {
        let mut logs: Vec<_> = {
            let mut logs = self.logs.lock();
            logs.retain(|_, log| log.strong_count() > 0);
            logs.values().filter_map(Weak::upgrade).map(|log| (log.last_use(), log)).collect()
        };
        logs.sort_unstable_by_key(|(last_use, log)| (*last_use, log.id()));
        logs.into_iter().map(|(_, log)| log).collect()
    }
}

impl std::fmt::Debug for OpenLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenLogs")
            .field("count", &self.count())
            .field("max", &self.logs_max)
            .finish_non_exhaustive()
    }
}

/// What came of closing some.
#[derive(Default)]
struct Closing {
    closed: usize,
    /// Dirs in which not all could be covered, and why.
    failed: Vec<(Arc<LogDir>, LogError)>,
}

/// Closes up to `wanted` of the logs, which are in the order of their last use. As long as too few are covered by a checkpoint,
/// one of the oldest is made.
fn close_oldest(logs: &[Arc<PartitionLog>], wanted: usize, haste: Haste) -> Closing {
    // Rather a checkpoint than closing what is used all the time because it happens to be covered by one.
    let mut closing = Closing { closed: close(&logs[..logs.len().div_ceil(2)], wanted), failed: Vec::new() };
    for oldest in logs.chunks(wanted) {
        if closing.closed >= wanted {
            break;
        }
        closing.cover(oldest, haste);
        closing.closed += close(oldest, wanted - closing.closed);
    }
    tracing::debug!(closing.closed, "closed logs to make room for others");
    closing
}

fn close(logs: &[Arc<PartitionLog>], wanted: usize) -> usize {
    logs.iter().filter(|log| log.close_if_unused()).take(wanted).count()
}

impl Closing {
    /// Has a checkpoint cover the logs of each dir whose disk answers: who wants to open a log elsewhere does not wait for it.
    /// Where that has failed once it is not tried for others: a full disk is met by all of them.
    fn cover(&mut self, logs: &[Arc<PartitionLog>], haste: Haste) {
        let mut logs: Vec<_> = logs.iter().filter(|log| log.is_open()).cloned().collect();
        logs.sort_unstable_by_key(|log| (Arc::as_ptr(log.dir()), log.id()));
        for logs in logs.chunk_by(|one, other| Arc::ptr_eq(one.dir(), other.dir())) {
            let dir = logs[0].dir();
            let has_failed = self.failed.iter().any(|(failed, _)| Arc::ptr_eq(failed, dir));
            if !has_failed
                && !dir.hangs()
                && let Err(error) = dir.cover_some(logs, haste)
            {
                self.failed.push((dir.clone(), error));
            }
        }
    }
}
