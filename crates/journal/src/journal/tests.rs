//! A journal whose two threads are played by the test, step by step: a step of the prefiller may come at any time
//! between two groups, fail, or never come, and costs no acked entry.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::sim::SimEnv;
use riverrun_env::{Clock, Env, Step};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::Journal;
use crate::prefill::FIRST_STEP_BYTES;
use crate::prefiller::Prefiller;
use crate::shared::Queued;
use crate::writer::Writer;
use crate::{
    EntryHeader, EntryKind, EntryOwner, JournalError, JournalOptions, StoredEntry, StreamId, Submission,
    SyncMethod, Wants,
};

mod beginning;
mod room;
mod world;

const DIR: &str = "/journal";
const METHODS: [SyncMethod; 2] = [SyncMethod::DirectDsync, SyncMethod::BufferedFdatasync];
/// A file of this size, in bytes, is filled in two steps and takes six entries.
const FILE_BYTES: u64 = 896 * 1024;
const ENTRY_BYTES: usize = 130_000;

fn options(sync_method: SyncMethod, files: u64) -> JournalOptions {
    JournalOptions {
        bytes: files * FILE_BYTES,
        file_bytes: FILE_BYTES,
        sync_method,
        ..JournalOptions::default()
    }
}

/// Owner of all entries.
#[derive(Default)]
struct Acked(Mutex<Vec<u64>>);

/// Counts its announcements, and the entries that they announced.
#[derive(Default)]
struct Announced(Mutex<(usize, usize)>);

impl EntryOwner for Announced {
    fn announce(&self) {
        self.0.lock().0 += 1;
    }

    fn stored(&self, _entry: StoredEntry<'_>) {
        self.0.lock().1 += 1;
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {}
}

impl EntryOwner for Acked {
    fn stored(&self, entry: StoredEntry<'_>) {
        assert!(entry.is_synced);
        self.0.lock().push(entry.header.index);
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {}
}

fn payload(index: u64) -> Vec<u8> {
    vec![index.to_le_bytes()[0] + 1; ENTRY_BYTES]
}

fn submission_of(index: u64, owner: &Arc<Acked>) -> Submission {
    let header = EntryHeader {
        stream: StreamId([1; 20]),
        kind: EntryKind::Records,
        index,
        cuts: 1,
        base_offset: Offset(0),
        leader_epoch: LeaderEpoch(1),
    };
    Submission { header, payload: payload(index).into(), wants: Wants::Sync, owner: owner.clone() }
}

/// A journal in use, without threads.
struct Played {
    journal: Journal,
    writer: Writer,
    prefiller: Arc<Prefiller>,
    acked: Arc<Acked>,
    submitted: u64,
}

impl Played {
    fn open(sim: &SimEnv, options: JournalOptions) -> Result<Self, JournalError> {
        Self::open_in(&sim.env(), options)
    }

    fn open_in(env: &Env, options: JournalOptions) -> Result<Self, JournalError> {
        let (journal, _) = Journal::open(env, Path::new(DIR), options)?;
        let writer = journal.start.lock().writer.take().unwrap();
        let prefiller = writer.prefiller();
        Ok(Self { journal, writer, prefiller, acked: Arc::default(), submitted: 0 })
    }

    /// Submits an entry and stores it, if there is room.
    fn store(&mut self) -> Step {
        let queued = self.queued();
        self.journal.shared.queue.lock().entries.push_back(queued);
        self.writer.step()
    }

    fn queued(&mut self) -> Queued {
        let submission = submission_of(self.submitted, &self.acked);
        let at = self.journal.shared.env.clock.monotonic();
        self.submitted += 1;
        Queued { submission, at }
    }

    /// Runs at most `count` steps of the prefiller.
    fn step(&self, count: u64) {
        for _ in 0..count {
            if self.prefiller.step() != Step::Again {
                return;
            }
        }
    }

