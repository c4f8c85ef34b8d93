//! Log dirs whose device dies, found by any of their users, and partitions that alone cannot be written to.

use std::path::Path;
use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_journal::{Journal, RecoveredEntry};
use riverrun_log::{AppendError, Closed, LogError, StoreOptions};
use riverrun_types::{ErrorKind, Offset, PartitionId, TimestampMs, TopicId};

use crate::machine::{ID, Machine, numbers};
use crate::pair::{Pair, wait_until};

/// A use of the first dir.
type Use = fn(&Pair);

/// A server that has just started in order, with three records in each dir; no partition is open.
fn started() -> Pair {
    let pair = Pair::new(Machine::with_journal());
    for number in 0..3 {
        (0..2).for_each(|dir| _ = pair.append(dir, &format!("record {number}")).unwrap());
    }
    let Pair { sim, options, epoch, store, .. } = pair;
    store.close().unwrap();
    drop(store);
    Pair::start(sim, options, epoch + 1).unwrap()
}

fn kill_device(pair: &Pair) {
    pair.sim.fs.kill_device(Some("/one".as_ref())).unwrap();
}

fn start_again(pair: Pair) -> Pair {
    let Pair { sim, options, epoch, store, .. } = pair;
    drop(store);
    sim.fs.kill_device(None).unwrap();
    Pair::start(sim, options, epoch + 1).unwrap()
}

fn is_failed(pair: &Pair) -> bool {
    assert!(pair.store.dir_failure(1).is_none(), "the other one is well");
    pair.store.dir_failure(0).is_some()
}

#[test]
fn a_dir_fails_with_the_first_use_that_meets_its_dead_device() {
    let uses: [(&str, Use); 6] = [
        ("append", |pair| _ = pair.append(0, "no").unwrap_err()),
        ("open", |pair| _ = pair.log(0).log_end_offset().unwrap_err()),
        ("delete records", |pair| _ = pair.log(0).delete_records(Offset(1)).unwrap_err()),
        ("retention", |pair| _ = pair.log(0).apply_retention(TimestampMs(0), Offset(3)).unwrap_err()),
        ("delete", |pair| _ = pair.store.delete(pair.log(0).id(), 0).unwrap_err()),
        ("look", |pair| pair.store.look_at_devices()),
    ];
    for (name, use_it) in uses {
        let pair = started();
        kill_device(&pair);
        assert!(!is_failed(&pair), "{name}: the device was not looked at");
        use_it(&pair);
        let _it_has_failed = pair.store.settle();
        assert!(is_failed(&pair), "{name}");
        let error = pair.append(0, "no").unwrap_err();
        assert!(matches!(error, AppendError::Storage(LogError::DirFailed { .. })), "{name}: {error}");
        assert_eq!(pair.append(1, "goes on").unwrap(), Offset(3));
        pair.store.checkpoint().unwrap_err();
        assert_eq!(pair.store.close().map_err(|error| error.to_string()), Ok(Closed::InOrder), "{name}");
        let pair = start_again(pair);
        assert!(pair.report.offline.is_empty(), "{name}: {:?}", pair.report);
        assert_eq!((pair.values(0).len(), pair.values(1).len()), (3, 4), "{name}");
    }
}

#[test]
fn read_error_fails_the_dir_only_if_the_device_is_dead() {
    for is_dead in [false, true] {
        let pair = started();
        assert_eq!(pair.log(0).log_end_offset().unwrap(), Offset(3));
        if is_dead {
            kill_device(&pair);
        } else {
            pair.sim.fs.make_unreadable(Some("/one".as_ref())).unwrap();
        }
        let _it_was_told_of_the_start = pair.store.wait_for_settling(0, Duration::ZERO);
        let syncs = pair.sim.fs.syncs();
        for is_first in [true, false] {
            assert!(pair.log(0).read(Offset(0), 1000, Offset(3), true).is_err());
            assert_eq!(pair.store.wait_for_settling(0, Duration::ZERO), is_first, "one look a second");
        }
        assert_eq!(pair.sim.fs.syncs(), syncs, "a read waits for no sync");
        assert!(!is_failed(&pair));
        assert_eq!(pair.store.settle().is_err(), is_dead);
        assert_eq!(is_failed(&pair), is_dead);
    }
}

#[test]
fn few_descriptors_for_an_index_are_not_taken_for_a_dead_device() {
    let pair = started();
    pair.append(0, &"x".repeat(10_000)).unwrap();
    pair.sim.fs.exhaust_descriptors(true);
    for _ in 0..2 {
        assert!(pair.store.settle().and_then(|()| pair.store.checkpoint()).is_err());
        assert!(!is_failed(&pair));
    }
    pair.sim.fs.exhaust_descriptors(false);
    pair.store.settle().unwrap();
    assert_eq!(pair.append(0, "goes on").unwrap(), Offset(4));
}

