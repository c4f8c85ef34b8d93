//! `ListGroups` (key 16), versions 0 to 5: all groups, filtered by state (KIP-518) and type (KIP-848).

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
    let listed = broker.groups.read_all(broker, |shard| shard.list_groups(&request)).await;
    match listed {
        Ok(shards) => {
            let mut groups: Vec<_> = shards.into_iter().flatten().collect();
            groups.retain(|group| context.authorize(Operation::Describe, Resource::Group(&group.group_id)));
            ListGroupsResponse { groups, ..Default::default() }
        }
        Err(code) => ListGroupsResponse { error_code: code.0, ..Default::default() },
    }
}
