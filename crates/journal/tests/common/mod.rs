//! A journal's life on a simulated disk, with a record of what was submitted, acked and settled beside it.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod faulty;
pub(crate) mod lives;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use riverrun_env::Env;
use riverrun_journal::{
    EntryHeader, EntryKind, EntryOwner, FILE_BYTES_MIN, Journal, JournalError, JournalOptions, Position,
    RecoveredEntry, Replay, StoredEntry, StreamId, Submission, SyncMethod, Wants,
};
use riverrun_types::{LeaderEpoch, Offset};

pub(crate) const DIR: &str = "/journal";
const STREAMS: u8 = 3;

/// Two small files.
pub(crate) fn small_options(sync_method: SyncMethod) -> JournalOptions {
    let bytes = 2 * 1024 * 1024;
    JournalOptions { sync_method, ..JournalOptions::with_bytes(bytes) }
}

/// Two files of the smallest size, for runs that are repeated a thousand times.
pub(crate) fn smallest_options(sync_method: SyncMethod) -> JournalOptions {
    let bytes = 2 * FILE_BYTES_MIN;
    JournalOptions { bytes, file_bytes: FILE_BYTES_MIN, ..small_options(sync_method) }
}

/// The bytes of entry number `index`: recognisable, and of the size asked for.
pub(crate) fn payload(index: usize, bytes: usize) -> Bytes {
    let mut payload: Vec<u8> = format!("entry {index} ").into_bytes();
    payload.extend((payload.len()..bytes).map(|at| (at * 31 + index * 7).to_le_bytes()[0]));
    payload.truncate(bytes.max(8));
    payload.into()
}

pub(crate) fn header(index: usize) -> EntryHeader {
    EntryHeader {
        stream: StreamId([index.to_le_bytes()[0] % STREAMS; 20]),
        kind: EntryKind::Records,
        index: index as u64,
        cuts: 3,
        base_offset: Offset(index as i64 * 10),
        leader_epoch: LeaderEpoch(3),
    }
}

fn number(header: &EntryHeader) -> usize {
    usize::try_from(header.index).expect("a small number")
}

/// The calls that the owners got.
#[derive(Debug, Default)]
struct Told {
    /// Position, and whether synced, of each entry in order.
    stored: Vec<(usize, Position, bool)>,
    failed: Vec<usize>,
}

/// The owner of all entries, which checks each call.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    told: Mutex<Told>,
    changed: Condvar,
    sizes: Mutex<Vec<usize>>,
    wrong: AtomicBool,
}

impl EntryOwner for Recorder {
    fn stored(&self, entry: StoredEntry<'_>) {
        let index = number(entry.header);
        let expected = payload(index, self.sizes.lock()[index]);
        if entry.payload != expected || *entry.header != header(index) {
            self.wrong.store(true, Ordering::Relaxed);
        }
        self.told.lock().stored.push((index, entry.position, entry.is_synced));
        self.changed.notify_all();
    }

    fn failed(&self, header: &EntryHeader, _error: &JournalError) {
        self.told.lock().failed.push(number(header));
        self.changed.notify_all();
    }
}

/// All lives of one journal.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) recorder: Arc<Recorder>,
    /// Entries below this number were settled.
    pub(crate) settled: AtomicUsize,
    /// Entries below this number were served after a start.
    seen: AtomicUsize,
}

impl History {
    /// Submits the next entry and returns its number.
    pub(crate) fn submit(
        &self,
        journal: &Journal,
        bytes: usize,
        wants: Wants,
    ) -> Result<usize, JournalError> {
        let index = {
            let mut sizes = self.recorder.sizes.lock();
            sizes.push(bytes);
            sizes.len() - 1
        };
        let submission = Submission {
            header: header(index),
            payload: payload(index, bytes),
            wants,
            owner: self.recorder.clone(),
        };
        journal.submit(submission).map(|()| index)
    }

    /// Waits until the owner of entry `index` was told; returns the entry's position, if it was stored.
    pub(crate) fn wait(&self, index: usize) -> Option<Position> {
        let mut told = self.recorder.told.lock();
        loop {
            if let Some((_, position, _)) = told.stored.iter().find(|(stored, ..)| *stored == index) {
                return Some(*position);
            }
            if told.failed.contains(&index) {
                return None;
            }
            let waited = self.recorder.changed.wait_for(&mut told, Duration::from_secs(20));
            assert!(!waited.timed_out(), "entry {index} was forgotten");
        }
    }

