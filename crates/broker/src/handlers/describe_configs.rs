//! `DescribeConfigs` (key 32), versions 1 to 4.
//!
//! Tells the configuration of topics, of consumer groups (KIP-848) and of this server: values, the source of each, and on
//! request its synonyms (KIP-226) and its documentation (KIP-569). Options of the server are read-only, but for those that
//! take effect at once. How durable a topic is now is answered only if it is asked for by name. A resource that is named
//! more than once is described once. Leaves out: broker loggers and client metrics.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::BytesMut;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use riverrun_protocol::{DescribeConfigsRequest, Encode, EncodeError, Encoder, ErrorCode};

use super::config_resource::{ConfigResource, Refusal, find};
use crate::aside::give_way;
use crate::broker::Broker;
use crate::config::describe::{ConfigEntry, ServerOverrides, describe_broker, describe_group, topic_state};
use crate::config::{CORDONED_LOG_DIRS, GroupOverrides};
use crate::context::{Operation, RequestContext, Resource};
use crate::metadata::{Image, NodeImage};

/// First version with tagged fields.
const FLEXIBLE_SINCE: i16 = 4;

/// Memory of one answer, as it is sent and while it is put together.
const ANSWER_BYTES: usize = 8 * 1024;

/// Memory of the answer, about.
pub(crate) fn answer_bytes(_broker: &Broker, request: &DescribeConfigsRequest<'_>, _version: i16) -> usize {
    request.resources.len() * ANSWER_BYTES
}

/// The response. Its results are encoded one by one as they are made: before encoding they take some ten times as much,
/// and a client may ask for all topics at once.
pub(crate) struct Described {
    count: usize,
    results: Result<BytesMut, EncodeError>,
}

impl Encode for Described {
    fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError> {
        let results = self.results.as_ref().map_err(|error| *error)?;
        let is_flexible = version >= FLEXIBLE_SINCE;
        let throttle_time_ms = 0;
        encoder.i32(throttle_time_ms);
        let too_long = |_| EncodeError::TooLong(self.count);
        if is_flexible {
            encoder.varint(u32::try_from(self.count + 1).map_err(too_long)?);
        } else {
            encoder.i32(i32::try_from(self.count).map_err(too_long)?);
        }
        encoder.raw(results);
        if is_flexible {
            encoder.no_tagged_fields();
        }
        Ok(())
    }
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeConfigsRequest<'_>,
    version: i16,
) -> Described {
    let image = broker.catalog.image();
    let wants = Wants { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let mut seen = HashSet::new();
    let mut encoder = Encoder::new();
    let mut outcome = Ok(());
    for resource in &request.resources {
        if outcome.is_ok() && seen.insert((resource.resource_type, &*resource.resource_name)) {
            let result = answer(resource, entries(broker, &image, context, resource), wants);
            outcome = result.encode(&mut encoder, version);
            give_way().await;
        }
    }
    Described { count: seen.len(), results: outcome.map(|()| encoder.into_parts().0) }
}

/// Fields of an option that a client wants besides its value.
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
        ConfigResource::Group(id) => (Resource::Group(id), ErrorCode::GROUP_AUTHORIZATION_FAILED),
        ConfigResource::Broker | ConfigResource::AllBrokers => {
            (Resource::Cluster, ErrorCode::CLUSTER_AUTHORIZATION_FAILED)
        }
    };
    if !context.authorize(Operation::DescribeConfigs, subject) {
        return Err((denied, "Authorization failed.".to_owned()));
    }
    let mut entries = match &found {
        ConfigResource::Topic(topic) => {
            let entries = broker.replicas.configs(topic);
            entries.map_err(|code| (code, "The queue cannot be read.".to_owned()))?
        }
        ConfigResource::Group(id) => {
            describe_group(&broker.config, image.cluster.group_configs(id).unwrap_or(&GroupOverrides::new()))
        }
        ConfigResource::Broker => describe_broker(&broker.config, &server_overrides(&image.node)),
        ConfigResource::AllBrokers => Vec::new(),
    };
    if let Some(keys) = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty()) {
        if let ConfigResource::Topic(topic) = &found
            && let Some(now) = broker.durability(topic)
        {
            entries.extend(topic_state(now.wanted, now.reached, now.unsynced_records));
        }
        entries.retain(|entry| keys.iter().any(|key| key == entry.name));
    }
    Ok(entries)
}

/// Options of this server that clients have set.
fn server_overrides(node: &NodeImage) -> ServerOverrides {
    let names = node.cordon().map(|cordon| cordon.names(&node.log_dir_paths()).join(","));
    names.map(|names| (CORDONED_LOG_DIRS, names)).into_iter().collect()
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

#[cfg(test)]
mod tests {
    use riverrun_protocol::{ApiKey, DescribeConfigsResponse, encode_response};

    use super::*;

    #[test]
    fn results_encoded_one_by_one_are_the_response() {
        let result = |name: &str| DescribeConfigsResult {
            error_code: 0,
            resource_type: 2,
            resource_name: name.to_owned().into(),
            ..Default::default()
        };
        let results = [result("a"), result("b")];
        for version in 1..=4 {
            let mut encoder = Encoder::new();
            for result in &results {
                result.encode(&mut encoder, version).expect("encoded");
            }
            let described = Described { count: results.len(), results: Ok(encoder.into_parts().0) };
            let whole = DescribeConfigsResponse { results: results.to_vec(), ..Default::default() };
            let [streamed, whole] = [
                encode_response(ApiKey::DescribeConfigs, version, 7, &described),
                encode_response(ApiKey::DescribeConfigs, version, 7, &whole),
            ]
            .map(|frame| frame.expect("encoded").bytes);
            assert_eq!(streamed, whole, "version {version}");
        }
    }
}
