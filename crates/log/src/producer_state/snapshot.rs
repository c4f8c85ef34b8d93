//! Encoding of the producers' state, for the snapshot file that [`crate::checkpoint`] frames and checksums.
//!
//! ```text
//! count u32, then per producer, by rising id:
//!   id i64 | epoch i16 | last active i64 | batch count u8, then per batch, oldest first:
//!     first sequence i32 | last sequence i32 | base offset i64 | last offset i64 | timestamp i64
//! ```
//! All big-endian.

use std::collections::VecDeque;

use riverrun_types::{Offset, ProducerEpoch, ProducerId, TimestampMs};

use super::{
    BATCHES_PER_PRODUCER, BatchPlace, PRODUCERS_MAX, ProducerEntry, ProducerStates, RememberedBatch,
};
use crate::fields::{DecodeError, FieldReader, put_count};

const BATCH_BYTES: usize = 2 * size_of::<i32>() + 3 * size_of::<i64>();
const PRODUCER_BYTES_MIN: usize = 2 * size_of::<i64>() + size_of::<i16>() + size_of::<u8>() + BATCH_BYTES;

impl ProducerStates {
    /// Appends the encoded state to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_count(out, self.producers.len());
        for (id, entry) in &self.producers {
            out.extend_from_slice(&id.0.to_be_bytes());
            out.extend_from_slice(&entry.epoch.0.to_be_bytes());
            out.extend_from_slice(&entry.last_active.0.to_be_bytes());
            let count = u8::try_from(entry.batches.len()).expect("at most five batches");
            out.push(count);
            for batch in &entry.batches {
                encode_batch(batch, out);
            }
        }
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
            states.producers.insert(id, decode_entry(reader)?);
        }
        Ok(states)
    }
}

fn encode_batch(batch: &RememberedBatch, out: &mut Vec<u8>) {
    out.extend_from_slice(&batch.first_sequence.to_be_bytes());
    out.extend_from_slice(&batch.last_sequence.to_be_bytes());
    out.extend_from_slice(&batch.place.base_offset.0.to_be_bytes());
    out.extend_from_slice(&batch.place.last_offset.0.to_be_bytes());
    out.extend_from_slice(&batch.place.timestamp.0.to_be_bytes());
}

fn decode_entry(reader: &mut FieldReader<'_>) -> Result<ProducerEntry, DecodeError> {
    let epoch = ProducerEpoch(reader.i16("producer epoch")?);
    let last_active = TimestampMs(reader.i64("a producer's last activity")?);
    let count = usize::from(reader.u8("batch count")?);
    if count == 0 || count > BATCHES_PER_PRODUCER {
        return Err(DecodeError::Invalid("batch count"));
    }
    let mut batches: VecDeque<RememberedBatch> = VecDeque::with_capacity(BATCHES_PER_PRODUCER);
    for _ in 0..count {
        let batch = decode_batch(reader)?;
        if batches.back().is_some_and(|before| before.place.last_offset >= batch.place.base_offset) {
            return Err(DecodeError::Invalid("batch offsets"));
        }
        batches.push_back(batch);
    }
    Ok(ProducerEntry { epoch, batches, last_active })
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
