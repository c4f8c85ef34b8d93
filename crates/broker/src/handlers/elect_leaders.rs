//! `ElectLeaders` (key 43), versions 0 to 2.
//!
//! Every partition has one replica, which leads it: there is never anything to elect. Partitions that are named are
//! answered with `ELECTION_NOT_NEEDED`; a request for all is answered with an empty list, as by Kafka, which names only
//! partitions that changed. A type of election that Kafka does not know is `INVALID_REQUEST`.

use std::sync::Arc;

use riverrun_protocol::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use riverrun_protocol::{ElectLeadersRequest, ElectLeadersResponse, ErrorCode};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::Topic;

/// Kafka's numbers of a preferred and an unclean election (KIP-460).
const ELECTION_TYPES: [i8; 2] = [0, 1];

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ElectLeadersRequest<'_>,
    _version: i16,
) -> ElectLeadersResponse<'static> {
    if !context.authorize(Operation::Alter, Resource::Cluster) {
        let error_code = ErrorCode::CLUSTER_AUTHORIZATION_FAILED.0;
        return ElectLeadersResponse { error_code, ..Default::default() };
    }
    if !ELECTION_TYPES.contains(&request.election_type) {
        let error_code = ErrorCode::INVALID_REQUEST.0;
        return ElectLeadersResponse { error_code, ..Default::default() };
    }
    let image = broker.catalog.cluster();
    let named = request.topic_partitions.unwrap_or_default();
    let replica_election_results = named
        .iter()
        .map(|wanted| {
            let topic = image.topic(&wanted.topic);
            ReplicaElectionResult {
                topic: wanted.topic.to_string().into(),
                partition_result: wanted.partitions.iter().map(|index| result(topic, *index)).collect(),
            }
        })
        .collect();
    ElectLeadersResponse { replica_election_results, ..Default::default() }
}

fn result(topic: Option<&Arc<Topic>>, partition_id: i32) -> PartitionResult<'static> {
    let (code, message) = match topic.filter(|topic| topic.has_partition(partition_id)) {
        Some(_) => (ErrorCode::ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        None => (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
    };
    PartitionResult { partition_id, error_code: code.0, error_message: Some(message.into()) }
}
