//! `DeleteTopics` (key 20), versions 1 to 6.
//!
//! Deletes topics by name, from version 6 on also by id (KIP-516). All topics of one request become durable together.
//! When the response is sent a topic is gone for everyone, and with it the offsets that groups committed for it. Its files
//! are gone, too, if their removal takes less than [`REMOVAL_PATIENCE`]; otherwise it goes on behind the response. All of
//! this is done also if the client leaves meanwhile. Where nobody knows whether the deletion is durable, no record is
//! acked to these topics after the response: the next start finds them or does not. Refuses the topic of group offsets,
//! which Kafka would delete with all groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::delete_topics_response::DeletableTopicResult;
use riverrun_protocol::{DeleteTopicsRequest, DeleteTopicsResponse, ErrorCode};
use riverrun_types::TopicId;
use tokio::task::JoinHandle;

use crate::aside::{self, waiting};
use crate::broker::Broker;
use crate::changes;
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::log_limit::Change;
use crate::metadata::NOT_CHANGED;
use crate::metadata::{ClusterImage, Draft, Topic};
use crate::supervisor;
use crate::topic_names::OFFSETS_TOPIC;

/// First version in which topics are in `topics`, by name or id.
const STATES_SINCE: i16 = 6;
/// First version that knows `TOPIC_DELETION_DISABLED`.
const DISABLED_CODE_SINCE: i16 = 3;

/// How long a response waits for the removal of files, so that a client that makes room finds it in most cases. Thousands
/// of partitions, or a disk that does not answer, would take longer than the client waits.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(2);

/// A topic as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    name: Option<String>,
    id: TopicId,
}

type Refusal = (ErrorCode, String);

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteTopicsRequest<'_>,
    version: i16,
) -> DeleteTopicsResponse<'static> {
    let wanted = wanted(&request, version);
    let image = broker.catalog.cluster();
    let find = |(topic, count): (Wanted, usize)| {
        let is_enabled = check_enabled(broker.config.server.delete_topic_enable, version);
        let found = is_enabled.and_then(|()| find(&image, context, &topic, count));
        (topic, found)
    };
    let (wanted, found): (Vec<_>, Vec<_>) =
        by_one_name(wanted.into_iter().map(find).collect()).into_iter().unzip();
    let asked: Vec<TopicId> = found.iter().flatten().copied().collect();
    let (of_change, of_end) = (context.clone(), Arc::clone(broker));
    let follow = move |changed: Result<Vec<Result<Arc<Topic>, Refusal>>, _>| {
        let outcomes = changed.inspect_err(|failed| of_end.catalog.doubt_topics(&asked, failed))?;
        let gone = outcomes.iter().flatten().cloned().collect();
        // Begun here, because the request may have gone with its client.
        Ok((outcomes, begin_removal(&of_end, of_change, gone)))
    };
    let plan = move |draft: &mut Draft<'_>| delete(draft, found);
    let outcomes = match broker.catalog.propose_and(context.source(), plan, follow).await {
        Ok((outcomes, removal)) => {
            // The removal ends early only where the server ends.
            let _ = waiting(removal).await;
            outcomes
        }
        Err(failed) => {
            let refusal = (error::metadata_error(&failed), failed.to_string());
            vec![Err(refusal); wanted.len()]
        }
    };
    let responses = wanted.into_iter().zip(outcomes).map(|(topic, outcome)| answer(topic, outcome));
    DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }
}

/// Begins the removal that follows from a deletion. It is done whether or not the client waits for it.
fn begin_removal(broker: &Arc<Broker>, context: RequestContext, gone: Vec<Arc<Topic>>) -> JoinHandle<()> {
    let source = context.connection.peer.ip();
    let (of_removal, places) = (Arc::clone(broker), broker.aside.get().cloned());
    let removal = async move {
        let removal = remove(&of_removal, &context, &gone);
        match places {
            Some(places) => places.in_charged_turn(source, removal).await,
            None => removal.await,
        }
    };
    tokio::spawn(broker.supervisor.errand("delete-topics", aside::sliced(removal)))
}

/// Removes files and committed offsets of topics that are gone from the metadata.
async fn remove(broker: &Arc<Broker>, context: &RequestContext, gone: &[Arc<Topic>]) {
    let gone: Vec<_> = gone.iter().map(|topic| (&*topic.name, topic.id)).collect();
    changes::tell(context, Change::TopicsDeleted, gone.iter().map(|(name, _)| *name));
    discard(broker, gone.iter().map(|(_, id)| *id).collect()).await;
    if !gone.is_empty()
        && let Err(code) = broker.groups.topics_deleted(&gone).await
    {
        tracing::warn!(%code, "offsets of deleted topics go when the groups of their partition take changes again");
    }
}

/// Removes the topics' files. A removal that takes long goes on behind the response.
async fn discard(broker: &Arc<Broker>, deleted: Vec<TopicId>) {
    let broker = Arc::clone(broker);
    let removal = supervisor::on_blocking_thread(move || broker.catalog.discard_topics(&deleted));
    // The outcome is of use to the next start only, which looks for the files itself.
    let _ = waiting(tokio::time::timeout(REMOVAL_PATIENCE, removal)).await;
}

