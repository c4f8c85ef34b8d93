//! The resource that a configuration request names: a topic, a consumer group or this server. Shared by the requests that
//! read and change configuration.
//!
//! Leaves out: broker loggers and client metrics, which have no configuration here.

use std::sync::Arc;

use riverrun_coordinator::GROUP_ID_BYTES_MAX;
use riverrun_protocol::ErrorCode;

use crate::metadata::{ClusterImage, Image, Topic};
use crate::text::shown;
use crate::topic_names::check_name;

/// Kafka's numbers of the types of resources that have a configuration.
pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
pub(crate) const BROKER_LOGGER: i8 = 8;
pub(crate) const CLIENT_METRICS: i8 = 16;
pub(crate) const GROUP: i8 = 32;

/// Why a resource is refused.
pub(crate) type Refusal = (ErrorCode, String);

/// A resource that was found.
#[derive(Debug)]
pub(crate) enum ConfigResource<'i> {
    Topic(&'i Arc<Topic>),
    /// A consumer group, by its id. It need not exist.
    Group(&'i str),
    /// This server.
    Broker,
    /// The options that all servers of a cluster share: there are none.
    AllBrokers,
}

/// Finds the resource of a request by Kafka's number of its type and its name.
pub(crate) fn find<'i>(
    image: &'i Image,
    resource_type: i8,
    name: &'i str,
) -> Result<ConfigResource<'i>, Refusal> {
    match resource_type {
        TOPIC => find_topic(&image.cluster, name).map(ConfigResource::Topic),
        BROKER if name.is_empty() => Ok(ConfigResource::AllBrokers),
        // By the one spelling of its number, so that a request cannot name this server a thousand times.
        BROKER if name == image.node.id().0.to_string() => Ok(ConfigResource::Broker),
        BROKER => {
            let name = shown(name);
            let message = format!(
                "Unexpected broker id, expected {} or empty string, but received {name}",
                image.node.id().0
            );
            Err((ErrorCode::INVALID_REQUEST, message))
        }
        GROUP => check_group_id(name).map(|()| ConfigResource::Group(name)),
        other => {
            let message =
                format!("Configuration of resources of type {other} is not supported by this server.");
            Err((ErrorCode::INVALID_REQUEST, message))
        }
    }
}

fn check_group_id(group_id: &str) -> Result<(), Refusal> {
    let message = match group_id.len() {
        0 => "Default group resources are not allowed: a group has a name.".to_owned(),
        1..=GROUP_ID_BYTES_MAX => return Ok(()),
        _ => format!("A group's name has at most {GROUP_ID_BYTES_MAX} bytes."),
    };
    Err((ErrorCode::INVALID_REQUEST, message))
}

fn find_topic<'i>(image: &'i ClusterImage, name: &str) -> Result<&'i Arc<Topic>, Refusal> {
    check_name(name).map_err(|message| (ErrorCode::INVALID_TOPIC_EXCEPTION, message))?;
    let unknown =
        || (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.".to_owned());
    image.topic(name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::testing::image;

    #[test]
    fn resources_that_are_not_here_are_refused_with_kafkas_codes() {
        let image = image(1);
        assert!(matches!(find(&image, BROKER, "1"), Ok(ConfigResource::Broker)));
        assert!(matches!(find(&image, BROKER, ""), Ok(ConfigResource::AllBrokers)));
        assert!(matches!(find(&image, GROUP, "g"), Ok(ConfigResource::Group("g"))));
        let long = "g".repeat(GROUP_ID_BYTES_MAX + 1);
        for (resource_type, name, code) in [
            (BROKER, "2", ErrorCode::INVALID_REQUEST),
            (BROKER, "01", ErrorCode::INVALID_REQUEST),
            (BROKER, "+1", ErrorCode::INVALID_REQUEST),
            (BROKER, "x", ErrorCode::INVALID_REQUEST),
            (TOPIC, "t", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "../t", ErrorCode::INVALID_TOPIC_EXCEPTION),
            (GROUP, "", ErrorCode::INVALID_REQUEST),
            (GROUP, &long, ErrorCode::INVALID_REQUEST),
            (8, "1", ErrorCode::INVALID_REQUEST),
            (0, "", ErrorCode::INVALID_REQUEST),
        ] {
            let found = find(&image, resource_type, name).map_err(|(code, _)| code);
            assert!(found.as_ref().is_err_and(|found| *found == code), "{resource_type} {name}: {found:?}");
        }
    }
}
