//! `LeaveGroup` (key 13), versions 0 to 5: members leave a classic group, or an admin removes them (KIP-345).

use std::sync::Arc;

use riverrun_coordinator::GroupResponse;
use riverrun_protocol::{ErrorCode, LeaveGroupRequest, LeaveGroupResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

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
    let handled = broker
        .groups
        .request(broker, context, version, group, |shard, context| shard.leave_group(context, &request));
    match handled.await {
        Ok(GroupResponse::LeaveGroup(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> LeaveGroupResponse<'static> {
    LeaveGroupResponse { error_code: code.0, ..Default::default() }
}
