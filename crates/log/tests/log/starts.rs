//! The memory after a start: it has as many of the journal's entries as half of the write cache holds. The start makes
//! no file for them, and settling and checkpoints after it may end at any write and sync.

use std::path::Path;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::{AppendError, LogError, LogStore, Place, StoreOptions};
use riverrun_records::ProducerStamp;
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset, PartitionId};

use crate::machine::{DIR, ID, Machine, numbers, stamp};

fn partition(index: i32) -> PartitionId {
    PartitionId { index, ..ID }
}

/// Partitions that are more than may be open in some tests.
const MANY: i32 = 200;

/// Directories of topics.
fn topic_dirs(sim: &SimEnv) -> usize {
    sim.fs.read_dir(DIR.as_ref()).unwrap().iter().filter(|entry| entry.is_dir).count()
}

#[test]
fn a_start_makes_no_file_for_partitions_that_have_none_yet() {
    for partitions in [2, 60] {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        for index in 0..partitions {
            machine.try_append_to(partition(index), "record 0", ProducerStamp::NONE).unwrap();
        }
        machine.sim.fs.kill();
        machine.store = None;
        let before = machine.sim.fs.operations();
        machine.start().unwrap();
        // A directory and two files for each would be many more.
        let operations = machine.sim.fs.operations() - before;
        assert!(operations < 30, "{operations} operations for {partitions} partitions");
        assert_eq!(machine.recovered.partitions, usize::try_from(partitions).unwrap());
        for index in 0..partitions {
            assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, 1));
        }
        assert_eq!(topic_dirs(&machine.sim), 0);
        assert!(machine.store().write_cache().bytes() > 0);
        machine.store().settle().unwrap();
        assert_eq!((topic_dirs(&machine.sim), machine.store().write_cache().bytes()), (1, 0));
        for index in 0..partitions {
            machine.try_append_to(partition(index), "record 1", ProducerStamp::NONE).unwrap();
        }
        machine.crash();
        for index in 0..partitions {
            assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, 2));
        }
    }
}

#[test]
fn start_keeps_at_most_half_of_the_write_cache_in_memory() {
    for write_cache_bytes in [1, 1_000, 3_000, 20_000, 1 << 30] {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        for number in 0..20 {
            for index in 0..5 {
                let value = format!("record {number}");
                machine.try_append_to(partition(index), &value, ProducerStamp::NONE).unwrap();
            }
        }
        let whole = machine.store().write_cache().bytes();
        machine.sim.fs.kill();
        machine.store = None;
        machine.options.write_cache_bytes = write_cache_bytes;
        machine.start().unwrap();
        let kept = machine.store().write_cache().bytes();
        assert!(kept <= whole.min(write_cache_bytes / 2), "{kept} of {whole}");
        assert_eq!(kept == 0, write_cache_bytes == 1, "{kept} of {whole}");
        assert_eq!(kept == whole, write_cache_bytes >= 20_000, "{kept} of {whole}");
        assert!((0..5).all(|index| machine.records_of(partition(index)).unwrap() == numbers(0, 20)));
        machine.store().settle().unwrap();
        assert_eq!(machine.store().write_cache().bytes(), 0);
        machine.crash();
        assert!((0..5).all(|index| machine.records_of(partition(index)).unwrap() == numbers(0, 20)));
    }
}

#[test]
fn start_in_a_full_dir_serves_entries_and_settles_them_later() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 10);
    machine.store().settle().unwrap();
    machine.append_numbers(10, 30);
    machine.sim.fs.crash();
    machine.store = None;
    let dirs = [DIR.into()];
    let store = LogStore::open(&machine.sim.env(), &dirs, machine.options.clone()).unwrap();
    let place = |_| {
        machine.sim.fs.set_space(Some(100));
        Place::In(0, machine.config.clone())
    };
    let report = store.recover(|_| LeaderEpoch(2), place).unwrap();
    assert!(report.offline.is_empty(), "{report:?}");
    machine.store = Some(store);
    assert_eq!(machine.records().unwrap(), numbers(0, 30));
    assert!(machine.store().settle().is_err());
    let error = machine.try_append("no", ProducerStamp::NONE).unwrap_err();
    assert!(matches!(error, AppendError::Storage(LogError::DirFull { .. })), "{error}");
    machine.sim.fs.set_space(None);
    machine.store().settle().unwrap();
    machine.append_numbers(30, 33);
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, 33));
}

