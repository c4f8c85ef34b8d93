//! Zstandard, by libzstd.

use std::io::Write as _;
use std::ops::RangeInclusive;

use zstd::stream::read;
use zstd::stream::write::Encoder;

use crate::Compression;
use crate::error::{BatchError, CorruptCause};

/// Kafka's default.
pub(crate) const LEVEL_DEFAULT: i32 = 3;
/// The levels of libzstd; negative ones are faster.
pub(crate) const LEVELS: RangeInclusive<i32> = -131_072..=22;

/// The largest window that is decoded, as a power of two: what a Java producer writes at its highest level, and
/// what Java reads. The decoder reserves address space for it and touches only what it inflates, so the bound on
/// inflated bytes bounds its memory.
const WINDOW_LOG_MAX: u32 = 27;

pub(crate) type Decoder<'a> = read::Decoder<'static, &'a [u8]>;

pub(crate) fn decoder(input: &[u8]) -> Result<Decoder<'_>, BatchError> {
    let bad_stream = |_| BatchError::Corrupt(CorruptCause::Stream(Compression::Zstd));
    let mut decoder = read::Decoder::with_buffer(input).map_err(bad_stream)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(bad_stream)?;
    Ok(decoder)
}

/// Names the content's size in the frame, which lets the encoder and every reader choose a window that is no
/// larger than the content.
pub(crate) fn compress(level: i32, input: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let written = Encoder::new(out, level).and_then(|mut encoder| {
        encoder.set_pledged_src_size(Some(input.len() as u64))?;
        encoder.write_all(input)?;
        encoder.finish().map(|_| ())
    });
    written.map_err(|_| BatchError::CompressFailed(Compression::Zstd))
}
