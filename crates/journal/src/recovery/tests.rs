//! The disk space that a recovery needs, and the loss if it trusts the page cache after a failed sync. That bug is
//! planted here, on the test's thread, because recovery itself decides where to read and what to write anew.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use riverrun_env::sim::SimEnv;
use riverrun_types::{ErrorKind, LeaderEpoch, Offset};

use crate::frames::frame_bytes;
use crate::{
    EntryHeader, EntryKind, EntryOwner, FILE_BYTES_MIN, Journal, JournalError, JournalOptions, StoredEntry,
    StreamId, Submission, Wants,
};

thread_local! {
    static TRUSTS_PAGE_CACHE: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn trusts_page_cache() -> bool {
    TRUSTS_PAGE_CACHE.get()
}

struct Owner(SyncSender<bool>);

impl EntryOwner for Owner {
    fn stored(&self, _entry: StoredEntry<'_>) {
        self.0.send(true).unwrap();
    }

    fn failed(&self, _header: &EntryHeader, _error: &JournalError) {
        self.0.send(false).unwrap();
    }
}

/// Whether the entry was stored.
fn store(journal: &Journal, index: u64) -> bool {
    store_bytes(journal, index, 100)
}

fn store_bytes(journal: &Journal, index: u64, bytes: usize) -> bool {
    let (owner, told) = sync_channel(1);
    let header = EntryHeader {
        stream: StreamId([1; 20]),
        kind: EntryKind::Records,
        index,
        cuts: 1,
        base_offset: Offset(0),
        leader_epoch: LeaderEpoch(1),
    };
    let submission = Submission {
        header,
        payload: vec![7; bytes].into(),
        wants: Wants::Sync,
        owner: Arc::new(Owner(owner)),
    };
    journal.submit(submission).unwrap();
    told.recv().unwrap()
}

/// Files so small that they are filled at once: after the first sync, only entries are synced.
fn options() -> JournalOptions {
    JournalOptions { bytes: 2 * FILE_BYTES_MIN, file_bytes: FILE_BYTES_MIN, ..JournalOptions::default() }
}

fn found(sim: &SimEnv) -> Vec<u64> {
    let (_journal, mut replay) = Journal::open(&sim.env(), Path::new("/journal"), options()).unwrap();
    let mut indexes = Vec::new();
    while let Some(entries) = replay.next().unwrap() {
        indexes.extend(entries.iter().map(|entry| entry.header.index));
    }
    indexes
}

/// The entries served by a start after a failed sync, and those by a start after a later loss of power.
fn served_before_and_after_a_power_cut(trusts: bool) -> (Vec<u64>, Vec<u64>) {
    let sim = SimEnv::new(1);
    {
        let (journal, _) = Journal::open(&sim.env(), Path::new("/journal"), options()).unwrap();
        assert!(store(&journal, 0));
        sim.fs.fail_sync_after(0);
        assert!(!store(&journal, 1));
    }
    sim.fs.kill();
    TRUSTS_PAGE_CACHE.set(trusts);
    let before = found(&sim);
    TRUSTS_PAGE_CACHE.set(false);
    sim.fs.crash();
    (before, found(&sim))
}

#[test]
fn entries_served_after_a_failed_sync_survive_power_cut() {
    assert_eq!(served_before_and_after_a_power_cut(false), (vec![0], vec![0]));
}

#[test]
fn a_recovery_that_trusts_the_page_cache_is_noticed() {
    let (before, after) = served_before_and_after_a_power_cut(true);
    assert_eq!(before, [0, 1]);
    assert_ne!(before, after, "an entry that was served has vanished");
}

#[test]
fn start_without_space_for_the_tail_changes_nothing() {
    for bytes in [1000, 900_000] {
        let sim = SimEnv::new(1);
        let options = JournalOptions::default();
        let open = || Journal::open(&sim.env(), Path::new("/journal"), options);
        let (journal, _) = open().unwrap();
        assert!(store_bytes(&journal, 0, 10_000) && store_bytes(&journal, 1, bytes));
        drop(journal);
        sim.fs.kill();
        sim.fs.set_space(Some(0));
        open().expect_err("it removes files that were made ahead, and finds no other space");
        let block_bytes = options.alignment;
        let needed = (frame_bytes(1, bytes).next_multiple_of(block_bytes) + 3 * block_bytes) as u64;
        for _ in 0..2 {
            sim.fs.set_space(Some(needed - 1));
            let refused = open().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        }
        sim.fs.set_space(Some(needed));
        let (journal, mut replay) = open().unwrap();
        let mut indexes = Vec::new();
        while let Some(entries) = replay.next().unwrap() {
            indexes.extend(entries.iter().map(|entry| entry.header.index));
        }
        assert_eq!(indexes, [0, 1], "{bytes} bytes");
        sim.fs.set_space(None);
        assert!(store_bytes(&journal, 2, bytes), "it goes on behind the tail");
    }
}

#[test]
fn large_file_is_replayed_in_parts() {
    let sim = SimEnv::new(1);
    let open = || Journal::open(&sim.env(), Path::new("/journal"), JournalOptions::default()).unwrap();
    let (journal, _) = open();
    assert!((0..10).all(|index| store(&journal, index)));
    drop(journal);
    let (_journal, mut replay) = open();
    replay.part_bytes = 250;
    let mut indexes = Vec::new();
    while let Some(entries) = replay.next().unwrap() {
        assert!((1..=3).contains(&entries.len()), "{} entries of 100 bytes", entries.len());
        indexes.extend(entries.iter().map(|entry| entry.header.index));
        assert_eq!(replay.check().unwrap(), []);
    }
    assert!(indexes.into_iter().eq(0..10));
}
