//! OffsetCommit: who may commit, and which offsets of a commit are taken.
//!
//! Owns the checks of a commit, each partition by itself: a refused one does not hold back the others. The records of
//! a commit are bounded, whatever the request repeats: a partition has one record, its last.

use std::collections::HashMap;

use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use riverrun_protocol::{ErrorCode, OffsetCommitRequest, OffsetCommitResponse};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use super::CommittedOffset;
use crate::classic::StepBuilder;
use crate::group::{Committer, Group, GroupEntry};
use crate::memory::Room;
use crate::records;
use crate::shard::Shard;
use crate::step::{GroupResponse, OffsetsRecord, RequestContext, Step};
use crate::time::{Now, Stamp};
use crate::topics::TopicMetadata;

/// From this version on an unknown group is named as such.
const GROUP_ID_NOT_FOUND_VERSION: i16 = 9;
/// From this version on topics are named by id.
const TOPIC_ID_VERSION: i16 = 10;
/// Upper bound of the keys and values of one commit's records in bytes. Each key repeats the group's id, so that they
/// can be many times the request; this is room for 100,000 partitions with names of the usual length.
const COMMIT_RECORD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A topic of the request, as in the metadata.
struct Resolved<'a> {
    name: &'a str,
    id: TopicId,
    partition_count: i32,
}

/// Finds a request's topic by the name or id of its version.
fn resolve<'a>(
    topic: &'a OffsetCommitRequestTopic<'_>,
    api_version: i16,
    topics: &'a dyn TopicMetadata,
) -> Result<Resolved<'a>, ErrorCode> {
    let (name, id) = if api_version >= TOPIC_ID_VERSION {
        let name = topics.topic_name(topic.topic_id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
        (name, topic.topic_id)
    } else {
        let id = topics.topic_id(&topic.name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        (&*topic.name, id)
    };
    let partition_count = topics.partition_count(id).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    Ok(Resolved { name, id, partition_count })
}

impl Shard {
    /// Handles an OffsetCommit. Topics and partitions that do not exist are refused; so is everything if the
    /// committer may not commit now. A client without membership makes the group if it does not exist.
    pub fn offset_commit(
        &mut self,
        context: &RequestContext<'_>,
        request: &OffsetCommitRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let committer = Committer {
            member_id: &request.member_id,
            instance_id: request.group_instance_id.as_deref(),
            epoch: request.generation_id_or_member_epoch,
            api_version: context.api_version,
        };
        let admitted = self.admit_commit(context.now, &request.group_id, &committer);
        let records = CommitRecords::default();
        let offsets_bytes =
            self.groups.get(&*request.group_id).map_or(0, |entry| entry.offsets.memory_bytes());
        let mut commit =
            Commit { shard: self, context, request, committer, admitted, offsets_bytes, records };
        let mut response = OffsetCommitResponse::default();
        for topic in &request.topics {
            response.topics.push(commit.topic(topic, topics));
        }
        let mut step = Step { records: commit.records.records, ..Step::default() };
        step.push_reply(context.token, GroupResponse::OffsetCommit(response));
        self.finish_commit(&request.group_id, &request.member_id);
        step
    }

    /// Finds or makes the group, checks the committer, and takes the commit as a sign of life.
    fn admit_commit(&mut self, now: Now, group_id: &str, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        if !self.groups.contains_key(group_id) {
            if committer.epoch >= 0 && committer.api_version >= GROUP_ID_NOT_FOUND_VERSION {
                return Err(ErrorCode::GROUP_ID_NOT_FOUND);
            }
            if committer.epoch >= 0 {
                return Err(ErrorCode::ILLEGAL_GENERATION);
            }
            self.create(group_id, GroupEntry::new(Group::Simple))?;
        }
        let Some(entry) = self.groups.get_mut(group_id) else { return Err(ErrorCode::GROUP_ID_NOT_FOUND) };
        entry.group.validate_commit(committer)?;
        if let Group::Classic(group) = &mut entry.group {
            group.note_commit(&StepBuilder::new(now, &self.config), committer.member_id);
        }
        Ok(())
    }

    /// Ends a commit: it was a sign of life, and a group that was made in vain is removed.
    fn finish_commit(&mut self, group_id: &str, member_id: &str) {
        if matches!(self.groups.get(group_id).map(|entry| &entry.group), Some(Group::Simple)) {
            return self.finish(group_id);
        }
        self.charge(group_id);
        self.wake_for(group_id, member_id);
    }
}

/// The records of one commit.
///
/// Invariants: `places` has the index in `records` of every partition that has one; `size_bytes` is the sum of all
/// keys and values, at most [`COMMIT_RECORD_BYTES_MAX`].
#[derive(Default)]
struct CommitRecords {
    records: Vec<OffsetsRecord>,
    places: HashMap<(TopicId, i32), usize>,
    size_bytes: usize,
}

impl CommitRecords {
    /// Adds a partition's record, in place of an earlier one; returns whether there was room.
    fn put(&mut self, topic: TopicId, partition: i32, record: OffsetsRecord) -> bool {
        let place = self.places.get(&(topic, partition)).copied();
        let replaced_bytes = place.map_or(0, |place| record_bytes(&self.records[place]));
        let size_bytes = self.size_bytes - replaced_bytes + record_bytes(&record);
        if size_bytes > COMMIT_RECORD_BYTES_MAX {
            return false;
        }
        self.size_bytes = size_bytes;
        if let Some(place) = place {
            self.records[place] = record;
        } else {
            self.places.insert((topic, partition), self.records.len());
            self.records.push(record);
        }
        true
    }
}

fn record_bytes(record: &OffsetsRecord) -> usize {
    record.key.len() + record.value.as_ref().map_or(0, Vec::len)
}

/// The state of one commit on its way through its partitions.
struct Commit<'a> {
    shard: &'a mut Shard,
    context: &'a RequestContext<'a>,
    request: &'a OffsetCommitRequest<'a>,
    committer: Committer<'a>,
    admitted: Result<(), ErrorCode>,
    /// Bytes of the group's offsets before the commit.
    offsets_bytes: usize,
    records: CommitRecords,
}