#[test]
fn a_dir_without_space_is_not_taken_for_a_dead_one() {
    let pair = started();
    pair.sim.fs.set_space(Some(0));
    pair.store.look_at_devices();
    assert!(!is_failed(&pair));
    pair.sim.fs.set_space(None);
    pair.append(0, "goes on").unwrap();
}

#[test]
fn stop_with_a_dead_device_closes_others_and_keeps_its_entries() {
    for settled in 0..4 {
        let pair = started();
        for number in 0..3 {
            pair.append(0, &format!("more {number}")).unwrap();
            pair.append(1, "other").unwrap();
            if number == settled {
                pair.store.settle().unwrap();
            }
        }
        kill_device(&pair);
        assert_eq!(pair.store.close().map_err(|error| error.to_string()), Ok(Closed::InOrder));
        assert!(is_failed(&pair) && pair.store.has_aside());
        let pair = start_again(pair);
        assert!(pair.report.offline.is_empty(), "{:?}", pair.report);
        assert_eq!((pair.values(0).len(), pair.values(1).len()), (6, 6));
        pair.store.checkpoint().unwrap();
        assert!(!pair.store.has_aside());
        pair.store.close().unwrap();
    }
}

#[test]
fn stop_that_cannot_put_aside_a_dead_devices_entries_fails() {
    let pair = started();
    pair.append(0, "more").unwrap();
    pair.sim.fs.set_space(Some(0));
    kill_device(&pair);
    assert!(pair.store.close().is_err());
    pair.sim.fs.set_space(None);
    assert_eq!(start_again(pair).values(0).len(), 4);
}

/// Bytes of the entries that the journal keeps aside, and their partitions.
fn aside(pair: &Pair) -> (u64, Vec<PartitionId>) {
    let names = pair.sim.fs.read_dir("/journal".as_ref()).unwrap();
    let held = names.iter().filter(|entry| entry.name.to_str().unwrap().starts_with("held-"));
    let mut ids = vec![];
    let journal = pair.store.journals().next().unwrap();
    for name in journal.held() {
        let take = |entries: Vec<RecoveredEntry>| {
            ids.extend(entries.iter().map(|entry| {
                let (topic, index) = entry.header.stream.0.split_at(16);
                PartitionId {
                    topic: TopicId(topic.try_into().unwrap()),
                    index: i32::from_be_bytes(index.try_into().unwrap()),
                }
            }));
        };
        journal.read_held(&name, take).unwrap();
    }
    ids.dedup();
    (held.map(|entry| entry.len).sum(), ids)
}

/// A directory that was taken away is not the disk's fault: only this partition cannot be written to.
fn take_directory_away(pair: &Pair) {
    pair.append(0, "record").unwrap();
    pair.store.checkpoint().unwrap();
    assert!(pair.log(0).roll_if_due(TimestampMs(i64::MAX / 2)).unwrap());
    pair.sim.fs.remove_dir_all(&pair.log(0).path()).unwrap();
}

#[test]
fn entries_aside_before_their_dir_failed_take_no_others_room() {
    let pair = Pair::new(StoreOptions { write_cache_bytes: 1, ..Machine::with_journal() });
    take_directory_away(&pair);
    for _ in 0..6 {
        pair.append(0, &"x".repeat(200_000)).unwrap();
    }
    assert!(pair.store.settle().is_err() && pair.store.has_aside() && !is_failed(&pair));
    assert!(pair.store.write_cache().is_full(), "more than that does not stay in memory uncounted");
    let error = pair.append(0, "no more").unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::Aside(_))), "{error}");
    kill_device(&pair);
    pair.store.look_at_devices();
    assert!(is_failed(&pair));
    pair.store.settle().unwrap();
    assert_eq!(pair.store.write_cache().bytes(), 0);
}

#[test]
fn failed_dirs_tails_take_no_room_from_partitions_of_another() {
    let pair = Pair::new(StoreOptions { write_cache_bytes: 3_000_000, ..Machine::with_journal() });
    take_directory_away(&pair);
    let append_to_dir = |dir| (0..6).for_each(|_| _ = pair.append(dir, &"x".repeat(200_000)).unwrap());
    append_to_dir(1);
    pair.sim.fs.kill_device(Some("/two".as_ref())).unwrap();
    pair.store.look_at_devices();
    pair.store.settle().unwrap();
    assert!(pair.store.dir_failure(1).is_some() && pair.store.has_aside());
    assert_eq!(pair.store.write_cache().bytes(), 0);
    append_to_dir(0);
    assert!(pair.store.settle().is_err() && pair.store.dir_failure(0).is_none());
    assert_eq!(pair.store.write_cache().bytes(), 0);
    let error = pair.append(0, "no more").unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::Aside(_))), "{error}");
}

