//! `SyncGroup` (key 14), versions 0 to 5: the leader hands in the assignment, and every member receives its part.

use std::sync::Arc;

use riverrun_coordinator::GroupResponse;
use riverrun_protocol::{ErrorCode, SyncGroupRequest, SyncGroupResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: SyncGroupRequest<'_>,
    version: i16,
) -> SyncGroupResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let group = &*request.group_id;
    let handled = broker
        .groups
        .request(broker, context, version, group, |shard, context| shard.sync_group(context, &request));
    match handled.await {
        Ok(GroupResponse::SyncGroup(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> SyncGroupResponse<'static> {
    SyncGroupResponse { error_code: code.0, ..Default::default() }
}
