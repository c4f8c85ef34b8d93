//! Batches of the Java client are read as it meant them, and batches built here are the same bytes.

use riverrun_records::{
    Batch, BatchBuilder, BatchError, BatchOptions, Compression, Header, ProduceRules, ProducerStamp, Record,
    TimestampType, Timestamps, UnverifiedBatch, validate_produced,
};
use riverrun_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

const FIRST: i64 = 1_700_000_000_000;
const APPENDED: TimestampMs = TimestampMs(1_800_000_000_000);
const STAMP: ProducerStamp =
    ProducerStamp { id: ProducerId(4242), epoch: ProducerEpoch(7), base_sequence: 11 };

struct Expected {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<Header<'static>>,
}

fn expected() -> Vec<Expected> {
    let record = |timestamp, key: Option<&str>, value: Option<&str>| Expected {
        timestamp,
        key: key.map(|key| key.as_bytes().to_vec()),
        value: value.map(|value| value.as_bytes().to_vec()),
        headers: Vec::new(),
    };
    let mut second = record(FIRST + 5, None, Some("two"));
    second.headers = vec![
        Header { key: b"trace", value: Some(&[1, 2]) },
        Header { key: b"empty", value: None },
        Header { key: b"trace", value: Some(&[]) },
    ];
    vec![
        record(FIRST, Some("alpha"), Some("one")),
        second,
        record(FIRST - 3, Some("beta"), None),
        record(FIRST + 1000, Some(""), Some(&"r".repeat(300))),
    ]
}

fn java_batches() -> Vec<(&'static str, Vec<u8>)> {
    let mut batches: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in include_str!("../testdata/java-batches.txt").lines() {
        let line = line.trim();
        if let Some(name) = line.strip_suffix(':') {
            batches.push((name, Vec::new()));
        } else if !line.is_empty() && !line.starts_with('#') {
            let (_, bytes) = batches.last_mut().expect("a name stands before the bytes");
            let pairs = (0..line.len()).step_by(2).map(|at| &line[at..at + 2]);
            bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")));
        }
    }
    batches
}

fn java_batch(name: &str) -> Vec<u8> {
    let found = java_batches().into_iter().find(|(known, _)| *known == name);
    found.expect("a batch of that name in testdata").1
}

fn verify(bytes: &[u8]) -> Batch<'_> {
    UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).expect("a good batch")
}

fn assert_records(name: &str, batch: &Batch<'_>, timestamp_of: impl Fn(&Expected) -> i64) {
    let records = batch.records().expect("readable records");
    let records: Vec<Record<'_>> = records.iter().collect::<Result<_, BatchError>>().expect("good records");
    let expected = expected();
    assert_eq!(records.len(), expected.len(), "{name}");
    for (index, (record, expected)) in records.iter().zip(&expected).enumerate() {
        assert_eq!(record.offset, batch.base_offset().plus(index as i64), "{name}");
        assert_eq!(record.timestamp, TimestampMs(timestamp_of(expected)), "{name}");
        assert_eq!(record.key, expected.key.as_deref(), "{name}");
        assert_eq!(record.value, expected.value.as_deref(), "{name}");
        assert_eq!(record.headers().collect::<Vec<_>>(), expected.headers, "{name}");
    }
}

fn ours(options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for record in expected() {
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder
            .append(TimestampMs(record.timestamp), key, value, &record.headers)
            .expect("room for a record");
    }
    builder.build().expect("a batch")
}

#[test]
fn batches_of_the_java_client_are_read_in_each_codec() {
    let batches = java_batches();
    let created = batches.iter().filter(|(name, _)| name.starts_with("create-time-"));
    let mut codecs = Vec::new();
    for (name, bytes) in created {
        let batch = verify(bytes);
        codecs.push(batch.compression());
        assert_eq!(batch.leader_epoch(), LeaderEpoch(3));
        assert_eq!((batch.producer_id(), batch.producer_epoch()), (STAMP.id, STAMP.epoch));
        assert_eq!((batch.base_sequence(), batch.last_sequence()), (11, 14));
        assert_eq!(batch.last_offset(), Offset(3));
        let info = validate_produced(&batch, &ProduceRules::default()).expect("a client may send it");
        assert_eq!(info.max_timestamp, batch.max_timestamp(), "{name}");
        assert_eq!(info.max_timestamp_offset_delta, 3, "{name}");
        assert_records(name, &batch, |record| record.timestamp);
    }
    assert!(Compression::ALL.iter().all(|codec| codecs.contains(codec)), "{codecs:?}");
}

#[test]
fn append_time_replaces_the_records_timestamps() {
    let bytes = java_batch("append-time-none");
    let batch = verify(&bytes);
    assert_eq!(batch.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(batch.base_offset(), Offset(900));
    assert!(!batch.has_producer_id());
    assert_records("append-time-none", &batch, |_| APPENDED.0);
}

#[test]
fn an_uncompressed_batch_is_the_same_bytes_as_the_java_clients() {
    let created =
        ours(BatchOptions { leader_epoch: LeaderEpoch(3), producer: STAMP, ..BatchOptions::default() });
    assert_eq!(created, java_batch("create-time-none"));
    let appended = ours(BatchOptions {
        base_offset: Offset(900),
        timestamps: Timestamps::Append(APPENDED),
        ..BatchOptions::default()
    });
    assert_eq!(appended, java_batch("append-time-none"));
}
