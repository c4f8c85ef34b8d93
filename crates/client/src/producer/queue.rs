//! The batches of one partition: which may be sent when, and with which sequence number.
//!
//! Pure. Guarantees the order of records: a retried batch goes alone and before all later ones, so that neither a
//! retry nor a gap in the sequence overtakes anything, and outcomes come in the order of the records.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use riverrun_records::{ProducerStamp, increment_sequence};
use riverrun_types::{ProducerEpoch, ProducerId};
use tokio::time::Instant;

use super::batch::{Batch, Ended};
use crate::error::ClientError;

/// Most batches of one partition in flight: as many as a server remembers of an idempotent producer.
pub(super) const IN_FLIGHT_MAX: usize = 5;

/// The conditions for sending a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendRules {
    pub(super) now: Instant,
    pub(super) linger: Duration,
    /// Batches with a smaller id do not linger.
    pub(super) hurry_below: u64,
    /// Whether batches without an attempt may be sent.
    pub(super) fresh_allowed: bool,
    /// Most batches of the partition in flight, whichever server leads it: with 1, none overtakes another.
    pub(super) in_flight_max: usize,
}

/// Whether a partition's next batch may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It has no batch.
    Empty,
    /// It may be sent now.
    Now,
    /// Not before this time.
    At(Instant),
    /// Not before a batch in flight has come back.
    Blocked,
}

/// The batches of one partition whose outcome was not passed on.
///
/// Invariants: `waiting` is sorted by id; only its last batch is open for records. `in_flight` holds the ids in
/// flight. `untold` holds all ids, sorted; `early` those batches that have an outcome while an earlier one has none,
/// and so never the first of `untold`. Sequence numbers before `next_sequence` are given away.
///
/// While `broken`, only batches are sent that the server may have, to find that out: in another epoch they would be
/// stored twice. `epochs` counts how often the sequence has begun again under the present producer id, each time in
/// the next epoch: a server tracks the epoch of a producer for each partition separately, and refuses older ones.
#[derive(Debug, Default)]
pub(super) struct PartitionQueue {
    waiting: VecDeque<Batch>,
    in_flight: Vec<u64>,
    untold: VecDeque<u64>,
    early: BTreeMap<u64, Ended>,
    next_sequence: i32,
    retry_at: Option<Instant>,
    broken: bool,
    epochs: i16,
    /// Bytes of the last batch that was taken.
    taken_bytes: usize,
    /// True if the server has accepted a batch under the present producer id.
    confirmed: bool,
    /// True if the accumulator's lists of queues hold this one.
    pub(super) listed: bool,
    /// When the accumulator will list it at the latest.
    pub(super) parked_until: Option<Instant>,
}

impl PartitionQueue {
    /// When the next batch may be sent.
    pub(super) fn readiness(&self, rules: &SendRules) -> Readiness {
        let Some(front) = self.waiting.front() else { return Readiness::Empty };
        if self.broken && !front.may_be_there() {
            return Readiness::Blocked;
        }
        if front.attempts > 0 {
            return match self.retry_at {
                _ if !self.in_flight.is_empty() => Readiness::Blocked,
                _ if front.stamp.is_none() && !rules.fresh_allowed => Readiness::Blocked,
                Some(at) if at > rules.now => Readiness::At(at),
                _ => Readiness::Now,
            };
        }
        if !rules.fresh_allowed || !self.takes_off(rules.in_flight_max) {
            return Readiness::Blocked;
        }
        let lingers = front.created + rules.linger;
        let complete = self.waiting.len() > 1 || front.is_full() || front.id < rules.hurry_below;
        if complete || lingers <= rules.now { Readiness::Now } else { Readiness::At(lingers) }
    }

    /// True if one more batch may be in flight. A batch that came back early counts as if it still were: such batches
    /// do not pile up behind a server that does not answer, and the server still remembers the first of them, should
    /// it have it.
    pub(super) fn takes_off(&self, in_flight_max: usize) -> bool {
        // A server that does not know the producer accepts any sequence number as its first, so the first batch goes
        // alone: if it were refused and the second accepted, it could never follow.
        self.in_flight.len() + self.early.len() < if self.confirmed { in_flight_max } else { 1 }
    }

    /// True if no batch waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The batch that takes further records, if it has room for so many bytes.
    pub(super) fn open(&mut self, record_bytes: usize) -> Option<&mut Batch> {
        self.waiting.back_mut().filter(|batch| batch.has_room(record_bytes))
    }

    /// Closes the last batch, because its next records go to another partition. Returns whether there is one.
    pub(super) fn complete_last(&mut self) -> bool {
        self.waiting.back_mut().map(Batch::complete).is_some()
    }

    /// True if a record of so many bytes would need a new batch.
    pub(super) fn needs_batch(&self, record_bytes: usize) -> bool {
        !self.waiting.back().is_some_and(|batch| batch.has_room(record_bytes))
    }

    /// The last of the waiting batches.
    pub(super) fn last(&mut self) -> Option<&mut Batch> {
        self.waiting.back_mut()
    }

