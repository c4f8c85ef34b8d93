//! The form of a quorum's log file: a header, then frames that follow each other.
//!
//! ```text
//! header   0  magic "RIVQUORM"   8  version u32   12  CRC u32 of bytes 0 to 12
//! frame    0  magic "RQFR"   4  length u32   8  CRC u32 of all that follows   12  CRC u32 of the frame before
//!         16  synced u64      24  payload
//! ```
//!
//! Integers are little-endian, CRCs are CRC-32C. *Synced* is how much of the file was synced when the frame was written. So what is
//! wrong at a position below that of any good frame was synced once, and is damage: dropping it could take back a vote or a
//! committed entry. What is wrong beyond is the torn tail of a write that nobody was told of, and is cut off. A frame that is good by
//! itself and names another frame before it is what an earlier cut has left, and is torn, too.
//!
//! A frame without a payload is a *mark*: it follows the last frame once that was synced and nothing else has come, so that there
//! is one that says so. It is not synced itself, and what comes next is written over it.

use bytes::Bytes;
use thiserror::Error;

/// Version of the format. A file of another version is refused by name.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"RIVQUORM";
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 16;

const FRAME_MAGIC: &[u8; 4] = b"RQFR";
const LENGTH_AT: usize = 4;
const CRC_AT: usize = 8;
const BEFORE_AT: usize = 12;
const SYNCED_AT: usize = 16;
const PAYLOAD_AT: usize = 24;

/// Upper bound of a payload in bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// A flaw of a quorum's log file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum FrameError {
    #[error("it is no log of a quorum, or its beginning is damaged")]
    NotThisFile,
    #[error(
        "its format has version {0}, and this program knows version {VERSION}: use the program that wrote it"
    )]
    OtherVersion(u32),
    #[error("it is damaged at byte {0}, where it was synced once")]
    Damaged(usize),
}

