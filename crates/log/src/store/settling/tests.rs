use std::path::PathBuf;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem as _};
use riverrun_journal::JournalOptions;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, Offset, PartitionId, TimestampMs};

use super::*;
use crate::config::LogConfig;
use crate::partition_log::{AppendOptions, PartitionLog};
use crate::store::{Place, StoreOptions};

const LARGE_BYTES: usize = 100_000;
/// So many large records are five times what the journal holds.
const LARGE_COUNT: i64 = 200;

fn id(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([1; 16]), index }
}

fn level(durability: DurabilityLevel) -> Arc<LogConfig> {
    Arc::new(LogConfig { durability, ..LogConfig::default() })
}

fn open(sim: &SimEnv) -> LogStore {
    let options = StoreOptions {
        journal_dirs: vec![PathBuf::from("/journal")],
        journal: JournalOptions::with_bytes(4 << 20),
        ..StoreOptions::default()
    };
    let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap();
    store.recover(LeaderEpoch(1), |_| Place::In(0, level(DurabilityLevel::SyncSync))).unwrap();
    store
}

fn synced(store: &LogStore, index: i32) -> Arc<PartitionLog> {
    store.partition(id(index), 0, level(DurabilityLevel::SyncSync), LeaderEpoch(1)).unwrap()
}

/// What `action` takes in real time.
fn time_of(action: impl FnOnce()) -> Duration {
    let clock = Env::real().clock;
    let begun = clock.monotonic();
    action();
    clock.monotonic().saturating_sub(begun)
}

fn append(log: &PartitionLog, bytes: usize) {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(&vec![1; bytes]), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    log.write_staged().unwrap();
}

/// More than the journal holds is on its way into it.
fn fill_journal(store: &LogStore, log: &PartitionLog) {
    (0..LARGE_COUNT).for_each(|_| append(log, LARGE_BYTES));
    while store.journals().all(|journal| journal.full_for().is_none()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_level_changes_although_what_comes_before_it_fills_the_journal() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let (log, other) = (synced(&store, 0), synced(&store, 1));
    fill_journal(&store, &other);
    append(&log, 100);
    log.set_config(level(DurabilityLevel::AsyncAsync));
    let elapsed = time_of(|| store.settle().unwrap());
    assert!(elapsed < Duration::from_secs(25), "{elapsed:?}");
    assert_eq!(log.level_reached(), DurabilityLevel::AsyncAsync);
    assert_eq!(other.watermarks().synced, Offset(LARGE_COUNT), "they came before");
    append(&log, 100);
    assert_eq!(log.watermarks().appended, Offset(2));
}

#[test]
fn a_change_of_level_does_not_wait_for_a_partition_that_is_deleted() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let (log, other) = (synced(&store, 0), synced(&store, 1));
    append(&other, 100);
    store.checkpoint().unwrap();
    append(&log, 100);
    log.set_config(level(DurabilityLevel::AsyncAsync));
    other.set_config(level(DurabilityLevel::AsyncAsync));
    let switches: Vec<_> = [&log, &other].into_iter().filter_map(|log| log.begin_switch().unwrap()).collect();
    store.delete(id(0), 0).unwrap();
    let elapsed = time_of(|| store.cover_switches(&switches).unwrap());
    assert!(elapsed < Duration::from_secs(25), "{elapsed:?}");
    assert!(switches.into_iter().all(|switch| switch.finish() == crate::partition_log::Switched::Done));
    assert_eq!(other.level_reached(), DurabilityLevel::AsyncAsync);
}

#[test]
fn a_level_that_cannot_change_is_tried_again_after_pauses_that_grow() {
    const STEP: Duration = Duration::from_millis(200);
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = synced(&store, 0);
    append(&log, 100);
    while log.watermarks().synced < Offset(1) {
        std::thread::yield_now();
    }
    log.set_config(level(DurabilityLevel::AsyncAsync));
    sim.fs.set_space(Some(10));
    let mut attempts = 0;
    for _ in 0..600 {
        store.settle().unwrap_err();
        sim.clock.advance(STEP);
        let is_due = store.shared.switches.lock().is_any_due(store.now());
        attempts += u32::from(is_due);
        let _alarm = store.wait_for_settling(Duration::ZERO);
        assert_eq!(store.wait_for_settling(Duration::ZERO), is_due);
    }
    assert!((10..25).contains(&attempts), "{attempts} attempts in two minutes");
    sim.fs.set_space(None);
    let mut steps = 0;
    while log.level_reached() != DurabilityLevel::AsyncAsync {
        let _waits = store.settle();
        sim.clock.advance(STEP);
        steps += 1;
    }
    assert!(steps < 60, "{steps} steps");
    store.settle().unwrap();
    assert!(!store.shared.switches.lock().is_any_due(store.now() + Duration::from_hours(1)), "it is over");
}

#[test]
fn what_went_past_the_journal_is_not_put_aside_while_its_level_is_being_changed() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = store.partition(id(0), 0, level(DurabilityLevel::AsyncAsync), LeaderEpoch(1)).unwrap();
    append(&log, 100);
    fill_journal(&store, &synced(&store, 1));
    log.set_config(level(DurabilityLevel::SyncSync));
    let switch = log.begin_switch().unwrap().unwrap();
    append(&log, 100);
    // Nothing can be settled now, and the journal needs its files.
    store.dirs[0].space().found_full();
    store.dirs[0].put_aside_if_stuck(&store.delivered());
    assert_eq!(store.journals().next().unwrap().held().len(), 1, "what the journal has of the other one");
    // The level stays, and what has waited goes the old way: it is acked when it is in the segments.
    assert_eq!(switch.finish(), crate::partition_log::Switched::Later);
    assert_eq!(log.watermarks().appended, Offset(2));
    sim.fs.kill();
    drop((log, store));
    let store = open(&sim);
    assert_eq!(synced(&store, 0).log_end_offset().unwrap(), Offset(2));
}

#[test]
fn what_comes_while_a_checkpoint_leaves_out_another_partition_is_not_put_aside_with_that_one() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let (sick, well) = (synced(&store, 0), synced(&store, 1));
    let deliver = || {
        while !store.journals().all(Journal::has_delivered_all) {
            std::thread::yield_now();
        }
    };
    append(&sick, 100);
    deliver();
    store.checkpoint().unwrap();
    // It needs another segment, and has no place for it.
    assert!(sick.roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
    sim.fs.rename(&sick.path(), "/away".as_ref()).unwrap();
    (0..25).for_each(|_| append(&sick, LARGE_BYTES));
    append(&well, LARGE_BYTES);
    deliver();
    assert!(store.shared.is_journal_half_full());
    let (dir, delivered) = (&store.dirs[0], store.delivered());
    dir.cover(&delivered, Haste::Spread).unwrap_err();
    append(&well, 100);
    deliver();
    dir.put_aside_if_uncovered(&delivered);
    assert_eq!(*dir.covered.lock(), delivered, "the journal is given everything back");
    assert_eq!((sick.held_end(), well.held_end()), (Some(Offset(26)), Some(Offset::ZERO)));
    append(&well, 100);
}

#[test]
fn a_stop_while_the_journal_is_full_is_one_in_order() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = synced(&store, 0);
    fill_journal(&store, &log);
    let elapsed = time_of(|| store.close().unwrap());
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(log.watermarks().synced, Offset(LARGE_COUNT));
    drop((log, store));
    let store = open(&sim);
    assert!(store.was_clean());
    assert_eq!(synced(&store, 0).log_end_offset().unwrap(), Offset(LARGE_COUNT));
}
