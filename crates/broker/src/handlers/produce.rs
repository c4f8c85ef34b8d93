//! Produce (key 0), versions 3 to 13; 0 to 2 are advertised as Kafka does, for clients that look for them, and
//! close the connection (KIP-896).
//!
//! Appends each partition's batch and answers with its offset, once it is as durable as the topic's level asks, or with
//! `REQUEST_TIMED_OUT` if that takes longer than the client will wait: the batch stays then, and may still become durable.
//! Exactly one batch of format 2 for each partition. acks=0 gets no response, and waits for nothing. Topics are named up
//! to version 12 and identified from 13 on (KIP-516). A duplicate of one of the producer's last five batches answers with
//! the first one's offset. A queue of this machine that is mounted for producing takes records, too: its own thread tells
//! the outcome, which is awaited also with acks=0. zstd is refused before version 7, the first whose clients must know it
//! (KIP-110). Leaves out: transactional batches, which are refused with `INVALID_TXN_STATE`, because no producer can have
//! begun a transaction here.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use bytes::{Buf as _, BytesMut};
use riverrun_log::{AppendError, AppendOptions, Appended};
use riverrun_protocol::produce_request::TopicProduceData;
use riverrun_protocol::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use riverrun_protocol::{DecodeError, ErrorCode, ProduceRequest, ProduceResponse, Records};
use riverrun_records::{BatchHeader, Compression};
use riverrun_types::limits::REFUSED_RECORDS_NAMED_MAX;
use riverrun_types::{Acks, ErrorKind, PartitionId, TopicId};
use tokio::sync::Notify;
use tokio::task::block_in_place;

use super::bounds::Bound;
use crate::aside::{self, Stopping};
use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error::{self, BlamedRecord};
use crate::flow::budget::Charge;
use crate::flow::inflate_offload::{RecordsWork, Slice};
use crate::flow::produce_backpressure::Places;
use crate::groups::NotOfGroups;
use crate::handlers::router::{Call, Job, Timed, decode_within, respond, stopping, too_much};
use crate::log_limit::{INTERNAL_WRITES, STORAGE_TROUBLE};
use crate::metadata::ClusterImage;
use crate::net::dispatch::{self, Response};
use crate::replicas::{Awaiting, Deadlines, Fate, NotStaged, Replica, Staged};
use crate::response::Outcome;
use crate::topic_names::{OFFSETS_TOPIC, is_internal};

/// First version that identifies topics instead of naming them.
const TOPIC_IDS_SINCE: i16 = 13;
/// First version that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;
/// First version that names the leader (KIP-951).
const LEADER_SINCE: i16 = 10;

/// The smallest batch that may keep its frame's memory: a good part of one read of a connection.
const DETACHED_BYTES_MIN: usize = 256 * 1024;

/// One partition's batch: its place in the frame, and the replica that it is for.
struct Target {
    index: i32,
    replica: Result<Replica, ErrorCode>,
    /// Bytes of the batch in the frame.
    records: Range<usize>,
    facts: Facts,
}

/// Fields of a batch's header that decide before the batch is checked. Bytes that are no batch have the defaults; the check
/// refuses them.
#[derive(Clone, Copy, Default)]
struct Facts {
    codec: Option<Compression>,
    /// The batch belongs to a transaction, though the request may name none. A transactional batch without a producer, or a
    /// control batch, which only a broker writes, is wrong in any case: the check refuses it.
    is_transactional: bool,
}

impl Facts {
    fn of(batch: &[u8]) -> Self {
        let Ok(header) = BatchHeader::parse(batch) else { return Self::default() };
        Self {
            codec: header.try_compression().ok(),
            is_transactional: header.is_transactional() && header.has_producer_id() && !header.is_control(),
        }
    }
}

impl Target {
    /// Work on the records of this batch: none if it is refused unseen.
    fn work(&self) -> RecordsWork {
        let (Ok(replica), Some(codec)) = (&self.replica, self.facts.codec) else {
            return RecordsWork::default();
        };
        // Inflated for the check, or compressed by the topic's codec.
        let is_coded = codec != Compression::None || replica.recodes(codec);
        let bytes = self.records.len();
        if is_coded {
            RecordsWork { coded_bytes: bytes, plain_bytes: 0 }
        } else {
            RecordsWork { coded_bytes: 0, plain_bytes: bytes }
        }
    }
}

