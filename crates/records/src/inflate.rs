//! Inflating within a bound.
//!
//! There are two bounds, both absolute: one for what a client sends, and a wider one for what is stored. So whatever
//! was accepted can be read, compressed another way and written anew by compaction, with any of its records gone.
//!
//! Guarantees that no more comes out than the bound allows, that a stream which ends early or goes on after its end
//! is an error, and that what is allocated follows what was inflated and never what a stream claims about itself.

use riverrun_types::limits::{
    INFLATE_LARGE_WINDOW_BYTES_MAX, INFLATE_PRODUCED_BYTES_MAX, INFLATE_STORED_BYTES_MAX,
};

use crate::Compression;
use crate::codec::{Decoder, zstd};
use crate::error::{BatchError, CorruptCause, Excess};

/// Buffer growth while the whole of a stream is inflated.
const GROWTH_BYTES_MIN: usize = 4 * 1024;

/// Appends `input`, inflated within the bound of what is stored, to `out`.
pub fn decompress(compression: Compression, input: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    if compression == Compression::None {
        out.extend_from_slice(input);
        return Ok(());
    }
    let mut inflate = Inflate::stored(compression, input)?;
    loop {
        let filled = out.len();
        out.resize(filled + inflate.growth_bytes(input.len()), 0);
        let count = inflate.read_full(&mut out[filled..]);
        out.truncate(filled + count.unwrap_or(0));
        if count? == 0 {
            return Ok(());
        }
    }
}

/// A stream being inflated.
///
/// Invariants: `produced <= limit`; after `done` nothing more is read.
pub(crate) struct Inflate<'a> {
    decoder: Decoder<'a>,
    compression: Compression,
    produced: usize,
    limit: usize,
    done: bool,
}

impl<'a> Inflate<'a> {
    /// Begins to inflate what a client sends.
    pub(crate) fn produced(compression: Compression, input: &'a [u8]) -> Result<Self, BatchError> {
        let is_large = compression == Compression::Zstd && zstd::has_large_window(input);
        let limit = if is_large { INFLATE_LARGE_WINDOW_BYTES_MAX } else { INFLATE_PRODUCED_BYTES_MAX };
        Self::new(compression, input, limit)
    }

    /// Begins to inflate what was accepted once, here or elsewhere.
    pub(crate) fn stored(compression: Compression, input: &'a [u8]) -> Result<Self, BatchError> {
        Self::new(compression, input, INFLATE_STORED_BYTES_MAX)
    }

    fn new(compression: Compression, input: &'a [u8], limit: usize) -> Result<Self, BatchError> {
        let decoder = Decoder::new(compression, input, limit)?;
        Ok(Self { decoder, compression, produced: 0, limit, done: false })
    }

    /// Inflates up to `buffer.len()` bytes; 0 at the end of a stream that has ended as it should.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BatchError> {
        if self.done || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.decoder.read(buffer)?;
        self.produced += count;
        if self.produced > self.limit {
            return Err(too_large(self.limit));
        }
        if count == 0 {
            self.done = true;
            if !self.decoder.ended_well() {
                return Err(CorruptCause::Stream(self.compression).into());
            }
        }
        Ok(count)
    }

    /// By how much a buffer should grow that takes the whole stream: doubling what has come out so far keeps the
    /// allocation in step with the data, and one byte past the bound is enough to see that it is passed.
    fn growth_bytes(&self, input_bytes: usize) -> usize {
        let wanted = self.produced.max(input_bytes).max(GROWTH_BYTES_MIN);
        wanted.min(self.limit - self.produced + 1)
    }

    /// Inflates until `buffer` is full or the stream ends.
    fn read_full(&mut self, buffer: &mut [u8]) -> Result<usize, BatchError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

pub(crate) fn too_large(limit: usize) -> BatchError {
    BatchError::TooLarge { excess: Excess::InflatedBytes, limit }
}
