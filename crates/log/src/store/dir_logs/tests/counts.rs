//! Counts of records on their way to the segments are zero once the records are there, or will never be.

use std::sync::atomic::{AtomicBool, AtomicI32};

use riverrun_env::Random as _;
use riverrun_env::sim::SimRandom;

use super::*;

const SEEDS: u64 = 6;
const APPENDERS: u64 = 3;
/// Appends of each thread.
const APPENDS: u64 = 600;

/// Whether the owners of all submitted entries were told.
fn is_drained(store: &LogStore) -> bool {
    store.journals().all(riverrun_journal::Journal::has_delivered_all)
}

/// Waits until the owners of all submitted entries were told.
fn drain(store: &LogStore) {
    while !is_drained(store) {
        thread::yield_now();
    }
}

fn batch(bytes: usize) -> Vec<u8> {
    let mut batch = BatchBuilder::new(BatchOptions::default());
    batch.append(TimestampMs(0), None, Some(&vec![1; bytes]), &[]).unwrap();
    batch.build().unwrap()
}

fn append_to(log: &PartitionLog, batch: &[u8]) -> Result<(), LogError> {
    let options = AppendOptions { origin: AppendOrigin::Client, now: TimestampMs(0) };
    // A refused append does not count.
    let _refused = log.append(BytesMut::from(batch), options);
    log.write_staged()
}

/// Bytes in the counts of the store and of the log dir.
fn counted(store: &LogStore) -> (u64, u64) {
    (store.write_cache().bytes(), partition(store, NEW).dir().space().unsettled_bytes())
}

#[test]
fn entry_that_comes_while_its_log_is_deleted_is_uncounted_once() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    let log = partition(&store, KNOWN);
    let dir = log.dir().clone();
    // The journal's thread has put it into the tail then, and goes no further.
    let tails = dir.tails.lock();
    append_to(&log, &batch(100)).unwrap();
    while log.tail_end().is_none() {
        thread::yield_now();
    }
    store.delete(KNOWN, 0).unwrap();
    drop(tails);
    drain(&store);
    assert_eq!(counted(&store), (0, 0));
    append(&store, NEW);
    store.settle().unwrap();
    assert_eq!(counted(&store), (0, 0));
}

/// Partitions in use.
struct Slots<'a> {
    store: &'a LogStore,
    made: AtomicI32,
    logs: [Mutex<Arc<PartitionLog>>; 4],
}

impl<'a> Slots<'a> {
    fn new(store: &'a LogStore) -> Self {
        let log = |index| Mutex::new(partition(store, PartitionId { index, ..KNOWN }));
        Self { store, made: AtomicI32::new(4), logs: [log(0), log(1), log(2), log(3)] }
    }

    /// Appends to some partition; or deletes it, and makes another one in its place.
    fn step(&self, dice: &SimRandom) {
        let below = |bound: u64| dice.next_u64() % bound;
        let slot = &self.logs[usize::try_from(below(4)).unwrap()];
        let action = below(20);
        if action == 0 {
            let new = partition(
                self.store,
                PartitionId { index: self.made.fetch_add(1, Ordering::Relaxed), ..KNOWN },
            );
            let old = std::mem::replace(&mut *slot.lock(), new);
            return self.store.delete(old.id(), 0).unwrap();
        }
        let log = slot.lock().clone();
        if action < 3 {
            let durability =
                [DurabilityLevel::SyncSync, DurabilityLevel::AsyncAsync][usize::from(action == 1)];
            log.set_config(Arc::new(LogConfig { durability, ..LogConfig::default() }));
        }
        append_to(&log, &batch(usize::try_from(below(3000)).unwrap())).unwrap();
    }
}

#[test]
fn counts_are_zero_when_all_appends_are_settled_or_deleted() {
    for seed in 0..SEEDS {
        let sim = SimEnv::new(seed);
        let store = open(&sim);
        recover(&store);
        let slots = Slots::new(&store);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let settler = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    store.settle().unwrap();
                }
            });
            let append = |number| {
                let dice = SimRandom::new(seed * APPENDERS + number);
                (0..APPENDS).for_each(|_| slots.step(&dice));
            };
            let appenders: Vec<_> =
                (0..APPENDERS).map(|number| scope.spawn(move || append(number))).collect();
            let appended: Vec<_> = appenders.into_iter().map(thread::ScopedJoinHandle::join).collect();
            // The journal may wait for room, which only the settler makes.
            while !settler.is_finished() && !is_drained(&store) {
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            settler.join().unwrap();
            appended.into_iter().for_each(Result::unwrap);
        });
        drain(&store);
        store.settle().unwrap();
        drain(&store);
        store.settle().unwrap();
        assert_eq!(counted(&store), (0, 0), "seed {seed}");
    }
}

#[test]
fn half_full_write_cache_wakes_the_settlers_of_large_tails() {
    let sim = SimEnv::new(1);
    let store = open(&sim);
    recover(&store);
    let dir = partition(&store, KNOWN).dir().clone();
    let half = dir.shared().cache.bytes_max() / 2;
    let is_raised = || dir.alarm().wait(Duration::ZERO);
    is_raised();
    dir.count_stored(half - 1);
    assert!(!is_raised(), "it is not half full");
    dir.count_stored(1);
    assert!(is_raised());
}
