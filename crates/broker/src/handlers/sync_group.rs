//! `SyncGroup` (key 14), versions 0 to 5: the leader hands in the assignment, and every member receives its part.
//!
//! Waits for the leader, and keeps nothing of its frame meanwhile.

use std::sync::Arc;

use bytes::BytesMut;
use riverrun_coordinator::GroupResponse;
use riverrun_protocol::{ErrorCode, SyncGroupRequest, SyncGroupResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::groups::{self, Begun, waiting_bytes};
use crate::net::budget::Charge;
use crate::net::response::Outcome;
use crate::router::{Call, decode, respond};

/// Serves the request, whose frame is charged.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    frame: BytesMut,
    mut charge: Charge,
) -> Outcome {
    let begun = match begin(broker, context, call, &frame).await {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    drop(frame);
    charge.resize(waiting_bytes(context));
    let response = match begun.reply().await {
        Ok(GroupResponse::SyncGroup(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    };
    respond(call, &response)
}

/// Hands the request to its group.
async fn begin<'b>(
    broker: &'b Arc<Broker>,
    context: &RequestContext,
    call: Call,
    frame: &[u8],
) -> Result<Begun<'b>, Outcome> {
    let request = decode::<SyncGroupRequest<'_>>(call, frame);
    let request = request.map_err(|error| Outcome::Close(format!("SyncGroup: {error}")))?;
    let refuse = |code| respond(call, &refused(code));
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return Err(refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED));
    }
    let topics = groups::topics(broker);
    let sync = broker.groups.begin(broker, context, call.version, &request.group_id, |shard, context| {
        shard.sync_group(context, &request, &topics)
    });
    sync.await.map_err(refuse)
}

fn refused(code: ErrorCode) -> SyncGroupResponse<'static> {
    SyncGroupResponse { error_code: code.0, ..Default::default() }
}
