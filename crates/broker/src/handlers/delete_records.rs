//! `DeleteRecords` (key 21), versions 0 to 2: moves a partition's log start up to an offset (KIP-107). -1 means the
//! high watermark. The new start is durable when it is answered. Refused for topics that are only compacted.

use std::sync::Arc;

use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_protocol::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use riverrun_protocol::{DeleteRecordsRequest, DeleteRecordsResponse, ErrorCode};
use riverrun_types::Offset;

use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::{Image, is_internal};

/// Offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteRecordsRequest<'_>,
    _version: i16,
) -> DeleteRecordsResponse<'static> {
    let image = broker.metadata.image();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        topics.push(delete_topic(broker, context, &image, topic).await);
    }
    DeleteRecordsResponse { topics, ..Default::default() }
}

async fn delete_topic(
    broker: &Arc<Broker>,
    context: &RequestContext,
    image: &Image,
    topic: &DeleteRecordsTopic<'_>,
) -> DeleteRecordsTopicResult<'static> {
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for asked in &topic.partitions {
        let deleted = if context.authorize(Operation::Delete, Resource::Topic(&topic.name)) {
            delete(broker, image, &topic.name, asked).await
        } else {
            Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        };
        partitions.push(DeleteRecordsPartitionResult {
            partition_index: asked.partition_index,
            low_watermark: deleted.map_or(-1, |offset| offset.0),
            error_code: deleted.err().unwrap_or(ErrorCode::NONE).0,
        });
    }
    DeleteRecordsTopicResult { name: topic.name.to_string().into(), partitions }
}

async fn delete(
    broker: &Arc<Broker>,
    image: &Image,
    name: &str,
    asked: &DeleteRecordsPartition,
) -> Result<Offset, ErrorCode> {
    if is_internal(name) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let topic = TopicKey::Name(name).find(image)?;
    if topic.is_mounted {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let partition = broker.partition(topic, asked.partition_index)?;
    if !partition.log.config().cleanup.delete {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let high_watermark = partition.high_watermark();
    let before = if asked.offset == HIGH_WATERMARK { high_watermark } else { Offset(asked.offset) };
    if before.0 < 0 || before > high_watermark {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    // Waits for the disk, which a worker must not.
    let deleted = tokio::task::spawn_blocking(move || partition.log.delete_records(before)).await;
    deleted.map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?.map_err(|trouble| error::read_error(&trouble))
}
