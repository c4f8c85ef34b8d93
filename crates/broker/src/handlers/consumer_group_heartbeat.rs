//! `ConsumerGroupHeartbeat` (key 68), versions 0 to 1: membership of a KIP-848 group, and its assignment, which this
//! server computes.
//!
//! A member that asks to join and has to try again is answered after a pause: Java's consumer makes none of its own then,
//! and would ask thousands of times in a second. Where the disk is the reason, such as one that is full, the answer says so.

use std::sync::Arc;
use std::time::Duration;

use riverrun_coordinator::{GroupResponse, RequestContext as GroupContext, Shard};
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode};

use crate::aside::waiting;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::flow::source::Source;
use crate::groups;

/// Pause before a joining member is told to try again.
const PAUSE: Duration = Duration::from_secs(1);
/// Codes that tell a member to try again.
const TRY_AGAIN: [ErrorCode; 3] = [
    ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode::COORDINATOR_NOT_AVAILABLE,
    ErrorCode::NOT_COORDINATOR,
];
/// The member epoch of a heartbeat that joins.
const JOINING: i32 = 0;

/// Cost of the heartbeat to its group, beside the memory of an answer of a few words: a large one is done aside.
pub(crate) fn answer_bytes(
    broker: &Broker,
    request: &ConsumerGroupHeartbeatRequest<'_>,
    _version: i16,
) -> usize {
    let topics = broker.groups.topics();
    groups::work_bytes(
        broker.groups.cost(&request.group_id, |shard| shard.cost_of_heartbeat(request, &topics)),
    )
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest<'_>,
    version: i16,
) -> ConsumerGroupHeartbeatResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    // Neither the shard nor another request waits while the topics of a pattern are looked up.
    if let Some(pattern) = request.subscribed_topic_regex.as_deref().filter(|pattern| !pattern.is_empty()) {
        let source = Source::of(context.connection.peer.ip());
        broker.groups.find_pattern(source, pattern).await;
    }
    let topics = broker.groups.topics_for(context);
    let group = &*request.group_id;
    let cost = |shard: &Shard| shard.cost_of_heartbeat(&request, &topics);
    let beat = |shard: &mut Shard, context: &GroupContext<'_>| {
        shard.consumer_group_heartbeat(context, &request, &topics)
    };
    let beat_of_member = |shard: &mut Shard, context: &GroupContext<'_>, has_room| {
        // A heartbeat with room may record a new subscription; one without only keeps the member alive.
        if has_room { beat(shard, context) } else { shard.consumer_group_sign_of_life(context, &request) }
    };
    let handled = if request.member_epoch > JOINING {
        broker.groups.keep_alive(context, version, group, cost, beat_of_member).await
    } else {
        broker.groups.request(context, version, group, cost, beat).await
    };
    let mut response = match handled {
        Ok(GroupResponse::ConsumerGroupHeartbeat(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    };
    let tries_again = TRY_AGAIN.contains(&ErrorCode(response.error_code));
    if tries_again && response.error_message.is_none() {
        response.error_message = broker.groups.trouble(group).map(Into::into);
    }
    if request.member_epoch == JOINING && tries_again {
        waiting(tokio::time::sleep(PAUSE)).await;
    }
    response
}

fn refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse<'static> {
    ConsumerGroupHeartbeatResponse { error_code: code.0, ..Default::default() }
}
