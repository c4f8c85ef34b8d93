//! Lookups in an index of older days whose entries lie far apart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem, OpenMode, read_whole};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, PartitionId, TimestampMs, TopicId};

use super::*;
use crate::compaction::execute::Unhindered;
use crate::config::LogConfig;
use crate::error::ReadError;
use crate::index::{ENTRY_BYTES, HEADER_BYTES, IndexHeader};
use crate::options::StoreOptions;
use crate::partition_log::{AppendOptions, PartitionLog, Patience, TimeSearch};
use crate::producer_state::AppendOrigin;
use crate::store::{LogStore, Place};

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
/// Bytes of each batch's one record.
const VALUE_BYTES: usize = 10_000;
const BATCHES: i64 = 1_000;
/// Offsets in the segment that is complete: more than is read at once.
const MIDDLE: Offset = Offset(400);

fn open(sim: &SimEnv) -> (LogStore, Arc<PartitionLog>) {
    let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
    store.recover(|_| LeaderEpoch(1), |_| Place::In(0, Arc::default())).unwrap();
    let config = LogConfig { segment_bytes: 9_000_000, ..LogConfig::default() };
    let log = store.partition(ID, 0, Arc::new(config), LeaderEpoch(1)).unwrap();
    (store, log)
}

/// A log with one complete segment and one that is written to, on a machine that is off; the complete one's `.log`.
fn two_segments() -> (SimEnv, PathBuf) {
    let sim = SimEnv::new(1);
    let (store, log) = open(&sim);
    for number in 0..BATCHES {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.append(TimestampMs(number), None, Some(&[7; VALUE_BYTES]), &[]).unwrap();
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(number) };
        log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
        log.write_staged().unwrap();
    }
    let path = log.path().join(format!("{:020}.log", 0));
    store.close().unwrap();
    (sim, path)
}

fn index_of(sim: &SimEnv, log_path: &Path) -> Vec<u8> {
    read_whole(&*sim.fs, &log_path.with_extension("index"), 1 << 20).unwrap()
}

/// Leaves the last of all entries.
fn make_sparse(sim: &SimEnv, log_path: &Path) {
    put_index(sim, log_path, |last| vec![last]);
}

/// Leaves the last entry, so often that the index is longer than a dense one.
fn make_long(sim: &SimEnv, log_path: &Path) {
    put_index(sim, log_path, |last| vec![last; 1_500]);
}

/// Makes the index of these entries, made of the last one.
fn put_index(sim: &SimEnv, log_path: &Path, make: impl Fn(IndexEntry) -> Vec<IndexEntry>) {
    let codec = IndexHeader { partition: ID, base_offset: Offset(0) }.codec();
    let mut index = index_of(sim, log_path);
    let count = (index.len() - HEADER_BYTES) / ENTRY_BYTES;
    let last = codec.decode(u32::try_from(count - 1).unwrap(), &index[index.len() - ENTRY_BYTES..]).unwrap();
    index.truncate(HEADER_BYTES);
    index.extend((0_u32..).zip(make(last)).flat_map(|(number, entry)| codec.encode(number, entry)));
    put(sim, log_path, &index);
}

fn put(sim: &SimEnv, log_path: &Path, index: &[u8]) {
    let file = sim.fs.open(&log_path.with_extension("index"), OpenMode::ReadWrite).unwrap();
    file.set_len(0).unwrap();
    file.write_all_at(index, 0).unwrap();
    file.sync_all().unwrap();
}

/// A disk of its own with the same bytes on it, all synced.
fn fork(sim: &SimEnv) -> SimEnv {
    sim.crash_states(1).next().unwrap()
}

/// The complete segment, after the batches for its dense index were read.
fn read_for_index(log: &PartitionLog) -> Arc<Segment> {
    let segment = log.open().unwrap().view().segments[0].clone();
    while segment.read_for_index() == Dense::NotYet {}
    segment
}

fn read(log: &PartitionLog, patience: Patience) -> Result<Offset, ReadError> {
    log.read_with(patience, MIDDLE, 1, Offset(BATCHES), true).map(|slice| slice.next_offset)
}

#[test]
fn read_far_from_its_index_waits_in_slices_for_a_dense_one() {
    let (sim, path) = two_segments();
    let dense = index_of(&sim, &path);
    make_sparse(&sim, &path);
    let (store, log) = open(&sim);
    let far = |outcome| matches!(outcome, Err(ReadError::FarFromIndex));
    assert!(far(read(&log, Patience::None)) && far(read(&log, Patience::None)));
    let slices = (1..100).find(|_| !far(read(&log, Patience::Slice)));
    let pieces = 9_000_000 / DENSE_AT_ONCE_BYTES + 1;
    assert_eq!(slices, Some(pieces + 1), "it is read in pieces, and read once");
    assert_eq!(read(&log, Patience::None).unwrap(), Offset(MIDDLE.0 + 1));
    store.close().unwrap();
    assert!(index_of(&sim, &path) == dense, "the index is as a new one");
    let (_store, log) = open(&sim);
    assert_eq!(read(&log, Patience::None).unwrap(), Offset(MIDDLE.0 + 1));
}

