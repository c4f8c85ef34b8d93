use std::path::{Path, PathBuf};

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};
use riverrun_journal::{JournalError, JournalOptions};
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{DurabilityLevel, TimestampMs, TopicId};

use super::*;
use crate::partition_log::AppendOptions;
use crate::producer_state::AppendOrigin;
use crate::store::StoreOptions;

const ID: PartitionId = PartitionId { topic: TopicId([1; 16]), index: 0 };
const COUNT: i64 = 24;

const SEGMENT_BYTES: u32 = 300_000;

fn open(sim: &SimEnv) -> LogStore {
    open_with(sim, StoreOptions::default().write_cache_bytes)
}

fn open_with(sim: &SimEnv, write_cache_bytes: u64) -> LogStore {
    let options = StoreOptions {
        journal_dirs: vec![PathBuf::from("/journal")],
        journal: JournalOptions::with_bytes(4 << 20),
        write_cache_bytes,
        ..StoreOptions::default()
    };
    LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap()
}

fn config() -> Arc<LogConfig> {
    config_with(SEGMENT_BYTES)
}

fn config_with(segment_bytes: u32) -> Arc<LogConfig> {
    let durability = DurabilityLevel::SyncSync;
    Arc::new(LogConfig { segment_bytes, durability, ..LogConfig::default() })
}

fn recover(store: &LogStore) -> Result<RecoveryReport, LogError> {
    store.recover(LeaderEpoch(1), |_| Place::In(0, config()))
}

fn partition(store: &LogStore) -> Arc<PartitionLog> {
    store.partition(ID, 0, config(), LeaderEpoch(1)).unwrap()
}

/// Several files of the journal, all of which was settled into segments of this size since the last checkpoint.
fn settled_and_killed(sim: &SimEnv, segment_bytes: u32) {
    let store = open(sim);
    recover(&store).unwrap();
    let log = store.partition(ID, 0, config_with(segment_bytes), LeaderEpoch(1)).unwrap();
    for _ in 0..COUNT {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.append(TimestampMs(0), None, Some(&vec![1; 100_000]), &[]).unwrap();
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    }
    while log.watermarks().synced < Offset(COUNT) {
        std::thread::yield_now();
    }
    store.dirs[0].settle(Haste::AtOnce).unwrap();
    sim.fs.kill();
}

fn names(sim: &SimEnv, dir: &Path, suffix: &str) -> Vec<String> {
    let entries = sim.fs.read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_str().unwrap().to_owned()).collect();
    names.retain(|name| name.ends_with(suffix));
    names.sort_unstable();
    names
}

#[test]
fn a_start_that_is_refused_for_a_later_file_of_the_journal_removes_no_segment() {
    for is_given_up in [false, true] {
        let sim = SimEnv::new(1);
        settled_and_killed(&sim, SEGMENT_BYTES);
        let files = names(&sim, Path::new("/journal"), ".journal");
        assert!(files.len() > 2, "{files:?}");
        let path = |name: &String| Path::new("/journal").join(name);
        let file = sim.fs.open(&path(&files[1]), OpenMode::ReadWrite).unwrap();
        let mut frame = [0; 4096];
        file.read_exact_at(&mut frame, 4096).unwrap();
        file.write_all_at(&[7; 4096], 4096).unwrap();
        let store = open(&sim);
        let dir = store.dirs[0].partition_path(ID);
        let segments = names(&sim, &dir, ".log");
        assert!(segments.len() > 5, "{segments:?}");
        let error = recover(&store).unwrap_err();
        let is_corrupt = matches!(error, LogError::Journal(JournalError::Corrupt { .. }));
        assert!(is_corrupt, "{error}");
        assert_eq!(names(&sim, &dir, ".log"), segments);
        drop(store);
        if is_given_up {
            for name in names(&sim, Path::new("/journal"), ".journal") {
                sim.fs.remove_file(&path(&name)).unwrap();
            }
        } else {
            file.write_all_at(&frame, 4096).unwrap();
        }
        let store = open(&sim);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT), "{is_given_up}");
    }
}

/// The bytes of the partition's segments.
fn segments(sim: &SimEnv, dir: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = riverrun_env::read_whole(&*sim.fs, &dir.join(&name), 1 << 30).unwrap();
        (name, bytes)
    };
    names(sim, dir, ".log").into_iter().map(read).collect()
}

#[test]
fn what_is_damaged_in_a_later_file_of_the_journal_stays_in_the_segments() {
    // In many segments, which a replay removes, and in one, which it would cut when it turns to another.
    for (segment_bytes, write_cache_bytes) in [(SEGMENT_BYTES, 1 << 30), (SEGMENT_BYTES, 1), (1 << 30, 1)] {
        let sim = SimEnv::new(1);
        settled_and_killed(&sim, segment_bytes);
        let files = names(&sim, Path::new("/journal"), ".journal");
        let path = Path::new("/journal").join(&files[1]);
        let file = sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 50_000).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 50_000).unwrap();
        file.sync_all().unwrap();
        let mut before = None;
        // The second start finds in what is aside that something is missing.
        for _ in 0..2 {
            let store = open_with(&sim, write_cache_bytes);
            let dir = store.dirs[0].partition_path(ID);
            let before = before.get_or_insert_with(|| segments(&sim, &dir));
            let report = recover(&store).unwrap();
            assert!(matches!(&report.offline[..], [(ID, LogError::Corrupt { .. })]), "{report:?}");
            assert!(segments(&sim, &dir) == *before, "{:?}", names(&sim, &dir, ".log"));
            store.close().unwrap();
        }
        for name in names(&sim, Path::new("/journal"), "") {
            if name.starts_with("held-") {
                sim.fs.remove_file(&Path::new("/journal").join(name)).unwrap();
            }
        }
        let store = open(&sim);
        recover(&store).unwrap();
        assert_eq!(partition(&store).log_end_offset().unwrap(), Offset(COUNT));
    }
}
