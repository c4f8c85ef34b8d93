//! `DeleteGroups` (key 42), versions 0 to 2: removes groups that have no members, with their offsets (KIP-229).
//!
//! A group that is named more than once is deleted and answered once.

use std::sync::Arc;

use riverrun_coordinator::{Shard, Step};
use riverrun_protocol::delete_groups_response::DeletableGroupResult;
use riverrun_protocol::{DeleteGroupsRequest, DeleteGroupsResponse, ErrorCode};

use super::bounds::{GROUPS_MAX, once};
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
    for (group, allowed) in once(&request.groups_names, GROUPS_MAX, |group| &**group) {
        results.push(match allowed {
            Ok(()) => delete(broker, context, group).await,
            Err(code) => refused(group, code),
        });
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
    let cost = |shard: &Shard| shard.cost_of_all(group);
    let deleted = broker.groups.change(context, group, cost, |shard, _| {
        let (result, records) = shard.delete_group(group);
        (result, Step { records, ..Step::default() })
    });
    deleted.await.unwrap_or_else(|code| refused(group, code))
}

fn refused(group: &str, code: ErrorCode) -> DeletableGroupResult<'static> {
    DeletableGroupResult { group_id: group.to_owned().into(), error_code: code.0 }
}
