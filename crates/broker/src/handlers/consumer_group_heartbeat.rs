//! `ConsumerGroupHeartbeat` (key 68), versions 0 to 1: membership of a KIP-848 group, and its assignment, which this
//! server computes.

use std::sync::Arc;

use riverrun_coordinator::GroupResponse;
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::groups;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest<'_>,
    version: i16,
) -> ConsumerGroupHeartbeatResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let topics = groups::topics(&broker.metadata.image());
    let group = &*request.group_id;
    let handled = broker.groups.request(broker, context, version, group, |shard, context| {
        shard.consumer_group_heartbeat(context, &request, &topics)
    });
    match handled.await {
        Ok(GroupResponse::ConsumerGroupHeartbeat(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse<'static> {
    ConsumerGroupHeartbeatResponse { error_code: code.0, ..Default::default() }
}
