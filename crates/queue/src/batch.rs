//! Writing batches in place: header and record around a value that the user fills or gives.
//!
//! Guarantees the bytes that `riverrun_records` would build for the same records. Allocates nothing. The
//! sizes are computed before anything is written, so that room can be made.

use riverrun_records::{Header, layout};
use riverrun_types::{LeaderEpoch, Offset};

use crate::crc;

/// Longest encoding of the integers here: lengths below 2^31 and timestamps.
const VARLONG_BYTES_MAX: usize = 10;
/// Bytes before a value that has neither key nor headers, at most: batch header, record length, attributes,
/// timestamp and offset delta, no key, value length.
pub(crate) const PREFIX_BYTES_MAX: usize = layout::HEADER_BYTES + 5 + 1 + 1 + 1 + 1 + 5;

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint_bytes(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn field_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint_bytes(bytes.len() as i64) + bytes.len())
}

/// Writes into a slice from its beginning on.
///
/// Invariants: `at <= bytes.len()`. Callers have computed the sizes beforehand, so a panic here is a mistake in this
/// file.
pub(crate) struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    fn put_varint(&mut self, value: i64) {
        let mut raw = zigzag(value);
        let mut encoded = [0; VARLONG_BYTES_MAX];
        let mut len = 0;
        while raw >= 0x80 {
            encoded[len] = raw as u8 | 0x80;
            raw >>= 7;
            len += 1;
        }
        encoded[len] = raw as u8;
        self.put(&encoded[..=len]);
    }

    fn put_field(&mut self, field: Option<&[u8]>) {
        self.put_varint(field.map_or(-1, |bytes| bytes.len() as i64));
        self.put(field.unwrap_or_default());
    }
}

/// A record without its value's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) key: Option<&'a [u8]>,
    /// Length of the value; `None` for a record without one.
    pub(crate) value_bytes: Option<usize>,
    pub(crate) headers: &'a [Header<'a>],
    /// Counted from the batch's base timestamp.
    pub(crate) timestamp_delta: i64,
    /// Counted from the batch's base offset.
    pub(crate) offset_delta: i32,
}

impl Shape<'_> {
    /// Bytes after the record's length field.
    fn body_bytes(&self) -> usize {
        let value = self.value_bytes.map_or(1, |len| varint_bytes(len as i64) + len);
        let headers: usize =
            self.headers.iter().map(|header| field_bytes(Some(header.key)) + field_bytes(header.value)).sum();
        1 + varint_bytes(self.timestamp_delta)
            + varint_bytes(i64::from(self.offset_delta))
            + field_bytes(self.key)
            + value
            + varint_bytes(self.headers.len() as i64)
            + headers
    }

    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        let body = self.body_bytes();
        varint_bytes(body as i64) + body
    }

    /// Writes the fields before the value.
    #[inline]
    pub(crate) fn put_before_value(&self, out: &mut Cursor<'_>) {
        out.put_varint(self.body_bytes() as i64);
        out.put(&[0]);
        out.put_varint(self.timestamp_delta);
        out.put_varint(i64::from(self.offset_delta));
        out.put_field(self.key);
        out.put_varint(self.value_bytes.map_or(-1, |len| len as i64));
    }

    /// Writes the fields after the value.
    pub(crate) fn put_after_value(&self, out: &mut Cursor<'_>) {
        out.put_varint(self.headers.len() as i64);
        for header in self.headers {
            out.put_field(Some(header.key));
            out.put_field(header.value);
        }
    }
}

/// The fields of a batch header that differ from batch to batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchFields {
    pub(crate) base_offset: Offset,
    pub(crate) epoch: LeaderEpoch,
    pub(crate) size_bytes: usize,
    pub(crate) record_count: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
}

impl BatchFields {
    /// Writes the header except the CRC, which is left zero.
    #[inline]
    pub(crate) fn put(&self, header: &mut [u8; layout::HEADER_BYTES]) {
        let mut set = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
        set(layout::BASE_OFFSET, &self.base_offset.0.to_be_bytes());
        set(layout::LENGTH, &((self.size_bytes - layout::LENGTH_END) as i32).to_be_bytes());
        set(layout::LEADER_EPOCH, &self.epoch.0.to_be_bytes());
        set(layout::MAGIC, &layout::MAGIC_V2.to_be_bytes());
        set(layout::CRC, &[0; layout::ATTRIBUTES - layout::CRC + 2]);
        set(layout::LAST_OFFSET_DELTA, &(self.record_count - 1).to_be_bytes());
        set(layout::BASE_TIMESTAMP, &self.base_timestamp.to_be_bytes());
        set(layout::MAX_TIMESTAMP, &self.max_timestamp.to_be_bytes());
        // No producer: id, epoch and sequence are -1.
        set(layout::PRODUCER_ID, &[0xff; layout::RECORD_COUNT - layout::PRODUCER_ID]);
        set(layout::RECORD_COUNT, &self.record_count.to_be_bytes());
    }
}

/// Sets the CRC of a batch that is complete otherwise.
pub(crate) fn seal(batch: &mut [u8]) {
    let checksum = crc::extend(0, &batch[layout::ATTRIBUTES..]);
    batch[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&checksum.to_be_bytes());
}
