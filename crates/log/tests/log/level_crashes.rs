//! The machine stops at every write and sync of a life in which tails are settled, levels change and checkpoints are
//! made; the process is killed or the power fails, and the log is recovered: once, and again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use riverrun_env::{FileSystem, read_whole};
use riverrun_log::config::LogConfig;
use riverrun_types::{DurabilityLevel, Offset};

use crate::machine::{DIR, Machine, numbers, stamp};

/// The acked records, and those of them that survive a power cut.
struct Life {
    acked: i64,
    durable: i64,
    log_start: i64,
    /// A log start that was asked for, and may or may not hold.
    log_start_asked: i64,
}

impl Life {
    fn run(machine: &mut Machine) -> Self {
        let mut life = Self { acked: 0, durable: 0, log_start: 0, log_start_asked: 0 };
        let _stopped = life.steps(machine);
        life
    }

    fn steps(&mut self, machine: &mut Machine) -> Option<()> {
        self.append(machine, 4)?;
        machine.store().settle().ok()?;
        self.append(machine, 3)?;
        self.change_level(machine, DurabilityLevel::AsyncAsync)?;
        self.append(machine, 4)?;
        machine.store().checkpoint().ok()?;
        self.durable = self.acked;
        self.append(machine, 2)?;
        self.change_level(machine, DurabilityLevel::SyncSync)?;
        self.durable = self.acked;
        self.append(machine, 5)?;
        self.log_start_asked = self.acked - 2;
        machine.log().delete_records(Offset(self.log_start_asked)).ok()?;
        self.log_start = self.log_start_asked;
        self.append(machine, 2)?;
        self.change_level(machine, DurabilityLevel::SyncAsync)?;
        self.append(machine, 2)
    }

    fn append(&mut self, machine: &Machine, count: i64) -> Option<()> {
        for _ in 0..count {
            let value = format!("record {}", self.acked);
            let sequence = i32::try_from(self.acked).unwrap();
            machine.try_append(&value, stamp(9, sequence)).ok()?;
            self.acked += 1;
            if machine.log().level_reached().syncs_locally() {
                self.durable = self.acked;
            }
        }
        Some(())
    }

    fn change_level(&self, machine: &mut Machine, durability: DurabilityLevel) -> Option<()> {
        machine.config = Arc::new(LogConfig { durability, ..(*machine.config).clone() });
        machine.log().set_config(machine.config.clone());
        machine.store().settle().ok()?;
        assert_eq!(machine.log().level_reached(), durability, "after {} records", self.acked);
        Some(())
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

/// Lives with a stop after every operation in turn, or after each that the budget allows.
fn for_each_stop(check: impl Fn(&mut Machine, &Life, &str)) {
    let mut reference = Machine::synced(0, &Machine::small_segments());
    let before = reference.sim.fs.operations();
    let whole = Life::run(&mut reference);
    let operations = reference.sim.fs.operations() - before;
    assert!(whole.acked == 22 && whole.log_start == 16, "the life does what it should");
    for stop in 0..=operations {
        let mut machine = Machine::synced(stop, &Machine::small_segments());
        machine.sim.fs.stop_after(stop);
        let life = Life::run(&mut machine);
        check(&mut machine, &life, &format!("stop {stop} of {operations}"));
    }
}

fn check_found(machine: &Machine, life: &Life, end_min: i64, context: &str) {
    let records = machine.records().unwrap_or_else(|error| panic!("{context}: {error}"));
    let start = machine.log().log_start_offset().unwrap().0;
    let end = machine.log().log_end_offset().unwrap().0;
    let log_starts = life.log_start..=life.log_start_asked.max(life.log_start);
    assert!(log_starts.contains(&start), "{context}: starts at {start}");
    // The append at which the machine stopped may be there whole.
    assert!((end_min..=life.acked + 1).contains(&end), "{context}: {end} of {end_min} to {}", life.acked);
    assert_eq!(records, numbers(start, end), "{context}");
    if start < end {
        let last = i32::try_from(end - 1).unwrap();
        let again = machine.try_append("again", stamp(9, last)).unwrap();
        assert!(again.duplicate && again.base_offset == Offset(end - 1), "{context}: {again:?}");
    }
}

#[test]
fn a_kill_takes_nothing_that_was_acked_at_any_level() {
    for_each_stop(|machine, life, context| {
        machine.kill();
        check_found(machine, life, life.acked, context);
    });
}

#[test]
fn power_cut_takes_no_record_acked_at_a_level_that_syncs() {
    for_each_stop(|machine, life, context| {
        machine.crash();
        check_found(machine, life, life.durable, context);
    });
}

#[test]
fn recovery_is_repeatable_and_serves_nothing_unsynced() {
    for_each_stop(|machine, life, context| {
        machine.crash();
        let end = machine.log().log_end_offset().unwrap().0;
        let served = machine.log().watermarks().synced.0;
        let once = contents(machine);
        machine.kill();
        assert_eq!(machine.log().log_end_offset().unwrap().0, end, "{context}");
        assert!(contents(machine) == once, "{context}: other bytes after the second recovery");
        machine.crash();
        let end_now = machine.log().log_end_offset().unwrap().0;
        assert!(end_now >= served && end_now >= life.durable, "{context}: {end_now} of {served}");
    });
}

#[test]
fn journal_removes_no_later_records_of_a_damaged_checkpoint() {
    let mut machine = Machine::synced(1, &LogConfig::default());
    machine.append_numbers(0, 5);
    let durability = DurabilityLevel::AsyncAsync;
    machine.config = Arc::new(LogConfig { durability, ..(*machine.config).clone() });
    machine.log().set_config(machine.config.clone());
    machine.store().settle().unwrap();
    machine.append_numbers(5, 10);
    machine.store().checkpoint().unwrap();
    machine.sim.fs.kill();
    machine.store = None;
    let path = PathBuf::from(DIR).join("checkpoint");
    let mut bytes = machine.content(&path);
    bytes[20] ^= 1;
    machine.put_content(&path, &bytes);
    machine.start().unwrap();
    assert!(machine.recovered.offline.is_empty() && machine.recovered.known_entries == 5);
    assert_eq!(machine.records().unwrap(), numbers(0, 10));
    machine.append_numbers(10, 12);
    machine.crash();
    assert_eq!(machine.records().unwrap()[..10], numbers(0, 10));
}
