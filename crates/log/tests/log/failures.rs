//! Log dirs that fail with a write or a sync, beside a journal that others need.

use std::panic::catch_unwind;
use std::path::PathBuf;

use riverrun_env::sim::{PlantedBug, SimEnv};
use riverrun_env::{Env, FileSystem, OpenMode};
use riverrun_journal::{JournalOptions, RecoveredEntry};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions, LogError, LogStore, Place, StoreOptions};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TimestampMs, TopicId};

use crate::machine::{Machine, batch_at, numbers, put};
use crate::pair::{DIRS, Pair, synced};

#[test]
fn failed_dir_frees_the_journal_and_is_whole_after_a_start() {
    let mut pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..3);
    pair.store.settle().unwrap();
    pair.append_numbers(0, 3..6);
    let expected = pair.values(0);
    pair.append(1, "other").unwrap();
    pair.sim.fs.fail_sync_after(0);
    assert!(pair.store.checkpoint().is_err());
    let failed = (0..2).find(|dir| pair.store.dir_failure(*dir).is_some()).unwrap();
    assert_eq!(failed, 0, "it is synced first");
    let error = pair.append(0, "refused").unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::DirFailed { .. })), "{error}");
    pair.go_round(1);
    assert_eq!(pair.values(0), expected, "reads go on");
    assert_eq!(pair.store.journals().next().unwrap().held().len(), 1);
    // Unsynced bytes in memory after a failed sync count for nothing at the next start.
    pair = pair.kill();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.values(0), expected);
    assert_eq!(pair.append(0, "after").unwrap(), Offset(6));
    pair.store.checkpoint().unwrap();
    assert!(pair.store.journals().next().unwrap().held().is_empty(), "it is all under a checkpoint");
    pair.sim.fs.crash();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert_eq!(pair.values(0).len(), 7);
}

#[test]
fn a_failed_sync_of_names_in_a_swap_is_the_dirs_failure() {
    use riverrun_log::CompactOptions;
    use riverrun_log::compaction::execute::{CleanerOptions, Unhindered};
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let mut failed = 0;
    for sync in 0.. {
        let machine = Machine::new(1, LogConfig { cleanup, ..Machine::small_segments() });
        for _ in 0..30 {
            machine.append("the same key");
        }
        machine.store().checkpoint().unwrap();
        machine.sim.fs.fail_sync_after(sync);
        let cleaner = CleanerOptions { dedupe_buffer_bytes: 10_000, load_factor: 0.9 };
        let options = CompactOptions {
            now: machine.now(),
            high_watermark: Offset(30),
            origin: AppendOrigin::Client,
            cleaner,
            control: &Unhindered,
        };
        if machine.log().compact(options).is_ok() {
            break;
        }
        assert!(machine.store().dir_failure(0).is_some(), "sync {sync}");
        failed += 1;
    }
    assert!(failed > 4, "{failed}");
}

