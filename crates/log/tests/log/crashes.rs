//! The machine stops at every write and sync in turn, the process is killed or the power fails, and the log is
//! recovered: once, and again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use riverrun_env::{FileSystem, read_whole};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_types::Offset;

use crate::machine::{Machine, numbers, stamp};

/// Rolls, checkpoints, deletes records, retains; counts acked records. Ends early when the machine stops.
struct Scenario {
    acked: i64,
    /// Everything below is covered by a checkpoint that has returned.
    durable: i64,
    log_start: i64,
    /// A log start that was asked for, and may or may not hold.
    log_start_asked: i64,
}

impl Scenario {
    fn run(machine: &Machine) -> Self {
        let mut scenario = Self { acked: 0, durable: 0, log_start: 0, log_start_asked: 0 };
        let _stopped = scenario.steps(machine);
        scenario
    }

    fn steps(&mut self, machine: &Machine) -> Option<()> {
        self.append(machine, 12)?;
        machine.store().checkpoint().ok()?;
        self.durable = self.acked;
        self.append(machine, 14)?;
        self.log_start_asked = 5;
        machine.log().delete_records(Offset(5)).ok()?;
        self.log_start = 5;
        self.append(machine, 3)?;
        machine.store().checkpoint().ok()?;
        self.durable = self.acked;
        self.log_start_asked = self.acked;
        machine.log().apply_retention(machine.now(), Offset(self.acked)).ok()?;
        self.log_start = machine.log().log_start_offset().ok()?.0;
        self.log_start_asked = self.log_start;
        self.append(machine, 8)
    }

    fn append(&mut self, machine: &Machine, count: i64) -> Option<()> {
        for _ in 0..count {
            let value = format!("record {}", self.acked);
            let sequence = i32::try_from(self.acked).unwrap();
            machine.try_append(&value, stamp(9, sequence)).ok()?;
            self.acked += 1;
        }
        Some(())
    }
}

fn config() -> LogConfig {
    LogConfig {
        retention_bytes: Some(1500),
        cleanup: CleanupPolicy { delete: true, compact: false },
        file_delete_delay_ms: 0,
        ..Machine::small_segments()
    }
}

fn contents(machine: &Machine) -> BTreeMap<PathBuf, Vec<u8>> {
    let dir = machine.partition_dir();
    let Ok(entries) = machine.sim.fs.read_dir(&dir) else { return BTreeMap::new() };
    let read = |name| {
        let path = dir.join(name);
        let bytes = read_whole(&*machine.sim.fs, &path, 1 << 20).unwrap();
        (path, bytes)
    };
    entries.into_iter().map(|entry| read(entry.name)).collect()
}

/// Runs the scenario with a stop after every operation in turn.
fn for_each_stop(seeds: std::ops::Range<u64>, check: impl Fn(&mut Machine, &Scenario, &str)) {
    let reference = Machine::new(0, config());
    let before = reference.sim.fs.operations();
    let whole = Scenario::run(&reference);
    let operations = reference.sim.fs.operations() - before;
    assert!(whole.acked == 37 && whole.log_start > 5, "the scenario does what it should");
    for stop in 0..=operations {
        for seed in seeds.clone() {
            let mut machine = Machine::new(seed, config());
            machine.sim.fs.stop_after(stop);
            let scenario = Scenario::run(&machine);
            check(&mut machine, &scenario, &format!("stop {stop}, seed {seed}"));
        }
    }
}

#[test]
fn a_kill_at_any_write_loses_nothing_that_was_acked() {
    for_each_stop(0..3, |machine, scenario, context| {
        machine.kill();
        let records = machine.records().unwrap_or_else(|error| panic!("{context}: {error}"));
        let start = machine.log().log_start_offset().unwrap().0;
        let end = machine.log().log_end_offset().unwrap().0;
        assert!(
            (scenario.log_start..=scenario.log_start_asked.max(scenario.log_start)).contains(&start),
            "{context}: starts at {start}"
        );
        // The append at which the machine stopped may be there whole.
        assert!(end == scenario.acked || end == scenario.acked + 1, "{context}: {end} of {}", scenario.acked);
        assert_eq!(records, numbers(start, end), "{context}");
    });
}

