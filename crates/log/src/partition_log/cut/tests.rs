//! Lives in which a log is cut and filled again, also in lower epochs than the cut records', stopped after every
//! operation in turn: whatever a kill or a power cut leaves, cut records do not come back, and those acked since are
//! there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use proptest::prelude::*;
use riverrun_env::sim::SimEnv;
use riverrun_env::{Clock, FileSystem, OpenMode, RealClock};
use riverrun_journal::{
    EntryHeader, EntryKind, EntryOwner, Journal, JournalError, JournalOptions, StoredEntry, Submission, Wants,
};
use riverrun_records::{
    BatchBuilder, BatchOptions, Batches, Compression, ProducerStamp, UnverifiedBatch, patch_base_offset,
    patch_leader_epoch,
};
use riverrun_types::{
    Acks, DurabilityLevel, LeaderEpoch, Offset, PartitionId, ProducerEpoch, ProducerId, TimestampMs, TopicId,
    ack_offset,
};

use crate::config::LogConfig;
use crate::error::{AppendError, LogError, ReadError};
use crate::log_starts::{Change, LogStarts};
use crate::options::StoreOptions;
use crate::partition_log::{AppendOptions, Appended, PartitionLog};
use crate::planted::{Planted, plant};
use crate::producer_state::AppendOrigin;
use crate::shared::stream_of;
use crate::store::{LogStore, Place};

const ID: PartitionId = PartitionId { topic: TopicId([7; 16]), index: 0 };
/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way of a record to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the journal, synced before it is acked. A start keeps the journal's entries in memory.
    Journal,
    /// As `Journal`, and a start writes the entries into the segments.
    JournalAtOnce,
    /// To the segments, unsynced.
    Segments,
}

const WAYS: [Way; 3] = [Way::Journal, Way::JournalAtOnce, Way::Segments];

struct Machine {
    sim: SimEnv,
    way: Way,
    epoch: i32,
    store: Option<LogStore>,
}

impl Machine {
    fn start(sim: SimEnv, way: Way) -> Result<Self, LogError> {
        let mut machine = Self { sim, way, epoch: 2, store: None };
        machine.open()?;
        Ok(machine)
    }

    fn config(&self) -> Arc<LogConfig> {
        let durability =
            if self.way == Way::Segments { DurabilityLevel::AsyncAsync } else { DurabilityLevel::SyncSync };
        Arc::new(LogConfig {
            durability,
            segment_bytes: 300,
            index_interval_bytes: 1,
            ..LogConfig::default()
        })
    }

    fn open(&mut self) -> Result<(), LogError> {
        let options = StoreOptions {
            journal_dirs: vec![PathBuf::from("/journal")],
            journal: JournalOptions::with_bytes(4 << 20),
            write_cache_bytes: if self.way == Way::JournalAtOnce { 1 } else { 1 << 30 },
            ..StoreOptions::default()
        };
        let store = LogStore::open(&self.sim.env(), &[PathBuf::from("/logs")], options)?;
        store.recover(|_| LeaderEpoch(self.epoch), |_| Place::In(0, self.config()))?;
        self.store = Some(store);
        Ok(())
    }

    fn store(&self) -> &LogStore {
        self.store.as_ref().unwrap()
    }

    fn log(&self) -> Arc<PartitionLog> {
        self.store().partition(ID, 0, self.config(), LeaderEpoch(self.epoch)).unwrap()
    }

    /// Appends one batch, and waits until it may be acked.
    fn append(&self, values: &[String], producer: ProducerStamp) -> Result<Appended, AppendError> {
        let log = self.log();
        let options = BatchOptions { compression: Compression::None, producer, ..BatchOptions::default() };
        let mut batch = BatchBuilder::new(options);
        for value in values {
            batch.append(TimestampMs(0), None, Some(value.as_bytes()), &[]).unwrap();
        }
        let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
        let appended = log.append(BytesMut::from(&batch.build().unwrap()[..]), options)?;
        log.write_staged()?;
        let clock = RealClock::new();
        while !log.is_lost(&appended) {
            if ack_offset(log.level_reached(), Acks::All, log.watermarks(), &[]) > appended.last_offset {
                return Ok(appended);
            }
            assert!(clock.monotonic() < PATIENCE, "no mark and no loss for {appended:?}");
            thread::yield_now();
        }
        Err(AppendError::Storage(log.failure().unwrap_or(LogError::Closed)))
    }

