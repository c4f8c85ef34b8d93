//! `OffsetForLeaderEpoch` (key 23), versions 2 to 4: where an epoch ended, so that a client notices that records it
//! has read are gone (KIP-101, KIP-320).

use std::sync::Arc;

use riverrun_protocol::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use riverrun_protocol::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use riverrun_protocol::{ErrorCode, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use riverrun_types::{LeaderEpoch, Offset};

use crate::aside::give_way;
use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::ClusterImage;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest<'_>,
    _version: i16,
) -> OffsetForLeaderEpochResponse<'static> {
    let image = broker.catalog.cluster();
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in &request.topics {
        response.topics.push(end_topic(broker, context, &image, topic).await);
    }
    response
}

async fn end_topic(
    broker: &Broker,
    context: &RequestContext,
    image: &ClusterImage,
    topic: &OffsetForLeaderTopic<'_>,
) -> OffsetForLeaderTopicResult<'static> {
    let end = |asked: &OffsetForLeaderPartition| {
        if !context.authorize(Operation::Describe, Resource::Topic(&topic.topic)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        let found = TopicKey::Name(&topic.topic).find(image)?;
        broker.check_epoch(found, asked.partition, LeaderEpoch(asked.current_leader_epoch))?;
        let replica = broker.replicas.find(found, asked.partition)?;
        replica.epoch_end_offset(LeaderEpoch(asked.leader_epoch))
    };
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for asked in &topic.partitions {
        partitions.push(response(asked.partition, end(asked)));
        give_way().await;
    }
    OffsetForLeaderTopicResult { topic: topic.topic.to_string().into(), partitions }
}

fn response(partition: i32, end: Result<(LeaderEpoch, Offset), ErrorCode>) -> EpochEndOffset {
    match end {
        Ok((epoch, offset)) => {
            EpochEndOffset { partition, leader_epoch: epoch.0, end_offset: offset.0, ..Default::default() }
        }
        Err(code) => EpochEndOffset { partition, error_code: code.0, ..Default::default() },
    }
}
