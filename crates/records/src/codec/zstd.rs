//! Zstandard, by libzstd.

use std::io::{self, Write};
use std::ops::RangeInclusive;

use zstd::stream::read;
use zstd::stream::write::Encoder;

use crate::Compression;
use crate::error::{BatchError, CorruptCause};

/// Kafka's default.
pub(crate) const LEVEL_DEFAULT: i32 = 3;
/// The levels of libzstd; negative ones are faster.
pub(crate) const LEVELS: RangeInclusive<i32> = -131_072..=22;

/// The largest window that is decoded, as a power of two: Java producers write it at their highest level, and Java
/// reads it. The decoder reserves address space for it and touches only the inflated part, so the bound on inflated
/// bytes bounds its memory.
const WINDOW_LOG_MAX: u32 = 27;
/// The largest window of the levels up to [`LEVEL_ORDINARY_MAX`]. A batch with a larger one has a lower bound of
/// inflated bytes.
const WINDOW_LOG_ORDINARY: u32 = 23;
const LEVEL_ORDINARY_MAX: i32 = 19;

const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const FLAG_SINGLE_SEGMENT: u8 = 1 << 5;
/// The window of the descriptor 0, as a power of two.
const WINDOW_LOG_MIN: u8 = 10;

pub(crate) type Decoder<'a> = read::Decoder<'static, &'a [u8]>;

/// Frames behind the first may not have a large window if that has none.
pub(crate) fn decoder(input: &[u8]) -> Result<Decoder<'_>, BatchError> {
    let bad_stream = |_| BatchError::Corrupt(CorruptCause::Stream(Compression::Zstd));
    let mut decoder = read::Decoder::with_buffer(input).map_err(bad_stream)?;
    let window_log_max = if has_large_window(input) { WINDOW_LOG_MAX } else { WINDOW_LOG_ORDINARY };
    decoder.window_log_max(window_log_max).map_err(bad_stream)?;
    Ok(decoder)
}

/// Whether the decoder has to keep more inflated bytes than for an ordinary frame.
pub(crate) fn has_large_window(input: &[u8]) -> bool {
    window_bytes(input).is_some_and(|bytes| bytes > 1 << WINDOW_LOG_ORDINARY)
}

/// The window of the first frame (RFC 8878, 3.1.1.1): a byte for it, or all of the content.
fn window_bytes(input: &[u8]) -> Option<u64> {
    let (flags, rest) = input.strip_prefix(&MAGIC)?.split_first()?;
    if flags & FLAG_SINGLE_SEGMENT != 0 {
        return zstd::zstd_safe::get_frame_content_size(input).ok().flatten();
    }
    let window = rest.first()?;
    let base = 1_u64 << (WINDOW_LOG_MIN + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}

/// An encoder of `input_bytes` bytes in all. It never writes a large window, whatever its level.
pub(crate) fn encoder<W: Write>(level: i32, input_bytes: usize, out: W) -> io::Result<Encoder<'static, W>> {
    let mut encoder = Encoder::new(out, level)?;
    encoder.set_pledged_src_size(Some(input_bytes as u64))?;
    if level > LEVEL_ORDINARY_MAX {
        encoder.window_log(WINDOW_LOG_ORDINARY)?;
    }
    Ok(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Excess;
    use crate::inflate::{Inflate, new_piece};

    /// A piece that does not compress, repeated, with this window and no content size.
    fn stream(window_log: u32, pieces: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let piece: Vec<u8> = (0..64 * 1024).map(|_| byte()).collect();
        let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window_log).unwrap();
        for _ in 0..pieces {
            encoder.write_all(&piece).unwrap();
        }
        encoder.finish().unwrap()
    }

    fn inflated(inflate: Result<Inflate<'_>, BatchError>) -> Result<usize, BatchError> {
        let (mut inflate, mut piece, mut total) = (inflate?, new_piece(), 0);
        loop {
            match inflate.read(&mut piece)? {
                0 => return Ok(total),
                count => total += count,
            }
        }
    }

    fn produced(input: &[u8]) -> Result<usize, BatchError> {
        inflated(Inflate::produced(Compression::Zstd, input))
    }

    #[test]
    fn a_large_window_of_a_client_inflates_to_less() {
        let (ordinary, large) = (stream(23, 640), stream(27, 640));
        assert!(!has_large_window(&ordinary) && has_large_window(&large));
        assert_eq!(produced(&ordinary), Ok(640 * 64 * 1024));
        let limit = riverrun_types::limits::INFLATE_LARGE_WINDOW_BYTES_MAX;
        assert_eq!(produced(&large), Err(BatchError::TooLarge { excess: Excess::InflatedBytes, limit }));
        assert_eq!(produced(&stream(27, 100)), Ok(100 * 64 * 1024), "a small frame of its level is read");
        assert_eq!(
            inflated(Inflate::stored(Compression::Zstd, &large)),
            Ok(640 * 64 * 1024),
            "stored elsewhere"
        );
    }

    #[test]
    fn no_level_writes_a_large_window() {
        let content = vec![7; 9 << 20];
        for level in [1, 3, 19, 20, 22] {
            let mut out = Vec::new();
            crate::compress(Compression::Zstd, level, &content, &mut out).unwrap();
            assert!(!has_large_window(&out), "level {level}");
        }
    }

    #[test]
    fn window_may_equal_the_content_and_never_grows() {
        let content = vec![7; 9 << 20];
        let mut single = ::zstd::bulk::Compressor::new(22).unwrap();
        single.include_checksum(false).unwrap();
        let single = single.compress(&content).unwrap();
        assert_eq!(window_bytes(&single), Some(content.len() as u64));
        assert!(has_large_window(&single));
        let behind = [stream(20, 1), stream(27, 1)].concat();
        assert_eq!(produced(&behind), Err(CorruptCause::Stream(Compression::Zstd).into()));
        assert_eq!(produced(&[stream(20, 1), stream(23, 1)].concat()), Ok(2 * 64 * 1024));
        for cut in [&b""[..], &MAGIC, &[0x28, 0xb5, 0x2f, 0xfd, 0]] {
            assert_eq!(window_bytes(cut), None);
        }
    }
}
