//! Building batches: for producers, for the records that the server writes itself, and for compaction.
//!
//! Records are encoded once, into the buffer that becomes the batch; compression happens at the end. Guarantees that
//! every built batch passes [`UnverifiedBatch::verify`](crate::UnverifiedBatch::verify).

use riverrun_types::limits::{BATCH_RECORDS_MAX, RECORD_HEADERS_MAX};
use riverrun_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::Compression;
use crate::compression::{compress, seal};
use crate::error::{BatchError, Excess, InvalidCause};
use crate::header::{BatchHeader, TimestampType};
use crate::layout;
use crate::patch::put;
use crate::record::{Header, Record};
use crate::varint;

/// Initial capacity of a builder's buffer, in bytes.
const CAPACITY_BYTES: usize = 1024;

/// The fields of a new batch besides its records. The default is a batch of a producer without idempotence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// How the records are compressed.
    pub compression: Compression,
    /// The codec's level; `None` for its default.
    pub level: Option<i32>,
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The idempotent producer.
    pub producer: ProducerStamp,
    /// The meaning of the timestamps.
    pub timestamps: Timestamps,
    /// Part of a transaction.
    pub transactional: bool,
    /// A broker's marker.
    pub control: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            level: None,
            base_offset: Offset::ZERO,
            leader_epoch: LeaderEpoch::UNKNOWN,
            producer: ProducerStamp::NONE,
            timestamps: Timestamps::Create,
            transactional: false,
            control: false,
        }
    }
}

/// Source of a batch's timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timestamps {
    /// From each record.
    Create,
    /// All are the time of the append.
    Append(TimestampMs),
}

/// Producer id, epoch and the sequence number of the first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// The producer id.
    pub id: ProducerId,
    /// Its epoch.
    pub epoch: ProducerEpoch,
    /// Sequence number of the first record.
    pub base_sequence: i32,
}

impl ProducerStamp {
    /// A producer without idempotence.
    pub const NONE: Self = Self { id: ProducerId::NONE, epoch: ProducerEpoch(-1), base_sequence: -1 };
}

/// How compaction writes the records that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetainOptions {
    /// How the records are compressed.
    pub compression: Compression,
    /// The codec's level; `None` for its default.
    pub level: Option<i32>,
    /// The time from which the tombstones in the batch may be dropped (KIP-534).
    pub delete_horizon: Option<TimestampMs>,
}

/// A batch that is being built.
///
/// Invariants: `buffer` is a header's worth of zeros and then `count` encoded records; the last of them has
/// `previous_delta`, which is -1 at first; `base_timestamp` is set before the first record is encoded.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// In compaction: the last offset of the batch whose records are kept.
    retained_last_delta: Option<i32>,
    delete_horizon: Option<TimestampMs>,
    /// In compaction: the largest timestamp of that batch, which holds if no record of it is kept.
    empty_max_timestamp: TimestampMs,
    buffer: Vec<u8>,
    base_timestamp: Option<TimestampMs>,
    max_timestamp: TimestampMs,
    previous_delta: i32,
    count: i32,
}

