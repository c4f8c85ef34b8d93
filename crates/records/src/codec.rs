//! The four codecs, one file each, and the decoder and the encoder that are any of them.
//!
//! A decoder reads from memory in small steps; [`crate::inflate`] counts the inflated bytes.

pub(crate) mod gzip;
pub(crate) mod lz4;
pub(crate) mod snappy;
pub(crate) mod zstd;

use std::io::{self, Write};

use ::zstd::stream::write::Encoder as ZstdEncoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;

use crate::Compression;
use crate::error::{BatchError, CorruptCause};

/// A stream of any codec.
pub(crate) enum Decoder<'a> {
    Gzip(gzip::Decoder<'a>),
    Snappy(snappy::Decoder<'a>),
    Lz4(lz4::Decoder<'a>),
    Zstd(zstd::Decoder<'a>),
}

impl<'a> Decoder<'a> {
    /// A decoder over `input`. `limit` is for the codec whose blocks are inflated as a whole and state their size.
    /// `Compression::None` is no stream and fails as a corrupt one.
    pub(crate) fn new(compression: Compression, input: &'a [u8], limit: usize) -> Result<Self, BatchError> {
        if input.is_empty() {
            return Err(CorruptCause::Stream(compression).into());
        }
        match compression {
            Compression::None => Err(CorruptCause::Stream(compression).into()),
            Compression::Gzip => Ok(Self::Gzip(gzip::decoder(input))),
            Compression::Snappy => Ok(Self::Snappy(snappy::Decoder::new(input, limit)?)),
            Compression::Lz4 => Ok(Self::Lz4(lz4::Decoder::new(input)?)),
            Compression::Zstd => Ok(Self::Zstd(zstd::decoder(input)?)),
        }
    }

    /// Inflates up to `buffer.len()` bytes; 0 at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, BatchError> {
        match self {
            Self::Gzip(decoder) => read_io(decoder, buffer, Compression::Gzip),
            Self::Snappy(decoder) => decoder.read(buffer),
            Self::Lz4(decoder) => read_io(decoder.reader(), buffer, Compression::Lz4),
            Self::Zstd(decoder) => read_io(decoder, buffer, Compression::Zstd),
        }
    }

    /// Whether a stream that has returned 0 is complete. Three codecs fail at an early end instead.
    pub(crate) fn ended_well(&self) -> bool {
        match self {
            Self::Lz4(decoder) => decoder.ended_well(),
            Self::Gzip(_) | Self::Snappy(_) | Self::Zstd(_) => true,
        }
    }
}

/// An encoder of any codec, or of bytes as they are.
pub(crate) enum Encoder<W: Write> {
    None(W),
    Gzip(GzEncoder<W>),
    Snappy(snappy::Encoder<W>),
    Lz4(Box<FrameEncoder<W>>),
    Zstd(ZstdEncoder<'static, W>),
}

impl<W: Write> Encoder<W> {
    /// An encoder of `input_bytes` bytes in all. The level is one of the codec's.
    pub(crate) fn new(compression: Compression, level: i32, input_bytes: usize, out: W) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(out),
            Compression::Gzip => Self::Gzip(gzip::encoder(level, out)),
            Compression::Snappy => Self::Snappy(snappy::Encoder::new(out)?),
            Compression::Lz4 => Self::Lz4(Box::new(lz4::encoder(out))),
            Compression::Zstd => Self::Zstd(zstd::encoder(level, input_bytes, out)?),
        })
    }

    pub(crate) fn write_all(&mut self, input: &[u8]) -> io::Result<()> {
        match self {
            Self::None(out) => out.write_all(input),
            Self::Gzip(encoder) => encoder.write_all(input),
            Self::Snappy(encoder) => encoder.write_all(input),
            Self::Lz4(encoder) => encoder.write_all(input),
            Self::Zstd(encoder) => encoder.write_all(input),
        }
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::None(_) => Ok(()),
            Self::Gzip(encoder) => encoder.finish().map(|_| ()),
            Self::Snappy(encoder) => encoder.finish(),
            Self::Lz4(encoder) => encoder.finish().map(|_| ()).map_err(io::Error::other),
            Self::Zstd(encoder) => encoder.finish().map(|_| ()),
        }
    }
}

/// A read from memory fails only because of its content, so every error means a bad stream.
fn read_io(
    reader: &mut impl io::Read,
    buffer: &mut [u8],
    compression: Compression,
) -> Result<usize, BatchError> {
    reader.read(buffer).map_err(|_| CorruptCause::Stream(compression).into())
}