#[test]
fn power_cut_at_any_write_loses_no_checkpointed_record() {
    for_each_stop(0..6, |machine, scenario, context| {
        machine.crash();
        let records = machine.records().unwrap_or_else(|error| panic!("{context}: {error}"));
        let start = machine.log().log_start_offset().unwrap().0;
        let end = machine.log().log_end_offset().unwrap().0;
        assert!(
            start >= scenario.log_start && start <= scenario.log_start_asked.max(scenario.log_start),
            "{context}: starts at {start}"
        );
        assert!(end >= scenario.durable, "{context}: {end} of {}", scenario.durable);
        assert!(end <= scenario.acked + 1, "{context}: nothing is invented");
        assert_eq!(records, numbers(start, end), "{context}");
    });
}

#[test]
fn recovering_twice_gives_the_same_bytes_and_appends_go_on() {
    for_each_stop(0..2, |machine, _, context| {
        machine.crash();
        let end = machine.log().log_end_offset().unwrap().0;
        let once = contents(machine);
        machine.kill();
        assert_eq!(machine.log().log_end_offset().unwrap().0, end, "{context}");
        assert!(contents(machine) == once, "{context}: other bytes after the second recovery");
        machine.append_numbers(end, end + 3);
        machine.restart();
        let start = machine.log().log_start_offset().unwrap().0;
        assert_eq!(machine.records().unwrap(), numbers(start, end + 3), "{context}");
    });
}

#[test]
fn recovery_may_itself_be_cut_short_anywhere() {
    let crashed = |seed| {
        let mut machine = Machine::new(seed, config());
        let scenario = Scenario::run(&machine);
        machine.sim.fs.crash();
        machine.store = None;
        (machine, scenario)
    };
    for seed in 0..10 {
        for stop in 0.. {
            let (mut machine, scenario) = crashed(seed);
            machine.sim.fs.stop_after(stop);
            let finished = machine.start().is_ok() && machine.records().is_ok();
            machine.sim.fs.crash();
            machine.store = None;
            machine.start().unwrap();
            let records =
                machine.records().unwrap_or_else(|error| panic!("seed {seed}, stop {stop}: {error}"));
            let start = machine.log().log_start_offset().unwrap().0;
            let end = machine.log().log_end_offset().unwrap().0;
            assert!(end >= scenario.durable, "seed {seed}, stop {stop}");
            assert_eq!(records, numbers(start, end), "seed {seed}, stop {stop}");
            if finished {
                break;
            }
        }
    }
}

#[test]
fn producers_survive_what_their_records_survive() {
    for_each_stop(0..2, |machine, _, context| {
        machine.crash();
        let end = machine.log().log_end_offset().unwrap().0;
        let start = machine.log().log_start_offset().unwrap().0;
        if end == start {
            return;
        }
        let last = i32::try_from(end - 1).unwrap();
        let again = machine.try_append("again", stamp(9, last)).unwrap();
        assert!(again.duplicate && again.base_offset == Offset(end - 1), "{context}: {again:?}");
        assert!(machine.try_append("next", stamp(9, last + 2)).is_err(), "{context}: a gap is a gap");
    });
}

/// A power cut brings back index entries that a recovery has cut off, unless they were synced: above the recovery point
/// they are not believed, but a segment that was sealed there is taken as its files say.
#[test]
fn index_cut_by_a_recovery_stays_cut_when_its_segment_is_sealed() {
    let (mut sealed, mut torn) = (0, 0);
    for seed in 0..300 {
        let mut machine = Machine::new(seed, Machine::small_segments());
        machine.append_numbers(0, 3);
        machine.store().checkpoint().unwrap();
        machine.append("lost with the power");
        // A recovery that finds it writes the index to its end.
        machine.kill();
        machine.log().ensure_open().unwrap();
        machine.crash();
        if machine.log().log_end_offset().unwrap() == Offset(3) {
            torn += 1;
            machine.append(&"too large for the first segment ".repeat(13));
            assert_eq!(machine.log_paths().len(), 2);
            machine.crash();
        }
        sealed += usize::from(machine.log_paths().len() == 2);
        let found = machine.records().unwrap();
        assert_eq!(found[..3], numbers(0, 3), "seed {seed}");
    }
    assert!(torn > 20 && sealed > 20, "{torn} {sealed}");
}
