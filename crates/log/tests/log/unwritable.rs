//! Partitions that alone cannot be written to: they take no more records, lose none, and hold up no other.

use std::path::Path;
use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_journal::JournalOptions;
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions, LogError, PartitionLog, StoreOptions};
use riverrun_records::BatchOptions;
use riverrun_types::{ErrorKind, TimestampMs};

use crate::machine::{Machine, batch_at, put};
use crate::pair::{Pair, values_of};

const CACHE_BYTES: u64 = 1 << 20;
/// Bytes of a record's key, and of its value: five records fit into the write cache.
const VALUE_BYTES: usize = 100_000;
const AWAY: &str = "/away";

/// A write cache that is full long before the journal is half full.
fn pair() -> Pair {
    let journal = JournalOptions::with_bytes(64 << 20);
    Pair::new(StoreOptions { write_cache_bytes: CACHE_BYTES, journal, ..Machine::with_journal() })
}

fn value(number: usize) -> String {
    format!("{number} {}", "x".repeat(VALUE_BYTES))
}

fn append(pair: &Pair, log: &PartitionLog, value: &str) -> Result<(), AppendError> {
    let options = AppendOptions { origin: AppendOrigin::Client, now: pair.sim.env().clock.wall() };
    put(log, &batch_at(&[(0, value)], BatchOptions::default()), options).map(|_| ())
}

