//! A step's records as batches of `__consumer_offsets`.

use riverrun_coordinator::OffsetsRecord;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions};
use riverrun_records::{BatchBuilder, BatchError, BatchOptions, Compression};
use riverrun_types::TimestampMs;

use crate::broker::Broker;
use crate::partitions::Partition;

/// A batch is closed when it has this many bytes: well below `max.message.bytes`.
const BATCH_BYTES: usize = 512 * 1024;

/// Appends the records in their order, in one append, so that a step is in the log as a whole or not at all. Batches
/// are stamped with the wall clock, as all that a log ages by.
pub(super) fn append(
    broker: &Broker,
    partition: &Partition,
    records: &[OffsetsRecord],
) -> Result<(), AppendError> {
    if records.is_empty() {
        return Ok(());
    }
    let now = broker.env.clock.wall();
    let mut bytes = encode(records, codec(broker), now)?;
    partition.append(&mut bytes, AppendOptions { origin: AppendOrigin::Coordinator, now }).map(|_| ())
}

fn codec(broker: &Broker) -> Compression {
    match broker.config.groups.offsets_topic_compression_codec {
        1 => Compression::Gzip,
        2 => Compression::Snappy,
        3 => Compression::Lz4,
        4 => Compression::Zstd,
        _ => Compression::None,
    }
}

fn encode(
    records: &[OffsetsRecord],
    compression: Compression,
    now: TimestampMs,
) -> Result<Vec<u8>, BatchError> {
    let options = BatchOptions { compression, ..BatchOptions::default() };
    let mut bytes = Vec::new();
    let mut builder = BatchBuilder::new(options);
    for record in records {
        if !builder.is_empty() && builder.size_bytes() + record.key.len() >= BATCH_BYTES {
            bytes.extend(std::mem::replace(&mut builder, BatchBuilder::new(options)).build()?);
        }
        builder.append(now, Some(&record.key), record.value.as_deref(), &[])?;
    }
    bytes.extend(builder.build()?);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use riverrun_records::Batches;

    use super::*;

    #[test]
    fn a_large_step_becomes_several_batches_in_order() {
        let record =
            |index: u32| OffsetsRecord { key: index.to_be_bytes().to_vec(), value: Some(vec![0; 100_000]) };
        let records: Vec<_> = (0..20).map(record).collect();
        let bytes = encode(&records, Compression::None, TimestampMs(5)).unwrap();
        let mut keys = Vec::new();
        let mut batches = 0;
        for batch in Batches::new(&bytes) {
            let batch = batch.unwrap().verify().unwrap();
            batches += 1;
            for record in &batch.records().unwrap() {
                keys.push(record.unwrap().key.map(<[u8]>::to_vec));
            }
        }
        assert!(batches > 2);
        assert_eq!(keys, records.iter().map(|record| Some(record.key.clone())).collect::<Vec<_>>());
    }
}
