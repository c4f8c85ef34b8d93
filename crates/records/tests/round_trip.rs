//! The records of a builder come back from its batch, in every codec and through every patch.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use riverrun_records::{
    Batch, BatchBuilder, BatchError, BatchHeader, BatchOptions, Batches, Compression, Header, InvalidCause,
    ProduceRules, ProducerStamp, RecompressOptions, RetainOptions, TimestampType, UnverifiedBatch, compress,
    decompress, patch_base_offset, patch_leader_epoch, patch_log_append_time, patch_max_timestamp,
    patch_producer, recompress, validate_produced,
};
use riverrun_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

const BASE: i64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let bytes = |max| vec(any::<u8>(), 0..max);
    let header = (bytes(20), option::of(bytes(40)));
    (-5000..5000_i64, option::of(bytes(40)), option::of(bytes(600)), vec(header, 0..4)).prop_map(
        |(jitter, key, value, headers)| Entry { offset: 0, timestamp: BASE + jitter, key, value, headers },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    vec(entry(), 1..60).prop_map(|mut entries| {
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.offset = index as i64;
        }
        entries
    })
}

fn codec() -> impl Strategy<Value = Compression> {
    (0..Compression::ALL.len()).prop_map(|index| Compression::ALL[index])
}

fn headers_of(entry: &Entry) -> Vec<Header<'_>> {
    entry.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() }).collect()
}

fn fill(builder: &mut BatchBuilder, entries: &[Entry]) {
    for entry in entries {
        let (timestamp, headers) = (TimestampMs(entry.timestamp), headers_of(entry));
        let (key, value) = (entry.key.as_deref(), entry.value.as_deref());
        let expected = builder.size_bytes() + builder.record_size_bytes(timestamp, key, value, &headers);
        builder.append(timestamp, key, value, &headers).expect("room for a record");
        assert_eq!(builder.size_bytes(), expected, "the size of a record is known before it is appended");
    }
}

fn build(compression: Compression, entries: &[Entry]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
    fill(&mut builder, entries);
    builder.build().expect("a batch")
}

fn verify(bytes: &[u8]) -> Batch<'_> {
    UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good batch")
}

fn recompressed(batch: &Batch<'_>, to: Compression) -> Result<Vec<u8>, BatchError> {
    let inflated_bytes = batch.records()?.bytes().len();
    let level = to.default_level();
    recompress(batch, &RecompressOptions { compression: to, level, inflated_bytes, bytes_max: 1 << 30 })
}

fn read(batch: &Batch<'_>) -> Vec<Entry> {
    let records = batch.records().expect("readable records");
    let to_entry = |record: riverrun_records::Record<'_>| Entry {
        offset: record.offset.0,
        timestamp: record.timestamp.0,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record
            .headers()
            .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
            .collect(),
    };
    records
        .iter()
        .map(|record| record.map(to_entry))
        .collect::<Result<_, BatchError>>()
        .expect("good records")
}

