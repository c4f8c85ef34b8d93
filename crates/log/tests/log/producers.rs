//! The places of the idempotent producers' state: a small one is in the checkpoint of the log dir, a large one in a
//! state file, with later changes in the checkpoint; and one beside each sealed segment, as of its end. All of it
//! survives the failures that the records survive.

use std::path::Path;

use riverrun_env::FileSystem;
use riverrun_log::config::LogConfig;
use riverrun_log::epochs::EpochCache;
use riverrun_log::state_file::{LogState, decode_state, encode_state, state_file};
use riverrun_log::{Finding, LogError, RecoveryReport, Weight, verify_partition};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use crate::machine::{DIR, ID, Machine, numbers, stamp};

/// So many producers take more than a checkpoint holds of one partition.
const MANY: i64 = 22;
const FEW: i64 = 2;

/// The appended records: the producer of each, by offset.
#[derive(Clone, Default)]
struct Sent {
    producers: Vec<i64>,
    /// Producer of the record that was appended when the machine stopped: it may be there whole.
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

    /// The log knows its records of each producer, and nothing else: the last record is a duplicate, a gap is refused,
    /// and the next one is new.
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

fn state(machine: &Machine, offset: i64) -> LogState {
    let bytes = machine.content(&machine.partition_dir().join(state_file(Offset(offset))));
    decode_state(&bytes, ID, Offset(offset)).unwrap()
}

#[test]
fn few_producers_need_no_file_of_their_own() {
    let mut machine = Machine::new(1, LogConfig::default());
    let mut sent = Sent::default();
    for _ in 0..4 {
        sent.round(&machine, 0..FEW).unwrap();
        sent.checkpoint(&machine).unwrap();
        assert_eq!(machine.states(), []);
    }
    machine.crash();
    sent.check(&machine, "after a power cut");
}

#[test]
fn newer_producers_are_in_the_checkpoint_beside_a_state_file() {
    let mut machine = Machine::new(1, LogConfig::default());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), [22]);
    for _ in 0..4 {
        sent.round(&machine, 0..FEW).unwrap();
        sent.checkpoint(&machine).unwrap();
        assert_eq!(machine.states(), [22], "the one that is there still serves");
    }
    machine.crash();
    assert_eq!(machine.log().active_producers().unwrap().len(), usize::try_from(MANY).unwrap());
    sent.round(&machine, 0..FEW).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), [22], "also after a start");
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), [54], "the one before is gone");
    machine.crash();
    sent.check(&machine, "after another power cut");
}

#[test]
fn a_state_file_that_is_not_needed_any_more_goes() {
    let mut machine = Machine::new(1, LogConfig::default());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), [22]);
    let later = TimestampMs(machine.now().0 + 2 * 86_400_000);
    assert_eq!(machine.log().expire_producers(later), usize::try_from(MANY).unwrap());
    machine.append(&format!("record {MANY}"));
    machine.store().checkpoint().unwrap();
    machine.crash();
    // The newest one stays as long as the segment that it lies in may end without another.
    assert_eq!(machine.states(), [22]);
    assert_eq!(machine.records().unwrap(), numbers(0, MANY + 1));
    assert!(machine.log().active_producers().unwrap().is_empty());
}

#[test]
fn a_sealed_segment_has_the_state_of_its_end_beside_it() {
    let mut machine = Machine::new(1, Machine::small_segments());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    machine.kill();
    sent.round(&machine, 0..MANY).unwrap();
    let ends = machine.inner_bases();
    assert!(ends.len() >= 3);
    assert_eq!(machine.states(), ends, "one for each, and no other for the checkpoint");
    for end in ends {
        let state = state(&machine, end);
        assert_eq!(i64::try_from(state.producers.len()).unwrap(), end.min(MANY));
        let epochs = state.epochs.entries().iter().map(|entry| (entry.epoch, entry.start_offset));
        let known = [(LeaderEpoch(1), Offset(0)), (LeaderEpoch(2), Offset(MANY))];
        assert!(epochs.eq(known.into_iter().filter(|(_, start)| start.0 < end)), "{end}");
    }
    machine.kill();
    machine.log().ensure_open().unwrap();
    assert_eq!(machine.states(), machine.inner_bases(), "segments that a start seals have one, too");
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), machine.inner_bases());
    assert_eq!(findings(&machine), []);
}

