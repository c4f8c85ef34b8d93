//! `AlterConfigs` (key 33), versions 0 to 2.
//!
//! Replaces all configs that a topic sets for itself by those of the request: what it leaves out goes back to the
//! default. `IncrementalAlterConfigs` changes single ones and is what newer clients send. Options of the server cannot
//! be changed while it runs.

use std::sync::Arc;

use riverrun_protocol::alter_configs_request::AlterConfigsResource;
use riverrun_protocol::{AlterConfigsRequest, AlterConfigsResponse, ErrorCode};

use super::config_change::{Ask, Subject, Wish, change_all, nothing_changes_here, subject};
use super::config_resource::Refusal;
use crate::broker::Broker;
use crate::config::{BrokerConfig, TopicOverrides, check_topic_configs, shown};
use crate::context::RequestContext;
use crate::metadata::Image;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterConfigsRequest<'_>,
    _version: i16,
) -> AlterConfigsResponse<'static> {
    let image = broker.metadata.image();
    let asks = request.resources.iter().map(|resource| {
        let wish = wish(&broker.config, &image, context, resource);
        Ask::new(resource.resource_type, &resource.resource_name, wish)
    });
    let responses = change_all(broker, asks.collect(), request.validate_only).await;
    AlterConfigsResponse { responses, ..Default::default() }
}

fn wish(
    config: &Arc<BrokerConfig>,
    image: &Image,
    context: &RequestContext,
    resource: &AlterConfigsResource<'_>,
) -> Result<Wish, Refusal> {
    let id = match subject(image, context, resource.resource_type, &resource.resource_name)? {
        Subject::Topic(id) => id,
        Subject::Server => return nothing_changes_here(resource.configs.iter().map(|entry| &*entry.name)),
    };
    let mut configs = TopicOverrides::new();
    for entry in &resource.configs {
        let name = shown(&entry.name);
        let Some(value) = &entry.value else {
            return Err((
                ErrorCode::INVALID_CONFIG,
                format!("Null value not supported for topic configs: {name}"),
            ));
        };
        if configs.insert(entry.name.to_string(), value.trim().to_owned()).is_some() {
            return Err((ErrorCode::INVALID_REQUEST, format!("Error due to duplicate config keys: {name}")));
        }
    }
    check_topic_configs(config, &configs).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
    Ok(Wish::Topic { id, alter: Box::new(move |_| Ok(configs)) })
}
