//! The fields of a batch that change after its producer has made it, patched in place.
//!
//! Base offset and leader epoch lie outside the CRC. The others do not, and patching them computes the CRC again.
//! Every function expects one whole batch, as a [`Batch`](crate::Batch) has shown it to be, and panics if the
//! slice is shorter than a header.

use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use crate::builder::ProducerStamp;
use crate::layout;

/// Writes the offset of the first record.
pub fn patch_base_offset(batch: &mut [u8], offset: Offset) {
    put(batch, layout::BASE_OFFSET, offset.0.to_be_bytes());
}

/// Writes the leader epoch.
pub fn patch_leader_epoch(batch: &mut [u8], epoch: LeaderEpoch) {
    put(batch, layout::LEADER_EPOCH, epoch.0.to_be_bytes());
}

/// Makes `now` the timestamp of every record, and computes the CRC again.
pub fn patch_log_append_time(batch: &mut [u8], now: TimestampMs) {
    let attributes = i16::from_be_bytes([batch[layout::ATTRIBUTES], batch[layout::ATTRIBUTES + 1]]);
    put(batch, layout::ATTRIBUTES, (attributes | layout::LOG_APPEND_TIME).to_be_bytes());
    patch_max_timestamp(batch, now);
}

/// Corrects the header's largest timestamp, and computes the CRC again.
pub fn patch_max_timestamp(batch: &mut [u8], timestamp: TimestampMs) {
    put(batch, layout::MAX_TIMESTAMP, timestamp.0.to_be_bytes());
    patch_crc(batch);
}

/// Gives the batch its producer id, epoch and sequence, and computes the CRC again.
pub fn patch_producer(batch: &mut [u8], producer: ProducerStamp) {
    put(batch, layout::PRODUCER_ID, producer.id.0.to_be_bytes());
    put(batch, layout::PRODUCER_EPOCH, producer.epoch.0.to_be_bytes());
    put(batch, layout::BASE_SEQUENCE, producer.base_sequence.to_be_bytes());
    patch_crc(batch);
}

/// Computes the CRC of the bytes after it and writes it.
pub(crate) fn patch_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[layout::ATTRIBUTES..]);
    put(batch, layout::CRC, crc.to_be_bytes());
}

/// CRC-32C of the header's bytes that the batch's own CRC does not cover (base offset, length, leader epoch,
/// magic), going on from `previous`, 0 at first. The log keeps it in its index, so that a flipped bit there is
/// found too.
pub fn uncovered_checksum(previous: u32, header: &[u8]) -> u32 {
    crc32c::crc32c_append(previous, &header[..layout::UNCOVERED_BYTES])
}

pub(crate) fn put<const N: usize>(batch: &mut [u8], at: usize, bytes: [u8; N]) {
    batch[at..at + N].copy_from_slice(&bytes);
}
