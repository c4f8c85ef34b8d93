//! The machine stops after every operation of a life, and each state is checked in which it may leave the disk: all of
//! them if they are few, else a sample. Records under a checkpoint are there, nothing is invented, a second recovery
//! finds the same, and one that is cut short does no harm. For a log that goes to its segments at once, and for one
//! whose appends a journal syncs: there all acked records are covered.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;

use riverrun_env::sim::{PlantedBug, SimEnv, SimFileSystem};
use riverrun_env::{FileSystem, read_whole};
use riverrun_log::config::{CleanupPolicy, LogConfig};
use riverrun_log::{RecoveryReport, StoreOptions};
use riverrun_types::{DurabilityLevel, Offset};

use crate::machine::{Machine, numbers, stamp};

/// Multiplies the number of states of one moment that are checked.
const BUDGET_VARIABLE: &str = "RIVERRUN_CRASH_STATES";

fn bound(states: usize) -> usize {
    states * std::env::var(BUDGET_VARIABLE).map_or(1, |text| text.parse().expect("a number"))
}

/// The way of a record to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To the segments, unsynced.
    Segments,
    /// Through the journal, synced before it is acked. A start keeps the journal's entries in memory.
    Journal,
    /// As `Journal`, and a start writes the entries into the segments.
    JournalAtOnce,
}

/// The promises to a life of the log.
#[derive(Clone, Copy, Debug)]
struct Life {
    way: Way,
    acked: i64,
    /// Everything below is covered by a checkpoint that has returned, or by the journal.
    durable: i64,
    log_start: i64,
    /// A log start that was asked for, and may or may not hold.
    log_start_asked: i64,
}

impl Life {
    /// Lives on a new disk until the first failure.
    fn run(sim: &SimEnv, way: Way) -> Self {
        let mut life = Self { way, acked: 0, durable: 0, log_start: 0, log_start_asked: 0 };
        if let Ok(mut machine) = start(sim.clone(), way, 0) {
            let _stopped = life.steps(&mut machine);
        }
        life
    }

    fn steps(&mut self, machine: &mut Machine) -> Option<()> {
        self.append(machine, 5)?;
        self.checkpoint(machine)?;
        self.append(machine, 2)?;
        self.log_start_asked = 3;
        machine.log().delete_records(Offset(3)).ok()?;
        self.log_start = 3;
        self.append(machine, 2)?;
        machine.store().settle().ok()?;
        self.append(machine, 1)?;
        self.checkpoint(machine)?;
        self.append(machine, 1)?;
        self.log_start_asked = self.acked;
        machine.log().apply_retention(machine.now(), Offset(self.acked)).ok()?;
        self.log_start = machine.log().log_start_offset().ok()?.0;
        self.log_start_asked = self.log_start;
        self.append(machine, 2)?;
        self.restart(machine)?;
        self.append(machine, 2)
    }

    fn append(&mut self, machine: &Machine, count: i64) -> Option<()> {
        for _ in 0..count {
            let value = format!("record {}", self.acked);
            let sequence = i32::try_from(self.acked).unwrap();
            machine.try_append(&value, stamp(9, sequence)).ok()?;
            self.acked += 1;
            if self.way != Way::Segments {
                self.durable = self.acked;
            }
        }
        Some(())
    }

    fn checkpoint(&mut self, machine: &Machine) -> Option<()> {
        machine.store().checkpoint().ok()?;
        self.durable = self.acked;
        Some(())
    }

    /// Stops in order and starts again.
    fn restart(&mut self, machine: &mut Machine) -> Option<()> {
        machine.store.take()?.close().ok()?;
        self.durable = self.acked;
        machine.start().ok()?;
        machine.log().log_end_offset().ok().map(|_| ())
    }

    /// Compares the records that a machine finds after this life: everything from the log start up to some offset,
    /// which is at least `end_min`.
    fn check(&self, found: &Machine, end_min: i64) -> Result<(), String> {
        let records = found.records().map_err(|error| error.to_string())?;
        let start = found.log().log_start_offset().map_err(|error| error.to_string())?.0;
        let end = found.log().log_end_offset().map_err(|error| error.to_string())?.0;
        let log_starts = self.log_start..=self.log_start_asked.max(self.log_start);
        // The append at which the machine stopped may be there whole.
        let ends = end_min..=self.acked + 1;
        if !log_starts.contains(&start) || !ends.contains(&end) || records != numbers(start, end) {
            return Err(format!("found {start} to {end} with {records:?} after {self:?}"));
        }
        if start < end {
            let last = i32::try_from(end - 1).unwrap();
            let again = found.try_append("again", stamp(9, last)).map_err(|error| error.to_string())?;
            if !again.duplicate {
                return Err(format!("the producer of record {last} is forgotten after {self:?}"));
            }
        }
        Ok(())
    }
}

