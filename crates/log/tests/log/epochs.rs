//! Leader epochs of a log over starts, kills and failed writes: an answer about the end of an epoch holds, and no offset has two
//! records in one epoch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use bytes::BytesMut;
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::{Appended, RecoveryReport};
use riverrun_records::{BatchOptions, Batches};
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset};

use crate::machine::{Machine, batch_at};

/// Offset and epoch of each record, and its value.
type Records = BTreeMap<(i64, i32), String>;

/// Crash states of one life that are looked at.
const STATES: usize = 12;

/// Everything that readers of the log may see; nothing if the log cannot be read.
fn records(machine: &Machine) -> Records {
    let log = machine.log();
    let mut found = Records::new();
    let (Ok(mut from), Ok(end)) = (log.log_start_offset(), log.log_end_offset()) else { return found };
    while from < end {
        let Ok(slice) = log.read(from, 1 << 20, end, true) else { return found };
        for chunk in &slice.chunks {
            for batch in Batches::new(&chunk.to_bytes().unwrap()) {
                let batch = batch.unwrap().verify().unwrap();
                for record in &batch.records().unwrap() {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    found.insert((record.offset.0, batch.header().leader_epoch().0), value);
                }
            }
        }
        from = slice.next_offset;
    }
    found
}

fn machine(level: DurabilityLevel) -> Machine {
    let config = LogConfig { durability: level, ..LogConfig::default() };
    Machine::with_options(SimEnv::new(1), config, Machine::with_journal())
}

/// Answers to clients about the ends of epochs, and whether the epoch was over by then.
type Answers = BTreeMap<i32, ((LeaderEpoch, Offset), bool)>;

/// Asks for the end of each epoch, and compares it with the log and with the earlier answers.
fn ask(machine: &Machine, answers: &mut Answers) {
    let (log, records) = (machine.log(), records(machine));
    for epoch in 1..=machine.epoch {
        let answer = log.epoch_end_offset(LeaderEpoch(epoch)).unwrap();
        let end = records.keys().filter(|(_, of)| *of <= epoch).count();
        assert_eq!(answer.1.0, i64::try_from(end).unwrap(), "epoch {epoch} of {records:?}");
        match answers.insert(epoch, (answer, epoch < machine.epoch)) {
            Some((before, true)) => assert_eq!(answer, before, "epoch {epoch} was over"),
            Some(((_, before), false)) => assert!(answer.1 >= before, "epoch {epoch} went back"),
            None => {}
        }
    }
    let beyond = log.epoch_end_offset(LeaderEpoch(machine.epoch + 1)).unwrap();
    assert_eq!(beyond, (LeaderEpoch::UNKNOWN, Offset(-1)));
}

/// Also of an epoch in which nothing was appended: it needs no entry to be answered.
#[test]
fn an_answer_about_an_epoch_holds_after_stops_and_kills() {
    for level in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
        for script in 0..3_u32.pow(5) {
            let mut machine = machine(level);
            let mut answers = Answers::new();
            for step in 0..5 {
                match script / 3_u32.pow(step) % 3 {
                    0 => _ = machine.append("value"),
                    1 => machine.restart(),
                    // At a level that syncs the power may fail as well.
                    _ if level.syncs_locally() => machine.crash(),
                    _ => machine.kill(),
                }
                ask(&machine, &mut answers);
            }
        }
    }
}

/// A fault in a life, after so many writes, syncs or bytes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Write,
    Sync,
    Space,
    /// As `Space`, and bytes that were written in part cannot be cut back.
    SpaceAndCut,
}

/// A log, and the records that its readers have seen.
struct Life {
    machine: Machine,
    seen: Records,
    sent: u32,
}

impl Life {
    fn new() -> Self {
        Self { machine: machine(DurabilityLevel::AsyncAsync), seen: Records::new(), sent: 0 }
    }

