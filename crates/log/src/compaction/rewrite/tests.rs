use riverrun_records::{BatchOptions, Compression, ProducerStamp, Timestamps, UnverifiedBatch};
use riverrun_types::{LeaderEpoch, ProducerEpoch};

use super::*;
use crate::compaction::offset_map::OffsetMapOptions;

const NOW: TimestampMs = TimestampMs(1_000_000);
const RETENTION_MS: u64 = 500;

type Fields<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A batch at `base` with one record for each field pair, timestamps 100, 101 and so on.
fn batch(base: i64, options: BatchOptions, records: &[Fields<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: Offset(base),
        leader_epoch: LeaderEpoch(4),
        ..options
    });
    for (timestamp, (key, value)) in (100..).zip(records) {
        builder.append(TimestampMs(timestamp), *key, *value, &[]).unwrap();
    }
    builder.build().unwrap()
}

fn verify(bytes: &[u8]) -> Batch<'_> {
    UnverifiedBatch::only(bytes).unwrap().verify().unwrap()
}

/// Offsets and values of a batch's records.
fn records(bytes: &[u8]) -> Vec<(i64, Option<Vec<u8>>)> {
    let batch = verify(bytes);
    let records = batch.records().unwrap();
    records.iter().map(|record| record.unwrap()).map(|r| (r.offset.0, r.value.map(<[u8]>::to_vec))).collect()
}

fn map(last: &[(&[u8], i64)]) -> OffsetMap {
    let options = OffsetMapOptions { buffer_bytes: 10_000, load_factor: 0.9, keys_max: 100, seed: [1, 2] };
    let mut map = OffsetMap::new(options);
    for (key, offset) in last {
        assert!(map.put(key, Offset(*offset)));
    }
    map
}

/// Everything is dirty, everything below 100 is mapped, the round ends at 1000, no producer is idempotent.
fn rules<'a>(map: &'a OffsetMap, last_offsets: &'a BTreeMap<ProducerId, Offset>) -> RewriteRules<'a> {
    RewriteRules {
        map,
        first_dirty: Offset(0),
        mapped_end: Offset(100),
        segment_end: Offset(1000),
        last_offsets,
        now: NOW,
        delete_retention_ms: RETENTION_MS,
    }
}

fn run(bytes: &[u8], last: &[(&[u8], i64)]) -> (Rewritten, RecordCounts) {
    let map = map(last);
    rewrite(&verify(bytes), &rules(&map, &BTreeMap::new())).unwrap()
}