    /// The values of all records, and the epoch of the last one.
    fn records(&self) -> Result<(Vec<String>, Option<i32>), LogError> {
        let log = self.log();
        let (mut from, end) = (log.log_start_offset()?, log.log_end_offset()?);
        let (mut values, mut epoch) = (Vec::new(), None);
        while from < end {
            let slice = log.read(from, 1, end, true).map_err(|error| match error {
                ReadError::Storage(error) => error,
                error => LogError::corrupt(&log.path(), 0, error.to_string()),
            })?;
            for chunk in &slice.chunks {
                let bytes = chunk.to_bytes().unwrap();
                for batch in Batches::new(&bytes) {
                    let batch = batch.and_then(UnverifiedBatch::verify).unwrap();
                    epoch = Some(batch.header().leader_epoch().0);
                    let value = |record: riverrun_records::Record<'_>| {
                        String::from_utf8(record.value.unwrap().to_vec()).unwrap()
                    };
                    values.extend(batch.records().unwrap().into_iter().map(|record| value(record.unwrap())));
                }
            }
            assert!(slice.next_offset > from, "reading gets on");
            from = slice.next_offset;
        }
        Ok((values, epoch))
    }
}

fn stamp(id: i64, sequence: i32) -> ProducerStamp {
    ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence: sequence }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    values: Vec<String>,
    epoch: i32,
    /// The producer's id and sequence.
    stamp: (i64, i32),
}

/// All records that were acked and not cut, in order.
type Line = Vec<Batch>;

fn values(line: &[Batch]) -> Vec<String> {
    line.iter().flat_map(|batch| batch.values.clone()).collect()
}

/// A life of the log, and the promises about its records.
#[derive(Clone, Debug, Default)]
struct Life {
    line: Line,
    /// The line after the step that is under way.
    next: Option<Line>,
    /// Records that a power cut does not take although their level does not sync.
    durable: usize,
    /// Producers of which all records were cut, or some.
    cuts: i64,
    sequence: i32,
}

impl Life {
    fn run(machine: &mut Machine) -> (Self, Option<()>) {
        let mut life = Self::default();
        let whole = life.steps(machine);
        (life, whole)
    }

    fn steps(&mut self, machine: &mut Machine) -> Option<()> {
        self.append(machine, 2, &[1, 1, 1, 1, 1])?;
        self.checkpoint(machine)?;
        self.append(machine, 10, &[3, 1])?;
        machine.store().settle().ok()?;
        self.append(machine, 10, &[1, 1])?;
        self.cut(machine, 10)?;
        self.append(machine, 10, &[1])?;
        self.cut(machine, 6)?;
        self.append(machine, 7, &[1, 1, 1])?;
        machine.store().settle().ok()?;
        self.checkpoint(machine)?;
        self.append(machine, 9, &[1])?;
        self.cut(machine, 3)?;
        self.append(machine, 4, &[1, 2])?;
        self.checkpoint(machine)?;
        self.append(machine, 4, &[1])?;
        self.restart(machine)?;
        self.append(machine, 5, &[1])?;
        self.cut(machine, 6)?;
        self.append(machine, 4, &[1])?;
        self.cut(machine, 1)?;
        self.cut(machine, 0)?;
        self.append(machine, 3, &[1, 1])
    }

    fn append(&mut self, machine: &mut Machine, epoch: i32, sizes: &[usize]) -> Option<()> {
        machine.epoch = epoch;
        for size in sizes {
            let base = values(&self.line).len();
            let texts: Vec<_> = (base..base + size)
                .map(|offset| format!("record {offset} after {} cuts", self.cuts))
                .collect();
            let stamp_of = (9 + self.cuts, self.sequence);
            let batch = Batch { values: texts.clone(), epoch, stamp: stamp_of };
            self.next = Some([self.line.clone(), vec![batch]].concat());
            machine.append(&texts, stamp(stamp_of.0, stamp_of.1)).ok()?;
            self.sequence += i32::try_from(*size).unwrap();
            self.step_is_done();
        }
        Some(())
    }

