//! The form of every metadata file: one line that names format and version, then checksummed frames of text.
//!
//! ```text
//! riverrun <what>, format 1\n
//! <length: 8 hex> <sequence: 16 hex> <payload CRC: 8 hex> <header CRC: 8 hex> <payload: JSON>\n      frame 0
//! ...                                                                                                frame 1
//! ```
//!
//! Length counts the payload's bytes. The header CRC (CRC-32C, as the other) covers the columns before it.
//! Every byte is checked, and none is ever zero. That is what tells a *torn* tail from *damage*: a file is only ever
//! appended to, and we assume that a 512-byte sector is old or new, never garbage. So in a frame whose write was cut
//! short by a crash some sector is missing or still zero, and such a frame was never acknowledged: it is dropped. Any
//! other flaw, and any flaw before a good frame, is damage, which is reported and never dropped.

use thiserror::Error;

/// Upper bound of a payload in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Version of the format. A file of a newer version is refused by name.
const FORMAT_VERSION: u32 = 1;
/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

const LENGTH_DIGITS: usize = 8;
const SEQUENCE_DIGITS: usize = 16;
const CRC_DIGITS: usize = 8;
const SEQUENCE_AT: usize = LENGTH_DIGITS + 1;
const PAYLOAD_CRC_AT: usize = SEQUENCE_AT + SEQUENCE_DIGITS + 1;
const HEADER_CRC_AT: usize = PAYLOAD_CRC_AT + CRC_DIGITS + 1;
const HEADER_BYTES: usize = HEADER_CRC_AT + CRC_DIGITS + 1;
const _: () = assert!(HEADER_BYTES == 44);

/// A flaw of a metadata file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The first line is not ours.
    #[error("it does not begin with {0:?}: it is damaged or not such a file")]
    NotThisFile(String),
    /// The format is newer than this program.
    #[error(
        "its format has version {0}, and this program knows {FORMAT_VERSION} at most: use the newer program"
    )]
    NewerFormat(u32),
    /// Bytes that were once synced have changed.
    #[error("it is damaged at byte {position}: {reason}")]
    Damaged {
        /// Start of the frame.
        position: usize,
        /// The check that failed.
        reason: &'static str,
    },
}

/// The first line of a file.
pub(crate) fn first_line(what: &str) -> String {
    format!("riverrun {what}, format {FORMAT_VERSION}\n")
}

/// Appends one frame to `out`.
pub(crate) fn write_frame(out: &mut Vec<u8>, sequence: u64, payload: &[u8]) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX && !payload.contains(&0), "JSON text of bounded size");
    out.extend_from_slice(&header(payload.len(), sequence, crc32c::crc32c(payload)));
    out.extend_from_slice(payload);
    out.push(b'\n');
}

fn header(length: usize, sequence: u64, payload_crc: u32) -> Vec<u8> {
    let columns = format!("{length:08x} {sequence:016x} {payload_crc:08x} ");
    let header_crc = crc32c::crc32c(columns.as_bytes());
    let header = format!("{columns}{header_crc:08x} ").into_bytes();
    debug_assert_eq!(header.len(), HEADER_BYTES);
    header
}

/// The frames of a file.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    /// Payloads in order; the sequence of each is its index.
    pub(crate) payloads: Vec<&'a [u8]>,
    /// End of the last whole frame. Bytes after it are a torn tail.
    pub(crate) end: usize,
}

/// Reads a whole file of the kind `what`.
pub(crate) fn read_frames<'a>(what: &str, bytes: &'a [u8]) -> Result<Frames<'a>, FrameError> {
    match read_up_to_flaw(what, bytes) {
        (frames, None) => Ok(frames),
        (_, Some(flaw)) => Err(flaw),
    }
}