/// A machine whose records are all in the log dir or the journal, with the first ones deleted.
fn ended(is_stopped_in_order: bool) -> Machine {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    machine.append_numbers(0, 10);
    machine.log().delete_records(Offset(3)).unwrap();
    machine.store().checkpoint().unwrap();
    machine.append_numbers(10, 20);
    if is_stopped_in_order {
        machine.store().close().unwrap();
    }
    machine.sim.fs.kill();
    machine.store = None;
    // The journal is on another volume.
    machine.sim.fs.fill_device(Some(DIR.as_ref()));
    machine
}

#[test]
fn start_without_space_for_a_checkpoint_writes_later() {
    for is_stopped_in_order in [false, true] {
        let mut machine = ended(is_stopped_in_order);
        machine.start().unwrap();
        assert_eq!(machine.store().was_clean(), is_stopped_in_order);
        // Builds without this rule would take the file for a damaged one otherwise, and make another.
        let version = if is_stopped_in_order { [0, 251] } else { [0, 4] };
        assert_eq!(machine.content(&Path::new(DIR).join("checkpoint"))[8..10], version);
        assert_eq!(machine.records().unwrap(), numbers(3, 20));
        machine.append_numbers(20, 22);
        assert!(machine.store().checkpoint().is_err());
        machine.kill();
        assert!(!machine.store().was_clean(), "it was in use");
        assert_eq!(machine.records().unwrap(), numbers(3, 22));
        assert!(machine.store().dir_failure(0).is_none());
        machine.sim.fs.fill_device(None);
        machine.store().settle().unwrap();
        machine.append_numbers(22, 24);
        machine.store().checkpoint().unwrap();
        machine.crash();
        assert_eq!(machine.records().unwrap(), numbers(3, 24));
        machine.restart();
        assert!(machine.store().was_clean());
        assert_eq!(machine.records().unwrap(), numbers(3, 24));
    }
}

#[test]
fn checkpoint_without_space_stays_whole_wherever_a_start_ends() {
    for is_stopped_in_order in [false, true] {
        let mut is_over = false;
        for stop in 0..100 {
            let mut machine = ended(is_stopped_in_order);
            machine.sim.fs.stop_after(stop);
            is_over = machine.start().is_ok();
            for state in machine.sim.crash_states(8) {
                let config = LogConfig::clone(&machine.config);
                let later = Machine::with_options(state, config, machine.options.clone());
                let context = format!("in order: {is_stopped_in_order}, stop {stop}");
                assert_eq!(later.records().unwrap(), numbers(3, 20), "{context}");
                assert!(!(is_over && later.store().was_clean()), "{context}");
            }
            if is_over {
                break;
            }
        }
        assert!(is_over);
    }
}

#[test]
fn a_start_in_a_full_dir_tries_seldom_to_close_logs() {
    let mut machine = Machine::synced(1, &Machine::small_segments());
    for index in 0..MANY {
        machine.try_append_to(partition(index), "record 0", ProducerStamp::NONE).unwrap();
    }
    machine.sim.fs.crash();
    machine.store = None;
    machine.options.open_logs_max = 64;
    let store = LogStore::open(&machine.sim.env(), &[DIR.into()], machine.options.clone()).unwrap();
    let before = machine.sim.fs.operations();
    let place = |_| {
        machine.sim.fs.set_space(Some(0));
        Place::In(0, machine.config.clone())
    };
    let report = store.recover(|_| LeaderEpoch(2), place).unwrap();
    assert!(report.offline.is_empty(), "{report:?}");
    let operations = machine.sim.fs.operations() - before;
    // With one attempt too many for each it would be over a hundred.
    assert!(operations < 60, "{operations} operations");
    machine.store = Some(store);
    for index in 0..MANY {
        assert_eq!(machine.records_of(partition(index)).unwrap(), numbers(0, 1));
    }
    machine.sim.fs.set_space(None);
    machine.store().settle().unwrap();
    // Now they can be closed, and are when a sixteenth more are wanted.
    for index in MANY..=MANY + 4 {
        machine.try_append_to(partition(index), "record 0", ProducerStamp::NONE).unwrap();
    }
    assert!(machine.store().open_log_count() <= 64);
}

/// Partitions of a life, and the acked records of each.
const PARTITIONS: usize = 5;

struct Life {
    acked: [i64; PARTITIONS],
    /// The last partition's.
    log_start: i64,
    log_start_asked: i64,
}