#[test]
fn failed_write_in_settling_fails_the_dir_and_loses_nothing() {
    let mut failed = 0;
    for write in 0.. {
        let mut machine = Machine::synced(write, &Machine::small_segments());
        machine.append_numbers(0, 20);
        machine.sim.fs.fail_write_after(write);
        let settled = machine.store().settle();
        if settled.is_ok() {
            break;
        }
        assert!(machine.store().dir_failure(0).is_some(), "write {write}");
        assert_eq!(machine.records().unwrap(), numbers(0, 20), "write {write}: reads go on");
        assert!(machine.try_append("no", ProducerStamp::NONE).is_err());
        machine.kill();
        assert_eq!(machine.records().unwrap(), numbers(0, 20), "write {write}");
        machine.append_numbers(20, 22);
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
}

/// Settles and makes a checkpoint, while the disk refuses to begin with a part of it, and then the power fails. Returns
/// whether the disk refused one.
fn lose_what_the_disk_does_not_begin_with(count: u64, bug: Option<PlantedBug>) -> bool {
    let options = StoreOptions { journal: JournalOptions::with_bytes(64 << 20), ..Machine::with_journal() };
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
    let mut machine = Machine::with_options(SimEnv::new(count), config, options);
    let value = |number: i64| format!("{number}{}", "x".repeat(100_000));
    (0..25).for_each(|number| assert_eq!(machine.append(&value(number)), Offset(number)));
    if let Some(bug) = bug {
        machine.sim.fs.plant(bug);
    }
    machine.sim.fs.fail_write_back_after(count);
    let checkpointed = machine.store().checkpoint();
    let has_failed = machine.store().dir_failure(0).is_some();
    assert_eq!(checkpointed.is_err(), has_failed);
    if has_failed {
        let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
        assert!(matches!(error, AppendError::Storage(LogError::DirFailed { .. })), "{error}");
    }
    machine.crash();
    let expected: Vec<_> = (0..25).map(|number| (number, value(number))).collect();
    assert!(machine.records().unwrap() == expected, "write-back {count}");
    has_failed
}

#[test]
fn failed_write_back_fails_the_dir_and_loses_nothing() {
    let mut failed = 0;
    while lose_what_the_disk_does_not_begin_with(failed, None) {
        failed += 1;
    }
    assert!(failed > 2, "{failed}");
    let bug = Some(PlantedBug::IgnoredWriteBackError);
    let panic = catch_unwind(|| lose_what_the_disk_does_not_begin_with(0, bug)).unwrap_err();
    let what = panic.downcast::<String>().unwrap();
    assert!(what.contains("Corrupt"), "a read of the lost bytes finds it: {what}");
}

#[test]
fn dir_that_fails_in_recovery_is_whole_after_the_next_start() {
    let mut has_held = false;
    for writes in 0..12 {
        let pair = Pair::new(Machine::settled_at_start());
        for number in 0..9 {
            pair.append(0, &format!("{number}{}", "x".repeat(100_000))).unwrap();
        }
        let expected = pair.values(0);
        let Pair { sim, options, store, .. } = pair;
        sim.fs.kill();
        drop(store);
        let store = LogStore::open(&sim.env(), &DIRS.map(PathBuf::from), options.clone()).unwrap();
        sim.fs.fail_write_after(writes);
        let place = |id: PartitionId| Place::In(usize::try_from(id.index).unwrap(), synced());
        if let Ok(report) = store.recover(|_| LeaderEpoch(2), place) {
            has_held |= report.held_entries > 0 && report.held_entries < 9;
            drop(store);
        }
        sim.fs.crash();
        let pair = Pair::start(sim, options, 3).unwrap();
        assert!(pair.report.offline.is_empty(), "write {writes}: {:?}", pair.report);
        assert!(pair.values(0) == expected, "write {writes}: {} records", pair.values(0).len());
    }
    assert!(has_held, "no write failed after another had got through");
}

#[test]
fn unreadable_dir_that_dies_in_recovery_hinders_no_other() {
    let mut has_held = false;
    for writes in 0..12 {
        let pair = Pair::new(Machine::settled_at_start());
        for number in 0..20 {
            pair.append(0, &format!("{number}{}", "x".repeat(100_000))).unwrap();
        }
        pair.append(1, "other").unwrap();
        let expected = pair.values(0);
        let Pair { sim, options, store, .. } = pair;
        sim.fs.kill();
        drop(store);
        let store = LogStore::open(&sim.env(), &DIRS.map(PathBuf::from), options.clone()).unwrap();
        let calls = std::cell::Cell::new(0);
        let place = |id: PartitionId| {
            // The first file's entries are written, and the second file's are next.
            if id.index == 0 && calls.replace(calls.get() + 1) == 1 {
                sim.fs.fail_write_after(writes);
                sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
            }
            Place::In(usize::try_from(id.index).unwrap(), synced())
        };
        let report = store.recover(|_| LeaderEpoch(2), place).unwrap();
        has_held |= report.held_entries > 0 && report.held_entries < 20;
        let pair = Pair { sim, options, epoch: 2, store, report };
        if pair.store.dir_failure(0).is_some() {
            assert!(pair.append(0, "no").is_err());
            assert_eq!(pair.append(1, "goes on").unwrap(), Offset(1), "write {writes}");
            pair.go_round(1);
        }
        let Pair { sim, options, store, .. } = pair;
        sim.fs.make_unreadable(None).unwrap();
        sim.fs.crash();
        drop(store);
        let pair = Pair::start(sim, options, 3).unwrap();
        assert!(pair.report.offline.is_empty(), "write {writes}: {:?}", pair.report);
        assert!(pair.values(0) == expected, "write {writes}: {} records", pair.values(0).len());
    }
    assert!(has_held, "no write failed after another had got through");
}

/// Bytes of the entries that the journal keeps aside.
fn aside_bytes(sim: &SimEnv) -> u64 {
    let names = sim.fs.read_dir("/journal".as_ref()).unwrap();
    names
        .iter()
        .filter(|entry| entry.name.to_str().unwrap().starts_with("held-"))
        .map(|entry| entry.len)
        .sum()
}

#[test]
fn entries_for_a_dir_that_fails_at_every_start_are_aside_once() {
    let first = PartitionId { topic: TopicId([6; 16]), index: 0 };
    let (at_start, later) = (Machine::settled_at_start(), Machine::with_journal());
    let cases = [
        (0, false, &at_start),
        (1, false, &at_start),
        (1, true, &at_start),
        (3, true, &at_start),
        (4, true, &at_start),
        (0, true, &later),
        (1, true, &later),
    ];
    for (writes, settles, options) in cases {
        let pair = Pair::new(options.clone());
        let first_log = pair.store.partition(first, 0, synced(), LeaderEpoch(1)).unwrap();
        for number in 0..9 {
            pair.append(0, &format!("{number}{}", "x".repeat(100_000))).unwrap();
            let batch = batch_at(&[(0, "first")], BatchOptions::default());
            let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
            put(&first_log, &batch, options).unwrap();
        }
        let expected = pair.values(0);
        let Pair { sim, options, mut store, .. } = pair;
        let place = |id: PartitionId| Place::In(usize::try_from(id.index).unwrap(), synced());
        let mut aside = vec![];
        for epoch in 2..7 {
            sim.fs.kill();
            drop(store);
            store = LogStore::open(&sim.env(), &DIRS.map(PathBuf::from), options.clone()).unwrap();
            sim.fs.fail_write_after(writes);
            let report = store.recover(|_| LeaderEpoch(epoch), place);
            if settles {
                let _the_dir_has_failed = store.settle();
                let _it_has_still = store.checkpoint();
            }
            assert!(store.dir_failure(0).is_some(), "{writes} writes: {report:?}");
            aside.push(aside_bytes(&sim));
        }
        assert!(aside[0] > 0, "{aside:?}");
        assert!(aside.iter().all(|bytes| *bytes == aside[1]), "{writes} writes, {settles}: {aside:?}");
        sim.fs.crash();
        drop(store);
        let pair = Pair::start(sim, options, 9).unwrap();
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert!(pair.values(0) == expected, "{} records", pair.values(0).len());
        let first_log = pair.store.partition(first, 0, synced(), LeaderEpoch(9)).unwrap();
        assert_eq!(first_log.log_end_offset().unwrap(), Offset(9));
        pair.store.checkpoint().unwrap();
        assert_eq!(aside_bytes(&pair.sim), 0);
    }
}

#[test]
fn dir_that_fails_after_deleted_records_frees_the_journal() {
    for deleted in [2, 4, 6] {
        let pair = Pair::new(Machine::with_journal());
        pair.append_numbers(0, 0..4);
        pair.store.settle().unwrap();
        pair.append_numbers(0, 4..6);
        pair.log(0).delete_records(Offset(deleted)).unwrap();
        pair.append(1, "other").unwrap();
        pair.sim.fs.fail_sync_after(0);
        assert!(pair.store.checkpoint().is_err());
        assert!(pair.store.dir_failure(0).is_some());
        pair.go_round(1);
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert_eq!(pair.log(0).log_start_offset().unwrap(), Offset(deleted));
        assert_eq!(pair.log(0).log_end_offset().unwrap(), Offset(6));
    }
}

#[test]
fn entries_aside_for_a_dir_stay_if_their_partition_lacks_some() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    pair.sim.fs.fail_sync_after(0);
    assert!(pair.store.checkpoint().is_err() && pair.store.dir_failure(0).is_some());
    pair.go_round(1);
    let pair = pair.kill();
    pair.append_numbers(0, 6..9);
    let Pair { sim, options, store, .. } = pair;
    sim.fs.crash();
    drop(store);
    let names = sim.fs.read_dir("/journal".as_ref()).unwrap();
    for name in names.iter().filter(|entry| entry.name.to_str().unwrap().ends_with(".journal")) {
        let path = PathBuf::from("/journal").join(&name.name);
        let mut bytes = riverrun_env::read_whole(&*sim.fs, &path, 1 << 30).unwrap();
        if let Some(at) = bytes.windows(8).position(|window| window == b"record 7") {
            bytes[at] ^= 1;
            let file = sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
        }
    }
    let pair = Pair::start(sim, options, 5).unwrap();
    assert!(matches!(&pair.report.offline[..], [(_, LogError::Corrupt { .. })]), "{:?}", pair.report);
    pair.store.checkpoint().unwrap();
    let journal = pair.store.journals().next().unwrap();
    let mut kept = std::collections::BTreeSet::new();
    for name in journal.held().iter().filter(|name| name.starts_with("partition-")) {
        let take = |entries: Vec<RecoveredEntry>| {
            kept.extend(entries.iter().map(|entry| entry.header.base_offset.0));
        };
        journal.read_held(name, take).unwrap();
    }
    assert!(kept.into_iter().eq(0..9), "{:?}", journal.held());
}