proptest! {
    #[test]
    fn records_come_back_in_every_codec(compression in codec(), entries in entries()) {
        let bytes = build(compression, &entries);
        let batch = verify(&bytes);
        prop_assert_eq!(batch.compression(), compression);
        prop_assert_eq!(read(&batch), entries.clone());
        let info = validate_produced(&batch, &ProduceRules::default()).expect("a client may send it");
        prop_assert_eq!(info.record_count as usize, entries.len());
        let latest = entries.iter().map(|entry| entry.timestamp).max();
        prop_assert_eq!(Some(info.max_timestamp.0), latest);
        prop_assert_eq!(batch.max_timestamp(), info.max_timestamp);
        let first_latest = entries.iter().position(|entry| Some(entry.timestamp) == latest);
        prop_assert_eq!(Some(info.max_timestamp_offset_delta as usize), first_latest);
    }

    #[test]
    fn a_batch_keeps_its_records_when_it_is_compressed_another_way(
        from in codec(), to in codec(), entries in entries(),
    ) {
        let bytes = build(from, &entries);
        let other = recompressed(&verify(&bytes), to).expect("a batch");
        prop_assert_eq!(verify(&other).compression(), to);
        prop_assert_eq!(read(&verify(&other)), entries);
        let back = recompressed(&verify(&other), from).expect("a batch");
        prop_assert_eq!(back, bytes);
    }

    #[test]
    fn compaction_keeps_offsets_and_sequences(
        to in codec(), entries in entries(), keep in vec(any::<bool>(), 60), horizon in option::of(0..i64::MAX / 2),
    ) {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: Offset(1000),
            leader_epoch: LeaderEpoch(4),
            producer: ProducerStamp { id: ProducerId(9), epoch: ProducerEpoch(2), base_sequence: i32::MAX - 3 },
            ..BatchOptions::default()
        });
        fill(&mut builder, &entries);
        let bytes = builder.build().expect("a batch");
        let source = verify(&bytes);
        let options =
            RetainOptions { compression: to, level: None, delete_horizon: horizon.map(TimestampMs) };
        let mut builder = BatchBuilder::retaining(source.header(), options);
        let mut kept = Vec::new();
        for (record, (entry, keep)) in source.records().expect("records").iter().zip(read(&source).into_iter().zip(keep)) {
            if keep {
                builder.append_record(&record.expect("a record")).expect("room");
                kept.push(entry);
            }
        }
        let bytes = builder.build().expect("a batch");
        let batch = verify(&bytes);
        prop_assert_eq!(read(&batch), kept);
        prop_assert_eq!(batch.base_offset(), source.base_offset());
        prop_assert_eq!(batch.last_offset(), source.last_offset());
        prop_assert_eq!(batch.last_sequence(), source.last_sequence());
        prop_assert_eq!(batch.producer_id(), source.producer_id());
        prop_assert_eq!(batch.leader_epoch(), source.leader_epoch());
        prop_assert_eq!(batch.delete_horizon(), horizon.map(TimestampMs));
    }

    #[test]
    fn any_bytes_survive_each_codec(compression in codec(), pattern in vec(any::<u8>(), 1..300), times in 1..500_usize) {
        let input = pattern.repeat(times);
        let mut compressed = vec![0xAA];
        compress(compression, compression.default_level(), &input, &mut compressed).expect("compressed");
        let mut output = vec![0xBB];
        decompress(compression, &compressed[1..], &mut output).expect("decompressed");
        prop_assert_eq!(&output[1..], &input[..]);
    }
}

fn sample() -> Vec<Entry> {
    let entry = |offset: i64, key: &str| Entry {
        offset,
        timestamp: BASE + offset,
        key: Some(key.into()),
        value: Some(key.repeat(50).into()),
        headers: Vec::new(),
    };
    vec![entry(0, "a"), entry(1, "b"), entry(2, "c")]
}

#[test]
fn every_level_that_is_accepted_compresses() {
    for (compression, levels) in [
        (Compression::Gzip, &[-1, 1, 9][..]),
        (Compression::Lz4, &[1, 9, 17]),
        (Compression::Zstd, &[-131_072, -1, 0, 1, 19, 22]),
    ] {
        for level in levels {
            let options = BatchOptions { compression, level: Some(*level), ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            fill(&mut builder, &sample());
            let bytes = builder.build().expect("a batch");
            assert_eq!(read(&verify(&bytes)), sample(), "{compression} at {level}");
        }
    }
}

#[test]
fn fields_outside_the_crc_are_patched_without_touching_it() {
    let mut bytes = build(Compression::Lz4, &sample());
    let crc = verify(&bytes).crc();
    patch_base_offset(&mut bytes, Offset(77));
    patch_leader_epoch(&mut bytes, LeaderEpoch(5));
    let batch = verify(&bytes);
    assert_eq!(batch.crc(), crc);
    assert_eq!(
        (batch.base_offset(), batch.last_offset(), batch.next_offset()),
        (Offset(77), Offset(79), Offset(80))
    );
    assert_eq!(batch.leader_epoch(), LeaderEpoch(5));
    assert_eq!(read(&batch)[2].offset, 79);
}

#[test]
fn patches_inside_the_crc_leave_a_good_batch() {
    let mut bytes = build(Compression::Zstd, &sample());
    patch_max_timestamp(&mut bytes, TimestampMs(BASE + 9));
    assert_eq!(verify(&bytes).max_timestamp(), TimestampMs(BASE + 9));
    let stamp = ProducerStamp { id: ProducerId(1), epoch: ProducerEpoch(2), base_sequence: 3 };
    patch_producer(&mut bytes, stamp);
    assert_eq!((verify(&bytes).producer_id(), verify(&bytes).last_sequence()), (ProducerId(1), 5));
    patch_log_append_time(&mut bytes, TimestampMs(42));
    let batch = verify(&bytes);
    assert_eq!(
        (batch.timestamp_type(), batch.compression()),
        (TimestampType::LogAppendTime, Compression::Zstd)
    );
    assert!(read(&batch).iter().all(|entry| entry.timestamp == 42));
}

#[test]
fn a_producer_id_can_come_late() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    fill(&mut builder, &sample());
    builder.set_producer(ProducerStamp { id: ProducerId(8), epoch: ProducerEpoch(0), base_sequence: 100 });
    let bytes = builder.build().expect("a batch");
    assert_eq!((verify(&bytes).base_sequence(), verify(&bytes).last_sequence()), (100, 102));
}

