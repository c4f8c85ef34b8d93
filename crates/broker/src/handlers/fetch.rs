//! Fetch (key 1), versions 4 to 18.
//!
//! Returns whole batches from segment files, within the request's and each partition's byte limits; the first
//! batch is returned whole even above them (KIP-74). Waits up to `max_wait_ms` for `min_bytes`, but for half
//! of `connections.max.idle.ms` at most, and for a second where others wait for memory. Incremental sessions
//! (KIP-227), topic ids from version 13 on (KIP-516), leader epochs (KIP-320, KIP-595). `read_committed` is
//! accepted: without transactions the last stable offset is the high watermark and nothing is aborted. A request
//! that claims to come from a replica is refused, because this server has none. A partition that is named more than once is
//! answered once, as its last naming asks. A fetch of many partitions, with those of its session, is served aside.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_protocol::fetch_request::{FetchTopic, ForgottenTopic};
use riverrun_protocol::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use riverrun_protocol::{DecodeError, ErrorCode, FetchRequest, FetchResponse, Records, Str};
use riverrun_types::{LeaderEpoch, Offset, TopicId};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::bounds::{Bound, SMALL_BYTES_MAX, SMALL_ELEMENTS_MAX};
use crate::aside::{Aside, Stopping};
use crate::broker::Broker;
use crate::context::RequestContext;
use crate::fetch::{Answer, Limits, Pass, read_all};
use crate::fetch_sessions::{PartitionRef, Plan, SessionRequest, Told, TopicRef, Wanted};
use crate::flow::budget::Charge;
use crate::flow::turns;
use crate::handlers::router::{Call, Job, decode_within, respond, respond_spliced, stopping, too_much};
use crate::partitions::Waiter;
use crate::response::{Outcome, Part};

/// First version that identifies topics instead of naming them.
const TOPIC_IDS_SINCE: i16 = 13;
/// First version that names the leader, where the client is wrong about it (KIP-320, KIP-951).
const LEADER_SINCE: i16 = 12;
/// First version whose replica id stands in the replica state.
const REPLICA_STATE_SINCE: i16 = 15;

/// How long a fetch waits before it checks whether other requests wait for the memory that it holds.
const TURN: Duration = Duration::from_secs(1);
/// The same for a fetch of many partitions: it holds much, and a request that waits for that memory occupies a turn aside.
const TURN_ASIDE: Duration = Duration::from_millis(100);
/// Pause before the answer of a fetch that finds nothing for want of descriptors, or of memory to wait with: clients ask
/// again at once. As long as they pause after most errors.
const SHORTAGE_WAIT: Duration = Duration::from_millis(100);

/// See [`pause`].
const PAUSE_DIVISOR: u32 = 32;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Memory of a fetch that waits, whatever it fetches: mostly the future of its next steps.
const PARKED_BYTES: usize = 4 * 1024;

/// The time that a fetch may wait, and the bytes that end the wait.
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

/// Why a frame gives no order.
enum NoOrder {
    /// The request has more elements, or its session more partitions, than there is room for.
    TooMuch,
    Refused(Outcome),
}

/// The place where a fetch is served.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// On the thread that read the request.
    Here,
    /// Aside, in turns of its own.
    Aside { aside: &'a Aside, source: IpAddr },
}

impl Place<'_> {
    /// Reads in a turn if the place has turns; the memory is charged already. While the read waits for the turn of a log dir
    /// it has no other turn.
    async fn in_turn<T>(self, read: impl Future<Output = T>) -> T {
        match self {
            Self::Here => read.await,
            Self::Aside { aside, source } => aside.in_charged_turn(source, read).await,
        }
    }

    /// How long a fetch waits before it checks whether other requests wait for the memory that it holds.
    fn patience(self) -> Duration {
        match self {
            Self::Here => TURN,
            Self::Aside { .. } => TURN_ASIDE,
        }
    }

    fn is_memory_wanted(self, broker: &Broker) -> bool {
        match self {
            Self::Here => broker.budgets.requests.is_wanted(),
            Self::Aside { aside, .. } => aside.is_memory_wanted(),
        }
    }
}

