//! Changing configuration, shared by `AlterConfigs` and `IncrementalAlterConfigs`: finds the topic, group or server, checks
//! that its options can change, carries the changes of all resources of a request out together, and answers each.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::{ErrorCode, Str, alter_configs_response, incremental_alter_configs_response};
use riverrun_types::TopicId;

use super::config_resource::{self, ConfigResource, Refusal, find};
use crate::broker::Broker;
use crate::changes;
use crate::config::{ConfigChange, GroupOverrides, TopicOverrides, is_dynamic, list_items};
use crate::context::{Operation, RequestContext, Resource};
use crate::cordon::Cordon;
use crate::error;
use crate::log_limit::Change;
use crate::metadata::NOT_CHANGED;
use crate::metadata::{Draft, Image, NodeImage};
use crate::text::shown;
use crate::topic_names::OFFSETS_TOPIC;

/// The owner of a configuration that a client may change.
pub(crate) enum Subject {
    Topic(TopicId),
    /// A consumer group.
    Group,
    /// This server.
    Server,
    /// All servers of the cluster.
    AllServers,
}

/// Makes a topic's new configs of its current ones, or says why it cannot.
pub(crate) type Alter = Box<dyn FnOnce(&TopicOverrides) -> Result<TopicOverrides, String> + Send>;
/// Makes a consumer group's new configs of its current ones, or says why it cannot.
pub(crate) type AlterGroup = Box<dyn FnOnce(&GroupOverrides) -> Result<GroupOverrides, String> + Send>;

/// A checked wish of a client.
pub(crate) enum Wish {
    Topic {
        id: TopicId,
        alter: Alter,
    },
    Group {
        id: String,
        alter: AlterGroup,
    },
    /// To change `cordoned.log.dirs`.
    Cordon(ConfigChange),
    Nothing,
}

/// One resource of a request, and its wish or refusal by itself.
pub(crate) struct Ask<'r> {
    resource_type: i8,
    resource_name: &'r str,
    /// The changes, as the server's log shows them.
    told: String,
    wish: Result<Wish, Refusal>,
}

impl<'r> Ask<'r> {
    pub(crate) fn new(
        resource_type: i8,
        resource_name: &'r str,
        told: String,
        wish: Result<Wish, Refusal>,
    ) -> Self {
        Self { resource_type, resource_name, told, wish }
    }
}

/// Changes in one line of the log at most; the others are counted. A request may change thousands.
const TOLD_MAX: usize = 10;

/// Changes as the server's log shows them: option, the sign of the operation and, if there is one, the value.
pub(crate) fn told<'c>(changes: impl Iterator<Item = (&'c str, &'c str, Option<&'c str>)>) -> String {
    let mut changes = changes;
    let one = |(name, sign, value): (&str, &str, Option<&str>)| {
        format!("{}{sign}{}", shown(name), value.map(shown).unwrap_or_default())
    };
    let mut told: Vec<String> = changes.by_ref().take(TOLD_MAX).map(one).collect();
    match changes.count() {
        0 => {}
        more => told.push(format!("{more} more")),
    }
    told.join(" ")
}

/// The answer for one resource, in the words of both responses.
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

/// Finds the resource and checks that the client may alter its configs.
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
        ConfigResource::Group(id) => {
            (Subject::Group, Resource::Group(id), ErrorCode::GROUP_AUTHORIZATION_FAILED)
        }
        ConfigResource::Broker => {
            (Subject::Server, Resource::Cluster, ErrorCode::CLUSTER_AUTHORIZATION_FAILED)
        }
        ConfigResource::AllBrokers => {
            (Subject::AllServers, Resource::Cluster, ErrorCode::CLUSTER_AUTHORIZATION_FAILED)
        }
    };
    if !context.authorize(Operation::AlterConfigs, resource) {
        return Err((denied, "Authorization failed.".to_owned()));
    }
    match &subject {
        Subject::Topic(id) if image.cluster.topic_by_id(*id).is_some_and(|topic| !topic.is_changeable()) => {
            Err((ErrorCode::POLICY_VIOLATION, NOT_CHANGED.to_owned()))
        }
        _ => Ok(subject),
    }
}

/// Refuses options of the server that do not change while it runs.
pub(crate) fn check_dynamic<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), Refusal> {
    let fixed: Vec<String> = names.filter(|name| !is_dynamic(name)).map(shown).collect();
    if fixed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Cannot update these configs dynamically: {}. Options of this server are set in its configuration file, its \
         environment or by flags, and take effect when it starts.",
        fixed.join(", ")
    );
    Err((ErrorCode::INVALID_REQUEST, message))
}