fn findings(machine: &Machine) -> Vec<Finding> {
    verify_partition(&machine.sim.env(), &machine.partition_dir(), ID).unwrap().findings
}

#[test]
fn a_state_that_contradicts_the_checkpoint_is_found() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 15);
    machine.kill();
    machine.append_numbers(15, 30);
    machine.store().checkpoint().unwrap();
    let end = *machine.inner_bases().last().unwrap();
    assert!(end > 15);
    let LogState { producers, .. } = state(&machine, end);
    let mut epochs = EpochCache::new();
    epochs.assign(LeaderEpoch(1), Offset(0));
    epochs.assign(LeaderEpoch(2), Offset(14));
    let path = machine.partition_dir().join(state_file(Offset(end)));
    let other = encode_state(ID, Offset(end), &epochs, &producers);
    machine.put_content(&path, &other);
    let found = findings(&machine);
    assert_eq!((found.len(), &found[0].path, found[0].weight), (1, &path, Weight::Damage), "{found:?}");
    assert!(found[0].what.contains("leader epochs"), "{found:?}");
}

#[test]
fn a_torn_state_above_the_last_checkpoint_is_a_torn_tail() {
    let mut machine = Machine::new(1, Machine::small_segments());
    machine.append_numbers(0, 5);
    machine.store().checkpoint().unwrap();
    machine.append_numbers(5, 30);
    let path = machine.partition_dir().join(state_file(Offset(machine.inner_bases()[0])));
    let intact = machine.content(&path);
    machine.put_content(&path, &intact[..intact.len() - 1]);
    let found = findings(&machine);
    assert_eq!((found.len(), &found[0].path, found[0].weight), (1, &path, Weight::TornTail), "{found:?}");
    machine.kill();
    machine.log().ensure_open().unwrap();
    assert_eq!(machine.content(&path), intact);
}

#[test]
fn states_go_with_their_segments() {
    let config = LogConfig { retention_bytes: Some(0), ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).and_then(|()| sent.round(&machine, 0..MANY)).unwrap();
    sent.checkpoint(&machine).unwrap();
    let last = *machine.inner_bases().last().unwrap();
    machine.log().apply_retention(machine.now(), Offset(last)).unwrap();
    let start = machine.log().log_start_offset().unwrap();
    assert_eq!(start, Offset(last));
    assert_eq!(machine.states(), [last], "the one for records below the log start stays");
    machine.crash();
    // The producers from 0 on have no record left.
    sent.check(&machine, "after a power cut");
}

/// The checkpoint that would name a producer whose records are gone is lost as well.
#[test]
fn state_file_has_producers_that_log_and_checkpoint_lack() {
    let config = LogConfig { retention_bytes: Some(0), ..Machine::small_segments() };
    let mut machine = Machine::new(1, config);
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).and_then(|()| sent.round(&machine, 3..MANY)).unwrap();
    sent.checkpoint(&machine).unwrap();
    let last = *machine.inner_bases().last().unwrap();
    machine.log().apply_retention(machine.now(), Offset(last)).unwrap();
    machine.store.take().unwrap().close().unwrap();
    sent.durable = sent.producers.len();
    machine.put_content(&Path::new(DIR).join("checkpoint"), b"damaged");
    machine.start().unwrap();
    sent.check(&machine, "without a checkpoint");
}

/// A log of many producers, the first of which have no record left. The checkpoint names a state at
/// its end.
fn with_a_front_that_is_gone() -> (Machine, Sent) {
    let config = LogConfig { retention_bytes: Some(0), segment_bytes: 5000, ..Machine::small_segments() };
    let machine = Machine::synced(1, &config);
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    machine.store().settle().unwrap();
    machine.sim.clock.advance(std::time::Duration::from_secs(1));
    sent.checkpoint(&machine).unwrap();
    machine.log().apply_retention(machine.now(), Offset(MANY)).unwrap();
    sent.round(&machine, 5..MANY).and_then(|()| sent.round(&machine, 5..MANY)).unwrap();
    machine.store().settle().unwrap();
    sent.checkpoint(&machine).unwrap();
    assert_eq!(machine.states(), [MANY, MANY + 2 * (MANY - 5)]);
    (machine, sent)
}

