//! `DeleteRecords` (key 21), versions 0 to 2: moves a partition's log start up to an offset (KIP-107). -1 means the
//! high watermark. The new start is durable when it is answered. Refused for topics that are only compacted. Where a
//! partition is named more than once the last time counts, once, as in Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_protocol::delete_records_request::DeleteRecordsTopic;
use riverrun_protocol::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use riverrun_protocol::{DeleteRecordsRequest, DeleteRecordsResponse, ErrorCode};
use riverrun_types::Offset;

use crate::broker::{Broker, TopicKey};
use crate::context::{Operation, RequestContext, Resource};
use crate::error;
use crate::metadata::ClusterImage;
use crate::topic_names::is_internal;

/// Offset that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteRecordsRequest<'_>,
    _version: i16,
) -> DeleteRecordsResponse<'static> {
    let image = broker.catalog.cluster();
    let mut topics = Vec::new();
    for (name, offsets) in asked_last(&request.topics) {
        topics.push(delete_topic(broker, context, &image, name, offsets).await);
    }
    DeleteRecordsResponse { topics, ..Default::default() }
}

/// The offset that is asked for last, of each partition of each topic.
fn asked_last<'r>(topics: &'r [DeleteRecordsTopic<'_>]) -> BTreeMap<&'r str, BTreeMap<i32, i64>> {
    let mut last: BTreeMap<&str, BTreeMap<i32, i64>> = BTreeMap::new();
    for topic in topics {
        let asked = topic.partitions.iter().map(|asked| (asked.partition_index, asked.offset));
        last.entry(&topic.name).or_default().extend(asked);
    }
    last
}

async fn delete_topic(
    broker: &Arc<Broker>,
    context: &RequestContext,
    image: &ClusterImage,
    name: &str,
    offsets: BTreeMap<i32, i64>,
) -> DeleteRecordsTopicResult<'static> {
    let mut partitions = Vec::with_capacity(offsets.len());
    for (partition_index, offset) in offsets {
        let deleted = if context.authorize(Operation::Delete, Resource::Topic(name)) {
            delete(broker, image, name, partition_index, offset).await
        } else {
            Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        };
        partitions.push(DeleteRecordsPartitionResult {
            partition_index,
            low_watermark: deleted.map_or(-1, |offset| offset.0),
            error_code: deleted.err().unwrap_or(ErrorCode::NONE).0,
        });
    }
    DeleteRecordsTopicResult { name: name.to_owned().into(), partitions }
}

async fn delete(
    broker: &Arc<Broker>,
    image: &ClusterImage,
    name: &str,
    partition_index: i32,
    offset: i64,
) -> Result<Offset, ErrorCode> {
    if is_internal(name) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let topic = TopicKey::Name(name).find(image)?;
    if !topic.is_changeable() {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let partition = broker.partition(topic, partition_index)?;
    if !partition.log.config().cleanup.delete {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let high_watermark = partition.high_watermark();
    let before = if offset == HIGH_WATERMARK { high_watermark } else { Offset(offset) };
    if before.0 < 0 || before > high_watermark {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    // Waits for the disk, which a worker must not.
    let deleted = tokio::task::spawn_blocking(move || partition.log.delete_records(before)).await;
    deleted.map_err(|_| ErrorCode::UNKNOWN_SERVER_ERROR)?.map_err(|trouble| error::read_error(&trouble))
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::delete_records_request::DeleteRecordsPartition;

    use super::*;

    #[test]
    fn a_partition_named_many_times_is_deleted_once() {
        let topic = |name: &'static str, asked: &[(i32, i64)]| DeleteRecordsTopic {
            name: name.into(),
            partitions: asked
                .iter()
                .map(|(partition_index, offset)| DeleteRecordsPartition {
                    partition_index: *partition_index,
                    offset: *offset,
                })
                .collect(),
        };
        let topics = [topic("b", &[(0, 5), (1, 7), (0, 3)]), topic("a", &[(0, 1)]), topic("b", &[(1, -1)])];
        let expected =
            BTreeMap::from([("a", BTreeMap::from([(0, 1)])), ("b", BTreeMap::from([(0, 3), (1, -1)]))]);
        assert_eq!(asked_last(&topics), expected);
    }
}
