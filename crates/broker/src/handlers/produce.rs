//! Produce (key 0), versions 3 to 13; 0 to 2 are advertised as Kafka does, for clients that look for them, and
//! close the connection (KIP-896).
//!
//! Appends each partition's batch and answers with its offset. Exactly one batch of format 2 for each partition.
//! acks=0 gets no response. Topics are named up to version 12 and identified from 13 on (KIP-516). A duplicate of
//! one of the producer's last five batches answers with the first one's offset. zstd is refused before version 7, in
//! which clients say that they know it (KIP-110). Leaves out: transactional batches, which are refused with
//! `INVALID_TXN_STATE`, because no producer can have begun a transaction here.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use riverrun_log::{AppendOptions, Appended};
use riverrun_protocol::produce_request::TopicProduceData;
use riverrun_protocol::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use riverrun_protocol::{ErrorCode, ProduceRequest, ProduceResponse, Records};
use riverrun_records::{BatchHeader, Compression};
use riverrun_types::{Acks, TopicId};

use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::log_limit::STORAGE_TROUBLE;
use crate::metadata::{Image, is_internal};
use crate::net::response::Outcome;
use crate::partitions::Partition;
use crate::router::{Call, decode, respond};

/// First version that identifies topics instead of naming them.
const TOPIC_IDS_SINCE: i16 = 13;
/// First version that may carry zstd (KIP-110).
const ZSTD_SINCE: i16 = 7;
/// First version that says who leads (KIP-951).
const LEADER_SINCE: i16 = 10;

/// Where one partition's batch lies in the frame, and where it goes.
struct Target {
    index: i32,
    partition: Result<Arc<Partition>, ErrorCode>,
    /// Bytes of the batch in the frame.
    records: Range<usize>,
}

struct TopicTargets {
    name: String,
    id: TopicId,
    partitions: Vec<Target>,
}

/// The request without its borrow of the frame, which is patched in place next.
struct Plan {
    acks: Option<Acks>,
    transactional: bool,
    topics: Vec<TopicTargets>,
}

/// Serves the request. All appending happens before the first await, so requests of one connection append in
/// their order.
pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    mut frame: BytesMut,
) -> Outcome {
    let plan = match decode::<ProduceRequest<'_>>(call, &frame) {
        Ok(request) => plan(broker, context, call, &request, &frame),
        Err(error) => return Outcome::Close(format!("Produce: {error}")),
    };
    let options = broker.append_options();
    let mut responses = Vec::with_capacity(plan.topics.len());
    for topic in plan.topics {
        let partition_responses = topic
            .partitions
            .into_iter()
            .map(|target| match (plan.acks, plan.transactional) {
                (None, _) => refused(target.index, ErrorCode::INVALID_REQUIRED_ACKS, None),
                (_, true) => {
                    refused(target.index, ErrorCode::INVALID_TXN_STATE, Some(NO_TRANSACTIONS.into()))
                }
                _ => append(broker, call.version, &topic.name, target, &mut frame, options),
            })
            .collect();
        responses.push(TopicProduceResponse {
            name: topic.name.into(),
            topic_id: topic.id,
            partition_responses,
        });
    }
    if plan.acks == Some(Acks::None) {
        return without_response(&responses);
    }
    respond(call, &ProduceResponse { responses, ..Default::default() })
}

/// Client id with which Kafka's own tools may write to internal topics.
const ADMIN_CLIENT_ID: &str = "__admin_client";
const NO_TRANSACTIONS: &str = "transactions are not supported by this server";

