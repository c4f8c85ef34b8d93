//! Heartbeat (key 12), versions 0 to 4: a member of a classic group lives, and learns of a rebalance.

use std::sync::Arc;

use riverrun_coordinator::{GroupResponse, RequestContext as GroupContext, Shard};
use riverrun_protocol::{ErrorCode, HeartbeatRequest, HeartbeatResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: HeartbeatRequest<'_>,
    version: i16,
) -> HeartbeatResponse {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let group = &*request.group_id;
    // It adds no records.
    let beat = |shard: &mut Shard, context: &GroupContext<'_>, _| shard.heartbeat(context, &request);
    match broker.groups.keep_alive(broker, context, version, group, beat).await {
        Ok(GroupResponse::Heartbeat(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse { error_code: code.0, ..Default::default() }
}
