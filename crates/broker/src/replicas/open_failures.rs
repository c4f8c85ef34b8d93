//! Partitions that could not be opened: they are in no table of what is in use, and without this memory a server with
//! damaged data would call itself well.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use riverrun_types::{ErrorKind, PartitionId};

/// Partitions that are remembered at most: an operator needs one of them, and their number roughly.
const FAILURES_MAX: usize = 1_000;

/// Why a partition could not be opened.
#[derive(Debug)]
struct OpenFailure {
    reason: String,
    kind: ErrorKind,
}

impl OpenFailure {
    fn is_of_shortage(&self) -> bool {
        self.kind == ErrorKind::Retry
    }
}

/// Partitions whose last opening failed.
///
/// Invariants: at most [`FAILURES_MAX`] are remembered.
#[derive(Debug, Default)]
pub(crate) struct OpenFailures {
    failures: Mutex<BTreeMap<PartitionId, OpenFailure>>,
}

impl OpenFailures {
    /// The partition cannot be opened.
    pub(crate) fn remember(&self, id: PartitionId, reason: String, kind: ErrorKind) {
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_MAX || failures.contains_key(&id) {
            failures.insert(id, OpenFailure { reason, kind });
        }
    }

    /// The partition is well again, or gone.
    pub(crate) fn forget(&self, id: PartitionId) {
        self.failures.lock().remove(&id);
    }

    /// Each of them, and why.
    pub(crate) fn all(&self) -> BTreeMap<PartitionId, String> {
        self.failures.lock().iter().map(|(id, failure)| (*id, failure.reason.clone())).collect()
    }

    /// Those for which a shortage was the reason, which may have passed.
    pub(crate) fn of_shortages(&self) -> Vec<PartitionId> {
        let failures = self.failures.lock();
        failures.iter().filter(|(_, failure)| failure.is_of_shortage()).map(|(id, _)| *id).collect()
    }

    /// Whether this is one of those.
    pub(crate) fn is_of_shortage(&self, id: PartitionId) -> bool {
        self.failures.lock().get(&id).is_some_and(OpenFailure::is_of_shortage)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_types::TopicId;

    use super::*;

    fn id(index: i32) -> PartitionId {
        PartitionId { topic: TopicId([1; 16]), index }
    }

    #[test]
    fn a_partition_that_does_not_open_is_told_of_until_it_does() {
        let failures = OpenFailures::default();
        failures.remember(id(0), "no descriptors".to_owned(), ErrorKind::Retry);
        failures.remember(id(1), "no descriptors".to_owned(), ErrorKind::Retry);
        assert_eq!(failures.of_shortages(), [id(0), id(1)]);
        failures.remember(id(0), "damaged".to_owned(), ErrorKind::GiveUp);
        failures.remember(id(1), "damaged".to_owned(), ErrorKind::GiveUp);
        assert!(failures.of_shortages().is_empty());
        let damaged = "damaged".to_owned();
        assert_eq!(failures.all(), BTreeMap::from([(id(0), damaged.clone()), (id(1), damaged)]));
        failures.forget(id(0));
        assert_eq!(failures.all().len(), 1);
        failures.forget(id(1));
        assert!(failures.all().is_empty());
    }

    #[test]
    fn remembered_open_failures_are_bounded() {
        let failures = OpenFailures::default();
        for index in 0..2 * i32::try_from(FAILURES_MAX).expect("fits") {
            failures.remember(id(index), "damaged".to_owned(), ErrorKind::GiveUp);
        }
        assert_eq!(failures.all().len(), FAILURES_MAX);
    }
}
