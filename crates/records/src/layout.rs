//! The layout of a record batch, version 2, drawn once. All integers are big-endian.
//!
//! ```text
//!  byte  0        8        12       16    17     21      23         27        35        43       51
//!        | base   | length | leader |magic| crc  | attri-| last     | base    | max     |producer|producer|
//!        | offset |        | epoch  |  2  |      | butes | offset   | time-   | time-   | id     | epoch  |
//!        |        |        |        |     |      |       | delta    | stamp   | stamp   |        |        |
//!        |   i64  |   i32  |   i32  | i8  | u32  |  i16  |   i32    |   i64   |   i64   |  i64   |  i16   |
//!
//!  byte 53        57       61
//!        | base   | record | records: `record count` of them, compressed together if the attributes say so
//!        |sequence| count  |
//!        |   i32  |   i32  |
//!
//!  length      bytes after the length field
//!  crc         CRC-32C of everything after the crc field: base offset, length, leader epoch and magic lie
//!              outside, so that the first and the third can be patched in place
//!  attributes  bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon, 7-15 zero
//!
//!  record:     length varint | attributes i8 | timestamp delta varlong | offset delta varint
//!              | key length varint, -1 for none | key | value length varint, -1 for none | value
//!              | header count varint | headers: key length varint | key | value length varint | value
//! ```

/// First offset of the batch.
pub const BASE_OFFSET: usize = 0;
/// Bytes that follow the length field.
pub const LENGTH: usize = BASE_OFFSET + 8;
/// End of the length field: the bytes of a batch beyond its own length.
pub const LENGTH_END: usize = LENGTH + 4;
/// Leader epoch in which the batch was appended.
pub const LEADER_EPOCH: usize = LENGTH_END;
/// Format of the batch.
pub const MAGIC: usize = LEADER_EPOCH + 4;
/// CRC-32C of everything from [`ATTRIBUTES`] on.
pub const CRC: usize = MAGIC + 1;
/// Flags and compression.
pub const ATTRIBUTES: usize = CRC + 4;
/// Last offset of the batch, counted from the base offset.
pub const LAST_OFFSET_DELTA: usize = ATTRIBUTES + 2;
/// Timestamp that the records' deltas count from; the delete horizon if that attribute is set.
pub const BASE_TIMESTAMP: usize = LAST_OFFSET_DELTA + 4;
/// Largest timestamp of the records, or the append time.
pub const MAX_TIMESTAMP: usize = BASE_TIMESTAMP + 8;
/// Idempotent producer, or -1.
pub const PRODUCER_ID: usize = MAX_TIMESTAMP + 8;
/// Epoch of that producer, or -1.
pub const PRODUCER_EPOCH: usize = PRODUCER_ID + 8;
/// Sequence number of the first record, or -1.
pub const BASE_SEQUENCE: usize = PRODUCER_EPOCH + 2;
/// Number of records.
pub const RECORD_COUNT: usize = BASE_SEQUENCE + 4;
/// First byte of the records: the size of the header.
pub const RECORDS: usize = RECORD_COUNT + 4;

/// Bytes of the batch header.
pub const HEADER_BYTES: usize = RECORDS;
/// Smallest value of the length field.
pub const LENGTH_MIN: usize = HEADER_BYTES - LENGTH_END;
/// Bytes of the header that the CRC does not cover, besides the CRC itself.
pub const UNCOVERED_BYTES: usize = CRC;
/// The format this crate reads and writes.
pub const MAGIC_V2: i8 = 2;

/// Attribute bits that name the compression.
pub const COMPRESSION_MASK: i16 = 0b111;
/// Attribute bit: timestamps are the append time.
pub const LOG_APPEND_TIME: i16 = 1 << 3;
/// Attribute bit: part of a transaction.
pub const TRANSACTIONAL: i16 = 1 << 4;
/// Attribute bit: written by the broker for itself (transaction markers).
pub const CONTROL: i16 = 1 << 5;
/// Attribute bit: the base timestamp holds the delete horizon (KIP-534).
pub const DELETE_HORIZON: i16 = 1 << 6;
/// Attribute bits without a meaning.
pub const RESERVED_MASK: i16 = !0b111_1111;

const _: () = assert!(MAGIC == 16);
const _: () = assert!(CRC == 17 && ATTRIBUTES == 21);
const _: () = assert!(PRODUCER_ID == 43);
const _: () = assert!(HEADER_BYTES == 61 && LENGTH_MIN == 49);
