//! A response on its way out: encoded bytes, and ranges of segment files that go to the socket as they are.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use riverrun_protocol::Frame;

use crate::catch_up::FarRead;
use crate::flow::responses::Held;
use crate::held_files::HeldFile;

/// A piece of a response, in order.
pub(crate) enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in memory that others share, which stays as a whole as long as this part: it may be some hundred times as much.
    Shared(Bytes),
    /// A range of a file; the range has been written and is not changed any more.
    File {
        file: HeldFile,
        position: u64,
        len: usize,
        /// Index of the log dir that holds it.
        log_dir: usize,
        /// Set if the range is far behind the end of its log.
        far: Option<Box<FarRead>>,
    },
}

impl Part {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Shared(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// Bytes of memory that it has or shares.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Shared(bytes) => bytes.len(),
            Self::File { .. } => 0,
        }
    }

    /// Moves shared bytes to memory of their own.
    pub(crate) fn own(&mut self) {
        if let Self::Shared(bytes) = self {
            *self = Self::Bytes(Bytes::copy_from_slice(bytes));
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Shared(bytes) => write!(f, "Shared({})", bytes.len()),
            Self::File { position, len, .. } => write!(f, "File({position}+{len})"),
        }
    }
}

/// The end of a handled request, for its connection.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this.
    Respond(ResponseFrame),
    /// Nothing to send (a produce request with acks=0).
    Silent,
    /// The frame was no valid request: close the connection. The text says why, for the log.
    Close(String),
}

/// One response with its length field. It may have some hundred thousand pieces, so sums over all of them are taken once,
/// where it is assembled.
///
/// Invariants: `len` and `memory_bytes` are sums over `parts`.
#[derive(Debug)]
pub(crate) struct ResponseFrame {
    /// The pieces, the length field first; none of them is empty.
    pub(crate) parts: VecDeque<Part>,
    /// Bytes of the response.
    pub(crate) len: usize,
    /// Bytes of memory that it has or shares: ranges of files need none.
    pub(crate) memory_bytes: usize,
    /// Memory of the pieces, held against the server's budget until it is sent.
    pub(crate) charge: Option<Held>,
}

impl ResponseFrame {
    /// A response from its encoded bytes, length field included. `external` are the parts for each of the frame's splices; they
    /// are as long as the splices say. The encoded bytes are cut only where there is something to insert: each piece takes a
    /// little of a system call.
    pub(crate) fn assemble(frame: Frame, external: Vec<Vec<Part>>) -> Self {
        let mut rest = frame.bytes.freeze();
        let mut taken = 0;
        let mut parts = VecDeque::with_capacity(2 * external.iter().map(Vec::len).sum::<usize>() + 1);
        let (mut len, mut memory_bytes) = (rest.len(), rest.len());
        for (splice, external) in frame.splices.iter().zip(external) {
            debug_assert_eq!(splice.len, external.iter().map(Part::len).sum::<usize>());
            if splice.len == 0 {
                continue;
            }
            parts.push_back(Part::Bytes(rest.split_to(splice.position - taken)));
            taken = splice.position;
            for part in external.into_iter().filter(|part| part.len() > 0) {
                len += part.len();
                memory_bytes += part.memory_bytes();
                parts.push_back(part);
            }
        }
        if !rest.is_empty() {
            parts.push_back(Part::Bytes(rest));
        }
        Self { parts, len, memory_bytes, charge: None }
    }

    /// Moves shared bytes of its parts to memory of their own.
    pub(crate) fn own(&mut self) {
        self.parts.iter_mut().for_each(Part::own);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use riverrun_protocol::Splice;

    use super::*;

    fn frame(bytes: &'static [u8], splices: &[(usize, usize)], external: Vec<Vec<Part>>) -> ResponseFrame {
        let splices = splices.iter().map(|&(position, len)| Splice { position, len }).collect();
        ResponseFrame::assemble(Frame { bytes: BytesMut::from(bytes), splices }, external)
    }

    fn part(bytes: &'static [u8]) -> Part {
        Part::Bytes(Bytes::from_static(bytes))
    }

    fn pieces(frame: &ResponseFrame) -> Vec<&[u8]> {
        let bytes = |part| match part {
            &Part::Bytes(ref bytes) | &Part::Shared(ref bytes) => &bytes[..],
            Part::File { .. } => unreachable!("none was given"),
        };
        frame.parts.iter().map(bytes).collect()
    }

    #[test]
    fn external_parts_stand_where_they_were_spliced() {
        let frame = frame(b"\0\0\0\x11headtail", &[(8, 9)], vec![vec![part(b"-records-")]]);
        assert_eq!(pieces(&frame).concat(), b"\0\0\0\x11head-records-tail");
        assert_eq!((frame.len, frame.memory_bytes), (21, 21));
    }

    #[test]
    fn a_response_is_not_cut_where_nothing_is_inserted() {
        let external = vec![vec![], vec![part(b""), part(b"records")], vec![part(b"")]];
        let frame = frame(b"\0\0\0\x0eonetwothree", &[(7, 0), (10, 7), (15, 0)], external);
        assert_eq!(pieces(&frame), [&b"\0\0\0\x0eonetwo"[..], b"records", b"three"]);
        assert_eq!((frame.len, frame.memory_bytes), (22, 22));
    }
}
