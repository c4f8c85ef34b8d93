//! Loading a shard: its partition's records are replayed from the beginning.

use std::sync::Arc;

use riverrun_coordinator::{GroupConfig, GroupMemory, Shard};
use riverrun_log::{LogError, ReadError};
use riverrun_protocol::ErrorCode;
use riverrun_records::{BatchError, Batches};
use riverrun_types::Offset;

use super::Loaded;
use crate::broker::Broker;
use crate::metadata::OFFSETS_TOPIC;
use crate::partitions::Partition;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1024 * 1024;

/// Opens partition `index` of `__consumer_offsets` and replays it. Blocks for the disk.
pub(super) fn load(
    broker: &Arc<Broker>,
    index: usize,
    config: GroupConfig,
    memory: Arc<GroupMemory>,
) -> Result<Loaded, LoadError> {
    let image = broker.metadata.image();
    let gone = || LoadError::NotOpened(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let topic = image.topic(OFFSETS_TOPIC).ok_or_else(gone)?;
    let number = i32::try_from(index).map_err(|_| gone())?;
    let partition = broker.partition(topic, number).map_err(LoadError::NotOpened)?;
    let mut shard = Shard::new(config, memory);
    replay(&partition, &mut shard)?;
    Ok(Loaded { shard, partition, last: None })
}

/// Why the groups of a partition are not there.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("the partition cannot be opened: {0}")]
    NotOpened(ErrorCode),
    #[error("loading has ended: {0}")]
    Ended(tokio::task::JoinError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the batch at or after offset {0}: {1}")]
    Batch(Offset, BatchError),
    #[error("the file cannot be read: {0}")]
    Io(#[from] std::io::Error),
}

impl LoadError {
    /// The code in the words that group members know: they take a storage error for the end, and come back after any of
    /// these.
    pub(super) fn code(&self) -> ErrorCode {
        match self {
            Self::NotOpened(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::NOT_LEADER_OR_FOLLOWER) => {
                ErrorCode::NOT_COORDINATOR
            }
            _ => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        }
    }
}

fn replay(partition: &Partition, shard: &mut Shard) -> Result<(), LoadError> {
    let end = partition.high_watermark();
    let mut next = partition.log.log_start_offset()?;
    while next < end {
        let slice = partition.log.read(next, READ_BYTES, end, true)?;
        if slice.len == 0 {
            break;
        }
        for chunk in &slice.chunks {
            let bytes = chunk.to_bytes()?;
            for batch in Batches::new(&bytes) {
                let batch = batch
                    .and_then(riverrun_records::UnverifiedBatch::verify)
                    .map_err(|error| LoadError::Batch(next, error))?;
                replay_batch(shard, &batch).map_err(|error| LoadError::Batch(batch.base_offset(), error))?;
                next = batch.last_offset().next();
            }
        }
    }
    Ok(())
}

fn replay_batch(shard: &mut Shard, batch: &riverrun_records::Batch<'_>) -> Result<(), BatchError> {
    for record in &batch.records()? {
        let record = record?;
        // Anyone may have produced to the topic: what is no group record is passed over, as in Kafka.
        let Some(key) = record.key else { continue };
        if let Err(trouble) = shard.replay(key, record.value) {
            tracing::warn!(offset = record.offset.0, %trouble, "a record in {OFFSETS_TOPIC} is passed over");
        }
    }
    Ok(())
}