/// The beginning of a file, and the CRC that its first frame names.
pub(super) fn header() -> ([u8; HEADER_BYTES], u32) {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Size in bytes of a frame with a payload of this size.
pub(super) const fn frame_bytes(payload_bytes: usize) -> usize {
    PAYLOAD_AT + payload_bytes
}

/// Appends a frame to `out`; returns its CRC.
pub(super) fn write_frame(out: &mut Vec<u8>, before: u32, synced: u64, payload: &[u8]) -> u32 {
    let start = out.len();
    out.extend_from_slice(FRAME_MAGIC);
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&before.to_le_bytes());
    out.extend_from_slice(&synced.to_le_bytes());
    out.extend_from_slice(payload);
    let crc = crc32c::crc32c(&out[start + BEFORE_AT..]);
    out[start + CRC_AT..start + BEFORE_AT].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The frames of a file.
#[derive(Debug)]
pub(super) struct Frames {
    /// Their payloads, in order.
    pub(super) payloads: Vec<Bytes>,
    /// The end of the last one. Bytes beyond are a torn tail.
    pub(super) end: usize,
    /// Up to here the frames say that they were synced.
    pub(super) synced: usize,
    /// The CRC of the last one, or the header's.
    pub(super) crc: u32,
}

/// Reads a file. `None` if not even its header was written whole: it was about to be made.
pub(super) fn read_frames(file: &Bytes) -> Result<Option<Frames>, FrameError> {
    let (expected, crc) = header();
    let Some(found) = file.first_chunk::<HEADER_BYTES>() else {
        return if expected.starts_with(file) { Ok(None) } else { Err(FrameError::NotThisFile) };
    };
    if *found != expected {
        return Err(other_file(found));
    }
    let mut frames = Frames { payloads: Vec::new(), end: HEADER_BYTES, synced: 0, crc };
    let mut synced = 0;
    while let Some(frame) = Frame::at(file, frames.end).filter(|frame| frame.before == frames.crc) {
        frames.end += frame_bytes(frame.payload.len());
        frames.crc = frame.crc;
        frames.payloads.push(frame.payload);
        synced = synced.max(frame.synced);
    }
    // A good frame beyond what is wrong tells how far the file was synced.
    let later = (frames.end..file.len()).filter_map(|at| Frame::at(file, at)).map(|frame| frame.synced).max();
    if synced.max(later.unwrap_or(0)) > frames.end as u64 {
        return Err(FrameError::Damaged(frames.end));
    }
    frames.synced = usize::try_from(synced).unwrap_or(frames.end);
    Ok(Some(frames))
}

fn other_file(header: &[u8; HEADER_BYTES]) -> FrameError {
    let crc = crc32c::crc32c(&header[..12]).to_le_bytes();
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let is_ours = header.starts_with(MAGIC) && header[12..] == crc;
    if is_ours { FrameError::OtherVersion(version) } else { FrameError::NotThisFile }
}

struct Frame {
    crc: u32,
    before: u32,
    synced: u64,
    payload: Bytes,
}

impl Frame {
    /// The frame at a position, if one is there that is good by itself.
    fn at(file: &Bytes, position: usize) -> Option<Self> {
        let bytes = file.get(position..)?;
        if !bytes.starts_with(FRAME_MAGIC) {
            return None;
        }
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let length = usize::try_from(word(LENGTH_AT)?).ok().filter(|length| *length <= PAYLOAD_BYTES_MAX)?;
        let crc = word(CRC_AT)?;
        let covered = bytes.get(BEFORE_AT..PAYLOAD_AT + length)?;
        if crc32c::crc32c(covered) != crc && !is_check_left_out() {
            return None;
        }
        let synced = u64::from_le_bytes(*bytes.get(SYNCED_AT..)?.first_chunk()?);
        let payload = file.slice(position + PAYLOAD_AT..position + PAYLOAD_AT + length);
        Some(Self { crc, before: word(BEFORE_AT)?, synced, payload })
    }
}

/// Whether a planted bug takes any bytes for a frame.
fn is_check_left_out() -> bool {
    #[cfg(test)]
    let is_left_out = crate::planted::is_planted(crate::planted::Planted::ChecksumNotChecked);
    #[cfg(not(test))]
    let is_left_out = false;
    is_left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these payloads, each synced before the next was written.
    fn file_of(payloads: &[&[u8]]) -> Vec<u8> {
        let (header, mut crc) = header();
        let mut file = header.to_vec();
        for payload in payloads {
            let synced = file.len() as u64;
            crc = write_frame(&mut file, crc, synced, payload);
        }
        file
    }

    fn read(file: &[u8]) -> Result<Vec<Bytes>, FrameError> {
        read_frames(&Bytes::copy_from_slice(file))
            .map(|frames| frames.map_or(Vec::new(), |frames| frames.payloads))
    }

    #[test]
    fn a_file_that_ends_anywhere_has_all_whole_frames() {
        let file = file_of(&[b"one", b"", b"three"]);
        let ends =
            [HEADER_BYTES, HEADER_BYTES + PAYLOAD_AT + 3, HEADER_BYTES + 2 * PAYLOAD_AT + 3, file.len()];
        for end in 0..=file.len() {
            let whole = ends.iter().skip(1).filter(|whole| **whole <= end).count();
            assert_eq!(read(&file[..end]).map(|payloads| payloads.len()), Ok(whole), "cut at {end}");
        }
    }

    #[test]
    fn a_changed_byte_is_damage_but_in_the_last_frame() {
        let file = file_of(&[b"one", b"two", b"three"]);
        let last = file.len() - PAYLOAD_AT - 5;
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 0x40;
            let read = read(&changed);
            if at < last {
                assert!(read.is_err(), "byte {at}: {read:?}");
            } else {
                // Nothing says that it was synced.
                assert_eq!(read.map(|payloads| payloads.len()), Ok(2), "byte {at}");
            }
        }
    }

    #[test]
    fn frames_left_by_an_earlier_life_are_no_part_of_it() {
        let (header, crc) = header();
        let mut file = header.to_vec();
        let synced = file.len() as u64;
        let lost = write_frame(&mut file, crc, synced, b"lost");
        write_frame(&mut file, lost, synced, b"left");
        // A frame of the same length takes the place of the first one.
        let mut rewritten = header.to_vec();
        write_frame(&mut rewritten, crc, synced, b"here");
        file[..rewritten.len()].copy_from_slice(&rewritten);
        assert_eq!(read(&file), Ok(vec![Bytes::from_static(b"here")]));
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let mut file = file_of(&[]);
        file[8] = 9;
        let crc = crc32c::crc32c(&file[..12]);
        file[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(read(&file), Err(FrameError::OtherVersion(9)));
        assert_eq!(read(b"something else that is long"), Err(FrameError::NotThisFile));
    }
}
