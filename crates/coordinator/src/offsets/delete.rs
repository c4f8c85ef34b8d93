//! OffsetDelete, and the offsets of topics that are deleted.
//!
//! Owns the removal of single offsets by request; each leaves a tombstone. An offset is deleted with the topic for
//! which it was committed: a topic that was created anew under the name keeps its own offsets, and inherits none.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use riverrun_protocol::offset_delete_request::OffsetDeleteRequestTopic;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::{ErrorCode, OffsetDeleteRequest, OffsetDeleteResponse};
use riverrun_types::TopicId;

use crate::group::GroupEntry;
use crate::lend::STEP_COST_MAX;
use crate::records;
use crate::shard::Shard;
use crate::step::{GroupResponse, OffsetsRecord, RequestContext, Step};
use crate::topics::TopicMetadata;

/// Cost of looking up one topic in a group, in the unit of [`STEP_COST_MAX`].
const TOPIC_COST: usize = 128;

impl Shard {
    /// Handles an OffsetDelete (KIP-496). Topics that a live group reads keep their offsets.
    pub fn offset_delete(
        &mut self,
        context: &RequestContext<'_>,
        request: &OffsetDeleteRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let mut step = Step::default();
        let mut response = OffsetDeleteResponse::default();
        let outcome = match self.groups.get_mut(&*request.group_id) {
            None => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            Some(entry) => entry.group.validate_offset_delete().map(|()| entry),
        };
        match outcome {
            Err(error) => response.error_code = error.0,
            Ok(entry) => {
                let mut delete =
                    |topic| delete_topic(entry, &request.group_id, topic, topics, &mut step.records);
                response.topics = request.topics.iter().map(&mut delete).collect();
            }
        }
        self.finish(&request.group_id);
        step.push_reply(context.token, GroupResponse::OffsetDelete(response));
        step
    }

    /// Drops the offsets of deleted topics, each given by name and id, of the groups behind this one. One call
    /// handles one slice of groups, and none that would take long by itself. An offset without a known id counts as
    /// one of the deleted topic. A lent group drops its offsets when it is taken back.
    pub fn on_topics_deleted(&mut self, deleted: &[(&str, TopicId)], behind: Option<&str>) -> Deletion {
        let mut deletion = Deletion::default();
        let mut touched = Vec::new();
        let mut cost = 0;
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for (group_id, entry) in self.groups.range_mut::<str, _>((from, Bound::Unbounded)) {
            if cost >= STEP_COST_MAX {
                deletion.goes_on_behind = touched.last().cloned();
                break;
            }
            touched.push(Arc::clone(group_id));
            cost += TOPIC_COST * deleted.len();
            if entry.offsets.memory_bytes() > STEP_COST_MAX {
                deletion.at_length.push(Arc::clone(group_id));
                continue;
            }
            let before = deletion.step.records.len();
            drop_offsets_of(group_id, entry, deleted, was_its, &mut deletion.step.records);
            cost += Self::cost_of_offsets(deletion.step.records.len() - before);
        }
        let last = deletion.goes_on_behind.clone();
        self.note_deleted(deleted, (from, last.as_deref().map_or(Bound::Unbounded, Bound::Included)));
        for group_id in touched {
            self.finish(&group_id);
        }
        deletion
    }

    /// As [`Self::on_topics_deleted`], for one group, however long it takes.
    pub fn on_topics_deleted_in(&mut self, group_id: &str, deleted: &[(&str, TopicId)]) -> Step {
        let mut step = Step::default();
        if let Some(entry) = self.groups.get_mut(group_id) {
            drop_offsets_of(group_id, entry, deleted, was_its, &mut step.records);
        }
        self.finish(group_id);
        step
    }

    /// Drops every group's offsets of missing topics. `is_there` decides by the topic's name and the id for which the
    /// offset was committed.
    pub fn drop_offsets_unless(&mut self, is_there: impl Fn(&str, TopicId) -> bool) -> Step {
        let committed = self.committed_offsets().map(|(_, topic, _, offset)| (topic, offset.topic_id));
        let missing = committed.filter(|(topic, id)| !is_there(topic, *id));
        let missing: BTreeSet<_> = missing.map(|(topic, id)| (topic.to_owned(), id)).collect();
        let missing: Vec<_> = missing.iter().map(|(topic, id)| (topic.as_str(), *id)).collect();
        let mut step = Step::default();
        for group_id in self.group_ids() {
            if let Some(entry) = self.groups.get_mut(&group_id) {
                let is_its = |missing, committed_for| committed_for == missing;
                drop_offsets_of(&group_id, entry, &missing, is_its, &mut step.records);
            }
            self.finish(&group_id);
        }
        step
    }
}

