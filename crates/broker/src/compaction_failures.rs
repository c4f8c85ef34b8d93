//! Logs that could not be compacted: they stand behind all others, and rest longer after each failure.
//!
//! Kafka gives such a log up until the broker is restarted. Here it is tried again, at last once an hour: a disk may
//! have room or answer again.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_types::PartitionId;

/// How long a log rests after its first failure, or one that may pass; twice as long after each further one.
const REST_MIN: Duration = Duration::from_mins(1);
/// How long a log rests at most.
const REST_MAX: Duration = Duration::from_hours(1);

/// A log whose last compaction failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) id: PartitionId,
    /// Index of its log dir.
    dir: usize,
    pub(crate) reason: String,
    rest: Duration,
    retry_at: Duration,
}

/// All of them.
///
/// Invariants: one entry for each log at most, in the order of their first failures.
#[derive(Debug, Default)]
pub(crate) struct CompactionFailures {
    failed: Mutex<Vec<Failed>>,
}

impl CompactionFailures {
    /// The compaction of a log has failed; for want of something that may be there soon, if `may_pass`.
    pub(crate) fn note(&self, dir: usize, id: PartitionId, reason: String, may_pass: bool, now: Duration) {
        let mut failed = self.failed.lock();
        match failed.iter_mut().find(|failed| failed.id == id) {
            Some(known) => {
                known.rest = if may_pass { REST_MIN } else { (2 * known.rest).min(REST_MAX) };
                known.retry_at = now + known.rest;
                known.reason = reason;
            }
            None => failed.push(Failed { id, dir, reason, rest: REST_MIN, retry_at: now + REST_MIN }),
        }
    }

    /// The log is as any other again.
    pub(crate) fn forget(&self, id: PartitionId) {
        self.failed.lock().retain(|failed| failed.id != id);
    }

    /// Forgets logs of a log dir that are gone from it.
    pub(crate) fn keep_only(&self, dir: usize, kept: impl Iterator<Item = PartitionId>) {
        let mut failed = self.failed.lock();
        if !failed.is_empty() {
            let ids: HashSet<PartitionId> = kept.collect();
            failed.retain(|failed| failed.dir != dir || ids.contains(&failed.id));
        }
    }

    /// How a log stands in the queue.
    pub(crate) fn turn(&self, id: PartitionId, now: Duration) -> Turn {
        match self.failed.lock().iter().find(|failed| failed.id == id) {
            None => Turn::First,
            Some(failed) if failed.retry_at <= now => Turn::Last,
            Some(_) => Turn::Never,
        }
    }

    /// Each of them, and why.
    pub(crate) fn all(&self) -> Vec<Failed> {
        self.failed.lock().clone()
    }
}

/// When a log may be compacted that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Before those that have failed.
    First,
    /// When nothing else is due.
    Last,
    /// Not before it has rested.
    Never,
}

#[cfg(test)]
mod tests {
    use std::iter;

    use riverrun_types::TopicId;

    use super::*;

    const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn failing_log_rests_twice_as_long_each_time_up_to_a_bound() {
        let failures = CompactionFailures::default();
        let mut now = SECOND;
        assert_eq!(failures.turn(ID, now), Turn::First);
        for rest in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_mins) {
            failures.note(0, ID, "unreadable".to_owned(), false, now);
            assert_eq!(failures.turn(ID, now + rest / 2), Turn::Never);
            now += rest;
            assert_eq!(failures.turn(ID, now), Turn::Last);
        }
        failures.note(0, ID, "no space".to_owned(), true, now);
        assert_eq!(failures.turn(ID, now + REST_MIN), Turn::Last);
        assert_eq!(failures.all().len(), 1);
        failures.forget(ID);
        assert_eq!(failures.turn(ID, now), Turn::First);
        failures.note(0, ID, "unreadable".to_owned(), false, now);
        failures.keep_only(1, iter::empty());
        assert_eq!(failures.all().len(), 1, "it lies elsewhere");
        failures.keep_only(0, iter::empty());
        assert_eq!(failures.all(), []);
    }
}
