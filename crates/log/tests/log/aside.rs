//! Entries that the journal keeps aside for a partition that cannot take them, until an administrator has decided about
//! them.

use std::path::{Path, PathBuf};

use riverrun_env::FileSystem;
use riverrun_journal::{Journal, verify};
use riverrun_log::config::LogConfig;
use riverrun_log::{
    Aside, LogDirFiles, LogError, LogStore, Place, Weight, partition_hit, verify_journal, verify_partition_of,
};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{LeaderEpoch, Offset, PartitionId};

use crate::machine::{DIR, ID, Machine, batch_at, numbers, put};

const OTHER: PartitionId = PartitionId { index: 1, ..ID };
const JOURNAL: &str = "/journal";

fn journal_files(machine: &Machine, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = machine.sim.fs.read_dir(Path::new(JOURNAL)).unwrap();
    let names = entries.into_iter().map(|entry| entry.name.into_string().unwrap());
    names.filter(|name| is_wanted(name)).map(|name| Path::new(JOURNAL).join(name)).collect()
}

fn held_files(machine: &Machine) -> Vec<PathBuf> {
    journal_files(machine, |name| name.starts_with("held-"))
}

/// Flips a bit of a value in the journal.
fn damage(machine: &Machine, value: &str) {
    for path in journal_files(machine, |name| name.ends_with(".journal")) {
        let mut bytes = machine.content(&path);
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value.as_bytes()) {
            bytes[at] ^= 1;
            machine.put_content(&path, &bytes);
            return;
        }
    }
    panic!("{value} is not in the journal");
}

fn append_other(machine: &Machine, value: &str) {
    machine.try_append_to(OTHER, value, ProducerStamp::NONE).unwrap();
}

/// Has the journal use its files again, so that nothing of the old entries is left in it.
fn go_round(machine: &Machine) {
    let value = "x".repeat(200_000);
    let config = LogConfig { durability: machine.config.durability, ..LogConfig::default() };
    let log = machine.store().partition(OTHER, 0, config.into(), LeaderEpoch(machine.epoch)).unwrap();
    for _ in 0..40 {
        let batch = batch_at(&[(0, &value)], BatchOptions::default());
        put(&log, &batch, machine.append_options()).unwrap();
        machine.store().settle().unwrap();
        let used: u64 = machine.store().journals().map(Journal::used_bytes).sum();
        assert!(used < 3 << 20, "the journal is pinned");
    }
}

fn stop(machine: &mut Machine) {
    machine.sim.fs.kill();
    machine.store = None;
}

