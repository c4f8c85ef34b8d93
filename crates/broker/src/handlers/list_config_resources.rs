//! `ListConfigResources` (key 74), versions 0 to 1: the resources that have a configuration (KIP-1142).
//!
//! Topics, this server, and consumer groups that set something for themselves have one. Version 0 asks for client metrics
//! only (KIP-1000), of which there are none, as of broker loggers.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::list_config_resources_response::ConfigResource;
use riverrun_protocol::{ErrorCode, ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::bounds::partitions_bytes;
use super::config_resource::{BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC};
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

/// Kinds of resources that a request may ask for.
const KNOWN_TYPES: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
/// First version that asks for other kinds than client metrics.
const TYPES_SINCE: i16 = 1;
/// Memory of one resource in the answer, for the most part: its name.
const RESOURCE_BYTES: usize = 100;

/// Memory of the answer: a topic has one partition at least.
pub(crate) fn answer_bytes(broker: &Broker, _request: &ListConfigResourcesRequest, _version: i16) -> usize {
    let image = broker.catalog.cluster();
    let groups = image.configured_groups().map(|group| RESOURCE_BYTES + group.group_id.len());
    partitions_bytes(broker, RESOURCE_BYTES).saturating_add(groups.sum())
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse<'static> {
    let refused = |code: ErrorCode| ListConfigResourcesResponse { error_code: code.0, ..Default::default() };
    if !context.authorize(Operation::DescribeConfigs, Resource::Cluster) {
        return refused(ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    }
    let asked: BTreeSet<i8> = request.resource_types.into_iter().collect();
    if asked.iter().any(|kind| !KNOWN_TYPES.contains(kind)) {
        return refused(ErrorCode::UNSUPPORTED_VERSION);
    }
    let wants = |kind: i8| version >= TYPES_SINCE && (asked.is_empty() || asked.contains(&kind));
    let resource =
        |resource_type: i8, name: String| ConfigResource { resource_type, resource_name: name.into() };
    let mut config_resources = Vec::new();
    let image = broker.catalog.cluster();
    if wants(TOPIC) {
        let names = image.topics_sorted().into_iter().map(|topic| resource(TOPIC, topic.name.to_string()));
        config_resources.extend(names);
    }
    if wants(BROKER) {
        config_resources.push(resource(BROKER, broker.node_id().0.to_string()));
    }
    if wants(GROUP) {
        let mut groups: Vec<_> = image.configured_groups().map(|group| group.group_id.to_string()).collect();
        groups.sort_unstable();
        config_resources.extend(groups.into_iter().map(|group| resource(GROUP, group)));
    }
    ListConfigResourcesResponse { config_resources, ..Default::default() }
}
