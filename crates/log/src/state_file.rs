//! The state file of a partition: its state at one offset that must be known without the log below it, which are its
//! leader epochs and its idempotent producers.
//!
//! One lies beside each sealed segment, written at the segment's end, so that the segment can be used without those
//! before it. If a checkpoint has no room for the producers, it names the state file of the offset that it goes on
//! from.
//!
//! ```text
//! <offset, 20 digits>.state
//!   magic "RRlstate"          8
//!   version                   u16
//!   topic id                  16
//!   partition index           i32
//!   offset                    i64
//!   leader epochs that began below the offset (epochs.rs)
//!   producers of the batches below the offset (producer_state/encoding.rs)
//!   CRC-32C of all before     u32
//! ```
//! All big-endian. The version rises with each change of layout; a newer one is refused by name.
//!
//! A state file is made anew from the state file before it and from the headers of the batches since, so a damaged or a
//! missing one costs nothing but that, as long as these batches exist.
//!
//! Guarantees: a flipped, missing or added byte is found; decoding is bounded by the length of the input; the state of
//! another partition or another offset is refused, and so is one with records at its offset or beyond. The caller
//! writes and syncs.

use riverrun_types::{Offset, PartitionId};

use crate::checkpoint::{open, put_partition_id, read_partition_id, required, seal};
use crate::epochs::EpochCache;
use crate::fields::DecodeError;
use crate::file_names::STATE_SUFFIX;
use crate::producer_state::ProducerStates;

/// Newest layout of the state file that this program reads, and the one that it writes.
pub const STATE_VERSION: u16 = 1;
/// A state file in bytes at most: ten thousand producers take less than two megabytes.
pub(crate) const STATE_BYTES_MAX: u64 = 16 * 1024 * 1024;

const STATE_NAME: &str = "a state file";
const STATE_MAGIC: [u8; 8] = *b"RRlstate";

/// A partition's epochs and producers as of one offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// The leader epochs that began below the offset.
    pub epochs: EpochCache,
    /// The producers of the batches below the offset.
    pub producers: ProducerStates,
}

/// Name of the file that holds the state as of `offset`.
pub fn state_file(offset: Offset) -> String {
    format!("{:020}{STATE_SUFFIX}", offset.0)
}

/// Content of the state file of `partition` as of `offset`. Neither epochs nor producers know of anything at or beyond it.
pub fn encode_state(
    partition: PartitionId,
    offset: Offset,
    epochs: &EpochCache,
    producers: &ProducerStates,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + producers.encoded_bytes_min());
    out.extend_from_slice(&STATE_MAGIC);
    out.extend_from_slice(&STATE_VERSION.to_be_bytes());
    put_partition_id(partition, &mut out);
    out.extend_from_slice(&offset.0.to_be_bytes());
    epochs.encode(&mut out);
    producers.encode(&mut out);
    seal(out)
}

/// Reads a state file and makes sure that it is the one of `partition` as of `offset`.
pub fn decode_state(bytes: &[u8], partition: PartitionId, offset: Offset) -> Result<LogState, DecodeError> {
    let (_, mut reader) = open(bytes, STATE_MAGIC, STATE_VERSION, STATE_NAME)?;
    if read_partition_id(&mut reader)? != partition {
        return Err(DecodeError::Invalid("the state's partition"));
    }
    if required(&mut reader, "the state's offset")? != offset {
        return Err(DecodeError::Invalid("the state's offset"));
    }
    let epochs = EpochCache::decode(&mut reader)?;
    if epochs.latest().is_some_and(|latest| latest.start_offset >= offset) {
        return Err(DecodeError::Invalid("leader epoch"));
    }
    let producers = ProducerStates::decode(&mut reader)?;
    if producers.has_from(offset) {
        return Err(DecodeError::Invalid("batch offsets"));
    }
    reader.finish("the end of the state")?;
    Ok(LogState { epochs, producers })
}

#[cfg(test)]
mod tests;