    fn cut(&mut self, machine: &Machine, offset: usize) -> Option<()> {
        let mut left = self.line.clone();
        while values(&left).len() > offset {
            left.pop();
        }
        let end = values(&left).len();
        self.next = Some(left);
        // Records beyond the cut are promised no more.
        let durable = std::mem::take(&mut self.durable);
        self.durable = durable.min(end);
        let cut = machine.log().truncate_to(Offset(i64::try_from(offset).unwrap())).ok()?;
        assert_eq!(cut, Offset(i64::try_from(end).unwrap()));
        assert_eq!(machine.log().watermarks().appended, cut);
        self.step_is_done();
        self.durable = end;
        self.cuts += 1;
        self.sequence = 0;
        Some(())
    }

    fn step_is_done(&mut self) {
        self.line = self.next.take().unwrap();
    }

    fn checkpoint(&mut self, machine: &Machine) -> Option<()> {
        machine.store().checkpoint().ok()?;
        self.durable = values(&self.line).len();
        Some(())
    }

    /// Stops in order and starts again.
    fn restart(&mut self, machine: &mut Machine) -> Option<()> {
        machine.store.take()?.close().ok()?;
        self.durable = values(&self.line).len();
        machine.open().ok()
    }

    /// Compares the records that a machine finds after this life with its promises. After a power cut a prefix of the
    /// unsynced ones is enough.
    fn check(&self, found: &Machine, is_power_cut: bool) -> Result<(), String> {
        let (records, epoch) = found.records().map_err(|error| error.to_string())?;
        let is_prefix_enough = is_power_cut && found.way == Way::Segments;
        let is_legal = |line: &&Line| {
            let line = values(line);
            let reaches =
                if is_prefix_enough { records.len() >= self.durable } else { records.len() == line.len() };
            reaches && line.starts_with(&records)
        };
        let Some(line) = [Some(&self.line), self.next.as_ref()].into_iter().flatten().find(is_legal) else {
            return Err(format!("found {records:?} after {self:?}"));
        };
        let mut end = 0;
        let there: Vec<&Batch> = line
            .iter()
            .take_while(|batch| {
                end += batch.values.len();
                end <= records.len()
            })
            .collect();
        let Some(last) = there.last() else { return Ok(()) };
        if epoch != Some(last.epoch) || found.log().latest_epoch().unwrap() != Some(LeaderEpoch(last.epoch)) {
            return Err(format!("the last epoch is {epoch:?} after {self:?}"));
        }
        let again = found
            .append(&last.values, stamp(last.stamp.0, last.stamp.1))
            .map_err(|error| format!("{error} after {self:?}"))?;
        if !again.duplicate || again.last_offset.0 + 1 != i64::try_from(records.len()).unwrap() {
            return Err(format!("the producer of the last batch is not as it was: {again:?} after {self:?}"));
        }
        Ok(())
    }
}

/// Operations of a whole life.
fn whole_life(way: Way) -> u64 {
    let mut machine = Machine::start(SimEnv::new(1), way).unwrap();
    let (life, whole) = Life::run(&mut machine);
    assert!(whole.is_some() && life.cuts == 6 && values(&life.line).len() == 2, "{way:?}: {life:?}");
    life.check(&machine, false).unwrap();
    machine.sim.fs.operations()
}

fn stopped_life(way: Way, stop: u64) -> (SimEnv, Life) {
    let sim = SimEnv::new(1);
    sim.fs.stop_after(stop);
    let life = match Machine::start(sim.clone(), way) {
        Ok(mut machine) => Life::run(&mut machine).0,
        Err(_) => Life::default(),
    };
    (sim, life)
}