#[test]
fn many_entries_are_put_aside_in_files_to_read_one_by_one() {
    let options = StoreOptions { journal: JournalOptions::with_bytes(256 << 20), ..Machine::with_journal() };
    let pair = Pair::new(options);
    let value = "x".repeat(500_000);
    for _ in 0..70 {
        pair.append(0, &value).unwrap();
    }
    // Some of it is in the segments, some in memory.
    pair.store.settle().unwrap();
    for _ in 0..70 {
        pair.append(0, &value).unwrap();
    }
    // The journal's next file must not meet the failure.
    let mut operations = 0;
    while operations != pair.sim.fs.operations() {
        operations = pair.sim.fs.operations();
        Env::real().clock.sleep(std::time::Duration::from_millis(300));
    }
    pair.sim.fs.fail_sync_after(0);
    assert!(pair.store.checkpoint().is_err());
    let names = pair.sim.fs.read_dir("/journal".as_ref()).unwrap();
    let held = names.iter().filter(|entry| entry.name.to_str().unwrap().starts_with("held-"));
    let sizes: Vec<_> = held.map(|entry| entry.len).collect();
    assert!(sizes.len() >= 3 && sizes.iter().all(|size| *size < 70 << 20), "{sizes:?}");
    let pair = pair.kill();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.values(0).len(), 140);
}

