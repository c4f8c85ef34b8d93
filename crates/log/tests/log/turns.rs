//! Settling very many small tails beside a large one: the large one waits for no pass over all of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use riverrun_journal::JournalOptions;
use riverrun_log::StoreOptions;
use riverrun_types::{LeaderEpoch, PartitionId, TopicId};

use crate::machine::Machine;
use crate::pair::{Pair, synced, values_of};

const SMALL: i32 = 500;

#[test]
fn large_tail_waits_for_no_pass_over_many_small_ones() {
    let journal = JournalOptions::with_bytes(64 << 20);
    let pair = Pair::new(StoreOptions { write_cache_bytes: 3 << 20, journal, ..Machine::with_journal() });
    let log = |index| {
        let id = PartitionId { topic: TopicId([9; 16]), index };
        pair.store.partition(id, 0, synced(), LeaderEpoch(1)).unwrap()
    };
    for index in 0..SMALL {
        pair.append_to(&log(index), "small").unwrap();
    }
    // It is the last one in the order of a pass.
    let large = log(SMALL);
    for _ in 0..4 {
        pair.append_to(&large, &"x".repeat(300_000)).unwrap();
    }
    let sim = pair.sim.clone();
    let room_at = Arc::new(OnceLock::new());
    let (fs, noted) = (Arc::clone(&sim.fs), Arc::clone(&room_at));
    pair.store.write_cache().on_room(Box::new(move || _ = noted.get_or_init(|| fs.operations())));
    let clock = Arc::clone(&sim.clock);
    // The disk is slow from there on.
    sim.fs.during_next_write_back(move || clock.advance(Duration::from_secs(1)));
    let begun_at = sim.fs.operations();
    pair.store.settle_dir(0).unwrap();
    let took = sim.fs.operations() - begun_at;
    let room_after = room_at.get().expect("there is room") - begun_at;
    assert!(room_after < took / 4, "after {room_after} operations of {took}");
    assert_eq!(pair.store.write_cache().bytes(), 0);
    assert_eq!((values_of(&large).len(), values_of(&log(7)).len()), (4, 1));
}
