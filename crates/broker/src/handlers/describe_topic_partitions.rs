//! `DescribeTopicPartitions` (key 75), version 0 (KIP-966).
//!
//! Tells topics and their partitions in pages: at most as many partitions as the client or
//! `max.request.partition.size.limit` allows, and a cursor to go on from. Topics come in the order of their names;
//! none named means all. A topic has one replica, so no list of further eligible leaders; where its files cannot be used,
//! the partition has no leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use riverrun_protocol::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, ErrorCode};

use super::bounds::partitions_bytes;
use super::operations;
use super::standing::Standing;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::{ClusterImage, Topic};
use crate::topic_names::{check_name, is_internal};

/// Memory of one topic among all, whose names are put in order.
const NAME_BYTES: usize = 60;
/// Memory of one partition in the answer.
const PARTITION_BYTES: usize = 300;

/// Memory of the answer, about. There are no more topics than partitions.
pub(crate) fn answer_bytes(
    broker: &Broker,
    request: &DescribeTopicPartitionsRequest<'_>,
    _version: i16,
) -> usize {
    let asked = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let names = if request.topics.is_empty() { partitions_bytes(broker, NAME_BYTES) } else { 0 };
    let page = asked.min(broker.config.server.max_request_partition_size_limit) * PARTITION_BYTES;
    names + page.min(partitions_bytes(broker, PARTITION_BYTES))
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest<'_>,
    _version: i16,
) -> DescribeTopicPartitionsResponse<'static> {
    let image = broker.catalog.cluster();
    let asked = usize::try_from(request.response_partition_limit).unwrap_or(0).max(1);
    let limit = asked.min(broker.config.server.max_request_partition_size_limit);
    let start = request.cursor.as_ref().map(|cursor| (&*cursor.topic_name, cursor.partition_index.max(0)));
    let asked_for: BTreeSet<&str> = request.topics.iter().map(|topic| &*topic.name).collect();
    let is_all = asked_for.is_empty();
    let names = if is_all { image.topics().map(|topic| &*topic.name).collect() } else { asked_for };
    let mut page = Page { image: &image, context, broker, room: limit, topics: Vec::new() };
    let from = start.map_or("", |(name, _)| name);
    for name in names.range(from..) {
        let first = start.map_or(0, |(topic, partition)| if topic == *name { partition } else { 0 });
        if let Some(partition_index) = page.add(name, first, is_all) {
            let next_cursor = Some(Cursor { topic_name: (*name).to_owned().into(), partition_index });
            return DescribeTopicPartitionsResponse {
                topics: page.topics,
                next_cursor,
                ..Default::default()
            };
        }
    }
    DescribeTopicPartitionsResponse { topics: page.topics, ..Default::default() }
}

/// A response in the making.
struct Page<'a> {
    image: &'a ClusterImage,
    context: &'a RequestContext,
    broker: &'a Broker,
    /// Partitions that still fit.
    room: usize,
    topics: Vec<DescribeTopicPartitionsResponseTopic<'static>>,
}

impl Page<'_> {
    /// Adds a topic from its partition `first` on. Answers the partition to go on from if not all fit.
    fn add(&mut self, name: &str, first: i32, is_all: bool) -> Option<i32> {
        if !self.context.authorize(Operation::Describe, Resource::Topic(name)) {
            if !is_all {
                self.topics.push(failed(name, ErrorCode::TOPIC_AUTHORIZATION_FAILED));
            }
            return None;
        }
        let Some(topic) = self.image.topic(name) else {
            let is_name = check_name(name).is_ok();
            let code = if is_name {
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            } else {
                ErrorCode::INVALID_TOPIC_EXCEPTION
            };
            self.topics.push(failed(name, code));
            return None;
        };
        if self.room == 0 {
            return Some(first);
        }
        let room = i32::try_from(self.room).unwrap_or(i32::MAX);
        let end = first.saturating_add(room).min(topic.partition_count());
        let partitions: Vec<_> = (first..end).map(|index| self.partition(topic, index)).collect();
        self.room -= partitions.len();
        self.topics.push(self.described(topic, partitions));
        (end < topic.partition_count()).then_some(end)
    }

    fn described(
        &self,
        topic: &Topic,
        partitions: Vec<DescribeTopicPartitionsResponsePartition>,
    ) -> DescribeTopicPartitionsResponseTopic<'static> {
        DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::NONE.0,
            name: Some(topic.name.to_string().into()),
            topic_id: topic.id,
            is_internal: is_internal(&topic.name),
            partitions,
            topic_authorized_operations: operations::on_topic(self.context, &topic.name),
        }
    }

    fn partition(&self, topic: &Topic, partition_index: i32) -> DescribeTopicPartitionsResponsePartition {
        let standing = Standing::of(self.broker, topic, partition_index);
        DescribeTopicPartitionsResponsePartition {
            error_code: standing.error_code,
            partition_index,
            leader_id: standing.leader_id,
            leader_epoch: self.broker.leader_epoch(topic, partition_index).0,
            isr_nodes: standing.replica_nodes.clone(),
            replica_nodes: standing.replica_nodes,
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            offline_replicas: standing.offline_replicas,
        }
    }
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic<'static> {
    DescribeTopicPartitionsResponseTopic {
        error_code: code.0,
        name: Some(name.to_owned().into()),
        ..Default::default()
    }
}
