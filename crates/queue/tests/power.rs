//! Power cuts and damage: states that a disk may be left in are made from copies of a queue's files, and opened.
//!
//! After a cut everything synced is there; each page that was stored later may be old or new, and a file may be
//! missing.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test asserts, with small numbers"
)]

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use riverrun_queue::{AppendOptions, Appender, CreateOptions, Offset, Queue, QueueError, Retention, StartAt};
use riverrun_records::UnverifiedBatch;

const SEGMENT_BYTES: usize = 16 << 10;
const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

type Files = BTreeMap<String, Vec<u8>>;

fn files(dir: &Path) -> Files {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

fn write(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

fn value(index: i64, len: usize) -> Vec<u8> {
    let mut value = index.to_le_bytes().to_vec();
    value.resize(8 + len, index as u8 | 1);
    value
}

/// Appends `lens` records and drops a reservation after some, which leaves its traces on some pages. Returns the
/// appender, because dropping it writes everything to disk.
fn append(queue: &Queue, begin: i64, lens: &[usize]) -> Appender {
    let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
    let mut appender = queue.appender(options).unwrap();
    for (index, len) in (begin..).zip(lens) {
        if len % 5 == 0 {
            appender.reserve(len + 1000).unwrap().fill(0xff);
        }
        assert_eq!(appender.append(&value(index, *len)).unwrap(), Offset(index));
    }
    appender
}

/// The position up to which a control file's synced marks declare everything on disk.
fn synced(control: &[u8]) -> usize {
    let position = |at: usize| u64::from_le_bytes(control[at..at + 8].try_into().unwrap()) as usize;
    position(12288).max(position(12800))
}

/// A state of the disk in which each page is the old or the new one, except that it has everything that the syncer
/// has synced. Pages of the control file are sectors: the queue relies on no more.
fn torn(old: &Files, new: &Files, mut choose: impl FnMut() -> bool) -> Files {
    let mut state = old.clone();
    let synced = synced(&new["queue.control"]);
    let mut start = 0;
    for (name, bytes) in new {
        let is_control = name.ends_with(".control");
        let unit = if is_control { SECTOR_BYTES } else { PAGE_BYTES };
        // A mark at the beginning of a segment implies that the segment has its name.
        let named = old.contains_key(name) || name.starts_with('0') && start <= synced;
        let certain = if name.starts_with('0') { synced.saturating_sub(start).min(bytes.len()) } else { 0 };
        start += if name.starts_with('0') { SEGMENT_BYTES } else { 0 };
        if !named && choose() {
            continue;
        }
        let mixed = state.entry(name.clone()).or_insert_with(|| vec![0; bytes.len()]);
        for (page, fresh) in mixed.chunks_mut(unit).zip(bytes.chunks(unit)) {
            if choose() {
                page.copy_from_slice(fresh);
            }
        }
        mixed[..certain].copy_from_slice(&bytes[..certain]);
    }
    state
}

/// Reads everything and checks that it is a prefix of the appended records. Returns their number.
fn read(queue: &Queue, lens: &[usize]) -> usize {
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    let mut count = 0;
    while let Some(record) = tailer.next().unwrap() {
        assert_eq!(record.offset, Offset(count as i64));
        assert!(
            record.value == Some(value(count as i64, lens[count]).as_slice()),
            "record {count} was appended so"
        );
        count += 1;
    }
    count
}

/// Checks that each segment holds batches and then zeros.
fn nothing_lies_beyond(dir: &Path) {
    for (name, bytes) in files(dir).iter().filter(|(name, _)| name.starts_with('0')) {
        let mut rest = bytes.as_slice();
        while rest.len() >= 12 && rest[8..12] != [0; 4] {
            rest = UnverifiedBatch::split_first(rest).unwrap().1;
        }
        assert!(rest.iter().all(|byte| *byte == 0), "{name} has zeros after its last batch");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn power_cut_keeps_synced_records_and_invents_none(
        lens in proptest::collection::vec(0..3000_usize, 1..60),
        synced in 0..60_usize,
        seed: u64,
        lost in 1..8_u64,
    ) {
        let synced = synced.min(lens.len());
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT_BYTES as u64 }).unwrap();
        drop(append(&queue, 0, &lens[..synced]));
        queue.sync().unwrap();
        let old = files(dir.path());
        let _live = append(&queue, synced as i64, &lens[synced..]);
        let mut random = seed | 1;
        let state = torn(&old, &files(dir.path()), || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % 8 >= lost
        });
        let after = tempfile::tempdir().unwrap();
        write(after.path(), &state);
        let queue = Queue::open(after.path()).unwrap();
        prop_assert!(queue.recovery().from_disk);
        let kept = read(&queue, &lens);
        prop_assert!(kept >= synced, "{} of {} synced records are left", kept, synced);
        prop_assert_eq!(queue.end_offset().unwrap(), Offset(kept as i64));
        nothing_lies_beyond(after.path());
        let lens: Vec<usize> =
            lens.iter().enumerate().map(|(index, len)| if index < kept { *len } else { len / 2 }).collect();
        drop(append(&queue, kept as i64, &lens[kept..]));
        prop_assert_eq!(read(&queue, &lens), lens.len());
        drop(queue);
        nothing_lies_beyond(after.path());
        let again = Queue::open(after.path()).unwrap();
        prop_assert_eq!(read(&again, &lens), lens.len());
    }

    #[test]
    fn damage_neither_panics_nor_invents_records(
        flips in proptest::collection::vec((0..8_usize, 0..SEGMENT_BYTES, any::<u8>()), 0..6),
        cut in proptest::option::of((0..8_usize, 0..SEGMENT_BYTES)),
        same_life: bool,
    ) {
        let lens = [100_usize; 150];
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: SEGMENT_BYTES as u64 }).unwrap();
        drop(append(&queue, 0, &lens[..40]));
        let live = append(&queue, 40, &lens[40..]);
        let mut damaged = files(dir.path());
        let names: Vec<String> = damaged.keys().cloned().collect();
        for (file, at, bits) in flips {
            let bytes = damaged.get_mut(&names[file % names.len()]).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= bits;
        }
        if let Some((file, at)) = cut {
            damaged.get_mut(&names[file % names.len()]).unwrap().truncate(at);
        }
        drop((live, queue));
        let other = tempfile::tempdir().unwrap();
        let place = if same_life { dir.path() } else { other.path() };
        write(place, &damaged);
        let _ = use_it(place, &lens);
    }
}

/// Does everything that can be done with a queue, as far as it succeeds.
fn use_it(dir: &Path, lens: &[usize]) -> Result<(), QueueError> {
    let queue = Queue::open(dir)?;
    let mut tailer = queue.tailer(StartAt::Start)?;
    let mut index = 0;
    while let Some(record) = tailer.next()? {
        if let Some(len) = lens.get(index) {
            assert!(
                record.value == Some(value(index as i64, *len).as_slice()),
                "record {index} is as it was appended"
            );
        }
        index += 1;
    }
    queue.tailer(StartAt::Offset(Offset(70)))?;
    let mut appender = queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() })?;
    for _ in 0..30 {
        appender.append(&[9; 1000])?;
    }
    appender.sync()?;
    queue.apply_retention(&Retention { bytes: Some(1), ..Retention::default() })?;
    Ok(())
}
