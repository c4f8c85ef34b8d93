//! Log dirs that are missing or away, or that cannot be opened or read, beside a journal that others need.

use std::path::{Path, PathBuf};
use std::time::Duration;

use riverrun_env::sim::SimEnv;
use riverrun_env::{Clock, FileSystem, OpenMode, RealClock, read_whole};
use riverrun_log::{AppendError, LogError, LogStore, StoreOptions};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::Machine;
use crate::pair::{DIRS, Pair};

/// Failed work is tried again after so long at the latest.
const PAUSE_MAX: Duration = Duration::from_mins(1);

#[test]
fn dir_that_cannot_be_opened_does_not_hinder_the_others() {
    let sim = SimEnv::new(1);
    let file = sim.fs.open("/one".as_ref(), OpenMode::CreateNew).unwrap();
    file.write_all_at(b"not a directory", 0).unwrap();
    let pair = Pair::start(sim, Machine::with_journal(), 1).unwrap();
    assert!(pair.store.dir_failure(0).is_some() && pair.store.dir_failure(1).is_none());
    let error = pair.append(0, "no").unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::DirFailed { .. })), "{error}");
    assert!(matches!(pair.log(0).log_end_offset(), Err(LogError::DirFailed { .. })));
    assert_eq!(pair.append(1, "yes").unwrap(), Offset(0));
    pair.store.checkpoint().unwrap();
    pair.store.close().unwrap();
    let nothing = LogStore::open(&pair.sim.env(), &["/one".into()], StoreOptions::default());
    assert!(nothing.is_err(), "without any dir there is nothing to open");
}

#[test]
fn missing_dir_gets_its_entries_when_it_is_back() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    let expected = pair.values(0);
    let Pair { sim, options, store, .. } = pair;
    sim.fs.kill();
    drop(store);
    sim.fs.rename("/one".as_ref(), "/away".as_ref()).unwrap();
    let file = sim.fs.open("/one".as_ref(), OpenMode::CreateNew).unwrap();
    drop(file);
    let pair = Pair::start(sim, options, 2).unwrap();
    assert_eq!(pair.report.held_entries, 6);
    pair.go_round(1);
    let Pair { sim, options, store, .. } = pair;
    sim.fs.kill();
    drop(store);
    sim.fs.remove_file("/one".as_ref()).unwrap();
    sim.fs.rename("/away".as_ref(), "/one".as_ref()).unwrap();
    let pair = Pair::start(sim, options, 3).unwrap();
    assert_eq!(pair.values(0), expected);
}

/// An empty mount point is not the dir whose place it has.
#[test]
fn absent_dir_is_left_alone_and_gets_its_entries_later() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    let expected = pair.values(0);
    let Pair { sim, mut options, store, .. } = pair;
    sim.fs.kill();
    drop(store);
    sim.fs.rename("/one".as_ref(), "/away".as_ref()).unwrap();
    sim.fs.create_dir_all("/one".as_ref()).unwrap();
    options.absent_dirs.insert("/one".into(), "not mounted".to_owned());
    let pair = Pair::start(sim, options, 2).unwrap();
    assert_eq!(pair.store.dir_failure(0).unwrap().to_string(), "log dir /one has failed: not mounted");
    assert_eq!(pair.report.held_entries, 6);
    assert!(matches!(pair.log(0).log_end_offset(), Err(LogError::DirFailed { .. })));
    let deleted = pair.store.delete(pair.log(0).id(), 0);
    assert!(matches!(deleted, Err(LogError::DirFailed { .. })), "an absent dir is not removed: {deleted:?}");
    pair.go_round(1);
    pair.store.close().unwrap();
    assert_eq!(pair.sim.fs.read_dir("/one".as_ref()).unwrap().len(), 0);
    let Pair { sim, mut options, store, .. } = pair;
    drop(store);
    sim.fs.remove_dir("/one".as_ref()).unwrap();
    sim.fs.rename("/away".as_ref(), "/one".as_ref()).unwrap();
    options.absent_dirs.clear();
    let pair = Pair::start(sim, options, 3).unwrap();
    assert_eq!(pair.values(0), expected);
}

