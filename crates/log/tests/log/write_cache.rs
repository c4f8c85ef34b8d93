//! Backpressure while the write cache is full: it holds up producers whose dirs have room, and not those that are
//! refused anyway.

use std::sync::mpsc::sync_channel;

use bytes::BytesMut;
use riverrun_journal::{Journal, JournalOptions};
use riverrun_log::producer_state::AppendOrigin;
use riverrun_log::{AppendError, AppendOptions, PartitionLog, StoreOptions};
use riverrun_records::BatchOptions;
use riverrun_types::{ErrorKind, TimestampMs};

use crate::machine::{Machine, batch_at};
use crate::pair::{Pair, wait_until};

const CACHE_BYTES: u64 = 1 << 20;
/// Bytes of a record's key, and of its value: more than the first step of a journal file.
const VALUE_BYTES: usize = 400_000;

fn pair() -> Pair {
    let journal = JournalOptions::with_bytes(64 << 20);
    Pair::new(StoreOptions { write_cache_bytes: CACHE_BYTES, journal, ..Machine::with_journal() })
}

/// Appends, and does not wait for the ack.
fn begin_append(log: &PartitionLog, bytes: usize) -> Result<(), AppendError> {
    let batch = batch_at(&[(1, &"x".repeat(bytes))], BatchOptions::default());
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(1) };
    log.append(BytesMut::from(&*batch), options)?;
    log.write_staged()?;
    Ok(())
}

#[test]
fn producer_of_a_journal_without_space_is_refused_at_once() {
    let pair = pair();
    pair.append(0, "the journal has its first file").unwrap();
    let log = pair.log(0);
    let (tell, told) = sync_channel(1);
    pair.sim.fs.during_next_sync(move || told.recv().unwrap());
    begin_append(&log, 1).unwrap();
    for _ in 0..8 {
        begin_append(&log, VALUE_BYTES).unwrap();
    }
    assert!(pair.store.is_write_cache_full(), "they may be stored");
    pair.sim.fs.fill_device(Some("/journal".as_ref()));
    tell.send(()).unwrap();
    let journal: &Journal = pair.store.journals().next().unwrap();
    wait_until(|| journal.shortage().is_some());
    pair.store.settle().unwrap();
    let bytes = pair.store.write_cache().bytes();
    assert!(bytes > 3 * CACHE_BYTES, "{bytes} bytes wait");
    for _ in 0..20 {
        assert!(!pair.store.is_write_cache_full());
        let refused = begin_append(&log, VALUE_BYTES).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        assert_eq!(pair.store.write_cache().bytes(), bytes, "a refused append leaves nothing");
    }
    pair.sim.fs.fill_device(None);
    wait_until(|| journal.has_delivered_all());
    assert!(pair.store.is_write_cache_full(), "now it can be settled");
    pair.store.settle().unwrap();
    assert_eq!(pair.store.write_cache().bytes(), 0);
    assert_eq!(pair.values(0).len(), 10);
}

#[test]
fn full_dirs_tails_hold_up_no_producer_of_another_dir() {
    let pair = pair();
    let large = "x".repeat(VALUE_BYTES);
    for dir in [0, 1] {
        pair.append(dir, "the log has its files").unwrap();
    }
    pair.store.settle().unwrap();
    pair.sim.fs.fill_device(Some("/two".as_ref()));
    for _ in 0..3 {
        pair.append(1, &large).unwrap();
    }
    assert!(pair.store.is_write_cache_full(), "no settling was tried");
    assert!(pair.store.settle().is_err() && pair.store.write_cache().is_full());
    assert!(!pair.store.is_write_cache_full());
    assert_eq!(pair.append(1, "no").unwrap_err().kind(), ErrorKind::Retry);
    for _ in 0..2 {
        assert!(!pair.store.is_write_cache_full());
        pair.append(0, &large).unwrap();
    }
    assert!(pair.store.is_write_cache_full(), "bytes that can be settled fill at most one cache");
    assert!(pair.store.settle().is_err());
    assert!(!pair.store.is_write_cache_full());
    pair.sim.fs.fill_device(None);
    pair.store.settle().unwrap();
    assert_eq!(pair.store.write_cache().bytes(), 0);
    assert_eq!((pair.values(0).len(), pair.values(1).len()), (3, 4));
}

/// Appends to a dir for as long as the backpressure allows it.
fn fill_cache(pair: &Pair, dir: usize) {
    let large = "x".repeat(VALUE_BYTES);
    while !pair.store.is_write_cache_full() {
        pair.append(dir, &large).unwrap();
    }
}

#[test]
fn each_dir_without_room_gets_bounded_room_beside_the_cache() {
    let pair = pair();
    for dir in [0, 1] {
        pair.append(dir, "the log has its files").unwrap();
    }
    pair.store.settle().unwrap();
    // The last append was let in when one byte was left.
    let cache_bytes = CACHE_BYTES + 2 * VALUE_BYTES as u64;
    pair.sim.fs.fill_device(Some("/two".as_ref()));
    fill_cache(&pair, 1);
    assert!(pair.store.settle().is_err());
    let mut is_full = false;
    while !is_full {
        pair.sim.fs.set_space(None);
        fill_cache(&pair, 0);
        pair.sim.fs.set_space(Some(0));
        assert!(pair.store.settle().is_err());
        // There was room if the journal has given back the space that it had set aside.
        is_full = pair.store.dir_shortage(0).is_some();
    }
    let bytes = pair.store.write_cache().bytes();
    assert!(bytes > 2 * CACHE_BYTES && bytes <= 2 * cache_bytes, "{bytes} are of these two dirs");
    for dir in [0, 1, 0, 1] {
        assert!(!pair.store.is_write_cache_full(), "a third one would have its own room");
        assert_eq!(pair.append(dir, "no").unwrap_err().kind(), ErrorKind::Retry);
    }
    assert_eq!(pair.store.write_cache().bytes(), bytes);
    pair.sim.fs.fill_device(None);
    pair.sim.fs.set_space(None);
    pair.store.settle().unwrap();
    assert_eq!(pair.store.write_cache().bytes(), 0);
}
