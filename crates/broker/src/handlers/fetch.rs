//! Fetch (key 1), versions 4 to 18.
//!
//! Returns whole batches from segment files, within the request's and each partition's byte limits; the first
//! batch is returned whole even above them (KIP-74). Waits up to `max_wait_ms` for `min_bytes`, but for half
//! of `connections.max.idle.ms` at most, and for a second where others wait for memory. Incremental sessions
//! (KIP-227), topic ids from version 13 on (KIP-516), leader epochs (KIP-320, KIP-595). `read_committed` is
//! accepted: without transactions the last stable offset is the high watermark and nothing is aborted. A request
//! that claims to come from a replica is refused, because this server has none.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_protocol::fetch_request::{FetchTopic, ForgottenTopic};
use riverrun_protocol::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use riverrun_protocol::{ErrorCode, FetchRequest, FetchResponse, Records, Str};
use riverrun_types::{LeaderEpoch, Offset, TopicId};
use tokio::time::{Instant, timeout_at};

use crate::broker::Broker;
use crate::context::RequestContext;
use crate::fetch::read::{Answer, Limits, Pass, read_all};
use crate::fetch::session::{PartitionRef, Plan, SessionRequest, Told, TopicRef, Wanted};
use crate::net::budget::Charge;
use crate::net::response::{Outcome, Part};
use crate::partitions::Waiter;
use crate::router::{Call, decode, respond, respond_spliced};

/// First version that identifies topics instead of naming them.
const TOPIC_IDS_SINCE: i16 = 13;
/// First version that says who leads, where the client is wrong about that (KIP-320, KIP-951).
const LEADER_SINCE: i16 = 12;
/// First version whose replica id stands in the replica state.
const REPLICA_STATE_SINCE: i16 = 15;

/// How long a fetch waits before it looks whether others wait for the memory that it holds.
const TURN: Duration = Duration::from_secs(1);

/// How long a fetch may wait, and for how much.
#[derive(Clone, Copy)]
struct Patience {
    until: Instant,
    bytes_min: usize,
}

/// The request without its borrow of the frame, which is given back before it is served.
struct Order {
    plan: Plan,
    limits: Limits,
    patience: Patience,
    isolation_level: i8,
}

/// Serves the request, whose frame is charged.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    frame: BytesMut,
    mut charge: Charge,
) -> Outcome {
    let Order { plan, limits, patience, isolation_level } = match order(broker, call, &frame) {
        Ok(order) => order,
        Err(refused) => return refused,
    };
    drop(frame);
    let pass = read_patiently(broker, context, &plan, limits, patience, &mut charge).await;
    answer(broker, call, &plan, pass, isolation_level)
}

fn order(broker: &Broker, call: Call, frame: &[u8]) -> Result<Order, Outcome> {
    let request = decode::<FetchRequest<'_>>(call, frame);
    let request = request.map_err(|error| Outcome::Close(format!("Fetch: {error}")))?;
    let by_id = call.version >= TOPIC_IDS_SINCE;
    let is_replica = match call.version {
        REPLICA_STATE_SINCE.. => request.replica_state.replica_id >= 0,
        _ => request.replica_id >= 0,
    };
    if is_replica {
        return Err(refuse(call, ErrorCode::CLUSTER_AUTHORIZATION_FAILED));
    }
    let (now, fresh_id) = (broker.env.clock.monotonic(), broker.env.random.next_u64());
    let begun = broker.fetch_sessions.begin(session_request(&request, by_id), by_id, now, fresh_id);
    let plan = begun.map_err(|code| refuse(call, code))?;
    let network = &broker.config.network;
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or_default().min(network.fetch_max_bytes);
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or_default().min(bytes_max);
    // Its connection is not idle until long after that.
    let wait_ms_max = network.connections_max_idle_ms / 2;
    let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or_default().min(wait_ms_max);
    let patience = Patience { until: Instant::now() + Duration::from_millis(wait_ms), bytes_min };
    Ok(Order { plan, limits: Limits { bytes_max }, patience, isolation_level: request.isolation_level })
}

fn refuse(call: Call, code: ErrorCode) -> Outcome {
    respond(call, &FetchResponse { error_code: code.0, ..Default::default() })
}

/// Reads until there is enough, something urgent, or no time left. While it waits it holds memory for what it knows only.
async fn read_patiently(
    broker: &Arc<Broker>,
    context: &RequestContext,
    plan: &Plan,
    limits: Limits,
    patience: Patience,
    charge: &mut Charge,
) -> Pass {
    let enough = |pass: &Pass| pass.urgent || plan.wanted.is_empty() || pass.bytes >= patience.bytes_min;
    let read = |waiter| read_all(broker, context, plan, limits, waiter);
    let mut pass = read(None).await;
    if enough(&pass) {
        return pass;
    }
    charge.resize(waiting_bytes(context, &plan.wanted));
    let waiter = Arc::new(Waiter::default());
    loop {
        pass = read(Some(&waiter)).await;
        if enough(&pass) || Instant::now() >= patience.until {
            return pass;
        }
        // Records that are too few would be kept in memory until there are enough.
        let nothing = (pass.bytes == 0).then_some(pass);
        if !is_woken(broker, &waiter, patience.until).await {
            return match nothing {
                // Nobody woke us, so nothing has come since.
                Some(pass) => pass,
                None => read(None).await,
            };
        }
    }
}

/// Waits until there is more to read; false at the end of its time, or when others wait for memory: a fetch may always be
/// answered, and its client comes again.
async fn is_woken(broker: &Broker, waiter: &Waiter, until: Instant) -> bool {
    loop {
        let turn_ends = until.min(Instant::now() + TURN);
        if timeout_at(turn_ends, waiter.woken()).await.is_ok() {
            return true;
        }
        if turn_ends == until || broker.budgets.requests.is_wanted() {
            return false;
        }
    }
}

