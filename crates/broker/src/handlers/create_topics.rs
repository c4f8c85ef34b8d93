//! `CreateTopics` (key 19), versions 2 to 7.
//!
//! Makes topics, or says whether they could be made (`validateOnly`). All topics of one request become durable
//! together. -1 asks for the server's number of partitions or replicas (KIP-464). A manual assignment may name this
//! node only. Each topic succeeds or fails by itself; from version 5 on the answer tells its configuration (KIP-525).

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_protocol::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use riverrun_protocol::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use riverrun_protocol::{CreateTopicsRequest, CreateTopicsResponse, ErrorCode};

use super::bounds::CREATED_TOPICS_MAX;
use crate::broker::Broker;
use crate::changes;
use crate::config::describe::describe_topic;
use crate::config::{BrokerConfig, TopicOverrides, check_topic_configs};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::log_limit::Change;
use crate::metadata::{Draft, NewTopic, Topic};
use crate::text::shown;
use crate::topic_names::{is_internal, is_reserved};

/// The value that leaves a number to the server.
const SERVERS_DEFAULT: i32 = -1;

/// Why one topic is refused.
type Refusal = (ErrorCode, String);

/// Memory of one answer: the topic's configuration.
const ANSWER_BYTES: usize = 6 * 1024;

/// Memory of the answer, about.
pub(crate) fn answer_bytes(_broker: &Broker, request: &CreateTopicsRequest<'_>, _version: i16) -> usize {
    request.topics.len().min(CREATED_TOPICS_MAX) * ANSWER_BYTES
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateTopicsRequest<'_>,
    _version: i16,
) -> CreateTopicsResponse<'static> {
    let mut names = Vec::new();
    let mut planned = Vec::new();
    for (name, topic) in distinct(&request.topics) {
        let topic = if names.len() < CREATED_TOPICS_MAX { topic } else { Err(too_many()) };
        names.push(name.to_owned());
        planned.push(topic.and_then(|topic| plan(&broker.config, broker.node_id().0, context, topic)));
    }
    let made = if request.validate_only {
        broker.catalog.rehearse(context.source(), move |draft| create(draft, planned)).await
    } else {
        let of_change = context.clone();
        let tell = move |made: &Vec<Result<Arc<Topic>, Refusal>>| {
            let names = made.iter().flatten().map(|topic| &*topic.name);
            changes::tell(&of_change, Change::TopicsCreated, names);
        };
        let follow = |made: Result<_, _>| made.inspect(tell);
        broker.catalog.propose_and(context.source(), move |draft| create(draft, planned), follow).await
    };
    let outcomes = made.unwrap_or_else(|failed| {
        let refusal = (error::metadata_error(&failed), failed.to_string());
        vec![Err(refusal); names.len()]
    });
    let topics = names.into_iter().zip(outcomes).map(|(name, outcome)| answer(&broker.config, name, outcome));
    CreateTopicsResponse { topics: topics.collect(), ..Default::default() }
}

fn too_many() -> Refusal {
    (ErrorCode::POLICY_VIOLATION, format!("More than {CREATED_TOPICS_MAX} topics in one request."))
}

/// The topics in order; one that is named twice is refused once.
fn distinct<'r, 'a>(
    topics: &'r [CreatableTopic<'a>],
) -> impl Iterator<Item = (&'r str, Result<&'r CreatableTopic<'a>, Refusal>)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in topics {
        *counts.entry(&topic.name).or_default() += 1;
    }
    topics.iter().filter_map(move |topic| match counts.remove(&*topic.name)? {
        1 => Some((&*topic.name, Ok(topic))),
        _ => Some((&*topic.name, Err((ErrorCode::INVALID_REQUEST, "Duplicate topic name.".to_owned())))),
    })
}

fn create(
    draft: &mut Draft<'_>,
    planned: Vec<Result<NewTopic, Refusal>>,
) -> Vec<Result<Arc<Topic>, Refusal>> {
    let make = |new: Result<NewTopic, Refusal>| {
        draft.create_topic(new?).map_err(|refused| (error::topic_error(&refused), refused.to_string()))
    };
    planned.into_iter().map(make).collect()
}

