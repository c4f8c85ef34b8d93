//! gzip, by flate2 on zlib-rs. Writes one member; reads several in a row, as Java does.

use std::io::Write;

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

/// Leaves the level to the codec (6).
pub(crate) const LEVEL_DEFAULT: i32 = -1;

/// Reads members until the input ends; bytes after a member that are not another one are an error.
pub(crate) type Decoder<'a> = Box<MultiGzDecoder<&'a [u8]>>;

pub(crate) fn decoder(input: &[u8]) -> Decoder<'_> {
    Box::new(MultiGzDecoder::new(input))
}

pub(crate) fn encoder<W: Write>(level: i32, out: W) -> GzEncoder<W> {
    let level =
        u32::try_from(level).map_or_else(|_| flate2::Compression::default(), flate2::Compression::new);
    GzEncoder::new(out, level)
}