/// With acks=0 there is nothing to send; a refused batch ends the connection, which is the only sign that such a
/// client understands.
fn without_response(responses: &[TopicProduceResponse<'_>]) -> Outcome {
    let refused = responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .find(|partition| partition.error_code != ErrorCode::NONE.0);
    match refused {
        None => Outcome::Silent,
        Some(partition) => {
            Outcome::Close(format!("a batch with acks=0 was refused: {}", ErrorCode(partition.error_code)))
        }
    }
}

fn plan(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    request: &ProduceRequest<'_>,
    frame: &[u8],
) -> Plan {
    let image = broker.metadata.image();
    let topics = request
        .topic_data
        .iter()
        .map(|topic| plan_topic(broker, context, call, &image, topic, frame))
        .collect();
    let acks = match request.acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    };
    Plan { acks, transactional: request.transactional_id.is_some(), topics }
}

fn plan_topic(
    broker: &Arc<Broker>,
    context: &RequestContext,
    call: Call,
    image: &Image,
    data: &TopicProduceData<'_>,
    frame: &[u8],
) -> TopicTargets {
    let key = match call.version {
        TOPIC_IDS_SINCE.. => TopicKey::Id(data.topic_id),
        _ => TopicKey::Name(&data.name),
    };
    let topic = key.find(image).and_then(|topic| {
        if !context.authorize(Operation::Write, Resource::Topic(&topic.name)) {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        // The server's own topics take records from nobody else, but for the tool that says it is one.
        if is_internal(&topic.name) && *context.client_id != *ADMIN_CLIENT_ID {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        Ok(topic)
    });
    let target = |index: i32, records: Option<Records<'_>>| Target {
        index,
        partition: topic.and_then(|topic| broker.partition(topic, index)),
        records: range_in(frame, records.and_then(|records| records.as_bytes()).unwrap_or_default()),
    };
    TopicTargets {
        name: data.name.to_string(),
        id: data.topic_id,
        partitions: data.partition_data.iter().map(|data| target(data.index, data.records)).collect(),
    }
}

/// Where `part`, which was decoded out of `frame`, lies in it.
fn range_in(frame: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(frame.as_ptr() as usize);
    if part.is_empty() || start + part.len() > frame.len() { 0..0 } else { start..start + part.len() }
}

fn append(
    broker: &Broker,
    version: i16,
    topic: &str,
    target: Target,
    frame: &mut [u8],
    options: AppendOptions,
) -> PartitionProduceResponse<'static> {
    let partition = match target.partition {
        Ok(partition) => partition,
        Err(code) => return refused(target.index, code, None),
    };
    let batch = &mut frame[target.records];
    if version < ZSTD_SINCE && is_zstd(batch) {
        return refused(target.index, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, None);
    }
    match partition.append(batch, options) {
        Ok(appended) => accepted(target.index, &appended),
        Err(error) => {
            let code = error::append_error(&error);
            if error::is_our_trouble(code) {
                STORAGE_TROUBLE.warn(|suppressed| {
                    tracing::error!(topic, partition = target.index, suppressed, %error, "append failed");
                });
            }
            let mut response = refused(target.index, code, Some(error.to_string()));
            if code == ErrorCode::NOT_LEADER_OR_FOLLOWER && version >= LEADER_SINCE {
                let (leader_id, leader_epoch) = (broker.node_id().0, broker.epoch().0);
                response.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
            }
            response
        }
    }
}

/// Whether the bytes begin with a batch that says it is compressed with zstd. Anything that is no batch is not, and
/// is refused where it is checked.
fn is_zstd(batch: &[u8]) -> bool {
    BatchHeader::parse(batch).and_then(|header| header.try_compression()) == Ok(Compression::Zstd)
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
    // Java's producer shows the batch's message only if it names a record; the batch is refused as a whole.
    let record_errors = match (&message, code) {
        (Some(text), ErrorCode::INVALID_RECORD) => {
            vec![BatchIndexAndErrorMessage {
                batch_index: 0,
                batch_index_error_message: Some(text.clone().into()),
            }]
        }
        _ => Vec::new(),
    };
    PartitionProduceResponse {
        index,
        error_code: code.0,
        base_offset: -1,
        record_errors,
        error_message: message.map(Into::into),
        ..Default::default()
    }
}
