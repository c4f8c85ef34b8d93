//! Idempotence: the last batches of each producer in one partition, and whether its next batch fits.
//!
//! Pure: batches' facts and time in, verdicts out. The rules are Kafka 4.3's for producers without transactions:
//!
//! | the batch | verdict |
//! |---|---|
//! | same epoch and sequences as one of the last five | duplicate: answered with that batch's offsets |
//! | older epoch | `InvalidEpoch` |
//! | newer epoch, first sequence 0 | append |
//! | newer epoch, first sequence not 0 | `OutOfOrder` |
//! | same epoch, follows the last sequence (0 follows 2^31-1) | append |
//! | same epoch, anything else | `OutOfOrder` |
//! | producer unknown, and the log has never held a record: first sequence 0 | append |
//! | producer unknown, and the log has never held a record: anything else | `OutOfOrder` |
//! | producer unknown otherwise (never seen, expired, or pushed out by the bound) | append, whatever its sequence |
//! | from the coordinator | only the epoch is checked |
//!
//! The row about unknown producers is deliberate: `UNKNOWN_PRODUCER_ID` made clients of short-retention topics fail
//! for no reason, and since KIP-360 the state is rebuilt from whatever arrives. A log that never held a record has lost
//! nothing: there the batches before this one are still to come, and taking it would shut them out for ever. Kafka does so
//! from 4.5 on.
//!
//! One difference from Kafka: a producer expires by the time at which it last appended, not by its records' timestamps.
//! A producer that loads last year's data keeps the protection against duplicates while loading.
//!
//! An append may be recorded here before it is durable. A duplicate's answer carries its last offset, so that the
//! caller can wait until that offset is.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_types::{ErrorKind, Offset, ProducerEpoch, ProducerId, TimestampMs};
use thiserror::Error;

mod encoding;
mod last_batches;
mod room;

pub use encoding::EncodedProducers;
use last_batches::{LastBatches, PackedBatches};
use room::Part;
pub(crate) use room::{ProducerRoom, REMEMBERED_MAX};

/// Batches of each producer that are remembered: as many as a client may have in flight.
pub const BATCHES_PER_PRODUCER: usize = 5;

/// Producers that are remembered in one partition at most. Beyond it, those that were silent for longest are forgotten,
/// as if they had expired. A partition of a server may have fewer if many others have many, too.
pub const PRODUCERS_MAX: usize = 10_000;

/// The origin of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A client: epochs and sequences are checked.
    Client,
    /// The group coordinator of this server: sequences are not used.
    Coordinator,
}

/// A batch's producer, epoch and sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequencedBatch {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of the first record.
    pub first_sequence: i32,
    /// Sequence of the last record; below `first_sequence` if it wrapped.
    pub last_sequence: i32,
}

/// The place of a batch in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// Largest timestamp of the batch.
    pub timestamp: TimestampMs,
}

/// The verdict about an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceVerdict {
    /// It is new: append it.
    Append,
    /// The log has it already, here.
    Duplicate(BatchPlace),
}

/// The reason why an append of an idempotent producer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// The sequence neither follows the last one nor repeats one of the last batches.
    #[error("producer {producer_id:?}: sequence {found} came where {expected} was expected")]
    OutOfOrder {
        /// The producer.
        producer_id: ProducerId,
        /// The sequence that would have been right.
        expected: i32,
        /// The sequence of the batch.
        found: i32,
    },
    /// A newer instance of the producer has taken over.
    #[error("producer {producer_id:?}: epoch {found:?} is older than {current:?}")]
    InvalidEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The producer's known epoch.
        current: ProducerEpoch,
        /// The batch's older epoch.
        found: ProducerEpoch,
    },
}

impl SequenceError {
    /// The producer itself has to mend it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::FixRequest
    }
}

/// One remembered batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RememberedBatch {
    first_sequence: i32,
    last_sequence: i32,
    place: BatchPlace,
}

/// One producer.
///
/// Invariants: its batches are all of the same epoch, and there is one at least.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProducerEntry {
    id: ProducerId,
    epoch: ProducerEpoch,
    packed: PackedBatches,
    /// Time of its last append, by the server's clock.
    last_active: TimestampMs,
}

// With all the numbers of its batches it would be 192.
const _: () = assert!(size_of::<ProducerEntry>() <= 88);

/// A producer as `DescribeProducers` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerView {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset of its last record.
    pub last_offset: Offset,
    /// Largest timestamp of its last batch.
    pub last_timestamp: TimestampMs,
}

/// All producers of one partition.
///
/// There are two of these for each partition that is written to, most of them with few producers: so they lie in one piece
/// of memory, which is hardly larger than they are.
///
/// Invariants: at most `producers_max` entries, by rising id; a producer without any batch is not in it; ids are not
/// negative; `part` counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStates {
    producers: Vec<ProducerEntry>,
    producers_max: usize,
    part: Part,
}

