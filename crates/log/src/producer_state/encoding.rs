//! Encoding of the producers' state, for the checkpoint ([`crate::checkpoint`]) and the state file ([`crate::state_file`]),
//! which frame and checksum it.
//!
//! ```text
//! count u32, then per producer, by rising id:
//!   id i64 | epoch i16 | last active i64 | batch count u8, then per batch, oldest first:
//!     first sequence i32 | last sequence i32 | base offset i64 | last offset i64 | timestamp i64
//! ```
//! All big-endian.

use std::sync::Arc;

use riverrun_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{
    BATCHES_PER_PRODUCER, BatchPlace, LastBatches, PRODUCERS_MAX, PackedBatches, ProducerEntry,
    ProducerStates, RememberedBatch,
};
use crate::fields::{DecodeError, FieldReader, put_count};

const BATCH_BYTES: usize = 2 * size_of::<i32>() + 3 * size_of::<i64>();
const PRODUCER_HEAD_BYTES: usize = 2 * size_of::<i64>() + size_of::<i16>() + size_of::<u8>();
const PRODUCER_BYTES_MIN: usize = PRODUCER_HEAD_BYTES + BATCH_BYTES;

/// Producers as they are encoded in the checkpoint's file. A captured state and the dir's memory share the bytes.
///
/// Invariants: empty if there are no producers; otherwise the output of [`ProducerStates::encode`], or bytes from a
/// file whose checksum was right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedProducers(Arc<[u8]>);

impl EncodedProducers {
    /// Whether there are no producers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.0.len());
        out.extend_from_slice(&self.0);
    }

    /// Reads what [`encode`](Self::encode) wrote. The bytes are decoded only when their partition is opened.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let len = reader.count(1, "bytes of the producers")?;
        Ok(Self(reader.bytes(len, "the producers")?.into()))
    }

    /// The producers.
    pub(crate) fn states(&self) -> Result<ProducerStates, DecodeError> {
        if self.is_empty() {
            return Ok(ProducerStates::new());
        }
        let mut reader = FieldReader::new(&self.0);
        let states = ProducerStates::decode(&mut reader)?;
        reader.finish("the end of the producers")?;
        Ok(states)
    }
}

impl ProducerStates {
    /// Bytes of the encoded state at least.
    pub(crate) fn encoded_bytes_min(&self) -> usize {
        self.producers.len() * PRODUCER_BYTES_MIN
    }

    /// Appends the encoded state to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_since(Offset::ZERO, out);
    }

    /// The producers that have appended at or above `from`, unless they take more than `bytes_max`.
    pub(crate) fn encoded_since(&self, from: Offset, bytes_max: usize) -> Option<EncodedProducers> {
        let batches: usize = self.since(from).map(|entry| entry.batches().all().len()).sum();
        let count = self.since(from).count();
        if count == 0 {
            return Some(EncodedProducers::default());
        }
        let size = size_of::<u32>() + count * PRODUCER_HEAD_BYTES + batches * BATCH_BYTES;
        if size > bytes_max {
            return None;
        }
        let mut out = Vec::with_capacity(size);
        self.encode_since(from, &mut out);
        Some(EncodedProducers(out.into()))
    }

    fn encode_since(&self, from: Offset, out: &mut Vec<u8>) {
        put_count(out, self.since(from).count());
        for entry in self.since(from) {
            out.extend_from_slice(&entry.id.0.to_be_bytes());
            out.extend_from_slice(&entry.epoch.0.to_be_bytes());
            out.extend_from_slice(&entry.last_active.0.to_be_bytes());
            let batches = entry.batches();
            let count = u8::try_from(batches.all().len()).expect("at most five batches");
            out.push(count);
            for batch in batches.all() {
                encode_batch(batch, out);
            }
        }
    }

    fn since(&self, from: Offset) -> impl Iterator<Item = &ProducerEntry> {
        self.producers.iter().filter(move |entry| entry.last_offset() >= from)
    }

    /// Reads what [`encode`](Self::encode) wrote; anything that breaks the state's invariants is refused.
    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(PRODUCER_BYTES_MIN, "producer count")?;
        if count > PRODUCERS_MAX {
            return Err(DecodeError::Invalid("producer count"));
        }
        let mut states = Self::new();
        let mut last_id = ProducerId(-1);
        for _ in 0..count {
            let id = ProducerId(reader.i64("producer id")?);
            if id <= last_id {
                return Err(DecodeError::Invalid("producer id"));
            }
            last_id = id;
            states.insert(decode_entry(id, reader)?);
        }
        Ok(states)
    }

    /// Replaces the entries of producers that have appended since.
    pub(crate) fn overlay(&mut self, newer: Self) {
        for entry in newer.producers {
            self.insert(entry);
        }
        while self.producers.len() > self.producers_max {
            self.push_out_longest_silent();
        }
        self.recount();
    }
}

fn encode_batch(batch: &RememberedBatch, out: &mut Vec<u8>) {
    out.extend_from_slice(&batch.first_sequence.to_be_bytes());
    out.extend_from_slice(&batch.last_sequence.to_be_bytes());
    out.extend_from_slice(&batch.place.base_offset.0.to_be_bytes());
    out.extend_from_slice(&batch.place.last_offset.0.to_be_bytes());
    out.extend_from_slice(&batch.place.timestamp.0.to_be_bytes());
}

fn decode_entry(id: ProducerId, reader: &mut FieldReader<'_>) -> Result<ProducerEntry, DecodeError> {
    let epoch = ProducerEpoch(reader.i16("producer epoch")?);
    let last_active = TimestampMs(reader.i64("a producer's last activity")?);
    let count = usize::from(reader.u8("batch count")?);
    if count == 0 || count > BATCHES_PER_PRODUCER {
        return Err(DecodeError::Invalid("batch count"));
    }
    let mut batches = LastBatches::default();
    for _ in 0..count {
        let batch = decode_batch(reader)?;
        if batches.last().is_some_and(|before| before.place.last_offset >= batch.place.base_offset) {
            return Err(DecodeError::Invalid("batch offsets"));
        }
        batches.push(batch);
    }
    Ok(ProducerEntry { id, epoch, packed: PackedBatches::of(&batches), last_active })
}

fn decode_batch(reader: &mut FieldReader<'_>) -> Result<RememberedBatch, DecodeError> {
    let batch = RememberedBatch {
        first_sequence: reader.i32("first sequence")?,
        last_sequence: reader.i32("last sequence")?,
        place: BatchPlace {
            base_offset: Offset(reader.i64("base offset")?),
            last_offset: Offset(reader.i64("last offset")?),
            timestamp: TimestampMs(reader.i64("timestamp")?),
        },
    };
    if batch.place.base_offset.0 < 0 || batch.place.last_offset < batch.place.base_offset {
        return Err(DecodeError::Invalid("batch offsets"));
    }
    Ok(batch)
}
