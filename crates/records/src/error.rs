//! The errors of batches. The variants are the classes that a broker answers differently; the causes inside them are
//! for people and for tests.

use riverrun_types::{ErrorKind, TimestampMs};
use thiserror::Error;

use crate::Compression;

/// A batch that cannot be used, or cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes differ from those once written: damaged or cut.
    #[error("corrupt batch: {0}")]
    Corrupt(CorruptCause),
    /// The bytes are whole, but contradict themselves or break a rule.
    #[error("invalid batch: {0}")]
    Invalid(InvalidCause),
    /// More than a bound allows.
    #[error("batch too large: more than {limit} {excess}")]
    TooLarge {
        /// The things that are too many.
        excess: Excess,
        /// The bound.
        limit: usize,
    },
    /// Another batch format than version 2.
    #[error("batch format {0} is not supported, only 2 is")]
    UnsupportedMagic(i8),
    /// A compression id that is not defined.
    #[error("compression type {0} is unknown")]
    UnsupportedCompression(u8),
    /// A level that the codec does not have.
    #[error("{compression} has no level {level}")]
    UnsupportedLevel {
        /// The codec.
        compression: Compression,
        /// The requested level.
        level: i32,
    },
    /// A record's timestamp lies outside the allowed range, or a producer claims to know the append time.
    #[error("timestamp {} of record {record} is not allowed here", .timestamp.0)]
    InvalidTimestamp {
        /// The first that is not allowed.
        timestamp: TimestampMs,
        /// Its record, counted from 0 in the batch.
        record: i32,
    },
    /// An encoder failed. Its target is memory, so there was none left.
    #[error("{0} failed to compress")]
    CompressFailed(Compression),
}

/// Why a batch is corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CorruptCause {
    /// Fewer bytes than the batch says it has.
    #[error("cut short")]
    Cut,
    /// A length field too small for any batch.
    #[error("impossible length {0}")]
    Length(i32),
    /// The checksum differs.
    #[error("checksum is {computed:08x}, the header says {stored:08x}")]
    Checksum {
        /// The header's.
        stored: u32,
        /// The bytes'.
        computed: u32,
    },
    /// The compressed stream is garbled or cut.
    #[error("bad {0} stream")]
    Stream(Compression),
}

/// Why a batch is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidCause {
    /// Attribute bits that have no meaning.
    #[error("reserved attribute bits")]
    ReservedAttributes,
    /// Only a broker writes control batches.
    #[error("control batch from a client")]
    ControlBatch,
    /// Only a broker sets a delete horizon.
    #[error("delete horizon from a client")]
    DeleteHorizon,
    /// A client's batch begins at offset 0: the broker gives the real one.
    #[error("base offset is not 0")]
    BaseOffset,
    /// Negative, or not the number of records in the batch.
    #[error("wrong record count")]
    RecordCount,
    /// Negative, or not the record count less one where no record may be missing.
    #[error("wrong last offset delta")]
    LastOffsetDelta,
    /// Offset deltas out of order or out of range.
    #[error("wrong offset delta in a record")]
    OffsetDelta,
    /// No records where at least one is needed.
    #[error("empty batch")]
    Empty,
    /// A producer id without an epoch and a sequence, or a transaction without a producer id.
    #[error("wrong producer id, epoch or sequence")]
    Producer,
    /// A record's length differs from that of its fields.
    #[error("wrong record length")]
    RecordLength,
    /// A key or value length that is negative or reaches past its record.
    #[error("wrong key or value length")]
    FieldLength,
    /// A header count that is negative or out of bounds.
    #[error("wrong header count")]
    HeaderCount,
    /// A variable-length integer that does not end where it must.
    #[error("overlong integer")]
    Varint,
    /// Bytes after the last record, or after the only batch.
    #[error("trailing bytes")]
    TrailingBytes,
    /// A compacted topic takes only records with a key.
    #[error("record without a key")]
    MissingKey,
}

/// The things that are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Excess {
    /// Bytes after inflating.
    #[error("inflated bytes")]
    InflatedBytes,
    /// Records in one batch.
    #[error("records")]
    Records,
    /// Headers on one record.
    #[error("headers")]
    Headers,
    /// Bytes of one batch.
    #[error("bytes")]
    Bytes,
}

impl BatchError {
    /// Whether the bytes themselves are wrong. Otherwise they exceed a bound or an encoder's memory, and may be
    /// sound.
    pub fn is_damage(self) -> bool {
        !matches!(self, Self::TooLarge { .. } | Self::CompressFailed(_))
    }

    /// The right reaction of the caller. Wrong bytes stay wrong, so all but a failing encoder ask for other bytes.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::CompressFailed(_) => ErrorKind::GiveUp,
            _ => ErrorKind::FixRequest,
        }
    }
}

impl From<CorruptCause> for BatchError {
    fn from(cause: CorruptCause) -> Self {
        Self::Corrupt(cause)
    }
}

impl From<InvalidCause> for BatchError {
    fn from(cause: InvalidCause) -> Self {
        Self::Invalid(cause)
    }
}
