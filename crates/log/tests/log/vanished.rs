//! Directories and files that are taken away, or replaced, under a running store.

use std::path::Path;
use std::sync::Arc;

use riverrun_env::{FileSystem, OpenMode};
use riverrun_log::{AppendError, LogError, PartitionLog, StoreOptions, verify_partition};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{ID, Machine, numbers};
use crate::pair::{Pair, values_of};

const AWAY: &str = "/away";

fn pair() -> Pair {
    Pair::new(Machine::with_journal())
}

/// The server's look, which it takes now and then.
fn look(pair: &Pair) {
    pair.store.look_for_vanished(&[]);
}

/// A log with three segments, of which the last is appended to.
fn with_segments(pair: &Pair) -> Arc<PartitionLog> {
    let log = pair.log(0);
    for number in 0..3 {
        pair.append(0, &format!("record {number}")).unwrap();
        pair.store.settle().unwrap();
        if number < 2 {
            assert!(log.roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
        }
    }
    pair.store.checkpoint().unwrap();
    log
}

fn is_offline(log: &PartitionLog) -> bool {
    matches!(log.failure(), Some(LogError::Vanished { .. }))
}

/// It takes nothing, and tells the reason; all others go on.
fn assert_only_it_is_offline(pair: &Pair, log: &PartitionLog, path: &Path) {
    assert!(is_offline(log), "{:?}", log.failure());
    let damaged = pair.store.damaged();
    let [(id, error)] = &damaged[..] else { panic!("{damaged:?}") };
    assert!(*id == log.id() && error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(matches!(pair.append_to(log, "no"), Err(AppendError::Storage(LogError::Vanished { .. }))));
    assert!(log.read(Offset(0), 100, Offset(1), true).is_err());
    for other in [pair.beside(), pair.log(1)] {
        pair.append_to(&other, "yes").unwrap();
    }
    pair.store.settle().unwrap();
    pair.store.checkpoint().unwrap();
    assert!(pair.store.dir_failure(0).is_none() && pair.store.unwritable().is_empty());
}

/// Spoils the files of a partition, given its directory and one of its `.log` files.
type Spoil = fn(&dyn FileSystem, &Path, &Path);

#[test]
fn partition_whose_files_are_gone_or_replaced_is_offline_alone() {
    let spoils: [(usize, Spoil); 5] = [
        (2, |fs, dir, _| fs.remove_dir_all(dir).unwrap()),
        (2, |fs, _, log| fs.remove_file(log).unwrap()),
        (2, |fs, _, log| {
            fs.remove_file(log).unwrap();
            fs.open(log, OpenMode::CreateNew).unwrap().write_all_at(&[0; 10_000], 0).unwrap();
        }),
        (0, |fs, _, log| fs.open(log, OpenMode::ReadWrite).unwrap().set_len(10).unwrap()),
        (1, |fs, _, log| {
            fs.remove_file(log).unwrap();
            fs.create_dir(log).unwrap();
        }),
    ];
    for (segment, spoil) in spoils {
        let pair = pair();
        let log = with_segments(&pair);
        look(&pair);
        assert!(log.failure().is_none());
        let path = log.path().join(format!("{segment:020}.log"));
        spoil(&*pair.sim.fs, &log.path(), &path);
        look(&pair);
        let named = if segment == 2 { log.path() } else { path };
        assert_only_it_is_offline(&pair, &log, &named);
    }
}

#[test]
fn a_checkpoint_says_nothing_of_what_was_removed_before_it() {
    let pair = pair();
    pair.append_numbers(0, 0..3);
    pair.store.settle().unwrap();
    let log = pair.log(0);
    pair.sim.fs.remove_dir_all(&log.path()).unwrap();
    pair.append_numbers(0, 3..5);
    pair.store.checkpoint().unwrap();
    look(&pair);
    assert!(is_offline(&log));
    pair.go_round(1);
    let pair = pair.kill();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report.offline);
    let expected: Vec<_> = (0..5).map(|number| format!("record {number}")).collect();
    assert_eq!(pair.values(0), expected, "the journal has all that no checkpoint covers");
    pair.append(0, "goes on").unwrap();
}

#[test]
fn partition_without_covered_files_stays_offline_after_a_stop() {
    let pair = pair();
    let log = with_segments(&pair);
    pair.append(0, "record 3").unwrap();
    pair.sim.fs.remove_dir_all(&log.path()).unwrap();
    look(&pair);
    assert!(is_offline(&log));
    pair.go_round(1);
    let Pair { sim, options, epoch, store, .. } = pair;
    // The journal has records that no log has: that is no stop in order, and loses nothing.
    let _unclean = store.close();
    drop((log, store));
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert_eq!(pair.report.offline.len(), 1, "{:?}", pair.report);
    assert!(pair.append(0, "no").is_err());
    assert!(pair.store.has_aside());
    pair.append(1, "yes").unwrap();
}

#[test]
fn a_partition_that_was_renamed_takes_nothing_until_it_is_back() {
    let pair = pair();
    let log = with_segments(&pair);
    let dir = log.path();
    for number in 3..6 {
        pair.sim.fs.rename(&dir, AWAY.as_ref()).unwrap();
        look(&pair);
        let error = pair.append(0, "no").unwrap_err();
        assert!(matches!(error, AppendError::Storage(LogError::Aside(_))), "{error}");
        let unwritable = pair.store.unwritable();
        let [(id, reason)] = &unwritable[..] else { panic!("{unwritable:?}") };
        assert!(*id == log.id() && reason.to_string().contains("was taken away"), "{reason}");
        let _one_partition_cannot = pair.store.checkpoint();
        assert!(!pair.sim.fs.exists(&dir).unwrap(), "nothing is made in its place");
        pair.sim.fs.rename(AWAY.as_ref(), &dir).unwrap();
        look(&pair);
        assert!(pair.store.unwritable().is_empty());
        pair.append(0, &format!("record {number}")).unwrap();
    }
    let expected: Vec<_> = (0..6).map(|number| format!("record {number}")).collect();
    assert_eq!(values_of(&log), expected);
    drop(log);
    assert_eq!(pair.kill().values(0), expected);
}

#[test]
fn log_taken_away_while_it_is_settled_stays_in_the_journal() {
    let pair = pair();
    let log = with_segments(&pair);
    pair.sim.fs.rename(&log.path(), AWAY.as_ref()).unwrap();
    pair.append(0, "record 3").unwrap();
    pair.store.checkpoint().unwrap();
    pair.go_round(1);
    let path = log.path();
    drop(log);
    pair.sim.fs.rename(AWAY.as_ref(), &path).unwrap();
    let pair = pair.kill();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report.offline);
    assert_eq!(pair.values(0).last().unwrap(), "record 3");
}

