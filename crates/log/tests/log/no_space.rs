//! A file system without any space, which refuses even a renaming: work that frees space goes on there.

use std::path::Path;
use std::time::Duration;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::{RecoveryReport, StoreOptions};
use riverrun_records::ProducerStamp;
use riverrun_types::{Offset, PartitionId, TopicId};

use crate::machine::{DIR, ID, Machine, numbers};

/// States of one moment that are checked.
const STATES: usize = 24;
/// More than the operations of a life.
const STOPS_MAX: u64 = 100;
/// The second partition of the topic.
const SECOND: PartitionId = PartitionId { index: 1, ..ID };
/// A topic that stays.
const OTHER: PartitionId = PartitionId { topic: TopicId([0xcd; 16]), index: 0 };

const DELETE: CleanupPolicy = CleanupPolicy { delete: true, compact: false };

fn small_log() -> LogConfig {
    LogConfig { cleanup: DELETE, retention_bytes: Some(500), ..Machine::small_segments() }
}

/// A machine that is started on the disk after a power cut.
fn started_on(sim: SimEnv, config: LogConfig) -> Machine {
    let (options, recovered) = (StoreOptions::default(), RecoveryReport::default());
    let mut machine = Machine { sim, config: config.into(), epoch: 1, options, store: None, recovered };
    machine.start().unwrap();
    machine
}

/// A log with 40 records under a checkpoint, whose retention wants most of them gone.
fn full(config: LogConfig) -> Machine {
    let machine = Machine::new(1, config);
    machine.append_numbers(0, 40);
    machine.store().checkpoint().unwrap();
    machine.sim.fs.refuse_renames(true);
    machine.sim.fs.set_space(Some(0));
    machine
}

fn space(machine: &Machine) -> u64 {
    machine.sim.fs.available_bytes(Path::new(DIR)).unwrap()
}

#[test]
fn retention_frees_space_where_no_name_can_change() {
    let mut machine = full(small_log());
    assert!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments > 1);
    assert!(space(&machine) > 1000, "{} bytes", space(&machine));
    let start = machine.log().log_start_offset().unwrap().0;
    assert_eq!(machine.records().unwrap(), numbers(start, 40));
    machine.sim.fs.refuse_renames(false);
    machine.append_numbers(40, 42);
    machine.restart();
    assert_eq!(machine.records().unwrap(), numbers(start, 42));
}

#[test]
fn power_cut_in_a_removal_of_files_leaves_the_old_or_new_log() {
    let (mut seen, mut is_whole, mut stop) = ([0, 0], false, 0);
    while !is_whole && stop < STOPS_MAX {
        let machine = full(small_log());
        let log = machine.log();
        machine.sim.fs.stop_after(stop);
        is_whole = log.apply_retention(machine.now(), Offset(40)).is_ok();
        for (index, state) in machine.sim.crash_states(STATES).enumerate() {
            state.fs.set_space(None);
            let mut found = started_on(state, small_log());
            for start in ["the first start", "the second"] {
                let log_start = found.log().log_start_offset().unwrap().0;
                let records = found.records().unwrap();
                assert_eq!(records, numbers(log_start, 40), "stop {stop}, state {index}, {start}");
                // Records below the log start are gone, and only whole segments are left.
                let next: Vec<i64> = found.log_paths().iter().skip(1).map(|path| base_of(path)).collect();
                assert!(next.iter().all(|base| *base > log_start), "{log_start}: {next:?}");
                let of_each = [".log", ".index"].map(|end| count(&found, end));
                assert_eq!(of_each, [found.log_paths().len(); 2], "stop {stop}, state {index}, {start}");
                seen[usize::from(log_start > 0)] += 1;
                found.kill();
            }
            found.append_numbers(40, 41);
            found.store().checkpoint().unwrap();
            found.log().apply_retention(found.now(), Offset(41)).unwrap();
            assert!(found.log().log_start_offset().unwrap() > Offset(20));
        }
        stop += 1;
    }
    assert!(is_whole && seen[0] > 0 && seen[1] > 50, "{seen:?} before and after");
}

