//! Every batch that a client may send can be read ever after: as it came, in every codec, and with any of its records
//! gone. The records compress as well as records can, and their timestamps lie as far apart as they may.

use std::ops::ControlFlow;

use proptest::collection::vec;
use proptest::prelude::*;
use riverrun_records::{
    Batch, BatchBuilder, BatchError, BatchOptions, Compression, ProduceRules, RecompressOptions,
    RetainOptions, UnverifiedBatch, patch_log_append_time, recompress, validate_produced,
};
use riverrun_types::TimestampMs;

/// A value of one repeated byte behind a beginning that does not compress, which hides the ratio of the rest until it
/// is gone.
#[derive(Clone, Copy, Debug)]
struct Entry {
    timestamp: i64,
    noise_bytes: usize,
    byte: u8,
    equal_bytes: usize,
}

impl Entry {
    fn value(&self) -> Vec<u8> {
        let mut state = self.equal_bytes as u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let mut value: Vec<u8> = (0..self.noise_bytes).map(|_| noise()).collect();
        value.resize(self.noise_bytes + self.equal_bytes, self.byte);
        value
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let timestamp = prop_oneof![Just(i64::MIN), Just(-1), Just(0), Just(i64::MAX), any::<i64>()];
    let equal_bytes =
        prop_oneof![3 => 0..4000_usize, 2 => 100_000..400_000_usize, 1 => 1 << 20..4_usize << 20];
    (timestamp, 0..2000_usize, any::<u8>(), equal_bytes).prop_map(
        |(timestamp, noise_bytes, byte, equal_bytes)| Entry { timestamp, noise_bytes, byte, equal_bytes },
    )
}

fn codec() -> impl Strategy<Value = (Compression, i32)> {
    prop_oneof![
        Just((Compression::None, 0)),
        Just((Compression::Gzip, -1)),
        Just((Compression::Gzip, 9)),
        Just((Compression::Snappy, 0)),
        Just((Compression::Lz4, 9)),
        Just((Compression::Zstd, 3)),
        Just((Compression::Zstd, -5)),
        Just((Compression::Zstd, 20)),
    ]
}

fn verify(bytes: &[u8]) -> Batch<'_> {
    UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good batch")
}

/// Checks that the batch has these records, at these offsets.
fn check(bytes: &[u8], expected: &[(i64, Entry)]) -> Result<(), TestCaseError> {
    let batch = verify(bytes);
    let records = batch.records().map_err(|error| TestCaseError::fail(error.to_string()))?;
    let mut count = 0;
    for (record, (offset, entry)) in records.iter().zip(expected) {
        let record = record.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((record.offset.0, record.timestamp.0), (*offset, entry.timestamp));
        prop_assert!(record.value == Some(&entry.value()[..]), "another value at {}", offset);
        count += 1;
    }
    prop_assert_eq!((count, records.iter().count()), (expected.len(), expected.len()));
    let mut stamps = Vec::new();
    let visited = batch.visit_stamps(|stamp| {
        stamps.push((stamp.offset.0, stamp.timestamp.0));
        ControlFlow::Continue(())
    });
    prop_assert_eq!(visited, Ok(()));
    let of_expected = |(offset, entry): &(i64, Entry)| (*offset, entry.timestamp);
    prop_assert_eq!(stamps, expected.iter().map(of_expected).collect::<Vec<_>>());
    Ok(())
}

/// The batch that compaction writes of the records that it keeps.
fn retained(batch: &Batch<'_>, keep: &[bool], horizon: Option<i64>) -> Result<Vec<u8>, BatchError> {
    let delete_horizon = horizon.map(TimestampMs);
    let options = RetainOptions { compression: batch.compression(), level: None, delete_horizon };
    let mut builder = BatchBuilder::retaining(batch.header(), options);
    let records = batch.records()?;
    for (record, keep) in records.iter().zip(keep) {
        let record = record?;
        if *keep {
            builder.append_record(&record)?;
        }
    }
    builder.build()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn accepted_batch_stays_readable(
        entries in vec(entry(), 1..8), from in codec(), to in codec(), keep in vec(any::<bool>(), 8),
        horizon in prop_oneof![Just(None), Just(Some(0)), Just(Some(i64::MAX))],
    ) {
        let options = BatchOptions { compression: from.0, level: Some(from.1), ..BatchOptions::default() };
        let (mut builder, mut sent) = (BatchBuilder::new(options), Vec::new());
        for entry in entries {
            // A timestamp too far from the first one cannot be expressed.
            if let Ok(delta) = builder.append(TimestampMs(entry.timestamp), Some(b"k"), Some(&entry.value()), &[]) {
                sent.push((i64::from(delta), entry));
            }
        }
        let bytes = builder.build().expect("a batch");
        let info = validate_produced(&verify(&bytes), &ProduceRules::default()).expect("a client may send it");
        check(&bytes, &sent)?;

        let (compression, level) = to;
        let inflated_bytes = info.inflated_bytes;
        let options = RecompressOptions { compression, level, inflated_bytes, bytes_max: 1 << 30 };
        let mut stored = recompress(&verify(&bytes), &options).expect("compresses");
        check(&stored, &sent)?;

        let mut kept: Vec<_> = sent.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(sent, _)| *sent).collect();
        let rewritten = retained(&verify(&stored), &keep, horizon).expect("is written anew");
        check(&rewritten, &kept)?;
        check(&retained(&verify(&rewritten), &[true; 8], None).expect("is written anew"), &kept)?;

        patch_log_append_time(&mut stored, TimestampMs(7));
        for (_, entry) in &mut kept {
            entry.timestamp = 7;
        }
        check(&retained(&verify(&stored), &keep, horizon).expect("is written anew"), &kept)?;
    }
}