fn rebuilt(rewritten: Rewritten) -> Vec<u8> {
    match rewritten {
        Rewritten::Rebuilt(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

const A: Option<&[u8]> = Some(b"a");
const B: Option<&[u8]> = Some(b"b");
const V: Option<&[u8]> = Some(b"value");

#[test]
fn a_batch_whose_records_all_stay_keeps_its_bytes() {
    let bytes = batch(10, BatchOptions::default(), &[(A, V), (B, V)]);
    let counts = RecordCounts { read: 2, kept: 2, keyless: 0 };
    assert_eq!(run(&bytes, &[(b"a", 10), (b"b", 11)]), (Rewritten::Kept, counts));
    // Keys that the dirty part does not have were already the last ones.
    assert_eq!(run(&bytes, &[]), (Rewritten::Kept, counts));
}

#[test]
fn superseded_records_go_and_others_keep_all_their_fields() {
    for compression in Compression::ALL {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        let bytes = batch(10, options, &[(A, V), (B, V), (A, Some(b"newer"))]);
        let (rewritten, counts) = run(&bytes, &[(b"a", 12), (b"b", 50)]);
        let bytes = rebuilt(rewritten);
        let batch = verify(&bytes);
        assert_eq!(counts, RecordCounts { read: 3, kept: 1, keyless: 0 });
        assert_eq!(records(&bytes), [(12, Some(b"newer".to_vec()))]);
        assert_eq!((batch.base_offset(), batch.last_offset()), (Offset(10), Offset(12)));
        assert_eq!(batch.max_timestamp(), TimestampMs(102));
        assert_eq!((batch.compression(), batch.leader_epoch()), (compression, LeaderEpoch(4)));
        assert!(!batch.has_delete_horizon());
    }
}

#[test]
fn a_batch_of_which_nothing_stays_is_dropped() {
    let bytes = batch(10, BatchOptions::default(), &[(A, V), (B, V)]);
    let (rewritten, counts) = run(&bytes, &[(b"a", 12), (b"b", 50)]);
    assert_eq!((rewritten, counts.kept), (Rewritten::Dropped, 0));
}

#[test]
fn records_without_a_key_go_and_are_counted() {
    let bytes = batch(10, BatchOptions::default(), &[(None, V), (A, V)]);
    let (rewritten, counts) = run(&bytes, &[(b"a", 11)]);
    assert_eq!(records(&rebuilt(rewritten)), [(11, Some(b"value".to_vec()))]);
    assert_eq!(counts, RecordCounts { read: 2, kept: 1, keyless: 1 });
}

#[test]
fn records_beyond_the_map_stay_one_by_one() {
    let beyond = batch(100, BatchOptions::default(), &[(A, V), (A, V), (None, V)]);
    assert_eq!(run(&beyond, &[(b"a", 101)]).0, Rewritten::Kept);
    // The map ends inside this batch, at 100.
    let across = batch(98, BatchOptions::default(), &[(A, V), (A, V), (A, V), (A, V)]);
    let (rewritten, _) = run(&across, &[(b"a", 99)]);
    assert_eq!(
        records(&rebuilt(rewritten)).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
        [99, 100, 101]
    );
}

#[test]
fn tombstone_goes_at_the_horizon_that_its_first_compaction_sets() {
    let bytes = batch(10, BatchOptions::default(), &[(A, None), (B, V)]);
    let map = map(&[(b"a", 10), (b"b", 11)]);
    let nobody = BTreeMap::new();
    let dirty_at = |now: i64| RewriteRules { now: TimestampMs(now), ..rules(&map, &nobody) };
    let clean_at = |now: i64| RewriteRules { first_dirty: Offset(20), ..dirty_at(now) };

    let first = rebuilt(rewrite(&verify(&bytes), &dirty_at(1000)).unwrap().0);
    assert_eq!(verify(&first).delete_horizon(), Some(TimestampMs(1500)));
    assert_eq!(records(&first), [(10, None), (11, Some(b"value".to_vec()))]);
    let times = |bytes: &[u8]| -> Vec<_> {
        verify(bytes).records().unwrap().iter().map(|record| record.unwrap().timestamp.0).collect()
    };
    assert_eq!(times(&first), [100, 101], "timestamps do not move with the horizon");

    assert_eq!(rewrite(&verify(&first), &clean_at(1499)).unwrap().0, Rewritten::Kept, "the horizon stays");
    let last = rebuilt(rewrite(&verify(&first), &clean_at(1500)).unwrap().0);
    assert_eq!(records(&last), [(11, Some(b"value".to_vec()))]);
    assert_eq!(verify(&last).delete_horizon(), Some(TimestampMs(1500)));
    assert_eq!(times(&last), [101]);

    let again = rebuilt(rewrite(&verify(&first), &dirty_at(1700)).unwrap().0);
    assert_eq!(
        verify(&again).delete_horizon(),
        Some(TimestampMs(2200)),
        "the run before did not get this far"
    );
    assert_eq!(records(&again), records(&first));
}

#[test]
fn a_superseded_tombstone_goes_at_once_and_starts_no_horizon() {
    let bytes = batch(10, BatchOptions::default(), &[(A, None), (B, V)]);
    let kept = rebuilt(run(&bytes, &[(b"a", 40), (b"b", 11)]).0);
    assert_eq!(records(&kept), [(11, Some(b"value".to_vec()))]);
    assert!(!verify(&kept).has_delete_horizon());
}

#[test]
fn a_batch_with_a_producers_last_sequence_stays_as_a_header() {
    let producer = ProducerStamp { id: ProducerId(9), epoch: ProducerEpoch(2), base_sequence: 40 };
    let options = BatchOptions { producer, compression: Compression::Zstd, ..BatchOptions::default() };
    let bytes = batch(10, options, &[(A, V), (A, V), (A, V)]);
    let map = map(&[(b"a", 60)]);
    let with_last = |last: i64| BTreeMap::from([(ProducerId(9), Offset(last))]);

    let last = with_last(12);
    let empty = rebuilt(rewrite(&verify(&bytes), &rules(&map, &last)).unwrap().0);
    let header = verify(&empty);
    assert_eq!((header.record_count(), header.last_offset()), (0, Offset(12)));
    assert_eq!((header.producer_id(), header.producer_epoch()), (ProducerId(9), ProducerEpoch(2)));
    assert_eq!((header.base_sequence(), header.last_sequence()), (40, 42));
    assert_eq!(header.max_timestamp(), TimestampMs(102));
    assert_eq!(rewrite(&header, &rules(&map, &last)).unwrap().0, Rewritten::Kept, "and again");

    for moved_on in [with_last(80), BTreeMap::new()] {
        assert_eq!(rewrite(&header, &rules(&map, &moved_on)).unwrap().0, Rewritten::Dropped);
        assert_eq!(rewrite(&verify(&bytes), &rules(&map, &moved_on)).unwrap().0, Rewritten::Dropped);
    }
}

#[test]
fn the_last_batch_of_the_round_stays_as_a_header() {
    let bytes = batch(10, BatchOptions::default(), &[(A, V), (B, V)]);
    let map = map(&[(b"a", 60), (b"b", 61)]);
    let nobody = BTreeMap::new();
    let ends_at = |end: i64| RewriteRules { segment_end: Offset(end), ..rules(&map, &nobody) };
    let empty = rebuilt(rewrite(&verify(&bytes), &ends_at(12)).unwrap().0);
    assert_eq!((verify(&empty).record_count(), verify(&empty).next_offset()), (0, Offset(12)));
    assert_eq!(rewrite(&verify(&bytes), &ends_at(13)).unwrap().0, Rewritten::Dropped);
}

#[test]
fn control_batches_stay() {
    let options = BatchOptions { control: true, ..BatchOptions::default() };
    let bytes = batch(10, options, &[(A, V)]);
    assert_eq!(run(&bytes, &[(b"a", 60)]).0, Rewritten::Kept);
}

#[test]
fn append_time_is_not_changed_by_what_stays() {
    let options =
        BatchOptions { timestamps: Timestamps::Append(TimestampMs(777)), ..BatchOptions::default() };
    let bytes = batch(10, options, &[(A, V), (B, V)]);
    let kept = rebuilt(run(&bytes, &[(b"a", 60), (b"b", 11)]).0);
    assert_eq!(verify(&kept).max_timestamp(), TimestampMs(777));
}