impl Commit<'_> {
    /// Commits one topic's partitions.
    fn topic(
        &mut self,
        topic: &OffsetCommitRequestTopic<'_>,
        topics: &dyn TopicMetadata,
    ) -> OffsetCommitResponseTopic<'static> {
        let resolved = resolve(topic, self.context.api_version, topics);
        let partition = |partition: &OffsetCommitRequestPartition<'_>| {
            let outcome = match &resolved {
                Ok(resolved) => self.partition(resolved, partition),
                Err(error) => Err(*error),
            };
            OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: outcome.err().unwrap_or(ErrorCode::NONE).0,
            }
        };
        OffsetCommitResponseTopic {
            partitions: topic.partitions.iter().map(partition).collect(),
            name: topic.name.to_string().into(),
            topic_id: topic.topic_id,
        }
    }

    /// Commits one partition.
    fn partition(
        &mut self,
        topic: &Resolved<'_>,
        partition: &OffsetCommitRequestPartition<'_>,
    ) -> Result<(), ErrorCode> {
        let index = partition.partition_index;
        if !(0..topic.partition_count).contains(&index) {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        self.admitted?;
        let config = &self.shard.config;
        let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
        if metadata.len() > config.offset_metadata_max_bytes {
            return Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
        }
        let Some(entry) = self.shard.groups.get_mut(&*self.request.group_id) else {
            return Err(ErrorCode::GROUP_ID_NOT_FOUND);
        };
        entry.group.validate_partition_commit(&self.committer, topic.id, index)?;
        if entry.offsets.len() >= config.group_offsets_max && !entry.offsets.contains(topic.name, index) {
            return Err(ErrorCode::INVALID_COMMIT_OFFSET_SIZE);
        }
        let memory_bytes = entry.offsets.memory_bytes_with(topic.name, index, metadata.len());
        let room = Room::new(&self.shard.share, entry.charge, self.offsets_bytes);
        room.check(memory_bytes).map_err(|shortage| shortage.code(ErrorCode::INVALID_COMMIT_OFFSET_SIZE))?;
        let now = self.context.now;
        let retention_ms = self.request.retention_time_ms;
        let expires_at = (retention_ms >= 0).then_some(TimestampMs(now.wall.0.saturating_add(retention_ms)));
        let committed = CommittedOffset {
            offset: Offset(partition.committed_offset),
            leader_epoch: LeaderEpoch(partition.committed_leader_epoch),
            metadata: metadata.into(),
            committed_at: Stamp::now(now),
            expires_at,
            // Equal to the result of a replay of the record.
            topic_id: if expires_at.is_some() { TopicId::ZERO } else { topic.id },
        };
        let record = records::offset_commit(&self.request.group_id, topic.name, index, &committed);
        if !self.records.put(topic.id, index, record) {
            return Err(ErrorCode::INVALID_COMMIT_OFFSET_SIZE);
        }
        entry.offsets.insert(topic.name, index, committed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicId = TopicId([1; 16]);

    fn record(size_bytes: usize) -> OffsetsRecord {
        OffsetsRecord { key: vec![7; 10], value: Some(vec![0; size_bytes - 10]) }
    }

    #[test]
    fn a_partition_that_is_repeated_has_one_record_its_last() {
        let mut records = CommitRecords::default();
        for size_bytes in [100, 50, 70] {
            assert!(records.put(TOPIC, 0, record(size_bytes)));
            assert!(records.put(TOPIC, 1, record(20)));
        }
        assert_eq!(records.records, [record(70), record(20)]);
        assert_eq!(records.size_bytes, 90);
    }

    #[test]
    fn records_have_a_bound_and_what_is_above_it_is_left_out() {
        let mut records = CommitRecords::default();
        assert!(records.put(TOPIC, 0, record(COMMIT_RECORD_BYTES_MAX - 20)));
        assert!(!records.put(TOPIC, 1, record(21)));
        assert!(!records.put(TOPIC, 0, record(COMMIT_RECORD_BYTES_MAX + 1)));
        assert!(records.put(TOPIC, 1, record(20)));
        assert_eq!(records.records.len(), 2);
        assert_eq!(records.size_bytes, COMMIT_RECORD_BYTES_MAX);
    }
}
