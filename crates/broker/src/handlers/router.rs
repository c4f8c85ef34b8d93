//! Frames to handlers, and responses back to bytes.
//!
//! Owns the one table of API key to handler, and the answers to frames that are no request: an unknown key, a version
//! outside of the advertised range, a body that does not decode. Those close the connection, because a client cannot read a
//! response in a version that it did not ask for; `ApiVersions` alone answers in version 0 with `UNSUPPORTED_VERSION`, by
//! which a newer client finds out (KIP-511).
//!
//! Decides where a request is worked on: on the thread that read it while it has little to do, else [aside](crate::aside).
//! The first decoding stops at the bound of a small request. A request with more elements, or with a large answer, is
//! decoded again, aside and in its turn, within [its own bound](Bound), and its memory is charged.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use bytes::BytesMut;
use riverrun_protocol::{
    ApiKey, DecodeError, Decoder, Encode, FetchRequest, JoinGroupRequest, ProduceRequest, Request,
    RequestHeader, SyncGroupRequest, encode_response,
};

use crate::answers;
use crate::aside::{Aside, Stopping};
use crate::broker::Broker;
use crate::context::{ConnectionInfo, RequestContext};
use crate::flow::budget::Charge;
use crate::flow::produce_backpressure::Places;
use crate::handlers::bounds::{Bound, Place, SMALL_ANSWER_BYTES_MAX, SMALL_BYTES_MAX, SMALL_ELEMENTS_MAX};
use crate::handlers::{self, produce};
use crate::net::dispatch::{Dispatch, Response, Staged};
use crate::response::{Outcome, Part, ResponseFrame};

/// Hands the frames of all connections to the handlers of one server.
#[derive(Debug)]
pub(crate) struct Router {
    broker: Arc<Broker>,
    aside: Aside,
}

/// Fields of the header that the response needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// Position in the frame at which the body begins.
    pub(crate) body_at: usize,
}

impl Router {
    pub(crate) fn new(broker: Arc<Broker>, aside: Aside) -> Self {
        Self { broker, aside }
    }
}

impl Dispatch for Router {
    fn expected_bytes(&self, api_key: Option<i16>, frame_bytes: usize) -> Option<usize> {
        answers::expected_bytes(api_key, frame_bytes)
    }

    fn refuses(&self, beginning: &[u8], missing: usize) -> Option<String> {
        refusal(beginning, missing)
    }

    fn places(&self, frame: &[u8]) -> Places {
        match read_header(frame) {
            Ok(Ok((call, _))) => produce::places(&self.broker, call, frame, SMALL_ELEMENTS_MAX),
            // An invalid request is let in: its refusal is the answer.
            _ => Places::default(),
        }
    }

    fn stage(
        &self,
        context: &mut Context<'_>,
        connection: &Arc<ConnectionInfo>,
        frame: BytesMut,
        charge: Charge,
    ) -> Staged {
        let (call, client_id) = match read_header(&frame) {
            Ok(Ok(read)) => read,
            Ok(Err(outcome)) => return Staged::Done(outcome),
            Err(error) => return Staged::Done(Outcome::Close(error.to_string())),
        };
        let client_id = Arc::from(client_id.unwrap_or_default());
        let job = Job {
            broker: Arc::clone(&self.broker),
            aside: self.aside.clone(),
            context: RequestContext { connection: Arc::clone(connection), client_id },
            call,
            frame,
            charge,
        };
        let timed = Timed::begin(&job);
        // Boxed by kind: the hot requests do not pay for the size of the rare ones' futures.
        let response = match call.key {
            ApiKey::Produce => {
                match produce::begin(&job.broker, &job.context, call, &job.frame, SMALL_ELEMENTS_MAX) {
                    Ok((plan, _)) => {
                        return Staged::Records(Box::new(produce::Staging::new(job, plan, timed)));
                    }
                    Err(produce::NotBegun::Refused(refused)) => return Staged::Done(timed.end(refused)),
                    Err(produce::NotBegun::TooMuch) => timed.run(produce::handle_aside(job)),
                }
            }
            ApiKey::Fetch => timed.run(handlers::fetch::handle(job)),
            ApiKey::JoinGroup => timed.run(handlers::join_group::handle(job)),
            ApiKey::SyncGroup => timed.run(handlers::sync_group::handle(job)),
            _ => timed.run(answer(job)),
        };
        Staged::handled(response, context)
    }
}