/// A record on its way into the buffer.
#[derive(Clone, Copy)]
struct Encoding<'a> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl BatchBuilder {
    /// A builder for consecutive records.
    pub fn new(options: BatchOptions) -> Self {
        Self::with_capacity(options, CAPACITY_BYTES)
    }

    /// A builder whose buffer holds `capacity_bytes` before it grows.
    pub fn with_capacity(options: BatchOptions, capacity_bytes: usize) -> Self {
        Self::with_buffer(options, Vec::with_capacity(capacity_bytes.max(layout::HEADER_BYTES)))
    }

    /// A builder that takes over the memory of `buffer`, whose content is forgotten.
    pub fn with_buffer(options: BatchOptions, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(layout::HEADER_BYTES, 0);
        Self {
            options,
            retained_last_delta: None,
            delete_horizon: None,
            empty_max_timestamp: TimestampMs::NONE,
            buffer,
            base_timestamp: None,
            max_timestamp: TimestampMs(i64::MIN),
            previous_delta: -1,
            count: 0,
        }
    }

    /// A builder for some of the records of `source`: offsets, sequence numbers and flags stay the same. The batch
    /// may end up empty, and still keeps its last offset and sequence.
    pub fn retaining(source: &BatchHeader, options: RetainOptions) -> Self {
        let timestamps = match source.timestamp_type() {
            TimestampType::CreateTime => Timestamps::Create,
            TimestampType::LogAppendTime => Timestamps::Append(source.max_timestamp()),
        };
        let mut builder = Self::new(BatchOptions {
            compression: options.compression,
            level: options.level,
            base_offset: source.base_offset(),
            leader_epoch: source.leader_epoch(),
            producer: ProducerStamp {
                id: source.producer_id(),
                epoch: source.producer_epoch(),
                base_sequence: source.base_sequence(),
            },
            timestamps,
            transactional: source.is_transactional(),
            control: source.is_control(),
        });
        builder.retained_last_delta = Some(source.last_offset_delta());
        builder.delete_horizon = options.delete_horizon;
        builder.base_timestamp = options.delete_horizon;
        builder.empty_max_timestamp = source.max_timestamp();
        builder
    }

    /// Appends a record at the next offset and returns that offset, counted from the base offset.
    ///
    /// Fails if the batch or the record's headers are full, or if lengths or timestamps are too far apart for the
    /// format; the builder is unchanged then.
    pub fn append(
        &mut self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<i32, BatchError> {
        if headers.len() > RECORD_HEADERS_MAX as usize {
            return Err(BatchError::TooLarge { excess: Excess::Headers, limit: RECORD_HEADERS_MAX as usize });
        }
        self.check_room()?;
        let offset_delta = self.previous_delta + 1;
        let timestamp_delta = timestamp
            .0
            .checked_sub(self.base_timestamp.unwrap_or(timestamp).0)
            .ok_or(BatchError::InvalidTimestamp { timestamp, record: offset_delta })?;
        let encoding = Encoding { timestamp_delta, offset_delta, key, value };
        let body_bytes = fields_bytes(&encoding) + headers_bytes(headers);
        check_record_bytes(body_bytes)?;
        self.put_fields(&encoding, body_bytes);
        put_headers(&mut self.buffer, headers);
        self.finish_record(timestamp, offset_delta);
        Ok(offset_delta)
    }

    /// Appends a record of another batch, at the offset that it has there. Its headers are copied as they are.
    ///
    /// Fails if the batch is full, and if the offset is not after the previous one or lies outside
    /// the batch that is being retained.
    pub fn append_record(&mut self, record: &Record<'_>) -> Result<i32, BatchError> {
        let offset_delta = record
            .offset
            .0
            .checked_sub(self.options.base_offset.0)
            .and_then(|delta| i32::try_from(delta).ok())
            .filter(|delta| *delta > self.previous_delta)
            .filter(|delta| self.retained_last_delta.is_none_or(|last| *delta <= last))
            .ok_or(InvalidCause::OffsetDelta)?;
        self.check_room()?;
        let base = self.base_timestamp.unwrap_or(record.timestamp);
        // Wraps as readers do, so that each timestamp comes back however far it lies from the base, which may be a
        // delete horizon.
        let timestamp_delta = record.timestamp.0.wrapping_sub(base.0);
        let encoding = Encoding { timestamp_delta, offset_delta, key: record.key, value: record.value };
        let count_bytes = varint::encoded_bytes(record.header_count as i64);
        let body_bytes = fields_bytes(&encoding) + count_bytes + record.header_bytes.len();
        check_record_bytes(body_bytes)?;
        self.put_fields(&encoding, body_bytes);
        varint::put(&mut self.buffer, record.header_count as i64);
        self.buffer.extend_from_slice(record.header_bytes);
        self.finish_record(record.timestamp, offset_delta);
        Ok(offset_delta)
    }

    fn check_room(&self) -> Result<(), BatchError> {
        if self.count >= BATCH_RECORDS_MAX {
            return Err(BatchError::TooLarge { excess: Excess::Records, limit: BATCH_RECORDS_MAX as usize });
        }
        Ok(())
    }

    fn put_fields(&mut self, encoding: &Encoding<'_>, body_bytes: usize) {
        let out = &mut self.buffer;
        out.reserve(varint::encoded_bytes(body_bytes as i64) + body_bytes);
        varint::put(out, body_bytes as i64);
        out.push(0);
        varint::put(out, encoding.timestamp_delta);
        varint::put(out, i64::from(encoding.offset_delta));
        put_field(out, encoding.key);
        put_field(out, encoding.value);
    }

    fn finish_record(&mut self, timestamp: TimestampMs, offset_delta: i32) {
        self.base_timestamp.get_or_insert(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.previous_delta = offset_delta;
        self.count += 1;
    }

    /// Number of records so far.
    pub fn record_count(&self) -> i32 {
        self.count
    }

    /// Whether there are no records yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch so far, header included, as if it were not compressed.
    pub fn size_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of memory that the batch has so far, header included; the unused part is room for further records.
    pub fn capacity_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Bytes of the batch so far if its records compress to `ratio` of their size, 1.0 for not at all.
    #[expect(clippy::cast_possible_truncation, reason = "an estimate, and far below 2^52")]
    pub fn estimated_size_bytes(&self, ratio: f64) -> usize {
        let records_bytes = (self.buffer.len() - layout::HEADER_BYTES) as f64;
        layout::HEADER_BYTES + (records_bytes * ratio) as usize
    }

    /// Bytes by which [`size_bytes`](Self::size_bytes) would grow with this record.
    pub fn record_size_bytes(
        &self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> usize {
        let base = self.base_timestamp.unwrap_or(timestamp);
        let encoding = Encoding {
            timestamp_delta: timestamp.0.wrapping_sub(base.0),
            offset_delta: self.previous_delta + 1,
            key,
            value,
        };
        let body_bytes = fields_bytes(&encoding) + headers_bytes(headers);
        varint::encoded_bytes(body_bytes as i64) + body_bytes
    }

    /// Sets producer id, epoch and sequence, which a producer knows only when the batch is about to be sent.
    pub fn set_producer(&mut self, producer: ProducerStamp) {
        self.options.producer = producer;
    }

    /// The finished batch. Without records it is an error, unless the builder retains part of another batch.
    pub fn build(self) -> Result<Vec<u8>, BatchError> {
        self.build_and_buffer().map(|(batch, _)| batch)
    }

    /// As [`build`](Self::build), with the buffer that the records were written into; `None` if that is the batch
    /// itself.
    pub fn build_and_buffer(mut self) -> Result<(Vec<u8>, Option<Vec<u8>>), BatchError> {
        if self.is_empty() && self.retained_last_delta.is_none() {
            return Err(InvalidCause::Empty.into());
        }
        let compression = if self.is_empty() { Compression::None } else { self.options.compression };
        let header = self.header(compression);
        let (mut batch, buffer) = if compression == Compression::None {
            (std::mem::take(&mut self.buffer), None)
        } else {
            let mut out = Vec::with_capacity(layout::HEADER_BYTES + self.buffer.len() / 2);
            out.resize(layout::HEADER_BYTES, 0);
            let level = self.options.level.unwrap_or(compression.default_level());
            compress(compression, level, &self.buffer[layout::HEADER_BYTES..], &mut out)?;
            (out, Some(std::mem::take(&mut self.buffer)))
        };
        batch[..layout::HEADER_BYTES].copy_from_slice(&header);
        seal(&mut batch)?;
        Ok((batch, buffer))
    }

    /// The header without its length and CRC.
    fn header(&self, compression: Compression) -> [u8; layout::HEADER_BYTES] {
        let options = &self.options;
        let base_timestamp = self.base_timestamp.unwrap_or(TimestampMs::NONE);
        let mut header = [0; layout::HEADER_BYTES];
        put(&mut header, layout::BASE_OFFSET, options.base_offset.0.to_be_bytes());
        put(&mut header, layout::LEADER_EPOCH, options.leader_epoch.0.to_be_bytes());
        put(&mut header, layout::MAGIC, layout::MAGIC_V2.to_be_bytes());
        put(&mut header, layout::ATTRIBUTES, self.attributes(compression).to_be_bytes());
        let last_delta = self.retained_last_delta.unwrap_or(self.previous_delta);
        put(&mut header, layout::LAST_OFFSET_DELTA, last_delta.to_be_bytes());
        put(&mut header, layout::BASE_TIMESTAMP, base_timestamp.0.to_be_bytes());
        put(&mut header, layout::MAX_TIMESTAMP, self.header_max_timestamp().0.to_be_bytes());
        put(&mut header, layout::PRODUCER_ID, options.producer.id.0.to_be_bytes());
        put(&mut header, layout::PRODUCER_EPOCH, options.producer.epoch.0.to_be_bytes());
        put(&mut header, layout::BASE_SEQUENCE, options.producer.base_sequence.to_be_bytes());
        put(&mut header, layout::RECORD_COUNT, self.count.to_be_bytes());
        header
    }

    fn header_max_timestamp(&self) -> TimestampMs {
        match self.options.timestamps {
            Timestamps::Append(now) => now,
            Timestamps::Create if self.is_empty() => self.empty_max_timestamp,
            Timestamps::Create => self.max_timestamp,
        }
    }

    fn attributes(&self, compression: Compression) -> i16 {
        let flag = |set: bool, bit: i16| if set { bit } else { 0 };
        i16::from(compression.id())
            | flag(matches!(self.options.timestamps, Timestamps::Append(_)), layout::LOG_APPEND_TIME)
            | flag(self.options.transactional, layout::TRANSACTIONAL)
            | flag(self.options.control, layout::CONTROL)
            | flag(self.delete_horizon.is_some(), layout::DELETE_HORIZON)
    }
}

/// Encoded size of a record's fields up to its headers, without the record's own length.
fn fields_bytes(encoding: &Encoding<'_>) -> usize {
    1 + varint::encoded_bytes(encoding.timestamp_delta)
        + varint::encoded_bytes(i64::from(encoding.offset_delta))
        + field_bytes(encoding.key)
        + field_bytes(encoding.value)
}

fn headers_bytes(headers: &[Header<'_>]) -> usize {
    varint::encoded_bytes(headers.len() as i64)
        + headers
            .iter()
            .map(|header| field_bytes(Some(header.key)) + field_bytes(header.value))
            .sum::<usize>()
}

fn field_bytes(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint::encoded_bytes(bytes.len() as i64) + bytes.len())
}

/// The format counts a record's bytes in 31 bits.
fn check_record_bytes(body_bytes: usize) -> Result<(), BatchError> {
    if body_bytes > i32::MAX as usize {
        return Err(BatchError::TooLarge { excess: Excess::Bytes, limit: i32::MAX as usize });
    }
    Ok(())
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => varint::put(out, -1),
        Some(bytes) => {
            varint::put(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

fn put_headers(out: &mut Vec<u8>, headers: &[Header<'_>]) {
    varint::put(out, headers.len() as i64);
    for header in headers {
        put_field(out, Some(header.key));
        put_field(out, header.value);
    }
}
