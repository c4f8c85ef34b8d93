//! `JoinGroup` (key 11), versions 0 to 9: a member asks into a group of the classic protocol.
//!
//! Waits until the group's rebalance is over, which a member may put off for as long as it likes: so a waiting request
//! keeps nothing of its frame. Static members (KIP-345), member ids that are given before joining (KIP-394), reasons (KIP-800),
//! skipped assignments (KIP-814).

use riverrun_coordinator::{GroupResponse, Shard, refuse_join_group};
use riverrun_protocol::{ErrorCode, JoinGroupRequest};

use crate::context::{Operation, Resource};
use crate::groups::{Begun, waiting_bytes, work_bytes};
use crate::handlers::router::{HandIn, Job, Room, TooMuch, decode_in, hand_in, respond};
use crate::response::Outcome;

/// Serves the request, whose frame is charged.
pub(crate) async fn handle(job: Job) -> Outcome {
    let (call, waiting_bytes) = (job.call, waiting_bytes(&job.context));
    let ((begun, kept), mut charge) = match hand_in::<Join>(job).await {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    charge.resize(waiting_bytes + kept.member_id.len());
    let response = match begun.reply().await {
        Ok(GroupResponse::JoinGroup(response)) => response,
        Ok(_) => refuse_join_group(&kept, call.version, ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refuse_join_group(&kept, call.version, code),
    };
    respond(call, &response)
}

/// Hands the request to its group.
struct Join;

impl HandIn for Join {
    /// Beside the join, the fields of the request that a refusal repeats.
    type Begun = (Begun, JoinGroupRequest<'static>);

    async fn begin(job: &Job, room: Room) -> Result<Result<Self::Begun, Outcome>, TooMuch> {
        let Job { broker, context, call, frame, .. } = job;
        let (request, elements) = match decode_in::<JoinGroupRequest<'_>>(job, room)? {
            Ok(decoded) => decoded,
            Err(refused) => return Ok(Err(refused)),
        };
        let group = &*request.group_id;
        let refuse = |code| respond(*call, &refuse_join_group(&request, call.version, code));
        if !context.authorize(Operation::Read, Resource::Group(group)) {
            return Ok(Err(refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED)));
        }
        let cost = |shard: &Shard| shard.cost_of_join(group, frame.len());
        let _memory = room.enter(job, elements, work_bytes(broker.groups.cost(group, cost))).await?;
        let topics = broker.groups.topics_for(context);
        let join = broker.groups.begin(context, call.version, group, cost, |shard, context| {
            shard.join_group(context, &request, &topics)
        });
        let begun = match join.await {
            Ok(begun) => begun,
            Err(code) => return Ok(Err(refuse(code))),
        };
        let member_id = request.member_id.to_string().into();
        Ok(Ok((begun, JoinGroupRequest { member_id, ..Default::default() })))
    }
}
