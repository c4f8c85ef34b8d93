//! `ListOffsets` (key 2), versions 1 to 11: offsets by time, and the ends of partitions.
//!
//! Timestamps with a meaning of their own: -1 the latest, -2 the earliest, -3 the record with the largest timestamp
//! (KIP-734), -4 the earliest on this disk (KIP-405), -5 the latest in remote storage and -6 the earliest that waits
//! to go there, of which there is none here. Each may be asked for from the version on that came with it. Nothing at or
//! above the high watermark is shown.

use std::collections::HashSet;
use std::sync::Arc;

use riverrun_protocol::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use riverrun_protocol::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use riverrun_protocol::{ErrorCode, ListOffsetsRequest, ListOffsetsResponse};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::Image;
use crate::mounts::MountedQueue;
use crate::partitions::Partition;

/// First version that says the epoch of the record that was found.
const LEADER_EPOCH_SINCE: i16 = 4;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// Whether a request of this version may ask for the timestamp.
fn is_known(timestamp: i64, version: i16) -> bool {
    match timestamp {
        0.. | LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        _ => false,
    }
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListOffsetsRequest<'_>,
    version: i16,
) -> ListOffsetsResponse<'static> {
    let image = broker.metadata.image();
    let repeated = repeated(&request.topics);
    let list = |topic| list_topic(broker, context, &image, &repeated, topic, version);
    let topics = request.topics.iter().map(list).collect();
    let mut response = ListOffsetsResponse { topics, ..Default::default() };
    if version < LEADER_EPOCH_SINCE {
        forget_epochs(&mut response);
    }
    response
}

/// The codec writes no field that the version lacks, and does not drop one silently.
fn forget_epochs(response: &mut ListOffsetsResponse<'_>) {
    for partition in response.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        partition.leader_epoch = LeaderEpoch::UNKNOWN.0;
    }
}

/// Partitions that the request names more than once: which of the questions is meant is not known.
fn repeated(topics: &[ListOffsetsTopic<'_>]) -> HashSet<(String, i32)> {
    let mut seen = HashSet::new();
    let mut repeated = HashSet::new();
    for topic in topics {
        for partition in &topic.partitions {
            if !seen.insert((&*topic.name, partition.partition_index)) {
                repeated.insert((topic.name.to_string(), partition.partition_index));
            }
        }
    }
    repeated
}

fn list_topic(
    broker: &Broker,
    context: &RequestContext,
    image: &Image,
    repeated: &HashSet<(String, i32)>,
    topic: &ListOffsetsTopic<'_>,
    version: i16,
) -> ListOffsetsTopicResponse<'static> {
    let allowed = context.authorize(Operation::Describe, Resource::Topic(&topic.name));
    let list = |asked: &ListOffsetsPartition| {
        if repeated.contains(&(topic.name.to_string(), asked.partition_index)) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if !allowed {
            return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        if !is_known(asked.timestamp, version) {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        let found = TopicKey::Name(&topic.name).find(image)?;
        broker.check_epoch(found, LeaderEpoch(asked.current_leader_epoch))?;
        if let Some(queue) = broker.mounted(found, asked.partition_index) {
            return find_mounted(queue?, asked.timestamp);
        }
        find(&*broker.partition(found, asked.partition_index)?, asked.timestamp)
    };
    let answer = |asked: &ListOffsetsPartition| response(asked.partition_index, list(asked));
    ListOffsetsTopicResponse {
        name: topic.name.to_string().into(),
        partitions: topic.partitions.iter().map(answer).collect(),
    }
}

/// What was found: a record's timestamp (none for the ends of the log), an offset, and its epoch.
type Found = Option<(TimestampMs, Offset, LeaderEpoch)>;

fn find(partition: &Partition, timestamp: i64) -> Result<Found, ErrorCode> {
    let log = &partition.log;
    let found = match timestamp {
        LATEST => {
            let epoch = log.latest_epoch().map_err(|trouble| error::log_error(&trouble))?;
            Ok(Some((TimestampMs::NONE, partition.high_watermark(), epoch.unwrap_or(LeaderEpoch::UNKNOWN))))
        }
        EARLIEST | EARLIEST_LOCAL => log.log_start_offset().and_then(|start| {
            let epoch = log.epoch_of(start)?.unwrap_or(LeaderEpoch::UNKNOWN);
            Ok(Some((TimestampMs::NONE, start, epoch)))
        }),
        MAX_TIMESTAMP => log.max_timestamp(),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        0.. => log.offset_for_timestamp(TimestampMs(timestamp)),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    let found = found.map_err(|trouble| error::log_error(&trouble))?;
    let is_end = matches!(timestamp, LATEST | EARLIEST | EARLIEST_LOCAL);
    Ok(found.filter(|(_, offset, _)| is_end || *offset < partition.high_watermark()))
}

fn find_mounted(queue: &MountedQueue, timestamp: i64) -> Result<Found, ErrorCode> {
    let found = match timestamp {
        LATEST => queue.high_watermark().map(|end| Some((TimestampMs::NONE, end, queue.epoch()))),
        EARLIEST | EARLIEST_LOCAL => {
            let start = queue.log_start();
            queue.epoch_of(start).map(|epoch| Some((TimestampMs::NONE, start, epoch)))
        }
        MAX_TIMESTAMP => queue.max_timestamp(),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        0.. => queue.offset_for_timestamp(TimestampMs(timestamp)),
        _ => return Err(ErrorCode::UNSUPPORTED_VERSION),
    };
    found.map_err(|refused| refused.code)
}

fn response(index: i32, found: Result<Found, ErrorCode>) -> ListOffsetsPartitionResponse {
    let mut response = ListOffsetsPartitionResponse { partition_index: index, ..Default::default() };
    match found {
        Ok(Some((timestamp, offset, epoch))) => {
            (response.timestamp, response.offset, response.leader_epoch) = (timestamp.0, offset.0, epoch.0);
        }
        Ok(None) => {}
        Err(code) => response.error_code = code.0,
    }
    response
}
