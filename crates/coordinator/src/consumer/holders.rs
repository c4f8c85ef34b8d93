//! The holders of a group's partitions: for each partition in a member's progress, that member.

use std::collections::BTreeMap;

use riverrun_types::{PartitionId, TopicId};

use crate::runs::RunMap;

use super::member::{MemberId, Progress};

/// The member that holds each partition.
///
/// Invariants: no topic is kept without a held partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holders {
    by_topic: BTreeMap<TopicId, RunMap<MemberId>>,
}

impl Holders {
    /// The member that holds the partition.
    pub(super) fn get(&self, partition: PartitionId) -> Option<&MemberId> {
        self.by_topic.get(&partition.topic)?.get(partition.index)
    }

    /// The number of topics with a held partition.
    pub(super) fn topic_count(&self) -> usize {
        self.by_topic.len()
    }

    /// The member holds these partitions from now on.
    pub(super) fn add(&mut self, id: &MemberId, progress: &Progress) {
        for (topic, epochs) in topics(progress) {
            let held = epochs.indexes().map(|index| (index, MemberId::clone(id)));
            self.by_topic.entry(topic).or_default().extend(held);
        }
    }

    /// The member does not hold these partitions any more. A partition that another member holds by now stays: a load
    /// may see their records in this order.
    pub(super) fn remove(&mut self, id: &MemberId, progress: &Progress) {
        for (topic, epochs) in topics(progress) {
            let Some(holders) = self.by_topic.get_mut(&topic) else { continue };
            for index in epochs.indexes() {
                if holders.get(index) == Some(id) {
                    holders.remove(index);
                }
            }
            if holders.is_empty() {
                self.by_topic.remove(&topic);
            }
        }
    }
}

fn topics(progress: &Progress) -> impl Iterator<Item = (TopicId, &RunMap<i32>)> {
    [&progress.assigned, &progress.revoking].into_iter().flatten().map(|(&topic, epochs)| (topic, epochs))
}