#[test]
fn entries_aside_for_an_absent_dir_stay_and_are_aside_once() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    let expected = pair.values(0);
    let Pair { sim, options, store, .. } = pair;
    sim.fs.kill();
    drop(store);
    sim.fs.rename("/one".as_ref(), "/away".as_ref()).unwrap();
    sim.fs.open("/one".as_ref(), OpenMode::CreateNew).unwrap();
    let mut counts = vec![];
    for epoch in 2..5 {
        drop(Pair::start(sim.clone(), options.clone(), epoch).unwrap());
        let names = sim.fs.read_dir("/journal".as_ref()).unwrap();
        let held = names.iter().filter(|entry| entry.name.to_str().unwrap().starts_with("held-"));
        counts.push(held.count());
    }
    assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    sim.fs.remove_file("/one".as_ref()).unwrap();
    sim.fs.rename("/away".as_ref(), "/one".as_ref()).unwrap();
    // A start that ends before it has recovered anything.
    let store = LogStore::open(&sim.env(), &DIRS.map(PathBuf::from), options.clone()).unwrap();
    let _nothing_to_cover = store.checkpoint();
    let error = store.close().unwrap_err();
    assert!(matches!(error, LogError::NotSettled { .. }), "{error}");
    let pair = Pair::start(sim, options, 5).unwrap();
    assert_eq!(pair.values(0), expected);
}

#[test]
fn unreadable_dir_frees_the_journal_and_is_whole_when_back() {
    for settled in [3, 6] {
        let pair = Pair::new(Machine::with_journal());
        pair.append_numbers(0, 0..settled);
        pair.store.settle().unwrap();
        pair.append_numbers(0, settled..6);
        let expected = pair.values(0);
        pair.append(1, "other").unwrap();
        pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
        pair.go_round(1);
        assert_eq!(pair.store.journals().next().unwrap().held().len(), 1);
        pair.sim.fs.make_unreadable(None).unwrap();
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert_eq!(pair.values(0), expected);
        assert_eq!(pair.append(0, "after").unwrap(), Offset(6));
    }
}

#[test]
fn damaged_entry_of_an_unreadable_dir_is_missed_when_it_is_back() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    pair.append(1, "other").unwrap();
    pair.store.settle().unwrap();
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    flip_in_journal(&pair, b"record 3");
    pair.go_round(1);
    assert!(!pair.store.journals().next().unwrap().held().is_empty());
    pair.sim.fs.make_unreadable(None).unwrap();
    pair.sim.fs.crash();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    let [(_, error)] = &pair.report.offline[..] else { panic!("{:?}", pair.report) };
    assert!(error.to_string().contains("records from offset 3 on were damaged"), "{error}");
}

/// A value with disk blocks of its own.
fn large_value(what: &str) -> String {
    format!("{what}{}", "y".repeat(20_000))
}

/// Breaks a block of the payload of the entry with such a value.
fn break_in_journal(pair: &Pair, what: &[u8]) {
    let (path, position) = place_in_journal(pair, what);
    let position = position.next_multiple_of(4096);
    pair.sim.fs.break_sectors(&path, position..position + 4096).unwrap();
}

/// Number of side files of the journal.
fn held_files(pair: &Pair) -> usize {
    let names = pair.sim.fs.read_dir("/journal".as_ref()).unwrap();
    names.iter().filter(|entry| entry.name.to_str().unwrap().starts_with("held-")).count()
}

