//! Loading a shard: its partition's records are replayed from the beginning.
//!
//! Guarantees that the log of the server gets a line about what was passed over or left out, with its number, however many
//! such records there are. Runs on a thread that may block, with all that takes long before a shard serves.

use riverrun_log::{LogError, ReadError};
use riverrun_protocol::ErrorCode;
use riverrun_records::{BatchError, Batches};
use riverrun_types::Offset;

use super::machine::{HostOptions, ShardRecord, ShardTopic, StateMachine};
use super::slot::Loaded;
use crate::partitions::Partition;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1024 * 1024;

/// Opens the partition of shard `index` and replays it. Beside the shard, which is ready to serve: the records that this
/// has led to. Blocks for the disk.
pub(super) fn load<M: StateMachine>(
    options: &HostOptions,
    world: &M::World,
    index: usize,
) -> Result<(Loaded<M>, Vec<ShardRecord>), LoadError> {
    let partition = world.open(index).map_err(LoadError::NotOpened)?;
    let mut machine = M::new(world);
    let mut skipped = Skipped::default();
    replay(&partition, &mut machine, &mut skipped)?;
    skipped.tell(options, index);
    let records = machine.on_loaded(world, options.now());
    Ok((Loaded { machine, partition, last: None, left_out: skipped.left_out, load: 0 }, records))
}

/// Records that have led to nothing.
#[derive(Debug, Default)]
struct Skipped {
    /// No records of the machine, or none that can be read here.
    passed_over: u64,
    /// Those for which the bounds of the machines had no room.
    left_out: u64,
    /// The first that was passed over, and why.
    first: Option<(Offset, String)>,
}

impl Skipped {
    fn note<M: StateMachine>(&mut self, offset: Offset, error: &M::ReplayError) {
        if M::is_want_of_room(error) {
            self.left_out += 1;
        } else {
            self.passed_over += 1;
            self.first.get_or_insert_with(|| (offset, error.to_string()));
        }
    }

    fn tell(&self, options: &HostOptions, shard: usize) {
        let HostOptions { what, topic, bounds, .. } = options;
        if let Some((offset, error)) = &self.first {
            let (offset, records) = (offset.0, self.passed_over);
            tracing::warn!(shard, records, offset, %error, "records in {topic} are passed over; the first is at this offset");
        }
        if self.left_out > 0 {
            let records = self.left_out;
            tracing::error!(
                shard,
                records,
                "records in {topic} are left out: {what} would exceed their bounds ({bounds})"
            );
        }
    }
}

/// Why a shard is not there.
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
    /// The code in the words that members of groups know: they take a storage error for the end, and come back after any of
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

fn replay<M: StateMachine>(
    partition: &Partition,
    machine: &mut M,
    skipped: &mut Skipped,
) -> Result<(), LoadError> {
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
                replay_batch(machine, &batch, skipped)
                    .map_err(|error| LoadError::Batch(batch.base_offset(), error))?;
                next = batch.last_offset().next();
            }
        }
    }
    Ok(())
}

fn replay_batch<M: StateMachine>(
    machine: &mut M,
    batch: &riverrun_records::Batch<'_>,
    skipped: &mut Skipped,
) -> Result<(), BatchError> {
    for record in &batch.records()? {
        let record = record?;
        // Anyone may have produced to the topic once: what is no record of the machine is passed over, as in Kafka.
        let Some(key) = record.key else { continue };
        if let Err(error) = machine.replay(key, record.value) {
            skipped.note::<M>(record.offset, &error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riverrun_coordinator::{ReplayError, Shard};
    use riverrun_env::sim::SimEnv;
    use riverrun_protocol::DecodeError;

    use super::super::tests::options;
    use super::*;
    use crate::testing::log_lines;

    #[test]
    fn any_number_of_records_without_effect_is_a_line() {
        let (mut skipped, options) = (Skipped::default(), options(&SimEnv::new(1)));
        assert_eq!(log_lines(|| skipped.tell(&options, 0)), 0);
        for offset in 0..1_000 {
            let garbage = ReplayError::Key(DecodeError::UnknownRecordType(1));
            skipped.note::<Shard>(Offset(offset), &garbage);
        }
        assert_eq!(log_lines(|| skipped.tell(&options, 0)), 1);
        assert_eq!(
            (skipped.passed_over, skipped.first.as_ref().map(|first| first.0)),
            (1_000, Some(Offset(0)))
        );
        skipped.note::<Shard>(Offset(9), &ReplayError::NoRoom);
        skipped.note::<Shard>(Offset(10), &ReplayError::NoRoom);
        assert_eq!((log_lines(|| skipped.tell(&options, 0)), skipped.left_out), (2, 2));
    }
}
