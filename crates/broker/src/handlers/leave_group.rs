//! `LeaveGroup` (key 13), versions 0 to 5: members leave their group, or an admin removes them (KIP-345).

use std::sync::Arc;

use riverrun_coordinator::{GroupResponse, RequestContext as GroupContext, Shard};
use riverrun_protocol::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::groups;

/// Cost to the group of losing these members.
pub(crate) fn answer_bytes(broker: &Broker, request: &LeaveGroupRequest<'_>, _version: i16) -> usize {
    groups::work_bytes(broker.groups.cost(&request.group_id, |shard| shard.cost_of_all(&request.group_id)))
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: LeaveGroupRequest<'_>,
    version: i16,
) -> LeaveGroupResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let group = &*request.group_id;
    let topics = broker.groups.topics_for(context);
    let cost = |shard: &Shard| shard.cost_of_all(group);
    let leave = |shard: &mut Shard, context: &GroupContext<'_>| shard.leave_group(context, &request, &topics);
    match broker.groups.request(context, version, group, cost, leave).await {
        Ok(GroupResponse::LeaveGroup(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> LeaveGroupResponse<'static> {
    LeaveGroupResponse { error_code: code.0, ..Default::default() }
}
