//! The header of a batch as a plain copy of its fields, and values derived from them.
//!
//! Parsing checks that the bytes can be a batch of version 2, and not the CRC: scans of trusted files need no more.

use riverrun_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::Compression;
use crate::error::{BatchError, CorruptCause, InvalidCause};
use crate::layout;

/// The meaning of a batch's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// Each record carries its producer's timestamp.
    #[default]
    CreateTime,
    /// All records carry the time at which the broker appended the batch.
    LogAppendTime,
}

/// The header's fields.
///
/// Invariants: the format is version 2 and the length is at least that of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    base_offset: Offset,
    length: i32,
    leader_epoch: LeaderEpoch,
    crc: u32,
    attributes: i16,
    last_offset_delta: i32,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: i32,
    record_count: i32,
}

/// `N` bytes of the header. The header is whole: its length was checked before.
fn field<const N: usize>(header: &[u8; layout::HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

impl BatchHeader {
    /// Reads the header at the beginning of `bytes`, which may end with it or go on.
    ///
    /// Fails if there is less than a header, if the format is not version 2, or if the length field is impossible.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let magic = bytes.get(layout::MAGIC).copied().ok_or(CorruptCause::Cut)? as i8;
        if magic != layout::MAGIC_V2 {
            return Err(BatchError::UnsupportedMagic(magic));
        }
        let header = bytes.first_chunk::<{ layout::HEADER_BYTES }>().ok_or(CorruptCause::Cut)?;
        let parsed = Self::read(header);
        match usize::try_from(parsed.length) {
            Ok(length) if length >= layout::LENGTH_MIN => Ok(parsed),
            _ => Err(CorruptCause::Length(parsed.length).into()),
        }
    }

    fn read(header: &[u8; layout::HEADER_BYTES]) -> Self {
        Self {
            base_offset: Offset(i64::from_be_bytes(field(header, layout::BASE_OFFSET))),
            length: i32::from_be_bytes(field(header, layout::LENGTH)),
            leader_epoch: LeaderEpoch(i32::from_be_bytes(field(header, layout::LEADER_EPOCH))),
            crc: u32::from_be_bytes(field(header, layout::CRC)),
            attributes: i16::from_be_bytes(field(header, layout::ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(header, layout::LAST_OFFSET_DELTA)),
            base_timestamp: TimestampMs(i64::from_be_bytes(field(header, layout::BASE_TIMESTAMP))),
            max_timestamp: TimestampMs(i64::from_be_bytes(field(header, layout::MAX_TIMESTAMP))),
            producer_id: ProducerId(i64::from_be_bytes(field(header, layout::PRODUCER_ID))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(header, layout::PRODUCER_EPOCH))),
            base_sequence: i32::from_be_bytes(field(header, layout::BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(header, layout::RECORD_COUNT)),
        }
    }

    /// Offset of the first record that the batch was made with.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Offset of the last record that the batch was made with; compaction may have removed the record itself.
    /// Saturates, so that a header that lies cannot overflow.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after [`last_offset`](Self::last_offset).
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// Last offset counted from the base offset.
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// Bytes of the whole batch, header and length field included.
    pub fn size_bytes(&self) -> usize {
        layout::LENGTH_END + self.length as usize
    }

    /// Leader epoch in which the batch was appended.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The CRC-32C that the header carries.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// The raw attribute bits; see [`layout`].
    pub fn attributes(&self) -> i16 {
        self.attributes
    }

    /// How the records are compressed; an undefined id is an error.
    pub fn try_compression(&self) -> Result<Compression, BatchError> {
        Compression::from_id((self.attributes & layout::COMPRESSION_MASK) as u8)
    }

    /// The meaning of the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.has(layout::LOG_APPEND_TIME) {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    /// The timestamp that records count theirs from. With [`has_delete_horizon`](Self::has_delete_horizon) it is
    /// that horizon.
    pub fn base_timestamp(&self) -> TimestampMs {
        self.base_timestamp
    }

    /// Largest timestamp in the batch, or its append time.
    pub fn max_timestamp(&self) -> TimestampMs {
        self.max_timestamp
    }

    /// The idempotent producer, or [`ProducerId::NONE`].
    pub fn producer_id(&self) -> ProducerId {
        self.producer_id
    }

    /// Whether an idempotent producer made the batch.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id > ProducerId::NONE
    }

    /// Epoch of the producer id.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        self.producer_epoch
    }

    /// Sequence number of the first record, or -1.
    pub fn base_sequence(&self) -> i32 {
        self.base_sequence
    }

    /// Sequence number of the last record, or -1 where there are none. Wraps from 2^31-1 to 0.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta.max(0))
    }

    /// Number of records that the header claims.
    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Whether the batch is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.has(layout::TRANSACTIONAL)
    }

    /// Whether the batch holds a marker of the broker instead of records.
    pub fn is_control(&self) -> bool {
        self.has(layout::CONTROL)
    }

    /// Whether the base timestamp holds the time from which tombstones in the batch may be dropped (KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.has(layout::DELETE_HORIZON)
    }

    /// That time, if the batch has one.
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// The offset of a record.
    pub(crate) fn offset_at(&self, delta: i32) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(delta)))
    }

    /// The timestamp of a record.
    pub(crate) fn timestamp_at(&self, delta: i64) -> TimestampMs {
        match self.timestamp_type() {
            TimestampType::LogAppendTime => self.max_timestamp,
            // Wraps as every other reader does: compaction writes deltas of more than 63 bits.
            TimestampType::CreateTime => TimestampMs(self.base_timestamp.0.wrapping_add(delta)),
        }
    }

    /// Checks the offset delta of a record, which must lie behind the previous one and inside the batch, and returns
    /// it.
    #[inline]
    pub(crate) fn check_delta(&self, previous: i32, delta: i32) -> Result<i32, BatchError> {
        if delta <= previous || delta > self.last_offset_delta {
            return Err(InvalidCause::OffsetDelta.into());
        }
        Ok(delta)
    }

    fn has(&self, bit: i16) -> bool {
        self.attributes & bit != 0
    }
}

/// The sequence number `count` after `sequence`; both are 0 or more. 2^31-1 is followed by 0.
pub fn increment_sequence(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_wraps_to_zero() {
        assert_eq!(increment_sequence(5, 3), 8);
        assert_eq!(increment_sequence(i32::MAX, 1), 0);
        assert_eq!(increment_sequence(i32::MAX - 1, 4), 2);
        assert_eq!(increment_sequence(i32::MAX, i32::MAX), i32::MAX - 1);
    }
}