/// Measures how long a request takes to be answered.
pub(crate) struct Timed {
    broker: Arc<Broker>,
    key: ApiKey,
    since: Duration,
}

impl Timed {
    fn begin(job: &Job) -> Self {
        let broker = Arc::clone(&job.broker);
        Self { key: job.call.key, since: broker.env.clock.monotonic(), broker }
    }

    fn end(self, outcome: Outcome) -> Outcome {
        let took = self.broker.env.clock.monotonic().saturating_sub(self.since);
        self.broker.metrics.answered(self.key, took);
        outcome
    }

    /// Runs the handler and measures until it has answered.
    pub(crate) fn run(self, answering: impl Future<Output = Outcome> + Send + 'static) -> Response {
        Box::pin(async move {
            let outcome = answering.await;
            self.end(outcome)
        })
    }
}

/// A request with everything that its handler needs, so that it can be worked on anywhere.
pub(crate) struct Job {
    pub(crate) broker: Arc<Broker>,
    pub(crate) aside: Aside,
    pub(crate) context: RequestContext,
    pub(crate) call: Call,
    pub(crate) frame: BytesMut,
    /// The frame's memory, held until the request is answered, or as long as the frame is.
    pub(crate) charge: Charge,
}

impl Job {
    /// The address that the request came from.
    pub(crate) fn source(&self) -> IpAddr {
        self.context.connection.peer.ip()
    }
}

/// The limit that a request is decoded and answered within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// That of a request that is worked on without waiting for others that do much.
    Small,
    /// That of its row in the table of bounds.
    Bounded,
}

/// The request is more than there is room for.
pub(crate) struct TooMuch;

impl Room {
    /// Elements that a request may have.
    fn elements_max(self, key: ApiKey) -> usize {
        let of_key = Bound::of(key).elements_max;
        match self {
            Self::Small => SMALL_ELEMENTS_MAX.min(of_key),
            Self::Bounded => of_key,
        }
    }

    /// Makes room for the decoded request and `more_bytes`: charged where it is bounded, uncounted where it is small.
    pub(crate) async fn enter(
        self,
        job: &Job,
        elements: usize,
        more_bytes: usize,
    ) -> Result<Option<Charge>, TooMuch> {
        match self {
            Self::Small if more_bytes > SMALL_ANSWER_BYTES_MAX => Err(TooMuch),
            Self::Small => Ok(None),
            Self::Bounded => {
                let bytes = elements * Bound::of(job.call.key).element_bytes + more_bytes;
                Ok(Some(job.aside.charge(job.source(), bytes).await))
            }
        }
    }
}

/// A request that is handed to a group, which answers later: nothing of the request is kept for the wait.
pub(crate) trait HandIn {
    /// The wait for the answer.
    type Begun: Send + 'static;

    /// Hands the request in if there is room for it, or refuses it.
    fn begin(
        job: &Job,
        room: Room,
    ) -> impl Future<Output = Result<Result<Self::Begun, Outcome>, TooMuch>> + Send;
}

