//! `JoinGroup` (key 11), versions 0 to 9: a member asks into a group of the classic protocol.
//!
//! Waits until the group's rebalance is over, which a member may put off for as long as it likes: so what waits keeps
//! nothing of its frame. Static members (KIP-345), member ids that are given before joining (KIP-394), reasons (KIP-800),
//! skipped assignments (KIP-814).

use std::sync::Arc;

use bytes::BytesMut;
use riverrun_coordinator::{GroupResponse, refuse_join_group};
use riverrun_protocol::{ErrorCode, JoinGroupRequest};

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
    let (begun, kept) = match begin(broker, context, call, &frame).await {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    drop(frame);
    charge.resize(waiting_bytes(context) + kept.member_id.len());
    let response = match begun.reply().await {
        Ok(GroupResponse::JoinGroup(response)) => response,
        Ok(_) => refuse_join_group(&kept, call.version, ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refuse_join_group(&kept, call.version, code),
    };
    respond(call, &response)
}

/// Hands the request to its group. What is kept of it is all that a refusal tells.
async fn begin<'b>(
    broker: &'b Arc<Broker>,
    context: &RequestContext,
    call: Call,
    frame: &[u8],
) -> Result<(Begun<'b>, JoinGroupRequest<'static>), Outcome> {
    let request = decode::<JoinGroupRequest<'_>>(call, frame);
    let request = request.map_err(|error| Outcome::Close(format!("JoinGroup: {error}")))?;
    let refuse = |code| respond(call, &refuse_join_group(&request, call.version, code));
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return Err(refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED));
    }
    let topics = groups::topics(broker);
    let join = broker.groups.begin(broker, context, call.version, &request.group_id, |shard, context| {
        shard.join_group(context, &request, &topics)
    });
    let begun = join.await.map_err(refuse)?;
    let member_id = request.member_id.to_string().into();
    Ok((begun, JoinGroupRequest { member_id, ..Default::default() }))
}
