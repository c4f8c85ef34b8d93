//! `OffsetCommit` (key 8), versions 2 to 10: a member, or a client without membership, commits how far it has read.
//!
//! Topics are named up to version 9 and identified from 10 on (KIP-848). Answered when the offsets are as durable as the topic of
//! group offsets asks. While its disk does not answer, a commit is answered `COORDINATOR_NOT_AVAILABLE` after
//! `offsets.commit.timeout.ms`; the offsets may still become durable.

use std::sync::Arc;

use riverrun_coordinator::{GroupResponse, Shard, refuse_offset_commit};
use riverrun_protocol::{ErrorCode, OffsetCommitRequest, OffsetCommitResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetCommitRequest<'_>,
    version: i16,
) -> OffsetCommitResponse<'static> {
    if !context.authorize(Operation::Read, Resource::Group(&request.group_id)) {
        return refuse_offset_commit(&request, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let topics = broker.groups.topics_for(context);
    let group = &*request.group_id;
    let partitions = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let cost = |_: &Shard| Shard::cost_of_offsets(partitions);
    let handled = broker.groups.request(context, version, group, cost, |shard, context| {
        shard.offset_commit(context, &request, &topics)
    });
    match handled.await {
        Ok(GroupResponse::OffsetCommit(response)) => response,
        Ok(_) => refuse_offset_commit(&request, ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refuse_offset_commit(&request, code),
    }
}
