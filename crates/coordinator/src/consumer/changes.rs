//! The changes of a group, each of which is one record of `__consumer_offsets`.
//!
//! Owns both directions: a [`Change`] becomes a record as Kafka 4.3 writes it, and a loaded record becomes a change.
//! Other fields of Kafka's records (the partition metadata that a hash has replaced) are ignored.

use std::sync::Arc;

use riverrun_protocol::offsets_topic::consumer_group_current_member_assignment_value::TopicPartitions;
use riverrun_protocol::offsets_topic::consumer_group_member_metadata_value::{
    ClassicMemberMetadata, ClassicProtocol,
};
use riverrun_protocol::offsets_topic::consumer_group_target_assignment_member_value::TopicPartition;
use riverrun_protocol::offsets_topic::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, Key, RecordKey,
};
use riverrun_protocol::{Decode, Encode, Str};

use crate::ReplayError;
use crate::assignors::Assignment;
use crate::classic::Protocol;
use crate::records;
use crate::runs::{Indexes, RunMap};
use crate::step::OffsetsRecord;

use super::member::{ClassicTerms, EpochsByPartition, MemberId, MemberState, Progress, Subscription};
use super::{ResolvedPattern, TopicNames};

/// The only version of every value's layout.
const VALUE_VERSION: i16 = 0;

/// Upper bound of a length's bytes in a value.
const LENGTH_BYTES_MAX: usize = 5;
/// Upper bound of the bytes of a value's other fields, beside texts, topics and partitions.
const VALUE_BYTES_MAX: usize = 64;
/// Bytes of a partition in the value of a member's progress: its index and its epoch.
const PARTITION_BYTES: usize = 8;
/// Upper bound of the bytes of a topic in one list of that value: its id, two tags and three lengths.
const TOPIC_BYTES_MAX: usize = 18 + 3 * LENGTH_BYTES_MAX;
/// Lists of that value that a topic may be in.
const PROGRESS_LISTS: usize = 2;

/// One change of a group; `None` inside is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The group moved to another epoch, or its topics were hashed.
    Epoch { epoch: i32, metadata_hash: i64 },
    /// A member's subscription; `None` if it left.
    Member(MemberId, Option<Subscription>),
    /// A target was made; its changed parts came before.
    TargetEpoch { epoch: i32, assigned_at_ms: i64 },
    /// A member's target assignment.
    Target(MemberId, Option<Assignment>),
    /// A member's progress.
    Progress(MemberId, Option<Progress>),
    /// The topics that a pattern matches.
    Pattern(String, Option<ResolvedPattern>),
    /// The group is gone.
    Deleted,
    /// A record without effect.
    Obsolete,
}

/// A record of a consumer group, as loaded.
#[derive(Debug)]
pub(super) struct ConsumerRecord {
    /// The group.
    pub(super) group_id: String,
    pub(super) change: Change,
}

impl ConsumerRecord {
    /// The record with this key, or `None` if it is of another kind than consumer groups.
    pub(super) fn decode(key: &Key<'_>, value: Option<&[u8]>) -> Result<Option<Self>, ReplayError> {
        let (group_id, change) = match key {
            Key::ConsumerGroupMetadata(key) => (&key.group_id, decode_epoch(value)?),
            Key::ConsumerGroupPartitionMetadata(key) => (&key.group_id, Change::Obsolete),
            Key::ConsumerGroupMemberMetadata(key) => {
                (&key.group_id, Change::Member(member_id(&key.member_id), decode_member(value)?))
            }
            Key::ConsumerGroupTargetAssignmentMetadata(key) => (&key.group_id, decode_target_epoch(value)?),
            Key::ConsumerGroupTargetAssignmentMember(key) => {
                (&key.group_id, Change::Target(member_id(&key.member_id), decode_target(value)?))
            }
            Key::ConsumerGroupCurrentMemberAssignment(key) => {
                let progress = decode_progress(&key.group_id, value)?;
                (&key.group_id, Change::Progress(member_id(&key.member_id), progress))
            }
            Key::ConsumerGroupRegularExpression(key) => {
                (&key.group_id, Change::Pattern(key.regular_expression.to_string(), decode_pattern(value)?))
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { group_id: group_id.to_string(), change }))
    }

