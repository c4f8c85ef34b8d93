//! Snappy in xerial's framing, which Java writes, and which "snappy" means in a batch:
//!
//! ```text
//! | 82 53 4e 41 50 50 59 00 | version u32 | oldest compatible version u32 | chunk | chunk | ...
//! chunk: length u32, big-endian | raw snappy block of that length, of 32 KiB when inflated
//! ```
//!
//! A single raw block without the framing is read too: librdkafka writes it. A raw block is inflated as a
//! whole, so its claimed size is checked against the bound, and against what snappy can reach at all, before
//! anything is allocated.

use std::io::{self, Write};

use crate::Compression;
use crate::error::{BatchError, CorruptCause};
use crate::inflate::too_large;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSION: u32 = 1;
const FRAME_HEADER_BYTES: usize = MAGIC.len() + 8;
/// Inflated bytes of a written chunk.
const CHUNK_BYTES: usize = 32 * 1024;
/// No element of a block makes more than 64 bytes of less than 3.
const RATIO_MAX: usize = 22;

/// A framed stream or one raw block, inflated block by block.
///
/// Invariants: `block[position..]` is inflated and not yet read; `claimed` is the sum of all blocks inflated so
/// far and at most `limit`.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    position: usize,
    claimed: usize,
    limit: usize,
}

fn bad_stream() -> BatchError {
    CorruptCause::Stream(Compression::Snappy).into()
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(input: &'a [u8], limit: usize) -> Result<Self, BatchError> {
        let framed = input.starts_with(&MAGIC);
        let rest = if framed { check_frame_header(input)? } else { input };
        Ok(Self { rest, framed, block: Vec::new(), position: 0, claimed: 0, limit })
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BatchError> {
        while self.position == self.block.len() {
            if self.rest.is_empty() {
                return Ok(0);
            }
            self.next_block()?;
        }
        let count = buffer.len().min(self.block.len() - self.position);
        buffer[..count].copy_from_slice(&self.block[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }

    fn next_block(&mut self) -> Result<(), BatchError> {
        let raw = self.take_raw_block()?;
        let size = snap::raw::decompress_len(raw).map_err(|_| bad_stream())?;
        self.claimed = self.claimed.saturating_add(size);
        if self.claimed > self.limit {
            return Err(too_large(self.limit));
        }
        if size > raw.len().saturating_mul(RATIO_MAX) {
            return Err(bad_stream());
        }
        self.block.clear();
        self.block.resize(size, 0);
        self.position = 0;
        snap::raw::Decoder::new().decompress(raw, &mut self.block).map_err(|_| bad_stream())?;
        Ok(())
    }

    fn take_raw_block(&mut self) -> Result<&'a [u8], BatchError> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        let (length, after) = self.rest.split_first_chunk::<4>().ok_or_else(bad_stream)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (raw, rest) = after.split_at_checked(length).ok_or_else(bad_stream)?;
        self.rest = rest;
        Ok(raw)
    }
}

/// The bytes behind the frame's header. Java refuses a version before 1, so such a frame is not stored.
fn check_frame_header(input: &[u8]) -> Result<&[u8], BatchError> {
    let (header, rest) = input.split_at_checked(FRAME_HEADER_BYTES).ok_or_else(bad_stream)?;
    let version = header[MAGIC.len()..].first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    if version >= VERSION { Ok(rest) } else { Err(bad_stream()) }
}

/// Writes a framed stream, chunk by chunk.
///
/// Invariants: `pending` is less than a chunk.
pub(crate) struct Encoder<W> {
    out: W,
    pending: Vec<u8>,
    block: Vec<u8>,
}

impl<W: Write> Encoder<W> {
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_be_bytes())?;
        out.write_all(&VERSION.to_be_bytes())?;
        Ok(Self { out, pending: Vec::new(), block: Vec::new() })
    }

    pub(crate) fn write_all(&mut self, mut input: &[u8]) -> io::Result<()> {
        if !self.pending.is_empty() {
            let (begun, rest) = input.split_at(input.len().min(CHUNK_BYTES - self.pending.len()));
            self.pending.extend_from_slice(begun);
            input = rest;
            if self.pending.len() == CHUNK_BYTES {
                self.write_pending()?;
            }
        }
        let mut chunks = input.chunks_exact(CHUNK_BYTES);
        for chunk in &mut chunks {
            write_chunk(&mut self.out, &mut self.block, chunk)?;
        }
        self.pending.extend_from_slice(chunks.remainder());
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.pending.is_empty() { Ok(()) } else { self.write_pending() }
    }

    fn write_pending(&mut self) -> io::Result<()> {
        write_chunk(&mut self.out, &mut self.block, &self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

fn write_chunk(out: &mut impl Write, block: &mut Vec<u8>, chunk: &[u8]) -> io::Result<()> {
    block.resize(snap::raw::max_compress_len(chunk.len()), 0);
    let length = snap::raw::Encoder::new().compress(chunk, block).map_err(io::Error::other)?;
    let length_field = u32::try_from(length).map_err(io::Error::other)?;
    out.write_all(&length_field.to_be_bytes())?;
    out.write_all(&block[..length])
}