#[test]
fn log_of_a_failed_checkpoint_stays_open_until_put_aside() {
    let pair = Pair::new(StoreOptions { open_logs_max: 1, ..Machine::with_journal() });
    pair.append_numbers(0, 0..6);
    let expected = pair.values(0);
    pair.store.settle().unwrap();
    // Its last segment ends by time, and another partition needs its place.
    assert!(pair.log(0).roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
    pair.sim.fs.fail_sync_after(0);
    pair.append(1, "other").unwrap();
    assert!(pair.store.dir_failure(0).is_some(), "there was no checkpoint");
    pair.go_round(1);
    pair.sim.fs.crash();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.values(0), expected);
}

#[test]
fn segment_that_cannot_be_cut_after_recovery_costs_no_entries() {
    for (options, is_at_start) in [(Machine::with_journal(), false), (Machine::settled_at_start(), true)] {
        let pair = Pair::new(options);
        pair.append_numbers(0, 0..6);
        let expected = pair.values(0);
        pair.store.settle().unwrap();
        // The segment has more than the journal's entries.
        let dir = pair.log(0).path();
        let names = pair.sim.fs.read_dir(&dir).unwrap().into_iter().map(|entry| dir.join(entry.name));
        let path = names.into_iter().find(|path| path.extension().is_some_and(|end| end == "log")).unwrap();
        let file = pair.sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&[7; 500], file.len().unwrap()).unwrap();
        let Pair { sim, options, epoch, store, .. } = pair;
        sim.fs.kill();
        drop(store);
        sim.fs.fail_next_cut();
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        if !is_at_start {
            assert!(pair.store.checkpoint().is_err());
        }
        assert!(pair.store.dir_failure(0).is_some(), "nothing was cut");
        pair.go_round(1);
        assert_eq!(pair.store.journals().next().unwrap().held().len(), 1);
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        assert_eq!(pair.values(0), expected);
    }
}

#[test]
fn dir_that_fails_with_replayed_entries_is_whole_after_a_start() {
    for write in 0..2 {
        let mut pair = Pair::new(Machine::with_journal());
        pair.append_numbers(0, 0..3);
        pair.store.settle().unwrap();
        pair.append_numbers(0, 3..6);
        pair.append(1, "other").unwrap();
        let expected = pair.values(0);
        pair = pair.kill();
        pair.sim.fs.fail_write_after(write);
        assert!(pair.store.checkpoint().is_err(), "write {write}");
        assert!(pair.store.dir_failure(0).is_some(), "write {write}");
        assert_eq!(pair.values(0), expected, "reads go on");
        pair.go_round(1);
        assert_eq!(pair.store.journals().next().unwrap().held().len(), 1);
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert_eq!(pair.values(0), expected);
        assert_eq!(pair.append(0, "after").unwrap(), Offset(6));
        pair.store.checkpoint().unwrap();
        assert!(pair.store.journals().next().unwrap().held().is_empty(), "it is all under a checkpoint");
    }
}

#[test]
fn partly_deleted_batch_is_put_aside_whole_for_a_failed_dir() {
    let pair = Pair::new(Machine::with_journal());
    for number in 0..5 {
        let records = [(0, &*format!("first {number}")), (0, &*format!("second {number}"))];
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        put(&pair.log(0), &batch_at(&records, BatchOptions::default()), options).unwrap();
    }
    pair.log(0).delete_records(Offset(3)).unwrap();
    let mut pair = pair.kill();
    pair.append(1, "other").unwrap();
    pair.sim.fs.fail_write_after(0);
    assert!(pair.store.checkpoint().is_err());
    assert!(pair.store.dir_failure(0).is_some());
    pair.go_round(1);
    pair.sim.fs.crash();
    pair = pair.kill();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.log(0).log_start_offset().unwrap(), Offset(3));
    assert_eq!(pair.append(0, "after").unwrap(), Offset(10));
}