    fn acked(&self) -> u64 {
        self.acked.0.lock().len() as u64
    }
}

fn names(sim: &SimEnv, end: &str) -> usize {
    let entries = sim.env().fs.read_dir(Path::new(DIR)).unwrap();
    entries.iter().filter(|entry| entry.name.to_string_lossy().ends_with(end)).count()
}

/// Stores entries until the third file is in use, with steps of the prefiller between them as `seed` decides. Returns
/// the number of acked entries, and whether all were acked.
fn live(sim: &SimEnv, seed: u64, method: SyncMethod) -> (u64, bool) {
    let Ok(mut played) = Played::open(sim, options(method, 3)) else { return (0, false) };
    for round in 0..14 {
        if played.store() == Step::Done {
            return (played.acked(), false);
        }
        // Never, always, or now and then.
        played
            .step([0, 9, (round * 7 + seed) % 3, (round * 5 + seed) % 2][usize::try_from(seed % 4).unwrap()]);
    }
    (played.acked(), true)
}

/// Every entry that is found, in order.
fn found(sim: &SimEnv, method: SyncMethod) -> u64 {
    let (_journal, mut replay) = Journal::open(&sim.env(), Path::new(DIR), options(method, 3)).unwrap();
    let mut count = 0;
    while let Some(entries) = replay.next().unwrap() {
        for entry in entries {
            assert_eq!(entry.header.index, count);
            assert!(entry.payload == payload(count), "entry {count}");
            count += 1;
        }
    }
    assert!(replay.damaged().is_empty());
    count
}

/// Runs with each count of `fault` until `counted` of a whole run is less.
fn hold_everywhere(fault: fn(&SimEnv, u64), counted: fn(&SimEnv) -> u64) {
    for seed in 0..3 {
        for count in 0.. {
            let method = METHODS[usize::try_from(seed + count).unwrap() % METHODS.len()];
            let sim = SimEnv::new(seed);
            sim.fs.tear_blocks(true);
            fault(&sim, count);
            let (acked, is_whole) = live(&sim, seed, method);
            let is_over = is_whole && counted(&sim) <= count;
            sim.fs.crash();
            let found = found(&sim, method);
            assert!(found >= acked, "{method:?}, seed {seed}, {count}: {acked} acked, {found} found");
            assert_eq!(names(&sim, ".new"), 0);
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn acked_entries_survive_power_cut_at_any_prefill_step() {
    hold_everywhere(|sim, count| sim.fs.stop_after(count), |sim| sim.fs.operations());
}

#[test]
fn acked_entries_survive_failed_sync_at_any_prefill_step() {
    hold_everywhere(|sim, count| sim.fs.fail_sync_after(count), |sim| sim.fs.syncs());
}

#[test]
fn acked_entries_survive_failed_write_at_any_prefill_step() {
    hold_everywhere(|sim, count| sim.fs.fail_write_after(count), |sim| sim.fs.operations() - sim.fs.syncs());
}

#[test]
fn prefilled_group_waits_only_for_its_own_sync() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    played.store();
    for number in 1..18 {
        played.step(u64::MAX);
        let before = sim.fs.syncs();
        assert_eq!(played.store(), Step::Again);
        // A file is begun by syncing its header and its name.
        let expected = if number % 6 == 0 { 3 } else { 1 };
        assert_eq!(sim.fs.syncs() - before, expected, "entry {number}");
    }
}

#[test]
fn a_server_that_writes_little_fills_little() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    assert_eq!(played.prefiller.step(), Step::Sleep(None));
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (0, 0));
    played.store();
    played.step(1);
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (1, 0), "the first file comes first");
    played.step(u64::MAX);
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (1, 1), "one file is made ahead");
}

#[test]
fn spare_is_made_only_where_the_writer_would_make_a_file() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    for _ in 0..7 {
        played.store();
        played.step(u64::MAX);
    }
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (2, 1));
    for _ in 0..6 {
        played.store();
        played.step(u64::MAX);
    }
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (3, 0), "the journal has its size");
    for _ in 0..12 {
        played.journal.settle_to(played.journal.delivered());
        assert_eq!(played.store(), Step::Again);
        played.step(u64::MAX);
    }
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (3, 0));
    assert_eq!(played.acked(), 25);
}

#[test]
fn spare_without_space_is_retried_and_poisons_nothing() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    played.store();
    sim.fs.set_space(Some(2 * FILE_BYTES - 550_000));
    for _ in 1..6 {
        played.step(u64::MAX);
        assert_eq!(played.store(), Step::Again);
    }
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new")), (1, 1));
    let left = sim.env().fs.available_bytes(Path::new(DIR)).unwrap();
    assert!(left > FILE_BYTES / 8, "its place was given back but for a little: {left}");
    sim.fs.set_space(Some(0));
    assert_eq!(played.store(), Step::Again, "the little that was kept");
    assert!(matches!(played.store(), Step::Sleep(Some(_))));
    assert!(played.journal.failure().is_none());
    sim.fs.set_space(None);
    assert_eq!(played.writer.step(), Step::Again);
    played.step(u64::MAX);
    assert_eq!((names(&sim, ".journal"), names(&sim, ".new"), played.acked()), (3, 0, 8));
}

