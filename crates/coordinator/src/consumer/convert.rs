//! Converting a classic group with members into a KIP-848 group, and back (KIP-848, "Upgrade" and "Downgrade").
//!
//! Owns the parts of a group that mean the same in both protocols. Members keep their ids, their timeouts, their
//! protocols and their subscriptions; the generation becomes the epoch of all and back, so that commits go on. Every
//! record of the old kind is deleted in the step that writes those of the new kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_protocol::{ConsumerProtocolSubscription, consumer_protocol};
use riverrun_types::PartitionId;

use crate::TopicMetadata;
use crate::assignors::{Assignment, Indexes};
use crate::classic::{self, ClassicGroup, Terms};
use crate::time::Now;

use super::ConsumerGroup;
use super::changes::{Change, Recorder};
use super::classic::encode_assigned;
use super::member::{ClassicTerms, EpochsByPartition, MemberId, MemberState, Progress, Subscription};
use super::subscription::HASH_OF_NOTHING;

/// A generation that leaves room for all epochs that a group can live to see. Only a damaged log has others.
const GENERATIONS: std::ops::Range<i32> = 0..i32::MAX / 2;

impl ConsumerGroup {
    /// A group of the same members, each at the epoch that is its generation, with the partitions that it may be
    /// reading. The error says why the group cannot be converted.
    pub(crate) fn from_classic(
        group: &ClassicGroup,
        topics: &dyn TopicMetadata,
        recorder: &mut Recorder<'_>,
    ) -> Result<Self, &'static str> {
        let epoch = group.generation();
        if !GENERATIONS.contains(&epoch) {
            return Err("their generation is no epoch");
        }
        let mut converted = Self::default();
        for (id, member) in group.members() {
            let subscription = subscription(member, &said_by(member, group.protocol())?);
            converted.commit(Change::Member(Arc::clone(id), Some(subscription)), recorder);
        }
        // It has not examined any topics. So the first examination moves it on, and partitions are assigned that its
        // last leader has given to no member, even where the newcomer only takes a static member's place.
        converted.commit(Change::Epoch { epoch, metadata_hash: HASH_OF_NOTHING }, recorder);
        let mut held = held_by_each(group, topics)?;
        for id in group.members().map(|(id, _)| id) {
            let (progress, target) = holding(held.remove(id).unwrap_or_default(), epoch);
            converted.commit(Change::Target(Arc::clone(id), Some(target)), recorder);
            converted.commit(Change::Progress(Arc::clone(id), Some(progress)), recorder);
        }
        // As if no target had been made: the newcomer, for whom all this is done, gets one at once.
        converted.commit(Change::TargetEpoch { epoch, assigned_at_ms: 0 }, recorder);
        Ok(converted)
    }

    /// Whether it has members, and all of them but `id` speak the classic protocol.
    pub(crate) fn is_all_classic_but(&self, id: Option<&str>) -> bool {
        !self.members.is_empty() && self.classic_members + usize::from(id.is_some()) == self.members.len()
    }

    /// The member of the consumer protocol that has this instance id.
    pub(crate) fn consumer_with(&self, instance_id: &str) -> Option<&str> {
        let id = self.static_members.get(instance_id)?;
        self.members.get(id).is_some_and(|member| !member.is_classic()).then_some(&**id)
    }

    /// A classic group of its classic members, at the generation known to the members that have reached the last
    /// target; the error says why they cannot form one.
    pub(crate) fn to_classic(
        &self,
        group_id: Arc<str>,
        topics: &dyn TopicMetadata,
        now: Now,
    ) -> Option<ClassicGroup> {
        let members = self.members.iter().filter_map(|(id, member)| {
            let classic = member.subscription.classic.as_ref()?;
            let first = classic.protocols.first()?;
            let subscription = &member.subscription;
            let member = classic::Member {
                instance_id: subscription.instance_id.clone(),
                client_id: subscription.client_id.clone(),
                client_host: subscription.client_host.clone(),
                terms: Terms {
                    rebalance_timeout_ms: subscription.rebalance_timeout_ms,
                    session_timeout_ms: classic.session_timeout_ms,
                    protocols: classic.protocols.clone(),
                },
                assignment: encode_assigned(&held(&member.progress), first, topics),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
                expires_at: None,
            };
            Some((Arc::clone(id), member))
        });
        ClassicGroup::of_members(group_id, self.assignment_epoch, members.collect(), now)
    }
}

/// The partitions that a member may be reading, including those that it has to give up and has not. If its target
/// were written instead, a group that changes again before its members have rejoined would take those partitions for
/// free.
fn held(progress: &Progress) -> Assignment {
    let mut held = Assignment::new();
    for (&topic, epochs) in progress.assigned.iter().chain(&progress.revoking) {
        held.entry(topic).or_default().extend(epochs.indexes());
    }
    held
}

