//! `SyncGroup` (key 14), versions 0 to 5: the leader hands in the assignment, and every member receives its part.
//!
//! Waits for the leader, and meanwhile keeps nothing of its frame.

use riverrun_coordinator::{GroupResponse, Shard};
use riverrun_protocol::{ErrorCode, SyncGroupRequest, SyncGroupResponse};

use crate::context::{Operation, Resource};
use crate::groups::{Begun, waiting_bytes, work_bytes};
use crate::handlers::router::{HandIn, Job, Room, TooMuch, decode_in, hand_in, respond};
use crate::response::Outcome;

/// Serves the request, whose frame is charged.
pub(crate) async fn handle(job: Job) -> Outcome {
    let (call, waiting_bytes) = (job.call, waiting_bytes(&job.context));
    let (begun, mut charge) = match hand_in::<Sync>(job).await {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    charge.resize(waiting_bytes);
    let response = match begun.reply().await {
        Ok(GroupResponse::SyncGroup(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    };
    respond(call, &response)
}

/// Hands the request to its group.
struct Sync;

impl HandIn for Sync {
    type Begun = Begun;

    async fn begin(job: &Job, room: Room) -> Result<Result<Begun, Outcome>, TooMuch> {
        let Job { broker, context, call, frame, .. } = job;
        let (request, elements) = match decode_in::<SyncGroupRequest<'_>>(job, room)? {
            Ok(decoded) => decoded,
            Err(refused) => return Ok(Err(refused)),
        };
        let group = &*request.group_id;
        let refuse = |code| respond(*call, &refused(code));
        if !context.authorize(Operation::Read, Resource::Group(group)) {
            return Ok(Err(refuse(ErrorCode::GROUP_AUTHORIZATION_FAILED)));
        }
        let cost = |shard: &Shard| shard.cost_of_all(group).saturating_add(frame.len());
        let _memory = room.enter(job, elements, work_bytes(broker.groups.cost(group, cost))).await?;
        let topics = broker.groups.topics_for(context);
        let sync = broker.groups.begin(context, call.version, group, cost, |shard, context| {
            shard.sync_group(context, &request, &topics)
        });
        Ok(sync.await.map_err(refuse))
    }
}

fn refused(code: ErrorCode) -> SyncGroupResponse<'static> {
    SyncGroupResponse { error_code: code.0, ..Default::default() }
}
