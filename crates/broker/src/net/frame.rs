//! Cutting a connection's bytes into frames: four bytes of length, then that many bytes.
//!
//! Pure: bytes in, frames out. A length is believed only after it was checked against the limit. What one read takes
//! is a connection's own; memory beyond it, for a large frame, is filled only as far as the caller says that it was
//! charged.

use bytes::buf::Limit;
use bytes::{Buf as _, BufMut as _, BytesMut};
use thiserror::Error;

use crate::flow::large_frames::ORDINARY_BYTES_MAX;

/// Bytes of a frame's length field.
const LENGTH_BYTES: usize = 4;
/// The shortest request: API key, version, correlation id.
const FRAME_BYTES_MIN: usize = 8;
/// Bytes of a large frame that are looked at before the rest of it is received: its header, and how long its first lists
/// are. So few that nobody notices.
const BEGINNING_BYTES: usize = 4 * 1024;
/// Bytes of a large frame that one read takes at most: as they come, pages of memory are taken for them, which costs more
/// than to copy them.
const LARGE_READ_BYTES_MAX: usize = 256 * 1024;
/// Bytes that one read asks for by default; an idle connection holds no buffer at all.
const READ_BYTES: usize = 64 * 1024;

/// The length field cannot be that of a request; the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{}the length must be {FRAME_BYTES_MIN} to {max}", of_whom(*length))]
pub(crate) struct FrameLengthError {
    length: i32,
    max: usize,
}

/// The likely sender of such first four bytes, and the length that they would state.
fn of_whom(length: i32) -> String {
    let what = match &length.to_be_bytes() {
        [0x16, 3, ..] => "a TLS client on a plain-text listener",
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" | b"DELE" | b"PATC" | b"CONN" | b"PRI " => {
            "an HTTP client on a listener for Kafka clients"
        }
        b"SSH-" => "an SSH client on a listener for Kafka clients",
        _ => return format!("a request of {length} bytes: "),
    };
    format!("{what}: ")
}

/// Bytes received and not yet taken as frames.
///
/// Invariants: `pending` is the checked length of the frame whose length field has been taken from `buffer`.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    buffer: BytesMut,
    pending: Option<usize>,
    frame_bytes_max: usize,
    /// Bytes that one read asks for; a frame that is larger is large.
    read_bytes: usize,
}

