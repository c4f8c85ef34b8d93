//! The check of records that clients write to the topic of group offsets, where an operator lets them: each is a record of
//! a group, in the partition of that group, and within the bounds of the requests that make such records.

use riverrun_coordinator::{GroupConfig, check_record};
use riverrun_records::{BatchError, Batches, UnverifiedBatch};
use riverrun_types::limits::REFUSED_RECORDS_NAMED_MAX;

use crate::error::BlamedRecord;
use crate::shard_host::shard_of;

/// Why a batch is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOfGroups {
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The first of its records that are not taken, one at least.
    #[error("{} records are refused, one of them because {}", .0.len(), .0.first().map_or("", |first| &first.reason))]
    Records(Vec<BlamedRecord>),
}

/// Whether all records of these batches are records of groups that belong to this one of so many partitions.
pub(super) fn check_batch(
    bytes: &[u8],
    config: &GroupConfig,
    index: i32,
    partitions: usize,
) -> Result<(), NotOfGroups> {
    let mut refused = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch.and_then(UnverifiedBatch::verify)?;
        for (number, record) in (0..).zip(&batch.records()?) {
            let record = record?;
            let checked = check(record.key, record.value, config, index, partitions);
            if let Err(reason) = checked
                && refused.len() < REFUSED_RECORDS_NAMED_MAX
            {
                refused.push(BlamedRecord { index: number, reason });
            }
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(NotOfGroups::Records(refused)) }
}

fn check(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    config: &GroupConfig,
    index: i32,
    partitions: usize,
) -> Result<(), String> {
    let key = key.ok_or("it has no key")?;
    let group = check_record(config, key, value).map_err(|error| error.to_string())?;
    let own = shard_of(&group, partitions);
    if usize::try_from(index) == Ok(own) {
        return Ok(());
    }
    Err(format!("its group is looked for in partition {own}"))
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::offsets_topic::{self, OffsetCommitKey, OffsetCommitValue};
    use riverrun_records::{BatchBuilder, BatchOptions};
    use riverrun_types::TimestampMs;

    use super::*;

    type Record<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

    /// The records that are blamed in a batch of these.
    fn blamed(records: &[Record<'_>], index: i32, partitions: usize) -> Vec<i32> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        for (key, value) in records {
            builder.append(TimestampMs(1), *key, *value, &[]).unwrap();
        }
        let batch = builder.build().unwrap();
        match check_batch(&batch, &GroupConfig::default(), index, partitions) {
            Ok(()) => Vec::new(),
            Err(NotOfGroups::Records(blamed)) => blamed.iter().map(|record| record.index).collect(),
            Err(NotOfGroups::Batch(error)) => panic!("{error}"),
        }
    }

    fn commit(group: &str, offset: i64) -> (Vec<u8>, Vec<u8>) {
        let key = OffsetCommitKey { group: group.into(), topic: "t".into(), partition: 0 };
        let value = OffsetCommitValue { offset, ..Default::default() };
        (offsets_topic::encode_key(&key).unwrap(), offsets_topic::encode_value(&value, 3).unwrap())
    }

    #[test]
    fn only_records_of_groups_are_taken() {
        let (key, value) = commit("g", 1);
        let good = (Some(&key[..]), Some(&value[..]));
        assert!(blamed(&[good, (Some(&key), None)], 0, 1).is_empty(), "a tombstone is one");
        for wrong in [
            (None, Some(&value[..])),
            (Some(&key[..]), Some(&b"no"[..])),
            (Some(&b"no key"[..]), Some(&value[..])),
            (Some(&[0x7F, 0xFF][..]), Some(&value[..])),
        ] {
            assert_eq!(blamed(&[good, wrong, good, wrong], 0, 1), [1, 3], "{wrong:?}");
        }
    }

    #[test]
    fn record_with_a_commit_that_no_request_may_make_is_blamed() {
        let (key, value) = commit("g", -5);
        assert_eq!(blamed(&[(Some(&key), Some(&value))], 0, 1), [0]);
        let (key, value) = commit(&"g".repeat(5_000), 1);
        assert_eq!(blamed(&[(Some(&key), Some(&value))], 0, 1), [0]);
    }

    #[test]
    fn a_record_is_taken_where_its_group_is_looked_for() {
        let (key, value) = commit("abc", 1);
        let own = i32::try_from(shard_of("abc", 50)).unwrap();
        assert!(blamed(&[(Some(&key), Some(&value))], own, 50).is_empty());
        assert_eq!(blamed(&[(Some(&key), Some(&value))], own + 1, 50), [0]);
        assert_eq!(blamed(&[(Some(&key), None)], own + 1, 50), [0]);
    }
}
