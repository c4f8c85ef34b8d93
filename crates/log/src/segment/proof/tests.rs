//! The remembered ranges, and the flips that are served if the batches' own CRCs are not checked: that bug is planted
//! here, on the thread of the test, because the log decides what it checks.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem, OpenMode, read_whole};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, PartitionId, TimestampMs, TopicId};

use super::*;
use crate::config::LogConfig;
use crate::options::StoreOptions;
use crate::partition_log::{AppendOptions, PartitionLog};
use crate::producer_state::AppendOrigin;
use crate::store::{LogStore, Place};

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const RECORDS: i64 = 3;

thread_local! {
    static BELIEVES_CONTENTS: Cell<bool> = const { Cell::new(false) };
    static IS_EVICTED: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn believes_contents() -> bool {
    BELIEVES_CONTENTS.get()
}

pub(super) fn is_evicted(log: &dyn File, position: u64) -> bool {
    IS_EVICTED.get() || log.is_evicted(position)
}

fn open(sim: &SimEnv) -> LogStore {
    let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
    store.recover(|_| LeaderEpoch(1), |_| Place::In(0, Arc::default())).unwrap();
    store
}

fn partition(store: &LogStore) -> Arc<PartitionLog> {
    store.partition(ID, 0, Arc::new(LogConfig::default()), LeaderEpoch(1)).unwrap()
}

fn append(log: &PartitionLog) {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(b"a value"), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    log.write_staged().unwrap();
}

/// A log with one small segment, on a machine that is off.
fn small_log() -> (SimEnv, PathBuf) {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = partition(&store);
    for _ in 0..RECORDS {
        append(&log);
    }
    let path = log.path().join(format!("{:020}.log", 0));
    store.close().unwrap();
    (sim, path)
}

fn put(sim: &SimEnv, path: &Path, bytes: &[u8]) {
    let file = sim.fs.open(path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
}

fn read(log: &PartitionLog) -> Result<Vec<u8>, String> {
    let slice = log.read(Offset(0), 1 << 20, Offset(RECORDS), true).map_err(|error| error.to_string())?;
    Ok(slice.chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap()).collect())
}

/// Number of a segment's bytes that are served although they were flipped.
fn served_flips(believes: bool) -> usize {
    BELIEVES_CONTENTS.set(believes);
    let (sim, path) = small_log();
    let intact = read_whole(&*sim.fs, &path, 1 << 20).unwrap();
    let is_served = |position: &usize| {
        let mut flipped = intact.clone();
        flipped[*position] ^= 1 << (position % 8);
        put(&sim, &path, &flipped);
        let store = open(&sim);
        let served = read(&partition(&store));
        store.close().unwrap();
        put(&sim, &path, &intact);
        let marker = path.with_extension("damaged");
        if sim.fs.exists(&marker).unwrap() {
            sim.fs.remove_file(&marker).unwrap();
        }
        served.is_ok_and(|served| served != intact)
    };
    let count = (0..intact.len()).filter(is_served).count();
    assert_eq!(read(&partition(&open(&sim))), Ok(intact));
    BELIEVES_CONTENTS.set(false);
    count
}

#[test]
fn flipped_bytes_are_not_served_and_the_planted_bug_is_found() {
    assert_eq!(served_flips(false), 0);
    assert!(served_flips(true) > 50);
}

#[test]
fn proved_and_newly_written_ranges_are_not_proved_again() {
    let (sim, path) = small_log();
    let store = open(&sim);
    let log = partition(&store);
    append(&log);
    let segment = log.open().unwrap().view().segments[0].clone();
    let size = sim.fs.open(&path, OpenMode::Read).unwrap().len().unwrap();
    let old = size / 4 * 3;
    assert!(!segment.is_proved(0, old) && !segment.is_proved(0, size) && segment.is_proved(old, size));
    assert!(log.read(Offset(0), 1 << 20, Offset(RECORDS + 1), true).unwrap().met_disk);
    assert!(segment.is_proved(0, old) && segment.is_proved(0, size));
    assert!(!log.read(Offset(0), 1 << 20, Offset(RECORDS + 1), true).unwrap().met_disk);
}

#[test]
fn evicted_range_is_proved_again_once_its_segment_is_complete() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let config = LogConfig { segment_bytes: 250, ..LogConfig::default() };
    let log = store.partition(ID, 0, Arc::new(config), LeaderEpoch(1)).unwrap();
    for _ in 0..=RECORDS {
        append(&log);
    }
    let segments = log.open().unwrap().view().segments.clone();
    assert!(segments.len() > 1 && segments[0].extent().is_some());
    let intact = read(&log).unwrap();
    let path = segments[0].log_path();
    // The last byte of an offset: bytes that this process has written are believed as long as they stay in memory.
    let mut flipped = intact.clone();
    let second =
        BatchHeader::parse(intact.first_chunk::<{ layout::HEADER_BYTES }>().unwrap()).unwrap().size_bytes();
    flipped[second + 7] ^= 1 << 5;
    put(&sim, &path, &flipped);
    assert_eq!(read(&log), Ok(flipped));
    IS_EVICTED.set(true);
    let last = segments.last().unwrap();
    last.forget_if_evicted(0, u64::MAX).unwrap();
    let known = (last.is_proved(0, 1), segments[0].is_proved(0, 1));
    let refused = read(&log);
    IS_EVICTED.set(false);
    assert_eq!(known, (true, true), "one that is written to says nothing of memory");
    let error = refused.unwrap_err();
    assert!(error.contains("00000000.log"), "{error}");
}

#[test]
fn ranges_that_meet_become_one_and_the_shortest_is_forgotten() {
    let mut ranges = Ranges::default();
    for (start, end) in [(10, 20), (30, 40), (50, 60)] {
        ranges.insert(start, end);
    }
    assert!(ranges.holds(12, 20) && !ranges.holds(15, 35) && !ranges.holds(20, 30));
    assert_eq!((ranges.held_upto(9), ranges.held_upto(10), ranges.held_upto(20)), (9, 20, 20));
    ranges.insert(20, 31);
    assert_eq!(ranges.0, [(10, 40), (50, 60)]);
    for number in (10..100).chain((10..100).rev()) {
        ranges.insert(number * 10, number * 10 + 1);
        assert!(ranges.holds(number * 10, number * 10 + 1));
    }
    assert_eq!(ranges.0.len(), RANGES_MAX);
    assert!(ranges.0.is_sorted());
    assert!(ranges.holds(10, 40) && ranges.holds(50, 60), "the longest");
    assert!(ranges.holds(100, 101), "of those alike the first, which each new reader reads");
}