fn config(way: Way) -> LogConfig {
    LogConfig {
        durability: match way {
            Way::Segments => DurabilityLevel::AsyncAsync,
            Way::Journal | Way::JournalAtOnce => DurabilityLevel::SyncSync,
        },
        segment_bytes: 300,
        retention_bytes: Some(400),
        cleanup: CleanupPolicy { delete: true, compact: false },
        file_delete_delay_ms: 0,
        ..Machine::small_segments()
    }
}

/// A machine that starts on this disk, after so many starts.
fn start(sim: SimEnv, way: Way, epoch: i32) -> Result<Machine, String> {
    let options = match way {
        Way::Segments => StoreOptions::default(),
        Way::Journal => Machine::with_journal(),
        Way::JournalAtOnce => Machine::settled_at_start(),
    };
    let recovered = RecoveryReport::default();
    let mut machine = Machine { sim, config: config(way).into(), epoch, options, store: None, recovered };
    machine.start().map_err(|error| error.to_string())?;
    Ok(machine)
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

/// Starts on what a power cut has left: once, again after a kill, and again after another power cut in its middle.
fn check_state(life: &Life, state: &SimEnv, index: usize) -> Result<(), String> {
    let fork = || state.crash_states(1).next().expect("nothing is pending, so there is one");
    let before = state.fs.operations();
    let first = start(fork(), life.way, 2)?;
    life.check(&first, life.durable)?;
    let (once, operations) = (contents(&first), first.sim.fs.operations() - before);
    let end = first.log().log_end_offset().map_err(|error| error.to_string())?.0;
    first.sim.fs.kill();
    let again = start(first.sim, life.way, 3)?;
    life.check(&again, end)?;
    if contents(&again) != once {
        return Err("other bytes after the second recovery".to_owned());
    }
    state.fs.stop_after(index as u64 % operations);
    let _stopped = start(state.clone(), life.way, 2).map(|machine| machine.records());
    for twice in state.crash_states(2) {
        let found = start(twice, life.way, 3).map_err(|error| format!("recovery cut short: {error}"))?;
        life.check(&found, life.durable).map_err(|error| format!("recovery cut short: {error}"))?;
    }
    Ok(())
}

/// The number of states that a power cut may leave of a life on a prepared disk, or the fault of the first bad one. At
/// most `states_max` are checked.
fn check_life(way: Way, prepare: impl Fn(&SimFileSystem), states_max: usize) -> Result<usize, String> {
    let sim = SimEnv::new(1);
    prepare(&sim.fs);
    let life = Life::run(&sim, way);
    let mut looked_at = 0;
    for (index, state) in sim.crash_states(bound(states_max)).enumerate() {
        check_state(&life, &state, index).map_err(|error| format!("state {index}: {error}"))?;
        looked_at += 1;
    }
    Ok(looked_at)
}

/// Operations and syncs of a whole life.
fn whole_life(way: Way) -> (u64, u64) {
    let sim = SimEnv::new(1);
    let life = Life::run(&sim, way);
    let durable = if way == Way::Segments { 13 } else { 15 };
    assert!(
        life.acked == 15 && life.durable == durable && life.log_start > 3,
        "the life does what it should: {life:?}"
    );
    (sim.fs.operations(), sim.fs.syncs())
}

/// Cuts the power after every operation of a life; returns the number of checked states, at most `states_max` each
/// time.
fn check_every_stop(way: Way, states_max: usize) -> usize {
    let (operations, _) = whole_life(way);
    let check = |stop| {
        let checked = check_life(way, |fs| fs.stop_after(stop), states_max);
        checked.unwrap_or_else(|error| panic!("stop {stop}, {error}"))
    };
    (0..=operations).map(check).sum()
}

#[test]
fn checkpointed_records_are_in_every_state_of_a_power_cut() {
    let looked_at = check_every_stop(Way::Segments, 10);
    assert!(looked_at > 300, "{looked_at} states");
}

#[test]
fn records_acked_after_a_sync_are_in_every_state_of_a_power_cut() {
    for way in [Way::Journal, Way::JournalAtOnce] {
        let looked_at = check_every_stop(way, 3);
        assert!(looked_at > 250, "{looked_at} states");
    }
}

/// Cuts the power after each failed sync and each failed write of a life.
fn check_every_failure(way: Way, states_max: usize) {
    let (operations, syncs) = whole_life(way);
    for count in 0..syncs {
        let checked = check_life(way, |fs| fs.fail_sync_after(count), states_max);
        checked.unwrap_or_else(|error| panic!("sync {count}, {error}"));
    }
    for count in 0..operations - syncs {
        let checked = check_life(way, |fs| fs.fail_write_after(count), states_max);
        checked.unwrap_or_else(|error| panic!("write {count}, {error}"));
    }
}

#[test]
fn failed_syncs_and_writes_lose_no_checkpointed_record() {
    check_every_failure(Way::Segments, 6);
}

#[test]
fn failed_syncs_and_writes_lose_no_record_synced_by_the_journal() {
    check_every_failure(Way::Journal, 2);
    check_every_failure(Way::JournalAtOnce, 2);
}

/// A life that ends with the process, while the page cache stays, and a second one that makes a checkpoint: every state
/// has all that the second one was told. It finds all acked records, unless a sync has failed.
fn check_second_life(way: Way, prepare: impl Fn(&SimFileSystem), is_all_written: bool) -> Result<(), String> {
    let sim = SimEnv::new(1);
    prepare(&sim.fs);
    let mut life = Life::run(&sim, way);
    sim.fs.kill();
    let machine = start(sim, way, 2)?;
    life.check(&machine, if is_all_written { life.acked } else { life.durable })?;
    life.acked = machine.log().log_end_offset().map_err(|error| error.to_string())?.0;
    life.append(&machine, 1).and_then(|()| life.checkpoint(&machine)).ok_or("the second life is no life")?;
    for (index, state) in machine.sim.crash_states(bound(4)).enumerate() {
        let found = start(state, way, 3).and_then(|found| life.check(&found, life.durable));
        found.map_err(|error| format!("state {index}: {error}"))?;
    }
    Ok(())
}

#[test]
fn a_start_builds_on_nothing_that_only_the_page_cache_has() {
    for way in [Way::Segments, Way::Journal, Way::JournalAtOnce] {
        let (operations, syncs) = whole_life(way);
        for stop in 0..=operations {
            check_second_life(way, |fs| fs.stop_after(stop), true)
                .unwrap_or_else(|error| panic!("{way:?}, stop {stop}: {error}"));
        }
        for sync in 0..syncs {
            check_second_life(way, |fs| fs.fail_sync_after(sync), false)
                .unwrap_or_else(|error| panic!("{way:?}, sync {sync}: {error}"));
        }
    }
}

/// Asserts that there is a moment, of the moments 0 to `count` - 1, at which the bug is found out: the states do not
/// pass the checks, or reading them meets bytes that are no batch.
fn assert_found_out(way: Way, bug: PlantedBug, count: u64, prepare: fn(&SimFileSystem, u64)) {
    let states_max = if way == Way::Segments { 8 } else { 2 };
    let is_found_out = |moment| {
        let prepare = |fs: &SimFileSystem| {
            fs.plant(bug);
            prepare(fs, moment);
        };
        match catch_unwind(AssertUnwindSafe(|| check_life(way, prepare, states_max))) {
            Ok(checked) => checked.is_err(),
            Err(panic) if panic.downcast_ref::<&str>() == Some(&"reading gets on") => true,
            Err(panic) => resume_unwind(panic),
        }
    };
    assert!((0..count).any(is_found_out), "{way:?}: {bug:?}");
}

fn assert_planted_bugs_are_found_out(way: Way) {
    let (operations, syncs) = whole_life(way);
    assert_found_out(way, PlantedBug::SkippedDirectorySync, operations, SimFileSystem::stop_after);
    assert_found_out(way, PlantedBug::IgnoredShortWrite, operations - syncs, SimFileSystem::fail_write_after);
    assert_found_out(way, PlantedBug::RepeatedSync, syncs, SimFileSystem::fail_sync_after);
}

#[test]
fn bugs_planted_on_the_way_to_the_segments_are_found_out() {
    assert_planted_bugs_are_found_out(Way::Segments);
}

#[test]
fn bugs_planted_on_the_way_through_the_journal_are_found_out() {
    assert_planted_bugs_are_found_out(Way::Journal);
}
