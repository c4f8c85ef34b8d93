//! `ListGroups` (key 16), versions 0 to 5: all groups, filtered by state (KIP-518) and type (KIP-848).
//!
//! If some groups cannot be loaded, the answer has the error and the groups that could be.

use std::sync::Arc;

use riverrun_protocol::{ListGroupsRequest, ListGroupsResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

/// The part of a group's memory that its answer takes at most: an id, and a few words.
const ANSWER_SHARE: usize = 4;

/// Memory of the answer at most.
pub(crate) fn answer_bytes(broker: &Broker, _request: &ListGroupsRequest<'_>, _version: i16) -> usize {
    broker.groups.memory_bytes() / ANSWER_SHARE
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListGroupsRequest<'_>,
    _version: i16,
) -> ListGroupsResponse<'static> {
    let shards = broker.groups.read_all(|shard, behind| shard.list_groups(&request, behind)).await;
    let mut response = ListGroupsResponse::default();
    for shard in shards {
        match shard {
            Ok(groups) => response.groups.extend(groups),
            Err(code) => response.error_code = code.0,
        }
    }
    let allowed = |group: &str| context.authorize(Operation::Describe, Resource::Group(group));
    response.groups.retain(|group| allowed(&group.group_id));
    response
}
