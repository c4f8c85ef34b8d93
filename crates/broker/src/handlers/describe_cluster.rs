//! `DescribeCluster` (key 60), versions 0 to 2 (KIP-700).
//!
//! Tells the cluster's id and its nodes, of which there is one, at the address of the listener that the client came
//! in on. There are no separate controllers to describe (KIP-919), and no node is ever fenced (KIP-1073).

use std::sync::Arc;

use riverrun_protocol::describe_cluster_response::DescribeClusterBroker;
use riverrun_protocol::{DescribeClusterRequest, DescribeClusterResponse, ErrorCode};
use riverrun_types::NodeId;

use super::operations;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeClusterRequest,
    _version: i16,
) -> DescribeClusterResponse<'static> {
    let refused = |code: ErrorCode, message: &'static str| DescribeClusterResponse {
        error_code: code.0,
        error_message: Some(message.into()),
        ..Default::default()
    };
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(ErrorCode::MISMATCHED_ENDPOINT_TYPE, "This is an endpoint of a broker.");
        }
        _ => return refused(ErrorCode::UNSUPPORTED_ENDPOINT_TYPE, "This endpoint type is not known."),
    }
    if !context.authorize(Operation::Describe, Resource::Cluster) {
        return refused(ErrorCode::CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.");
    }
    let NodeId(broker_id) = broker.node_id();
    let (host, port) = broker.endpoint(context);
    let rack = broker.config.server.broker_rack.clone().map(Into::into);
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: broker.catalog.cluster().id().to_string().into(),
        controller_id: broker_id,
        brokers: vec![DescribeClusterBroker { broker_id, host: host.into(), port, rack, is_fenced: false }],
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            operations::on_cluster(context)
        } else {
            operations::NOT_ASKED
        },
        ..Default::default()
    }
}