    /// Lives on in spite of failures: refused records are not sent again, and others get their offsets.
    fn run(&mut self, fault: Fault, count: u64) {
        self.send(&[1]);
        self.machine.store().checkpoint().unwrap();
        self.begin(fault, count);
        self.send(&[3, 1, 2]);
        self.machine.sim.fs.set_space(None);
        self.send(&[1]);
        self.check();
        self.send(&[1, 1]);
        for level in [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync] {
            self.change_level(level, fault, count);
            self.send(&[2, 1]);
            self.send(&[1]);
        }
        self.check();
        self.kill();
    }

    fn begin(&self, fault: Fault, count: u64) {
        let fs = &self.machine.sim.fs;
        match fault {
            Fault::Write => fs.fail_write_after(count),
            Fault::Sync => fs.fail_sync_after(count),
            Fault::Space => fs.set_space(Some(count * 20)),
            Fault::SpaceAndCut => {
                fs.fail_next_cut();
                fs.set_space(Some(count * 20));
            }
        }
    }

    /// Batches of so many records each, written together. Then readers look.
    fn send(&mut self, sizes: &[usize]) {
        let log = self.machine.log();
        let mut last = None;
        for size in sizes {
            let values: Vec<_> = (0..*size).map(|_| self.value()).collect();
            let values: Vec<_> = values.iter().map(|value| (0, value.as_str())).collect();
            let batch = batch_at(&values, BatchOptions::default());
            last = log.append(BytesMut::from(&batch[..]), self.machine.append_options()).ok().or(last);
        }
        _ = log.write_staged();
        self.await_end(last);
        self.look();
    }

    fn value(&mut self) -> String {
        self.sent += 1;
        format!("{:04}", self.sent)
    }

    /// Waits until appends are shown or lost, or the journal waits for a resource.
    fn await_end(&self, last: Option<Appended>) {
        let (log, store) = (self.machine.log(), self.machine.store());
        let is_short = || store.journals().any(|journal| journal.shortage().is_some());
        while let Some(last) = last
            && !log.is_lost(&last)
            && log.watermarks().appended <= last.last_offset
            && log.failure().is_none()
            && !is_short()
        {
            thread::yield_now();
        }
    }

    fn look(&mut self) {
        for (at, value) in records(&self.machine) {
            let before = self.seen.entry(at).or_insert_with(|| value.clone());
            assert_eq!(*before, value, "offset and epoch {at:?}");
        }
    }

    /// Something is appended while the level is being changed.
    fn change_level(&mut self, durability: DurabilityLevel, fault: Fault, count: u64) {
        self.machine.config = Arc::new(LogConfig { durability, ..(*self.machine.config).clone() });
        self.machine.log().set_config(self.machine.config.clone());
        let log = self.machine.log();
        let value = self.value();
        let batch = batch_at(&[(0, &value)], BatchOptions::default());
        let options = self.machine.append_options();
        self.machine.sim.fs.during_next_sync(move || _ = log.append(BytesMut::from(&batch[..]), options));
        self.begin(fault, count);
        _ = self.machine.store().settle();
        self.machine.sim.fs.set_space(None);
        self.look();
    }

    /// Compares the records that a start finds after a power cut with those that readers have seen.
    fn check(&self) {
        let (config, options) = (self.machine.config.clone(), self.machine.options.clone());
        for sim in self.machine.sim.crash_states(STATES) {
            let (config, options, recovered) = (config.clone(), options.clone(), RecoveryReport::default());
            let machine = Machine { sim, config, epoch: 1, options, store: None, recovered };
            let mut life = Self { machine, seen: self.seen.clone(), sent: self.sent };
            life.machine.start().unwrap();
            life.look();
            life.send(&[1]);
        }
    }

    /// Kills the process, and compares the records as after a power cut.
    fn kill(&mut self) {
        self.machine.kill();
        self.look();
        self.send(&[1]);
    }
}

#[test]
fn no_offset_has_two_records_in_one_epoch_whatever_has_failed() {
    for fault in [Fault::Write, Fault::Sync, Fault::Space, Fault::SpaceAndCut] {
        for count in 0..20 {
            Life::new().run(fault, count);
        }
    }
}
