//! The codecs by name and id, their levels, and compressing.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crate::batch::Batch;
use crate::codec::{self, Encoder};
use crate::error::{BatchError, Excess};
use crate::inflate::{Inflate, new_piece};
use crate::layout;
use crate::patch::{patch_crc, put};

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Snappy blocks in xerial's framing.
    Snappy,
    /// LZ4 frames of independent blocks.
    Lz4,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// Every kind, in the order of the ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The id that a batch's attributes carry.
    pub fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// The kind with this id.
    pub fn from_id(id: u8) -> Result<Self, BatchError> {
        Self::ALL.get(usize::from(id)).copied().ok_or(BatchError::UnsupportedCompression(id))
    }

    /// The name that configuration uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The level that is used if none is given: Kafka's default. Codecs without levels have 0.
    pub fn default_level(self) -> i32 {
        match self {
            Self::None | Self::Snappy => 0,
            Self::Gzip => codec::gzip::LEVEL_DEFAULT,
            Self::Lz4 => codec::lz4::LEVEL_DEFAULT,
            Self::Zstd => codec::zstd::LEVEL_DEFAULT,
        }
    }

    /// Checks a level against Kafka's range for the codec: gzip 1 to 9 or -1, lz4 1 to 17, zstd -131072 to 22. Kinds
    /// without levels accept only 0.
    ///
    /// The LZ4 encoder in use has one speed, so all of its levels compress alike: faster and a little larger than the
    /// high levels of the C library.
    pub fn check_level(self, level: i32) -> Result<(), BatchError> {
        let known = match self {
            Self::None | Self::Snappy => level == 0,
            Self::Gzip => level == codec::gzip::LEVEL_DEFAULT || (1..=9).contains(&level),
            Self::Lz4 => (1..=17).contains(&level),
            Self::Zstd => codec::zstd::LEVELS.contains(&level),
        };
        if known { Ok(()) } else { Err(BatchError::UnsupportedLevel { compression: self, level }) }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is none of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a compression is none, gzip, snappy, lz4 or zstd")]
pub struct ParseCompressionError;

impl FromStr for Compression {
    type Err = ParseCompressionError;

    fn from_str(text: &str) -> Result<Self, ParseCompressionError> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(ParseCompressionError)
    }
}

/// Appends `input`, compressed, to `out`.
pub fn compress(
    compression: Compression,
    level: i32,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), BatchError> {
    compression.check_level(level)?;
    let compressed = Encoder::new(compression, level, input.len(), out).and_then(|mut encoder| {
        encoder.write_all(input)?;
        encoder.finish()
    });
    compressed.map_err(|_| BatchError::CompressFailed(compression))
}

/// The target of a recompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecompressOptions {
    /// The codec.
    pub compression: Compression,
    /// Its level.
    pub level: i32,
    /// Bytes of the records when uncompressed, from [`ProducedInfo`](crate::ProducedInfo).
    pub inflated_bytes: usize,
    /// Upper bound of the new batch in bytes.
    pub bytes_max: usize,
}

/// The same batch with its records compressed another way; records and every other field stay as they are. Its memory
/// is proportional to the batches, old and new, and not to their inflated size.
pub fn recompress(batch: &Batch<'_>, options: &RecompressOptions) -> Result<Vec<u8>, BatchError> {
    let RecompressOptions { compression, level, .. } = *options;
    compression.check_level(level)?;
    let mut out = Vec::with_capacity(batch.bytes().len().min(options.bytes_max));
    out.extend_from_slice(&batch.bytes()[..layout::HEADER_BYTES]);
    let mut bounded = Bounded { out: &mut out, bytes_max: options.bytes_max, is_full: false };
    let copied = copy_records(batch, options, &mut bounded);
    if bounded.is_full {
        return Err(BatchError::TooLarge { excess: Excess::Bytes, limit: options.bytes_max });
    }
    copied?;
    let attributes = (batch.attributes() & !layout::COMPRESSION_MASK) | i16::from(compression.id());
    put(&mut out, layout::ATTRIBUTES, attributes.to_be_bytes());
    seal(&mut out)?;
    Ok(out)
}

/// Inflates the records piece by piece and compresses them into `out`.
fn copy_records(
    batch: &Batch<'_>,
    options: &RecompressOptions,
    out: &mut Bounded<'_>,
) -> Result<(), BatchError> {
    let RecompressOptions { compression, level, inflated_bytes, .. } = *options;
    let failed = |_| BatchError::CompressFailed(compression);
    let mut encoder = Encoder::new(compression, level, inflated_bytes, out).map_err(failed)?;
    if batch.is_compressed() {
        let mut inflate = Inflate::stored(batch.compression(), batch.payload())?;
        let mut piece = new_piece();
        loop {
            match inflate.read(&mut piece)? {
                0 => break,
                count => encoder.write_all(&piece[..count]).map_err(failed)?,
            }
        }
    } else {
        encoder.write_all(batch.payload()).map_err(failed)?;
    }
    encoder.finish().map_err(failed)
}

/// Takes bytes up to a bound.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max.saturating_sub(self.out.len()) {
            self.is_full = true;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the length field and the CRC of a batch that is otherwise complete.
pub(crate) fn seal(batch: &mut [u8]) -> Result<(), BatchError> {
    let length = i32::try_from(batch.len() - layout::LENGTH_END)
        .map_err(|_| BatchError::TooLarge { excess: Excess::Bytes, limit: i32::MAX as usize })?;
    put(batch, layout::LENGTH, length.to_be_bytes());
    patch_crc(batch);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back() {
        for kind in Compression::ALL {
            assert_eq!(Compression::from_id(kind.id()), Ok(kind));
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.check_level(kind.default_level()), Ok(()));
        }
        assert_eq!(Compression::from_id(5), Err(BatchError::UnsupportedCompression(5)));
        assert_eq!("lz77".parse::<Compression>(), Err(ParseCompressionError));
    }

    #[test]
    fn levels_are_those_of_kafka() {
        let accepted = |kind: Compression, level| kind.check_level(level).is_ok();
        for (kind, inside, outside) in [
            (Compression::Gzip, &[-1, 1, 9][..], &[-2, 0, 10][..]),
            (Compression::Lz4, &[1, 9, 17], &[-1, 0, 18]),
            (Compression::Zstd, &[-131_072, 0, 22], &[-131_073, 23]),
            (Compression::None, &[0], &[1]),
        ] {
            assert!(inside.iter().all(|level| accepted(kind, *level)), "{kind}");
            assert!(!outside.iter().any(|level| accepted(kind, *level)), "{kind}");
        }
    }

    /// Found by fuzzing: libzstd refuses this frame if the buffer has more room than its header misstates, and else
    /// accepts it.
    #[test]
    fn malformed_stream_is_judged_alike_by_all_inflaters() {
        let mut bytes =
            include_bytes!("../../../fuzz/seeds/record_batch/zstd-content-size-misstated").to_vec();
        bytes[layout::MAGIC] = 2;
        seal(&mut bytes).unwrap();
        let batch = crate::UnverifiedBatch::only(&bytes).unwrap().verify().unwrap();
        let mut inflated = Vec::new();
        crate::decompress(Compression::Zstd, batch.payload(), &mut inflated).unwrap();
        let inflated_bytes = inflated.len();
        let options = RecompressOptions {
            compression: Compression::None,
            level: 0,
            inflated_bytes,
            bytes_max: 1 << 20,
        };
        assert_eq!(recompress(&batch, &options).unwrap()[layout::HEADER_BYTES..], inflated);
    }
}