    pub(crate) fn store(
        &self,
        journal: &Journal,
        bytes: usize,
        wants: Wants,
    ) -> Result<Position, JournalError> {
        let index = self.submit(journal, bytes, wants)?;
        let Some(position) = self.wait(index) else {
            return Err(journal.failure().unwrap_or(JournalError::Closed));
        };
        // The journal raises the position right after it has told the owner.
        while journal.delivered() <= position {
            std::thread::yield_now();
        }
        Ok(position)
    }

    /// Settles all stored entries.
    pub(crate) fn settle(&self, journal: &Journal) {
        let count = self.recorder.told.lock().stored.last().map_or(0, |(index, ..)| index + 1);
        self.settled.fetch_max(count, Ordering::Relaxed);
        journal.settle_to(journal.delivered());
    }

    /// Compares the recovered entries with the submitted ones: they must be a run without a gap, from the settled
    /// position or before to the last entry acked as synced or behind, each with its own bytes. Returns their
    /// numbers.
    pub(crate) fn check(&self, recovered: &[RecoveredEntry]) -> Result<Vec<usize>, String> {
        if self.recorder.wrong.load(Ordering::Relaxed) {
            return Err("an owner was told of another entry than it had submitted".into());
        }
        let sizes = self.recorder.sizes.lock();
        let told = self.recorder.told.lock();
        let indexes: Vec<usize> = recovered.iter().map(|entry| number(&entry.header)).collect();
        for (entry, index) in recovered.iter().zip(&indexes) {
            let size = *sizes.get(*index).ok_or(format!("entry {index} was invented"))?;
            if entry.header != header(*index) || entry.payload != payload(*index, size) {
                return Err(format!("entry {index} is not what was submitted"));
            }
        }
        if let Some(pair) = recovered.windows(2).find(|pair| pair[0].position >= pair[1].position) {
            return Err(format!("{} does not come before {}", pair[0].position, pair[1].position));
        }
        if let Some([before, after]) =
            indexes.windows(2).find(|pair| pair[0] + 1 != pair[1]).and_then(|pair| pair.first_chunk())
        {
            return Err(format!("entry {after} follows entry {before}"));
        }
        let seen = self.seen.load(Ordering::Relaxed);
        let acked = told.stored.iter().filter(|(.., synced)| *synced).map(|(index, ..)| index + 1).max();
        let (acked, settled) = (acked.unwrap_or(0).max(seen), self.settled.load(Ordering::Relaxed));
        let (first, end) = (indexes.first().copied(), indexes.last().map_or(0, |last| last + 1));
        if end < acked && acked > settled {
            return Err(format!("entries up to {acked} were acked, and what is found ends at {end}"));
        }
        if first.is_some_and(|first| first > settled) {
            return Err(format!(
                "entries from {settled} on are not settled, and {first:?} is the first found"
            ));
        }
        Ok(indexes)
    }

    /// All entries below `end` were served: they may not vanish any more.
    pub(crate) fn saw(&self, end: usize) {
        self.seen.fetch_max(end, Ordering::Relaxed);
    }

    /// The next life goes on behind the recovered entries, so entries that were lost unacked are forgotten.
    pub(crate) fn forget_behind(&self, end: usize) {
        let mut sizes = self.recorder.sizes.lock();
        let end = end.max(self.settled.load(Ordering::Relaxed));
        sizes.truncate(end);
        self.recorder.told.lock().stored.retain(|(index, ..)| *index < end);
        self.recorder.told.lock().failed.clear();
    }
}

/// Reads a replay to its end.
pub(crate) fn read_all(replay: &mut Replay) -> Result<Vec<RecoveredEntry>, JournalError> {
    let mut all = Vec::new();
    while let Some(entries) = replay.next()? {
        all.extend(entries);
    }
    Ok(all)
}

/// Opens the journal and reads its entries.
pub(crate) fn open(
    env: &Env,
    options: JournalOptions,
) -> Result<(Journal, Vec<RecoveredEntry>, usize), JournalError> {
    let (journal, mut replay) = Journal::open(env, Path::new(DIR), options)?;
    let entries = read_all(&mut replay)?;
    Ok((journal, entries, replay.damaged().len()))
}
