//! `ConsumerGroupDescribe` (key 69), versions 0 to 1: KIP-848 groups with their members and assignments.
//!
//! A group that is named more than once is described once.

use std::sync::Arc;

use riverrun_coordinator::Shard;
use riverrun_protocol::consumer_group_describe_response::DescribedGroup;
use riverrun_protocol::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ErrorCode};

use super::bounds::{GROUPS_MAX, once};
use super::operations;
use crate::broker::Broker;
use crate::context::{Operation, RequestContext, Resource};

/// Memory of the answer, about: that of the groups.
pub(crate) fn answer_bytes(
    broker: &Broker,
    request: &ConsumerGroupDescribeRequest<'_>,
    _version: i16,
) -> usize {
    let groups = once(&request.group_ids, GROUPS_MAX, |group| &**group);
    groups.map(|(group, _)| broker.groups.cost(group, |shard| shard.cost_of_all(group))).sum()
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupDescribeRequest<'_>,
    _version: i16,
) -> ConsumerGroupDescribeResponse<'static> {
    let mut described = Vec::new();
    for (group, allowed) in once(&request.group_ids, GROUPS_MAX, |group| &**group) {
        let mut answer = match allowed {
            Ok(()) => describe(broker, context, group).await,
            Err(code) => refused(group, code),
        };
        if request.include_authorized_operations && answer.error_code == ErrorCode::NONE.0 {
            answer.authorized_operations = operations::on_group(context, group);
        }
        described.push(answer);
    }
    ConsumerGroupDescribeResponse { groups: described, ..Default::default() }
}

async fn describe(broker: &Arc<Broker>, context: &RequestContext, group: &str) -> DescribedGroup<'static> {
    if !context.authorize(Operation::Describe, Resource::Group(group)) {
        return refused(group, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    }
    let topics = broker.groups.topics_for(context);
    let cost = |shard: &Shard| shard.cost_of_all(group);
    let look = |shard: &Shard| shard.consumer_group_describe(group, &topics);
    let described = broker.groups.read(context, group, cost, look).await;
    described.unwrap_or_else(|code| DescribedGroup {
        error_message: broker.groups.trouble(group).map(Into::into),
        ..refused(group, code)
    })
}

fn refused(group: &str, code: ErrorCode) -> DescribedGroup<'static> {
    DescribedGroup { group_id: group.to_owned().into(), error_code: code.0, ..Default::default() }
}
