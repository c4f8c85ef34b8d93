//! `ListGroups` (key 16), versions 0 to 5: all groups, filtered by state (KIP-518) and type (KIP-848).
//!
//! Where some groups cannot be loaded, the answer has the error and the groups that can.

use std::sync::Arc;

use riverrun_protocol::{ListGroupsRequest, ListGroupsResponse};

use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListGroupsRequest<'_>,
    _version: i16,
) -> ListGroupsResponse<'static> {
    let shards = broker.groups.read_all(broker, |shard| shard.list_groups(&request)).await;
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
