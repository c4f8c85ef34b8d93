//! LZ4 frames, by `lz4_flex`. Written as Java writes them: independent blocks of 64 KiB, no content checksum.
//!
//! Frames whose blocks depend on each other, legacy and skippable frames and dictionaries are refused, because
//! Java consumers cannot read them. A content checksum is verified where there is one.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::Compression;
use crate::error::{BatchError, CorruptCause};

/// Kafka's default.
pub(crate) const LEVEL_DEFAULT: i32 = 9;

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
/// Bit of the frame's flags: blocks do not refer to earlier ones.
const FLAG_INDEPENDENT: u8 = 1 << 5;
/// Bit of the frame's flags: a dictionary is needed.
const FLAG_DICTIONARY: u8 = 1;

/// One frame being inflated.
pub(crate) struct Decoder<'a> {
    frame: Box<FrameDecoder<Input<'a>>>,
}

/// The rest of the input, and whether the decoder has asked for more than there was. The decoder takes an input that
/// ends between two blocks for a complete frame, so this flag detects a cut one.
struct Input<'a> {
    rest: &'a [u8],
    starved: bool,
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.starved |= buffer.len() > self.rest.len();
        self.rest.read(buffer)
    }
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Result<Self, BatchError> {
        let flags = input.strip_prefix(&MAGIC).and_then(|rest| rest.first()).copied().unwrap_or(0);
        if flags & FLAG_INDEPENDENT == 0 || flags & FLAG_DICTIONARY != 0 {
            return Err(CorruptCause::Stream(Compression::Lz4).into());
        }
        Ok(Self { frame: Box::new(FrameDecoder::new(Input { rest: input, starved: false })) })
    }

    pub(crate) fn reader(&mut self) -> &mut impl Read {
        &mut *self.frame
    }

    /// Whether the frame ended by its end mark, with nothing after it.
    pub(crate) fn ended_well(&self) -> bool {
        let input = self.frame.get_ref();
        !input.starved && input.rest.is_empty()
    }
}

pub(crate) fn encoder<W: Write>(out: W) -> FrameEncoder<W> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    FrameEncoder::with_frame_info(info, out)
}
