//! The idempotent producers of a mounted queue.
//!
//! Owns the states of known producers and, for an unknown one whose batch was refused for a while, the sequence to go on at. A
//! producer has several batches on their way, and sends a refused one again: those sent behind it must not go before it. For a
//! known producer this follows from its last sequence. An unknown one may begin with any sequence, since its beginning may be
//! forgotten. Guarantees that an unknown producer begins with no later batch than the first that was refused.

use std::collections::BTreeMap;

use riverrun_log::producer_state::{
    AppendOrigin, BatchPlace, PRODUCERS_MAX, ProducerStates, ProducerView, SequenceError, SequenceVerdict,
    SequencedBatch,
};
use riverrun_types::{ProducerEpoch, ProducerId, TimestampMs};

/// The epoch and sequence at which a producer has to go on.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    epoch: ProducerEpoch,
    sequence: i32,
    /// When its batch was refused last.
    since: TimestampMs,
}

/// Invariants: `awaited` has at most [`PRODUCERS_MAX`] producers, none of which was in `states` when its batch was
/// refused, nor came into it since.
#[derive(Debug)]
pub(super) struct Producers {
    states: ProducerStates,
    awaited: BTreeMap<ProducerId, Awaited>,
}

impl Producers {
    /// Those that are remembered.
    pub(super) fn new(states: ProducerStates) -> Self {
        Self { states, awaited: BTreeMap::new() }
    }

    /// Judges a client's batch.
    pub(super) fn check(&self, batch: SequencedBatch) -> Result<SequenceVerdict, SequenceError> {
        let verdict = self.states.check(&[batch], AppendOrigin::Client, true)?;
        match self.awaited.get(&batch.producer_id) {
            Some(awaited)
                if awaited.epoch == batch.epoch && is_after(batch.first_sequence, awaited.sequence) =>
            {
                let (producer_id, expected) = (batch.producer_id, awaited.sequence);
                Err(SequenceError::OutOfOrder { producer_id, expected, found: batch.first_sequence })
            }
            _ => Ok(verdict),
        }
    }

    /// Remembers a batch that is in the queue now.
    pub(super) fn record(&mut self, batch: SequencedBatch, place: BatchPlace, now: TimestampMs) {
        self.awaited.remove(&batch.producer_id);
        self.states.record(batch, place, now);
    }

    /// A batch was refused, and its producer is to send it again before all that it sends after it.
    pub(super) fn refuse(&mut self, batch: SequencedBatch, now: TimestampMs) {
        let id = batch.producer_id;
        if id.0 < 0 || self.states.knows(id) {
            return;
        }
        let (epoch, mut sequence) = (batch.epoch, batch.first_sequence);
        match self.awaited.get(&id).copied() {
            Some(awaited) if awaited.epoch > epoch => return,
            Some(awaited) if awaited.epoch == epoch && is_after(sequence, awaited.sequence) => {
                sequence = awaited.sequence;
            }
            None if self.awaited.len() >= PRODUCERS_MAX => {
                self.awaited.pop_first();
            }
            Some(_) | None => {}
        }
        self.awaited.insert(id, Awaited { epoch, sequence, since: now });
    }

    /// Forgets those that have been silent for so long.
    pub(super) fn expire(&mut self, now: TimestampMs, expiration_ms: u64) {
        self.states.expire(now, expiration_ms);
        let expiration_ms = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        self.awaited.retain(|_, awaited| now.0.saturating_sub(awaited.since.0) < expiration_ms);
    }

    /// Those that are known, in order of their ids.
    pub(super) fn views(&self) -> impl Iterator<Item = ProducerView> + '_ {
        self.states.views()
    }
}

/// Whether `sequence` comes after `other`, where 0 follows 2^31-1: by less than half of the way around.
fn is_after(sequence: i32, other: i32) -> bool {
    let distance = sequence.wrapping_sub(other) & i32::MAX;
    (1..1 << 30).contains(&distance)
}

#[cfg(test)]
mod tests {
    use riverrun_types::Offset;

    use super::*;

    const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

    fn batch(id: i64, epoch: i16, sequence: i32) -> SequencedBatch {
        SequencedBatch {
            producer_id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
            first_sequence: sequence,
            last_sequence: sequence,
        }
    }

    fn producers() -> Producers {
        Producers::new(ProducerStates::new())
    }

    fn is_taken(producers: &Producers, batch: SequencedBatch) -> bool {
        match producers.check(batch) {
            Ok(verdict) => verdict == SequenceVerdict::Append,
            Err(SequenceError::OutOfOrder { found, .. }) if found == batch.first_sequence => false,
            Err(other) => panic!("{other}"),
        }
    }

    fn record(producers: &mut Producers, batch: SequencedBatch) {
        let place = BatchPlace { base_offset: Offset(1), last_offset: Offset(1), timestamp: NOW };
        producers.record(batch, place, NOW);
    }

    #[test]
    fn unknown_producer_begins_anywhere_but_behind_a_refused_batch() {
        let mut producers = producers();
        assert!(is_taken(&producers, batch(7, 0, 5)), "its beginning may be forgotten");
        for refused in [6, 5, 9] {
            producers.refuse(batch(7, 0, refused), NOW);
        }
        assert!(!is_taken(&producers, batch(7, 0, 6)) && !is_taken(&producers, batch(7, 0, 1000)));
        assert!(is_taken(&producers, batch(7, 0, 5)) && is_taken(&producers, batch(7, 0, 4)));
        assert!(is_taken(&producers, batch(7, 1, 0)), "a new epoch begins anew");
        assert!(is_taken(&producers, batch(8, 0, 6)), "another producer");
        record(&mut producers, batch(7, 0, 5));
        assert!(is_taken(&producers, batch(7, 0, 6)) && !is_taken(&producers, batch(7, 0, 7)));
    }

    #[test]
    fn batches_refused_around_the_last_sequence_keep_their_order() {
        let mut producers = producers();
        for refused in [0, i32::MAX] {
            producers.refuse(batch(7, 0, refused), NOW);
        }
        assert!(is_taken(&producers, batch(7, 0, i32::MAX)) && !is_taken(&producers, batch(7, 0, 0)));
    }

    #[test]
    fn a_refusal_of_a_known_producer_changes_nothing() {
        let mut producers = producers();
        record(&mut producers, batch(7, 0, 3));
        record(&mut producers, batch(7, 0, 4));
        producers.refuse(batch(7, 0, 3), NOW);
        assert!(is_taken(&producers, batch(7, 0, 5)));
    }

    #[test]
    fn old_epochs_refusals_do_not_count_and_all_expire() {
        let mut producers = producers();
        producers.refuse(batch(7, 1, 0), NOW);
        producers.refuse(batch(7, 0, 5), NOW);
        assert!(!is_taken(&producers, batch(7, 1, 1)));
        producers.expire(TimestampMs(NOW.0 + 999), 1000);
        assert!(!is_taken(&producers, batch(7, 1, 1)));
        producers.expire(TimestampMs(NOW.0 + 1000), 1000);
        assert!(is_taken(&producers, batch(7, 1, 1)));
    }

    #[test]
    fn refusals_that_are_remembered_are_bounded() {
        let mut producers = producers();
        for id in 0..2 * i64::try_from(PRODUCERS_MAX).expect("small") {
            producers.refuse(batch(id, 0, 0), NOW);
        }
        producers.refuse(batch(-1, 0, 0), NOW);
        assert_eq!(producers.awaited.len(), PRODUCERS_MAX);
    }
}