fn check_offline(machine: &Machine) {
    let error = machine.records().unwrap_err();
    assert!(matches!(error, LogError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("/journal/held-partition-abab"), "the way out: {error}");
    assert!(machine.try_append("no", ProducerStamp::NONE).is_err());
    assert_eq!(machine.recovered.offline.len(), 1);
}

/// A machine whose journal has six records of the partition, of which one is damaged, and some of another.
fn damaged(number: usize) -> Machine {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    if number.is_multiple_of(2) {
        machine.store().settle().unwrap();
    }
    (0..4).for_each(|_| append_other(&machine, "other"));
    stop(&mut machine);
    damage(&machine, &format!("record {number}"));
    machine.start().unwrap();
    machine
}

#[test]
fn partition_with_a_damaged_entry_stays_offline_until_mended() {
    for number in 0..6 {
        let mut machine = damaged(number);
        check_offline(&machine);
        for round in 0..3 {
            machine.store().checkpoint().unwrap();
            if round == 1 {
                go_round(&machine);
            }
            assert_eq!(held_files(&machine).len(), 1, "record {number}, round {round}");
            match round {
                0 => machine.kill(),
                1 => machine.crash(),
                _ => machine.restart(),
            }
            check_offline(&machine);
        }
        let findings = verify(&machine.sim.env(), Path::new(JOURNAL)).unwrap();
        assert!(findings[0].path == held_files(&machine)[0] && !findings[0].is_settled, "{findings:?}");
        machine.store.take().unwrap().close().unwrap();
        for path in held_files(&machine) {
            machine.sim.fs.remove_file(&path).unwrap();
        }
        machine.start().unwrap();
        assert!(machine.recovered.offline.is_empty());
        let left = machine.records().unwrap();
        assert_eq!(left, numbers(0, i64::try_from(left.len()).unwrap()), "record {number}: no hole");
        machine.append("goes on");
        machine.restart();
        assert_eq!(machine.records().unwrap().len(), left.len() + 1);
    }
}

#[test]
fn verification_reports_entries_aside_and_damaged_entries() {
    let machine = damaged(2);
    let (env, dir) = (machine.sim.env(), machine.partition_dir());
    let report = verify_journal(&env, Path::new(JOURNAL)).unwrap();
    let held = held_files(&machine);
    let (settled, damage): (Vec<_>, Vec<_>) = report.findings.iter().partition(|finding| finding.is_settled);
    let hit: Vec<_> = damage.iter().map(|finding| (&finding.path, partition_hit(finding))).collect();
    assert_eq!(hit, [(&held[0], Some(ID))], "{report:?}");
    assert!(damage[0].position > 0, "{report:?}");
    // The damage in the journal's own file does not matter any more.
    assert!(
        !settled.is_empty() && settled.iter().all(|finding| partition_hit(finding) == Some(ID)),
        "{report:?}"
    );
    let [aside] = &report.aside[..] else { panic!("{report:?}") };
    assert_eq!((&aside.path, aside.partition, aside.entries), (&held[0], ID, 6));
    assert_eq!((aside.start, aside.end), (Offset(0), Offset(6)));
    let files = LogDirFiles::read(&env, Path::new(DIR)).unwrap();
    let report = verify_partition_of(&env, &dir, ID, Some(&files), &report.aside, &mut |_| {}).unwrap();
    let weights: Vec<_> = report.findings.iter().map(|finding| finding.weight).collect();
    assert!(weights.contains(&Weight::Aside) && !weights.contains(&Weight::Damage), "{report:?}");
}

#[test]
fn a_log_that_does_not_reach_up_to_what_lies_aside_is_damaged() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 6);
    let dir = machine.partition_dir();
    machine.store.take().unwrap().close().unwrap();
    let aside = |start, end, partition| {
        let path = Path::new("/journal/held-x-00000000").to_path_buf();
        let (start, end) = (Offset(start), Offset(end));
        Aside {
            path,
            position: 32,
            partition,
            cuts: 0,
            entries: 1,
            bytes: 70,
            start,
            end,
            is_end_known: true,
        }
    };
    let verified_all = |aside: &[Aside]| {
        let report = verify_partition_of(&machine.sim.env(), &dir, ID, None, aside, &mut |_| {}).unwrap();
        report.findings.iter().map(|finding| finding.weight).collect::<Vec<_>>()
    };
    let verified = |start, end, partition| verified_all(&[aside(start, end, partition)]);
    assert_eq!(verified(6, 7, ID), [Weight::Aside]);
    assert_eq!(verified(0, 6, ID), [Weight::Aside]);
    assert_eq!(verified(7, 8, ID), [Weight::Aside, Weight::Damage]);
    assert!(verified(7, 8, OTHER).is_empty(), "another partition's");
    let [first, second, third] = [(6, 8), (8, 9), (9, 12)].map(|(start, end)| aside(start, end, ID));
    let parts =
        |parts: &[&Aside]| verified_all(&parts.iter().map(|part| (*part).clone()).collect::<Vec<_>>());
    assert_eq!(parts(&[&first, &second, &third]), [Weight::Aside; 3]);
    assert_eq!(parts(&[&first, &third]), [Weight::Aside, Weight::Aside, Weight::Damage], "one is missing");
    assert_eq!(parts(&[&second, &first]), [Weight::Aside, Weight::Aside, Weight::Damage], "they are swapped");
    let damaged = Aside { is_end_known: false, ..first };
    assert_eq!(parts(&[&damaged, &third]), [Weight::Aside; 2], "a damaged entry is reported by itself");
}

