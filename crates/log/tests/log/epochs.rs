//! Leader epochs of a log over starts and kills: an answer about the end of an epoch holds.

use std::collections::BTreeMap;

use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_records::Batches;
use riverrun_types::{DurabilityLevel, LeaderEpoch, Offset};

use crate::machine::Machine;

/// Offset and epoch of each record, and its value.
type Records = BTreeMap<(i64, i32), String>;

/// Everything that readers of the log may see; nothing of one that cannot be read.
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

/// What clients were told of the ends of epochs: the answer, and whether the epoch was over by then.
type Answers = BTreeMap<i32, ((LeaderEpoch, Offset), bool)>;

/// Asks where each epoch ended, and compares it with what lies in the log and with what was answered before.
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
