//! `AlterConfigs` (key 33), versions 0 to 2.
//!
//! Replaces all configs that a topic or a consumer group sets for itself by those of the request: a config that the
//! request does not name goes back to its default. `IncrementalAlterConfigs` changes single ones and is the request of
//! newer clients. `cordoned.log.dirs` is the one option of the server that can be changed while it runs (KIP-1066).

use std::sync::Arc;

use riverrun_protocol::alter_configs_request::AlterConfigsResource;
use riverrun_protocol::{AlterConfigsRequest, AlterConfigsResponse, ErrorCode};

use super::config_change::{Ask, Subject, Wish, change_all, check_dynamic, nothing_for_all, subject, told};
use super::config_resource::Refusal;
use crate::broker::Broker;
use crate::config::{
    BrokerConfig, CORDONED_LOG_DIRS, ConfigChange, GroupOverrides, TopicOverrides, check_altered_configs,
    check_group_configs,
};
use crate::context::RequestContext;
use crate::metadata::Image;
use crate::text::shown;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterConfigsRequest<'_>,
    _version: i16,
) -> AlterConfigsResponse<'static> {
    let image = broker.catalog.image();
    let asks = request.resources.iter().map(|resource| {
        let wish = wish(&broker.config, &image, context, resource);
        let set = resource.configs.iter().map(|entry| (&*entry.name, "=", entry.value.as_deref()));
        Ask::new(resource.resource_type, &resource.resource_name, format!("only {}", told(set)), wish)
    });
    let responses = change_all(broker, context, asks.collect(), request.validate_only).await;
    AlterConfigsResponse { responses, ..Default::default() }
}

fn wish(
    config: &Arc<BrokerConfig>,
    image: &Image,
    context: &RequestContext,
    resource: &AlterConfigsResource<'_>,
) -> Result<Wish, Refusal> {
    let subject = subject(image, context, resource.resource_type, &resource.resource_name)?;
    let names = resource.configs.iter().map(|entry| &*entry.name);
    match subject {
        Subject::AllServers => return nothing_for_all(names),
        Subject::Server => check_dynamic(names)?,
        Subject::Topic(_) | Subject::Group => {}
    }
    let mut configs = values(resource)?;
    let config = Arc::clone(config);
    Ok(match subject {
        Subject::Topic(id) => {
            let checked = move |current: &TopicOverrides| {
                check_altered_configs(&config, current, &configs)?;
                Ok(configs)
            };
            Wish::Topic { id, alter: Box::new(checked) }
        }
        Subject::Group => {
            let checked = move |current: &GroupOverrides| {
                check_group_configs(&config, current, &configs)?;
                Ok(configs)
            };
            Wish::Group { id: resource.resource_name.to_string(), alter: Box::new(checked) }
        }
        Subject::Server | Subject::AllServers => {
            let cordoned = configs.remove(CORDONED_LOG_DIRS);
            Wish::Cordon(cordoned.map_or(ConfigChange::Delete, ConfigChange::Set))
        }
    })
}

/// The values of a request, each name once.
fn values(resource: &AlterConfigsResource<'_>) -> Result<TopicOverrides, Refusal> {
    let mut configs = TopicOverrides::new();
    for entry in &resource.configs {
        let name = shown(&entry.name);
        let Some(value) = &entry.value else {
            return Err((ErrorCode::INVALID_CONFIG, format!("Null value not supported for configs: {name}")));
        };
        if configs.insert(entry.name.to_string(), value.trim().to_owned()).is_some() {
            return Err((ErrorCode::INVALID_REQUEST, format!("Error due to duplicate config keys: {name}")));
        }
    }
    Ok(configs)
}