/// Serves the request on this thread if it and its session have few partitions, else aside.
pub(crate) async fn handle(mut job: Job) -> Outcome {
    let ordered = if job.frame.len() > SMALL_BYTES_MAX {
        Err(NoOrder::TooMuch)
    } else {
        order(&job.broker, job.call, &job.frame, SMALL_ELEMENTS_MAX)
    };
    match ordered {
        Ok((order, _)) => {
            job.frame = BytesMut::new();
            let Job { broker, context, call, mut charge, .. } = job;
            serve(&broker, &context, call, order, &mut charge, Place::Here).await
        }
        Err(NoOrder::Refused(refused)) => refused,
        Err(NoOrder::TooMuch) => {
            // No later request of this connection starts before the answer.
            let _alone = job.context.connection.begin_aside();
            let aside = job.aside.clone();
            aside.run(handle_aside(job)).await.unwrap_or_else(|Stopping| stopping())
        }
    }
}

/// Serves a request for many partitions. Its memory stays charged while it waits, too.
async fn handle_aside(job: Job) -> Outcome {
    let Job { broker, aside, context, call, frame, mut charge } = job;
    let source = context.connection.peer.ip();
    let place = Place::Aside { aside: &aside, source };
    let bound = Bound::of(call.key);
    let turn = aside.turn(source).await;
    let ordered = order(&broker, call, &frame, usize::MAX);
    drop(turn);
    drop(frame);
    charge.resize(0);
    match ordered {
        Ok((order, elements)) => {
            let bytes = elements.max(order.plan.len()) * bound.element_bytes;
            let mut memory = aside.charge(source, bytes).await;
            serve(&broker, &context, call, order, &mut memory, place).await
        }
        Err(NoOrder::Refused(refused)) => refused,
        Err(NoOrder::TooMuch) => too_much(call.key),
    }
}

async fn serve(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    order: Order,
    charge: &mut Charge,
    place: Place<'_>,
) -> Outcome {
    let Order { plan, limits, patience, isolation_level } = order;
    let pass = read_patiently(broker, context, &plan, limits, patience, charge, place).await;
    answer(broker, call, plan, pass, isolation_level)
}

/// Reads the request if it has at most `most` elements, and its session at most `most` partitions; answers how many
/// elements it has.
fn order(broker: &Broker, call: Call, frame: &[u8], most: usize) -> Result<(Order, usize), NoOrder> {
    let refuse = |code| NoOrder::Refused(refuse(call, code));
    let elements_max = Bound::of(call.key).elements_max.min(most);
    let decoded = decode_within::<FetchRequest<'_>>(call, frame, elements_max);
    let (request, elements) = decoded.map_err(|error| match error {
        DecodeError::TooManyObjects => NoOrder::TooMuch,
        error => NoOrder::Refused(Outcome::Close(format!("Fetch: {error}"))),
    })?;
    if broker.fetch_sessions.partitions_of(request.session_id) > most {
        return Err(NoOrder::TooMuch);
    }
    let by_id = call.version >= TOPIC_IDS_SINCE;
    let is_replica = match call.version {
        REPLICA_STATE_SINCE.. => request.replica_state.replica_id >= 0,
        _ => request.replica_id >= 0,
    };
    if is_replica {
        return Err(refuse(ErrorCode::CLUSTER_AUTHORIZATION_FAILED));
    }
    let (now, fresh_id) = (broker.env.clock.monotonic(), broker.env.random.next_u64());
    let image = broker.catalog.cluster();
    let exists = |partition: &PartitionRef| {
        let topic = match &partition.topic {
            TopicRef::Name(name) => image.topic(name),
            TopicRef::Id(id) => image.topic_by_id(*id),
        };
        topic.is_some_and(|topic| topic.has_partition(partition.index))
    };
    let begun = broker.fetch_sessions.begin(session_request(&request, by_id), by_id, now, fresh_id, exists);
    let plan = begun.map_err(refuse)?;
    let network = &broker.config.network;
    let bytes_max = usize::try_from(request.max_bytes).unwrap_or_default().min(network.fetch_max_bytes);
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or_default().min(bytes_max);
    // Half, so that the connection of a waiting fetch never counts as idle.
    let wait_ms_max = network.connections_max_idle_ms / 2;
    let wait_ms = u64::try_from(request.max_wait_ms).unwrap_or_default().min(wait_ms_max);
    let patience = Patience { until: Instant::now() + Duration::from_millis(wait_ms), bytes_min };
    let limits = Limits { bytes_max };
    Ok((Order { plan, limits, patience, isolation_level: request.isolation_level }, elements))
}

fn refuse(call: Call, code: ErrorCode) -> Outcome {
    respond(call, &FetchResponse { error_code: code.0, ..Default::default() })
}

