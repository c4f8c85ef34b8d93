//! Entries of unknown partitions in the journal, as after damage to the metadata, and entries aside under a name that
//! is not used any more: kept until their partition is known, and no longer.

use std::path::PathBuf;
use std::sync::Arc;

use riverrun_env::FileSystem;
use riverrun_log::config::LogConfig;
use riverrun_log::{LogStore, Place, RecoveryReport};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId, TopicId};

use crate::machine::{ID, Machine, batch_at, numbers, put};

const OTHER: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 3 };

/// Starts after a kill with a metadata that has these places.
fn start(machine: &mut Machine, place: impl Fn(&Machine, PartitionId) -> Place) -> RecoveryReport {
    machine.sim.fs.kill();
    machine.store = None;
    machine.epoch += 1;
    let store = LogStore::open(&machine.sim.env(), &["/logs".into()], machine.options.clone()).unwrap();
    let report = store.recover(|_| LeaderEpoch(machine.epoch), |id| place(machine, id)).unwrap();
    machine.store = Some(store);
    report
}

fn known(machine: &Machine) -> Place {
    Place::In(0, machine.config.clone())
}

/// Everything but the first partition is known.
fn forgotten(machine: &Machine, id: PartitionId) -> Place {
    if id == ID { Place::Unknown } else { known(machine) }
}

fn held(machine: &Machine) -> Vec<String> {
    machine.store().journals().next().unwrap().held()
}

/// Has the journal use its files again.
fn go_round(machine: &Machine) {
    let value = "x".repeat(200_000);
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..LogConfig::default() };
    let log = machine.store().partition(OTHER, 0, Arc::new(config), LeaderEpoch(machine.epoch)).unwrap();
    for _ in 0..40 {
        put(&log, &batch_at(&[(0, &value)], BatchOptions::default()), machine.append_options()).unwrap();
        machine.store().settle().unwrap();
        let used: u64 = machine.store().journals().map(riverrun_journal::Journal::used_bytes).sum();
        assert!(used < 3 << 20, "the journal is pinned");
    }
}

#[test]
fn entries_of_an_unknown_partition_are_kept_until_it_is_known() {
    for settled in [0, 3, 6] {
        let mut machine = Machine::synced(1, &LogConfig::default());
        for number in 0..6 {
            if number == settled {
                machine.store().settle().unwrap();
            }
            machine.append_numbers(number, number + 1);
        }
        machine.try_append_to(OTHER, "other", ProducerStamp::NONE).unwrap();
        for round in 0..3 {
            let report = start(&mut machine, forgotten);
            assert_eq!(report.unknown.into_iter().collect::<Vec<_>>(), [(ID, 6)], "round {round}");
            assert_eq!((report.dropped_entries, report.held_entries), (0, 0));
            assert!(report.offline.is_empty());
            assert_eq!(machine.store().unknown_partitions(), [ID]);
            machine.store().checkpoint().unwrap();
            go_round(&machine);
            assert_eq!(held(&machine), ["unknown"], "round {round}");
            assert_eq!(machine.store().unknown_files(), [PathBuf::from("/journal/held-unknown-*")]);
        }
        machine.store.take().unwrap().close().unwrap();
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 6), "{settled} settled");
        assert!(machine.store().unknown_partitions().is_empty());
        machine.append_numbers(6, 8);
        machine.store().checkpoint().unwrap();
        assert!(held(&machine).is_empty(), "it is all under a checkpoint");
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(0, 8), "{settled} settled");
    }
}

#[test]
fn unknown_partitions_entries_survive_power_cuts_in_a_start() {
    for stop in 0.. {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        machine.append_numbers(0, 6);
        start(&mut machine, forgotten);
        go_round(&machine);
        machine.sim.fs.kill();
        machine.store = None;
        machine.sim.fs.stop_after(stop);
        let brought = machine.start().and_then(|()| machine.store().checkpoint());
        machine.sim.fs.crash();
        machine.store = None;
        machine.start().unwrap();
        assert_eq!(machine.records().unwrap(), numbers(0, 6), "stop {stop}");
        if brought.is_ok() {
            assert!(stop > 10, "{stop}");
            break;
        }
    }
}

