//! `OffsetFetch` (key 9), versions 1 to 10: how far groups have come.
//!
//! Several groups from version 8 on (KIP-709), member epochs from 9 (KIP-848), topic ids from 10. `require_stable`
//! is accepted: without transactions every offset is stable.

use std::sync::Arc;

use riverrun_coordinator::{offset_fetch_groups, offset_fetch_response, refuse_offset_fetch};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::offset_fetch_response::OffsetFetchResponseGroup;
use riverrun_protocol::{ErrorCode, OffsetFetchRequest, OffsetFetchResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};
use crate::groups;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetFetchRequest<'_>,
    version: i16,
) -> OffsetFetchResponse<'static> {
    let mut answers = Vec::new();
    for group in &offset_fetch_groups(request, version) {
        answers.push(fetch(broker, context, group, version).await);
    }
    offset_fetch_response(answers, version)
}

async fn fetch(
    broker: &Arc<Broker>,
    context: &RequestContext,
    group: &OffsetFetchRequestGroup<'_>,
    version: i16,
) -> OffsetFetchResponseGroup<'static> {
    if !context.authorize(Operation::Describe, Resource::Group(&group.group_id)) {
        return refuse_offset_fetch(group, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let topics = groups::topics(&broker.metadata.image());
    let fetched =
        broker.groups.read(broker, &group.group_id, |shard| shard.offset_fetch(group, version, &topics));
    fetched.await.unwrap_or_else(|code| refuse_offset_fetch(group, code))
}
