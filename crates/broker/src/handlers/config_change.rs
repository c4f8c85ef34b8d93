//! Changing configuration, shared by the two requests that do: whose configs, whether they can change, carrying the
//! changes of all topics of a request out together, and what the response says of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::{ErrorCode, Str, alter_configs_response, incremental_alter_configs_response};
use riverrun_types::TopicId;

use super::config_resource::{ConfigResource, Refusal, find};
use crate::broker::Broker;
use crate::config::{TopicOverrides, shown};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::{Draft, Image};
use crate::mounts::NOT_CHANGED;

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

/// One resource of a request, and what it comes to by itself.
pub(crate) struct Ask<'r> {
    resource_type: i8,
    resource_name: &'r str,
    wish: Result<Wish, Refusal>,
}

impl<'r> Ask<'r> {
    pub(crate) fn new(resource_type: i8, resource_name: &'r str, wish: Result<Wish, Refusal>) -> Self {
        Self { resource_type, resource_name, wish }
    }
}

/// What a response says of one resource.
pub(crate) struct Answer {
    error_code: i16,
    error_message: Option<Str<'static>>,
    resource_type: i8,
    resource_name: Str<'static>,
}

/// The two responses say the same of a resource, each in a type of its own.
macro_rules! said_in {
    ($response:ident) => {
        impl From<Answer> for $response::AlterConfigsResourceResponse<'static> {
            fn from(answer: Answer) -> Self {
                let Answer { error_code, error_message, resource_type, resource_name } = answer;
                Self { error_code, error_message, resource_type, resource_name }
            }
        }
    };
}

said_in!(alter_configs_response);
said_in!(incremental_alter_configs_response);

impl Answer {
    fn new(resource_type: i8, resource_name: &str, outcome: Result<(), Refusal>) -> Answer {
        let (code, error_message) =
            outcome.map_or_else(|(code, text)| (code, Some(text.into())), |()| (ErrorCode::NONE, None));
        let resource_name = resource_name.to_owned().into();
        Answer { error_code: code.0, error_message, resource_type, resource_name }
    }
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
    if !context.authorize(Operation::AlterConfigs, resource) {
        return Err((denied, "Authorization failed.".to_owned()));
    }
    match &subject {
        Subject::Topic(id) if image.topic_by_id(*id).is_some_and(|topic| topic.is_mounted) => {
            Err((ErrorCode::POLICY_VIOLATION, NOT_CHANGED.to_owned()))
        }
        _ => Ok(subject),
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

/// Carries out what can be, and answers each ask in turn. A resource asked for more than once is refused each time.
pub(crate) async fn change_all<R: From<Answer>>(
    broker: &Arc<Broker>,
    asks: Vec<Ask<'_>>,
    only_validate: bool,
) -> Vec<R> {
    let twice = named_twice(asks.iter().map(|ask| (ask.resource_type, ask.resource_name)));
    let (resources, wishes): (Vec<_>, Vec<_>) =
        asks.into_iter().map(|ask| ((ask.resource_type, ask.resource_name), ask.wish)).unzip();
    let once = |(resource, wish)| {
        let repeated = || (ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.".to_owned());
        if twice.contains(resource) { Err(repeated()) } else { wish }
    };
    let wishes = resources.iter().zip(wishes).map(once).collect();
    let outcomes = carry_out(broker, wishes, only_validate).await;
    let answered = resources.into_iter().zip(outcomes);
    answered
        .map(|((resource_type, name), outcome)| Answer::new(resource_type, name, outcome).into())
        .collect()
}

/// The resources that are named more than once.
fn named_twice<'n>(resources: impl Iterator<Item = (i8, &'n str)>) -> BTreeSet<(i8, &'n str)> {
    let mut seen = BTreeSet::new();
    resources.filter(|resource| !seen.insert(*resource)).collect()
}

/// The changes of all topics become durable together.
async fn carry_out(
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