    /// Whether the record deletes something, so that a missing group need not be made for it.
    pub(super) fn is_tombstone(&self) -> bool {
        matches!(
            self.change,
            Change::Deleted
                | Change::Obsolete
                | Change::Member(_, None)
                | Change::Target(_, None)
                | Change::Progress(_, None)
                | Change::Pattern(_, None)
        )
    }

    /// Whether it deletes the group itself.
    pub(super) fn deletes_group(&self) -> bool {
        self.change == Change::Deleted
    }
}

/// Turns changes of one group into records.
#[derive(Debug)]
pub(crate) struct Recorder<'a> {
    group_id: &'a str,
    records: Vec<OffsetsRecord>,
}

impl<'a> Recorder<'a> {
    /// A recorder for the group of this id.
    pub(crate) fn new(group_id: &'a str) -> Self {
        Self { group_id, records: Vec::new() }
    }

    /// The recorded changes, in order.
    pub(crate) fn into_records(self) -> Vec<OffsetsRecord> {
        self.records
    }

    /// Records a change that has a record. Ids, patterns and names were checked against the wire's bounds when they
    /// came in.
    pub(super) fn record(&mut self, change: &Change) {
        let group_id: Str<'_> = self.group_id.into();
        let record = match change {
            Change::Epoch { epoch, metadata_hash } => {
                let value = ConsumerGroupMetadataValue { epoch: *epoch, metadata_hash: *metadata_hash };
                record(&ConsumerGroupMetadataKey { group_id }, Some(value))
            }
            Change::Member(id, subscription) => {
                let key = ConsumerGroupMemberMetadataKey { group_id, member_id: (&**id).into() };
                record(&key, subscription.as_ref().map(member_value))
            }
            Change::TargetEpoch { epoch, assigned_at_ms } => {
                let value = ConsumerGroupTargetAssignmentMetadataValue {
                    assignment_epoch: *epoch,
                    assignment_timestamp: *assigned_at_ms,
                };
                record(&ConsumerGroupTargetAssignmentMetadataKey { group_id }, Some(value))
            }
            Change::Target(id, target) => {
                let key = ConsumerGroupTargetAssignmentMemberKey { group_id, member_id: (&**id).into() };
                record(&key, target.as_ref().map(target_value))
            }
            Change::Progress(id, progress) => {
                let key = ConsumerGroupCurrentMemberAssignmentKey { group_id, member_id: (&**id).into() };
                record(&key, progress.as_ref().map(progress_value))
            }
            Change::Pattern(pattern, resolved) => {
                let regular_expression = pattern.as_str().into();
                let key = ConsumerGroupRegularExpressionKey { group_id, regular_expression };
                record(&key, resolved.as_ref().map(pattern_value))
            }
            Change::Deleted => records::tombstone(&ConsumerGroupMetadataKey { group_id }),
            Change::Obsolete => return,
        };
        self.records.push(record);
    }

    /// Records that the target's epoch is gone, which only happens at the end of the group.
    pub(super) fn record_target_epoch_deleted(&mut self) {
        let key = ConsumerGroupTargetAssignmentMetadataKey { group_id: self.group_id.into() };
        self.records.push(records::tombstone(&key));
    }
}

/// Upper bound in bytes of the values that record a member with this target, whatever it has given up of it or got: its
/// progress has no partition that is neither in its target nor in its progress before.
pub(super) fn target_bytes_max(target: &Assignment) -> usize {
    let topic = |partitions: &Indexes| {
        TOPIC_BYTES_MAX * partitions.len().min(PROGRESS_LISTS) + PARTITION_BYTES * partitions.len()
    };
    VALUE_BYTES_MAX + target.values().map(topic).sum::<usize>()
}

/// Upper bound in bytes of the value that records the topics of a pattern.
pub(super) fn pattern_bytes_max(topics: &TopicNames) -> usize {
    VALUE_BYTES_MAX + topics.iter().map(|name| LENGTH_BYTES_MAX + name.len()).sum::<usize>()
}