#[test]
fn bad_sector_in_another_dirs_entries_does_not_pin_the_journal() {
    let pair = Pair::new(Machine::with_journal());
    pair.append(0, "record 0").unwrap();
    pair.append(1, &large_value("other")).unwrap();
    pair.append(0, "record 1").unwrap();
    let expected = pair.values(0);
    pair.store.settle().unwrap();
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    break_in_journal(&pair, b"other");
    pair.go_round(1);
    assert_eq!(pair.store.stuck_dirs(), []);
    let is_kept = pair.sim.fs.exists("/journal/00000000.damaged".as_ref()).unwrap();
    assert!(is_kept, "a journal must not write over unreadable entries");
    pair.sim.fs.make_unreadable(None).unwrap();
    pair.sim.fs.crash();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.values(0), expected);
}

/// Another partition of the dir keeps the checkpoint from covering all of it.
#[test]
fn bad_sector_in_covered_entries_does_not_pin_the_journal() {
    let pair = Pair::new(Machine::with_journal());
    let sick = pair.beside();
    pair.append_to(&sick, "settled").unwrap();
    pair.store.checkpoint().unwrap();
    assert!(sick.roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
    pair.sim.fs.rename(&sick.path(), "/elsewhere".as_ref()).unwrap();
    pair.append(0, &large_value("covered")).unwrap();
    pair.append_to(&sick, "sick").unwrap();
    pair.store.settle().unwrap_err();
    pair.store.checkpoint().unwrap_err();
    assert_eq!((pair.log(0).recovery_point(), sick.recovery_point()), (Offset(1), Offset(1)));
    pair.append(0, "after").unwrap();
    let _one_partition_cannot = pair.store.settle();
    let expected = pair.values(0);
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    break_in_journal(&pair, b"covered");
    pair.go_round(1);
    assert_eq!(pair.store.stuck_dirs(), []);
    pair.sim.fs.make_unreadable(None).unwrap();
    pair.sim.fs.rename("/elsewhere".as_ref(), &sick.path()).unwrap();
    pair.sim.fs.crash();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
    assert_eq!(pair.values(0), expected);
}

/// Six records of a dir in two files of the journal, of which the second begins with the fifth record.
fn in_two_files() -> Pair {
    let pair = Pair::new(Machine::with_journal());
    for number in 0..6 {
        pair.append(0, &large_value(&format!("record {number}"))).unwrap();
        pair.append(1, &"x".repeat(if number == 3 { 430_000 } else { 10 })).unwrap();
    }
    pair.store.settle().unwrap();
    pair
}

#[test]
fn a_stop_reads_what_could_not_be_read_a_moment_ago() {
    let pair = in_two_files();
    let expected = pair.values(0);
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    let (file, _) = place_in_journal(&pair, b"record 4");
    break_in_journal(&pair, b"record 4");
    fill_journal(&pair);
    assert_eq!(pair.store.stuck_dirs().len(), 1);
    pair.sim.fs.break_sectors(&file, 0..0).unwrap();
    pair.store.close().unwrap();
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    sim.fs.make_unreadable(None).unwrap();
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert_eq!(pair.values(0), expected);
}

/// The only copy may lie there, and the disk may give it back.
#[test]
fn bad_sector_in_an_unreadable_dirs_entries_pins_the_journal() {
    for is_damaged in [false, true] {
        let pair = in_two_files();
        let expected = pair.values(0);
        pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
        if is_damaged {
            flip_in_journal(&pair, b"record 3");
        }
        let (file, _) = place_in_journal(&pair, b"record 4");
        assert_ne!(file, place_in_journal(&pair, b"ecord 3").0);
        break_in_journal(&pair, b"record 4");
        fill_journal(&pair);
        let [(dir, reason)] = &pair.store.stuck_dirs()[..] else { panic!("{:?}", pair.store.stuck_dirs()) };
        assert_eq!(dir, Path::new("/one"));
        assert!(reason.contains(file.to_str().unwrap()) && reason.contains("stop the server"), "{reason}");
        pair.store.wake_settling();
        let clock = RealClock::new();
        let begun = clock.monotonic();
        assert!(pair.store.wait_for_settling(0, Duration::from_secs(9)));
        assert!(
            clock.monotonic() >= begun + Duration::from_millis(200),
            "cycles that lead to nothing follow each other"
        );
        let before = held_files(&pair);
        for _ in 0..5 {
            pair.sim.clock.advance(PAUSE_MAX);
            let _one_dir_has_failed = pair.store.settle();
            assert_eq!(held_files(&pair), before, "entries aside are put there once more");
        }

        pair.sim.fs.break_sectors(&file, 0..0).unwrap();
        let _one_dir_has_failed = pair.store.settle();
        assert_eq!(pair.store.stuck_dirs().len(), 1, "it reads slowly, and is not asked in each cycle");
        pair.sim.clock.advance(PAUSE_MAX);
        let _one_dir_has_failed = pair.store.settle();
        assert_eq!(pair.store.stuck_dirs(), []);
        pair.go_round(1);
        pair.sim.fs.make_unreadable(None).unwrap();
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        let pair = Pair::start(sim, options, epoch + 1).unwrap();
        match &pair.report.offline[..] {
            [] => assert!(!is_damaged && pair.values(0) == expected),
            [(_, error)] => {
                let error = error.to_string();
                assert!(is_damaged && error.contains("records from offset 3 on were damaged"), "{error}");
            }
            offline => panic!("{offline:?}"),
        }
    }
}

#[test]
fn failed_dirs_entries_that_cannot_go_aside_take_no_cache_room() {
    let pair = Pair::new(StoreOptions { write_cache_bytes: 1 << 20, ..Machine::with_journal() });
    pair.append(0, &large_value("settled")).unwrap();
    pair.store.settle().unwrap();
    for _ in 0..6 {
        pair.append(0, &"x".repeat(100_000)).unwrap();
    }
    assert!(pair.store.is_write_cache_full());
    break_in_journal(&pair, b"settled");
    pair.sim.fs.kill_device(Some("/one".as_ref())).unwrap();
    let _one_dir_has_failed = pair.store.settle();
    assert_eq!(pair.store.stuck_dirs().len(), 1);
    assert!(!pair.store.is_write_cache_full(), "the other dir's producers stand still");
    for _ in 0..6 {
        pair.append(1, &"x".repeat(100_000)).unwrap();
    }
    assert!(pair.store.is_write_cache_full(), "bytes of other dirs are bounded");
    let _one_dir_has_failed = pair.store.settle();
    assert!(!pair.store.is_write_cache_full());
}

#[test]
fn tails_of_an_unreadable_dir_are_put_aside_from_memory() {
    for is_unreadable in [false, true] {
        let pair = Pair::new(Machine::with_journal());
        pair.append(0, "settled").unwrap();
        pair.store.settle().unwrap();
        for number in 0..2 {
            pair.append(0, &large_value(&format!("tail {number}"))).unwrap();
        }
        let expected = pair.values(0);
        if is_unreadable {
            break_in_journal(&pair, b"tail 0");
        } else {
            flip_in_journal(&pair, b"tail 0");
        }
        pair.sim.fs.kill_device(Some("/one".as_ref())).unwrap();
        pair.go_round(1);
        assert_eq!(pair.store.stuck_dirs(), []);
        pair.sim.fs.kill_device(None).unwrap();
        let pair = pair.kill();
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert_eq!(pair.values(0), expected);
    }
}

#[test]
fn a_bad_sector_in_one_journal_keeps_no_other() {
    let journal_dirs = vec!["/journal".into(), "/journal2".into()];
    let pair = Pair::new(StoreOptions { journal_dirs, ..Machine::with_journal() });
    let [sick, well] = [0, 1].map(|journal| {
        let mut indexes = (0..100).map(|number| number * 2 + i32::try_from(journal).unwrap());
        indexes.find_map(|index| pair.partition_in(index, journal)).unwrap()
    });
    assert_eq!([sick.id().index % 2, well.id().index % 2], [0, 1], "one of each dir");
    pair.append_to(&sick, &large_value("settled")).unwrap();
    pair.store.settle().unwrap();
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    break_in_journal(&pair, b"settled");
    let used_bytes = || pair.store.journals().nth(1).unwrap().used_bytes();
    for _ in 0..40 {
        pair.append_to(&well, &"x".repeat(200_000)).unwrap();
        let _one_dir_has_failed = pair.store.settle();
        assert!(used_bytes() < 3 << 20, "the journal is pinned");
    }
    assert!(pair.store.dir_failure(0).is_some() && pair.store.dir_failure(1).is_none());
}

/// Fills the journal until its files cannot be used again any more.
fn fill_journal(pair: &Pair) {
    let value = "x".repeat(200_000);
    for _ in 0..10 {
        if pair.used_bytes() < 5 << 19 {
            pair.append(1, &value).unwrap();
        }
        let _one_dir_has_failed = pair.store.settle();
    }
    assert!(pair.used_bytes() >= 5 << 19, "the journal goes on");
}

/// The journal's file that has these bytes, and their position.
fn place_in_journal(pair: &Pair, what: &[u8]) -> (PathBuf, u64) {
    let names = pair.sim.fs.read_dir("/journal".as_ref()).unwrap();
    let paths = names.iter().map(|entry| Path::new("/journal").join(&entry.name));
    let found =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "journal")).find_map(|path| {
            let bytes = read_whole(&*pair.sim.fs, &path, 1 << 30).unwrap();
            let position = bytes.windows(what.len()).position(|window| window == what)?;
            Some((path, position as u64))
        });
    found.unwrap()
}

