//! The partitions of group members, as the consumers of a load learn of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use riverrun_client::{RebalanceListener, Revocation, StartAt, TopicPartition};
use serde::{Deserialize, Serialize};

/// Partitions of the members of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Number of members that have partitions.
    pub(crate) members: u64,
    /// Number of their partitions.
    pub(crate) partitions: u64,
}

impl Held {
    /// Adds other members of the group. Saturates, because the numbers come from workers.
    pub(crate) fn add(&mut self, other: Self) {
        self.members = self.members.saturating_add(other.members);
        self.partitions = self.partitions.saturating_add(other.partitions);
    }
}

/// Partitions of each group's members, by group name.
pub(crate) type HeldByGroup = BTreeMap<String, Held>;

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    group: String,
    partitions: Arc<AtomicUsize>,
}

impl Member {
    /// A member without partitions.
    pub(super) fn new(group: &str) -> Self {
        Self { group: group.to_owned(), partitions: Arc::default() }
    }

    /// The listener for its consumer.
    pub(super) fn listener(&self) -> Listener {
        Listener(Arc::clone(&self.partitions))
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Its own partitions.
    pub(super) fn held(&self) -> Held {
        let partitions = self.partitions.load(Ordering::Relaxed) as u64;
        Held { members: u64::from(partitions > 0), partitions }
    }
}

/// Counts the partitions of one member. Each assigned partition is revoked or lost once.
#[derive(Debug)]
pub(crate) struct Listener(Arc<AtomicUsize>);

impl Listener {
    fn taken(&self, count: usize) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }
}

impl RebalanceListener for Listener {
    fn assigned(&mut self, partitions: &mut BTreeMap<TopicPartition, StartAt>) {
        self.0.fetch_add(partitions.len(), Ordering::Relaxed);
    }

    fn revoked(&mut self, revocation: &mut Revocation) {
        self.taken(revocation.partitions.len());
    }

    fn lost(&mut self, partitions: &[TopicPartition]) {
        self.taken(partitions.len());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The first `count` partitions of a topic.
    pub(crate) fn partitions(count: usize) -> BTreeMap<TopicPartition, StartAt> {
        (0..).take(count).map(|index| (TopicPartition::new("t", index), StartAt::Committed)).collect()
    }

    #[test]
    fn member_holds_partitions_until_revoked_or_lost() {
        let member = Member::new("g");
        let mut listener = member.listener();
        let names = |count| partitions(count).into_keys().collect::<Vec<_>>();
        assert_eq!(member.held(), Held::default());
        listener.assigned(&mut partitions(3));
        listener.assigned(&mut partitions(2));
        listener.revoked(&mut Revocation { partitions: names(1), ..Revocation::default() });
        assert_eq!(member.held(), Held { members: 1, partitions: 4 });
        listener.lost(&names(4));
        assert_eq!(member.held(), Held::default());
    }

    #[test]
    fn sums_of_workers_numbers_saturate() {
        let mut held = Held { members: 1, partitions: u64::MAX };
        held.add(Held { members: 2, partitions: 3 });
        assert_eq!(held, Held { members: 3, partitions: u64::MAX });
    }
}