/// Checks everything about a topic that does not depend on the others.
fn plan(
    config: &BrokerConfig,
    node_id: i32,
    context: &RequestContext,
    topic: &CreatableTopic<'_>,
) -> Result<NewTopic, Refusal> {
    if !context.authorize(Operation::Create, Resource::Topic(&topic.name)) {
        return Err((ErrorCode::TOPIC_AUTHORIZATION_FAILED, "Authorization failed.".to_owned()));
    }
    if is_internal(&topic.name) && !is_reserved(&topic.name) {
        let message = "The topic is the server's own: the server makes it when the first group needs it.";
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, message.to_owned()));
    }
    let partition_count = match topic.assignments.as_slice() {
        [] => counts(config, topic)?,
        assignments => assigned_count(node_id, topic, assignments)?,
    };
    Ok(NewTopic { name: topic.name.to_string(), partition_count, configs: configs(config, topic)? })
}

/// The number of partitions where the server chooses their places.
fn counts(config: &BrokerConfig, topic: &CreatableTopic<'_>) -> Result<i32, Refusal> {
    match i32::from(topic.replication_factor) {
        SERVERS_DEFAULT | 1 => {}
        ..=0 => {
            let message = "Replication factor was set to an invalid non-positive value.";
            return Err((ErrorCode::INVALID_REPLICATION_FACTOR, message.to_owned()));
        }
        factor => {
            let message = format!("Replication factor {factor} cannot be reached: this server is one node.");
            return Err((ErrorCode::INVALID_REPLICATION_FACTOR, message));
        }
    }
    Ok(if topic.num_partitions == SERVERS_DEFAULT {
        config.server.num_partitions
    } else {
        topic.num_partitions
    })
}

/// The number of partitions that a manual assignment lists.
fn assigned_count(
    node_id: i32,
    topic: &CreatableTopic<'_>,
    assignments: &[CreatableReplicaAssignment],
) -> Result<i32, Refusal> {
    if topic.num_partitions != SERVERS_DEFAULT || i32::from(topic.replication_factor) != SERVERS_DEFAULT {
        let message = "A manual partition assignment was specified, but the number of partitions or the replication \
                       factor was not set to -1.";
        return Err((ErrorCode::INVALID_REQUEST, message.to_owned()));
    }
    let refused = |message: String| Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, message));
    let mut indexes: Vec<i32> = assignments.iter().map(|assignment| assignment.partition_index).collect();
    indexes.sort_unstable();
    if !indexes.iter().copied().eq((0..).take(indexes.len())) {
        return refused("The assigned partitions must be numbered from 0 without a gap.".to_owned());
    }
    if let Some(other) = assignments.iter().find(|assignment| assignment.broker_ids != [node_id]) {
        return refused(format!(
            "Partition {} must be assigned to broker {node_id} and no other: this server is one node.",
            other.partition_index
        ));
    }
    Ok(i32::try_from(indexes.len()).unwrap_or(i32::MAX))
}

fn configs(config: &BrokerConfig, topic: &CreatableTopic<'_>) -> Result<TopicOverrides, Refusal> {
    let mut overrides = TopicOverrides::new();
    for entry in &topic.configs {
        let Some(value) = &entry.value else {
            let message = format!("Null value not supported for topic configs: {}", shown(&entry.name));
            return Err((ErrorCode::INVALID_CONFIG, message));
        };
        overrides.insert(entry.name.to_string(), value.trim().to_owned());
    }
    check_topic_configs(config, &overrides).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
    Ok(overrides)
}

fn answer(
    config: &BrokerConfig,
    name: String,
    outcome: Result<Arc<Topic>, Refusal>,
) -> CreatableTopicResult<'static> {
    match outcome {
        Ok(topic) => CreatableTopicResult {
            name: name.into(),
            topic_id: topic.id,
            num_partitions: topic.partition_count(),
            replication_factor: 1,
            error_message: None,
            configs: Some(shown_configs(config, &topic)),
            ..Default::default()
        },
        Err((code, message)) => CreatableTopicResult {
            name: name.into(),
            error_code: code.0,
            error_message: Some(message.into()),
            configs: Some(Vec::new()),
            ..Default::default()
        },
    }
}

fn shown_configs(config: &BrokerConfig, topic: &Topic) -> Vec<CreatableTopicConfigs<'static>> {
    let shown =
        describe_topic(config, &topic.name, &topic.configs).into_iter().map(|entry| CreatableTopicConfigs {
            name: entry.name.into(),
            value: entry.value.map(Into::into),
            read_only: entry.is_read_only,
            config_source: entry.source as i8,
            is_sensitive: false,
        });
    shown.collect()
}

#[cfg(test)]
mod tests;
