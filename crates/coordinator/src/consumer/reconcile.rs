//! One member's way to its target: the partitions that it gives up and gets, and its epoch then.
//!
//! The heart of KIP-848. A member first gives up the partitions that its target lacks, and stays at its epoch until
//! it has reported that. Then it moves to the target's epoch and gets the free partitions at once, and the rest as
//! other members give them up. So two members never have one partition, and a member that keeps its partitions reads
//! on undisturbed.

use std::collections::BTreeSet;

use riverrun_types::{PartitionId, TopicId};

use crate::assignors::Assignment;

use super::member::{EpochsByPartition, MemberState, Progress, partitions};

/// The facts on which the member's next state depends.
pub(super) struct Reconciliation<'a> {
    /// The member's progress.
    pub(super) progress: &'a Progress,
    /// Epoch of the target assignment.
    pub(super) target_epoch: i32,
    /// The member's target.
    pub(super) target: &'a Assignment,
    /// The topics that it reads now, which may be newer than the target.
    pub(super) subscribed: &'a BTreeSet<TopicId>,
    /// Whether this request changed them.
    pub(super) subscription_changed: bool,
    /// The partitions that it claims to own; `None` if it reports none.
    pub(super) reported: Option<&'a Assignment>,
    /// Whether no *other* member holds the partition.
    pub(super) is_free: &'a dyn Fn(PartitionId) -> bool,
}

impl Reconciliation<'_> {
    /// The member's progress after this request.
    pub(super) fn next(&self) -> Progress {
        match self.progress.state {
            MemberState::Stable if self.progress.epoch == self.target_epoch => self.without_unsubscribed(),
            MemberState::UnrevokedPartitions if self.still_has(&self.progress.revoking) => {
                self.without_unsubscribed()
            }
            _ => self.towards_target(),
        }
    }

    /// Whether the member may still be reading any of these: only its report proves that it is not.
    fn still_has(&self, given_up: &EpochsByPartition) -> bool {
        let Some(reported) = self.reported else { return !given_up.is_empty() };
        partitions(given_up).any(|partition| {
            reported.get(&partition.topic).is_some_and(|owned| owned.contains(partition.index))
        })
    }

    /// Keeps the member's epoch, but makes it give up at once the topics that it has just unsubscribed from: a target
    /// without them may come later, and until then they would be assigned to it again.
    fn without_unsubscribed(&self) -> Progress {
        let mut next = self.progress.clone();
        if !self.subscription_changed {
            return next;
        }
        let dropped: EpochsByPartition =
            next.assigned.extract_if(.., |topic, _| !self.subscribed.contains(topic)).collect();
        if dropped.is_empty() {
            return next;
        }
        for (topic, epochs) in dropped {
            let epochs = epochs.iter().map(|(index, epoch)| (index, *epoch));
            next.revoking.entry(topic).or_default().extend(epochs);
        }
        if self.still_has(&next.revoking) {
            next.state = MemberState::UnrevokedPartitions;
        } else {
            next.revoking.clear();
        }
        next
    }

    /// Makes the member give up the partitions that its target lacks, or else take the free ones of its target.
    fn towards_target(&self) -> Progress {
        let mut kept = EpochsByPartition::new();
        let mut revoking = EpochsByPartition::new();
        for (&topic, epochs) in &self.progress.assigned {
            for (index, &epoch) in epochs.iter() {
                let side = if self.shall_have(topic, index) { &mut kept } else { &mut revoking };
                side.entry(topic).or_default().insert(index, epoch);
            }
        }
        if self.still_has(&revoking) {
            return Progress {
                state: MemberState::UnrevokedPartitions,
                assigned: kept,
                revoking,
                ..self.progress.clone()
            };
        }
        self.take_free(kept)
    }

    /// Whether the target has the partition, and the member still reads its topic.
    fn shall_have(&self, topic: TopicId, index: i32) -> bool {
        self.subscribed.contains(&topic)
            && self.target.get(&topic).is_some_and(|target| target.contains(index))
    }

    fn take_free(&self, mut assigned: EpochsByPartition) -> Progress {
        let mut state = MemberState::Stable;
        for (&topic, indexes) in self.target.iter().filter(|(topic, _)| self.subscribed.contains(topic)) {
            for index in indexes.indexes() {
                if assigned.get(&topic).is_some_and(|epochs| epochs.contains(index)) {
                    continue;
                }
                if (self.is_free)(PartitionId { topic, index }) {
                    assigned.entry(topic).or_default().insert(index, self.target_epoch);
                } else {
                    state = MemberState::UnreleasedPartitions;
                }
            }
        }
        let is_new_epoch = self.progress.epoch != self.target_epoch;
        let previous_epoch = if is_new_epoch { self.progress.epoch } else { self.progress.previous_epoch };
        Progress {
            epoch: self.target_epoch,
            previous_epoch,
            state,
            assigned,
            revoking: EpochsByPartition::new(),
        }
    }
}