#[test]
fn a_batch_that_compaction_emptied_still_ends_where_it_did() {
    let bytes = build(Compression::Gzip, &sample());
    let options = RetainOptions { compression: Compression::Gzip, level: None, delete_horizon: None };
    let emptied = BatchBuilder::retaining(verify(&bytes).header(), options).build().expect("a batch");
    let batch = verify(&emptied);
    assert_eq!((batch.record_count(), batch.last_offset()), (0, Offset(2)));
    assert_eq!(batch.max_timestamp(), TimestampMs(BASE + 2));
    assert_eq!(read(&batch), []);
}

#[test]
fn retained_records_stay_in_order_and_in_range() {
    let bytes = build(Compression::None, &sample());
    let source = verify(&bytes);
    let records = source.records().expect("records");
    let last = records.iter().last().expect("a record").expect("a good record");
    let options = RetainOptions { compression: Compression::None, level: None, delete_horizon: None };
    let mut builder = BatchBuilder::retaining(source.header(), options);
    builder.append_record(&last).expect("room");
    let refused = Err(BatchError::Invalid(InvalidCause::OffsetDelta));
    assert_eq!(builder.append_record(&last), refused, "twice the same offset");
    let mut outside = last;
    outside.offset = Offset(3);
    assert_eq!(builder.append_record(&outside), refused, "past the batch");
}

#[test]
fn a_builder_without_records_is_refused() {
    let built = BatchBuilder::new(BatchOptions::default()).build();
    assert_eq!(built, Err(BatchError::Invalid(InvalidCause::Empty)));
}

#[test]
fn a_builder_is_unchanged_by_a_record_that_does_not_fit() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    fill(&mut builder, &sample());
    let before = builder.size_bytes();
    let refused = builder.append(TimestampMs(i64::MIN), None, None, &[]);
    assert_eq!(refused, Err(BatchError::InvalidTimestamp { timestamp: TimestampMs(i64::MIN), record: 3 }));
    assert_eq!((builder.size_bytes(), builder.record_count()), (before, 3));
    assert_eq!(read(&verify(&builder.build().expect("a batch"))), sample());
}

#[test]
fn an_estimate_counts_the_header_in_full() {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    assert_eq!(builder.estimated_size_bytes(0.5), 61);
    fill(&mut builder, &sample());
    let records = builder.size_bytes() - 61;
    assert_eq!(builder.estimated_size_bytes(1.0), builder.size_bytes());
    assert_eq!(builder.estimated_size_bytes(0.5), 61 + records / 2);
}

#[test]
fn batches_in_a_row_are_found_and_a_cut_one_ends_the_row() {
    let first = build(Compression::None, &sample());
    let second = build(Compression::Lz4, &sample()[..1]);
    let row = [first.clone(), second.clone()].concat();
    let found: Vec<_> = Batches::new(&row).map(|batch| batch.expect("a batch").bytes().to_vec()).collect();
    assert_eq!(found, [first.clone(), second]);
    let mut cut = Batches::new(&row[..row.len() - 1]);
    assert_eq!(cut.next().expect("the first").expect("whole").bytes(), first);
    assert!(cut.next().expect("the second").is_err());
    assert!(cut.next().is_none());
}

#[test]
fn a_header_is_read_without_its_records() {
    let bytes = build(Compression::None, &sample());
    let header = BatchHeader::parse(&bytes[..61]).expect("a header");
    assert_eq!(header, *verify(&bytes).header());
    assert_eq!(header.size_bytes(), bytes.len());
    assert!(BatchHeader::parse(&bytes[..60]).is_err());
}

#[test]
fn inflated_records_can_be_kept_without_a_copy() {
    let bytes = build(Compression::Snappy, &sample());
    let records = verify(&bytes).records().expect("records");
    let buffer = records.inflated().expect("inflated");
    let first = records.iter().next().expect("a record").expect("a good record");
    assert_eq!(buffer.slice_ref(first.value.expect("a value")), "a".repeat(50));
    let plain = build(Compression::None, &sample());
    assert!(verify(&plain).records().expect("records").inflated().is_none());
}