impl Default for ProducerStates {
    fn default() -> Self {
        Self::with_bound(PRODUCERS_MAX)
    }
}

impl ProducerStates {
    /// No producers yet; [`PRODUCERS_MAX`] at most.
    pub fn new() -> Self {
        Self::default()
    }

    /// No producers yet; `producers_max` at most (at least 1).
    pub fn with_bound(producers_max: usize) -> Self {
        Self { producers: Vec::new(), producers_max: producers_max.max(1), part: Part::default() }
    }

    /// As before, with a part of a server's room; producers that find none are forgotten.
    pub(crate) fn counted_in(mut self, room: &Arc<ProducerRoom>) -> Self {
        self.part = Part::of(room);
        while self.producers.len() > self.bound() {
            self.push_out_longest_silent();
        }
        self.recount();
        self
    }

    /// Number of producers that may be remembered now.
    fn bound(&self) -> usize {
        self.producers_max.min(self.part.producers_max())
    }

    /// Number of producers.
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// Whether no producer is known.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Whether a producer is known.
    pub fn knows(&self, producer: ProducerId) -> bool {
        self.get(producer).is_some()
    }

    /// Judges the batches of one append, in their order; batches without a producer id pass. `has_history`: the log holds
    /// or has held records, so that a producer may have been forgotten.
    ///
    /// Nothing changes: once the batches are in the log, the caller [`record`](Self::record)s them. The append as
    /// a whole is a duplicate if one of its batches is.
    pub fn check(
        &self,
        batches: &[SequencedBatch],
        origin: AppendOrigin,
        has_history: bool,
    ) -> Result<SequenceVerdict, SequenceError> {
        // The producers' state after earlier batches of this same append.
        let mut staged: BTreeMap<ProducerId, (ProducerEpoch, i32)> = BTreeMap::new();
        for batch in batches.iter().filter(|batch| batch.producer_id != ProducerId::NONE) {
            let known = self.get(batch.producer_id);
            if origin == AppendOrigin::Client
                && let Some(place) = known.and_then(|entry| entry.find(batch))
            {
                return Ok(SequenceVerdict::Duplicate(place));
            }
            let tail =
                staged.get(&batch.producer_id).copied().or_else(|| known.and_then(ProducerEntry::tail));
            match tail {
                Some((epoch, last_sequence)) => check_follows(batch, epoch, last_sequence, origin)?,
                None if !has_history => check_sequence(batch, 0, origin)?,
                None => {}
            }
            // A single batch, which is what clients send, costs no allocation.
            if batches.len() > 1 {
                staged.insert(batch.producer_id, (batch.epoch, batch.last_sequence));
            }
        }
        Ok(SequenceVerdict::Append)
    }

    /// Remembers a batch that now lies in the log. Recovery rebuilds the state with it, too: batch by batch, unchecked,
    /// because batches in the log were judged when they were appended.
    pub fn record(&mut self, batch: SequencedBatch, place: BatchPlace, now: TimestampMs) {
        if batch.producer_id.0 < 0 {
            return;
        }
        let remembered = RememberedBatch {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence,
            place,
        };
        if let Ok(at) = self.place_of(batch.producer_id) {
            self.producers[at].record(batch.epoch, remembered, now);
            return;
        }
        if self.producers.len() >= self.bound() {
            self.push_out_longest_silent();
        }
        let mut batches = LastBatches::default();
        batches.push(remembered);
        let packed = PackedBatches::of(&batches);
        self.insert(ProducerEntry { id: batch.producer_id, epoch: batch.epoch, packed, last_active: now });
        self.recount();
    }

    /// Tells the room the number of producers, and gives back memory of a larger number.
    fn recount(&mut self) {
        let count = self.producers.len();
        if self.producers.capacity() > 2 * count {
            self.producers.shrink_to(count + count / 8);
        }
        self.part.count(count);
    }

    fn place_of(&self, producer: ProducerId) -> Result<usize, usize> {
        self.producers.binary_search_by_key(&producer, |entry| entry.id)
    }

    fn get(&self, producer: ProducerId) -> Option<&ProducerEntry> {
        self.place_of(producer).ok().map(|at| &self.producers[at])
    }

    /// Adds a producer, or replaces its entry.
    fn insert(&mut self, entry: ProducerEntry) {
        match self.place_of(entry.id) {
            Ok(at) => self.producers[at] = entry,
            Err(at) => {
                // A vector by itself makes room for four at first, and for as many again each time. Producers come rarely.
                if self.producers.len() == self.producers.capacity() {
                    self.producers.reserve_exact((self.producers.len() / 8).max(1));
                }
                self.producers.insert(at, entry);
            }
        }
    }

