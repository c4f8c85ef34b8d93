//! OffsetDelete, and the offsets of topics that are deleted.
//!
//! Owns the removal of single offsets by request; what goes leaves a tombstone.

use riverrun_protocol::offset_delete_request::OffsetDeleteRequestTopic;
use riverrun_protocol::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use riverrun_protocol::{ErrorCode, OffsetDeleteRequest, OffsetDeleteResponse};

use crate::group::GroupEntry;
use crate::records;
use crate::shard::Shard;
use crate::step::{GroupResponse, OffsetsRecord, RequestContext, Step};
use crate::topics::TopicMetadata;

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

    /// Drops every group's offsets of topics that no longer exist.
    pub fn on_topics_deleted(&mut self, names: &[&str]) -> Step {
        let mut step = Step::default();
        let mut touched = Vec::new();
        for (group_id, entry) in &mut self.groups {
            let before = step.records.len();
            for topic in names {
                let gone = entry.offsets.remove_topic(topic).into_iter();
                step.records
                    .extend(gone.map(|partition| records::offset_tombstone(group_id, topic, partition)));
            }
            if step.records.len() > before {
                touched.push(group_id.clone());
            }
        }
        for group_id in touched {
            self.finish(&group_id);
        }
        step
    }
}

/// Deletes the offsets of one topic as far as it may be; an offset that is not there is deleted already.
fn delete_topic(
    entry: &mut GroupEntry,
    group_id: &str,
    topic: &OffsetDeleteRequestTopic<'_>,
    topics: &dyn TopicMetadata,
    tombstones: &mut Vec<OffsetsRecord>,
) -> OffsetDeleteResponseTopic<'static> {
    let refused = if topics.topic_id(&topic.name).is_none() {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else if entry.group.is_subscribed_to(&topic.name) {
        ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC
    } else {
        ErrorCode::NONE
    };
    let mut response = OffsetDeleteResponseTopic {
        name: topic.name.to_string().into(),
        ..OffsetDeleteResponseTopic::default()
    };
    for partition in &topic.partitions {
        let index = partition.partition_index;
        if refused == ErrorCode::NONE && entry.offsets.remove(&topic.name, index) {
            tombstones.push(records::offset_tombstone(group_id, &topic.name, index));
        }
        response
            .partitions
            .push(OffsetDeleteResponsePartition { partition_index: index, error_code: refused.0 });
    }
    response
}