#[test]
fn log_dir_that_is_gone_or_covered_fails_and_is_not_made_anew() {
    let spoils: [fn(&dyn FileSystem); 5] = [
        |fs| fs.remove_dir_all("/one".as_ref()).unwrap(),
        |fs| fs.rename("/one".as_ref(), AWAY.as_ref()).unwrap(),
        // As after the end of a mount: the empty directory below is seen.
        |fs| {
            fs.rename("/one".as_ref(), AWAY.as_ref()).unwrap();
            fs.create_dir("/one".as_ref()).unwrap();
        },
        |fs| fs.remove_file("/one/lock".as_ref()).unwrap(),
        |fs| fs.remove_file("/one/device-check".as_ref()).unwrap(),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        for is_noticed_by_look in [true, false] {
            let pair = pair();
            let log = with_segments(&pair);
            pair.append(0, "record 3").unwrap();
            spoil(&*pair.sim.fs);
            if is_noticed_by_look {
                look(&pair);
            } else {
                // A use that needs another directory there notices it, too.
                assert!(pair.append_to(&pair.beside(), "new").is_err());
            }
            let failure = pair.store.dir_failure(0).unwrap().to_string();
            assert!(
                failure.contains("under the running server") || failure.contains("in its place"),
                "{failure}"
            );
            assert!(matches!(pair.append(0, "no"), Err(AppendError::Storage(LogError::DirFailed { .. }))));
            assert!(pair.store.damaged().is_empty(), "it is the dir's failure");
            let deleted = pair.store.delete(pair.beside().id(), 0);
            assert!(
                matches!(deleted, Err(LogError::DirFailed { .. })),
                "an absent dir is not removed: {deleted:?}"
            );
            pair.append(1, "yes").unwrap();
            pair.go_round(1);
            drop(log);
            pair.store.close().unwrap();
            if number < 3 {
                let found = pair.sim.fs.read_dir("/one".as_ref()).unwrap_or_default();
                assert!(found.is_empty(), "{number}: {found:?}");
            }
            if number == 0 {
                continue;
            }
            let Pair { sim, options, epoch, store, .. } = pair;
            drop(store);
            if number < 3 {
                sim.fs.remove_dir_all("/one".as_ref()).unwrap_or(());
                sim.fs.rename(AWAY.as_ref(), "/one".as_ref()).unwrap();
            }
            let pair = Pair::start(sim, options, epoch + 1).unwrap();
            assert_eq!(pair.values(0).last().unwrap(), "record 3", "{number}");
        }
    }
}

