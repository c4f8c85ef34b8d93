use std::path::PathBuf;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_env::{Clock as _, Env, FileSystem as _};
use riverrun_journal::JournalOptions;
use riverrun_records::{BatchBuilder, BatchOptions};
use riverrun_types::{LeaderEpoch, Offset, PartitionId, TimestampMs};

use super::*;
use crate::config::LogConfig;
use crate::error::AppendError;
use crate::log_dir::DirWork;
use crate::partition_log::{AppendOptions, Appended, LevelChangeEnd, PartitionLog};
use crate::store::{Place, StoreOptions};

const LARGE_BYTES: usize = 100_000;
/// Number of large records that are five times the journal's size.
const LARGE_COUNT: i64 = 200;

fn id(index: i32) -> PartitionId {
    PartitionId { topic: TopicId([1; 16]), index }
}

fn level(durability: DurabilityLevel) -> Arc<LogConfig> {
    Arc::new(LogConfig { durability, ..LogConfig::default() })
}

fn open(sim: &SimEnv) -> LogStore {
    open_with(sim, 4 << 20)
}

fn open_with(sim: &SimEnv, journal_bytes: u64) -> LogStore {
    open_on(sim, options(journal_bytes))
}

fn options(journal_bytes: u64) -> StoreOptions {
    StoreOptions {
        journal_dirs: vec![PathBuf::from("/journal")],
        journal: JournalOptions::with_bytes(journal_bytes),
        ..StoreOptions::default()
    }
}

fn open_on(sim: &SimEnv, options: StoreOptions) -> LogStore {
    let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], options).unwrap();
    store.recover(|_| LeaderEpoch(1), |_| Place::In(0, level(DurabilityLevel::SyncSync))).unwrap();
    store
}

fn synced(store: &LogStore, index: i32) -> Arc<PartitionLog> {
    store.partition(id(index), 0, level(DurabilityLevel::SyncSync), LeaderEpoch(1)).unwrap()
}

/// Real time that `action` takes.
fn time_of(action: impl FnOnce()) -> Duration {
    let clock = Env::real().clock;
    let begun = clock.monotonic();
    action();
    clock.monotonic().saturating_sub(begun)
}

fn stage(log: &PartitionLog, bytes: usize) -> Result<Appended, AppendError> {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(&vec![1; bytes]), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    log.append(BytesMut::from(&batch.build().unwrap()[..]), options)
}

fn append(log: &PartitionLog, bytes: usize) {
    stage(log, bytes).unwrap();
    log.write_staged().unwrap();
}

/// Submits more than the journal holds.
fn fill_journal(store: &LogStore, log: &PartitionLog) {
    (0..LARGE_COUNT).for_each(|_| append(log, LARGE_BYTES));
    while store.journals().all(|journal| journal.full_for().is_none()) {
        std::thread::yield_now();
    }
}

#[test]
fn level_changes_although_earlier_entries_fill_the_journal() {
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
fn level_change_does_not_wait_for_a_deleted_partition() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let (log, other) = (synced(&store, 0), synced(&store, 1));
    append(&other, 100);
    store.checkpoint().unwrap();
    append(&log, 100);
    log.set_config(level(DurabilityLevel::AsyncAsync));
    other.set_config(level(DurabilityLevel::AsyncAsync));
    let changes: Vec<_> =
        [&log, &other].into_iter().filter_map(|log| log.begin_level_change().unwrap()).collect();
    store.delete(id(0), 0).unwrap();
    let elapsed = time_of(|| store.cover_level_changes(&store.dirs, &changes).unwrap());
    assert!(elapsed < Duration::from_secs(25), "{elapsed:?}");
    assert!(changes.into_iter().all(|change| change.finish() == crate::partition_log::LevelChangeEnd::Done));
    assert_eq!(other.level_reached(), DurabilityLevel::AsyncAsync);
}

#[test]
fn level_that_cannot_change_is_tried_after_growing_pauses() {
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
        let is_due = store.dirs[0].dir.level_changes.lock().is_any_due(store.now());
        attempts += u32::from(is_due);
        let _alarm = store.wait_for_settling(0, Duration::ZERO);
        assert_eq!(store.wait_for_settling(0, Duration::ZERO), is_due);
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
    assert!(
        !store.dirs[0].dir.level_changes.lock().is_any_due(store.now() + Duration::from_hours(1)),
        "it is over"
    );
}

