//! A step's records as batches of the topic of its shard.

use bytes::BytesMut;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions, Appended, LogError};
use riverrun_records::{BatchBuilder, BatchError, BatchOptions, Compression};
use riverrun_types::TimestampMs;

use super::machine::{HostOptions, ShardRecord};
use crate::partitions::Partition;

/// A batch is closed when it has this many bytes: well below `max.message.bytes`.
const BATCH_BYTES: usize = 512 * 1024;
/// An append takes this many bytes, unless one batch has more: what the smallest `segment.bytes` and the smallest
/// `journal.bytes` have room for.
const APPEND_BYTES: usize = 1024 * 1024;

/// The appends of a step, with its records in their order. A step of an ordinary size is one append, and in the log as
/// a whole or not at all. A larger one, such as a million offsets that go with their topic, is several, because none
/// may be larger than a segment; if one fails, the log has a prefix of the step, as after a crash. Batches are stamped
/// with the wall clock, as all that a log ages by.
pub(super) fn encode_step(
    options: &HostOptions,
    records: &[ShardRecord],
) -> Result<Vec<Vec<u8>>, BatchError> {
    if records.is_empty() {
        return Ok(Vec::new());
    }
    encode(records, options.compression, options.clock.wall())
}

/// Makes an append of [`encode_step`]: `last` becomes the last one that the log has taken, and the partition tells how
/// durable it is. Does not wait for the disk where the log is open, so that the shard's lock may be held: what goes to
/// no journal is written by the writer of the log dir. Fails also if something was lost since the append before: the
/// shard is ahead of its log then, however well this one went.
pub(super) fn append_encoded(
    options: &HostOptions,
    partition: &Partition,
    bytes: &[u8],
    last: &mut Option<Appended>,
) -> Result<(), AppendError> {
    let terms = AppendOptions { origin: AppendOrigin::Coordinator, now: options.clock.wall() };
    let appended = partition.append(BytesMut::from(bytes), terms)?;
    partition.leave_to_writer()?;
    let before = last.replace(appended);
    // Nobody may have waited for what was lost, and what waits for `last` would not hear of it.
    if before.is_some_and(|before| before.loss_count != appended.loss_count) {
        return Err(AppendError::Storage(LogError::Lost(partition.log.id())));
    }
    Ok(())
}

/// The batches of each append.
fn encode(
    records: &[ShardRecord],
    compression: Compression,
    now: TimestampMs,
) -> Result<Vec<Vec<u8>>, BatchError> {
    let options = BatchOptions { compression, ..BatchOptions::default() };
    let mut appends = vec![Vec::new()];
    let mut builder = BatchBuilder::new(options);
    for record in records {
        if !builder.is_empty() && builder.size_bytes() + record.key.len() >= BATCH_BYTES {
            let full = std::mem::replace(&mut builder, BatchBuilder::new(options));
            add(&mut appends, &full.build()?);
        }
        builder.append(now, Some(&record.key), record.value.as_deref(), &[])?;
    }
    add(&mut appends, &builder.build()?);
    Ok(appends)
}

/// Puts a batch into the last append, or begins another one.
fn add(appends: &mut Vec<Vec<u8>>, batch: &[u8]) {
    match appends.last_mut() {
        Some(last) if last.is_empty() || last.len() + batch.len() <= APPEND_BYTES => last.extend(batch),
        _ => appends.push(batch.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use riverrun_env::sim::SimEnv;
    use riverrun_journal::Journal;
    use riverrun_records::Batches;

    use super::*;
    use crate::config::BrokerConfig;

    fn record(index: u32, value_bytes: usize) -> ShardRecord {
        ShardRecord { key: index.to_be_bytes().to_vec(), value: Some(vec![0; value_bytes]) }
    }

    /// The keys of the records in an append, batch by batch.
    fn keys(append: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let keys = |batch: Result<riverrun_records::UnverifiedBatch<'_>, _>| {
            let batch = batch.unwrap().verify().unwrap();
            let records = batch.records().unwrap();
            records.into_iter().map(|record| record.unwrap().key.unwrap().to_vec()).collect()
        };
        Batches::new(append).map(keys).collect()
    }

    #[test]
    fn a_step_of_several_batches_is_one_append_where_it_fits() {
        let records: Vec<_> = (0..9).map(|index| record(index, 100_000)).collect();
        let appends = encode(&records, Compression::None, TimestampMs(5)).unwrap();
        assert_eq!((appends.len(), keys(&appends[0]).len()), (1, 2));
    }

    #[test]
    fn a_large_step_becomes_appends_in_order_that_fit_any_segment() {
        let records: Vec<_> = (0..100).map(|index| record(index, 100_000)).collect();
        let appends = encode(&records, Compression::None, TimestampMs(5)).unwrap();
        assert!(appends.len() >= 10 && appends.iter().all(|append| append.len() <= APPEND_BYTES));
        let keys: Vec<_> = appends.iter().flat_map(|append| keys(append)).flatten().collect();
        assert_eq!(keys, records.iter().map(|record| record.key.clone()).collect::<Vec<_>>());
    }

    #[test]
    fn the_smallest_journal_takes_the_largest_append_and_batch() {
        let config = |bytes, alignment| {
            BrokerConfig::from_pairs([("journal.bytes", bytes), ("journal.alignment", alignment)])
        };
        assert!(config("8388607", "4096").is_err(), "there is a smaller one");
        for alignment in ["512", "4096", "65536"] {
            let config = config("8388608", alignment).unwrap();
            let options = config.durability.journal_options();
            let opened = Journal::open(&SimEnv::new(1).env(), Path::new("/journal"), options);
            let bytes_max = opened.unwrap().0.entry_bytes_max();
            let batch_bytes = usize::try_from(config.topic_defaults.max_message_bytes).unwrap();
            assert!(bytes_max >= APPEND_BYTES.max(batch_bytes), "{alignment}: {bytes_max}");
        }
    }
}
