//! Where the state of idempotent producers lies: of few in the checkpoint of the log dir, without a file for each
//! partition; of many in a snapshot, and in the checkpoint what is newer. Either survives what the records survive.

use std::path::Path;

use riverrun_log::{RecoveryReport, verify_partition};
use riverrun_types::{Offset, TimestampMs};

use crate::machine::{DIR, ID, Machine, numbers, stamp};

/// So many producers take more than a checkpoint holds of one partition.
const MANY: i64 = 22;
const FEW: i64 = 2;

/// What was appended: the producer of each record, by offset.
#[derive(Clone, Default)]
struct Sent {
    producers: Vec<i64>,
    /// Whose record was appended when the machine stopped: it may be there whole.
    under_way: Option<i64>,
    /// Records that a checkpoint which has returned covers.
    durable: usize,
}

impl Sent {
    fn sequence(&self, producer: i64) -> i32 {
        i32::try_from(self.producers.iter().filter(|sender| **sender == producer).count()).unwrap()
    }

    /// Each of the producers appends a record.
    fn round(&mut self, machine: &Machine, producers: std::ops::Range<i64>) -> Option<()> {
        for producer in producers {
            let value = format!("record {}", self.producers.len());
            self.under_way = Some(producer);
            machine.try_append(&value, stamp(producer, self.sequence(producer))).ok()?;
            self.producers.extend(self.under_way.take());
        }
        Some(())
    }

    fn checkpoint(&mut self, machine: &Machine) -> Option<()> {
        machine.store().checkpoint().ok()?;
        self.durable = self.producers.len();
        Some(())
    }

    /// The log knows of each producer what it has of it, and nothing else: its last record is a duplicate, a gap is
    /// refused, and the next one is new.
    fn check(&mut self, machine: &Machine, context: &str) {
        let end = usize::try_from(machine.log().log_end_offset().unwrap().0).unwrap();
        self.producers.extend(self.under_way.take());
        assert!((self.durable..=self.producers.len()).contains(&end), "{context}: ends at {end}");
        self.producers.truncate(end);
        for producer in 0..MANY {
            let Some(last) = self.producers.iter().rposition(|sender| *sender == producer) else { continue };
            let sequence = self.sequence(producer);
            let again = machine.try_append("again", stamp(producer, sequence - 1)).unwrap();
            let expected = (Offset(i64::try_from(last).unwrap()), true);
            assert_eq!((again.base_offset, again.duplicate), expected, "{context}: producer {producer}");
            let gap = machine.try_append("gap", stamp(producer, sequence + 7));
            assert!(gap.is_err(), "{context}: producer {producer}, a gap is a gap");
        }
        for producer in 0..MANY {
            let next = machine.try_append("next", stamp(producer, self.sequence(producer))).unwrap();
            assert!(!next.duplicate, "{context}: producer {producer} has not sent this before");
            self.producers.push(producer);
        }
    }
}

/// Few producers, then many, then few of the many; some checkpoints, a restart.
fn life(machine: &mut Machine, sent: &mut Sent) -> Option<()> {
    sent.round(machine, 0..FEW)?;
    sent.checkpoint(machine)?;
    sent.round(machine, 0..MANY)?;
    sent.checkpoint(machine)?;
    sent.round(machine, 1..FEW)?;
    sent.checkpoint(machine)?;
    sent.round(machine, 0..1)?;
    machine.store.take()?.close().ok()?;
    sent.durable = sent.producers.len();
    machine.start().ok()?;
    sent.round(machine, 0..FEW)?;
    sent.checkpoint(machine)?;
    sent.round(machine, 3..MANY)?;
    sent.checkpoint(machine)?;
    sent.round(machine, 0..1)
}

fn snapshots(machine: &Machine) -> Vec<String> {
    machine.files().into_iter().filter(|name| name.ends_with(".producers")).collect()
}

#[test]
fn few_producers_need_no_file_of_their_own() {
    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    for _ in 0..4 {
        sent.round(&machine, 0..FEW).unwrap();
        sent.checkpoint(&machine).unwrap();
        assert_eq!(snapshots(&machine), Vec::<String>::new());
    }
    machine.crash();
    sent.check(&machine, "after a power cut");
}

#[test]
fn many_producers_have_a_snapshot_and_what_is_newer_is_in_the_checkpoint() {
    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    let first = snapshots(&machine);
    assert_eq!(first, ["00000000000000000022.producers"]);
    for _ in 0..4 {
        sent.round(&machine, 0..FEW).unwrap();
        sent.checkpoint(&machine).unwrap();
        assert_eq!(snapshots(&machine), first, "the snapshot that is there still serves");
    }
    machine.crash();
    assert_eq!(machine.log().active_producers().unwrap().len(), usize::try_from(MANY).unwrap());
    sent.round(&machine, 0..FEW).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(snapshots(&machine), first, "also after a start");
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(snapshots(&machine), ["00000000000000000054.producers"], "the one before is gone");
    machine.crash();
    sent.check(&machine, "after another power cut");
}