#[test]
fn after_a_cut_the_producers_are_known_whose_records_are_gone() {
    for is_left_out in [false, true] {
        let (mut machine, mut sent) = with_a_front_that_is_gone();
        assert_eq!(machine.log().log_start_offset().unwrap(), Offset(MANY), "{:?}", machine.files());
        if is_left_out {
            // Like a file that would have been larger than the segment before it.
            let path = machine.partition_dir().join(state_file(Offset(MANY)));
            machine.sim.fs.remove_file(&path).unwrap();
        }
        let end = MANY + 3;
        assert_eq!(machine.log().truncate_to(Offset(end)).unwrap(), Offset(end));
        sent.producers.truncate(usize::try_from(end).unwrap());
        sent.durable = sent.producers.len();
        for round in 0..2 {
            machine.crash();
            for producer in 0..5 {
                let last = stamp(producer, sent.sequence(producer) - 1);
                assert!(machine.try_append("again", last).unwrap().duplicate, "{round}: producer {producer}");
            }
        }
        // Only that file has the other producers, whose records were below the log start.
        if !is_left_out {
            sent.check(&machine, "after a cut");
        }
    }
}

/// A machine that is off, with a synced disk, and the records that were sent to it: more producers than fit a
/// checkpoint.
fn with_state_file() -> (Machine, Sent) {
    let mut machine = Machine::new(1, LogConfig::default());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    sent.round(&machine, 0..FEW).unwrap();
    machine.store.take().unwrap().close().unwrap();
    sent.durable = sent.producers.len();
    (machine, sent)
}

#[test]
fn damage_in_any_byte_of_a_state_file_is_found_and_harmless() {
    let (machine, sent) = with_state_file();
    let dir = Path::new(DIR).join("abababab-abab-abab-abab-abababababab/0");
    let path = dir.join("00000000000000000022.state");
    let bytes = machine.content(&path);
    assert!(bytes.len() > 1000);
    // Those of the version are not told from a newer program's file.
    let flips = (0..bytes.len()).filter(|position| !(8..10).contains(position)).map(|position| {
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
        found.store().checkpoint().unwrap();
        let report = verify_partition(&found.sim.env(), &dir, ID).unwrap();
        assert_eq!(report.findings, [], "damage {number}: it is gone");
    }
}

#[test]
fn state_file_that_cannot_be_read_stays_as_it_is() {
    for is_newer in [false, true] {
        let (mut machine, mut sent) = with_a_front_that_is_gone();
        let named = MANY + 2 * (MANY - 5);
        let path = machine.partition_dir().join(state_file(Offset(named)));
        let others = machine.states();
        machine.store.take().unwrap().close().unwrap();
        sent.durable = sent.producers.len();
        let bytes = machine.content(&path);
        if is_newer {
            let mut newer = bytes.clone();
            newer[9] += 1;
            machine.put_content(&path, &newer);
        } else {
            machine.sim.fs.forbid(Some(&path)).unwrap();
        }
        machine.start().unwrap();
        let error = machine.records().unwrap_err();
        assert_eq!(matches!(error, LogError::Format { .. }), is_newer, "{error}");
        assert_eq!(machine.states(), others);
        machine.sim.fs.forbid(None).unwrap();
        if is_newer {
            machine.store = None;
            machine.put_content(&path, &bytes);
            machine.start().unwrap();
        }
        sent.check(&machine, "with the file that was there all the time");
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
    // Many moments of a journal's life do not concern producers.
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

/// A power cut may leave the state file of a checkpoint that was never made, and take the records that it is about.
#[test]
fn a_state_file_above_the_recovery_point_is_not_believed_later() {
    let file = state_file(Offset(44));
    let other = Machine::new(1, LogConfig::default());
    let mut lost = Sent::default();
    lost.round(&other, 0..MANY).and_then(|()| lost.round(&other, 0..MANY)).unwrap();
    lost.checkpoint(&other).unwrap();
    let left = other.content(&other.partition_dir().join(&file));

    let mut machine = Machine::new(1, LogConfig::default());
    let mut sent = Sent::default();
    sent.round(&machine, 0..MANY).unwrap();
    sent.checkpoint(&machine).unwrap();
    machine.put_content(&machine.partition_dir().join(&file), &left);
    machine.crash();
    for _ in 0..MANY {
        sent.round(&machine, 0..FEW).unwrap();
    }
    sent.checkpoint(&machine).unwrap();
    // The one that the checkpoint names is damaged, and the newest other one replaces it.
    machine.put_content(&machine.partition_dir().join(state_file(Offset(MANY))), b"damaged");
    machine.crash();
    sent.check(&machine, "with the state of something else");
}