#[test]
fn a_search_by_time_gives_way_while_an_index_is_made_dense() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (_store, log) = open(&sim);
    let mut search = TimeSearch::first_from(TimestampMs(MIDDLE.0));
    let mut slices = 1;
    let found = loop {
        match log.search_by_time(&mut search, &mut || false).unwrap() {
            Poll::Ready(found) => break found,
            Poll::Pending => slices += 1,
        }
    };
    assert_eq!(found, Some((TimestampMs(MIDDLE.0), MIDDLE, LeaderEpoch(1))));
    assert!(slices > 3, "{slices}");
    let mut again = TimeSearch::first_from(TimestampMs(MIDDLE.0));
    let at_once = log.search_by_time(&mut again, &mut || false).unwrap();
    assert_eq!(at_once, Poll::Ready(found));
}

#[test]
fn an_index_stays_as_it_is_where_its_segment_is_damaged() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let sparse = index_of(&sim, &path);
    let file = sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
    let last = file.len().unwrap() - 10;
    file.write_all_at(&[8], last).unwrap();
    file.sync_all().unwrap();
    let (store, log) = open(&sim);
    let outcome = (0..10).find_map(|_| read(&log, Patience::Slice).ok());
    assert_eq!(outcome, Some(Offset(MIDDLE.0 + 1)), "intact batches are read as before");
    store.close().unwrap();
    assert!(index_of(&sim, &path) == sparse);
}

#[test]
fn lookups_prove_what_they_find_while_the_index_is_written() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (_store, log) = open(&sim);
    let segment = read_for_index(&log);
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    let (fs, looked_at) = (sim.fs.clone(), segment.clone());
    sim.fs.during_next_sync(move || {
        let holds = |entry: &IndexEntry| i64::from(entry.relative_offset) <= MIDDLE.0;
        let position = u64::from(looked_at.last_entry_where(holds).unwrap().position);
        // The last byte of an offset.
        fs.open(&path, OpenMode::ReadWrite).unwrap().write_all_at(&[0xff], position + 7).unwrap();
        send.send((position, looked_at.prove_headers(position, position + 1))).unwrap();
    });
    segment.replace_index().unwrap();
    let (position, proof) = receive.recv().unwrap();
    assert!(position > 400 * VALUE_BYTES as u64, "it is found by the dense index");
    assert!(matches!(proof, Err(LogError::Corrupt { .. })), "{proof:?}");
}

#[test]
fn a_lookup_that_has_begun_sees_no_two_indexes() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (_store, log) = open(&sim);
    let segment = read_for_index(&log);
    let replaced = segment.clone();
    sim.fs.during_next_read(move || replaced.replace_index().unwrap());
    let middle = 400 * VALUE_BYTES as u64;
    let after = segment.first_entry_from(middle).unwrap().map(|entry| u64::from(entry.position));
    assert!(after.is_some_and(|after| after < middle + 2 * VALUE_BYTES as u64), "{after:?}");
}

#[test]
fn a_disk_that_refuses_a_dense_index_fails_its_dir() {
    for fails_sync in [false, true] {
        let (sim, path) = two_segments();
        make_sparse(&sim, &path);
        let (store, log) = open(&sim);
        read_for_index(&log);
        if fails_sync {
            sim.fs.fail_sync_after(0);
        } else {
            sim.fs.fail_write_after(0);
        }
        assert!(matches!(read(&log, Patience::Slice), Err(ReadError::FarFromIndex)));
        assert!(log.dir().has_failed());
        assert_eq!(read(&log, Patience::None).unwrap(), Offset(MIDDLE.0 + 1), "memory has it");
        drop((store, log));
        sim.fs.kill();
        check_reads(&sim, &path);
    }
}

#[test]
fn a_full_disk_leaves_the_dense_index_in_memory() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (store, log) = open(&sim);
    read_for_index(&log);
    sim.fs.set_space(Some(5_000));
    assert!(matches!(read(&log, Patience::Slice), Err(ReadError::FarFromIndex)));
    assert!(!log.dir().has_failed());
    assert_eq!(read(&log, Patience::None).unwrap(), Offset(MIDDLE.0 + 1));
    drop((store, log));
    sim.fs.set_space(None);
    sim.fs.kill();
    check_reads(&sim, &path);
}

