//! Lookups where an index of older days has entries far apart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem, OpenMode, read_whole};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, PartitionId, TimestampMs, TopicId};

use super::*;
use crate::config::LogConfig;
use crate::error::ReadError;
use crate::index::{ENTRY_BYTES, HEADER_BYTES, IndexHeader};
use crate::partition_log::{AppendOptions, PartitionLog, Patience, TimeSearch};
use crate::producer_state::AppendOrigin;
use crate::store::{LogStore, Place, StoreOptions};

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
/// Of each batch, which has one record.
const VALUE_BYTES: usize = 10_000;
const BATCHES: i64 = 1_000;
/// Offsets in the segment that is complete: more than is read at once.
const MIDDLE: Offset = Offset(400);

fn open(sim: &SimEnv) -> (LogStore, Arc<PartitionLog>) {
    let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
    store.recover(LeaderEpoch(1), |_| Place::In(0, Arc::default())).unwrap();
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

/// Leaves of all entries the last one.
fn make_sparse(sim: &SimEnv, log_path: &Path) {
    let codec = IndexHeader { partition: ID, base_offset: Offset(0) }.codec();
    let index = index_of(sim, log_path);
    let count = (index.len() - HEADER_BYTES) / ENTRY_BYTES;
    let last = codec.decode(u32::try_from(count - 1).unwrap(), &index[index.len() - ENTRY_BYTES..]).unwrap();
    let file = sim.fs.open(&log_path.with_extension("index"), OpenMode::ReadWrite).unwrap();
    file.set_len(HEADER_BYTES as u64).unwrap();
    file.write_all_at(&codec.encode(0, last), HEADER_BYTES as u64).unwrap();
    file.sync_all().unwrap();
}

fn read(log: &PartitionLog, patience: Patience) -> Result<Offset, ReadError> {
    log.read_with(patience, MIDDLE, 1, Offset(BATCHES), true).map(|slice| slice.next_offset)
}

#[test]
fn a_read_far_from_its_index_waits_in_slices_until_that_is_dense() {
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
    assert!(index_of(&sim, &path) == dense, "the index is what it would be today");
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
    assert_eq!(outcome, Some(Offset(MIDDLE.0 + 1)), "what is right is read as before");
    store.close().unwrap();
    assert!(index_of(&sim, &path) == sparse);
}