#[test]
fn start_forgets_the_kept_entries_of_a_deleted_partition() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    start(&mut machine, forgotten);
    assert_eq!(held(&machine), ["unknown"]);
    let deleted = |machine: &Machine, id| if id == ID { Place::Deleted } else { known(machine) };
    let report = start(&mut machine, deleted);
    assert_eq!((report.dropped_entries, report.unknown.len()), (6, 0));
    machine.store().checkpoint().unwrap();
    assert!(held(&machine).is_empty());
}

#[test]
fn journal_has_passed_deleted_entries_once_no_start_finds_them() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    let mut before = machine.store().mark_journals();
    assert!(machine.store().have_journals_passed(&mut before), "nothing was ever in it");
    machine.append_numbers(0, 3);
    machine.store().delete(ID, 0).unwrap();
    let mut mark = machine.store().mark_journals();
    assert!(!machine.store().have_journals_passed(&mut mark));
    machine.store().checkpoint().unwrap();
    assert!(!machine.store().have_journals_passed(&mut mark), "a start would find it still");
    let report = start(&mut machine, |machine, id| if id == ID { Place::Deleted } else { known(machine) });
    assert_eq!(report.dropped_entries, 3);
    let mut mark = machine.store().mark_journals();
    assert!(!machine.store().have_journals_passed(&mut mark));
    machine.store().checkpoint().unwrap();
    machine.try_append_to(OTHER, "other", ProducerStamp::NONE).unwrap();
    assert!(machine.store().have_journals_passed(&mut mark));
    let report = start(&mut machine, forgotten);
    assert_eq!((report.dropped_entries, report.unknown.len(), report.entries), (0, 0, 1));
}

#[test]
fn entries_aside_go_also_if_their_dir_lies_elsewhere_since() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.store().checkpoint().is_err());
    let names = held(&machine);
    assert!(names.len() == 1 && names[0].starts_with("logdir-"), "{names:?}");
    machine.sim.fs.crash();
    machine.store = None;
    machine.sim.fs.rename("/logs".as_ref(), "/moved".as_ref()).unwrap();
    let (env, dirs) = (machine.sim.env(), ["/moved".into()]);
    for round in 0..2 {
        let store = LogStore::open(&env, &dirs, machine.options.clone()).unwrap();
        let report = store.recover(|_| LeaderEpoch(5), |_| known(&machine)).unwrap();
        assert!(report.offline.is_empty());
        let log = store.partition(ID, 0, machine.config.clone(), LeaderEpoch(5)).unwrap();
        assert_eq!(log.log_end_offset().unwrap(), Offset(6));
        if round == 0 {
            assert!(store.has_aside(), "no checkpoint has covered it yet");
        }
        store.checkpoint().unwrap();
        assert!(!store.has_aside());
        machine.sim.fs.crash();
        drop(store);
    }
}

#[test]
fn entries_aside_for_a_moved_dir_stay_until_it_takes_them() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.store().checkpoint().is_err());
    machine.sim.fs.crash();
    machine.store = None;
    machine.sim.fs.rename("/logs".as_ref(), "/moved".as_ref()).unwrap();
    let (env, dirs) = (machine.sim.env(), ["/moved".into()]);
    let store = LogStore::open(&env, &dirs, machine.options.clone()).unwrap();
    // There is no room for it at first.
    let place = |_| {
        machine.sim.fs.set_space(Some(0));
        known(&machine)
    };
    let report = store.recover(|_| LeaderEpoch(5), place).unwrap_err();
    machine.sim.fs.set_space(None);
    assert!(
        report.to_string().contains("held-"),
        "entries that cannot be put aside either end the start: {report}"
    );
    drop(store);
    let store = LogStore::open(&env, &dirs, machine.options.clone()).unwrap();
    store.recover(|_| LeaderEpoch(6), |_| known(&machine)).unwrap();
    let log = store.partition(ID, 0, machine.config.clone(), LeaderEpoch(6)).unwrap();
    assert_eq!(log.log_end_offset().unwrap(), Offset(6));
}
