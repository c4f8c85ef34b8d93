//! `CreatePartitions` (key 37), versions 0 to 3.
//!
//! Raises the number of partitions of topics, or says whether it could be raised (`validateOnly`). A manual
//! assignment may name this node only. All topics of one request become durable together. Refuses the topic of group
//! offsets, where more partitions would part groups from their offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::create_partitions_response::CreatePartitionsTopicResult;
use riverrun_protocol::{CreatePartitionsRequest, CreatePartitionsResponse, ErrorCode};

use crate::broker::Broker;
use crate::changes;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::log_limit::Change;
use crate::metadata::Draft;
use crate::topic_names::is_internal;

type Refusal = (ErrorCode, String);

/// A checked wish: `count` partitions in all, of which the request places `assigned` new ones by hand.
struct Wish {
    name: String,
    count: i32,
    assigned: Option<usize>,
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreatePartitionsRequest<'_>,
    _version: i16,
) -> CreatePartitionsResponse<'static> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &request.topics {
        *counts.entry(&topic.name).or_default() += 1;
    }
    let mut names = Vec::new();
    let mut wishes = Vec::new();
    for topic in &request.topics {
        let Some(count) = counts.remove(&*topic.name) else { continue };
        names.push(topic.name.to_string());
        wishes.push(wish(broker.node_id().0, context, topic, count));
    }
    let grown = if request.validate_only {
        broker.catalog.rehearse(context.source(), move |draft| grow_all(draft, wishes)).await
    } else {
        let (of_change, told) = (context.clone(), names.clone());
        let tell = move |grown: &Vec<Result<(), Refusal>>| {
            let grown = told.iter().zip(grown).filter(|(_, outcome)| outcome.is_ok());
            changes::tell(&of_change, Change::PartitionsAdded, grown.map(|(name, _)| name.as_str()));
        };
        let follow = |grown: Result<_, _>| grown.inspect(tell);
        broker.catalog.propose_and(context.source(), move |draft| grow_all(draft, wishes), follow).await
    };
    let outcomes = grown.unwrap_or_else(|failed| {
        let refusal = (error::metadata_error(&failed), failed.to_string());
        vec![Err(refusal); names.len()]
    });
    let results = names.into_iter().zip(outcomes).map(|(name, outcome)| answer(name, outcome));
    CreatePartitionsResponse { results: results.collect(), ..Default::default() }
}

fn wish(
    node_id: i32,
    context: &RequestContext,
    topic: &CreatePartitionsTopic<'_>,
    times_named: usize,
) -> Result<Wish, Refusal> {
    if times_named > 1 {
        return Err((ErrorCode::INVALID_REQUEST, "Duplicate topic name.".to_owned()));
    }
    if !context.authorize(Operation::Alter, Resource::Topic(&topic.name)) {
        return Err((ErrorCode::TOPIC_AUTHORIZATION_FAILED, "Authorization failed.".to_owned()));
    }
    if is_internal(&topic.name) {
        let message = "The topic is the server's own: its records belong to its partitions by their number.";
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, message.to_owned()));
    }
    let assignments = topic.assignments.as_deref();
    if assignments.is_some_and(|all| all.iter().any(|assignment| assignment.broker_ids != [node_id])) {
        let message = format!(
            "New partitions must be assigned to broker {node_id} and no other: this server is one node."
        );
        return Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    }
    Ok(Wish { name: topic.name.to_string(), count: topic.count, assigned: assignments.map(<[_]>::len) })
}

fn grow_all(draft: &mut Draft<'_>, wishes: Vec<Result<Wish, Refusal>>) -> Vec<Result<(), Refusal>> {
    wishes.into_iter().map(|wish| wish.and_then(|wish| grow(draft, &wish))).collect()
}

fn grow(draft: &mut Draft<'_>, wish: &Wish) -> Result<(), Refusal> {
    let topic = draft.image().cluster.topic(&wish.name);
    let current = topic.filter(|topic| topic.is_changeable()).map_or(0, |topic| topic.partition_count());
    let added = usize::try_from(wish.count.saturating_sub(current)).unwrap_or(0);
    if current > 0 && added > 0 && wish.assigned.is_some_and(|assigned| assigned != added) {
        let message = format!("The assignment must list each of the {added} new partitions.");
        return Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    }
    let grown = draft.grow_topic(&wish.name, wish.count);
    grown.map(|_| ()).map_err(|refused| (error::topic_error(&refused), refused.to_string()))
}

fn answer(name: String, outcome: Result<(), Refusal>) -> CreatePartitionsTopicResult<'static> {
    let (code, message) =
        outcome.map_or_else(|(code, message)| (code, Some(message)), |()| (ErrorCode::NONE, None));
    CreatePartitionsTopicResult {
        name: name.into(),
        error_code: code.0,
        error_message: message.map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::config::TopicOverrides;
    use crate::metadata::NewTopic;
    use crate::metadata::testing::image;

    #[test]
    fn partitions_only_grow_and_assignments_cover_the_new_ones() {
        let env = SimEnv::new(1).env();
        let mut draft = Draft::new(&image(1), &*env.random);
        let new = NewTopic { name: "t".into(), partition_count: 2, configs: TopicOverrides::new() };
        draft.create_topic(new).expect("made");
        let mut code = |name: &str, count, assigned| {
            let outcome = grow(&mut draft, &Wish { name: name.into(), count, assigned });
            outcome.map_or_else(|(code, _)| code, |()| ErrorCode::NONE)
        };
        assert_eq!(code("t", 2, None), ErrorCode::INVALID_PARTITIONS);
        assert_eq!(code("t", i32::MIN, None), ErrorCode::INVALID_PARTITIONS);
        assert_eq!(code("u", 5, None), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        assert_eq!(code("t", 4, Some(1)), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
        assert_eq!(code("t", 4, Some(2)), ErrorCode::NONE);
        assert_eq!(code("t", 5, None), ErrorCode::NONE);
        assert_eq!(draft.image().cluster.topic("t").map(|topic| topic.partition_count()), Some(5));
    }
}
