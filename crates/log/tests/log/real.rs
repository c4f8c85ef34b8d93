//! The same log on the real file system.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::Env;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, LogStore, StoreOptions};
use riverrun_records::BatchOptions;
use riverrun_types::{LeaderEpoch, Offset, PartitionId, TimestampMs, TopicId};

use crate::machine::{batch_at, put};

fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([3; 16]), index }
}

/// Records of the test with several threads.
const RECORDS: i64 = 3000;
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

#[test]
fn records_survive_a_restart_and_ranges_can_be_sent() {
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let config = Arc::new(LogConfig { segment_bytes: 100_000, ..LogConfig::default() });
    let value = "x".repeat(1000);
    for start in 1..=3_i64 {
        let store = LogStore::open(&Env::real(), &dirs, StoreOptions::default()).unwrap();
        let epoch = LeaderEpoch(i32::try_from(start).unwrap());
        let log = store.partition(partition(0), 0, config.clone(), epoch).unwrap();
        for _ in 0..200 {
            let batch = batch_at(&[(NOW.0, &value)], BatchOptions::default());
            put(&log, &batch, AppendOptions { origin: AppendOrigin::Client, now: NOW }).unwrap();
        }
        let end = Offset(200 * start);
        assert_eq!(log.log_end_offset().unwrap(), end);
        let mut from = Offset(0);
        while from < end {
            let slice = log.read(from, 1 << 20, end, true).unwrap();
            assert!(slice.next_offset > from);
            from = slice.next_offset;
        }
        // The second life ends without a close.
        if start != 2 {
            store.close().unwrap();
        }
    }
}

#[test]
fn linked_partition_is_known_without_a_checkpoint_and_deletable() {
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let open = || LogStore::open(&Env::real(), &dirs, StoreOptions::default()).unwrap();
    let config = Arc::new(LogConfig::default());
    let store = open();
    let mut paths = Vec::new();
    for index in 0..3 {
        let log = store.partition(partition(index), 0, config.clone(), LeaderEpoch(1)).unwrap();
        let batch = batch_at(&[(NOW.0, "record")], BatchOptions::default());
        put(&log, &batch, AppendOptions { origin: AppendOrigin::Client, now: NOW }).unwrap();
        paths.push(log.path());
    }
    store.close().unwrap();
    drop(store);
    // One partition lies elsewhere, and then the topic with all of them.
    let topic = paths[0].parent().unwrap();
    for (from, to) in [(&*paths[1], "moved partition"), (topic, "moved topic")] {
        let to = directory.path().join(to);
        std::fs::rename(from, &to).unwrap();
        symlink(&to, from).unwrap();
    }
    std::fs::remove_file(dirs[0].join("checkpoint")).unwrap();
    let store = open();
    let known: Vec<_> = store.known(0).iter().map(|known| known.id).collect();
    assert_eq!(known, [0, 1, 2].map(partition));
    let log = store.partition(partition(1), 0, config, LeaderEpoch(2)).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), Offset(1));
    (0..3).for_each(|index| store.delete(partition(index), 0).unwrap());
    assert!(topic.symlink_metadata().is_err(), "the link goes with the last partition");
    let count = |name: &str| std::fs::read_dir(directory.path().join(name)).unwrap().count();
    assert!(count("moved topic") == 0 && count("moved partition") > 0);
}

#[test]
fn allocated_space_shows_in_no_length_and_is_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let dirs = [directory.path().join("logs")];
    let store = LogStore::open(&Env::real(), &dirs, StoreOptions::default()).unwrap();
    let log = store.partition(partition(0), 0, Arc::new(LogConfig::default()), LeaderEpoch(1)).unwrap();
    let value = "x".repeat(400_000);
    for _ in 0..10 {
        let batch = batch_at(&[(NOW.0, &value)], BatchOptions::default());
        put(&log, &batch, AppendOptions { origin: AppendOrigin::Client, now: NOW }).unwrap();
    }
    let file = segment_file(directory.path()).expect("there is a segment");
    let size = log.size_bytes();
    assert_eq!(file.metadata().unwrap().len(), size);
    store.close().unwrap();
    let closed = file.metadata().unwrap();
    assert_eq!(closed.len(), size);
    assert!(closed.blocks() * 512 < size + 1_000_000, "{} blocks of {size} bytes", closed.blocks());
}

/// The `.log` file somewhere below.
fn segment_file(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find_map(|path| match path.extension() {
        Some(extension) if extension == "log" => Some(path),
        _ if path.is_dir() => segment_file(&path),
        _ => None,
    })
}

#[test]
fn readers_and_appenders_of_one_log_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        LogStore::open(&Env::real(), &[directory.path().join("logs")], StoreOptions::default()).unwrap();
    let config = LogConfig { segment_bytes: 20_000, index_interval_bytes: 500, ..LogConfig::default() };
    let log = store.partition(partition(0), 0, Arc::new(config), LeaderEpoch(1)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut from = Offset(0);
                while from < Offset(RECORDS) {
                    let slice = log.read(from, 3000, log.log_end_offset().unwrap(), true).unwrap();
                    for chunk in &slice.chunks {
                        for batch in riverrun_records::Batches::new(&chunk.to_bytes().unwrap()) {
                            let batch = batch.unwrap().verify().unwrap();
                            assert_eq!(batch.base_offset(), from);
                            from = batch.next_offset();
                        }
                    }
                    assert_eq!(from, slice.next_offset);
                }
            });
        }
        for number in 0..RECORDS {
            let batch = batch_at(&[(NOW.0, &number.to_string())], BatchOptions::default());
            put(&log, &batch, AppendOptions { origin: AppendOrigin::Client, now: NOW }).unwrap();
            if number % 500 == 0 {
                store.checkpoint().unwrap();
            }
        }
    });
    assert_eq!(log.log_end_offset().unwrap(), Offset(RECORDS));
}

#[test]
fn store_of_ten_thousand_partitions_opens_at_once_after_a_kill() {
    // Not on the real file system: there the many small files would take the time, and the test's descriptors.
    let sim = SimEnv::new(1);
    let dirs = [PathBuf::from("/logs")];
    let config = Arc::new(LogConfig::default());
    let store = LogStore::open(&sim.env(), &dirs, StoreOptions::default()).unwrap();
    let append = |store: &LogStore, index: i32| {
        let log = store.partition(partition(index), 0, config.clone(), LeaderEpoch(1)).unwrap();
        let batch = batch_at(&[(NOW.0, "x")], BatchOptions::default());
        put(&log, &batch, AppendOptions { origin: AppendOrigin::Client, now: NOW }).unwrap();
    };
    for index in 0..10_000 {
        append(&store, index);
    }
    store.checkpoint().unwrap();
    append(&store, 5);
    sim.fs.kill();
    drop(store);
    let clock = Env::real().clock;
    let start = clock.monotonic();
    let store = LogStore::open(&sim.env(), &dirs, StoreOptions::default()).unwrap();
    let handles: Vec<_> = (0..10_000)
        .map(|index| store.partition(partition(index), 0, config.clone(), LeaderEpoch(2)).unwrap())
        .collect();
    let elapsed = clock.monotonic().saturating_sub(start);
    assert!(elapsed < Duration::from_secs(4), "{elapsed:?} in a debug build");
    assert_eq!(handles[5].log_end_offset().unwrap(), Offset(2));
    assert_eq!(handles[9_999].known_range(), (Offset(0), Offset(1)));
}