#[test]
fn a_snapshot_that_is_not_needed_any_more_goes() {
    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(snapshots(&machine).len(), 1);
    let later = TimestampMs(machine.now().0 + 2 * 86_400_000);
    assert_eq!(machine.log().expire_producers(later), usize::try_from(MANY).unwrap());
    machine.append(&format!("record {MANY}"));
    machine.store().checkpoint().unwrap();
    assert_eq!(snapshots(&machine), Vec::<String>::new());
    machine.crash();
    assert_eq!(machine.records().unwrap(), numbers(0, MANY + 1));
    assert!(machine.log().active_producers().unwrap().is_empty());
}

/// A machine that is off, on whose disk all is synced, and what was sent to it: more producers than fit a checkpoint.
fn with_snapshot() -> (Machine, Sent) {
    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    sent.round(&machine, 0..FEW).unwrap();
    machine.store.take().unwrap().close().unwrap();
    sent.durable = sent.producers.len();
    (machine, sent)
}

#[test]
fn damage_in_any_byte_of_a_producer_snapshot_is_found_and_harmless() {
    let (machine, sent) = with_snapshot();
    let dir = Path::new(DIR).join("abababab-abab-abab-abab-abababababab/0");
    let path = dir.join("00000000000000000022.producers");
    let bytes = machine.content(&path);
    assert!(bytes.len() > 1000);
    let flips = (0..bytes.len()).map(|position| {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1 << (position % 8);
        flipped
    });
    let cuts = (0..bytes.len()).step_by(5).map(|len| bytes[..len].to_vec());
    for (number, damaged) in flips.chain(cuts).enumerate() {
        let sim = machine.sim.crash_states(1).next().expect("a disk on which all is synced has one state");
        let (options, recovered) = (machine.options.clone(), RecoveryReport::default());
        let config = machine.config.clone();
        let mut found = Machine { sim, config, epoch: 2, options, store: None, recovered };
        found.put_content(&path, &damaged);
        let report = verify_partition(&found.sim.env(), &dir, ID).unwrap();
        assert!(report.findings.iter().any(|finding| finding.path == path), "damage {number}");
        found.start().unwrap();
        sent.clone().check(&found, &format!("damage {number}"));
    }
}

/// Runs the life with a stop after every operation in turn.
fn for_each_stop(synced: bool, check: impl Fn(&mut Machine, &mut Sent, &str)) {
    let machine = |seed| {
        let config = Machine::small_segments();
        if synced { Machine::synced(seed, &config) } else { Machine::new(seed, config) }
    };
    let mut reference = machine(0);
    let (before, mut whole) = (reference.sim.fs.operations(), Sent::default());
    life(&mut reference, &mut whole).expect("nothing stops it");
    let operations = reference.sim.fs.operations() - before;
    // A journal's life has many moments that say nothing of producers.
    for stop in (0..=operations).step_by(if synced { 3 } else { 1 }) {
        let mut machine = machine(stop);
        machine.sim.fs.stop_after(stop);
        let mut sent = Sent::default();
        let _stopped = life(&mut machine, &mut sent);
        check(&mut machine, &mut sent, &format!("synced: {synced}, stop {stop}"));
    }
}

#[test]
fn after_a_kill_at_any_write_all_producers_are_known() {
    for synced in [false, true] {
        for_each_stop(synced, |machine, sent, context| {
            machine.kill();
            sent.check(machine, context);
        });
    }
}

#[test]
fn after_a_power_cut_at_any_write_all_producers_are_known() {
    for synced in [false, true] {
        for_each_stop(synced, |machine, sent, context| {
            machine.crash();
            sent.check(machine, context);
        });
    }
}

/// A power cut may leave the snapshot of a checkpoint that was never made, and take the records that it speaks of.
#[test]
fn a_snapshot_that_no_checkpoint_names_is_not_believed_later() {
    let snapshot = Path::new("00000000000000000044.producers");
    let other = Machine::new(1, Machine::small_segments());
    let mut lost = Sent::default();
    lost.round(&other, 0..MANY).and_then(|()| lost.round(&other, 0..MANY)).unwrap();
    lost.checkpoint(&other).unwrap();
    let left = other.content(&other.partition_dir().join(snapshot));

    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    machine.put_content(&machine.partition_dir().join(snapshot), &left);
    machine.crash();
    for _ in 0..MANY {
        sent.round(&machine, 0..FEW).unwrap();
    }
    sent.checkpoint(&machine).unwrap();
    machine.crash();
    sent.check(&machine, "with a snapshot of something else");
}