/// Reads a file of the kind `what` up to the first damage, and answers the damage, too.
pub(crate) fn read_up_to_flaw<'a>(what: &str, bytes: &'a [u8]) -> (Frames<'a>, Option<FrameError>) {
    let mut frames = Frames { payloads: Vec::new(), end: 0 };
    match check_first_line(what, bytes) {
        Ok(end) => frames.end = end,
        Err(flaw) => return (frames, Some(flaw)),
    }
    while frames.end < bytes.len() {
        let (at, sequence) = (frames.end, frames.payloads.len());
        match read_frame(bytes, at, sequence as u64) {
            Ok(payload) => {
                frames.end += HEADER_BYTES + payload.len() + 1;
                frames.payloads.push(payload);
            }
            Err(flaw) if is_torn(bytes, at, &flaw) && !has_later_frame(bytes, at, sequence) => break,
            Err(flaw) => {
                return (frames, Some(FrameError::Damaged { position: at, reason: flaw.reason }));
            }
        }
    }
    (frames, None)
}

fn check_first_line(what: &str, bytes: &[u8]) -> Result<usize, FrameError> {
    let expected = first_line(what);
    if bytes.starts_with(expected.as_bytes()) {
        return Ok(expected.len());
    }
    let line = bytes.split(|byte| *byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok());
    let prefix = format!("riverrun {what}, format ");
    let version = line.and_then(|line| line.strip_prefix(&prefix)).and_then(|digits| digits.parse().ok());
    match version {
        Some(version) if version > FORMAT_VERSION => Err(FrameError::NewerFormat(version)),
        _ => Err(FrameError::NotThisFile(expected.trim_end().to_owned())),
    }
}

/// A frame that cannot be read, and where it would end.
struct Flaw {
    reason: &'static str,
    end: usize,
}

fn read_frame(bytes: &[u8], at: usize, sequence: u64) -> Result<&[u8], Flaw> {
    let flaw = |reason, end| Flaw { reason, end };
    let header_end = at + HEADER_BYTES;
    let columns = bytes.get(at..header_end).and_then(parse_header);
    let (length, found, payload_crc) =
        columns.ok_or_else(|| flaw("the frame's header does not match its checksum", header_end))?;
    if found != sequence {
        return Err(flaw("the frame is not the next in sequence", at));
    }
    let payload_end = header_end + length;
    let payload =
        bytes.get(header_end..payload_end).ok_or_else(|| flaw("the frame is cut", payload_end + 1))?;
    if bytes.get(payload_end) != Some(&b'\n') {
        return Err(flaw("the frame does not end where it should", payload_end + 1));
    }
    if crc32c::crc32c(payload) != payload_crc {
        return Err(flaw("the frame does not match its checksum", payload_end + 1));
    }
    Ok(payload)
}

/// Length, sequence and payload CRC of a header in which every byte is as it was written.
fn parse_header(bytes: &[u8]) -> Option<(usize, u64, u32)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let length = usize::from_str_radix(text.get(..LENGTH_DIGITS)?, 16).ok()?;
    let sequence = u64::from_str_radix(text.get(SEQUENCE_AT..SEQUENCE_AT + SEQUENCE_DIGITS)?, 16).ok()?;
    let payload_crc = u32::from_str_radix(text.get(PAYLOAD_CRC_AT..PAYLOAD_CRC_AT + CRC_DIGITS)?, 16).ok()?;
    let is_exact = header(length, sequence, payload_crc) == bytes && length <= PAYLOAD_BYTES_MAX;
    is_exact.then_some((length, sequence, payload_crc))
}

/// Whether a crash while the frame at `at` was written can have left these bytes: the file ends inside of the frame,
/// or one of its sectors was not written.
fn is_torn(bytes: &[u8], at: usize, flaw: &Flaw) -> bool {
    if flaw.end > bytes.len() {
        return true;
    }
    let mut from = at;
    while from < flaw.end {
        let to = (from / SECTOR_BYTES + 1).saturating_mul(SECTOR_BYTES).min(flaw.end);
        if bytes[from..to].iter().all(|byte| *byte == 0) {
            return true;
        }
        from = to;
    }
    false
}

/// Whether a good header of a later frame follows: then the flawed one was once whole, because nothing is appended
/// to a torn tail.
fn has_later_frame(bytes: &[u8], at: usize, sequence: usize) -> bool {
    let rest = &bytes[at + 1..];
    rest.windows(HEADER_BYTES).any(|window| {
        window[LENGTH_DIGITS] == b' '
            && parse_header(window).is_some_and(|(_, found, _)| found > sequence as u64)
    })
}

#[cfg(test)]
mod tests;
