//! The byte sources of a walk over records: a slice, or a stream that inflates as it is read.
//!
//! Guarantees that reading past the end is an error, and that a skipped field is not held in memory, so a compressed
//! batch is checked with one small buffer whatever its inflated size.

use crate::error::{BatchError, InvalidCause};
use crate::inflate::{Inflate, Piece, new_piece};
use crate::varint::{VARINT_BYTES_MAX, VARLONG_BYTES_MAX, unzigzag, unzigzag_int};

/// Bytes in order, each seen once.
pub(crate) trait Source {
    /// The next byte.
    fn byte(&mut self) -> Result<u8, BatchError>;
    /// Passes over `count` bytes.
    fn skip(&mut self, count: usize) -> Result<(), BatchError>;
    /// Bytes passed so far.
    fn position(&self) -> usize;
    /// Whether there are no more.
    fn at_end(&mut self) -> Result<bool, BatchError>;

    /// A zigzag integer of 32 bits. Padded encodings are read; ones that do not fit are refused.
    #[inline]
    fn varint(&mut self) -> Result<i32, BatchError> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(unzigzag_int(u32::from(first)));
        }
        let raw = self.continue_varint(first, VARINT_BYTES_MAX)?;
        u32::try_from(raw).map(unzigzag_int).map_err(|_| InvalidCause::Varint.into())
    }

    /// A zigzag integer of 64 bits.
    #[inline]
    fn varlong(&mut self) -> Result<i64, BatchError> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(unzigzag(u64::from(first)));
        }
        Ok(unzigzag(self.continue_varint(first, VARLONG_BYTES_MAX)?))
    }

    /// The bytes after the first of an integer that has more than one.
    #[inline]
    fn continue_varint(&mut self, first: u8, bytes_max: u32) -> Result<u64, BatchError> {
        let mut raw = u64::from(first & 0x7f);
        for index in 1..bytes_max {
            let byte = self.byte()?;
            let shift = index * 7;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(InvalidCause::Varint.into());
            }
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(raw);
            }
        }
        Err(InvalidCause::Varint.into())
    }
}

/// Bytes that lie in memory.
///
/// Invariants: `position <= bytes.len()`.
pub(crate) struct SliceSource<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> SliceSource<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Goes on at `position`, which an earlier source over the same bytes has reached.
    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position: position.min(bytes.len()) }
    }
}

impl Source for SliceSource<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, BatchError> {
        let byte = *self.bytes.get(self.position).ok_or(InvalidCause::RecordLength)?;
        self.position += 1;
        Ok(byte)
    }

    #[inline]
    fn skip(&mut self, count: usize) -> Result<(), BatchError> {
        if count > self.bytes.len() - self.position {
            return Err(InvalidCause::RecordLength.into());
        }
        self.position += count;
        Ok(())
    }

    #[inline]
    fn position(&self) -> usize {
        self.position
    }

    fn at_end(&mut self) -> Result<bool, BatchError> {
        Ok(self.position == self.bytes.len())
    }
}

/// Bytes that are inflated on demand.
///
/// Invariants: `start <= end <= buffer.len()`; `buffer[start..end]` is inflated and not yet passed; `passed` is the
/// number of bytes before it.
pub(crate) struct StreamSource<'a> {
    inflate: Inflate<'a>,
    buffer: Box<Piece>,
    start: usize,
    end: usize,
    passed: usize,
}

impl<'a> StreamSource<'a> {
    pub(crate) fn new(inflate: Inflate<'a>) -> Self {
        Self { inflate, buffer: new_piece(), start: 0, end: 0, passed: 0 }
    }

    /// Makes at least one byte available; returns `false` at the end of the stream.
    fn fill(&mut self) -> Result<bool, BatchError> {
        if self.start == self.end {
            self.start = 0;
            self.end = self.inflate.read(&mut self.buffer)?;
        }
        Ok(self.start < self.end)
    }

    fn pass(&mut self, count: usize) {
        self.start += count;
        self.passed += count;
    }
}

impl Source for StreamSource<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, BatchError> {
        if self.start == self.end && !self.fill()? {
            return Err(InvalidCause::RecordLength.into());
        }
        let byte = self.buffer[self.start];
        self.pass(1);
        Ok(byte)
    }

    fn skip(&mut self, count: usize) -> Result<(), BatchError> {
        let mut left = count;
        while left > 0 {
            if !self.fill()? {
                return Err(InvalidCause::RecordLength.into());
            }
            let step = left.min(self.end - self.start);
            self.pass(step);
            left -= step;
        }
        Ok(())
    }

    #[inline]
    fn position(&self) -> usize {
        self.passed
    }

    fn at_end(&mut self) -> Result<bool, BatchError> {
        Ok(!self.fill()?)
    }
}