struct TopicTargets {
    name: String,
    id: TopicId,
    partitions: Vec<Target>,
}

/// Terms of all batches of a request.
#[derive(Clone, Copy)]
struct Terms {
    version: i16,
    options: AppendOptions,
    deadlines: Deadlines,
}

/// The request without its borrow of the frame, which is patched in place next.
pub(crate) struct Plan {
    acks: Option<Acks>,
    deadlines: Deadlines,
    transactional: bool,
    topics: Vec<TopicTargets>,
}

impl Plan {
    /// Work on the records of all batches.
    fn work(&self) -> RecordsWork {
        self.topics.iter().flat_map(|topic| &topic.partitions).map(Target::work).sum()
    }
}

/// A partition's answer, and the batch whose fate it awaits.
struct Answer {
    response: PartitionProduceResponse<'static>,
    staged: Option<Staged>,
}

impl Answer {
    fn refused(index: i32, code: ErrorCode, message: Option<String>) -> Self {
        Self { response: refused(index, code, message), staged: None }
    }

    /// Blames these records of the batch. Java's producer fails the other records with another message; if none is blamed,
    /// all fail with the batch's message.
    fn blaming(mut self, records: Vec<BlamedRecord>) -> Self {
        let errors = records.into_iter().map(|BlamedRecord { index, reason }| BatchIndexAndErrorMessage {
            batch_index: index,
            batch_index_error_message: Some(reason.into()),
        });
        self.response.record_errors = errors.collect();
        self
    }

    /// Keeps at most `count_max` blamed records, and no memory of the others; answers how many are left.
    fn blame_no_more_than(&mut self, count_max: usize) -> usize {
        let blamed = &mut self.response.record_errors;
        if blamed.len() > count_max {
            blamed.truncate(count_max);
            blamed.shrink_to_fit();
        }
        blamed.len()
    }

    /// Takes back the answer that was given before the fate of the batch was known.
    fn refuse(&mut self, code: ErrorCode, message: &str) {
        *self = Self::refused(self.response.index, code, Some(message.to_owned()));
    }

    /// Answers with the fate of the batch.
    fn decide(&mut self, topic: &str, fate: Fate) {
        match fate {
            Fate::Acked => {}
            Fate::AckedAt(appended) => self.response = accepted(self.response.index, &appended),
            Fate::Refused(refused) => self.refuse(refused.code, &refused.message),
            Fate::Lost(reason) => refuse_lost(topic, self, reason),
            Fate::Untold => self.refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER, LOST),
            Fate::NotInTime => self.refuse(ErrorCode::REQUEST_TIMED_OUT, NOT_IN_TIME),
        }
    }
}

struct TopicAnswers {
    name: String,
    id: TopicId,
    partitions: Vec<Answer>,
}

/// Why a request is not begun.
pub(crate) enum NotBegun {
    /// The request has more elements than there is room for.
    TooMuch,
    Refused(Outcome),
}

/// Reads the request if it has at most `elements_max` elements; answers how many it has.
pub(crate) fn begin(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    frame: &[u8],
    elements_max: usize,
) -> Result<(Plan, usize), NotBegun> {
    match decode_within::<ProduceRequest<'_>>(call, frame, elements_max) {
        Ok((request, elements)) => Ok((plan(broker, context, call, &request, frame), elements)),
        Err(DecodeError::TooManyObjects) => Err(NotBegun::TooMuch),
        Err(error) => Err(NotBegun::Refused(Outcome::Close(format!("Produce: {error}")))),
    }
}

/// Bytes that the write cache holds for the partitions and log dirs of a request. One with more than `elements_max`
/// elements, whose reading would take too long here, counts for every log dir.
pub(crate) fn places(broker: &Broker, call: Call, frame: &[u8], elements_max: usize) -> Places {
    let mut places = Places::default();
    let request = match decode_within::<ProduceRequest<'_>>(call, frame, elements_max) {
        Ok((request, _)) => request,
        Err(DecodeError::TooManyObjects) => {
            (0..broker.logs.dir_count()).for_each(|dir| add_dir(broker, dir, &mut places));
            return places;
        }
        // An invalid request is let in: its refusal is the answer.
        Err(_) => return places,
    };
    let image = broker.catalog.cluster();
    let mut dirs = BTreeSet::new();
    for data in &request.topic_data {
        let Some(topic) = topic_key(call, data).find(&image).ok() else { continue };
        for partition in &data.partition_data {
            let id = PartitionId { topic: topic.id, index: partition.index };
            if let Some(open) = broker.partitions.get(id) {
                places.partition_bytes = places.partition_bytes.max(open.log.unsettled_bytes());
                dirs.extend(broker.replicas.log_dir(id));
            }
        }
    }
    for dir in dirs {
        add_dir(broker, dir, &mut places);
    }
    places
}

