//! Changing configuration, shared by the two requests that do: whose configs, whether they can change, and carrying
//! the changes of all topics of a request out together.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::ErrorCode;
use riverrun_types::TopicId;

use super::config_resource::{ConfigResource, Refusal, find};
use crate::broker::Broker;
use crate::config::{TopicOverrides, shown};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::{Draft, Image};

/// Whose configuration a client may change.
pub(crate) enum Subject {
    Topic(TopicId),
    /// The server, or all of them.
    Server,
}

/// From the configs that a topic sets now to those that it shall set, or why not.
pub(crate) type Alter = Box<dyn FnOnce(&TopicOverrides) -> Result<TopicOverrides, String> + Send>;

/// A checked wish of a client.
pub(crate) enum Wish {
    Topic { id: TopicId, alter: Alter },
    Nothing,
}

/// The resources that a request names more than once.
pub(crate) fn named_twice<'n>(resources: impl Iterator<Item = (i8, &'n str)>) -> BTreeSet<(i8, &'n str)> {
    let mut seen = BTreeSet::new();
    resources.filter(|resource| !seen.insert(*resource)).collect()
}

/// Finds the resource and asks for leave.
pub(crate) fn subject(
    image: &Image,
    context: &RequestContext,
    resource_type: i8,
    name: &str,
) -> Result<Subject, Refusal> {
    let (subject, resource, denied) = match find(image, resource_type, name)? {
        ConfigResource::Topic(topic) => {
            (Subject::Topic(topic.id), Resource::Topic(&topic.name), ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        }
        ConfigResource::Broker | ConfigResource::AllBrokers => {
            (Subject::Server, Resource::Cluster, ErrorCode::CLUSTER_AUTHORIZATION_FAILED)
        }
    };
    if context.authorize(Operation::AlterConfigs, resource) {
        Ok(subject)
    } else {
        Err((denied, "Authorization failed.".to_owned()))
    }
}

/// No option of the server changes while it runs; a request that names none is fine.
pub(crate) fn nothing_changes_here<'n>(names: impl Iterator<Item = &'n str>) -> Result<Wish, Refusal> {
    let names: Vec<String> = names.map(shown).collect();
    if names.is_empty() {
        return Ok(Wish::Nothing);
    }
    let message = format!(
        "Cannot update these configs dynamically: {}. Options of this server are set in its configuration file, its \
         environment or by flags, and take effect when it starts.",
        names.join(", ")
    );
    Err((ErrorCode::INVALID_REQUEST, message))
}

/// Carries out what can be; the changes of all topics become durable together.
pub(crate) async fn carry_out(
    broker: &Arc<Broker>,
    wishes: Vec<Result<Wish, Refusal>>,
    only_validate: bool,
) -> Vec<Result<(), Refusal>> {
    let count = wishes.len();
    if only_validate {
        return broker.metadata.rehearse(move |draft| alter_all(draft, wishes));
    }
    let altered = broker.blocking(move |broker| {
        let touched: Vec<TopicId> = wishes.iter().filter_map(touched).collect();
        let outcomes = broker.metadata.change(|draft| alter_all(draft, wishes))?;
        broker.apply_topic_configs(&touched);
        Ok(outcomes)
    });
    altered.await.unwrap_or_else(|failed| {
        let refusal = (error::metadata_error(&failed), failed.to_string());
        vec![Err(refusal); count]
    })
}

fn touched(wish: &Result<Wish, Refusal>) -> Option<TopicId> {
    match wish {
        Ok(Wish::Topic { id, .. }) => Some(*id),
        _ => None,
    }
}

fn alter_all(draft: &mut Draft<'_>, wishes: Vec<Result<Wish, Refusal>>) -> Vec<Result<(), Refusal>> {
    wishes.into_iter().map(|wish| wish.and_then(|wish| alter(draft, wish))).collect()
}

fn alter(draft: &mut Draft<'_>, wish: Wish) -> Result<(), Refusal> {
    let Wish::Topic { id, alter } = wish else { return Ok(()) };
    let unknown =
        || (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.".to_owned());
    let current = Arc::clone(&draft.image().topic_by_id(id).ok_or_else(unknown)?.configs);
    let altered = alter(&current).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
    draft
        .set_topic_configs(id, altered)
        .map_err(|refused| (error::topic_error(&refused), refused.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_server_are_named_when_they_cannot_change() {
        assert!(matches!(nothing_changes_here([].into_iter()), Ok(Wish::Nothing)));
        let refused = nothing_changes_here(["log.cleaner.threads"].into_iter()).err();
        let (code, message) = refused.expect("refused");
        assert_eq!(code, ErrorCode::INVALID_REQUEST);
        assert!(message.contains("log.cleaner.threads"), "{message}");
    }
}
