//! Loading a shard: its partition's records are replayed from the beginning.
//!
//! Guarantees that the log of the server gets a line about what was passed over or left out, with its number, however many
//! such records there are. Runs on a thread that may block, with all that takes long before a shard serves.

use std::sync::Arc;

use riverrun_coordinator::{GroupConfig, GroupMemory, OffsetsRecord, ReplayError, Shard};
use riverrun_log::{LogError, ReadError};
use riverrun_protocol::ErrorCode;
use riverrun_records::{BatchError, Batches};
use riverrun_types::{Offset, TopicId};

use super::own_configs::ImageConfigs;
use super::{Loaded, clock};
use crate::broker::Broker;
use crate::partitions::Partition;
use crate::topic_names::OFFSETS_TOPIC;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1024 * 1024;

/// Opens partition `index` of `__consumer_offsets` and replays it. Beside the shard, which is ready to serve: the records
/// that this has led to. Blocks for the disk.
pub(super) fn load(
    broker: &Arc<Broker>,
    index: usize,
    config: GroupConfig,
    memory: Arc<GroupMemory>,
) -> Result<(Loaded, Vec<OffsetsRecord>), LoadError> {
    let image = broker.metadata.image();
    let gone = || LoadError::NotOpened(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let topic = image.topic(OFFSETS_TOPIC).ok_or_else(gone)?;
    let number = i32::try_from(index).map_err(|_| gone())?;
    let partition = broker.partition(topic, number).map_err(LoadError::NotOpened)?;
    let own = Arc::new(ImageConfigs(Arc::downgrade(broker)));
    let mut shard = Shard::new(GroupConfig { own: Some(own), ..config }, memory);
    let mut skipped = Skipped::default();
    replay(&partition, &mut shard, &mut skipped)?;
    skipped.tell(index);
    let mut records = shard.on_loaded(clock::now(&*broker.env.clock)).records;
    records.extend(drop_offsets(broker, &mut shard));
    Ok((Loaded { shard, partition, last: None, left_out: skipped.left_out, load: 0 }, records))
}

/// Drops the offsets of topics that are not there: a topic's deletion may have come while the shard was not there, or a
/// crash between it and that of its offsets. What may be a topic that the metadata has lost keeps them.
fn drop_offsets(broker: &Broker, shard: &mut Shard) -> Vec<OffsetsRecord> {
    if broker.metadata.may_lack_topics() || !broker.logs.unknown_partitions().is_empty() {
        return Vec::new();
    }
    let image = broker.metadata.image();
    let is_there = |name: &str, id: TopicId| match image.topic(name) {
        Some(topic) => id.is_zero() || id == topic.id,
        None => broker.mounts.knows(name),
    };
    shard.drop_offsets_unless(is_there).records
}

/// Records that have led to nothing.
#[derive(Debug, Default)]
struct Skipped {
    /// No records of groups, or none that can be read here.
    passed_over: u64,
    /// Those for which the bounds of groups had no room.
    left_out: u64,
    /// The first that was passed over, and why.
    first: Option<(Offset, ReplayError)>,
}

impl Skipped {
    fn note(&mut self, offset: Offset, error: ReplayError) {
        if matches!(error, ReplayError::NoRoom) {
            self.left_out += 1;
        } else {
            self.passed_over += 1;
            self.first.get_or_insert((offset, error));
        }
    }

    fn tell(&self, shard: usize) {
        if let Some((offset, error)) = &self.first {
            let (offset, records) = (offset.0, self.passed_over);
            tracing::warn!(shard, records, offset, %error, "records in {OFFSETS_TOPIC} are passed over; the first is at this offset");
        }
        if self.left_out > 0 {
            let records = self.left_out;
            tracing::error!(
                shard,
                records,
                "records in {OFFSETS_TOPIC} are left out: groups would exceed their bounds (groups.memory.max.bytes)"
            );
        }
    }
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

fn replay(partition: &Partition, shard: &mut Shard, skipped: &mut Skipped) -> Result<(), LoadError> {
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
                replay_batch(shard, &batch, skipped)
                    .map_err(|error| LoadError::Batch(batch.base_offset(), error))?;
                next = batch.last_offset().next();
            }
        }
    }
    Ok(())
}

fn replay_batch(
    shard: &mut Shard,
    batch: &riverrun_records::Batch<'_>,
    skipped: &mut Skipped,
) -> Result<(), BatchError> {
    for record in &batch.records()? {
        let record = record?;
        // Anyone may have produced to the topic once: what is no group record is passed over, as in Kafka.
        let Some(key) = record.key else { continue };
        if let Err(error) = shard.replay(key, record.value) {
            skipped.note(record.offset, error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::DecodeError;

    use super::*;
    use crate::testing::log_lines;

    #[test]
    fn any_number_of_records_without_effect_is_a_line() {
        let mut skipped = Skipped::default();
        assert_eq!(log_lines(|| skipped.tell(0)), 0);
        for offset in 0..1_000 {
            let garbage = ReplayError::Key(DecodeError::UnknownRecordType(1));
            skipped.note(Offset(offset), garbage);
        }
        assert_eq!(log_lines(|| skipped.tell(0)), 1);
        assert_eq!(
            (skipped.passed_over, skipped.first.as_ref().map(|first| first.0)),
            (1_000, Some(Offset(0)))
        );
        skipped.note(Offset(9), ReplayError::NoRoom);
        skipped.note(Offset(10), ReplayError::NoRoom);
        assert_eq!((log_lines(|| skipped.tell(0)), skipped.left_out), (2, 2));
    }
}