/// Adds the bytes that a log dir holds, if there are several dirs. A dir that takes nothing holds up no request, but
/// refuses its appends.
fn add_dir(broker: &Broker, dir: usize, places: &mut Places) {
    if broker.logs.dir_count() > 1
        && let Some(bytes) = broker.logs.dir_unsettled_bytes(dir)
    {
        places.dir_bytes = places.dir_bytes.max(bytes);
        places.hangs |= broker.logs.dir_hangs(dir);
    }
}

/// Serves a request with many partitions. Meanwhile its connection starts no later request, so that appends keep their
/// order. It gives way between batches, and gives its turn back before it waits for the disk.
pub(crate) async fn handle_aside(job: Job) -> Outcome {
    let _alone = job.context.connection.begin_aside();
    let aside = job.aside.clone();
    let worked = aside.run(async move {
        let bound = Bound::of(job.call.key);
        let turn = job.aside.turn(job.source()).await;
        let begun = begin(&job.broker, &job.context, job.call, &job.frame, bound.elements_max);
        let (plan, elements) = match begun {
            Ok(begun) => begun,
            Err(NotBegun::TooMuch) => return too_much(job.call.key),
            Err(NotBegun::Refused(refused)) => return refused,
        };
        let _memory = job.aside.charge(job.source(), elements * bound.element_bytes).await;
        let Job { broker, call, frame, charge, .. } = job;
        let ack = Ack { call, acks: plan.acks, deadlines: plan.deadlines };
        let mut appending = Appending::new(broker, call, plan, frame);
        while let Some(target) = appending.next_target() {
            if target.work().may_take_long() {
                // Other tasks of this thread go on elsewhere.
                block_in_place(|| appending.append(target));
            } else {
                appending.append(target);
            }
            aside::give_way().await;
        }
        appending.staged.write();
        drop(turn);
        let outcome = ack.wait(appending.staged).await;
        drop(charge);
        outcome
    });
    worked.await.unwrap_or_else(|Stopping| stopping())
}

/// A request whose batches are appended after those of all earlier requests.
pub(crate) struct Staging {
    appending: Appending,
    work: RecordsWork,
    ack: Ack,
    charge: Charge,
    timed: Timed,
}

impl Staging {
    pub(crate) fn new(job: Job, plan: Plan, timed: Timed) -> Self {
        let Job { broker, call, frame, charge, .. } = job;
        let ack = Ack { call, acks: plan.acks, deadlines: plan.deadlines };
        let work = plan.work();
        Self { appending: Appending::new(broker, call, plan, frame), work, ack, charge, timed }
    }
}

impl dispatch::Records for Staging {
    fn work(&self) -> RecordsWork {
        self.work
    }

    fn append(&mut self, slice: Slice) -> bool {
        while let Some(target) = self.appending.next_target() {
            self.appending.append(target);
            if slice.is_over() {
                return false;
            }
        }
        if !self.work.is_little() {
            // Writing so much is a part of the work.
            self.appending.staged.write();
        }
        true
    }

    fn finish(self: Box<Self>) -> Response {
        let Self { appending, ack, charge, timed, .. } = *self;
        timed.run(async move {
            let outcome = ack.wait(appending.staged).await;
            drop(charge);
            outcome
        })
    }
}

/// The terms on which a request is answered.
struct Ack {
    call: Call,
    acks: Option<Acks>,
    deadlines: Deadlines,
}

impl Ack {
    /// Waits until the appends are as durable as the level asks, and answers the request.
    async fn wait(self, staged: StagedTopics) -> Outcome {
        let mut topics = staged.written();
        if let Some(acks) = self.acks {
            await_all(&mut topics, acks, self.deadlines).await;
        }
        if self.acks == Some(Acks::None) {
            return without_response(topics);
        }
        respond(self.call, &ProduceResponse { responses: responses(topics), ..Default::default() })
    }
}