#[test]
fn nothing_stays_behind_an_index_that_became_shorter() {
    let (sim, path) = two_segments();
    let dense = index_of(&sim, &path);
    make_long(&sim, &path);
    let (_store, log) = open(&sim);
    read_for_index(&log).replace_index().unwrap();
    assert!(index_of(&sim, &path) == dense);
}

#[test]
fn an_index_is_made_dense_once() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (_store, log) = open(&sim);
    let segment = read_for_index(&log);
    let has_scan = || matches!(*segment.densing.lock(), Densing::UnderWay { .. });
    assert!(has_scan());
    segment.replace_index().unwrap();
    // As for a reader that has waited meanwhile.
    assert_eq!(segment.read_for_index(), Dense::Never);
    assert!(!has_scan());
    let open = log.open().unwrap();
    let size_bytes = segment.extent().unwrap().size_bytes;
    assert_eq!(open.dense_at(&segment, IndexEntry::START, size_bytes).unwrap(), Dense::Yes);
}

#[test]
fn a_scan_that_nobody_goes_on_with_is_forgotten() {
    let (sim, path) = two_segments();
    make_sparse(&sim, &path);
    let (_store, log) = open(&sim);
    assert!(read(&log, Patience::Slice).is_err());
    let segment = log.open().unwrap().view().segments[0].clone();
    let has_scan = || matches!(*segment.densing.lock(), Densing::UnderWay { .. });
    segment.close_unused_files();
    assert!(has_scan(), "it was used since the last look");
    segment.close_unused_files();
    assert!(!has_scan());
}

#[test]
fn many_flaws_of_an_index_have_it_rebuilt_once() {
    let (sim, path) = two_segments();
    let dense = index_of(&sim, &path);
    put_index(&sim, &path, |last| {
        let astray = (1..500).map(|number| IndexEntry {
            relative_offset: number,
            position: number * 15_000,
            ..IndexEntry::START
        });
        astray.chain([last]).collect()
    });
    let (_store, log) = open(&sim);
    let scrubbed = log.scrub(Offset(0), u64::MAX, &Unhindered).unwrap();
    assert_eq!((scrubbed.segments, scrubbed.indexes_rebuilt), (1, 1));
    assert!(index_of(&sim, &path) == dense);
}

/// All is served, the log has no damage, and the index ends up dense.
fn check_reads(sim: &SimEnv, path: &Path) {
    let (_store, log) = open(sim);
    for offset in (0..BATCHES).step_by(190) {
        let slice = log.read(Offset(offset), 1, Offset(BATCHES), true).unwrap();
        assert_eq!(slice.next_offset, Offset(offset + 1));
    }
    assert!(log.damage().is_none() && !sim.fs.exists(&path.with_extension("damaged")).unwrap());
    let slices = (1..100).find(|_| read(&log, Patience::Slice).is_ok());
    assert!(slices.is_some());
}

#[test]
fn an_index_half_of_which_is_new_blames_no_log() {
    let (sim, path) = two_segments();
    let dense = index_of(&sim, &path);
    for make_old in [make_sparse, make_long] {
        make_old(&sim, &path);
        let old = index_of(&sim, &path);
        let half = dense.len() / 2;
        for written in [HEADER_BYTES + ENTRY_BYTES, half / ENTRY_BYTES * ENTRY_BYTES, half + 7, dense.len()] {
            let mut mixed = dense[..written].to_vec();
            put(&sim, &path, &mixed);
            check_reads(&fork(&sim), &path);
            mixed.extend(old.iter().skip(written));
            put(&sim, &path, &mixed);
            check_reads(&fork(&sim), &path);
            mixed.resize(dense.len().max(mixed.len()), 0);
            put(&sim, &path, &mixed);
            check_reads(&fork(&sim), &path);
        }
        put(&sim, &path, &dense);
    }
}

#[test]
fn a_power_cut_while_an_index_is_made_dense_blames_no_log() {
    let mut states = 0;
    for make_old in [make_sparse, make_long] {
        let (sim, path) = two_segments();
        make_old(&sim, &path);
        for (stop, is_torn) in [(0, false), (1, false), (1, true), (2, false), (2, true), (3, false)] {
            let sim = fork(&sim);
            let (_store, log) = open(&sim);
            let segment = read_for_index(&log);
            sim.fs.tear_blocks(is_torn);
            sim.fs.stop_after(stop);
            _ = segment.replace_index();
            for state in sim.crash_states(4) {
                check_reads(&state, &path);
                states += 1;
            }
        }
    }
    assert!(states > 20, "{states}");
}
