//! `DescribeProducers` (key 61), version 0: the idempotent producers that a partition remembers (KIP-664).

use std::sync::Arc;

use riverrun_log::producer_state::ProducerView;
use riverrun_protocol::describe_producers_request::TopicRequest;
use riverrun_protocol::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use riverrun_protocol::{DescribeProducersRequest, DescribeProducersResponse, ErrorCode};

use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::Image;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeProducersRequest<'_>,
    _version: i16,
) -> DescribeProducersResponse<'static> {
    let image = broker.metadata.image();
    let topics = request.topics.iter().map(|topic| describe_topic(broker, context, &image, topic)).collect();
    DescribeProducersResponse { topics, ..Default::default() }
}

fn describe_topic(
    broker: &Broker,
    context: &RequestContext,
    image: &Image,
    topic: &TopicRequest<'_>,
) -> TopicResponse<'static> {
    let describe = |index: i32| {
        if !context.authorize(Operation::Read, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        let found = TopicKey::Name(&topic.name).find(image)?;
        if let Some(mounted) = broker.mounted(found, index) {
            return mounted.map(|queue| queue.producers());
        }
        let partition = broker.partition(found, index)?;
        partition.log.active_producers().map_err(|trouble| error::log_error(&trouble))
    };
    let partitions = topic.partition_indexes.iter().map(|&index| response(index, describe(index))).collect();
    TopicResponse { name: topic.name.to_string().into(), partitions }
}

fn response(index: i32, producers: Result<Vec<ProducerView>, ErrorCode>) -> PartitionResponse<'static> {
    let mut response = PartitionResponse { partition_index: index, ..Default::default() };
    match producers {
        Ok(producers) => response.active_producers = producers.iter().map(state).collect(),
        Err(code) => {
            response.error_code = code.0;
            response.error_message = Some(code.message().into());
        }
    }
    response
}

fn state(producer: &ProducerView) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id.0,
        producer_epoch: i32::from(producer.epoch.0),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp.0,
        coordinator_epoch: -1,
        current_txn_start_offset: -1,
    }
}
