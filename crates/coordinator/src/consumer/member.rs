//! One member of a KIP-848 group: its subscription and its progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_protocol::ErrorCode;
use riverrun_types::{PartitionId, TopicId};

use crate::assignors::Assignment;
use crate::classic::{Protocol, protocols_bytes};
use crate::runs::RunMap;

/// A member's id, shared by all references to it.
pub(super) type MemberId = Arc<str>;

/// Partitions of a member, each with the group epoch at which it was assigned. A commit that the member made before
/// that epoch comes from an earlier ownership and is refused.
pub(super) type EpochsByPartition = BTreeMap<TopicId, RunMap<i32>>;

/// The epoch of a static member that has left for a while and keeps its place (`group.instance.id`).
pub(super) const STATIC_LEAVE_EPOCH: i32 = -2;

/// Bytes in a record of a listed text beside its content: its length.
const TEXT_BYTES: usize = 3;

/// A member's subscription and identity: the value of its `ConsumerGroupMemberMetadata` record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) instance_id: Option<String>,
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    /// Shared between members with the same topics.
    pub(super) topics: Arc<BTreeSet<String>>,
    /// The regular expression it subscribes with; never empty.
    pub(super) pattern: Option<String>,
    /// Time that it may take to give up partitions.
    pub(super) rebalance_timeout_ms: i32,
    pub(super) server_assignor: Option<String>,
    /// Its terms as a member of the classic protocol; unset for a member of the consumer protocol.
    pub(super) classic: Option<ClassicTerms>,
}

/// The terms of a classic member of a KIP-848 group, beside its rebalance timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClassicTerms {
    /// Time that it may be silent.
    pub(super) session_timeout_ms: i32,
    /// The protocols that it could use in a classic group, in order of its preference. The first one is sent to it.
    pub(super) protocols: Vec<Protocol>,
}

impl Subscription {
    /// Bytes of its strings, by which a group is bounded.
    pub(super) fn size_bytes(&self) -> usize {
        let optional = [&self.instance_id, &self.rack_id, &self.pattern, &self.server_assignor];
        let optional: usize = optional.into_iter().flatten().map(String::len).sum();
        let topics: usize = self.topics.iter().map(String::len).sum();
        let classic = self.classic.as_ref().map_or(0, |classic| protocols_bytes(&classic.protocols));
        self.client_id.len() + self.client_host.len() + optional + topics + classic
    }

    /// Upper bound of the bytes of its lists in a record: short names take as much for their lengths.
    pub(super) fn record_bytes(&self) -> usize {
        let protocols = self.classic.as_ref().map_or(0, |classic| classic.protocols.len());
        self.size_bytes() + TEXT_BYTES * (self.topics.len() + 2 * protocols)
    }

    /// Whether both name the same topics, by name and by pattern.
    pub(super) fn has_same_topics(&self, other: &Self) -> bool {
        self.topics == other.topics && self.pattern == other.pattern
    }
}

/// The state of a member between its current and its target assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MemberState {
    /// It has its target assignment.
    #[default]
    Stable = 0,
    /// It has to give up partitions first.
    UnrevokedPartitions = 1,
    /// It waits for partitions that other members have not given up yet.
    UnreleasedPartitions = 2,
}

impl MemberState {
    /// The state of this number in a record.
    pub(super) fn from_number(number: i8) -> Option<Self> {
        match number {
            0 => Some(Self::Stable),
            1 => Some(Self::UnrevokedPartitions),
            2 => Some(Self::UnreleasedPartitions),
            _ => None,
        }
    }

    /// Its number in a record.
    pub(super) fn number(self) -> i8 {
        self as i8
    }
}

/// A member's progress: the value of its `ConsumerGroupCurrentMemberAssignment` record.
///
/// Invariants: `assigned` and `revoking` share no partition and hold no topic without partitions; no partition is in
/// the progress of two members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// The epoch that it sends with its heartbeats.
    pub(super) epoch: i32,
    /// The epoch before: a member that did not get the last response still sends it.
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    /// The partitions that it may read.
    pub(super) assigned: EpochsByPartition,
    /// The partitions that it was told to give up and has not yet.
    pub(super) revoking: EpochsByPartition,
}

impl Default for Progress {
    /// A new member.
    fn default() -> Self {
        Self {
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            assigned: EpochsByPartition::new(),
            revoking: EpochsByPartition::new(),
        }
    }
}

impl Progress {
    /// Number of partitions that no other member may have meanwhile.
    pub(super) fn partition_count(&self) -> usize {
        partition_count(&self.assigned) + partition_count(&self.revoking)
    }

    /// The epoch at which the partition became the member's.
    pub(super) fn partition_epoch(&self, partition: PartitionId) -> Option<i32> {
        let epoch = |held: &EpochsByPartition| held.get(&partition.topic)?.get(partition.index).copied();
        epoch(&self.assigned).or_else(|| epoch(&self.revoking))
    }

    /// Whether everything that the member reports is assigned to it.
    pub(super) fn covers(&self, owned: &Assignment) -> bool {
        owned.iter().all(|(topic, owned)| {
            let assigned = self.assigned.get(topic);
            owned.indexes().all(|index| assigned.is_some_and(|assigned| assigned.contains(index)))
        })
    }

    /// Whether both may read the same partitions.
    pub(super) fn has_same_assignment(&self, other: &Self) -> bool {
        partitions(&self.assigned).eq(partitions(&other.assigned))
    }

    /// The progress of a static member that left and may come back: it keeps its place and gives up the partitions
    /// that it was told to, because a client that is away reads nothing. Its next life starts at epoch 0, so earlier
    /// commits of the partitions do not count against it.
    pub(super) fn away(&self) -> Self {
        let assigned = self
            .assigned
            .iter()
            .map(|(topic, epochs)| (*topic, epochs.indexes().map(|index| (index, 0)).collect()));
        let assigned = assigned.collect();
        Self { epoch: STATIC_LEAVE_EPOCH, assigned, revoking: EpochsByPartition::new(), ..self.clone() }
    }
}

/// Each partition of a map by topic.
pub(super) fn partitions(by_topic: &EpochsByPartition) -> impl Iterator<Item = PartitionId> + '_ {
    by_topic
        .iter()
        .flat_map(|(&topic, epochs)| epochs.indexes().map(move |index| PartitionId { topic, index }))
}

/// How many partitions there are in all topics.
pub(super) fn partition_count<V>(by_topic: &BTreeMap<TopicId, RunMap<V>>) -> usize {
    by_topic.values().map(RunMap::len).sum()
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) subscription: Subscription,
    pub(super) progress: Progress,
}

impl Member {
    /// Whether it speaks the classic protocol.
    pub(super) fn is_classic(&self) -> bool {
        self.subscription.classic.is_some()
    }

    /// Time that it may be silent, where that of a member of the consumer protocol is `consumer_ms`.
    pub(super) fn session_timeout_ms(&self, consumer_ms: i32) -> i32 {
        self.subscription.classic.as_ref().map_or(consumer_ms, |classic| classic.session_timeout_ms)
    }

    /// The error for a commit with another epoch than the member's.
    pub(super) fn wrong_epoch(&self) -> ErrorCode {
        if self.is_classic() { ErrorCode::ILLEGAL_GENERATION } else { ErrorCode::STALE_MEMBER_EPOCH }
    }
}
