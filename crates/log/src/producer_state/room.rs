//! The room for producers that all partitions of a server share.
//!
//! Each state counts its producers here, and asks for their bound. Guarantees that many partitions with many producers
//! take a bounded amount of memory together, and that none of them leaves nothing to the others: a state may have an
//! eighth of the free room, so that the more of them are large, the smaller is the part of each. A state that has
//! outgrown its part forgets those of its own producers that were silent for longest, when it adds a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::PRODUCERS_MAX;

/// Producers that all partitions remember together, about. Each takes some 100 bytes and is remembered twice, as
/// appended and as settled: that makes 100 MB, and half a million producers, each counted in each of the partitions
/// that it writes to. A partition may have 10,000 of them until nine tenths of the room are taken.
pub(crate) const REMEMBERED_MAX: usize = 1_000_000;
/// The part of the free room that one state may have.
const SHARE: usize = 8;
/// Producers that a state may remember however little is free: the instances of a service of usual size. They take less
/// memory than the log has by itself while it is open.
const FLOOR: usize = 32;

/// The room of a server.
#[derive(Debug)]
pub(crate) struct ProducerRoom {
    remembered_max: usize,
    remembered: AtomicUsize,
}

impl ProducerRoom {
    pub(crate) fn new(remembered_max: usize) -> Arc<Self> {
        Arc::new(Self { remembered_max, remembered: AtomicUsize::new(0) })
    }

    /// Number of producers that all parts remember.
    pub(crate) fn remembered(&self) -> usize {
        self.remembered.load(Relaxed)
    }
}

/// A state's part of the room; none outside of a server.
///
/// Invariants: `counted` of the room's `remembered` are this one's, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Part {
    room: Option<Arc<ProducerRoom>>,
    counted: usize,
}

impl Part {
    pub(super) fn of(room: &Arc<ProducerRoom>) -> Self {
        Self { room: Some(Arc::clone(room)), counted: 0 }
    }

    /// The state remembers so many now.
    pub(super) fn count(&mut self, producers: usize) {
        if let Some(room) = &self.room {
            room.remembered.fetch_add(producers, Relaxed);
            room.remembered.fetch_sub(self.counted, Relaxed);
            self.counted = producers;
        }
    }

    /// Number of producers that the state may remember.
    pub(super) fn producers_max(&self) -> usize {
        self.room.as_ref().map_or(PRODUCERS_MAX, |room| {
            let free = room.remembered_max.saturating_sub(room.remembered());
            (free / SHARE).clamp(FLOOR, PRODUCERS_MAX)
        })
    }
}

impl Clone for Part {
    fn clone(&self) -> Self {
        let mut part = Self { room: self.room.clone(), counted: 0 };
        part.count(self.counted);
        part
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// States with the same producers are equal, whatever their rooms.
impl PartialEq for Part {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Part {}

#[cfg(test)]
mod tests {
    use riverrun_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

    use super::super::{BatchPlace, ProducerStates, SequencedBatch};
    use super::*;

    fn flood(states: &mut ProducerStates, from: i64, count: i64) {
        for number in from..from + count {
            let batch = SequencedBatch {
                producer_id: ProducerId(number),
                epoch: ProducerEpoch(0),
                first_sequence: 0,
                last_sequence: 0,
            };
            let (offset, timestamp) = (Offset(number), TimestampMs(number));
            let place = BatchPlace { base_offset: offset, last_offset: offset, timestamp };
            states.record(batch, place, timestamp);
        }
    }

    #[test]
    fn many_partitions_share_the_room_and_the_last_one_has_as_much() {
        let room = ProducerRoom::new(20_000);
        let mut all: Vec<_> = (0..200).map(|_| ProducerStates::new().counted_in(&room)).collect();
        for states in &mut all {
            flood(states, 0, 3000);
        }
        assert!(room.remembered() <= 20_000 + all.len() * FLOOR, "{}", room.remembered());
        assert_eq!(room.remembered(), all.iter().map(ProducerStates::len).sum::<usize>());
        let last = all.last_mut().expect("there are many");
        assert!((FLOOR / 2..=FLOOR).contains(&last.len()), "{}", last.len());
        assert!(last.knows(ProducerId(2999)) && !last.knows(ProducerId(0)), "the longest silent go");
    }

    #[test]
    fn a_large_partition_shrinks_when_others_need_the_room() {
        let room = ProducerRoom::new(20_000);
        let mut large = ProducerStates::new().counted_in(&room);
        flood(&mut large, 0, 3000);
        let before = large.len();
        let others: Vec<_> = (0..20)
            .map(|_| {
                let mut states = ProducerStates::new().counted_in(&room);
                flood(&mut states, 0, 3000);
                states
            })
            .collect();
        flood(&mut large, 3000, 1);
        assert!(large.len() < before / 2, "{} of {before}", large.len());
        drop(others);
        flood(&mut large, 4000, 3000);
        assert!(large.len() > before / 2, "the room is free again: {}", large.len());
    }

    #[test]
    fn copied_producers_count_and_forgotten_or_dropped_ones_do_not() {
        let room = ProducerRoom::new(20_000);
        let mut states = ProducerStates::new().counted_in(&room);
        flood(&mut states, 0, 100);
        let copy = states.clone();
        assert_eq!(room.remembered(), 200);
        assert_eq!(states.expire(TimestampMs(149), 100), 50);
        assert_eq!(room.remembered(), 150);
        states.clone_from(&copy);
        assert_eq!(room.remembered(), 200);
        states.forget_from(Offset(10));
        assert_eq!(room.remembered(), 110);
        drop((states, copy));
        assert_eq!(room.remembered(), 0);
    }
}