    /// Forgets producers that have not appended for `expiration_ms`; returns their number.
    pub fn expire(&mut self, now: TimestampMs, expiration_ms: u64) -> usize {
        let before = self.producers.len();
        let expiration_ms = i64::try_from(expiration_ms).unwrap_or(i64::MAX);
        self.producers.retain(|entry| now.0.saturating_sub(entry.last_active.0) < expiration_ms);
        self.recount();
        before - self.producers.len()
    }

    /// Whether one of the producers has appended at or above `offset`.
    pub(crate) fn has_from(&self, offset: Offset) -> bool {
        self.producers.iter().any(|entry| entry.last_offset() >= offset)
    }

    /// Forgets producers that have appended at or above `end`: the log now ends there. Returns whether there were any:
    /// their earlier batches are in the log, or were forgotten long ago.
    pub fn forget_from(&mut self, end: Offset) -> bool {
        let before = self.producers.len();
        self.producers.retain(|entry| entry.last_offset() < end);
        self.recount();
        self.producers.len() < before
    }

    /// Offset of the last record of each producer. Compaction keeps the batches that hold them, if need be empty,
    /// because they carry the producer's last sequence.
    pub fn last_offsets(&self) -> BTreeMap<ProducerId, Offset> {
        self.views().map(|view| (view.producer_id, view.last_offset)).collect()
    }

    /// The producers in order of their ids.
    pub fn views(&self) -> impl Iterator<Item = ProducerView> + '_ {
        self.producers.iter().filter_map(|entry| {
            let last = *entry.batches().last()?;
            Some(ProducerView {
                producer_id: entry.id,
                epoch: entry.epoch,
                last_sequence: last.last_sequence,
                last_offset: last.place.last_offset,
                last_timestamp: last.place.timestamp,
            })
        })
    }

    /// Makes room for new producers: forgets an eighth at once, so that a flood of them costs each a constant.
    fn push_out_longest_silent(&mut self) {
        let age = |entry: &ProducerEntry| (entry.last_active, entry.last_offset(), entry.id);
        let mut ages: Vec<_> = self.producers.iter().map(age).collect();
        let producers_max = self.bound();
        let keep = producers_max - producers_max.div_ceil(8);
        let out = ages.len() - keep.min(ages.len());
        if out == ages.len() {
            self.producers.clear();
            return;
        }
        let oldest_kept = *ages.select_nth_unstable(out).1;
        self.producers.retain(|entry| age(entry) >= oldest_kept);
    }
}

impl ProducerEntry {
    fn batches(&self) -> LastBatches {
        self.packed.unpack()
    }

    /// Remembers one more batch. A batch of another epoch replaces all.
    fn record(&mut self, epoch: ProducerEpoch, batch: RememberedBatch, now: TimestampMs) {
        let mut batches = if self.epoch == epoch { self.batches() } else { LastBatches::default() };
        batches.push(batch);
        self.epoch = epoch;
        self.packed = PackedBatches::of(&batches);
        self.last_active = self.last_active.max(now);
    }

    /// The remembered batch that `batch` repeats.
    fn find(&self, batch: &SequencedBatch) -> Option<BatchPlace> {
        if self.epoch != batch.epoch {
            return None;
        }
        let same = |known: &&RememberedBatch| {
            known.first_sequence == batch.first_sequence && known.last_sequence == batch.last_sequence
        };
        self.batches().all().iter().find(same).map(|known| known.place)
    }

    fn tail(&self) -> Option<(ProducerEpoch, i32)> {
        self.batches().last().map(|last| (self.epoch, last.last_sequence))
    }

    fn last_offset(&self) -> Offset {
        self.batches().last().map_or(Offset(-1), |last| last.place.last_offset)
    }
}

/// Whether `batch` may come after a batch of `epoch` that ended at `last_sequence`.
fn check_follows(
    batch: &SequencedBatch,
    epoch: ProducerEpoch,
    last_sequence: i32,
    origin: AppendOrigin,
) -> Result<(), SequenceError> {
    let producer_id = batch.producer_id;
    if batch.epoch < epoch {
        return Err(SequenceError::InvalidEpoch { producer_id, current: epoch, found: batch.epoch });
    }
    let expected = if batch.epoch == epoch { next_sequence(last_sequence) } else { 0 };
    check_sequence(batch, expected, origin)
}

fn check_sequence(batch: &SequencedBatch, expected: i32, origin: AppendOrigin) -> Result<(), SequenceError> {
    let (producer_id, found) = (batch.producer_id, batch.first_sequence);
    if origin == AppendOrigin::Client && found != expected {
        return Err(SequenceError::OutOfOrder { producer_id, expected, found });
    }
    Ok(())
}

/// The sequence after `sequence`: 0 follows 2^31-1.
pub fn next_sequence(sequence: i32) -> i32 {
    sequence.checked_add(1).unwrap_or(0)
}

#[cfg(test)]
mod tests;