fn record<K: RecordKey, V: Encode>(key: &K, value: Option<V>) -> OffsetsRecord {
    match value {
        Some(value) => records::put(key, &value, VALUE_VERSION),
        None => records::tombstone(key),
    }
}

fn member_value(subscription: &Subscription) -> ConsumerGroupMemberMetadataValue<'_> {
    ConsumerGroupMemberMetadataValue {
        instance_id: subscription.instance_id.as_deref().map(Into::into),
        rack_id: subscription.rack_id.as_deref().map(Into::into),
        client_id: subscription.client_id.as_str().into(),
        client_host: subscription.client_host.as_str().into(),
        subscribed_topic_names: subscription.topics.iter().map(|topic| topic.as_str().into()).collect(),
        subscribed_topic_regex: subscription.pattern.as_deref().map(Into::into),
        rebalance_timeout_ms: subscription.rebalance_timeout_ms,
        server_assignor: subscription.server_assignor.as_deref().map(Into::into),
        classic_member_metadata: subscription.classic.as_ref().map(classic_value),
    }
}

fn classic_value(classic: &ClassicTerms) -> ClassicMemberMetadata<'_> {
    let protocols = classic.protocols.iter().map(|protocol| ClassicProtocol {
        name: protocol.name.as_str().into(),
        metadata: protocol.metadata.as_slice().into(),
    });
    ClassicMemberMetadata {
        session_timeout_ms: classic.session_timeout_ms,
        supported_protocols: protocols.collect(),
    }
}

fn decode_classic(value: ClassicMemberMetadata<'_>) -> ClassicTerms {
    let protocols = value
        .supported_protocols
        .into_iter()
        .map(|protocol| Protocol { name: protocol.name.into_owned(), metadata: protocol.metadata.to_vec() });
    ClassicTerms { session_timeout_ms: value.session_timeout_ms, protocols: protocols.collect() }
}

fn target_value(target: &Assignment) -> ConsumerGroupTargetAssignmentMemberValue {
    let topic = |(&topic_id, partitions): (_, &Indexes)| TopicPartition {
        topic_id,
        partitions: partitions.indexes().collect(),
    };
    ConsumerGroupTargetAssignmentMemberValue { topic_partitions: target.iter().map(topic).collect() }
}

fn progress_value(progress: &Progress) -> ConsumerGroupCurrentMemberAssignmentValue {
    ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: progress.epoch,
        previous_member_epoch: progress.previous_epoch,
        state: progress.state.number(),
        assigned_partitions: epochs_value(&progress.assigned),
        partitions_pending_revocation: epochs_value(&progress.revoking),
    }
}

fn epochs_value(partitions: &EpochsByPartition) -> Vec<TopicPartitions> {
    let topic = |(&topic_id, epochs): (_, &RunMap<i32>)| TopicPartitions {
        topic_id,
        partitions: epochs.indexes().collect(),
        assignment_epochs: Some(epochs.iter().map(|(_, epoch)| *epoch).collect()),
    };
    partitions.iter().map(topic).collect()
}

fn pattern_value(resolved: &ResolvedPattern) -> ConsumerGroupRegularExpressionValue<'_> {
    ConsumerGroupRegularExpressionValue {
        topics: resolved.topics.iter().map(|topic| topic.as_str().into()).collect(),
        version: resolved.version,
        timestamp: resolved.resolved_at_ms,
    }
}

fn decode_epoch(value: Option<&[u8]>) -> Result<Change, ReplayError> {
    let value: Option<ConsumerGroupMetadataValue> = decode("ConsumerGroupMetadata", value)?;
    Ok(value.map_or(Change::Deleted, |value| Change::Epoch {
        epoch: value.epoch,
        metadata_hash: value.metadata_hash,
    }))
}

/// A tombstone only comes with the end of the group, whose own record says so.
fn decode_target_epoch(value: Option<&[u8]>) -> Result<Change, ReplayError> {
    let value: Option<ConsumerGroupTargetAssignmentMetadataValue> =
        decode("ConsumerGroupTargetAssignmentMetadata", value)?;
    Ok(value.map_or(Change::Obsolete, |value| Change::TargetEpoch {
        epoch: value.assignment_epoch,
        assigned_at_ms: value.assignment_timestamp,
    }))
}

