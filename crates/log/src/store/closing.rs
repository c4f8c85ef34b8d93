//! Closes the logs that went longest without use, so that others can be opened.
//!
//! A log is closed only if it is not in use at that moment and a checkpoint covers it. As long as too few are covered,
//! a checkpoint is made of the oldest alone, in each log dir whose disk answers.

use std::sync::{Arc, Weak};

use super::LogStore;
use super::dir_logs::DirLogs;
use crate::error::LogError;
use crate::open_logs::{Closing, LogCloser, OpenedLog};
use crate::pace::Haste;
use crate::partition_log::PartitionLog;

/// Closes logs for threads that open others, without keeping the log dirs alive.
pub(super) struct Closer {
    dirs: Vec<Weak<DirLogs>>,
}

impl Closer {
    pub(super) fn new(dirs: &[Arc<DirLogs>]) -> Self {
        Self { dirs: dirs.iter().map(Arc::downgrade).collect() }
    }
}

impl LogCloser for Closer {
    fn close_oldest(&self, open: &[OpenedLog], wanted: usize) -> Closing {
        let dirs: Vec<_> = self.dirs.iter().map(Weak::upgrade).collect();
        let found = open.iter().filter_map(|log| find(dirs.get(log.dir)?.as_ref()?, log));
        close_oldest(&by_last_use(found), wanted, Haste::AtOnce)
    }
}

impl LogStore {
    /// Closes some partitions of log dir `dir_index` that went longest without use, if hardly more may be open; may make a
    /// checkpoint of these. Returns whether to call it again. Handles stay valid.
    pub fn close_some(&self, dir_index: usize) -> bool {
        let open_logs = &self.shared.open_logs;
        let Some(surplus) = open_logs.surplus() else { return false };
        let open = open_logs.open();
        let mut logs = by_last_use(open.iter().filter_map(|log| find(self.dirs.get(log.dir)?, log)));
        logs.truncate(surplus);
        logs.retain(|open| open.of.dir.number() == dir_index);
        close_oldest(&logs, open_logs.step(), Haste::Spread).closed > 0
    }
}

/// A log that is open, and those of its dir.
#[derive(Clone)]
struct Open {
    log: Arc<PartitionLog>,
    of: Arc<DirLogs>,
}

fn find(logs: &Arc<DirLogs>, opened: &OpenedLog) -> Option<Open> {
    Some(Open { log: logs.handle(opened.id)?, of: Arc::clone(logs) })
}

/// The logs, with those first that went longest without use.
fn by_last_use(logs: impl Iterator<Item = Open>) -> Vec<Open> {
    let mut logs: Vec<_> = logs.map(|open| (open.log.last_use(), open)).collect();
    logs.sort_unstable_by_key(|(last_use, open)| (*last_use, open.log.id()));
    logs.into_iter().map(|(_, open)| open).collect()
}

/// Closes up to `wanted` of the logs, which are in the order of their last use. As long as too few are covered by a
/// checkpoint, one of the oldest is made.
fn close_oldest(logs: &[Open], wanted: usize, haste: Haste) -> Closing {
    // A checkpoint is better than closing logs in constant use because they happen to be covered.
    let mut closed = close(&logs[..logs.len().div_ceil(2)], wanted);
    let mut failed = Failed::default();
    for oldest in logs.chunks(wanted) {
        if closed >= wanted {
            break;
        }
        failed.cover(oldest, haste);
        closed += close(oldest, wanted - closed);
    }
    tracing::debug!(closed, "closed logs to make room for others");
    Closing { closed, failure: failed.0.into_iter().next().map(|(_, error)| error) }
}

fn close(logs: &[Open], wanted: usize) -> usize {
    logs.iter().filter(|open| open.log.close_if_unused()).take(wanted).count()
}

/// The numbers of dirs in which not all could be covered, with the errors.
#[derive(Default)]
struct Failed(Vec<(usize, LogError)>);

impl Failed {
    /// Has a checkpoint cover the logs of each dir whose disk answers: an opening of a log elsewhere does not wait for
    /// the others. After a failure in a dir it is not tried there for more logs: a full disk fails them all.
    fn cover(&mut self, logs: &[Open], haste: Haste) {
        let mut open: Vec<_> = logs.iter().filter(|open| open.log.is_open()).cloned().collect();
        open.sort_unstable_by_key(|open| (open.of.dir.number(), open.log.id()));
        for open in open.chunk_by(|one, other| one.of.dir.number() == other.of.dir.number()) {
            let of = &open[0].of;
            let number = of.dir.number();
            let has_failed = self.0.iter().any(|(failed, _)| *failed == number);
            let logs: Vec<_> = open.iter().map(|open| Arc::clone(&open.log)).collect();
            if !has_failed
                && !of.dir.hangs()
                && let Err(error) = of.cover_some(&logs, haste)
            {
                self.0.push((number, error));
            }
        }
    }
}