/// Changes a byte of these in the journal.
fn flip_in_journal(pair: &Pair, what: &[u8]) {
    let (path, position) = place_in_journal(pair, what);
    let file = pair.sim.fs.open(&path, OpenMode::ReadWrite).unwrap();
    file.write_all_at(b"R", position).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn entries_that_come_while_a_dir_cannot_be_read_are_put_aside() {
    let pair = Pair::new(Machine::with_journal());
    pair.append(0, "record 0").unwrap();
    pair.store.settle().unwrap();
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    // It fails with the first write, and until then it acks records that only the journal has.
    for number in 1..9 {
        pair.append(0, &format!("record {number}")).unwrap();
        pair.append(1, "other").unwrap();
    }
    pair.sim.fs.fail_write_after(0);
    assert!(pair.store.settle().is_err());
    assert!(pair.store.dir_failure(0).is_some());
    let value = "x".repeat(200_000);
    for _ in 0..40 {
        pair.append(1, &value).unwrap();
        assert!(pair.used_bytes() < 3 << 20, "the journal is pinned");
        pair.store.settle().expect("earlier failures were logged");
    }
    pair.sim.fs.make_unreadable(None).unwrap();
    let pair = pair.kill();
    let expected: Vec<_> = (0..9).map(|number| format!("record {number}")).collect();
    assert_eq!(pair.values(0), expected);
}

/// After a start the index is opened first, to be added to. If its failure were not the dir's, nothing would ever be
/// written, and the dir would take records that it cannot keep.
#[test]
fn dir_fails_if_an_index_cannot_be_opened_in_settling() {
    let pair = Pair::new(Machine::with_journal());
    pair.append_numbers(0, 0..6);
    let Pair { sim, options, epoch, store, .. } = pair;
    store.close().unwrap();
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    pair.append(0, &"x".repeat(10_000)).unwrap();
    pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
    let settled = pair.store.settle().and_then(|()| pair.store.checkpoint());
    assert!(settled.is_err() && pair.store.dir_failure(0).is_some(), "{settled:?}");
    assert!(pair.append(0, "no more").is_err());
    pair.append(1, "other").unwrap();
    pair.sim.fs.make_unreadable(None).unwrap();
    let pair = pair.kill();
    assert_eq!(pair.values(0).len(), 7);
}
