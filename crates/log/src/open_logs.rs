//! The open logs of a store, and their bound: each takes some kilobytes of memory.
//!
//! Owns the bound, and chooses the logs to close: those that went longest without use. A log is closed only if it is
//! not in use at that moment and a checkpoint covers it; if there is no such log, a checkpoint is made of those alone
//! that are to go. A job for each log dir does this when an eighth of the room is left. From there on each opening
//! waits for some milliseconds first, the longer the less is left, so that opening goes no faster than closing. Only if
//! no room is left, because a disk is slow or the job does not run, the opening thread closes others itself, before it
//! has taken any lock of a log, so that appends to others go on meanwhile. The bound is exceeded if nothing can be
//! closed: by as many logs as there are threads using one, or while a log dir has failed or is full. If none could be
//! closed, the next attempt is made when one has gone or a sixteenth more are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Clock;
use riverrun_types::PartitionId;

use crate::error::LogError;
use crate::producer_state::{ProducerRoom, REMEMBERED_MAX};
use crate::rank::{self, Ranked};
use crate::segment::FilePool;

/// This part of all logs is closed at once, so that the search for them is rare.
const CLOSED_AT_ONCE_DIVISOR: usize = 16;
/// Logs are closed in the background once no more than this part of the room is left.
const RESERVE_DIVISOR: usize = 8;
/// The longest wait of an opening, if hardly any room is left.
const OPENING_WAIT_MAX: Duration = Duration::from_millis(10);

/// Called when logs are to be closed.
type Hook = Box<dyn Fn() + Send + Sync>;

/// The place of an open log in the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedLog {
    /// The number of its log dir.
    pub(crate) dir: usize,
    pub(crate) id: PartitionId,
}

/// The result of closing some.
#[derive(Default)]
pub(crate) struct Closing {
    pub(crate) closed: usize,
    /// The reason if a checkpoint could not cover others.
    pub(crate) failure: Option<LogError>,
}

/// Closes logs when no more may be open. The store implements it, which has the handles and makes checkpoints.
pub(crate) trait LogCloser: Send + Sync {
    /// Closes up to `wanted` of the logs in `open`, the ones first that went longest without use.
    fn close_oldest(&self, open: &[OpenedLog], wanted: usize) -> Closing;
}