/// Hands a request in here or aside. Once it is handed in it takes no place aside.
pub(crate) async fn hand_in<H: HandIn>(job: Job) -> Result<(H::Begun, Charge), Outcome> {
    if job.frame.len() <= SMALL_BYTES_MAX
        && let Ok(begun) = H::begin(&job, Room::Small).await
    {
        return begun.map(|begun| (begun, job.charge));
    }
    // No later request of this connection starts before this one is handed in.
    let _alone = job.context.connection.begin_aside();
    let aside = job.aside.clone();
    let worked = aside.run(async move {
        let begun = job.aside.in_turn(job.source(), H::begin(&job, Room::Bounded)).await;
        let begun = begun.unwrap_or_else(|TooMuch| Err(too_much(job.call.key)))?;
        Ok((begun, job.charge))
    });
    worked.await.unwrap_or_else(|Stopping| Err(stopping()))
}

/// Works on a request here or aside, by its bound and its size.
async fn answer(job: Job) -> Outcome {
    let is_small = job.frame.len() <= SMALL_BYTES_MAX;
    let is_here = Bound::of(job.call.key).place == Place::Here;
    if is_here
        && is_small
        && let Ok(outcome) = route(&job, Room::Small).await
    {
        return outcome;
    }
    // No later request of this connection starts before the answer.
    let _alone = job.context.connection.begin_aside();
    let aside = job.aside.clone();
    let worked = aside.run(async move {
        if !is_here
            && is_small
            && let Ok(outcome) = route(&job, Room::Small).await
        {
            return outcome;
        }
        let worked = job.aside.in_turn(job.source(), route(&job, Room::Bounded)).await;
        worked.unwrap_or_else(|TooMuch| too_much(job.call.key))
    });
    worked.await.unwrap_or_else(|Stopping| stopping())
}

/// The end of a connection whose request is beyond its bound.
pub(crate) fn too_much(key: ApiKey) -> Outcome {
    Outcome::Close(Bound::of(key).refusal())
}

/// The end of a connection whose request was not answered before the server stopped.
pub(crate) fn stopping() -> Outcome {
    Outcome::Close("the server stops".to_owned())
}