#[test]
fn unwritable_partition_with_entries_aside_takes_nothing() {
    let pair = Pair::new(Machine::with_journal());
    let (sick, value) = (pair.log(0), "x".repeat(200_000));
    let well = pair.beside();
    take_directory_away(&pair);
    let mut taken = vec![];
    for _ in 0..60 {
        match pair.append_to(&sick, &value) {
            Ok(offset) => taken.push(offset),
            Err(error) => {
                assert!(matches!(error, AppendError::Storage(LogError::Aside(_))), "{error}");
                assert_eq!(error.kind(), ErrorKind::Retry);
            }
        }
        pair.append_to(&well, &value).unwrap();
        let _one_partition_cannot = pair.store.settle();
        assert!(pair.used_bytes() < 3 << 20, "the journal is pinned");
    }
    assert!(!is_failed(&pair));
    assert!(taken.len() < 20, "{} were taken", taken.len());
    let (bytes, partitions) = aside(&pair);
    assert_eq!(partitions, [sick.id()], "the other is under a checkpoint");
    assert!(bytes < 20 * 201_000, "{bytes} bytes are aside");
    let last = *taken.last().unwrap();
    let in_memory = sick.read(last, 1000, last.next(), true).unwrap();
    assert_eq!(in_memory.next_offset, last.next(), "acked records can be read");

    pair.sim.fs.create_dir_all(&sick.path()).unwrap();
    pair.store.settle().unwrap();
    assert_eq!(pair.append_to(&sick, "after").unwrap(), last.next());
    // An append is answered before the journal's mark has passed its entry.
    wait_until(|| pair.store.journals().all(Journal::has_delivered_all));
    pair.store.checkpoint().unwrap();
    assert!(!pair.store.has_aside());
    assert_eq!(pair.used_bytes(), 0);
    assert!(pair.sim.fs.exists(Path::new("/one")).unwrap());
}

/// The tail in memory has entries that a start has found in an earlier file of the journal. Settling them, or later
/// ones in later files, fails at any write or sync.
#[test]
fn dir_that_fails_while_settling_loses_no_old_or_new_entries() {
    let value = "x".repeat(60_000);
    let append_some = |pair: &Pair, from: usize| {
        for number in from..from + 8 {
            pair.append(0, &format!("{number} {value}")).unwrap();
            pair.append(1, "other").unwrap();
        }
    };
    let mut failures = 0;
    for fault in 0..12 {
        let pair = Pair::new(Machine::with_journal());
        append_some(&pair, 0);
        let mut pair = pair.kill();
        // Later files of the journal, beside a tail of earlier ones.
        append_some(&pair, 8);
        let expected = pair.values(0);
        assert_eq!(expected.len(), 16);
        let number = fault / 2;
        if fault % 2 == 0 {
            pair.sim.fs.fail_write_after(number);
        } else {
            pair.sim.fs.fail_sync_after(number);
        }
        let settled = pair.store.settle().and_then(|()| pair.store.checkpoint());
        failures += u64::from(settled.is_err());
        let failed: Vec<_> = (0..2).filter(|dir| pair.store.dir_failure(*dir).is_some()).collect();
        assert!(failed.len() <= 1 && pair.values(0) == expected, "fault {fault}");
        if failed == [0] {
            pair.go_round(1);
        }
        pair.sim.fs.crash();
        let Pair { sim, options, epoch, store, .. } = pair;
        drop(store);
        pair = Pair::start(sim, options, epoch + 1).unwrap();
        assert!(pair.report.offline.is_empty(), "fault {fault}: {:?}", pair.report);
        assert_eq!(pair.values(0), expected, "fault {fault}");
    }
    assert!(failures >= 4, "only {failures} faults were met");
}

/// Another file system by a link in a log dir, or by a mount.
#[test]
fn checkpoint_syncs_a_partition_on_another_file_system() {
    for is_topic in [false, true] {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        let dir = machine.partition_dir();
        let mut count = 0;
        if is_topic {
            let topic = dir.parent().unwrap();
            machine.sim.fs.create_dir_all(topic).unwrap();
            machine.sim.fs.mount(topic).unwrap();
        } else {
            count = 3;
            machine.append_numbers(0, count);
            machine.store().checkpoint().unwrap();
            machine.sim.fs.mount(&dir).unwrap();
            machine.kill();
        }
        machine.append_numbers(count, 40);
        machine.store().checkpoint().unwrap();
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 40), "the whole topic: {is_topic}");
        machine.store().delete(ID, 0).unwrap();
        assert!(!machine.sim.fs.exists(&dir).unwrap());
    }
}
