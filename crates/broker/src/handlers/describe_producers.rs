//! `DescribeProducers` (key 61), version 0: the idempotent producers that a partition remembers (KIP-664).
//!
//! A partition that is named more than once is described once: its producers can be a thousand times its name.

use std::collections::HashSet;
use std::sync::Arc;

use riverrun_log::producer_state::ProducerView;
use riverrun_protocol::describe_producers_request::TopicRequest;
use riverrun_protocol::describe_producers_response::{PartitionResponse, ProducerState, TopicResponse};
use riverrun_protocol::{DescribeProducersRequest, DescribeProducersResponse, ErrorCode};

use crate::aside::give_way;
use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::ClusterImage;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeProducersRequest<'_>,
    _version: i16,
) -> DescribeProducersResponse<'static> {
    let image = broker.catalog.cluster();
    let mut described = HashSet::new();
    let mut response = DescribeProducersResponse::default();
    for topic in &request.topics {
        response.topics.push(describe_topic(broker, context, &image, topic, &mut described).await);
    }
    response
}

/// Describes the partitions of a topic, less those that are `described` already.
async fn describe_topic<'r>(
    broker: &Broker,
    context: &RequestContext,
    image: &ClusterImage,
    topic: &'r TopicRequest<'_>,
    described: &mut HashSet<(&'r str, i32)>,
) -> TopicResponse<'static> {
    let describe = |index: i32| {
        if !context.authorize(Operation::Read, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        let found = TopicKey::Name(&topic.name).find(image)?;
        broker.replicas.find(found, index)?.producers()
    };
    let mut partitions = Vec::new();
    for &index in &topic.partition_indexes {
        if described.insert((&*topic.name, index)) {
            partitions.push(response(index, describe(index)));
        }
        give_way().await;
    }
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::context::ConnectionInfo;
    use crate::start::open_broker;

    #[tokio::test]
    async fn a_partition_that_is_named_many_times_is_described_once() {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(SimEnv::new(1).env(), config).expect("starts");
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let connection = Arc::new(ConnectionInfo::new(1, peer, Arc::from("PLAINTEXT")));
        let context = RequestContext { connection, client_id: Arc::from("test") };
        let topic =
            |name: &'static str| TopicRequest { name: name.into(), partition_indexes: vec![0, 1, 0, 0] };
        let request = DescribeProducersRequest { topics: vec![topic("t"), topic("u"), topic("t")] };
        let response = handle(&broker, &context, request, 0).await;
        let described = response.topics.iter().map(|topic| {
            topic.partitions.iter().map(|partition| partition.partition_index).collect::<Vec<_>>()
        });
        assert_eq!(described.collect::<Vec<_>>(), [vec![0, 1], vec![0, 1], vec![]]);
    }
}