fn decode_member(value: Option<&[u8]>) -> Result<Option<Subscription>, ReplayError> {
    let value: Option<ConsumerGroupMemberMetadataValue<'_>> = decode("ConsumerGroupMemberMetadata", value)?;
    Ok(value.map(|value| Subscription {
        instance_id: value.instance_id.map(Str::into_owned),
        rack_id: value.rack_id.map(Str::into_owned),
        client_id: value.client_id.into_owned(),
        client_host: value.client_host.into_owned(),
        topics: Arc::new(value.subscribed_topic_names.into_iter().map(Str::into_owned).collect()),
        pattern: value.subscribed_topic_regex.map(Str::into_owned).filter(|pattern| !pattern.is_empty()),
        rebalance_timeout_ms: value.rebalance_timeout_ms,
        server_assignor: value.server_assignor.map(Str::into_owned),
        classic: value.classic_member_metadata.map(decode_classic),
    }))
}

fn decode_target(value: Option<&[u8]>) -> Result<Option<Assignment>, ReplayError> {
    let value: Option<ConsumerGroupTargetAssignmentMemberValue> =
        decode("ConsumerGroupTargetAssignmentMember", value)?;
    Ok(value.map(|value| {
        let topics = value.topic_partitions.into_iter();
        topics.map(|topic| (topic.topic_id, topic.partitions.into_iter().collect())).collect()
    }))
}

fn decode_progress(group_id: &str, value: Option<&[u8]>) -> Result<Option<Progress>, ReplayError> {
    const RECORD: &str = "ConsumerGroupCurrentMemberAssignment";
    let Some(value) = decode::<ConsumerGroupCurrentMemberAssignmentValue>(RECORD, value)? else {
        return Ok(None);
    };
    let contradiction =
        |detail| ReplayError::Contradiction { record: RECORD, group: group_id.to_owned(), detail };
    let state = MemberState::from_number(value.state);
    let epochs = |partitions| decode_epochs(partitions, value.member_epoch);
    let mismatch = || contradiction("it has not as many epochs as partitions");
    Ok(Some(Progress {
        epoch: value.member_epoch,
        previous_epoch: value.previous_member_epoch,
        state: state.ok_or_else(|| contradiction("its member state is not known"))?,
        assigned: epochs(&value.assigned_partitions).ok_or_else(mismatch)?,
        revoking: epochs(&value.partitions_pending_revocation).ok_or_else(mismatch)?,
    }))
}

/// Partitions with their epochs. Records older than the epochs count as assigned at the member's epoch.
fn decode_epochs(topics: &[TopicPartitions], member_epoch: i32) -> Option<EpochsByPartition> {
    let topic = |topic: &TopicPartitions| {
        let epochs = match &topic.assignment_epochs {
            Some(epochs) if epochs.len() == topic.partitions.len() => epochs.clone(),
            Some(_) => return None,
            None => vec![member_epoch; topic.partitions.len()],
        };
        Some((topic.topic_id, topic.partitions.iter().copied().zip(epochs).collect()))
    };
    topics.iter().map(topic).collect()
}

fn decode_pattern(value: Option<&[u8]>) -> Result<Option<ResolvedPattern>, ReplayError> {
    let value: Option<ConsumerGroupRegularExpressionValue<'_>> =
        decode("ConsumerGroupRegularExpression", value)?;
    Ok(value.map(|value| ResolvedPattern {
        topics: value.topics.into_iter().map(Str::into_owned).collect(),
        version: value.version,
        resolved_at_ms: value.timestamp,
    }))
}

fn decode<'a, V: Decode<'a>>(
    record: &'static str,
    value: Option<&'a [u8]>,
) -> Result<Option<V>, ReplayError> {
    value.map(|value| records::read(record, value)).transpose()
}

fn member_id(id: &str) -> MemberId {
    id.into()
}