/// Reads until there is enough, something urgent, or no time left. A waiting fetch holds memory for its plan only.
async fn read_patiently(
    broker: &Arc<Broker>,
    context: &RequestContext,
    plan: &Plan,
    limits: Limits,
    patience: Patience,
    charge: &mut Charge,
    place: Place<'_>,
) -> Pass {
    let enough = |pass: &Pass| pass.urgent || plan.len() == 0 || pass.bytes >= patience.bytes_min;
    let read = async |waiter: Option<&Arc<Waiter>>| {
        // In a box, so that a fetch that waits keeps no room for what reading takes.
        Box::pin(place.in_turn(read_all(broker, context, plan, limits, waiter))).await
    };
    let mut pass = read(None).await;
    if pass.is_short && pass.bytes == 0 {
        // Without a pause its client would ask again at once.
        sleep(SHORTAGE_WAIT).await;
        return pass;
    }
    if enough(&pass) {
        return pass;
    }
    let parked = context.connection.park_fetch(&broker.parked_fetches);
    if matches!(place, Place::Here) {
        let bytes = waiting_bytes(context, plan, parked.is_only);
        charge.resize(bytes);
        if bytes >= PARKED_BYTES && !broker.budgets.requests.has_room_to_wait() {
            // Its client asks again after this pause, and meanwhile holds nothing of the memory that others wait for.
            sleep_until(patience.until.min(Instant::now() + SHORTAGE_WAIT)).await;
            return pass;
        }
    }
    loop {
        // A new waiter each time: its partitions see that entries of the one before are dead.
        let waiter = Waiter::new(context.source());
        pass = read(Some(&waiter)).await;
        if enough(&pass) || Instant::now() >= patience.until {
            return pass;
        }
        // Too few records are dropped: their memory would be held until there are enough.
        let nothing = (pass.bytes == 0).then_some(pass);
        if !is_woken(broker, &waiter, patience.until, place).await {
            return match nothing {
                // No waker came, so there are no new records since that pass.
                Some(pass) => pass,
                None => read(None).await,
            };
        }
        if nothing.is_none() {
            sleep(pause(patience.until.saturating_duration_since(Instant::now()))).await;
        }
    }
}

/// Pause of a fetch that was woken and found too few bytes, as a part of the time that it may still wait: each pass reads
/// everything again, and records may come one by one. The answer is late by this at most.
fn pause(rest: Duration) -> Duration {
    (rest / PAUSE_DIVISOR).min(PAUSE_MAX)
}

/// Waits until there is more to read. False at `until`, or when others wait for memory: an early answer is always allowed,
/// and the client asks again.
async fn is_woken(broker: &Broker, waiter: &Waiter, until: Instant, place: Place<'_>) -> bool {
    loop {
        let turn_ends = until.min(Instant::now() + place.patience());
        if timeout_at(turn_ends, waiter.woken()).await.is_ok() {
            // One wake may be for several fetches of a connection, whose turn may be over.
            turns::give_way().await;
            return true;
        }
        if turn_ends == until || place.is_memory_wanted(broker) {
            return false;
        }
    }
}

/// Memory that a fetch holds while it waits. For the only fetch of a connection, `PARKED_BYTES` counts as memory of the
/// connection, whose number is bounded: ten thousand idle consumers take none of the memory of requests.
fn waiting_bytes(context: &RequestContext, plan: &Plan, is_only: bool) -> usize {
    let mut bytes = context.client_id.len() + plan.len() * (size_of::<Wanted>() + size_of::<Answer>());
    if !is_only {
        bytes += PARKED_BYTES;
    }
    let mut last: Option<&Arc<str>> = None;
    for wanted in plan.wanted() {
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

fn answer(broker: &Broker, call: Call, plan: Plan, pass: Pass, isolation_level: i8) -> Outcome {
    let told: Vec<Told> = pass.answers.iter().map(told).collect();
    let mut responses: Vec<FetchableTopicResponse<'_>> = Vec::new();
    let mut external: Vec<Vec<Part>> = Vec::new();
    for (wanted, answer) in plan.wanted().zip(pass.answers) {
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
    let outcome = respond_spliced(call, &response, external);
    drop(response);
    plan.finish(&told);
    outcome
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

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F: Future>(_: fn(Job) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_fetch_that_waits_is_charged_with_what_it_takes() {
        // Its entry in the connection's pipeline, and its waiter.
        const BESIDE_BYTES: usize = 512;
        let bytes = size(handle) + BESIDE_BYTES;
        assert!((PARKED_BYTES / 4..=PARKED_BYTES).contains(&bytes), "{bytes}");
    }
}