/// Why a request with this beginning is refused, whatever the `missing` bytes will be.
fn refusal(beginning: &[u8], missing: usize) -> Option<String> {
    match read_header(beginning) {
        Ok(Ok((call, _))) => is_beyond_bound(call, beginning, missing).then(|| Bound::of(call.key).refusal()),
        Ok(Err(Outcome::Close(why))) => Some(why),
        // The header is not complete yet, or has an answer.
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Reads the header: key, version and correlation id, and the client's id.
fn read_header(frame: &[u8]) -> Result<Result<(Call, Option<&str>), Outcome>, DecodeError> {
    let mut decoder = Decoder::new(frame);
    let header = RequestHeader::decode(&mut decoder)?;
    let Some(key) = ApiKey::from_i16(header.api_key) else {
        return Ok(Err(Outcome::Close(format!("unknown API key {}", header.api_key))));
    };
    // Produce is advertised with versions that are not served, and the codec knows a version of InitProducerId that is not.
    let version = header.api_version;
    if !(key.versions().contains(&version) && key.codec_versions().contains(&version)) {
        return Ok(Err(unsupported_version(key, &header)));
    }
    let call = Call {
        key,
        version: header.api_version,
        correlation_id: header.correlation_id,
        body_at: frame.len() - decoder.remaining(),
    };
    Ok(Ok((call, header.client_id)))
}

fn unsupported_version(key: ApiKey, header: &RequestHeader<'_>) -> Outcome {
    if key != ApiKey::ApiVersions {
        return Outcome::Close(format!("{} version {} is not supported", key.name(), header.api_version));
    }
    let call = Call { key, version: 0, correlation_id: header.correlation_id, body_at: 0 };
    respond(call, &handlers::api_versions::unsupported())
}

/// Encodes a response without file ranges.
pub(crate) fn respond(call: Call, response: &impl Encode) -> Outcome {
    respond_spliced(call, response, Vec::new())
}

/// Encodes a response whose record fields are `external`, in the order of the fields.
pub(crate) fn respond_spliced(call: Call, response: &impl Encode, external: Vec<Vec<Part>>) -> Outcome {
    match encode_response(call.key, call.version, call.correlation_id, response) {
        Ok(frame) => Outcome::Respond(ResponseFrame::assemble(frame, external)),
        Err(error) => {
            tracing::error!(api = call.key.name(), version = call.version, %error, "a response cannot be encoded");
            Outcome::Close(format!("no response to {}: {error}", call.key))
        }
    }
}

/// Whether bytes behind a body are passed over. Kafka does not look behind a message, so some clients send such bytes
/// unnoticed; each is listed here, and any other leftover makes a request invalid.
///
/// - librdkafka, asking for all topics in a flexible version of Metadata, leaves three bytes of an array count that it
///   had reserved.
/// - librdkafka 1.0 to 1.3 sends four bytes of zeros behind the empty body of `ApiVersions` version 0, which is its first
///   request: without an answer it cannot connect at all.
fn is_known_leftover(call: Call, leftover: &[u8]) -> bool {
    match (call.key, call.version) {
        (ApiKey::Metadata, _) => leftover.len() == 3,
        (ApiKey::ApiVersions, 0) => leftover == [0; 4],
        _ => false,
    }
}

/// Decodes the body, which must end where the frame ends, if it has at most `elements_max` elements; answers how many it
/// has.
pub(crate) fn decode_within<'a, R: Request<'a>>(
    call: Call,
    frame: &'a [u8],
    elements_max: usize,
) -> Result<(R, usize), DecodeError> {
    let mut decoder = Decoder::bounded(&frame[call.body_at..], elements_max);
    let request = R::decode(&mut decoder, call.version)?;
    let elements = elements_max - decoder.objects_left();
    let leftover = &frame[frame.len() - decoder.remaining()..];
    if !is_known_leftover(call, leftover) {
        decoder.finish()?;
    }
    Ok((request, elements))
}

/// Whether a request with this beginning announces more elements than its bound allows; `missing` bytes are to come.
fn announces_too_many<'a, R: Request<'a>>(call: Call, beginning: &'a [u8], missing: usize) -> bool {
    let body = beginning.get(call.body_at..).unwrap_or_default();
    let mut decoder = Decoder::beginning(body, missing, Bound::of(call.key).elements_max);
    matches!(R::decode(&mut decoder, call.version), Err(DecodeError::TooManyObjects))
}

/// [`announces_too_many`] for the request that this handler takes.
fn announces_too_many_for<'a, 'b, R: Request<'a>, F>(
    _handler: fn(&'b Arc<Broker>, &'b RequestContext, R, i16) -> F,
    call: Call,
    beginning: &'a [u8],
    missing: usize,
) -> bool {
    announces_too_many::<R>(call, beginning, missing)
}

/// [`decode_within`] for as many elements as there is room for.
pub(crate) fn decode_in<'a, R: Request<'a>>(
    job: &'a Job,
    room: Room,
) -> Result<Result<(R, usize), Outcome>, TooMuch> {
    match decode_within(job.call, &job.frame, room.elements_max(job.call.key)) {
        Ok(decoded) => Ok(Ok(decoded)),
        Err(DecodeError::TooManyObjects) => Err(TooMuch),
        Err(error) => Ok(Err(Outcome::Close(format!("{}: {error}", job.call.key)))),
    }
}

/// Builds the table of handlers that take a decoded request and return a response, and the list of its keys. `weighed`
/// marks handlers whose answer to few elements may be large: their `answer_bytes` says how large, about.
macro_rules! handlers {
    ($($key:ident => $handler:ident $(weighed by $answer_bytes:ident)?),* $(,)?) => {
        const ROUTED_KEYS: &[ApiKey] = &[$(ApiKey::$key),*];

        /// Whether a request exceeds its bound by its beginning, which lacks `missing` bytes.
        fn is_beyond_bound(call: Call, beginning: &[u8], missing: usize) -> bool {
            match call.key {
                ApiKey::Produce => announces_too_many::<ProduceRequest<'_>>(call, beginning, missing),
                ApiKey::Fetch => announces_too_many::<FetchRequest<'_>>(call, beginning, missing),
                ApiKey::JoinGroup => announces_too_many::<JoinGroupRequest<'_>>(call, beginning, missing),
                ApiKey::SyncGroup => announces_too_many::<SyncGroupRequest<'_>>(call, beginning, missing),
                $(ApiKey::$key => {
                    announces_too_many_for(handlers::$handler::handle, call, beginning, missing)
                })*
                _ => false,
            }
        }

        /// Works on a request if there is room for it.
        async fn route(job: &Job, room: Room) -> Result<Outcome, TooMuch> {
            let Job { broker, context, call, .. } = job;
            let call = *call;
            match call.key {
                $(ApiKey::$key => {
                    let (request, elements) = match decode_in(job, room)? {
                        Ok(decoded) => decoded,
                        Err(refused) => return Ok(refused),
                    };
                    let answer_bytes = 0 $(+ handlers::$handler::$answer_bytes(broker, &request, call.version))?;
                    let _memory = room.enter(job, elements, answer_bytes).await?;
                    let response = handlers::$handler::handle(broker, context, request, call.version).await;
                    Ok(respond(call, &response))
                },)*
                other => Ok(Outcome::Close(format!("{other} is not supported"))),
            }
        }
    };
}

handlers! {
    AlterConfigs => alter_configs,
    ApiVersions => api_versions,
    ConsumerGroupDescribe => consumer_group_describe weighed by answer_bytes,
    ConsumerGroupHeartbeat => consumer_group_heartbeat weighed by answer_bytes,
    CreateAcls => create_acls,
    CreatePartitions => create_partitions,
    CreateTopics => create_topics weighed by answer_bytes,
    DeleteAcls => delete_acls,
    DeleteGroups => delete_groups,
    DeleteRecords => delete_records,
    DeleteTopics => delete_topics,
    DescribeAcls => describe_acls,
    DescribeCluster => describe_cluster,
    DescribeConfigs => describe_configs weighed by answer_bytes,
    DescribeGroups => describe_groups weighed by answer_bytes,
    DescribeLogDirs => describe_log_dirs weighed by answer_bytes,
    DescribeProducers => describe_producers,
    DescribeTopicPartitions => describe_topic_partitions weighed by answer_bytes,
    ElectLeaders => elect_leaders,
    FindCoordinator => find_coordinator,
    GetTelemetrySubscriptions => get_telemetry_subscriptions,
    Heartbeat => heartbeat,
    IncrementalAlterConfigs => incremental_alter_configs,
    InitProducerId => init_producer_id,
    LeaveGroup => leave_group weighed by answer_bytes,
    ListConfigResources => list_config_resources weighed by answer_bytes,
    ListGroups => list_groups weighed by answer_bytes,
    ListOffsets => list_offsets,
    Metadata => metadata weighed by answer_bytes,
    OffsetCommit => offset_commit,
    OffsetDelete => offset_delete,
    OffsetFetch => offset_fetch weighed by answer_bytes,
    OffsetForLeaderEpoch => offset_for_leader_epoch,
}

/// The requests whose handlers take the frame itself, because they give its memory back before they answer, or keep a
/// part of it.
const FRAME_KEYS: &[ApiKey] = &[ApiKey::Produce, ApiKey::Fetch, ApiKey::JoinGroup, ApiKey::SyncGroup];

/// The requests that this server answers, in the order of their keys.
pub(crate) fn served_keys() -> impl Iterator<Item = ApiKey> {
    let served = |key: &ApiKey| FRAME_KEYS.contains(key) || ROUTED_KEYS.contains(key);
    ApiKey::ALL.iter().copied().filter(served)
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::metadata_request::MetadataRequestTopic;
    use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
    use riverrun_protocol::{ApiVersionsRequest, DescribeClusterRequest, MetadataRequest, encode_request};

    use super::*;

    /// Bytes that librdkafka 2.16 sends behind the header: null topics, two flags and tags, then its leftover.
    const LIBRDKAFKA_ALL_TOPICS: &[u8] = &[0, 0, 0, 0, 1, 0, 0];

    /// Decodes a body with the bound that holds aside.
    fn decode<'a, R: Request<'a>>(call: Call, frame: &'a [u8]) -> Result<R, DecodeError> {
        decode_within(call, frame, Bound::of(call.key).elements_max).map(|(request, _)| request)
    }

    fn call(key: ApiKey, version: i16) -> Call {
        Call { key, version, correlation_id: 1, body_at: 0 }
    }

    #[test]
    fn librdkafka_asks_for_all_topics_with_three_bytes_too_many() {
        let request: MetadataRequest<'_> = decode(call(ApiKey::Metadata, 13), LIBRDKAFKA_ALL_TOPICS).unwrap();
        assert!(request.topics.is_none());
    }

    #[test]
    fn old_librdkafka_asks_for_versions_with_four_zeros_too_many() {
        let asked = |version, leftover: &[u8]| {
            decode::<ApiVersionsRequest<'_>>(call(ApiKey::ApiVersions, version), leftover).map(|_| ())
        };
        assert_eq!(asked(0, &[0; 4]), Ok(()));
        assert_eq!(asked(0, &[0, 0, 0, 1]), Err(DecodeError::TrailingBytes(4)));
        assert_eq!(asked(1, &[0; 4]), Err(DecodeError::TrailingBytes(4)));
    }

    #[test]
    fn any_other_leftover_is_refused() {
        for leftover in [1, 2, 4] {
            let bytes = [&[0; 4][..], &vec![0; leftover]].concat();
            let refused = decode::<MetadataRequest<'_>>(call(ApiKey::Metadata, 13), &bytes);
            assert_eq!(refused.unwrap_err(), DecodeError::TrailingBytes(leftover));
        }
        let refused = decode::<DescribeClusterRequest>(call(ApiKey::DescribeCluster, 0), &[0, 0, 0, 0, 0]);
        assert_eq!(refused.unwrap_err(), DecodeError::TrailingBytes(3));
    }

    /// The refusal of a large request after its first `bytes` bytes.
    fn refused<'a, R: Request<'a>>(request: &R, version: i16, bytes: usize) -> Option<String> {
        let frame = encode_request(request, version, 1, Some("me")).expect("a request");
        let frame = &frame.bytes[4..];
        refusal(&frame[..bytes], frame.len() - bytes)
    }

    #[test]
    fn a_list_beyond_its_bound_is_refused_by_its_count() {
        let names = |count| {
            let topics = vec![MetadataRequestTopic { name: Some("t".into()), ..Default::default() }; count];
            MetadataRequest { topics: Some(topics), ..Default::default() }
        };
        assert_eq!(refused(&names(100_001), 8, 1000), Some(Bound::of(ApiKey::Metadata).refusal()));
        assert_eq!(refused(&names(100_000), 8, 1000), None);
        assert_eq!(refused(&names(100_001), 8, 10), None, "its count has not come");
        let partitions = vec![PartitionProduceData::default(); 250_000];
        let topic = TopicProduceData { name: "t".into(), partition_data: partitions, ..Default::default() };
        let request = ProduceRequest { topic_data: vec![topic], ..Default::default() };
        assert_eq!(refused(&request, 8, 1000), Some(Bound::of(ApiKey::Produce).refusal()));
    }

    #[test]
    fn a_large_request_of_an_unknown_key_is_refused_at_once() {
        let refused = refusal(&[0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff], 1 << 20);
        assert_eq!(refused.as_deref(), Some("unknown API key 32767"));
    }
}
