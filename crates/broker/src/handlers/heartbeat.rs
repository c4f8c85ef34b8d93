//! Heartbeat (key 12), versions 0 to 4: a member of the classic protocol lives, and learns of a rebalance.

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
    let topics = broker.groups.topics_for(context);
    let cost = |shard: &Shard| shard.cost_of_sign_of_life(group, &request.member_id, &topics);
    let beat = |shard: &mut Shard, context: &GroupContext<'_>, has_room| {
        shard.heartbeat(context, &request, &topics, has_room)
    };
    match broker.groups.keep_alive(context, version, group, cost, beat).await {
        Ok(GroupResponse::Heartbeat(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse { error_code: code.0, ..Default::default() }
}
