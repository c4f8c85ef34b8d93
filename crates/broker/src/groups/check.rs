//! What clients may write to the topic of group offsets, where an operator lets them: records of groups and nothing else.

use riverrun_coordinator::{ReplayError, check_record};
use riverrun_records::{BatchError, Batches, UnverifiedBatch};

/// Why a batch is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOfGroups {
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the record {0} has no key")]
    NoKey(usize),
    #[error("the record {0}: {1}")]
    Record(usize, ReplayError),
}

/// Whether all records of these batches are records of groups.
pub(crate) fn check_batch(bytes: &[u8]) -> Result<(), NotOfGroups> {
    for batch in Batches::new(bytes) {
        let batch = batch.and_then(UnverifiedBatch::verify)?;
        for (number, record) in batch.records()?.into_iter().enumerate() {
            let record = record?;
            let key = record.key.ok_or(NotOfGroups::NoKey(number))?;
            check_record(key, record.value).map_err(|error| NotOfGroups::Record(number, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::offsets_topic::{self, OffsetCommitKey, OffsetCommitValue};
    use riverrun_records::{BatchBuilder, BatchOptions};
    use riverrun_types::TimestampMs;

    use super::*;

    fn batch(key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(TimestampMs(1), key, value, &[]).unwrap();
        builder.build().unwrap()
    }

    #[test]
    fn only_records_of_groups_are_taken() {
        let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 0 };
        let key = offsets_topic::encode_key(&key).unwrap();
        let value = offsets_topic::encode_value(&OffsetCommitValue::default(), 3).unwrap();
        assert!(check_batch(&batch(Some(&key), Some(&value))).is_ok());
        assert!(check_batch(&batch(Some(&key), None)).is_ok(), "a tombstone");
        assert!(matches!(check_batch(&batch(None, Some(&value))), Err(NotOfGroups::NoKey(0))));
        for (key, value) in [(&key[..], &b"no"[..]), (b"no key", &value), (&[0x7F, 0xFF], &value)] {
            let refused = check_batch(&batch(Some(key), Some(value)));
            assert!(matches!(refused, Err(NotOfGroups::Record(0, _))), "{refused:?}");
        }
    }
}