fn base_of(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

fn count(machine: &Machine, end: &str) -> usize {
    machine.files().iter().filter(|name| name.ends_with(end)).count()
}

#[test]
fn retention_of_all_begins_with_segments_that_need_no_successor() {
    for is_name_refused in [false, true] {
        let config = LogConfig {
            cleanup: DELETE,
            retention_ms: Some(1000),
            file_delete_delay_ms: 0,
            ..Machine::small_segments()
        };
        let mut machine = full(config);
        machine.sim.fs.refuse_renames(is_name_refused);
        machine.sim.clock.advance(Duration::from_secs(5));
        let log = machine.log();
        assert!(log.apply_retention(machine.now(), Offset(40)).unwrap().segments > 1);
        let start = log.log_start_offset().unwrap().0;
        assert!(start > 20 && start < 40, "{start}");
        assert_eq!(machine.records().unwrap(), numbers(start, 40));
        assert_eq!(
            log.apply_retention(machine.now(), Offset(40)).unwrap().segments,
            1,
            "there is room for another now"
        );
        assert_eq!(log.log_start_offset().unwrap(), Offset(40));
        machine.sim.fs.refuse_renames(false);
        machine.sim.fs.set_space(None);
        machine.kill();
        machine.append_numbers(40, 42);
        assert_eq!(machine.records().unwrap(), numbers(40, 42));
    }
}

#[test]
fn retention_without_room_leaves_the_last_segment_for_appends() {
    let config = LogConfig {
        cleanup: DELETE,
        retention_ms: Some(1000),
        file_delete_delay_ms: 60_000,
        ..Machine::small_segments()
    };
    let mut machine = full(config);
    machine.sim.fs.refuse_renames(false);
    machine.sim.clock.advance(Duration::from_secs(5));
    assert!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments > 1);
    let left = machine.log_paths();
    assert_eq!(left.len(), 1);
    // Room for a few records.
    machine.sim.fs.set_space(Some(300));
    machine.append_numbers(40, 42);
    assert_eq!(machine.log_paths(), left);
    machine.sim.fs.set_space(None);
    machine.kill();
    let start = base_of(&left[0]);
    assert_eq!(machine.records().unwrap(), numbers(start, 42));
}

/// A log whose 40 records are in one segment, all of which retention wants gone.
fn full_with_one_segment() -> (Machine, LogConfig) {
    let config = LogConfig {
        cleanup: DELETE,
        retention_ms: Some(1000),
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let machine = full(config.clone());
    machine.sim.clock.advance(Duration::from_secs(5));
    assert_eq!(machine.log_paths().len(), 1);
    (machine, config)
}

#[test]
fn retention_of_a_single_segment_needs_no_room_for_another() {
    for is_name_refused in [false, true] {
        let (mut machine, _) = full_with_one_segment();
        machine.sim.fs.refuse_renames(is_name_refused);
        let log = machine.log();
        assert_eq!(log.apply_retention(machine.now(), Offset(40)).unwrap().segments, 1);
        assert_eq!(
            (log.log_start_offset().unwrap(), log.log_end_offset().unwrap()),
            (Offset(40), Offset(40))
        );
        assert_eq!((machine.records().unwrap(), log.size_bytes()), (numbers(40, 40), 0));
        assert_eq!(log.apply_retention(machine.now(), Offset(40)).unwrap().segments, 0);
        let named: Vec<i64> = machine.log_paths().iter().map(|path| base_of(path)).collect();
        assert_eq!(named, [40], "there is room now for a segment that names the log's end");
        machine.sim.fs.refuse_renames(false);
        machine.sim.fs.set_space(None);
        machine.kill();
        machine.append_numbers(40, 42);
        assert_eq!(machine.records().unwrap(), numbers(40, 42));
    }
}

/// Files that retention has removed make room for others, too.
#[test]
fn log_without_a_segment_is_opened_on_a_full_disk() {
    for is_power_lost in [false, true] {
        let (mut machine, _) = full_with_one_segment();
        machine.sim.fs.fill_device(Some(DIR.as_ref()));
        assert_eq!(machine.log().apply_retention(machine.now(), Offset(40)).unwrap().segments, 1);
        assert!(machine.log_paths().is_empty());
        for _ in 0..2 {
            if is_power_lost {
                machine.crash();
            } else {
                machine.kill();
            }
            let log = machine.log();
            let range = (log.log_start_offset().unwrap(), log.log_end_offset().unwrap());
            assert_eq!(range, (Offset(40), Offset(40)));
            assert_eq!(machine.records().unwrap(), numbers(40, 40));
            assert!(machine.try_append("no", ProducerStamp::NONE).is_err());
            // A power cut may bring removed files back.
            let is_removed_again = log.apply_retention(machine.now(), Offset(40)).unwrap().segments > 0;
            assert!(is_power_lost || !is_removed_again);
            assert!(machine.store().dir_failure(0).is_none());
        }
        machine.sim.fs.fill_device(None);
        machine.sim.fs.set_space(None);
        machine.append_numbers(40, 42);
        machine.store().checkpoint().unwrap();
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(40, 42));
    }
}