/// No option belongs to all servers; a request that names none is fine.
pub(crate) fn nothing_for_all<'n>(names: impl Iterator<Item = &'n str> + Clone) -> Result<Wish, Refusal> {
    check_dynamic(names.clone())?;
    let names: Vec<String> = names.map(shown).collect();
    if names.is_empty() {
        return Ok(Wish::Nothing);
    }
    let message = format!(
        "Cannot update these configs at default cluster level, broker id must be specified: {}",
        names.join(", ")
    );
    Err((ErrorCode::INVALID_REQUEST, message))
}

/// Carries out the wishes that are not refused, and answers each ask in turn. A resource asked for more than once is
/// refused each time.
pub(crate) async fn change_all<R: From<Answer>>(
    broker: &Arc<Broker>,
    context: &RequestContext,
    asks: Vec<Ask<'_>>,
    only_validate: bool,
) -> Vec<R> {
    let twice = named_twice(asks.iter().map(|ask| (ask.resource_type, ask.resource_name)));
    let told: Vec<String> = asks
        .iter()
        .map(|ask| format!("{} {}: {}", type_name(ask.resource_type), shown(ask.resource_name), ask.told))
        .collect();
    let (resources, wishes): (Vec<_>, Vec<_>) =
        asks.into_iter().map(|ask| ((ask.resource_type, ask.resource_name), ask.wish)).unzip();
    let once = |(resource, wish)| {
        let repeated = || (ErrorCode::INVALID_REQUEST, "Each resource must appear at most once.".to_owned());
        if twice.contains(resource) { Err(repeated()) } else { wish }
    };
    let wishes = resources.iter().zip(wishes).map(once).collect();
    let outcomes = carry_out(broker, context, told, wishes, only_validate).await;
    let answered = resources.into_iter().zip(outcomes);
    answered
        .map(|((resource_type, name), outcome)| Answer::new(resource_type, name, outcome).into())
        .collect()
}

fn type_name(resource_type: i8) -> &'static str {
    match resource_type {
        config_resource::TOPIC => "topic",
        config_resource::BROKER => "server",
        config_resource::GROUP => "group",
        _ => "resource",
    }
}

/// The resources that are named more than once.
fn named_twice<'n>(resources: impl Iterator<Item = (i8, &'n str)>) -> BTreeSet<(i8, &'n str)> {
    let mut seen = BTreeSet::new();
    resources.filter(|resource| !seen.insert(*resource)).collect()
}

