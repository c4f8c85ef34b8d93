//! Partitions whose level is to change, and the time of the next attempt after one that failed.
//!
//! An attempt costs a checkpoint of all that has changed, and its obstacle may stay for long: so the pause doubles with
//! each attempt. Pure: the time comes in as an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverrun_types::PartitionId;

/// The second pause. There is none before the second attempt: the settler rests after a failure anyway.
const PAUSE_MIN: Duration = Duration::from_millis(400);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Partitions that wait for a change of level.
///
/// Invariants: a partition with a pause is wanted, or was taken last.
#[derive(Debug, Default)]
pub(crate) struct LevelChangeQueue {
    wanted: BTreeSet<PartitionId>,
    pauses: BTreeMap<PartitionId, Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    until: Duration,
}

impl LevelChangeQueue {
    pub(crate) fn request(&mut self, partition: PartitionId) {
        self.wanted.insert(partition);
    }

    /// The partitions that are due, in the order of their ids.
    pub(crate) fn take(&mut self, now: Duration) -> Vec<PartitionId> {
        self.pauses.retain(|id, _| self.wanted.contains(id));
        let is_due = |id: &PartitionId| self.pauses.get(id).is_none_or(|pause| pause.until <= now);
        let wanted = std::mem::take(&mut self.wanted).into_iter();
        let (due, paused): (BTreeSet<_>, BTreeSet<_>) = wanted.partition(is_due);
        self.wanted = paused;
        due.into_iter().collect()
    }

    /// Has a partition that was taken tried again, after a pause unless it is the first time.
    pub(crate) fn put_off(&mut self, partition: PartitionId, now: Duration) {
        let length = self
            .pauses
            .get(&partition)
            .map_or(Duration::ZERO, |pause| (2 * pause.length).clamp(PAUSE_MIN, PAUSE_MAX));
        self.pauses.insert(partition, Pause { length, until: now + length });
        self.wanted.insert(partition);
    }

    /// Whether some pause is over.
    pub(crate) fn is_any_due(&self, now: Duration) -> bool {
        self.pauses.values().any(|pause| pause.until <= now)
    }
}