#[test]
fn records_past_the_journal_are_not_put_aside_in_a_level_change() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    let log = store.partition(id(0), 0, level(DurabilityLevel::AsyncAsync), LeaderEpoch(1)).unwrap();
    append(&log, 100);
    fill_journal(&store, &synced(&store, 1));
    log.set_config(level(DurabilityLevel::SyncSync));
    let change = log.begin_level_change().unwrap().unwrap();
    append(&log, 100);
    // Nothing can be settled now, and the journal needs its files.
    store.dirs[0].dir.space().found_full();
    store.dirs[0].put_aside_if_stuck(&store.delivered());
    assert_eq!(store.journals().next().unwrap().held().len(), 1, "the journal's entries of the other one");
    // The level stays, and the waiting records go the old way: they are acked when they are in the segments.
    assert_eq!(change.finish(), crate::partition_log::LevelChangeEnd::Later);
    assert_eq!(log.watermarks().appended, Offset(2));
    sim.fs.kill();
    drop((log, store));
    let store = open(&sim);
    assert_eq!(synced(&store, 0).log_end_offset().unwrap(), Offset(2));
}

#[test]
fn later_entries_are_not_put_aside_with_a_left_out_partition() {
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
    let elapsed = time_of(|| assert_eq!(store.close().unwrap(), Closed::InOrder));
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(log.watermarks().synced, Offset(LARGE_COUNT));
    drop((log, store));
    let store = open(&sim);
    assert!(store.was_clean());
    assert_eq!(synced(&store, 0).log_end_offset().unwrap(), Offset(LARGE_COUNT));
}

/// Room for all that a test appends.
const LARGE_JOURNAL_BYTES: u64 = 64 << 20;

/// Waits until the journals have all appends.
fn wait_until_stored(store: &LogStore) {
    let clock = Env::real().clock;
    let begun = clock.monotonic();
    while !store.journals().all(Journal::has_delivered_all) {
        assert!(clock.monotonic().saturating_sub(begun) < Duration::from_mins(1), "the journal is stuck");
        std::thread::yield_now();
    }
}

/// Three logs, each with more than the disk begins with at once, and their ends.
fn three_tails(store: &LogStore) -> Vec<(Arc<PartitionLog>, Offset)> {
    let logs: Vec<_> = (0..3).map(|index| synced(store, index)).collect();
    for number in 0..33 {
        append(&logs[number / 11], LARGE_BYTES);
        // One by one: the simulated clock, by which the journal waits for more, stands still.
        wait_until_stored(store);
    }
    logs.into_iter().map(|log| (log, Offset(11))).collect()
}

#[test]
fn a_stop_without_time_leaves_what_is_unsettled_to_the_journal() {
    for is_cut_short_later in [false, true] {
        let sim = SimEnv::new(1);
        let store = open_with(&sim, LARGE_JOURNAL_BYTES);
        let logs = three_tails(&store);
        let until = sim.clock.monotonic() + Duration::from_secs(3);
        store.close_by(until);
        if is_cut_short_later {
            // The first log has more than that: the time is over in the middle of it.
            let clock = sim.clock.clone();
            sim.fs.during_next_write_back(move || clock.advance(Duration::from_secs(4)));
        } else {
            sim.clock.advance(Duration::from_secs(4));
        }
        let closed = store.close().unwrap();
        assert!(matches!(closed, Closed::LeftToJournals { bytes: 2_000_000.. }), "{closed:?}");
        let settled: Vec<_> = logs.iter().map(|(log, _)| log.tail_end()).collect();
        assert_eq!(settled, [None; 3], "the handles are shut");
        drop((logs, store));
        let start = |sim: &SimEnv| {
            let store = open_with(sim, LARGE_JOURNAL_BYTES);
            assert!(!store.was_clean());
            let ends: Vec<_> = (0..3).map(|index| synced(&store, index).log_end_offset().unwrap()).collect();
            assert_eq!(ends, [Offset(11); 3]);
            assert_eq!(store.close().unwrap(), Closed::InOrder);
        };
        sim.crash_states(20).for_each(|state| start(&state));
        start(&sim);
    }
}

#[test]
fn settling_and_checkpoints_end_when_the_time_to_stop_is_over() {
    let sim = SimEnv::new(1);
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    let logs = three_tails(&store);
    let clock = sim.clock.clone();
    store.close_by(clock.monotonic() + Duration::from_secs(3));
    sim.fs.during_next_write_back(move || clock.advance(Duration::from_secs(4)));
    assert!(matches!(store.settle(), Err(LogError::OutOfTime)));
    let left: Vec<_> = logs.iter().map(|(log, end)| log.tail_end() == Some(*end)).collect();
    assert_eq!(left, [false, true, true], "the first was at it, and the others are left as they are");
    assert!(matches!(store.checkpoint(), Err(LogError::OutOfTime)));
    assert!(logs.iter().all(|(log, _)| log.recovery_point() == Offset::ZERO && log.unwritable().is_none()));
}

/// Number of records of a megabyte that are more than is left to a sync.
const UNSYNCED_COUNT: i64 = 20;