#[test]
fn power_cut_in_a_single_segments_removal_leaves_old_or_new_log() {
    for is_name_refused in [false, true] {
        let (mut seen, mut is_whole, mut stop) = ([0, 0], false, 0);
        while !is_whole && stop < STOPS_MAX {
            let (machine, config) = full_with_one_segment();
            machine.sim.fs.refuse_renames(is_name_refused);
            let log = machine.log();
            machine.sim.fs.stop_after(stop);
            is_whole = log.apply_retention(machine.now(), Offset(40)).is_ok();
            for (index, state) in machine.sim.crash_states(STATES).enumerate() {
                state.fs.set_space(None);
                state.fs.refuse_renames(false);
                let mut found = started_on(state, config.clone());
                for start in ["the first start", "the second"] {
                    let log_start = found.log().log_start_offset().unwrap().0;
                    let records = found.records().unwrap();
                    assert_eq!(records, numbers(log_start, 40), "stop {stop}, state {index}, {start}");
                    seen[usize::from(log_start == 40)] += 1;
                    found.kill();
                }
                found.append_numbers(40, 42);
                found.kill();
                let log_start = found.log().log_start_offset().unwrap().0;
                assert_eq!(found.records().unwrap(), numbers(log_start, 42), "stop {stop}, state {index}");
            }
            stop += 1;
        }
        assert!(is_whole && seen[0] > 0 && seen[1] > 0, "{seen:?} before and after");
    }
}

/// A topic with two partitions, and another one.
fn topics() -> Machine {
    let machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 12);
    for number in 0..12 {
        for id in [SECOND, OTHER] {
            machine.try_append_to(id, &format!("record {number}"), ProducerStamp::NONE).unwrap();
        }
    }
    machine.store().checkpoint().unwrap();
    machine
}

/// Has the topic deleted, up to the first error.
fn delete_topic(machine: &Machine) -> bool {
    [ID, SECOND].iter().all(|id| machine.store().delete(*id, 0).is_ok())
}

/// Asserts that nothing is left of the topic, and all of the other one.
fn assert_is_gone(machine: &Machine) {
    let names: Vec<_> = machine.sim.fs.read_dir(Path::new(DIR)).unwrap();
    let directories: Vec<_> = names.iter().filter(|entry| entry.is_dir).collect();
    assert_eq!(directories.len(), 1, "{directories:?}");
    assert_eq!(machine.records_of(OTHER).unwrap(), numbers(0, 12));
    let known = machine.store().known(0);
    assert!(known.iter().all(|known| known.id == OTHER), "{known:?}");
}

#[test]
fn a_topic_is_deleted_where_no_name_can_change() {
    let mut machine = topics();
    machine.sim.fs.set_space(Some(0));
    machine.sim.fs.refuse_renames(true);
    assert!(delete_topic(&machine));
    assert!(space(&machine) > 2000, "{} bytes", space(&machine));
    assert_is_gone(&machine);
    machine.sim.fs.set_space(None);
    machine.kill();
    // The checkpoint has not heard of it.
    assert!(delete_topic(&machine));
    assert_is_gone(&machine);
}

#[test]
fn deletion_that_a_power_cut_has_ended_is_finished_by_the_next() {
    for is_name_refused in [false, true] {
        let (mut is_whole, mut stop) = (false, 0);
        while !is_whole && stop < STOPS_MAX {
            let machine = topics();
            machine.sim.fs.refuse_renames(is_name_refused);
            machine.sim.fs.stop_after(stop);
            is_whole = delete_topic(&machine);
            let mut cut_short: Vec<_> = machine.sim.crash_states(STATES).collect();
            // The process alone may end as well.
            machine.sim.fs.kill();
            cut_short.push(machine.sim.clone());
            drop(machine);
            for state in cut_short {
                let mut found = started_on(state, Machine::small_segments());
                found.sim.fs.refuse_renames(is_name_refused);
                assert!(delete_topic(&found), "names are refused: {is_name_refused}, stop {stop}");
                assert_is_gone(&found);
                found.sim.fs.refuse_renames(false);
                found.restart();
                assert_is_gone(&found);
            }
            stop += 1;
        }
        assert!(is_whole && stop > 10, "{stop}");
    }
}
