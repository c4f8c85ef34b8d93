//! Which logs of a store are open, so that they are not too many: each takes some kilobytes of memory.
//!
//! Owns the bound and who goes when it is met: the log that went longest without use first. A log is closed only if
//! nobody is using it at that moment and a checkpoint covers it; where there is none such a checkpoint is made. This
//! happens on the thread that wants to open one more, before it has taken any lock of a log, so that appends to
//! others go on meanwhile. The bound is exceeded where nothing can be closed, which is by as many logs as there are
//! threads using one, or while a log dir has failed or is full. Where none could be closed, this is tried again when one
//! has gone or a sixteenth more are open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::pace::Haste;
use crate::partition_log::PartitionLog;
use crate::producer_state::{ProducerRoom, REMEMBERED_MAX};
use crate::segment::FilePool;

/// This part of all logs is closed at once, so that the search for them is rare.
const CLOSED_AT_ONCE_DIVISOR: usize = 16;

/// The open logs of a store.
///
/// Invariants: every log that is open is in `logs`, by its address. `making_room` is taken before any other lock of
/// the store, and `logs` after all of them.
#[derive(Debug)]
pub(crate) struct OpenLogs {
    logs_max: usize,
    pool: Arc<FilePool>,
    producers: Arc<ProducerRoom>,
    /// Counts the logs that were opened: the time in which last uses are told apart.
    openings: AtomicU64,
    logs: Mutex<HashMap<usize, Weak<PartitionLog>>>,
    making_room: Mutex<()>,
    /// With fewer open logs than this nothing is tried: with hardly fewer none could be closed, and none has gone since.
    stuck_below: AtomicUsize,
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
            making_room: Mutex::default(),
            stuck_below: AtomicUsize::new(0),
        }
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
        self.logs.lock().insert(log.as_ptr().addr(), log.clone());
        self.openings.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a log is closed.
    pub(crate) fn remove(&self, log: &Weak<PartitionLog>) {
        self.logs.lock().remove(&log.as_ptr().addr());
        self.stuck_below.store(0, Ordering::Relaxed);
    }

    /// Closes logs if one more would be too many. The caller holds no lock of the store. May make a checkpoint.
    pub(crate) fn make_room(&self) {
        if !self.is_to_try() {
            return;
        }
        let _making_room = self.making_room.lock();
        // Another thread may have done it while this one waited.
        if !self.is_to_try() {
            return;
        }
        let logs = self.by_last_use();
        let excess = logs.len().saturating_sub(self.logs_max);
        let wanted = excess + self.step();
        // Rather a checkpoint than closing what is used all the time because it happens to be covered by one.
        let mut closed = close(&logs[..logs.len().div_ceil(2)], wanted);
        if !self.is_full() {
            return;
        }
        checkpoint(&logs);
        closed += close(&logs, wanted);
        let open = self.count();
        if closed == 0 {
            self.stuck_below.store(open + self.step(), Ordering::Relaxed);
        }
        if self.is_full() {
            tracing::warn!(
                open,
                max = self.logs_max,
                "more logs are open than should be: none can be closed"
            );
        }
    }

    fn is_full(&self) -> bool {
        self.count() >= self.logs_max
    }

    /// Whether there are too many, and other ones than when none could be closed: each try looks at all, and may fail to
    /// make a checkpoint.
    pub(crate) fn is_to_try(&self) -> bool {
        self.count() >= self.logs_max.max(self.stuck_below.load(Ordering::Relaxed))
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

/// Closes up to `wanted` of the logs; returns how many.
fn close(logs: &[Arc<PartitionLog>], wanted: usize) -> usize {
    let closed = logs.iter().filter(|log| log.close_if_unused()).take(wanted).count();
    tracing::debug!(closed, "closed logs to make room for others");
    closed
}

/// Makes a checkpoint of each dir that holds one of the logs, and whose disk answers: who wants to open a log elsewhere does
/// not wait for it.
fn checkpoint(logs: &[Arc<PartitionLog>]) {
    let mut dirs: Vec<_> = logs.iter().map(|log| log.dir()).collect();
    dirs.sort_unstable_by_key(|dir| Arc::as_ptr(dir));
    dirs.dedup_by_key(|dir| Arc::as_ptr(dir));
    for dir in dirs.into_iter().filter(|dir| !dir.hangs()) {
        if let Err(error) = dir.settle(Haste::AtOnce).and_then(|()| dir.checkpoint(false, Haste::AtOnce)) {
            tracing::warn!(path = %dir.path().display(), %error, "no checkpoint: its logs stay open");
        }
    }
}
