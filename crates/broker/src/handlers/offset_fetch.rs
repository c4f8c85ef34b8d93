//! `OffsetFetch` (key 9), versions 1 to 10: how far groups have read.
//!
//! Several groups from version 8 on (KIP-709), member epochs from 9 (KIP-848), topic ids from 10. `require_stable`
//! is accepted: without transactions every offset is stable. A group may be named once: its offsets can be a thousand
//! times the request.

use std::collections::HashSet;
use std::sync::Arc;

use riverrun_coordinator::{Shard, offset_fetch_groups, offset_fetch_response, refuse_offset_fetch};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::offset_fetch_response::OffsetFetchResponseGroup;
use riverrun_protocol::{ErrorCode, OffsetFetchRequest, OffsetFetchResponse};

use super::bounds::{GROUPS_MAX, once};
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

/// Memory charged at most for all offsets of a group: their number is not known before the answer is made.
const ALL_OFFSETS_BYTES: usize = 16 * 1024 * 1024;

/// Memory of the answer at most, beside that of the offsets that are named.
pub(crate) fn answer_bytes(broker: &Broker, request: &OffsetFetchRequest<'_>, version: i16) -> usize {
    let wants_all = match version {
        MANY_SINCE.. => request.groups.iter().any(|group| group.topics.is_none()),
        _ => request.topics.is_none(),
    };
    if wants_all { broker.groups.memory_bytes().min(ALL_OFFSETS_BYTES) } else { 0 }
}

/// First version that asks for several groups.
const MANY_SINCE: i16 = 8;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetFetchRequest<'_>,
    version: i16,
) -> OffsetFetchResponse<'static> {
    let groups = offset_fetch_groups(request, version);
    let twice = named_twice(&groups);
    let mut answers = Vec::new();
    for (group, allowed) in once(&groups, GROUPS_MAX, |group| &*group.group_id) {
        answers.push(match allowed {
            Ok(()) if !twice.contains(&*group.group_id) => fetch(broker, context, group, version).await,
            _ => refuse_offset_fetch(group, ErrorCode::INVALID_REQUEST),
        });
    }
    offset_fetch_response(answers, version)
}

/// The groups that a request names more than once, maybe with other topics: each is refused, and not answered in part.
fn named_twice<'g>(groups: &'g [OffsetFetchRequestGroup<'_>]) -> HashSet<&'g str> {
    let mut seen = HashSet::new();
    groups.iter().map(|group| &*group.group_id).filter(|group| !seen.insert(*group)).collect()
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
    let topics = broker.groups.topics_for(context);
    let cost = |shard: &Shard| match &group.topics {
        Some(topics) => {
            Shard::cost_of_offsets(topics.iter().map(|topic| topic.partition_indexes.len()).sum())
        }
        None => shard.cost_of_all_offsets(&group.group_id),
    };
    let look = |shard: &Shard| shard.offset_fetch(group, version, &topics);
    let fetched = broker.groups.read(context, &group.group_id, cost, look);
    fetched.await.unwrap_or_else(|code| refuse_offset_fetch(group, known_code(code)))
}

/// At `COORDINATOR_NOT_AVAILABLE` members of older releases give up here, and at `NOT_COORDINATOR` they come back.
fn known_code(code: ErrorCode) -> ErrorCode {
    match code {
        ErrorCode::COORDINATOR_NOT_AVAILABLE => ErrorCode::NOT_COORDINATOR,
        other => other,
    }
}