fn check_refused(error: &AppendError) {
    assert!(matches!(error, AppendError::Storage(LogError::Aside(_))), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
}

/// Ends the segment, so that the next record needs another one.
fn end_segment(pair: &Pair, log: &PartitionLog) {
    append(pair, log, "settled").unwrap();
    pair.store.checkpoint().unwrap();
    assert!(log.roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
}

fn take_directory_away(pair: &Pair, log: &PartitionLog) {
    end_segment(pair, log);
    pair.sim.fs.rename(&log.path(), Path::new(AWAY)).unwrap();
}

fn bring_directory_back(pair: &Pair, log: &PartitionLog) {
    pair.sim.fs.rename(Path::new(AWAY), &log.path()).unwrap();
}

/// Settles as the settlers would do now.
fn settle_if_due(pair: &Pair) {
    for dir in 0..pair.store.dir_count() {
        if pair.store.wait_for_settling(dir, Duration::ZERO) {
            let _one_partition_cannot = pair.store.settle_dir(dir);
        }
    }
}

/// Appends to these are neither refused nor held up for long.
fn assert_goes_on(pair: &Pair, logs: &[&PartitionLog]) {
    for number in 0..20 {
        for log in logs {
            assert!(!pair.store.is_write_cache_full(), "producers are held up in round {number}");
            append(pair, log, &value(number)).unwrap();
        }
        settle_if_due(pair);
    }
}

#[test]
fn busy_unwritable_partition_holds_up_no_other_partition() {
    let pair = pair();
    let (sick, beside, other) = (pair.log(0), pair.beside(), pair.log(1));
    take_directory_away(&pair, &sick);
    let mut taken = vec!["settled".to_owned()];
    for number in 0..40 {
        assert!(!pair.store.is_write_cache_full(), "producers are held up in round {number}");
        match append(&pair, &sick, &value(number)) {
            Ok(()) => taken.push(value(number)),
            Err(error) => check_refused(&error),
        }
        settle_if_due(&pair);
    }
    assert!((2..6).contains(&taken.len()), "{} were taken", taken.len());
    assert_goes_on(&pair, &[&beside, &other]);
    assert!(pair.store.journals().all(|journal| journal.used_bytes() < journal.bytes_max() / 2));
    let unwritable = pair.store.unwritable();
    let [(id, reason)] = &unwritable[..] else { panic!("{unwritable:?}") };
    assert!(*id == sick.id() && reason.to_string().contains(sick.path().to_str().unwrap()), "{reason}");
    assert!(pair.store.dir_failure(0).is_none());
    let last = sick.log_end_offset().unwrap().plus(-1);
    let read = sick.read(last, 1, last.next(), true).unwrap();
    assert_eq!(read.next_offset, last.next(), "acked records can be read");

    let expected = [taken, values_of(&beside), values_of(&other)];
    pair.sim.fs.kill();
    bring_directory_back(&pair, &sick);
    drop((sick, beside, other));
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report.offline);
    assert_eq!([&pair.log(0), &pair.beside(), &pair.log(1)].map(|log| values_of(log)), expected);
    pair.store.settle().unwrap();
    append(&pair, &pair.log(0), "goes on").unwrap();
}

#[test]
fn partition_goes_on_and_gives_room_back_once_it_is_writable() {
    let pair = pair();
    let (sick, other) = (pair.log(0), pair.log(1));
    let mut expected = vec![];
    for _ in 0..3 {
        take_directory_away(&pair, &sick);
        expected.push("settled".to_owned());
        // Nearly as much as there is room for beside the write cache.
        for number in 0..5 {
            append(&pair, &sick, &value(number)).unwrap();
            expected.push(value(number));
        }
        assert!(pair.store.settle().is_err());
        check_refused(&append(&pair, &sick, "no").unwrap_err());
        assert_eq!(pair.store.write_cache().bytes(), 0);
        assert_goes_on(&pair, &[&other]);
        bring_directory_back(&pair, &sick);
        pair.store.settle().unwrap();
        assert!(pair.store.unwritable().is_empty());
    }
    assert_eq!((pair.store.write_cache().bytes(), values_of(&sick)), (0, expected));
}

#[test]
fn tails_leave_the_write_cache_only_as_far_as_room_beside_it() {
    let pair = pair();
    let (sick, other) = (pair.log(0), pair.log(1));
    take_directory_away(&pair, &sick);
    for number in 0..8 {
        append(&pair, &sick, &value(number)).unwrap();
    }
    let before = pair.store.write_cache().bytes();
    assert!(pair.store.is_write_cache_full());
    assert!(pair.store.settle().is_err());
    let left = pair.store.write_cache().bytes();
    assert!(left > 0 && before - left <= CACHE_BYTES, "{left} of {before} are counted still");
    assert_goes_on(&pair, &[&other]);
}

#[test]
fn stop_with_an_unwritable_partition_names_the_file() {
    let pair = pair();
    let (sick, other) = (pair.log(0), pair.log(1));
    take_directory_away(&pair, &sick);
    let mut expected = vec!["settled".to_owned()];
    for number in 0..3 {
        append(&pair, &sick, &value(number)).unwrap();
        append(&pair, &other, &value(number)).unwrap();
        expected.push(value(number));
    }
    assert!(pair.store.settle().is_err());
    let path = sick.path();
    let error = pair.store.close().unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    bring_directory_back(&pair, &sick);
    drop((sick, other));
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    let pair = Pair::start(sim, options, epoch + 1).unwrap();
    assert!(pair.report.offline.is_empty(), "{:?}", pair.report.offline);
    assert_eq!((&pair.values(0)[..], &pair.values(1)[..]), (&expected[..], &expected[1..]));
    pair.store.close().unwrap();
}

#[test]
fn few_descriptors_refuse_no_append_while_the_cache_has_room() {
    let pair = pair();
    let log = pair.log(0);
    end_segment(&pair, &log);
    pair.sim.fs.exhaust_descriptors(true);
    for number in 0..2 {
        append(&pair, &log, &value(number)).unwrap();
        assert!(pair.store.settle().is_err());
        assert!(pair.store.unwritable().is_empty());
    }
    append(&pair, &log, &value(2)).unwrap();
    assert!(pair.store.settle().is_err());
    check_refused(&append(&pair, &log, "no").unwrap_err());
    assert_eq!(pair.store.write_cache().bytes(), 0, "others have all of it");
    pair.sim.fs.exhaust_descriptors(false);
    pair.store.settle().unwrap();
    append(&pair, &log, "goes on").unwrap();
}
