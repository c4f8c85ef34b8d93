//! `JoinGroup` (key 11), versions 0 to 9: a member asks into a group of the classic protocol.
//!
//! Waits until the group's rebalance is over. Static members (KIP-345), member ids that are given before joining
//! (KIP-394), reasons (KIP-800), skipped assignments (KIP-814).

use std::sync::Arc;

use riverrun_coordinator::{GroupResponse, refuse_join_group};
use riverrun_protocol::{ErrorCode, JoinGroupRequest, JoinGroupResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: JoinGroupRequest<'_>,
    version: i16,
) -> JoinGroupResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refuse_join_group(&request, version, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let group = &*request.group_id;
    let handled = broker
        .groups
        .request(broker, context, version, group, |shard, context| shard.join_group(context, &request));
    match handled.await {
        Ok(GroupResponse::JoinGroup(response)) => response,
        Ok(_) => refuse_join_group(&request, version, ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refuse_join_group(&request, version, code),
    }
}