#[test]
fn lives_that_settle_nothing_do_not_make_a_large_file_each() {
    let (sim, lives) = (SimEnv::new(1), 20);
    let options = options(SyncMethod::DirectDsync, 2);
    for _ in 0..lives {
        let mut played = Played::open(&sim, options).unwrap();
        for _ in 0..2 {
            played.store();
            played.step(u64::MAX);
        }
        sim.fs.kill();
    }
    let entries = sim.env().fs.read_dir(Path::new(DIR)).unwrap();
    let bytes: u64 = entries.iter().map(|entry| entry.len).sum();
    assert!(bytes <= 4 * FILE_BYTES + lives * FIRST_STEP_BYTES, "{bytes} bytes");
    let mut played = Played::open(&sim, options).unwrap();
    played.store();
    for stored in 1..8 {
        played.journal.settle_to(played.journal.delivered());
        while played.writer.step() == Step::Again {}
        assert_eq!(played.acked(), stored);
        played.store();
    }
    assert!(names(&sim, ".journal") <= 3, "settled files are removed");
}

#[test]
fn spare_refused_by_the_disk_poisons_nothing() {
    type Fault = fn(&SimEnv);
    let faults: [Fault; 2] = [|sim| sim.fs.fail_sync_after(0), |sim| sim.fs.fail_write_after(0)];
    for fault in faults {
        let sim = SimEnv::new(1);
        let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
        played.store();
        // The first file is filled, and the spare is made.
        played.step(2);
        assert_eq!(names(&sim, ".new"), 1);
        fault(&sim);
        played.step(u64::MAX);
        assert_eq!(names(&sim, ".new"), 0);
        for _ in 1..7 {
            assert_eq!(played.store(), Step::Again);
        }
        assert!(played.journal.failure().is_none());
        assert_eq!(played.acked(), 7);
    }
}

#[test]
fn a_file_in_use_that_cannot_be_filled_fails_the_next_group() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let mut played = Played::open(&sim, options(method, 3)).unwrap();
        played.store();
        sim.fs.fail_sync_after(0);
        played.step(u64::MAX);
        assert_eq!(played.store(), Step::Done);
        assert!(matches!(played.journal.failure(), Some(JournalError::Write { .. })));
        assert_eq!(played.acked(), 1);
    }
}

/// A clock that calls a function when it is read next.
#[derive(Default)]
struct Prompted(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Clock for Prompted {
    fn wall(&self) -> TimestampMs {
        TimestampMs(0)
    }

    fn monotonic(&self) -> Duration {
        let action = self.0.lock().take();
        if let Some(action) = action {
            action();
        }
        Duration::ZERO
    }
}

#[test]
fn entry_queued_right_before_the_close_is_stored() {
    let (sim, clock) = (SimEnv::new(1), Arc::new(Prompted::default()));
    let env = Env { clock: clock.clone(), ..sim.env() };
    let mut played = Played::open_in(&env, options(SyncMethod::DirectDsync, 3)).unwrap();
    let (queued, shared) = (played.queued(), played.journal.shared.clone());
    // The journal's thread has found the queue empty, and has not asked yet whether it shall end.
    *clock.0.lock() = Some(Box::new(move || {
        let mut queue = shared.queue.lock();
        queue.entries.push_back(queued);
        queue.is_closing = true;
    }));
    while played.writer.step() != Step::Done {}
    assert_eq!(played.acked(), 1, "its owner was told nothing");
}

#[test]
fn abandoned_journal_is_closed_for_its_remaining_holders() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    let submission = played.queued().submission;
    played.journal.abandon();
    assert!(matches!(played.journal.submit(submission), Err(JournalError::Closed)));
    Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
}

/// An owner that does not wait for a sync.
struct Unsynced;

impl EntryOwner for Unsynced {
    fn stored(&self, _entry: StoredEntry<'_>) {}

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {}
}

#[test]
fn unsynced_entries_are_synced_in_time_under_steady_load() {
    for method in METHODS {
        let sim = SimEnv::new(1);
        let options = options(method, 3);
        let mut played = Played::open(&sim, options).unwrap();
        for number in 0..3 {
            let queued = played.queued();
            let owner = Arc::new(Unsynced);
            let submission = Submission { wants: Wants::Write, owner, ..queued.submission };
            played.journal.shared.queue.lock().entries.push_back(Queued { submission, ..queued });
            assert_eq!(played.writer.step(), Step::Again);
            let is_synced = played.journal.synced() == played.journal.delivered();
            assert_eq!(is_synced, number == 2, "{method:?}, group {number}");
            sim.clock.advance(options.sync_interval / 2);
        }
    }
}

#[test]
fn owners_in_a_large_group_are_announced_before_they_are_told() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    let owner = Arc::new(Announced::default());
    for _ in 0..100 {
        let queued = played.queued();
        let payload = vec![1; 10].into();
        let submission = Submission { payload, owner: Arc::clone(&owner) as _, ..queued.submission };
        played.journal.shared.queue.lock().entries.push_back(Queued { submission, ..queued });
    }
    assert_eq!(played.writer.step(), Step::Again);
    let (announced, told) = *owner.0.lock();
    assert_eq!(told, 100);
    assert!((80..100).contains(&announced), "{announced}");
}
