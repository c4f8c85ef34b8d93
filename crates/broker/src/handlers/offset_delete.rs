//! `OffsetDelete` (key 47), version 0: removes committed offsets of topics that the group does not read (KIP-496).

use std::sync::Arc;

use riverrun_coordinator::{GroupResponse, Shard};
use riverrun_protocol::{ErrorCode, OffsetDeleteRequest, OffsetDeleteResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetDeleteRequest<'_>,
    version: i16,
) -> OffsetDeleteResponse<'static> {
    if !context.authorize(Operation::Delete, Resource::Group(&request.group_id)) {
        return refused(ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let topics = broker.groups.topics_for(context);
    let group = &*request.group_id;
    let partitions = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let cost = |_: &Shard| Shard::cost_of_offsets(partitions);
    let handled = broker.groups.request(context, version, group, cost, |shard, context| {
        shard.offset_delete(context, &request, &topics)
    });
    match handled.await {
        Ok(GroupResponse::OffsetDelete(response)) => response,
        Ok(_) => refused(ErrorCode::UNKNOWN_SERVER_ERROR),
        Err(code) => refused(code),
    }
}

fn refused(code: ErrorCode) -> OffsetDeleteResponse<'static> {
    OffsetDeleteResponse { error_code: code.0, ..Default::default() }
}