/// Memory that a fetch holds while it waits.
fn waiting_bytes(context: &RequestContext, wanted: &[Wanted]) -> usize {
    let mut bytes = context.client_id.len() + wanted.len() * (size_of::<Wanted>() + size_of::<Answer>());
    let mut last: Option<&Arc<str>> = None;
    for wanted in wanted {
        if let TopicRef::Name(name) = &wanted.partition.topic
            && !last.is_some_and(|last| Arc::ptr_eq(last, name))
        {
            bytes += name.len();
            last = Some(name);
        }
    }
    bytes
}

fn session_request(request: &FetchRequest<'_>, by_id: bool) -> SessionRequest {
    SessionRequest {
        session_id: request.session_id,
        session_epoch: request.session_epoch,
        wanted: request.topics.iter().flat_map(|topic| wanted(topic, by_id)).collect(),
        forgotten: request.forgotten_topics_data.iter().flat_map(|topic| forgotten(topic, by_id)).collect(),
    }
}

fn topic_ref(name: &str, id: TopicId, by_id: bool) -> TopicRef {
    if by_id { TopicRef::Id(id) } else { TopicRef::Name(Arc::from(name)) }
}

fn wanted(topic: &FetchTopic<'_>, by_id: bool) -> impl Iterator<Item = Wanted> {
    let reference = topic_ref(&topic.topic, topic.topic_id, by_id);
    topic.partitions.iter().map(move |partition| Wanted {
        partition: PartitionRef { topic: reference.clone(), index: partition.partition },
        fetch_offset: Offset(partition.fetch_offset),
        max_bytes: partition.partition_max_bytes,
        current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
        last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
        told: None,
    })
}

fn forgotten(topic: &ForgottenTopic<'_>, by_id: bool) -> impl Iterator<Item = PartitionRef> {
    let reference = topic_ref(&topic.topic, topic.topic_id, by_id);
    topic.partitions.iter().map(move |&index| PartitionRef { topic: reference.clone(), index })
}

fn answer(broker: &Broker, call: Call, plan: &Plan, pass: Pass, isolation_level: i8) -> Outcome {
    let told =
        plan.wanted.iter().zip(&pass.answers).map(|(wanted, answer)| (&wanted.partition, told(answer)));
    broker.fetch_sessions.finish(plan.session_id, told);
    let mut responses: Vec<FetchableTopicResponse<'_>> = Vec::new();
    let mut external: Vec<Vec<Part>> = Vec::new();
    for (wanted, answer) in plan.wanted.iter().zip(pass.answers) {
        if plan.incremental && !is_news(wanted, &answer) {
            continue;
        }
        let data = partition_data(broker, call.version, wanted, &answer, isolation_level);
        external.push(answer.parts);
        let topic = &wanted.partition.topic;
        match responses.last_mut() {
            Some(last) if is_topic(last, topic) => last.partitions.push(data),
            _ => responses.push(topic_response(topic, data)),
        }
    }
    let response = FetchResponse { session_id: plan.session_id, responses, ..Default::default() };
    respond_spliced(call, &response, external)
}

fn told(answer: &Answer) -> Told {
    Told {
        high_watermark: answer.high_watermark,
        log_start: answer.log_start,
        records: answer.bytes > 0,
        error: answer.error != ErrorCode::NONE,
    }
}

fn is_news(wanted: &Wanted, answer: &Answer) -> bool {
    answer.bytes > 0
        || answer.error != ErrorCode::NONE
        || answer.diverging.is_some()
        || wanted.told != Some((answer.high_watermark, answer.log_start))
}

fn is_topic(response: &FetchableTopicResponse<'_>, topic: &TopicRef) -> bool {
    match topic {
        TopicRef::Name(name) => *response.topic == **name,
        TopicRef::Id(id) => response.topic_id == *id,
    }
}

fn topic_response<'a>(topic: &'a TopicRef, first: PartitionData<'a>) -> FetchableTopicResponse<'a> {
    let partitions = vec![first];
    match topic {
        TopicRef::Name(name) => {
            FetchableTopicResponse { topic: Str::Borrowed(name), partitions, ..Default::default() }
        }
        TopicRef::Id(id) => FetchableTopicResponse { topic_id: *id, partitions, ..Default::default() },
    }
}

fn partition_data(
    broker: &Broker,
    version: i16,
    wanted: &Wanted,
    answer: &Answer,
    isolation_level: i8,
) -> PartitionData<'static> {
    let diverging_epoch = answer.diverging.map_or_else(EpochEndOffset::default, |(epoch, end)| {
        EpochEndOffset { epoch: epoch.0, end_offset: end.0 }
    });
    let current_leader = match answer.error {
        ErrorCode::FENCED_LEADER_EPOCH | ErrorCode::NOT_LEADER_OR_FOLLOWER if version >= LEADER_SINCE => {
            LeaderIdAndEpoch { leader_id: broker.node_id().0, leader_epoch: answer.leader_epoch.0 }
        }
        _ => LeaderIdAndEpoch::default(),
    };
    PartitionData {
        partition_index: wanted.partition.index,
        error_code: answer.error.0,
        high_watermark: answer.high_watermark.0,
        last_stable_offset: answer.high_watermark.0,
        log_start_offset: answer.log_start.0,
        diverging_epoch,
        current_leader,
        aborted_transactions: (isolation_level == READ_COMMITTED).then(Vec::new),
        records: Some(Records::External { len: answer.bytes }),
        ..Default::default()
    }
}

/// Isolation level of a consumer that wants no records of open or aborted transactions.
const READ_COMMITTED: i8 = 1;
