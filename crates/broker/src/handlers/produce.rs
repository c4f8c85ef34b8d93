//! Produce (key 0), versions 3 to 13; 0 to 2 are advertised as Kafka does, for clients that look for them, and
//! close the connection (KIP-896).
//!
//! Appends each partition's batch and answers with its offset, once it is as durable as the topic's level asks, or with
//! `REQUEST_TIMED_OUT` if that takes longer than the client will wait: the batch stays then, and may still become durable.
//! Exactly one batch of format 2 for each partition. acks=0 gets no response, and waits for nothing. Topics are named up
//! to version 12 and identified from 13 on (KIP-516). A duplicate of one of the producer's last five batches answers with
//! the first one's offset. A queue of this machine that is mounted for it takes records, too: what came of them its own
//! thread tells, and they are awaited also with acks=0. zstd is refused before version 7, in which clients say that they
//! know it (KIP-110). Leaves out: transactional batches, which are refused with `INVALID_TXN_STATE`, because no producer
//! can have begun a transaction here.

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
/// First version that says who leads (KIP-951).
const LEADER_SINCE: i16 = 10;

/// The smallest batch that may keep its frame's memory: a good part of what a connection reads at once.
const DETACHED_BYTES_MIN: usize = 256 * 1024;

/// Where one partition's batch lies in the frame, and where it goes.
struct Target {
    index: i32,
    replica: Result<Replica, ErrorCode>,
    /// Bytes of the batch in the frame.
    records: Range<usize>,
    facts: Facts,
}

/// What the header of a batch says that is looked at here. Anything that is no batch says nothing, and is refused where it
/// is checked.
#[derive(Clone, Copy, Default)]
struct Facts {
    codec: Option<Compression>,
    /// It belongs to a transaction, which it may say though its request names none. One without a producer, or that only a
    /// broker writes, is wrong in any case, and is refused where batches are checked.
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
    /// What is to be done with its records: those that are refused unseen count for nothing.
    fn work(&self) -> RecordsWork {
        let (Ok(replica), Some(codec)) = (&self.replica, self.facts.codec) else {
            return RecordsWork::default();
        };
        // To check it, or since the topic has another codec.
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

/// What all batches of a request have in common.
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
    /// What appending has to do with the records of all batches.
    fn work(&self) -> RecordsWork {
        self.topics.iter().flat_map(|topic| &topic.partitions).map(Target::work).sum()
    }
}

/// A partition's answer, and the batch whose fate it waits for.
struct Answer {
    response: PartitionProduceResponse<'static>,
    staged: Option<Staged>,
}

impl Answer {
    fn refused(index: i32, code: ErrorCode, message: Option<String>) -> Self {
        Self { response: refused(index, code, message), staged: None }
    }

    /// Blames these records of the batch. Java's producer fails the others with another message, and all with the
    /// batch's where none is blamed.
    fn blaming(mut self, records: Vec<BlamedRecord>) -> Self {
        let errors = records.into_iter().map(|BlamedRecord { index, reason }| BatchIndexAndErrorMessage {
            batch_index: index,
            batch_index_error_message: Some(reason.into()),
        });
        self.response.record_errors = errors.collect();
        self
    }

    /// Keeps so many blamed records at most, and no memory of the others; answers how many there are.
    fn blame_no_more_than(&mut self, count_max: usize) -> usize {
        let blamed = &mut self.response.record_errors;
        if blamed.len() > count_max {
            blamed.truncate(count_max);
            blamed.shrink_to_fit();
        }
        blamed.len()
    }

    /// Takes back what was answered before it was known what comes of the batch.
    fn refuse(&mut self, code: ErrorCode, message: &str) {
        *self = Self::refused(self.response.index, code, Some(message.to_owned()));
    }

