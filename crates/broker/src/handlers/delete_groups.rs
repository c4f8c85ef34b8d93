//! `DeleteGroups` (key 42), versions 0 to 2: removes groups that have no members, with their offsets (KIP-229).

use std::sync::Arc;

use riverrun_coordinator::Step;
use riverrun_protocol::delete_groups_response::DeletableGroupResult;
use riverrun_protocol::{DeleteGroupsRequest, DeleteGroupsResponse, ErrorCode};

use crate::broker::Broker;
use crate::changes;
use crate::context::{Operation, RequestContext, Resource};
use crate::log_limit::Change;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteGroupsRequest<'_>,
    _version: i16,
) -> DeleteGroupsResponse<'static> {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group in &request.groups_names {
        results.push(delete(broker, context, group).await);
    }
    let deleted = results.iter().filter(|result| result.error_code == ErrorCode::NONE.0);
    changes::tell(context, Change::GroupsDeleted, deleted.map(|result| &*result.group_id));
    DeleteGroupsResponse { results, ..Default::default() }
}

async fn delete(
    broker: &Arc<Broker>,
    context: &RequestContext,
    group: &str,
) -> DeletableGroupResult<'static> {
    if !context.authorize(Operation::Delete, Resource::Group(group)) {
        return refused(group, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let deleted = broker.groups.change(broker, group, |shard, _| {
        let (result, records) = shard.delete_group(group);
        (result, Step { records, ..Step::default() })
    });
    deleted.await.unwrap_or_else(|code| refused(group, code))
}

fn refused(group: &str, code: ErrorCode) -> DeletableGroupResult<'static> {
    DeletableGroupResult { group_id: group.to_owned().into(), error_code: code.0 }
}
