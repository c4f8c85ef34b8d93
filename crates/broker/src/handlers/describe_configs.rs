//! `DescribeConfigs` (key 32), versions 1 to 4.
//!
//! Tells the configuration of topics and of this server: values, where each comes from, and if asked what it would
//! fall back to (KIP-226) and what it means (KIP-569). Options of the server are read-only, but for those that take
//! effect at once. Asked by name, it tells how
//! durable a topic is now, too. A resource that is named more than once is described once. Leaves out: broker loggers,
//! client metrics and groups.

use std::sync::Arc;

use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use riverrun_protocol::{DescribeConfigsRequest, DescribeConfigsResponse, ErrorCode};

use super::bounds::{DESCRIBED_RESOURCES_MAX, once};
use super::config_resource::{ConfigResource, Refusal, find};
use crate::broker::Broker;
use crate::config::CORDONED_LOG_DIRS;
use crate::config::describe::{
    ConfigEntry, ServerOverrides, describe_broker, describe_mounted, describe_topic, topic_state,
};
use crate::context::{Operation, RequestContext, Resource};
use crate::durability::Durability;
use crate::metadata::{Image, Topic};
use crate::mounts::MountedQueue;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeConfigsRequest<'_>,
    _version: i16,
) -> DescribeConfigsResponse<'static> {
    let image = broker.metadata.image();
    let wants = Wants { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let resources = once(&request.resources, DESCRIBED_RESOURCES_MAX, |resource| {
        (resource.resource_type, &*resource.resource_name)
    });
    let results = resources.map(|(resource, allowed)| {
        let entries = match allowed {
            Ok(()) => entries(broker, &image, context, resource),
            Err(code) => {
                Err((code, format!("More than {DESCRIBED_RESOURCES_MAX} resources in one request.")))
            }
        };
        answer(resource, entries, wants)
    });
    DescribeConfigsResponse { results: results.collect(), ..Default::default() }
}

/// What a client wants to know of each option besides its value.
#[derive(Clone, Copy)]
struct Wants {
    synonyms: bool,
    documentation: bool,
}

fn entries(
    broker: &Broker,
    image: &Image,
    context: &RequestContext,
    resource: &DescribeConfigsResource<'_>,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let found = find(image, resource.resource_type, &resource.resource_name)?;
    let (subject, denied) = match &found {
        ConfigResource::Topic(topic) => (Resource::Topic(&topic.name), ErrorCode::TOPIC_AUTHORIZATION_FAILED),
        _ => (Resource::Cluster, ErrorCode::CLUSTER_AUTHORIZATION_FAILED),
    };
    if !context.authorize(Operation::DescribeConfigs, subject) {
        return Err((denied, "Authorization failed.".to_owned()));
    }
    let mut entries = match &found {
        ConfigResource::Topic(topic) => match broker.mounts.get(topic.id) {
            Some(queue) => mounted(queue)?,
            None => describe_topic(&broker.config, &topic.name, &topic.configs),
        },
        ConfigResource::Broker => describe_broker(&broker.config, &server_overrides(image)),
        ConfigResource::AllBrokers => Vec::new(),
    };
    if let Some(keys) = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty()) {
        if let ConfigResource::Topic(topic) = &found
            && let Some(now) = durability(broker, topic)
        {
            entries.extend(topic_state(now.wanted, now.reached, now.unsynced_records));
        }
        entries.retain(|entry| keys.iter().any(|key| key == entry.name));
    }
    Ok(entries)
}

/// What clients have set for this server.
fn server_overrides(image: &Image) -> ServerOverrides {
    let names = image.cordon().map(|cordon| cordon.names(&image.log_dir_paths()).join(","));
    names.map(|names| (CORDONED_LOG_DIRS, names)).into_iter().collect()
}

/// How durable a topic is; none of a mounted one that takes no records.
fn durability(broker: &Broker, topic: &Topic) -> Option<Durability> {
    match broker.mounts.get(topic.id) {
        Some(queue) => queue.durability(),
        None => Some(broker.durability(topic)),
    }
}

/// What is true of a queue of this machine: all else that a topic can be configured to do is its appenders' business.
fn mounted(queue: &MountedQueue) -> Result<Vec<ConfigEntry>, Refusal> {
    let described = queue.describe();
    let described = described.map_err(|refused| (refused.code, "The queue cannot be read.".to_owned()))?;
    Ok(describe_mounted(&described))
}

fn answer(
    resource: &DescribeConfigsResource<'_>,
    entries: Result<Vec<ConfigEntry>, Refusal>,
    wants: Wants,
) -> DescribeConfigsResult<'static> {
    let (code, message, entries) = match entries {
        Ok(entries) => (ErrorCode::NONE, None, entries),
        Err((code, message)) => (code, Some(message.into()), Vec::new()),
    };
    DescribeConfigsResult {
        error_code: code.0,
        error_message: message,
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.to_string().into(),
        configs: entries.into_iter().map(|entry| shown(entry, wants)).collect(),
    }
}

fn shown(entry: ConfigEntry, wants: Wants) -> DescribeConfigsResourceResult<'static> {
    let synonyms =
        entry.synonyms.into_iter().filter(|_| wants.synonyms).map(|synonym| DescribeConfigsSynonym {
            name: synonym.name.into(),
            value: Some(synonym.value.into()),
            source: synonym.source as i8,
        });
    DescribeConfigsResourceResult {
        name: entry.name.into(),
        value: entry.value.map(Into::into),
        read_only: entry.is_read_only,
        config_source: entry.source as i8,
        is_sensitive: false,
        synonyms: synonyms.collect(),
        config_type: entry.type_code,
        documentation: wants.documentation.then(|| entry.documentation.into()),
    }
}