/// Appends that may not be written yet. Dropping this writes them, so that they do not wait for the next produce request
/// if the connection ends.
struct StagedTopics {
    broker: Arc<Broker>,
    topics: Vec<TopicAnswers>,
    is_written: bool,
}

impl StagedTopics {
    fn write(&mut self) {
        if !std::mem::replace(&mut self.is_written, true) {
            write_all(&self.broker, &mut self.topics);
        }
    }

    fn written(mut self) -> Vec<TopicAnswers> {
        self.write();
        std::mem::take(&mut self.topics)
    }
}

impl Drop for StagedTopics {
    fn drop(&mut self) {
        self.write();
    }
}

/// The batches of a request that are not appended yet, in its order, and the answers to the others.
struct Appending {
    version: i16,
    acks: Option<Acks>,
    transactional: bool,
    options: AppendOptions,
    deadlines: Deadlines,
    topics: vec::IntoIter<TopicTargets>,
    /// Batches of the last topic in `staged`.
    targets: vec::IntoIter<Target>,
    batches: Batches,
    /// Number of records that may still be blamed.
    blamed_max: usize,
    staged: StagedTopics,
}

impl Appending {
    fn new(broker: Arc<Broker>, call: Call, plan: Plan, frame: BytesMut) -> Self {
        let Plan { acks, deadlines, transactional, topics } = plan;
        Self {
            version: call.version,
            acks,
            transactional,
            options: broker.append_options(),
            deadlines,
            staged: StagedTopics { broker, topics: Vec::with_capacity(topics.len()), is_written: false },
            topics: topics.into_iter(),
            targets: Vec::new().into_iter(),
            batches: Batches { rest: frame, taken: 0 },
            blamed_max: REFUSED_RECORDS_NAMED_MAX,
        }
    }

    /// The next batch and its replica.
    fn next_target(&mut self) -> Option<Target> {
        loop {
            prefetch_next(self.targets.as_slice());
            if let Some(target) = self.targets.next() {
                return Some(target);
            }
            let TopicTargets { name, id, partitions } = self.topics.next()?;
            let answers = Vec::with_capacity(partitions.len());
            self.staged.topics.push(TopicAnswers { name, id, partitions: answers });
            self.targets = partitions.into_iter();
        }
    }

    /// Appends a batch.
    fn append(&mut self, target: Target) {
        let Some(of_topic) = self.staged.topics.last_mut() else { return };
        let mut answer = match (self.acks, self.transactional) {
            (None, _) => Answer::refused(target.index, ErrorCode::INVALID_REQUIRED_ACKS, None),
            (_, true) => {
                Answer::refused(target.index, ErrorCode::INVALID_TXN_STATE, Some(NO_TRANSACTIONS.into()))
            }
            _ => {
                let terms = Terms { version: self.version, options: self.options, deadlines: self.deadlines };
                append(&self.staged.broker, terms, &of_topic.name, target, &mut self.batches)
            }
        };
        self.blamed_max -= answer.blame_no_more_than(self.blamed_max);
        of_topic.partitions.push(answer);
    }
}

/// Prefetches the memory that appending to one of the next targets needs.
fn prefetch_next(coming: &[Target]) {
    Replica::prefetch_next(|index| coming.get(index)?.replica.as_ref().ok());
}

/// The frame, cut into batches from its front.
struct Batches {
    rest: BytesMut,
    /// Bytes of the frame before `rest`.
    taken: usize,
}

impl Batches {
    /// The bytes of a range that lies behind all earlier ones, as the ranges of a decoded request do; none for any other
    /// range.
    fn take(&mut self, range: &Range<usize>) -> BytesMut {
        let skipped = range.start.checked_sub(self.taken);
        match skipped {
            Some(skipped) if skipped + range.len() <= self.rest.len() => {
                self.rest.advance(skipped);
                self.taken = range.end;
                self.rest.split_to(range.len())
            }
            _ => BytesMut::new(),
        }
    }

    /// Copies a batch that is a small part of its frame, or of the read that brought the frame: the batch may outlive the
    /// request, and would keep that memory.
    fn detached(&self, batch: BytesMut) -> BytesMut {
        let frame_bytes = self.taken + self.rest.len();
        let is_small = batch.len() < DETACHED_BYTES_MIN || batch.len() < frame_bytes / 2;
        if is_small { BytesMut::from(&batch[..]) } else { batch }
    }
}

