//! `DescribeGroups` (key 15), versions 0 to 6: groups of the classic protocol with their members.
//!
//! A group that is named more than once is described once.

use std::sync::Arc;

use riverrun_coordinator::Shard;
use riverrun_protocol::describe_groups_response::DescribedGroup;
use riverrun_protocol::{DescribeGroupsRequest, DescribeGroupsResponse, ErrorCode};

use super::bounds::{GROUPS_MAX, once};
use super::operations;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

/// First version that has a text beside the error code of a group.
const MESSAGE_SINCE: i16 = 6;

/// Memory of the answer, about: that of the groups.
pub(crate) fn answer_bytes(broker: &Broker, request: &DescribeGroupsRequest<'_>, _version: i16) -> usize {
    let groups = once(&request.groups, GROUPS_MAX, |group| &**group);
    groups.map(|(group, _)| broker.groups.cost(group, |shard| shard.cost_of_all(group))).sum()
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeGroupsRequest<'_>,
    version: i16,
) -> DescribeGroupsResponse<'static> {
    let mut groups = Vec::new();
    for (group, allowed) in once(&request.groups, GROUPS_MAX, |group| &**group) {
        let mut described = match allowed {
            Ok(()) => describe(broker, context, group, version).await,
            Err(code) => refused(group, code),
        };
        if request.include_authorized_operations && described.error_code == ErrorCode::NONE.0 {
            described.authorized_operations = operations::on_group(context, group);
        }
        groups.push(described);
    }
    DescribeGroupsResponse { groups, ..Default::default() }
}

async fn describe(
    broker: &Arc<Broker>,
    context: &RequestContext,
    group: &str,
    version: i16,
) -> DescribedGroup<'static> {
    if !context.authorize(Operation::Describe, Resource::Group(group)) {
        return refused(group, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let cost = |shard: &Shard| shard.cost_of_all(group);
    let look = |shard: &Shard| shard.describe_group(group, version);
    let described = broker.groups.read(context, group, cost, look).await;
    described.unwrap_or_else(|code| {
        let trouble = broker.groups.trouble(group).filter(|_| version >= MESSAGE_SINCE);
        DescribedGroup { error_message: trouble.map(Into::into), ..refused(group, code) }
    })
}

fn refused(group: &str, code: ErrorCode) -> DescribedGroup<'static> {
    DescribedGroup { group_id: group.to_owned().into(), error_code: code.0, ..Default::default() }
}