impl FrameBuffer {
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self { buffer: BytesMut::new(), pending: None, frame_bytes_max, read_bytes: READ_BYTES }
    }

    /// Length of the next frame if all of it has arrived.
    pub(crate) fn whole_frame_bytes(&mut self) -> Result<Option<usize>, FrameLengthError> {
        if self.pending.is_none() {
            self.pending = self.take_length()?;
        }
        Ok(self.pending.filter(|&length| self.buffer.len() >= length))
    }

    /// Whether [`Self::whole_frame_bytes`] found one that was not taken yet.
    pub(crate) fn has_whole_frame(&self) -> bool {
        self.pending.is_some_and(|length| self.buffer.len() >= length)
    }

    /// The API key of the frame that [`Self::whole_frame_bytes`] found.
    pub(crate) fn api_key(&self) -> Option<i16> {
        self.whole_frame()?.first_chunk().map(|bytes| i16::from_be_bytes(*bytes))
    }

    /// The frame that [`Self::whole_frame_bytes`] found, without its length field.
    pub(crate) fn whole_frame(&self) -> Option<&[u8]> {
        self.buffer.get(..self.pending?)
    }

    /// Takes the frame that [`Self::whole_frame_bytes`] found, without its length field.
    pub(crate) fn take_frame(&mut self) -> Option<BytesMut> {
        let length = self.pending.filter(|&length| self.buffer.len() >= length)?;
        self.pending = None;
        Some(self.buffer.split_to(length))
    }

    fn take_length(&mut self) -> Result<Option<usize>, FrameLengthError> {
        if self.buffer.len() < LENGTH_BYTES {
            return Ok(None);
        }
        let length = self.buffer.get_i32();
        match usize::try_from(length) {
            Ok(bytes) if (FRAME_BYTES_MIN..=self.frame_bytes_max).contains(&bytes) => Ok(Some(bytes)),
            _ => Err(FrameLengthError { length, max: self.frame_bytes_max }),
        }
    }

    /// The length of the frame that arrives and is larger than an ordinary read, and the bytes of it that should have
    /// been charged by now: all of an ordinary one, and of others twice what was charged each time that this has come, so
    /// that a slow sender takes little. None while twice the bytes that have come are less than an ordinary read.
    pub(crate) fn large_wanted_bytes(&self, charged_bytes: usize) -> Option<(usize, usize)> {
        let length = self.pending.filter(|&length| length > self.read_bytes)?;
        let arrived = self.buffer.len();
        let wanted =
            if arrived < charged_bytes { charged_bytes } else { ORDINARY_BYTES_MAX.max(2 * arrived) };
        (2 * arrived >= self.read_bytes).then(|| (length, length.min(wanted)))
    }

    /// The beginning of the frame that arrives, and how many bytes of it are not among these; nothing before its length is
    /// known.
    pub(crate) fn beginning(&self) -> (&[u8], usize) {
        let length = self.pending.unwrap_or(0);
        let beginning = &self.buffer[..self.buffer.len().min(length).min(BEGINNING_BYTES)];
        (beginning, length - beginning.len())
    }

    /// Whether part of a frame has arrived.
    pub(crate) fn mid_frame(&self) -> bool {
        self.pending.is_some() || !self.buffer.is_empty()
    }

    /// Room for the next read: the rest of the pending frame as far as it was charged, or an ordinary read's worth.
    pub(crate) fn space(&mut self, charged_bytes: usize) -> Limit<&mut BytesMut> {
        let arrived = self.buffer.len();
        let room = match self.pending {
            Some(length) if length > self.read_bytes && charged_bytes > 0 => {
                // Only address space: an ordinary frame is never moved while it arrives.
                let whole = length.min(ORDINARY_BYTES_MAX.max(2 * charged_bytes));
                self.buffer.reserve(whole.saturating_sub(arrived).max(1));
                charged_bytes.min(length).saturating_sub(arrived).clamp(1, LARGE_READ_BYTES_MAX)
            }
            _ => {
                // A large one will be moved when it is charged.
                let ordinary = self.pending.filter(|&length| length <= self.read_bytes);
                let rest = ordinary.map_or(0, |length| length.saturating_sub(arrived));
                if self.buffer.capacity() - arrived < rest.max(self.read_bytes / 4) {
                    self.buffer.reserve(self.read_bytes);
                }
                self.read_bytes
            }
        };
        let room = room.min(self.buffer.capacity() - arrived);
        (&mut self.buffer).limit(room)
    }

    /// Bytes that one read asks for.
    pub(crate) fn read_bytes(&self) -> usize {
        self.read_bytes
    }

    /// Makes the next reads ask for so much. The caller has charged the bytes beyond those of before.
    pub(crate) fn set_read_bytes(&mut self, bytes: usize) {
        self.read_bytes = bytes;
    }

    /// Gives back memory that nothing lies in, and reads as at first; false if too much has arrived for that.
    pub(crate) fn release(&mut self) -> bool {
        let is_little = self.buffer.len() < READ_BYTES / 2;
        if is_little {
            self.buffer = BytesMut::from(&self.buffer[..]);
            self.read_bytes = READ_BYTES;
        }
        is_little
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_other_protocols_are_named() {
        for (bytes, told) in [
            (&b"\x16\x03\x01\x02\x00\x01"[..], "a TLS client on a plain-text listener: "),
            (b"GET / HTTP/1.1", "an HTTP client on a listener for Kafka clients: "),
            (b"\xff\xff\xff\xff", "a request of -1 bytes: "),
        ] {
            let mut frames = FrameBuffer::new(4096);
            feed(&mut frames, bytes);
            let error = frames.whole_frame_bytes().expect_err("no length");
            assert_eq!(error.to_string(), format!("{told}the length must be 8 to 4096"));
        }
    }

    fn feed(frames: &mut FrameBuffer, bytes: &[u8]) {
        frames.space(usize::MAX).put_slice(bytes);
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = i32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_they_are_cut() {
        let bodies = [b"12345678".to_vec(), vec![7; 1000], b"abcdefghijk".to_vec()];
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        for step in [1, 2, 3, 7, 64, stream.len()] {
            let mut frames = FrameBuffer::new(4096);
            let mut taken = Vec::new();
            for piece in stream.chunks(step) {
                feed(&mut frames, piece);
                while frames.whole_frame_bytes().unwrap().is_some() {
                    taken.push(frames.take_frame().unwrap().to_vec());
                }
            }
            assert_eq!(taken, bodies, "pieces of {step}");
            assert!(!frames.mid_frame());
        }
    }

    #[test]
    fn a_length_out_of_range_is_refused_before_anything_is_reserved() {
        for length in [-1, 0, 7, 4097, i32::MAX, i32::MIN] {
            let mut frames = FrameBuffer::new(4096);
            feed(&mut frames, &length.to_be_bytes());
            assert_eq!(frames.whole_frame_bytes(), Err(FrameLengthError { length, max: 4096 }));
        }
    }

    #[test]
    fn the_beginning_of_a_frame_is_there_before_the_frame_is() {
        let mut frames = FrameBuffer::new(100 << 20);
        assert_eq!(frames.beginning(), (&[][..], 0));
        feed(&mut frames, &framed(&vec![7; 60_000])[..54]);
        assert_eq!(frames.whole_frame_bytes(), Ok(None));
        assert_eq!(frames.beginning(), (&[7; 50][..], 59_950));
        feed(&mut frames, &vec![7; 20_000]);
        assert_eq!(frames.beginning(), (&[7; BEGINNING_BYTES][..], 60_000 - BEGINNING_BYTES));
    }

    #[test]
    fn one_read_of_a_large_frame_takes_a_slice_of_it() {
        let mut frames = FrameBuffer::new(100 << 20);
        feed(&mut frames, &(50_i32 << 20).to_be_bytes());
        assert_eq!(frames.whole_frame_bytes(), Ok(None));
        frames.space(50 << 20).put_bytes(7, READ_BYTES);
        assert_eq!(frames.space(50 << 20).remaining_mut(), LARGE_READ_BYTES_MAX);
    }

    #[test]
    fn a_large_frame_wants_memory_as_it_arrives() {
        let mut frames = FrameBuffer::new(100 << 20);
        feed(&mut frames, &(50_i32 << 20).to_be_bytes());
        assert_eq!(frames.whole_frame_bytes(), Ok(None));
        assert_eq!(frames.large_wanted_bytes(0), None, "a length alone");
        let (mut wanted, mut charged) = (Vec::new(), 0);
        while frames.whole_frame_bytes() == Ok(None) {
            let arrived = frames.buffer.len();
            let (length, now) = frames.large_wanted_bytes(charged).unwrap_or((50 << 20, 0));
            assert!(length == 50 << 20 && now <= ORDINARY_BYTES_MAX.max(2 * arrived));
            assert!(now == charged || charged <= arrived, "more only when what was charged has come");
            if now > charged {
                wanted.push(now);
            }
            charged = now;
            // In pieces that are no part of it.
            let mut space = frames.space(charged);
            let room = space.remaining_mut().min(300_007);
            space.put_bytes(7, room);
        }
        assert!(wanted.is_sorted() && wanted.len() < 7, "{wanted:?}");
        assert_eq!(wanted.last(), Some(&(50 << 20)));
        assert_eq!(frames.take_frame().unwrap().len(), 50 << 20);
    }

    #[test]
    fn part_of_a_frame_takes_no_more_memory_than_its_size() {
        let mut frames = FrameBuffer::new(100 << 20);
        let bytes = framed(&vec![7; 60_000]);
        feed(&mut frames, &bytes[..100]);
        assert_eq!(frames.whole_frame_bytes(), Ok(None));
        assert!(frames.buffer.capacity() > 50_000);
        assert!(frames.release());
        assert_eq!((frames.buffer.len(), frames.buffer.capacity()), (96, 96));
        feed(&mut frames, &bytes[100..]);
        assert_eq!(frames.whole_frame_bytes(), Ok(Some(60_000)));
        assert_eq!(frames.take_frame().unwrap(), bytes[4..]);
        frames.release();
        assert_eq!(frames.buffer.capacity(), 0);
    }
}
