//! Many threads at once on the real file system: they append, tails are settled, levels change, a reader reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use riverrun_env::Env;
use riverrun_journal::JournalOptions;
use riverrun_log::config::LogConfig;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendOptions, LogStore, PartitionLog, Place, StoreOptions};
use riverrun_records::{BatchOptions, Batches};
use riverrun_types::{
    DurabilityLevel, LeaderEpoch, Offset, PartitionId, TimestampMs, TopicId, visible_offset,
};

use crate::machine::{batch_at, put};

const PARTITIONS: i32 = 3;
const WRITERS: usize = 4;
const RECORDS: usize = 200;
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

fn partition(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([4; 16]), index }
}

fn config(durability: DurabilityLevel) -> Arc<LogConfig> {
    Arc::new(LogConfig { durability, segment_bytes: 20_000, ..LogConfig::default() })
}

fn open(dir: &Path, epoch: i32) -> LogStore {
    let options = StoreOptions {
        journal_dirs: vec![dir.join("journal")],
        journal: JournalOptions::with_bytes(2 << 20),
        write_cache_bytes: 64 * 1024,
        ..StoreOptions::default()
    };
    let store = LogStore::open(&Env::real(), &[dir.join("logs")], options).unwrap();
    let report =
        store.recover(|_| LeaderEpoch(epoch), |_| Place::In(0, config(DurabilityLevel::SyncSync))).unwrap();
    assert!(report.offline.is_empty(), "{report:?}");
    store
}

fn log(store: &LogStore, index: i32) -> Arc<PartitionLog> {
    store.partition(partition(index), 0, config(DurabilityLevel::SyncSync), LeaderEpoch(1)).unwrap()
}

/// Values of all visible records by offset, read as a consumer does.
fn read(log: &PartitionLog, from: Offset) -> BTreeMap<i64, String> {
    let (mut from, end) = (from, visible_offset(log.level_reached(), log.watermarks(), &[]));
    let mut found = BTreeMap::new();
    while from < end {
        let slice = log.read(from, 10_000, end, true).unwrap();
        for chunk in &slice.chunks {
            for batch in Batches::new(&chunk.to_bytes().unwrap()) {
                let batch = batch.unwrap().verify().unwrap();
                for record in &batch.records().unwrap() {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    assert_eq!(found.insert(record.offset.0, value), None, "once");
                }
            }
        }
        assert!(slice.next_offset > from, "reading gets on");
        from = slice.next_offset;
    }
    found
}

/// Appends from many threads while another one runs `meanwhile`; returns the acked values and their places.
fn append_all(logs: &[Arc<PartitionLog>], meanwhile: impl Fn(usize) + Sync) -> BTreeMap<(i32, i64), String> {
    let is_done = AtomicBool::new(false);
    let write = |writer: usize| {
        let options = AppendOptions { origin: AppendOrigin::Client, now: NOW };
        let mut acked = BTreeMap::new();
        for number in 0..RECORDS {
            let log = &logs[number % logs.len()];
            let value = format!("writer {writer}, record {number}");
            let batch = batch_at(&[(NOW.0, &value)], BatchOptions::default());
            let appended = put(log, &batch, options).unwrap();
            acked.insert((log.id().index, appended.base_offset.0), value);
        }
        acked
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        scope.spawn(|| {
            for round in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                meanwhile(round);
            }
        });
        let acked = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        is_done.store(true, Ordering::Relaxed);
        acked
    })
}

fn check(store: &LogStore, acked: &BTreeMap<(i32, i64), String>) {
    for index in 0..PARTITIONS {
        let log = log(store, index);
        log.ensure_open().unwrap();
        let found = read(&log, Offset(0));
        let expected: BTreeMap<_, _> = acked
            .iter()
            .filter(|((of, _), _)| *of == index)
            .map(|((_, at), value)| (*at, value.clone()))
            .collect();
        assert!(found == expected, "partition {index}: {} records of {}", found.len(), expected.len());
    }
}

#[test]
fn acked_records_are_there_once_in_settling_and_level_changes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), 1);
    let logs: Vec<_> = (0..PARTITIONS).map(|index| log(&store, index)).collect();
    let levels = [
        DurabilityLevel::AsyncAsync,
        DurabilityLevel::SyncSync,
        DurabilityLevel::SyncAsync,
        DurabilityLevel::AsyncSync,
    ];
    let acked = append_all(&logs, |round| {
        logs[0].set_config(config(levels[round % levels.len()]));
        store.wait_for_settling(0, Duration::from_millis(2));
        store.settle().unwrap();
        for log in &logs {
            let end = log.watermarks().appended.0;
            read(log, Offset((end - 20).max(0)));
        }
    });
    assert_eq!(acked.len(), WRITERS * RECORDS, "no offset was given twice");
    check(&store, &acked);
    drop(logs);
    store.close().unwrap();
    drop(store);
    let store = open(directory.path(), 2);
    check(&store, &acked);
    // As if the process died: a drop writes nothing.
    drop(store);
    check(&open(directory.path(), 3), &acked);
}

#[test]
fn a_store_that_is_dropped_leaves_what_a_killed_process_would() {
    let directory = tempfile::tempdir().unwrap();
    let mut all = BTreeMap::new();
    for start in 1..4 {
        let store = open(directory.path(), start);
        check(&store, &all);
        let logs: Vec<_> = (0..PARTITIONS).map(|index| log(&store, index)).collect();
        let acked = append_all(&logs, |round| {
            Env::real().clock.sleep(Duration::from_millis(1));
            if round % 10 == 0 {
                store.settle().unwrap();
            }
        });
        all.extend(acked);
    }
    check(&open(directory.path(), 4), &all);
}