    /// Answers what has come of the batch.
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
    /// It has more elements than there is room for.
    TooMuch,
    Refused(Outcome),
}

/// Reads the request, if it has no more elements than these; answers how many it has.
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

/// What is held of the write cache where a request goes. One with more elements than these, whose reading would take too long
/// here, may go anywhere.
pub(crate) fn places(broker: &Broker, call: Call, frame: &[u8], elements_max: usize) -> Places {
    let mut places = Places::default();
    let request = match decode_within::<ProduceRequest<'_>>(call, frame, elements_max) {
        Ok((request, _)) => request,
        Err(DecodeError::TooManyObjects) => {
            (0..broker.logs.dir_count()).for_each(|dir| add_dir(broker, dir, &mut places));
            return places;
        }
        // It is let in to be refused.
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

/// Takes in what a log dir holds, if there are several. Whoever would append to one that takes nothing is refused.
fn add_dir(broker: &Broker, dir: usize, places: &mut Places) {
    if broker.logs.dir_count() > 1
        && let Some(bytes) = broker.logs.dir_unsettled_bytes(dir)
    {
        places.dir_bytes = places.dir_bytes.max(bytes);
        places.hangs |= broker.logs.dir_hangs(dir);
    }
}

/// Serves a request with many partitions. Its connection starts nothing that came after it meanwhile, so that what is
/// appended keeps its place. It gives way between batches, and gives its turn back before it waits for the disk.
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
                // The thread's other requests go on elsewhere.
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

/// A request whose batches get their places, after those of all that came before it.
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
            // To write so much is a part of the work.
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

/// When a request is answered.
struct Ack {
    call: Call,
    acks: Option<Acks>,
    deadlines: Deadlines,
}

impl Ack {
    /// Waits until what was appended is as durable as it has to be, and answers the request.
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

/// Appends that may not be written yet. They are when this is dropped, so that what was staged does not wait for the next
/// produce request if this one's connection ends.
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

/// The batches of a request that have no places yet, in its order, and the answers to those that have.
struct Appending {
    version: i16,
    acks: Option<Acks>,
    transactional: bool,
    options: AppendOptions,
    deadlines: Deadlines,
    topics: vec::IntoIter<TopicTargets>,
    /// Of the topic whose answers are the last.
    targets: vec::IntoIter<Target>,
    batches: Batches,
    /// Records that may still be named as blamed.
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

    /// Where the next batch lies and goes.
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

    /// Gives a batch its place.
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

/// Has brought near what appending to one of the next targets needs.
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
    /// The bytes of a range that lies behind all that were taken before, as the ranges of a decoded request do; any
    /// other is empty.
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

    /// A batch that does not keep the whole frame's memory, if it is a small part of that or of what the frame may have been
    /// read into with others: it may outlive the request.
    fn detached(&self, batch: BytesMut) -> BytesMut {
        let frame_bytes = self.taken + self.rest.len();
        let is_small = batch.len() < DETACHED_BYTES_MIN || batch.len() < frame_bytes / 2;
        if is_small { BytesMut::from(&batch[..]) } else { batch }
    }
}

/// Writes what the journal does not, after all of the request is staged.
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

/// Waits until every batch is as durable as it has to be, or can never be, or the client waits no longer.
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

/// Says who tries to write to a topic of the server's own.
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
        // The server's own topics take records from nobody else, whatever a client says of itself.
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
        // Told to people also where the client names the topic by its id only; its answer has no name then.
        name: topic.map_or_else(|_| data.name.to_string(), |topic| topic.name.to_string()),
        id: data.topic_id,
        partitions: data.partition_data.iter().map(|data| target(data.index, data.records)).collect(),
    }
}

/// Where `part`, which was decoded out of `frame`, lies in it.
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

/// Logs an error that is the server's own trouble.
fn complain(broker: &Broker, topic: &str, partition: i32, error: &AppendError) {
    if error.kind() == ErrorKind::Retry {
        // It may be for want of room, of which retention may make some.
        broker.shortages.iter().for_each(Notify::notify_one);
    }
    if error::is_our_trouble(error::append_error(error)) {
        STORAGE_TROUBLE.warn(|suppressed| {
            tracing::error!(topic, partition, suppressed, %error, "append failed");
        });
    }
}

/// The answer to a batch that was taken, whose place may not be known yet.
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