/// The changes of all resources become durable together. `told` are those changes as the server's log shows them, one
/// for each wish.
async fn carry_out(
    broker: &Arc<Broker>,
    context: &RequestContext,
    told: Vec<String>,
    wishes: Vec<Result<Wish, Refusal>>,
    only_validate: bool,
) -> Vec<Result<(), Refusal>> {
    let (count, source) = (wishes.len(), context.source());
    let altered = if only_validate {
        broker.catalog.rehearse(source, move |draft| alter_all(draft, wishes)).await
    } else {
        let touched: Vec<TopicId> = wishes.iter().filter_map(touched).collect();
        let (of_change, replicas) = (context.clone(), Arc::clone(&broker.replicas));
        let end = move |outcomes: &Vec<Result<(), Refusal>>| {
            replicas.apply_topic_configs(&touched);
            let altered = told.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
            changes::tell(&of_change, Change::ConfigsAltered, altered.map(|(told, _)| told.as_str()));
        };
        let follow = |altered: Result<_, _>| altered.inspect(end);
        broker.catalog.propose_and(source, move |draft| alter_all(draft, wishes), follow).await
    };
    altered.unwrap_or_else(|failed| {
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
    wishes.into_iter().map(|wish| wish.and_then(|wish| carry_out_one(draft, wish))).collect()
}

fn carry_out_one(draft: &mut Draft<'_>, wish: Wish) -> Result<(), Refusal> {
    match wish {
        Wish::Topic { id, alter } => alter_topic(draft, id, alter),
        Wish::Group { id, alter } => {
            let current = draft.image().cluster.group_configs(&id).cloned().unwrap_or_default();
            let altered = alter(&current).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
            draft.set_group_configs(&id, altered).map_err(|message| (ErrorCode::POLICY_VIOLATION, message))
        }
        Wish::Cordon(change) => {
            let cordon = cordon_after(&draft.image().node, &change);
            draft.set_cordon(cordon.map_err(|message| (ErrorCode::INVALID_REQUEST, message))?);
            Ok(())
        }
        Wish::Nothing => Ok(()),
    }
}

/// Cordoned log dirs that clients will have set; none: those of the configuration hold again.
fn cordon_after(node: &NodeImage, change: &ConfigChange) -> Result<Option<Cordon>, String> {
    let (dirs, now) = (node.log_dir_paths(), node.holding_cordon());
    let cordon = match change {
        ConfigChange::Delete => return Ok(None),
        ConfigChange::Set(names) => Cordon::parse(&list_items(names)?, &dirs)?,
        ConfigChange::Append(names) => {
            let more = list_items(names)?.into_iter().map(str::to_owned);
            Cordon::parse(&now.names(&dirs).into_iter().chain(more).collect::<Vec<_>>(), &dirs)?
        }
        ConfigChange::Subtract(names) => now.without(&list_items(names)?, &dirs),
    };
    Ok(Some(cordon))
}

fn alter_topic(draft: &mut Draft<'_>, id: TopicId, alter: Alter) -> Result<(), Refusal> {
    let unknown =
        || (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic.".to_owned());
    let topic = draft.image().cluster.topic_by_id(id).ok_or_else(unknown)?;
    let (is_offsets, current) = (&*topic.name == OFFSETS_TOPIC, Arc::clone(&topic.configs));
    let altered = alter(&current).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
    if is_offsets {
        check_policy(&current, &altered).map_err(|message| (ErrorCode::INVALID_CONFIG, message))?;
    }
    draft
        .set_topic_configs(id, altered)
        .map_err(|refused| (error::topic_error(&refused), refused.to_string()))
}

/// The topic of group offsets stays compacted: any other policy would delete what groups have committed.
fn check_policy(current: &TopicOverrides, altered: &TopicOverrides) -> Result<(), String> {
    const POLICY: &str = "cleanup.policy";
    let policy = altered.get(POLICY);
    if policy == current.get(POLICY) || policy.is_some_and(|policy| policy == "compact") {
        return Ok(());
    }
    Err(format!("{POLICY} of a topic of the server's own is compact"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::testing::image;

    #[test]
    fn internal_topics_stay_compacted_whatever_else_changes() {
        let configs = |policy: Option<&str>| -> TopicOverrides {
            let policy = policy.map(|policy| ("cleanup.policy".to_owned(), policy.to_owned()));
            policy.into_iter().chain([("segment.ms".to_owned(), "1".to_owned())]).collect()
        };
        let compacted = configs(Some("compact"));
        for policy in [None, Some("delete"), Some("compact,delete")] {
            assert!(check_policy(&compacted, &configs(policy)).is_err(), "{policy:?}");
            assert!(check_policy(&configs(policy), &compacted).is_ok());
            assert!(check_policy(&configs(policy), &configs(policy)).is_ok(), "it was so before");
        }
    }

    #[test]
    fn options_of_the_server_are_named_when_they_cannot_change() {
        assert!(matches!(nothing_for_all([].into_iter()), Ok(Wish::Nothing)));
        assert!(check_dynamic(["cordoned.log.dirs"].into_iter()).is_ok());
        for refused in [
            check_dynamic(["cordoned.log.dirs", "log.cleaner.threads"].into_iter()).err(),
            nothing_for_all(["cordoned.log.dirs", "log.cleaner.threads"].into_iter()).err(),
        ] {
            let (code, message) = refused.expect("refused");
            assert_eq!(code, ErrorCode::INVALID_REQUEST);
            assert!(message.contains("dynamically: log.cleaner.threads."), "{message}");
        }
        let (code, message) = nothing_for_all(["cordoned.log.dirs"].into_iter()).err().expect("refused");
        assert!(code == ErrorCode::INVALID_REQUEST && message.contains("broker id"), "{message}");
    }

    #[test]
    fn a_change_of_cordoned_log_dirs_begins_at_what_holds() {
        let after = |default: Cordon, change| {
            let mut image = image(3);
            image.node_mut().cordon_by_default(default);
            cordon_after(&image.node, &change)
        };
        let (first, text) = (|| Cordon::Dirs(vec![0]), |text: &str| text.to_owned());
        for (change, expected) in [
            (ConfigChange::Set(text("/2,/1")), Some(Cordon::Dirs(vec![2, 1]))),
            (ConfigChange::Set(text("*")), Some(Cordon::All)),
            (ConfigChange::Set(text("")), Some(Cordon::none())),
            (ConfigChange::Append(text("/1,/0")), Some(Cordon::Dirs(vec![0, 1]))),
            (ConfigChange::Subtract(text("/0")), Some(Cordon::none())),
            (ConfigChange::Subtract(text("/3,/1,*")), Some(first())),
            (ConfigChange::Delete, None),
        ] {
            assert_eq!(after(first(), change.clone()), Ok(expected), "{change:?}");
        }
        for change in [ConfigChange::Set(text("/3")), ConfigChange::Append(text("*"))] {
            assert!(after(first(), change.clone()).is_err(), "{change:?}");
        }
        assert!(after(Cordon::All, ConfigChange::Append(text("/1"))).is_err());
        assert_eq!(after(Cordon::All, ConfigChange::Append(text("*"))), Ok(Some(Cordon::All)));
        assert!(after(first(), ConfigChange::Set("/1,".repeat(2000))).is_err(), "too many to look at");
    }
}