/// A partition without entries in a journal.
fn cached(store: &LogStore) -> Arc<PartitionLog> {
    store.partition(id(7), 0, level(DurabilityLevel::AsyncAsync), LeaderEpoch(1)).unwrap()
}

/// Has the time to stop pass while the disk is told to begin.
fn pass_time_while_writing(sim: &SimEnv, store: &LogStore) {
    let clock = sim.clock.clone();
    store.close_by(clock.monotonic() + Duration::from_secs(3));
    sim.fs.during_next_write_back(move || clock.advance(Duration::from_secs(4)));
}

#[test]
fn stop_without_time_leaves_records_to_the_page_cache_unsynced() {
    let sim = SimEnv::new(1);
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    let log = cached(&store);
    (0..UNSYNCED_COUNT).for_each(|_| append(&log, 1_000_000));
    let syncs = sim.fs.syncs();
    pass_time_while_writing(&sim, &store);
    assert_eq!(store.close().unwrap(), Closed::LeftToJournals { bytes: 0 });
    assert_eq!(sim.fs.syncs(), syncs);
    assert!(sim.fs.write_back_bytes() < 10 << 20, "{}", sim.fs.write_back_bytes());
    drop((log, store));
    // The next start stops as fast while it syncs the rest.
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    assert!(!store.was_clean());
    let syncs = sim.fs.syncs();
    pass_time_while_writing(&sim, &store);
    store.sync_found(0);
    assert_eq!(sim.fs.syncs(), syncs);
    drop(store);
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    assert_eq!(cached(&store).log_end_offset().unwrap(), Offset(UNSYNCED_COUNT));
    assert_eq!(store.close().unwrap(), Closed::InOrder);
}

#[test]
fn many_bytes_are_written_before_a_sync_and_few_by_it() {
    let sim = SimEnv::new(1);
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    let log = cached(&store);
    append(&log, 1_000_000);
    store.checkpoint().unwrap();
    assert_eq!(sim.fs.write_back_bytes(), 0);
    (0..UNSYNCED_COUNT).for_each(|_| append(&log, 1_000_000));
    for _ in 0..2 {
        store.checkpoint().unwrap();
        let written = sim.fs.write_back_bytes();
        assert!((20_000_000..22_000_000).contains(&written), "once: {written}");
        assert_eq!(log.watermarks().synced, log.watermarks().appended);
    }
}

#[test]
fn log_with_a_large_tail_lets_others_settle_after_each_share() {
    let sim = SimEnv::new(1);
    let store = open_with(&sim, LARGE_JOURNAL_BYTES);
    let (first, second) = (synced(&store, 0), synced(&store, 1));
    (0..30).for_each(|_| append(&first, 1_000_000));
    append(&second, 100);
    wait_until_stored(&store);
    let dir = &store.dirs[0];
    let hurry = crate::pace::Hurry::default();
    let mut pace = crate::pace::Pace::new(dir.env(), &**dir.shared(), &hurry);
    let left = first.settle(None, &mut pace).unwrap();
    assert_eq!(left, Some(Offset(30)));
    append(&first, 100);
    wait_until_stored(&store);
    assert_eq!(first.settle(left, &mut pace).unwrap(), left);
    assert_eq!(first.settle(left, &mut pace).unwrap(), None, "later entries are left to the next time");
    store.settle().unwrap();
    assert_eq!((first.tail_end(), second.tail_end()), (None, None));
}

#[test]
fn appends_in_a_level_change_are_bounded_while_the_dir_hangs() {
    let [synced, unsynced] = [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync].map(level);
    for (from, to) in [(&synced, &unsynced), (&unsynced, &synced)] {
        let sim = SimEnv::new(1);
        let options = StoreOptions { write_cache_bytes: 1 << 20, ..options(4 << 20) };
        let store = open_on(&sim, options);
        let log = store.partition(id(0), 0, Arc::clone(from), LeaderEpoch(1)).unwrap();
        append(&log, 1);
        store.settle().unwrap();
        log.set_config(Arc::clone(to));
        let change = log.begin_level_change().unwrap().expect("appends are held up");
        let waits = log.dir().working(DirWork::Checkpoint);
        sim.clock.advance(Duration::from_secs(31));
        let refused = (0..100).find_map(|_| stage(&log, LARGE_BYTES).err());
        assert!(matches!(refused, Some(AppendError::Storage(LogError::DirHangs { .. }))), "{refused:?}");
        assert!(store.write_cache().bytes() <= 1 << 20);
        drop(waits);
        stage(&log, LARGE_BYTES).unwrap();
        store.cover_level_changes(&store.dirs, std::slice::from_ref(&change)).unwrap();
        assert!(matches!(change.finish(), LevelChangeEnd::Done));
    }
}