/// The topics that are named, and how often each is.
fn wanted(request: &DeleteTopicsRequest<'_>, version: i16) -> BTreeMap<Wanted, usize> {
    let mut wanted = BTreeMap::new();
    let mut add = |topic| *wanted.entry(topic).or_default() += 1;
    if version >= STATES_SINCE {
        for state in &request.topics {
            add(Wanted { name: state.name.as_deref().map(str::to_owned), id: state.topic_id });
        }
    } else {
        for name in &request.topic_names {
            add(Wanted { name: Some(name.to_string()), id: TopicId::ZERO });
        }
    }
    wanted
}

fn check_enabled(is_enabled: bool, version: i16) -> Result<(), Refusal> {
    if is_enabled {
        return Ok(());
    }
    let code = match version {
        DISABLED_CODE_SINCE.. => ErrorCode::TOPIC_DELETION_DISABLED,
        _ => ErrorCode::INVALID_REQUEST,
    };
    Err((code, "This server does not delete topics: delete.topic.enable is false.".to_owned()))
}

fn find(
    image: &ClusterImage,
    context: &RequestContext,
    wanted: &Wanted,
    count: usize,
) -> Result<TopicId, Refusal> {
    let invalid = |message: &str| Err((ErrorCode::INVALID_REQUEST, message.to_owned()));
    let topic = match (&wanted.name, wanted.id) {
        (Some(_), id) if !id.is_zero() => {
            return invalid("You may not specify both topic name and topic id.");
        }
        (None, TopicId::ZERO) => return invalid("Neither topic name nor id were specified."),
        (Some(_), _) if count > 1 => return invalid("Duplicate topic name."),
        (None, _) if count > 1 => return invalid("Duplicate topic id."),
        (Some(name), _) => image.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        (None, id) => image.topic_by_id(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
    };
    let topic = topic.map_err(unknown)?;
    if !context.authorize(Operation::Delete, Resource::Topic(&topic.name)) {
        return Err((ErrorCode::TOPIC_AUTHORIZATION_FAILED, "Authorization failed.".to_owned()));
    }
    if &*topic.name == OFFSETS_TOPIC {
        let message = "The topic is the server's own: it holds the offsets of all groups.";
        return Err((ErrorCode::INVALID_TOPIC_EXCEPTION, message.to_owned()));
    }
    if !topic.is_changeable() {
        return Err((ErrorCode::POLICY_VIOLATION, NOT_CHANGED.to_owned()));
    }
    Ok(topic.id)
}

/// A topic that the request names both by name and by id is refused once.
fn by_one_name(found: Vec<(Wanted, Result<TopicId, Refusal>)>) -> Vec<(Wanted, Result<TopicId, Refusal>)> {
    let is_by_id = |(wanted, _): &&(Wanted, _)| wanted.name.is_none();
    let by_id: BTreeSet<TopicId> = found.iter().filter(is_by_id).map(|(wanted, _)| wanted.id).collect();
    let by_name = found.iter().filter(|found| !is_by_id(found)).filter_map(|(_, id)| id.as_ref().ok());
    let twice: BTreeSet<TopicId> = by_name.filter(|id| by_id.contains(*id)).copied().collect();
    let refuse_once = |(wanted, found): (Wanted, Result<TopicId, Refusal>)| match found {
        Ok(id) if twice.contains(&id) => wanted.name.map(|name| {
            let message = "The provided topic name maps to an ID that was already supplied.";
            (Wanted { name: Some(name), id }, Err((ErrorCode::INVALID_REQUEST, message.to_owned())))
        }),
        found => Some((wanted, found)),
    };
    found.into_iter().filter_map(refuse_once).collect()
}

fn unknown(code: ErrorCode) -> Refusal {
    (code, "This server does not host this topic.".to_owned())
}

fn delete(draft: &mut Draft<'_>, found: Vec<Result<TopicId, Refusal>>) -> Vec<Result<Arc<Topic>, Refusal>> {
    // Another request may have deleted it since it was found.
    let mut delete = |id| draft.delete_topic(id).map_err(|_| unknown(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    found.into_iter().map(|id| id.and_then(&mut delete)).collect()
}

fn answer(wanted: Wanted, outcome: Result<Arc<Topic>, Refusal>) -> DeletableTopicResult<'static> {
    match outcome {
        Ok(topic) => DeletableTopicResult {
            name: Some(topic.name.to_string().into()),
            topic_id: topic.id,
            ..Default::default()
        },
        Err((code, message)) => DeletableTopicResult {
            name: wanted.name.map(Into::into),
            topic_id: wanted.id,
            error_code: code.0,
            error_message: Some(message.into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use riverrun_env::sim::SimEnv;
    use riverrun_log::Appended;
    use riverrun_protocol::delete_topics_request::DeleteTopicState;
    use riverrun_types::{Acks, TimestampMs};

    use super::*;
    use crate::config::BrokerConfig;
    use crate::context::ConnectionInfo;
    use crate::metadata::{NewTopic, Record};
    use crate::partitions::Partition;
    use crate::start::open_broker;
    use crate::testing::record;

    fn start(sim: &SimEnv) -> Arc<Broker> {
        let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("default.durability", "4")]);
        open_broker(sim.env(), config.expect("valid")).expect("starts")
    }

    /// The first partition of a new topic.
    fn create(broker: &Broker, name: &str) -> Arc<Partition> {
        let new = NewTopic { name: name.to_owned(), partition_count: 1, configs: [].into() };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        broker.partition(&topic, 0).expect("there")
    }

    /// Appends a record, and returns its place if it is acked at once.
    fn acked(broker: &Broker, partition: &Partition) -> Option<Appended> {
        let appended = partition.append(record(TimestampMs(0), b"value"), broker.append_options()).ok()?;
        partition.write_staged().ok()?;
        (partition.outcome(appended, Acks::All) == Some(Ok(()))).then_some(appended)
    }

    fn named(name: &'static str) -> DeleteTopicState<'static> {
        DeleteTopicState { name: Some(name.into()), ..Default::default() }
    }

    /// The outcome for each topic, those by id first.
    async fn delete_all(
        broker: &Arc<Broker>,
        topics: Vec<DeleteTopicState<'static>>,
    ) -> Vec<(ErrorCode, Option<String>)> {
        let connection =
            ConnectionInfo::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), Arc::from("PLAINTEXT"));
        let context = RequestContext { connection: Arc::new(connection), client_id: Arc::from("") };
        let request = DeleteTopicsRequest { topics, ..Default::default() };
        let responses = handle(broker, &context, request, 6).await.responses;
        let told = |response: DeletableTopicResult<'_>| {
            (ErrorCode(response.error_code), response.name.map(|name| name.to_string()))
        };
        responses.into_iter().map(told).collect()
    }

    async fn delete(broker: &Arc<Broker>, name: &'static str) -> ErrorCode {
        delete_all(broker, vec![named(name)]).await[0].0
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_that_is_named_twice_is_refused_once_and_stays() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let twice = create(&broker, "twice").id.topic;
        create(&broker, "once");
        let by_id = || DeleteTopicState { topic_id: twice, ..Default::default() };
        let refused = (ErrorCode::INVALID_REQUEST, Some("twice".to_owned()));
        let nameless = (ErrorCode::INVALID_REQUEST, None);
        for (topics, expected) in [
            (vec![named("twice"), named("twice")], vec![refused.clone()]),
            (vec![by_id(), by_id()], vec![nameless.clone()]),
            (vec![by_id(), named("twice")], vec![refused.clone()]),
            (vec![by_id(), named("twice"), by_id()], vec![nameless, refused.clone()]),
        ] {
            assert_eq!(delete_all(&broker, topics).await, expected);
        }
        let mixed = delete_all(&broker, vec![named("once"), named("twice"), by_id()]).await;
        assert_eq!(mixed, [(ErrorCode::NONE, Some("once".to_owned())), refused]);
        assert!(broker.catalog.cluster().topic("twice").is_some());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_topic_of_a_reserved_name_from_older_data_can_be_deleted() {
        let broker = start(&SimEnv::new(1));
        let (name, dirs, configs) = ("__transaction_state".to_owned(), vec![0], [].into());
        let created = Record::TopicCreated { id: TopicId([1; 16]), name, dirs, configs, starts: 0 };
        broker.catalog.store().change(|draft| draft.record(created)).expect("changed");
        create(&broker, OFFSETS_TOPIC);
        assert_eq!(delete(&broker, "__transaction_state").await, ErrorCode::NONE);
        assert_eq!(delete(&broker, OFFSETS_TOPIC).await, ErrorCode::INVALID_TOPIC_EXCEPTION);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn topic_in_doubt_after_failed_delete_acks_nothing() {
        let sim = SimEnv::new(1);
        let broker = start(&sim);
        let [doubtful, kept, last] = ["doubtful", "kept", "last"].map(|name| create(&broker, name));
        let early = acked(&broker, &doubtful).expect("it is there");
        assert!(acked(&broker, &kept).is_some());
        sim.fs.fail_sync_after(0);
        assert_eq!(delete(&broker, "doubtful").await, ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(acked(&broker, &doubtful), None);
        assert_ne!(doubtful.outcome(early, Acks::All), Some(Ok(())), "an ack that was not sent yet");
        assert!(acked(&broker, &kept).is_some());
        // This deletion was not even tried.
        assert_eq!(delete(&broker, "last").await, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(acked(&broker, &last).is_some());
        let starts = sim.crash_states(100).map(|state| start(&state).catalog.cluster());
        let is_there = |image: &ClusterImage| ["doubtful", "last"].map(|name| image.topic(name).is_some());
        let found: Vec<_> = starts.map(|image| is_there(&image)).collect();
        assert!(found.contains(&[false, true]), "it may be gone: {found:?}");
        assert!(found.iter().all(|[_, is_last_there]| *is_last_there), "{found:?}");
    }
}