#[test]
fn damage_of_what_a_checkpoint_covers_is_nobodys_loss() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 3);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(3, 6);
    stop(&mut machine);
    damage(&machine, "record 1");
    machine.start().unwrap();
    assert!(machine.recovered.offline.is_empty(), "{:?}", machine.recovered.offline);
    assert_eq!(machine.records().unwrap(), numbers(0, 6));
}

#[test]
fn entries_aside_for_a_partition_go_with_its_topic() {
    let machine = damaged(2);
    assert_eq!(held_files(&machine).len(), 1);
    machine.store().delete(ID, 0).unwrap();
    machine.store().checkpoint().unwrap();
    assert!(held_files(&machine).is_empty());

    let mut machine = damaged(2);
    stop(&mut machine);
    let store = LogStore::open(&machine.sim.env(), &["/logs".into()], machine.options.clone()).unwrap();
    let place = |id| if id == ID { Place::Deleted } else { Place::In(0, machine.config.clone()) };
    let report = store.recover(|_| LeaderEpoch(3), place).unwrap();
    assert!(report.offline.is_empty(), "{:?}", report.offline);
    store.checkpoint().unwrap();
    assert!(held_files(&machine).is_empty());
}

#[test]
fn restored_partition_takes_all_its_entries_aside() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(20, 23);
    let path = machine.log_paths()[0].clone();
    let last = machine.log_paths().pop().unwrap();
    assert_ne!(path, last);
    stop(&mut machine);
    let intact = machine.content(&last);
    machine.put_content(&last, &intact[..intact.len() / 2]);
    machine.start().unwrap();
    check_offline(&machine);
    go_round(&machine);
    machine.kill();
    check_offline(&machine);
    machine.restart();
    check_offline(&machine);
    machine.store.take().unwrap().close().unwrap();
    machine.put_content(&last, &intact);
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 23));
    machine.store().checkpoint().unwrap();
    assert!(held_files(&machine).is_empty());
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 23));
}

#[test]
fn entries_aside_twice_for_a_waiting_partition_are_kept_twice() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 20);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(20, 23);
    let path = machine.log_paths().pop().unwrap();
    stop(&mut machine);
    let intact = machine.content(&path);
    machine.put_content(&path, &intact[..intact.len() / 2]);
    machine.start().unwrap();
    check_offline(&machine);
    machine.store.take().unwrap().close().unwrap();
    // Restored, it gets on, until its log dir fails.
    machine.put_content(&path, &intact);
    machine.start().unwrap();
    machine.append_numbers(23, 25);
    machine.sim.fs.fail_sync_after(0);
    assert!(machine.store().checkpoint().is_err());
    let _the_dir_has_failed = machine.store().settle();
    let names = |store: &LogStore| store.journals().next().unwrap().held();
    let both = names(machine.store());
    assert_eq!(both.len(), 2, "{both:?}");
    machine.sim.fs.crash();
    machine.store = None;
    let store = LogStore::open(&machine.sim.env(), &["/logs".into()], machine.options.clone()).unwrap();
    // The first attempt finds no room.
    let calls = std::cell::Cell::new(0);
    let place = |_| {
        machine.sim.fs.set_space((calls.replace(calls.get() + 1) == 0).then_some(0));
        Place::In(0, machine.config.clone())
    };
    let report = store.recover(|_| LeaderEpoch(9), place).unwrap();
    assert_eq!(report.offline.len(), 1, "it waits for room");
    machine.sim.fs.set_space(None);
    store.checkpoint().unwrap();
    assert_eq!(names(&store), both);
    machine.sim.fs.crash();
    drop(store);
    machine.start().unwrap();
    assert_eq!(machine.records().unwrap(), numbers(0, 25));
    machine.store().checkpoint().unwrap();
    assert!(held_files(&machine).is_empty());
}