/// The subscription of a classic member's last join.
fn said_by<'a>(
    member: &'a classic::Member,
    protocol: &str,
) -> Result<ConsumerProtocolSubscription<'a>, &'static str> {
    let protocols = &member.terms.protocols;
    let chosen = protocols.iter().find(|known| known.name == protocol).or(protocols.first());
    let chosen = chosen.ok_or("one of them supports no protocol")?;
    let said = consumer_protocol::decode_subscription(&chosen.metadata);
    said.map_err(|_| "a subscription of theirs is malformed")
}

/// Its subscription as a member of a KIP-848 group.
fn subscription(member: &classic::Member, said: &ConsumerProtocolSubscription<'_>) -> Subscription {
    let rack_id = said.rack_id.as_deref().filter(|rack_id| !rack_id.is_empty());
    Subscription {
        instance_id: member.instance_id.clone(),
        rack_id: rack_id.map(str::to_owned),
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        topics: Arc::new(said.topics.iter().map(ToString::to_string).collect()),
        pattern: None,
        rebalance_timeout_ms: member.terms.rebalance_timeout_ms,
        server_assignor: None,
        classic: Some(ClassicTerms {
            session_timeout_ms: member.terms.session_timeout_ms,
            protocols: member.terms.protocols.clone(),
        }),
    }
}

/// The partitions that each classic member may be reading. A cooperative member reads the partitions that it owned
/// when it joined until it has synced, and then rejoins without those that its leader took from it. Until then it
/// holds both its assignment and the partitions that it owned. If two members claim one partition, the one to which
/// the leader gave it has it, or else the first one; the other is told when it rejoins.
fn held_by_each<'g>(
    group: &'g ClassicGroup,
    topics: &dyn TopicMetadata,
) -> Result<BTreeMap<&'g MemberId, Assignment>, &'static str> {
    let mut holders: BTreeMap<PartitionId, &MemberId> = BTreeMap::new();
    for (id, member) in group.members() {
        for partition in given_partitions(member, topics)? {
            holders.entry(partition).or_insert(id);
        }
    }
    for (id, member) in group.members() {
        for partition in owned_partitions(&said_by(member, group.protocol())?, topics) {
            holders.entry(partition).or_insert(id);
        }
    }
    let mut held: BTreeMap<&MemberId, Assignment> = BTreeMap::new();
    for (partition, id) in holders {
        held.entry(id).or_default().entry(partition.topic).or_default().insert(partition.index, ());
    }
    Ok(held)
}

/// Progress and target of a member that holds these partitions.
fn holding(held: Assignment, epoch: i32) -> (Progress, Assignment) {
    let at_epoch = |indexes: &Indexes| indexes.indexes().map(|index| (index, epoch)).collect();
    let progress = Progress {
        epoch,
        previous_epoch: epoch,
        state: MemberState::Stable,
        assigned: held.iter().map(|(&topic, indexes)| (topic, at_epoch(indexes))).collect(),
        revoking: EpochsByPartition::new(),
    };
    (progress, held)
}

/// The partitions of a classic member's last assignment, as far as they exist: none if that rebalance was broken off.
/// Data that its assignor keeps in the assignment for itself would be lost, so such a group does not change.
fn given_partitions(
    member: &classic::Member,
    topics: &dyn TopicMetadata,
) -> Result<Vec<PartitionId>, &'static str> {
    if member.assignment.is_empty() {
        return Ok(Vec::new());
    }
    let assignment = consumer_protocol::decode_assignment(&member.assignment);
    let assignment = assignment.map_err(|_| "an assignment of theirs is malformed")?;
    if assignment.user_data.is_some_and(|data| !data.is_empty()) {
        return Err("their assignor keeps data of its own in the assignments");
    }
    let assigned = assignment.assigned_partitions.iter();
    Ok(existing(assigned.map(|assigned| (&*assigned.topic, &*assigned.partitions)), topics))
}

/// The partitions that a classic member read at its last join, as far as they exist.
fn owned_partitions(said: &ConsumerProtocolSubscription<'_>, topics: &dyn TopicMetadata) -> Vec<PartitionId> {
    existing(said.owned_partitions.iter().map(|owned| (&*owned.topic, &*owned.partitions)), topics)
}

/// The partitions among these that exist.
fn existing<'a>(
    named: impl Iterator<Item = (&'a str, &'a [i32])>,
    topics: &dyn TopicMetadata,
) -> Vec<PartitionId> {
    let mut partitions = Vec::new();
    for (name, indexes) in named {
        let Some(topic) = topics.topic_id(name) else { continue };
        let exist = 0..topics.partition_count(topic).unwrap_or_default();
        let indexes = indexes.iter().copied().filter(|index| exist.contains(index));
        partitions.extend(indexes.map(|index| PartitionId { topic, index }));
    }
    partitions
}