/// Checks the log after a kill, and after another one.
fn check_kill(way: Way, stop: u64) -> Result<(), String> {
    let (sim, life) = stopped_life(way, stop);
    for _ in 0..2 {
        sim.fs.kill();
        let found = Machine::start(sim.clone(), way).map_err(|error| error.to_string())?;
        life.check(&found, false)?;
    }
    Ok(())
}

/// Checks the log after a power cut, in some of the states; recovery is stopped in its middle once, too.
fn check_power_cut(way: Way, stop: u64, states_max: usize) -> Result<(), String> {
    let (sim, life) = stopped_life(way, stop);
    for (index, state) in sim.crash_states(states_max).enumerate() {
        let fork = || state.crash_states(1).next().expect("nothing is pending, so there is one");
        let before = state.fs.operations();
        let first = Machine::start(fork(), way).map_err(|error| error.to_string())?;
        life.check(&first, true)?;
        let operations = first.sim.fs.operations() - before;
        state.fs.stop_after(index as u64 * 7 % operations);
        let _stopped = Machine::start(state.clone(), way).map(|machine| machine.records());
        for twice in state.crash_states(1) {
            let found = Machine::start(twice, way).map_err(|error| format!("recovery cut short: {error}"))?;
            life.check(&found, true).map_err(|error| format!("recovery cut short: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_kill_brings_nothing_back_that_was_cut() {
    for way in WAYS {
        for stop in 0..=whole_life(way) {
            check_kill(way, stop).unwrap_or_else(|error| panic!("{way:?}, stop {stop}: {error}"));
        }
    }
}

#[test]
fn a_power_cut_brings_nothing_back_that_was_cut() {
    for way in WAYS {
        for stop in 0..=whole_life(way) {
            check_power_cut(way, stop, 3).unwrap_or_else(|error| panic!("{way:?}, stop {stop}: {error}"));
        }
    }
}

/// Checks the log after a kill, with a log dir whose checkpoint is damaged then.
fn check_damaged_checkpoint(way: Way, stop: u64) -> Result<(), String> {
    let (sim, life) = stopped_life(way, stop);
    sim.fs.kill();
    if let Ok(file) = sim.fs.open(Path::new("/logs/checkpoint"), OpenMode::ReadWrite) {
        file.write_all_at(b"damage", 20).map_err(|error| error.to_string())?;
    }
    for _ in 0..2 {
        let found = Machine::start(sim.clone(), way).map_err(|error| error.to_string())?;
        life.check(&found, false)?;
        sim.fs.kill();
    }
    Ok(())
}

#[test]
fn damaged_checkpoint_costs_nothing_and_brings_nothing_back() {
    for way in WAYS {
        for stop in 0..=whole_life(way) {
            let checked = check_damaged_checkpoint(way, stop);
            checked.unwrap_or_else(|error| panic!("{way:?}, stop {stop}: {error}"));
        }
    }
}

#[test]
fn mistakes_that_are_planted_in_cuts_are_found_out() {
    let stops = whole_life(Way::Journal);
    for bug in [Planted::ReplayByOffset, Planted::ReplayByEpoch, Planted::AckBeforeSync] {
        plant(Some(bug));
        let is_found_out = |stop| {
            check_kill(Way::Journal, stop).and_then(|()| check_power_cut(Way::Journal, stop, 2)).is_err()
        };
        let is_found = (0..=stops).any(is_found_out);
        plant(None);
        assert!(is_found, "{bug:?}");
    }
}

#[test]
fn cut_below_the_start_is_refused_and_one_at_the_end_is_a_no_op() {
    let mut machine = Machine::start(SimEnv::new(1), Way::Journal).unwrap();
    let mut life = Life::default();
    life.append(&mut machine, 2, &[1, 1, 1, 1]).unwrap();
    let log = machine.log();
    log.delete_records(Offset(2)).unwrap();
    let refused = log.truncate_to(Offset(1)).unwrap_err();
    assert!(matches!(refused, LogError::CutTooFar { from: Offset(2), .. }), "{refused}");
    for offset in [4, 5, i64::MAX] {
        assert_eq!(log.truncate_to(Offset(offset)).unwrap(), Offset(4));
    }
    assert_eq!(log.dir().cuts_or(ID, 0), 0);
    life.append(&mut machine, 2, &[1]).unwrap();
    assert_eq!(log.truncate_to(Offset(2)).unwrap(), Offset(2));
    assert_eq!((log.log_start_offset().unwrap(), log.log_end_offset().unwrap()), (Offset(2), Offset(2)));
    assert_eq!(log.dir().cuts_or(ID, 0), 1);
}

#[test]
fn cut_waits_for_a_write_that_is_under_way() {
    let machine = Machine::start(SimEnv::new(1), Way::Segments).unwrap();
    machine.append(&[String::from("before")], ProducerStamp::NONE).unwrap();
    let log = machine.log();
    let open = log.open().unwrap();
    machine.sim.fs.hang_device(Some(Path::new("/logs")));
    let clock = RealClock::new();
    let prepared = thread::scope(|scope| {
        let values = [String::from("one"), String::from("another")];
        let machine = &machine;
        let appending = scope.spawn(move || machine.append(&values, ProducerStamp::NONE).unwrap());
        let is_under_way = || {
            let appender = open.appender.lock();
            appender.next_offset > Offset(1) && appender.staged.is_empty()
        };
        while !is_under_way() {
            assert!(clock.monotonic() < PATIENCE, "the append is not written");
            thread::yield_now();
        }
        let mode = log.begin_cut(&open).unwrap().unwrap();
        let (log, open) = (&log, &open);
        let prepare = move || log.await_appended(open, mode).and_then(|()| log.prepare_cut(open, Offset(2)));
        let preparing = scope.spawn(prepare);
        let begun = clock.monotonic();
        while !preparing.is_finished() && clock.monotonic() < begun + Duration::from_millis(50) {
            thread::yield_now();
        }
        machine.sim.fs.hang_device(None);
        appending.join().unwrap();
        preparing.join().unwrap()
    });
    assert_eq!(prepared.unwrap(), Some(Offset(1)), "the batch that holds the offset goes as a whole");
}

#[test]
fn cut_that_waits_for_the_journal_holds_up_no_deletion() {
    let machine = Machine::start(SimEnv::new(1), Way::Journal).unwrap();
    machine.append(&[String::from("before")], ProducerStamp::NONE).unwrap();
    let (log, clock) = (machine.log(), RealClock::new());
    let open = log.open().unwrap();
    machine.sim.fs.hang_device(Some(Path::new("/journal")));
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(b"on its way"), &[]).unwrap();
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    log.append(BytesMut::from(&batch.build().unwrap()[..]), options).unwrap();
    thread::scope(|scope| {
        let cutting = scope.spawn(|| log.truncate_to(Offset(1)));
        while !open.appender.lock().is_being_cut {
            assert!(clock.monotonic() < PATIENCE, "the cut does not begin");
            thread::yield_now();
        }
        assert!(open.reshaping.try_lock().is_some(), "retention does not wait either");
        let deleting = scope.spawn(|| machine.store().delete(ID, 0));
        let begun = clock.monotonic();
        while !deleting.is_finished() && clock.monotonic() < begun + PATIENCE {
            thread::yield_now();
        }
        let is_deleted = deleting.is_finished();
        machine.sim.fs.hang_device(None);
        assert!(is_deleted, "it waits for the journal");
        deleting.join().unwrap().unwrap();
        assert!(matches!(cutting.join().unwrap(), Err(LogError::Deleted(ID))));
    });
}

#[test]
fn append_beyond_a_cut_counts_as_lost() {
    let machine = Machine::start(SimEnv::new(1), Way::Journal).unwrap();
    let value = |number: i32| [format!("record {number}")];
    let before = machine.append(&value(0), ProducerStamp::NONE).unwrap();
    let beyond = machine.append(&value(1), ProducerStamp::NONE).unwrap();
    machine.log().truncate_to(beyond.base_offset).unwrap();
    let again = machine.append(&value(2), ProducerStamp::NONE).unwrap();
    assert_eq!(again.base_offset, beyond.base_offset);
    assert!(!machine.log().is_lost(&before) && !machine.log().is_lost(&again));
    assert!(machine.log().is_lost(&beyond));
}

/// An entry that a journal may hold, from any life.
#[derive(Clone, Copy, Debug)]
struct AnyEntry {
    cuts: u32,
    offset: i64,
}

/// The numbers of the entries that a log takes at its beginning after `cuts` cuts. `None` if it cannot go on.
fn line_of(cuts: u32, entries: &[AnyEntry]) -> Option<Vec<usize>> {
    let mut line = Vec::new();
    if entries.iter().any(|entry| entry.cuts > cuts) {
        return None;
    }
    for (number, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.cuts == cuts) {
        let at = usize::try_from(entry.offset).unwrap();
        if at > line.len() {
            return None;
        }
        if at == line.len() {
            line.push(number);
        }
    }
    Some(line)
}

/// Told when the journal has stored an entry.
#[derive(Default)]
struct Told(Mutex<bool>, Condvar);

impl EntryOwner for Told {
    fn stored(&self, _entry: StoredEntry<'_>) {
        *self.0.lock() = true;
        self.1.notify_all();
    }

    fn failed(&self, _header: &EntryHeader, error: &JournalError) {
        panic!("{error}");
    }
}

/// A machine that was killed: the log was cut `cuts` times, at its beginning, and the journal has these entries.
fn machine_of(cuts: u32, entries: &[AnyEntry]) -> SimEnv {
    let sim = SimEnv::new(1);
    let dir = PathBuf::from("/logs");
    sim.fs.create_dir_all(&dir).unwrap();
    let (mut log_starts, _) = LogStarts::open(&*sim.fs, &dir, 0).unwrap();
    let cut = Change::Cut { number: cuts, end: Offset::ZERO, is_carried_out: false };
    log_starts.put(0, ID, cut).unwrap();
    let options = JournalOptions::with_bytes(4 << 20);
    let (journal, _replay) = Journal::open(&sim.env(), &PathBuf::from("/journal"), options).unwrap();
    for (number, entry) in entries.iter().enumerate() {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.append(TimestampMs(0), None, Some(number.to_string().as_bytes()), &[]).unwrap();
        let mut payload = batch.build().unwrap();
        patch_base_offset(&mut payload, Offset(entry.offset));
        patch_leader_epoch(&mut payload, LeaderEpoch(1));
        let header = EntryHeader {
            stream: stream_of(ID),
            kind: EntryKind::Records,
            index: entry.offset.unsigned_abs(),
            cuts: entry.cuts,
            base_offset: Offset(entry.offset),
            leader_epoch: LeaderEpoch(1),
        };
        let told = Arc::new(Told::default());
        let owner = Arc::clone(&told) as Arc<dyn EntryOwner>;
        journal.submit(Submission { header, payload: payload.into(), wants: Wants::Sync, owner }).unwrap();
        let mut is_stored = told.0.lock();
        while !*is_stored {
            told.1.wait(&mut is_stored);
        }
    }
    sim.fs.kill();
    sim
}

fn any_entry() -> impl Strategy<Value = AnyEntry> {
    (0..3_u32, 0..6_i64).prop_map(|(cuts, offset)| AnyEntry { cuts, offset })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_journal_of_any_entries_is_taken_by_the_rule_or_refused(
        mut entries in prop::collection::vec(any_entry(), 0..12),
        cuts in 1..3_u32,
        is_in_order in any::<bool>(),
        way in prop::sample::select(vec![Way::Journal, Way::JournalAtOnce]),
    ) {
        if is_in_order {
            entries.sort_by_key(|entry| (entry.cuts, entry.offset));
        }
        let found = Machine::start(machine_of(cuts, &entries), way).unwrap();
        let found = found.records().map(|(values, _)| values).ok();
        let expected = line_of(cuts, &entries).map(|line| line.iter().map(usize::to_string).collect::<Vec<_>>());
        prop_assert_eq!(found, expected);
    }
}