impl Life {
    fn append(&mut self, machine: &Machine, numbers: std::ops::Range<usize>, count: i64) -> Option<()> {
        for _ in 0..count {
            for number in numbers.clone() {
                let acked = &mut self.acked[number];
                let producer = stamp(9 + i64::try_from(number).unwrap(), i32::try_from(*acked).unwrap());
                let id = partition(i32::try_from(number).unwrap());
                machine.try_append_to(id, &format!("record {acked}"), producer).ok()?;
                *acked += 1;
            }
        }
        Some(())
    }

    /// A machine that was killed: some of its partitions are under a checkpoint, some settled, one has no file yet.
    fn begin(options: &StoreOptions) -> (Self, Machine) {
        let mut machine = Machine::synced(1, &Machine::small_segments());
        let mut life = Self { acked: [0; PARTITIONS], log_start: 0, log_start_asked: 0 };
        life.append(&machine, 0..2, 3).unwrap();
        machine.store().checkpoint().unwrap();
        life.append(&machine, 0..3, 12).unwrap();
        machine.store().settle().unwrap();
        life.append(&machine, 1..PARTITIONS, 3).unwrap();
        machine.sim.fs.kill();
        machine.store = None;
        machine.options = options.clone();
        (life, machine)
    }

    /// Starts, and goes on until the machine stops.
    fn go_on(&mut self, machine: &mut Machine) -> Option<()> {
        let last = partition(i32::try_from(PARTITIONS - 1).unwrap());
        machine.start().ok()?;
        self.append(machine, 0..PARTITIONS, 1)?;
        machine.store().settle().ok()?;
        self.append(machine, 0..PARTITIONS, 1)?;
        self.log_start_asked = 4;
        machine.partition(last).delete_records(Offset(4)).ok()?;
        self.log_start = 4;
        self.append(machine, 2..PARTITIONS, 1)?;
        machine.store().checkpoint().ok()?;
        // From here on the journal's frames state what it does not need any more.
        self.append(machine, 0..PARTITIONS, 1)
    }

    fn check(&self, machine: &Machine, context: &str) {
        for (number, acked) in self.acked.into_iter().enumerate() {
            let id = partition(i32::try_from(number).unwrap());
            let log = machine.partition(id);
            let (start, end) = (log.log_start_offset().unwrap().0, log.log_end_offset().unwrap().0);
            let starts = if number + 1 == PARTITIONS { self.log_start..=self.log_start_asked } else { 0..=0 };
            assert!(starts.contains(&start), "{context}, partition {number}: starts at {start}");
            // The append at which the machine stopped may be there whole.
            assert!(end == acked || end == acked + 1, "{context}, partition {number}: {end} of {acked}");
            assert_eq!(machine.records_of(id).unwrap(), numbers(start, end), "{context}");
            let producer = stamp(9 + i64::try_from(number).unwrap(), i32::try_from(end - 1).unwrap());
            assert!(machine.try_append_to(id, "again", producer).unwrap().duplicate, "{context}");
        }
    }
}

/// Checks the machine after a start, after another once all is settled, and after one in order.
fn check_starts(life: &Life, sim: SimEnv, options: &StoreOptions, context: &str) {
    let config = LogConfig { durability: DurabilityLevel::SyncSync, ..Machine::small_segments() };
    let mut machine = Machine::with_options(sim, config, options.clone());
    assert!(machine.recovered.offline.is_empty(), "{context}: {:?}", machine.recovered);
    life.check(&machine, context);
    machine.store().checkpoint().unwrap();
    machine.crash();
    life.check(&machine, context);
    machine.restart();
    life.check(&machine, context);
}

#[test]
fn no_acked_record_is_lost_at_any_moment_after_a_start() {
    // In memory, partly there, and in the segments.
    for write_cache_bytes in [1 << 30, 4_000, 1] {
        let options = StoreOptions { write_cache_bytes, ..Machine::with_journal() };
        let mut is_over = false;
        for stop in 0..1000 {
            let context = format!("cache {write_cache_bytes}, stop {stop}");
            let (mut life, mut machine) = Life::begin(&options);
            machine.sim.fs.stop_after(stop);
            is_over = life.go_on(&mut machine).is_some();
            for (index, state) in machine.sim.crash_states(2).enumerate() {
                check_starts(&life, state, &options, &format!("{context}, state {index}"));
            }
            machine.sim.fs.kill();
            machine.store = None;
            check_starts(&life, machine.sim, &options, &format!("{context}, killed"));
            if is_over {
                assert!(stop > 30, "{stop} operations");
                break;
            }
        }
        assert!(is_over);
    }
}
