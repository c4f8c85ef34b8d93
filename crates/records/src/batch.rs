//! The typed states of a batch: bytes of known length, then bytes whose CRC and header are right.
//!
//! Guarantees that the bytes of a [`Batch`] are those that a producer or broker has made: the checksum fits and the
//! header does not contradict itself. Readers of the records check these later.

use std::ops::Deref;

use crate::Compression;
use crate::error::{BatchError, CorruptCause, InvalidCause};
use crate::header::BatchHeader;
use crate::layout;
use crate::record::BatchRecords;

/// The bytes of exactly one batch of some format, of which only the length was checked.
#[derive(Clone, Copy, Debug)]
pub struct UnverifiedBatch<'a> {
    bytes: &'a [u8],
}

impl<'a> UnverifiedBatch<'a> {
    /// Splits the first batch from `bytes`, by its length field.
    ///
    /// Fails with [`CorruptCause::Cut`] if the batch reaches past the end, and with [`CorruptCause::Length`] if no
    /// batch can have that length, so that a loop over batches always makes progress.
    pub fn split_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BatchError> {
        let prefix = bytes.first_chunk::<{ layout::LENGTH_END }>().ok_or(CorruptCause::Cut)?;
        let length = prefix.last_chunk::<4>().map_or(0, |field| i32::from_be_bytes(*field));
        // The magic of every format lies at the same place, and decides the error for a short rest.
        let reaches_magic = layout::MAGIC + 1 - layout::LENGTH_END;
        let size = usize::try_from(length)
            .ok()
            .filter(|length| *length >= reaches_magic)
            .map(|length| length.saturating_add(layout::LENGTH_END))
            .ok_or(CorruptCause::Length(length))?;
        let (bytes, rest) = bytes.split_at_checked(size).ok_or(CorruptCause::Cut)?;
        Ok((Self { bytes }, rest))
    }

    /// The single batch that `bytes` consist of, as a produce request carries it.
    pub fn only(bytes: &'a [u8]) -> Result<Self, BatchError> {
        if bytes.is_empty() {
            return Err(InvalidCause::Empty.into());
        }
        let (batch, rest) = Self::split_first(bytes)?;
        if rest.is_empty() { Ok(batch) } else { Err(InvalidCause::TrailingBytes.into()) }
    }

    /// The batch's bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Checks format, CRC, attributes and counts. A batch that compaction has emptied passes; see
    /// [`validate_produced`](crate::validate_produced) for the rules of produced batches.
    pub fn verify(self) -> Result<Batch<'a>, BatchError> {
        let header = BatchHeader::parse(self.bytes)?;
        let computed = crc32c::crc32c(&self.bytes[layout::ATTRIBUTES..]);
        if computed != header.crc() {
            return Err(CorruptCause::Checksum { stored: header.crc(), computed }.into());
        }
        self.accept(header)
    }

    /// As [`verify`](Self::verify), without the CRC: for bytes that cannot have changed since it was computed, such
    /// as memory that another process of this machine has just written.
    #[inline]
    pub fn trust(self) -> Result<Batch<'a>, BatchError> {
        self.accept(BatchHeader::parse(self.bytes)?)
    }

    #[inline]
    fn accept(self, header: BatchHeader) -> Result<Batch<'a>, BatchError> {
        if header.attributes() & layout::RESERVED_MASK != 0 {
            return Err(InvalidCause::ReservedAttributes.into());
        }
        let compression = header.try_compression()?;
        check_counts(&header)?;
        Ok(Batch { bytes: self.bytes, header, compression })
    }
}

/// Refuses counts that no batch can have, whatever compaction has removed from it.
fn check_counts(header: &BatchHeader) -> Result<(), BatchError> {
    if header.record_count() < 0 {
        return Err(InvalidCause::RecordCount.into());
    }
    if header.last_offset_delta() < 0 || header.last_offset_delta() < header.record_count() - 1 {
        return Err(InvalidCause::LastOffsetDelta.into());
    }
    Ok(())
}

/// A batch whose CRC is right, or was trusted, and whose header makes sense. It answers for its header's fields directly.
///
/// Invariants: `bytes` are one whole batch of version 2, `header` is a copy of its header, `compression` is the codec
/// of its attributes, and no reserved attribute bit is set.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    header: BatchHeader,
    compression: Compression,
}

impl<'a> Batch<'a> {
    /// A copy of the header's fields.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How the records are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Whether [`payload`](Self::payload) is a stream. A batch that compaction has emptied has none, whatever its
    /// codec.
    pub(crate) fn is_compressed(&self) -> bool {
        let is_emptied = self.header.record_count() == 0 && self.payload().is_empty();
        self.compression != Compression::None && !is_emptied
    }

    /// The records' bytes as they lie in the batch, compressed or not.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[layout::RECORDS..]
    }

    /// The records, inflated within [`INFLATE_STORED_BYTES_MAX`](riverrun_types::limits::INFLATE_STORED_BYTES_MAX)
    /// if they are compressed. Nothing is allocated if they are not.
    pub fn records(&self) -> Result<BatchRecords<'a>, BatchError> {
        BatchRecords::open(self)
    }
}

impl Deref for Batch<'_> {
    type Target = BatchHeader;

    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

/// Consecutive batches in memory. Ends after the first error, because the next batch has no known beginning then.
///
/// Invariants: `rest` begins with a batch, or is empty.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Batches<'a> {
    /// Iterates over the batches in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<UnverifiedBatch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match UnverifiedBatch::split_first(self.rest) {
            Ok((batch, rest)) => {
                self.rest = rest;
                Some(Ok(batch))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}