/// Writes the staged batches that do not go to the journal, after the whole request is staged.
fn write_all(broker: &Broker, topics: &mut [TopicAnswers]) {
    for topic in topics {
        for answer in &mut topic.partitions {
            let Some(staged) = &answer.staged else { continue };
            if let Err(failed) = staged.write() {
                let (partition, error) = (answer.response.index, AppendError::Storage(failed));
                let code = error::append_error(&error);
                complain(broker, &topic.name, partition, &error);
                answer.refuse(code, &error.to_string());
            }
        }
    }
}

/// Waits until every batch is as durable as the level asks, or can never be, or the client waits no longer.
async fn await_all(topics: &mut [TopicAnswers], acks: Acks, deadlines: Deadlines) {
    let mut awaiting = Awaiting::new(acks);
    for TopicAnswers { name, partitions, .. } in topics {
        for answer in partitions {
            let Some(staged) = answer.staged.take() else { continue };
            if let Some(((topic, answer), fate)) = awaiting.add(staged, (&*name, answer)) {
                answer.decide(topic, fate);
            }
        }
    }
    awaiting.decided(deadlines, |(topic, answer), fate| answer.decide(topic, fate)).await;
}

fn refuse_lost(topic: &str, answer: &mut Answer, reason: Option<String>) {
    let reason = reason.map_or_else(|| LOST.to_owned(), |reason| format!("{LOST}: {reason}"));
    STORAGE_TROUBLE.warn(|suppressed| {
        tracing::error!(
            topic,
            partition = answer.response.index,
            suppressed,
            reason,
            "records are not acked"
        );
    });
    answer.refuse(ErrorCode::KAFKA_STORAGE_ERROR, &reason);
}

fn responses(topics: Vec<TopicAnswers>) -> Vec<TopicProduceResponse<'static>> {
    let response = |topic: TopicAnswers| TopicProduceResponse {
        name: topic.name.into(),
        topic_id: topic.id,
        partition_responses: topic.partitions.into_iter().map(|answer| answer.response).collect(),
    };
    topics.into_iter().map(response).collect()
}

const NOT_IN_TIME: &str = "the records were not durable within the request's timeout; they may still become so; the server's \
                           /health and log say what producers wait for";
const LOST: &str = "the records could not be made durable";

const NO_TRANSACTIONS: &str = "transactions are not supported by this server";

/// With acks=0 there is nothing to send; a refused batch ends the connection, which is the only sign that such a
/// client understands.
fn without_response(topics: Vec<TopicAnswers>) -> Outcome {
    let mut codes =
        topics.into_iter().flat_map(|topic| topic.partitions).map(|answer| answer.response.error_code);
    match codes.find(|code| *code != ErrorCode::NONE.0) {
        None => Outcome::Silent,
        Some(code) => Outcome::Close(format!("a batch with acks=0 was refused: {}", ErrorCode(code))),
    }
}

fn plan(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    request: &ProduceRequest<'_>,
    frame: &[u8],
) -> Plan {
    let image = broker.catalog.cluster();
    let topics = request.topic_data.iter();
    let topics = topics.map(|topic| plan_topic(broker, context, call, &image, topic, frame)).collect();
    let acks = match request.acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    };
    let patience = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or_default());
    let deadlines = Deadlines::new(patience);
    Plan { acks, deadlines, transactional: request.transactional_id.is_some(), topics }
}

/// Logs the address that tries to write to a topic of the server's own.
fn tell_internal(context: &RequestContext, topic: &str) {
    let peer = context.connection.peer;
    INTERNAL_WRITES.warn_of(peer.ip(), |suppressed| {
        tracing::warn!(%peer, topic, suppressed, "records for an internal topic are refused");
    });
}

fn topic_key<'a>(call: Call, data: &'a TopicProduceData<'_>) -> TopicKey<'a> {
    match call.version {
        TOPIC_IDS_SINCE.. => TopicKey::Id(data.topic_id),
        _ => TopicKey::Name(&data.name),
    }
}

