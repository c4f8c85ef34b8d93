//! What groups give to their members, as the consumers of a load hear of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use riverrun_client::{RebalanceListener, Revocation, StartAt, TopicPartition};
use serde::{Deserialize, Serialize};

/// What members of one group have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// How many of them have partitions.
    pub(crate) members: u64,
    /// How many these have.
    pub(crate) partitions: u64,
}

impl Held {
    /// Adds what others of the group have. No number that a worker sends makes that fail.
    pub(crate) fn add(&mut self, other: Self) {
        self.members = self.members.saturating_add(other.members);
        self.partitions = self.partitions.saturating_add(other.partitions);
    }
}

/// The same of each group, by its name.
pub(crate) type HeldByGroup = BTreeMap<String, Held>;

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    group: String,
    partitions: Arc<AtomicUsize>,
}

impl Member {
    /// One that has nothing yet.
    pub(super) fn new(group: &str) -> Self {
        Self { group: group.to_owned(), partitions: Arc::default() }
    }

    /// What its consumer is to tell.
    pub(super) fn listener(&self) -> Listener {
        Listener(Arc::clone(&self.partitions))
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// What it has by itself.
    pub(super) fn held(&self) -> Held {
        let partitions = self.partitions.load(Ordering::Relaxed) as u64;
        Held { members: u64::from(partitions > 0), partitions }
    }
}

/// Counts the partitions of one member. What is given is taken back or lost once.
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

    /// The first so many of a topic.
    pub(crate) fn partitions(count: usize) -> BTreeMap<TopicPartition, StartAt> {
        (0..).take(count).map(|index| (TopicPartition::new("t", index), StartAt::Committed)).collect()
    }

    #[test]
    fn a_member_has_what_it_was_given_and_neither_gave_back_nor_lost() {
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
    fn what_workers_say_adds_up_to_no_more_than_a_number_can_be() {
        let mut held = Held { members: 1, partitions: u64::MAX };
        held.add(Held { members: 2, partitions: 3 });
        assert_eq!(held, Held { members: 3, partitions: u64::MAX });
    }
}
