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
    let mut deleted = Deleted { context, groups: Vec::new() };
    for (group, allowed) in once(&request.groups_names, GROUPS_MAX, |group| &**group) {
        results.push(match allowed {
            Ok(()) => delete(broker, group, &mut deleted).await,
            Err(code) => refused(group, code),
        });
    }
    DeleteGroupsResponse { results, ..Default::default() }
}

/// Groups that their shards have deleted, less those whose deletion is known not to become durable.
///
/// The log names them when the request ends, also where its client leaves before the last deletion is durable.
struct Deleted<'r> {
    context: &'r RequestContext,
    groups: Vec<&'r str>,
}

impl Drop for Deleted<'_> {
    fn drop(&mut self) {
        changes::tell(self.context, Change::GroupsDeleted, self.groups.iter().copied());
    }
}

async fn delete<'r>(
    broker: &Arc<Broker>,
    group: &'r str,
    deleted: &mut Deleted<'r>,
) -> DeletableGroupResult<'static> {
    let (context, before) = (deleted.context, deleted.groups.len());
    if !context.authorize(Operation::Delete, Resource::Group(group)) {
        return refused(group, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let cost = |shard: &Shard| shard.cost_of_all(group);
    let groups = &mut deleted.groups;
    let changed = broker.groups.change(context, group, cost, |shard, _| {
        let (result, records) = shard.delete_group(group);
        if result.error_code == ErrorCode::NONE.0 {
            groups.push(group);
        }
        (result, Step { records, ..Step::default() })
    });
    changed.await.unwrap_or_else(|code| {
        deleted.groups.truncate(before);
        refused(group, code)
    })
}

fn refused(group: &str, code: ErrorCode) -> DeletableGroupResult<'static> {
    DeletableGroupResult { group_id: group.to_owned().into(), error_code: code.0 }
}
