//! `IncrementalAlterConfigs` (key 44), versions 0 to 1 (KIP-339).
//!
//! Sets, deletes, appends to or subtracts from single configs of a topic or a consumer group, or says whether that could be done
//! (`validateOnly`). Changes of one resource happen together or not at all. Of the server's options `cordoned.log.dirs` can
//! be changed while it runs (KIP-1066).

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::{ErrorCode, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::config_change::{Ask, Subject, Wish, change_all, check_dynamic, nothing_for_all, subject, told};
use super::config_resource::Refusal;
use crate::broker::Broker;
use crate::config::{BrokerConfig, ConfigChange, alter_group_configs, alter_topic_configs};
use crate::context::RequestContext;
use crate::metadata::Image;
use crate::text::shown;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest<'_>,
    _version: i16,
) -> IncrementalAlterConfigsResponse<'static> {
    let image = broker.catalog.image();
    let asks = request.resources.iter().map(|resource| {
        let wish = wish(&broker.config, &image, context, resource);
        let changes = resource.configs.iter().map(|entry| {
            let value = entry.value.as_deref().filter(|_| entry.config_operation != 1);
            (&*entry.name, sign(entry.config_operation), value)
        });
        Ask::new(resource.resource_type, &resource.resource_name, told(changes), wish)
    });
    let responses = change_all(broker, context, asks.collect(), request.validate_only).await;
    IncrementalAlterConfigsResponse { responses, ..Default::default() }
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
    let changes: Vec<_> = resource.configs.iter().map(change).collect::<Result<_, _>>()?;
    check_named_once(&changes)?;
    let config = Arc::clone(config);
    Ok(match subject {
        Subject::Topic(id) => Wish::Topic {
            id,
            alter: Box::new(move |current| alter_topic_configs(&config, current, &changes)),
        },
        Subject::Group => Wish::Group {
            id: resource.resource_name.to_string(),
            alter: Box::new(move |current| alter_group_configs(&config, current, &changes)),
        },
        // One option of the server is dynamic, and each is named once.
        Subject::Server | Subject::AllServers => {
            changes.into_iter().next().map_or(Wish::Nothing, |(_, change)| Wish::Cordon(change))
        }
    })
}

fn change(entry: &AlterableConfig<'_>) -> Result<(String, ConfigChange), Refusal> {
    let value = || {
        let name = shown(&entry.name);
        let missing = || (ErrorCode::INVALID_REQUEST, format!("Null value not supported for config {name}"));
        entry.value.as_deref().map(str::to_owned).ok_or_else(missing)
    };
    let change = match entry.config_operation {
        0 => ConfigChange::Set(value()?),
        1 => ConfigChange::Delete,
        2 => ConfigChange::Append(value()?),
        3 => ConfigChange::Subtract(value()?),
        other => return Err((ErrorCode::INVALID_REQUEST, format!("Unknown config operation {other}"))),
    };
    Ok((entry.name.to_string(), change))
}

/// An operation's sign in the server's log, between name and value.
fn sign(config_operation: i8) -> &'static str {
    match config_operation {
        1 => " unset",
        2 => "+=",
        3 => "-=",
        _ => "=",
    }
}

fn check_named_once(changes: &[(String, ConfigChange)]) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    match changes.iter().find(|(name, _)| !seen.insert(name)) {
        Some((twice, _)) => {
            let message = format!("Error due to duplicate config keys: {}", shown(twice));
            Err((ErrorCode::INVALID_REQUEST, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_named_twice_makes_the_request_invalid() {
        let set = |name: &str| (name.to_owned(), ConfigChange::Set("1".into()));
        let delete = |name: &str| (name.to_owned(), ConfigChange::Delete);
        assert_eq!(check_named_once(&[set("a"), delete("b")]), Ok(()));
        for changes in [[set("a"), set("a")], [set("a"), delete("a")]] {
            let (code, message) = check_named_once(&changes).expect_err("refused");
            assert_eq!(code, ErrorCode::INVALID_REQUEST);
            assert!(message.ends_with(": a"), "{message}");
        }
    }

    #[test]
    fn operations_are_kafkas_numbers_and_need_a_value_except_delete() {
        let parsed = |config_operation, value: Option<&'static str>| {
            let entry = AlterableConfig { name: "a".into(), config_operation, value: value.map(Into::into) };
            change(&entry).map(|(_, change)| change).map_err(|(code, _)| code)
        };
        assert_eq!(parsed(0, Some("x")), Ok(ConfigChange::Set("x".into())));
        assert_eq!(parsed(1, None), Ok(ConfigChange::Delete));
        assert_eq!(parsed(2, Some("x")), Ok(ConfigChange::Append("x".into())));
        assert_eq!(parsed(3, Some("x")), Ok(ConfigChange::Subtract("x".into())));
        for (operation, value) in [(0, None), (2, None), (3, None), (4, Some("x")), (-1, Some("x"))] {
            assert_eq!(parsed(operation, value), Err(ErrorCode::INVALID_REQUEST), "{operation}");
        }
    }
}