/// The result of the deletion of topics in a slice of a shard.
#[derive(Debug, Default)]
pub struct Deletion {
    /// Its records.
    pub step: Step,
    /// Groups that would take long: the host lends each for [`Shard::on_topics_deleted_in`].
    pub at_length: Vec<Arc<str>>,
    /// The group behind which the next slice begins, if there is one.
    pub goes_on_behind: Option<Arc<str>>,
}

/// Whether an offset that was committed for this id is deleted with the topic.
fn was_its(deleted: TopicId, committed_for: TopicId) -> bool {
    committed_for == deleted || committed_for.is_zero()
}

/// Drops a group's offsets of these topics, if `is_its` holds for the topic's id and the offset's.
fn drop_offsets_of(
    group_id: &str,
    entry: &mut GroupEntry,
    topics: &[(&str, TopicId)],
    is_its: impl Fn(TopicId, TopicId) -> bool,
    tombstones: &mut Vec<OffsetsRecord>,
) {
    for (topic, id) in topics {
        let gone = entry.offsets.remove_where(topic, |offset| is_its(*id, offset.topic_id)).into_iter();
        tombstones.extend(gone.map(|partition| records::offset_tombstone(group_id, topic, partition)));
    }
}

/// Deletes the offsets of one topic as far as allowed; a missing offset counts as deleted.
fn delete_topic(
    entry: &mut GroupEntry,
    group_id: &str,
    topic: &OffsetDeleteRequestTopic<'_>,
    topics: &dyn TopicMetadata,
    tombstones: &mut Vec<OffsetsRecord>,
) -> OffsetDeleteResponseTopic<'static> {
    let partition_count = topics.topic_id(&topic.name).and_then(|id| topics.partition_count(id)).unwrap_or(0);
    let is_read = entry.group.is_subscribed_to(&topic.name);
    let refusal = |partition: i32| match partition {
        _ if !(0..partition_count).contains(&partition) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        _ if is_read => ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC,
        _ => ErrorCode::NONE,
    };
    let mut response = OffsetDeleteResponseTopic {
        name: topic.name.to_string().into(),
        ..OffsetDeleteResponseTopic::default()
    };
    for partition in &topic.partitions {
        let index = partition.partition_index;
        let refused = refusal(index);
        if refused == ErrorCode::NONE && entry.offsets.remove(&topic.name, index) {
            // Kafka keeps a group without offsets until its next sweep.
            entry.lingers = true;
            tombstones.push(records::offset_tombstone(group_id, &topic.name, index));
        }
        response
            .partitions
            .push(OffsetDeleteResponsePartition { partition_index: index, error_code: refused.0 });
    }
    response
}

#[cfg(test)]
mod tests {
    use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

    use super::*;
    use crate::offsets::CommittedOffset;
    use crate::time::Stamp;
    use crate::{GroupConfig, GroupMemory};

    const OLD: TopicId = TopicId([1; 16]);
    const NEW: TopicId = TopicId([2; 16]);

    /// A shard in whose log the first partition of each of these topics has an offset, committed for this id.
    fn shard(offsets: &[(&str, TopicId)]) -> Shard {
        let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
        for (topic, topic_id) in offsets {
            let committed = CommittedOffset {
                offset: Offset(7),
                leader_epoch: LeaderEpoch::UNKNOWN,
                metadata: "".into(),
                committed_at: Stamp::recorded(TimestampMs(0)),
                expires_at: None,
                topic_id: *topic_id,
            };
            let record = records::offset_commit("g", topic, 0, &committed);
            shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        shard
    }

    fn topics(shard: &Shard) -> Vec<&str> {
        shard.committed_offsets().map(|(_, topic, ..)| topic).collect()
    }

    #[test]
    fn deletion_keeps_offsets_of_a_recreated_topic() {
        let mut shard = shard(&[("new", NEW), ("old", OLD), ("unknown", TopicId::ZERO)]);
        let step = shard.on_topics_deleted(&[("new", OLD), ("old", OLD), ("unknown", OLD)], None).step;
        assert_eq!(topics(&shard), ["new"]);
        let tombstones = ["old", "unknown"].map(|topic| records::offset_tombstone("g", topic, 0));
        assert_eq!(step.records, tombstones);
    }

    #[test]
    fn missing_topic_is_recognised_by_name_and_id() {
        let mut shard =
            shard(&[("gone", TopicId::ZERO), ("here", TopicId::ZERO), ("new", OLD), ("same", NEW)]);
        let is_there = |name: &str, id: TopicId| name != "gone" && (id.is_zero() || id == NEW);
        let step = shard.drop_offsets_unless(is_there);
        assert_eq!(topics(&shard), ["here", "same"]);
        assert_eq!(step.records.len(), 2);
    }
}