fn plan_topic(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    image: &ClusterImage,
    data: &TopicProduceData<'_>,
    frame: &[u8],
) -> TopicTargets {
    let topic = topic_key(call, data).find(image).and_then(|topic| {
        if !context.authorize(Operation::Write, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        // The server's own topics take records from no client, whatever name it gives itself.
        let is_allowed = &*topic.name == OFFSETS_TOPIC && broker.config.groups.offsets_topic_client_writes;
        if is_internal(&topic.name) && !is_allowed {
            tell_internal(context, &topic.name);
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        Ok(topic)
    });
    let target = |index: i32, records: Option<Records<'_>>| {
        let batch = records.and_then(|records| records.as_bytes()).unwrap_or_default();
        Target {
            index,
            replica: topic.and_then(|topic| broker.replicas.find(topic, index)),
            records: range_in(frame, batch),
            facts: Facts::of(batch),
        }
    };
    if let Ok(topic) = topic {
        broker.partitions.prefetch(topic.id, data.partition_data.iter().map(|data| data.index));
    }
    TopicTargets {
        // For the log, also where the client names the topic by id only; the answer has no name then.
        name: topic.map_or_else(|_| data.name.to_string(), |topic| topic.name.to_string()),
        id: data.topic_id,
        partitions: data.partition_data.iter().map(|data| target(data.index, data.records)).collect(),
    }
}

/// The range of `part`, which was decoded out of `frame`, in it.
fn range_in(frame: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(frame.as_ptr() as usize);
    if part.is_empty() || start + part.len() > frame.len() { 0..0 } else { start..start + part.len() }
}

fn append(broker: &Broker, terms: Terms, topic: &str, target: Target, batches: &mut Batches) -> Answer {
    let Terms { version, options, deadlines } = terms;
    let replica = match target.replica {
        Ok(replica) => replica,
        Err(code) => return Answer::refused(target.index, code, None),
    };
    let batch = batches.take(&target.records);
    if version < ZSTD_SINCE && target.facts.codec == Some(Compression::Zstd) {
        return Answer::refused(target.index, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, None);
    }
    if target.facts.is_transactional {
        return Answer::refused(target.index, ErrorCode::INVALID_TXN_STATE, Some(NO_TRANSACTIONS.into()));
    }
    if topic == OFFSETS_TOPIC
        && let Err(error) = broker.groups.check_written(target.index, &batch)
    {
        let refused = Answer::refused(target.index, ErrorCode::INVALID_RECORD, Some(error.to_string()));
        return match error {
            NotOfGroups::Records(records) => refused.blaming(records),
            NotOfGroups::Batch(_) => refused,
        };
    }
    let batch = if replica.keeps_batches() { batches.detached(batch) } else { batch };
    let leader_epoch = replica.leader_epoch();
    match replica.append(batch, options, deadlines.turn) {
        Ok(staged) => Answer { response: taken(target.index, &staged), staged: Some(staged) },
        Err(NotStaged { code, message, records, error }) => {
            let mut answer = Answer::refused(target.index, code, Some(message)).blaming(records);
            let Some(error) = error else { return answer };
            complain(broker, topic, target.index, &error);
            if code == ErrorCode::NOT_LEADER_OR_FOLLOWER && version >= LEADER_SINCE {
                answer.response.current_leader =
                    LeaderIdAndEpoch { leader_id: broker.node_id().0, leader_epoch: leader_epoch.0 };
            }
            answer
        }
    }
}

/// Logs an error if it is the server's own trouble.
fn complain(broker: &Broker, topic: &str, partition: i32, error: &AppendError) {
    if error.kind() == ErrorKind::Retry {
        // Space may be short, and retention may free some.
        broker.shortages.iter().for_each(Notify::notify_one);
    }
    if error::is_our_trouble(error::append_error(error)) {
        STORAGE_TROUBLE.warn(|suppressed| {
            tracing::error!(topic, partition, suppressed, %error, "append failed");
        });
    }
}

/// The answer to a batch that was taken; its offset may not be known yet.
fn taken(index: i32, staged: &Staged) -> PartitionProduceResponse<'static> {
    let unknown = || PartitionProduceResponse { index, ..Default::default() };
    staged.appended().map_or_else(unknown, |appended| accepted(index, appended))
}

fn accepted(index: i32, appended: &Appended) -> PartitionProduceResponse<'static> {
    PartitionProduceResponse {
        index,
        base_offset: appended.base_offset.0,
        log_append_time_ms: appended.log_append_time.map_or(-1, |time| time.0),
        log_start_offset: appended.log_start_offset.0,
        ..Default::default()
    }
}

fn refused(index: i32, code: ErrorCode, message: Option<String>) -> PartitionProduceResponse<'static> {
    PartitionProduceResponse {
        index,
        error_code: code.0,
        base_offset: -1,
        error_message: message.map(Into::into),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