#[test]
fn files_that_the_caller_keeps_in_a_log_dir_belong_to_it() {
    let pair = pair();
    let mine = "/one/mine";
    pair.sim.fs.open(mine.as_ref(), OpenMode::CreateNew).unwrap();
    let look = || {
        pair.store.look_for_vanished(&["mine"]);
        [0, 1].map(|dir| pair.store.dir_failure(dir).is_some())
    };
    pair.sim.fs.open("/two/mine".as_ref(), OpenMode::CreateNew).unwrap();
    assert_eq!(look(), [false, false]);
    pair.sim.fs.remove_file(mine.as_ref()).unwrap();
    assert_eq!(look(), [true, false]);
}

#[test]
fn topic_is_made_in_the_opened_dir_and_nothing_above_it() {
    let pair = Pair::new(StoreOptions { write_cache_bytes: 1, ..Machine::with_journal() });
    pair.sim.fs.rename("/one".as_ref(), AWAY.as_ref()).unwrap();
    assert!(pair.append(0, "no").is_err());
    let _one_dir_has_failed = pair.store.settle();
    assert!(!pair.sim.fs.exists("/one".as_ref()).unwrap());
}

#[test]
fn retention_and_deletion_are_no_vanishing() {
    let pair = pair();
    let log = with_segments(&pair);
    log.delete_records(Offset(2)).unwrap();
    log.apply_retention(TimestampMs(i64::MAX / 2), Offset(3)).unwrap();
    look(&pair);
    assert!(log.failure().is_none());
    pair.append(0, "record 3").unwrap();
    pair.store.delete(log.id(), 0).unwrap();
    look(&pair);
    assert!(pair.store.damaged().is_empty() && pair.store.unwritable().is_empty());
}

#[test]
fn idle_partition_with_missing_files_does_not_seem_whole() {
    let pair = pair();
    let log = with_segments(&pair);
    let whole = || pair.store.seems_whole(log.id(), 0);
    assert!(whole() && pair.store.seems_whole(pair.beside().id(), 0));
    pair.sim.fs.remove_file(&log.path().join(format!("{:020}.log", 1))).unwrap();
    assert!(!whole());
    pair.sim.fs.remove_dir_all(&log.path()).unwrap();
    assert!(!whole());
}

/// The log beside an index has everything to make it anew.
#[test]
fn index_that_is_taken_away_is_made_anew_when_it_is_needed() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 30);
    machine.store().checkpoint().unwrap();
    let indexes: Vec<_> = machine.log_paths().iter().map(|path| path.with_extension("index")).collect();
    let take_away =
        || indexes.iter().map(|path| machine.sim.fs.remove_file(path).is_ok()).filter(|gone| *gone).count();
    assert_eq!(take_away(), indexes.len());
    assert_eq!(machine.records().unwrap(), numbers(0, 30), "read");
    assert_eq!(take_away(), indexes.len(), "they were made anew");
    machine.append_numbers(30, 33);
    machine.store().checkpoint().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 33), "written");
    assert!(machine.log().failure().is_none());
    // An index that was open is closed with the process.
    machine.restart();
    assert_eq!(machine.records().unwrap(), numbers(0, 33));
    let report = verify_partition(&machine.sim.env(), &machine.partition_dir(), ID).unwrap();
    assert_eq!(report.findings, []);
}