/// The open logs of a store.
///
/// Invariants: every log that is open is in `logs`, by its handle's address. `making_room` is taken before any other lock of
/// the store, and `logs` after all of them.
pub(crate) struct OpenLogs {
    logs_max: usize,
    pool: Arc<FilePool>,
    producers: Arc<ProducerRoom>,
    /// Counts the logs that were opened: the clock of last uses.
    openings: AtomicU64,
    logs: Mutex<HashMap<usize, OpenedLog>>,
    closer: OnceLock<Box<dyn LogCloser>>,
    making_room: Ranked<rank::MakingRoom, ()>,
    /// With fewer open logs than this no attempt is made: with hardly fewer none could be closed, and none has gone
    /// since.
    stuck_below: AtomicUsize,
    on_surplus: OnceLock<Hook>,
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
            closer: OnceLock::new(),
            making_room: Ranked::default(),
            stuck_below: AtomicUsize::new(0),
            on_surplus: OnceLock::new(),
        }
    }

    /// Has `hook` called with each log that is opened while others are to be closed. It must not wait for anything.
    pub(crate) fn on_surplus(&self, hook: Hook) {
        self.on_surplus.get_or_init(|| hook);
    }

    /// Has `closer` close logs from now on.
    pub(crate) fn set_closer(&self, closer: Box<dyn LogCloser>) {
        self.closer.get_or_init(|| closer);
    }

    /// The files that may stay open.
    pub(crate) fn pool(&self) -> &Arc<FilePool> {
        &self.pool
    }

    /// The room for the producer states of open logs.
    pub(crate) fn producers(&self) -> &Arc<ProducerRoom> {
        &self.producers
    }

    /// The time of a use.
    pub(crate) fn now(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// Number of open logs.
    pub(crate) fn count(&self) -> usize {
        self.logs.lock().len()
    }

    /// Adds an opened log, whose handle lies at `address`; returns the time of this use.
    pub(crate) fn insert(&self, address: usize, log: OpenedLog) -> u64 {
        let open = {
            let mut logs = self.logs.lock();
            logs.insert(address, log);
            logs.len()
        };
        if open >= self.surplus_from() {
            self.on_surplus.get().into_iter().for_each(|hook| hook());
        }
        self.openings.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a log is closed.
    pub(crate) fn remove(&self, address: usize) {
        self.logs.lock().remove(&address);
        self.stuck_below.store(0, Ordering::Relaxed);
    }

    /// To be called before a log is opened for a client, without a lock of the store. Waits for the job that closes
    /// others if little room is left, and closes some itself if none is, which may make a checkpoint.
    pub(crate) fn make_room(&self, clock: &dyn Clock) {
        match self.opening_wait() {
            Some(wait) if !self.is_to_try() => clock.sleep(wait),
            _ => self.make_room_at_once(),
        }
    }

    /// As [`Self::make_room`], for a start: does not wait for the job.
    pub(crate) fn make_room_at_once(&self) {
        if self.is_to_try() {
            self.close_for_one_more();
        }
    }

    /// Number of logs to close in the background, if little room is left.
    pub(crate) fn surplus(&self) -> Option<usize> {
        let surplus = (self.count() + self.step()).saturating_sub(self.surplus_from());
        (surplus > self.step()).then_some(surplus)
    }

    /// All logs that are open, in no order.
    pub(crate) fn open(&self) -> Vec<OpenedLog> {
        self.logs.lock().values().copied().collect()
    }

    /// Whether the next opening waits for room.
    pub(crate) fn next_waits_for_room(&self) -> bool {
        self.count() >= self.surplus_from()
    }

    /// Closes others, so that one more is not too many.
    fn close_for_one_more(&self) {
        let _making_room = self.making_room.lock();
        // Another thread may have done it while this one waited.
        if !self.is_to_try() {
            return;
        }
        let Some(closer) = self.closer.get() else { return };
        let logs = self.open();
        let excess = logs.len().saturating_sub(self.logs_max);
        let closing = closer.close_oldest(&logs, excess + self.step());
        let open = self.count();
        if closing.closed == 0 {
            self.stuck_below.store(open + self.step(), Ordering::Relaxed);
        }
        if open >= self.logs_max {
            let error = closing.failure.as_ref().map(tracing::field::display);
            tracing::warn!(
                open,
                max = self.logs_max,
                error,
                "more logs are open than should be: none can be closed"
            );
        }
    }

    /// Whether there are too many, and other ones than when none could be closed: each attempt looks at all, and may
    /// fail to make a checkpoint.
    fn is_to_try(&self) -> bool {
        self.count() >= self.logs_max.max(self.stuck_below.load(Ordering::Relaxed))
    }

    /// The wait of an opening, if it waits: the longer the less of the reserve is left. Without a job in the background
    /// there is nothing to wait for.
    fn opening_wait(&self) -> Option<Duration> {
        self.on_surplus.get()?;
        let taken = self.count().checked_sub(self.surplus_from()).filter(|taken| *taken > 0)?;
        let per_log = OPENING_WAIT_MAX / u32::try_from(self.reserve()).unwrap_or(u32::MAX);
        Some((per_log * u32::try_from(taken).unwrap_or(u32::MAX)).min(OPENING_WAIT_MAX))
    }

    /// With so many open logs others are closed in the background.
    fn surplus_from(&self) -> usize {
        self.logs_max - self.reserve()
    }

    /// So many more may be opened until those are closed.
    fn reserve(&self) -> usize {
        (self.logs_max / RESERVE_DIVISOR).max(1)
    }

    /// So many are closed at once.
    pub(crate) fn step(&self) -> usize {
        (self.logs_max / CLOSED_AT_ONCE_DIVISOR).max(1)
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
