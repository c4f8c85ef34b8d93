//! Inflating within a bound.
//!
//! There are two bounds, both absolute: one for batches from clients, and a wider one for stored batches. So every
//! accepted batch can be read, compressed another way and written anew by compaction, with any of its records gone.
//!
//! Streams are always inflated in pieces of one size. A decoder that is lenient about a malformed stream may be so
//! with a buffer of one size and not with another, and an accepted batch has to stay readable.
//!
//! Guarantees that no more bytes are inflated than the bound allows; that a stream which ends early, or goes on after
//! its end, is an error; and that memory is proportional to the inflated bytes, never to a size that a stream claims.

use riverrun_types::limits::{
    INFLATE_LARGE_WINDOW_BYTES_MAX, INFLATE_PRODUCED_BYTES_MAX, INFLATE_STORED_BYTES_MAX,
};

use crate::Compression;
use crate::codec::{Decoder, zstd};
use crate::error::{BatchError, CorruptCause, Excess};

/// Bytes that are inflated at a time.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

/// The buffer of one piece.
pub(crate) type Piece = [u8; PIECE_BYTES];

/// A piece on the heap, as a stack may be small.
pub(crate) fn new_piece() -> Box<Piece> {
    vec![0; PIECE_BYTES].into_boxed_slice().try_into().expect("it has this size")
}

/// Appends `input`, inflated within the bound of stored batches, to `out`. After an error `out` has the bytes before
/// it.
pub fn decompress(compression: Compression, input: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    if compression == Compression::None {
        out.extend_from_slice(input);
        return Ok(());
    }
    let mut inflate = Inflate::stored(compression, input)?;
    let mut end = out.len();
    loop {
        // The part that the previous piece left free is the beginning of this one.
        out.resize(end + PIECE_BYTES, 0);
        let read = inflate.read(out.last_chunk_mut().expect("it was made as long"));
        match read {
            Ok(count) if count > 0 => end += count,
            _ => {
                out.truncate(end);
                return read.map(|_| ());
            }
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
    /// Begins to inflate a client's batch.
    pub(crate) fn produced(compression: Compression, input: &'a [u8]) -> Result<Self, BatchError> {
        let is_large = compression == Compression::Zstd && zstd::has_large_window(input);
        let limit = if is_large { INFLATE_LARGE_WINDOW_BYTES_MAX } else { INFLATE_PRODUCED_BYTES_MAX };
        Self::new(compression, input, limit)
    }

    /// Begins to inflate a batch that was accepted once, here or elsewhere.
    pub(crate) fn stored(compression: Compression, input: &'a [u8]) -> Result<Self, BatchError> {
        Self::new(compression, input, INFLATE_STORED_BYTES_MAX)
    }

    fn new(compression: Compression, input: &'a [u8], limit: usize) -> Result<Self, BatchError> {
        let decoder = Decoder::new(compression, input, limit)?;
        Ok(Self { decoder, compression, produced: 0, limit, done: false })
    }

    /// Inflates up to one piece; returns 0 at the end of a complete stream.
    pub(crate) fn read(&mut self, piece: &mut Piece) -> Result<usize, BatchError> {
        if self.done {
            return Ok(0);
        }
        let count = self.decoder.read(piece)?;
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
}

pub(crate) fn too_large(limit: usize) -> BatchError {
    BatchError::TooLarge { excess: Excess::InflatedBytes, limit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress;

    const CODECS: [Compression; 4] =
        [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

    #[test]
    fn pieces_are_joined_behind_what_is_there() {
        for codec in CODECS {
            for bytes in [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES + 7] {
                let content: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
                let mut stream = Vec::new();
                compress(codec, codec.default_level(), &content, &mut stream).unwrap();
                let mut out = b"before".to_vec();
                decompress(codec, &stream, &mut out).unwrap();
                assert!(out == [b"before".as_slice(), &content].concat(), "{codec:?}, {bytes} bytes");
                out.truncate(6);
                let cut = &stream[..stream.len() - stream.len().min(9)];
                assert!(decompress(codec, cut, &mut out).is_err(), "{codec:?}, {bytes} bytes");
                assert!(out.starts_with(b"before") && content.starts_with(&out[6..]), "{codec:?}");
            }
        }
    }
}