    /// Bytes of the last batch.
    pub(super) fn last_bytes(&self) -> usize {
        self.waiting.back().map_or(self.taken_bytes, Batch::size_bytes)
    }

    /// Number of waiting batches.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a new batch behind the others.
    pub(super) fn push(&mut self, batch: Batch) {
        self.untold.push_back(batch.id);
        self.waiting.push_back(batch);
    }

    /// Bytes of the next batch.
    pub(super) fn next_size_bytes(&self) -> usize {
        self.waiting.front().map_or(0, Batch::size_bytes)
    }

    /// Takes the next batch to send it. The first time, it gets the next sequence numbers of this producer.
    pub(super) fn take(&mut self, producer: Option<(ProducerId, ProducerEpoch)>) -> Option<Batch> {
        let mut batch = self.waiting.pop_front()?;
        if let (None, Some((id, epoch))) = (batch.stamp, producer) {
            let epoch = ProducerEpoch(epoch.0.saturating_add(self.epochs));
            batch.stamp = Some(ProducerStamp { id, epoch, base_sequence: self.next_sequence });
            self.next_sequence = increment_sequence(self.next_sequence, batch.record_count());
        }
        batch.attempts += 1;
        self.taken_bytes = batch.size_bytes();
        self.in_flight.push(batch.id);
        Some(batch)
    }

    /// The server has accepted a batch.
    pub(super) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// A batch is no longer in flight.
    pub(super) fn came_back(&mut self, id: u64) {
        self.in_flight.retain(|other| *other != id);
    }

    /// Takes a batch with its outcome, and returns it if its outcome is due. Then others may follow.
    pub(super) fn end(&mut self, ended: Ended) -> Option<Ended> {
        let id = ended.batch.id;
        if self.untold.front() != Some(&id) {
            self.early.insert(id, ended);
            return None;
        }
        self.untold.pop_front();
        Some(ended)
    }

    /// The next batch with an outcome that is due.
    pub(super) fn next_ended(&mut self) -> Option<Ended> {
        let ended = self.early.remove(self.untold.front()?)?;
        self.untold.pop_front();
        Some(ended)
    }

    /// Puts a batch that came back, or a part of it, in its place for a retry.
    pub(super) fn put_back(&mut self, batch: Batch, retry_at: Instant) {
        if let Err(at) = self.untold.binary_search(&batch.id) {
            self.untold.insert(at, batch.id);
        }
        let at = self.waiting.partition_point(|other| other.id < batch.id);
        self.waiting.insert(at, batch);
        self.retry_at = Some(retry_at);
    }

    /// True if the server expects this batch's sequence numbers, as far as is known: every batch before it has an
    /// outcome, and none has left a gap.
    pub(super) fn is_next(&self, id: u64) -> bool {
        !self.broken
            && self.in_flight.iter().all(|other| *other >= id)
            && self.waiting.front().is_none_or(|b| b.id >= id)
    }

    /// The server's sequence differs from the producer's: no new batch is sent until it begins again.
    pub(super) fn break_chain(&mut self) {
        self.broken = true;
    }

    /// True if a new producer id would cut off no batch whose fate only the server knows.
    pub(super) fn allows_new_id(&self) -> bool {
        // If the server does not have the first batch, it has none of those behind it.
        let unclear = |front: &Batch| if self.broken { front.may_be_there() } else { front.stamp.is_some() };
        self.in_flight.is_empty() && !self.waiting.front().is_some_and(unclear)
    }

    /// If the chain is broken and no batch's fate is unclear any more: begins again in the next epoch (KIP-360).
    /// Returns whether that is possible under this producer id, which began with `first`.
    pub(super) fn mend(&mut self, first: ProducerEpoch) -> bool {
        if !self.broken || !self.allows_new_id() {
            return true;
        }
        let epochs = self.epochs.checked_add(1).filter(|epochs| first.0.checked_add(*epochs).is_some());
        let Some(epochs) = epochs else { return false };
        self.restart();
        self.epochs = epochs;
        true
    }

    /// Begins again at sequence 0, under a new producer id.
    pub(super) fn restart(&mut self) {
        (self.broken, self.confirmed) = (false, false);
        self.epochs = 0;
        self.next_sequence = 0;
        self.waiting.iter_mut().for_each(|batch| batch.stamp = None);
    }

    /// Takes the next batch if its delivery timeout has expired.
    pub(super) fn take_expired(&mut self, now: Instant, timeout: Duration) -> Option<Batch> {
        self.waiting.pop_front_if(|batch| batch.created + timeout <= now)
    }

    /// Takes all batches out, in the order of the records: completed ones with their outcome, the rest as closed.
    pub(super) fn end_all(&mut self) -> Vec<Ended> {
        let closed = |batch| Ended { batch, result: Err(ClientError::Closed) };
        let mut all: Vec<Ended> = std::mem::take(&mut self.waiting).into_iter().map(closed).collect();
        all.extend(std::mem::take(&mut self.early).into_values());
        all.sort_by_key(|ended| ended.batch.id);
        self.untold.clear();
        all
    }

    /// Takes all waiting batches.
    pub(super) fn take_all(&mut self) -> VecDeque<Batch> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests;
