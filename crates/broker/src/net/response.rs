//! A response on its way out: encoded bytes, and ranges of segment files that go to the socket as they are.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;
use riverrun_protocol::Frame;

use super::responses::Held;
use crate::fetch::catch_up::FarRead;
use crate::fetch::held_files::HeldFile;

/// A piece of a response, in order.
pub(crate) enum Part {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in memory that others share, which stays as a whole as long as this does: it may be some hundred times as much.
    Shared(Bytes),
    /// A range of a file; the range has been written and is not changed any more.
    File {
        file: HeldFile,
        position: u64,
        len: usize,
        /// Index of the log dir that holds it.
        log_dir: usize,
        /// If the range is far behind the end of its log.
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

    /// Moves what is shared to memory of its own.
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

/// What a handled request leaves for its connection to do.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this.
    Respond(ResponseFrame),
    /// Nothing to send (a produce request with acks=0).
    Silent,
    /// The request was not one: close the connection. The text says why, for the log.
    Close(String),
}

/// One response with its length field.
#[derive(Debug)]
pub(crate) struct ResponseFrame {
    /// The pieces, the length field first.
    pub(crate) parts: VecDeque<Part>,
    /// Memory of the pieces, held against the server's budget until it is sent.
    pub(crate) charge: Option<Held>,
}

impl ResponseFrame {
    /// A response from its encoded bytes, length field included. `external` are the parts that belong at each
    /// of the frame's splices; they are as long as the splices say.
    pub(crate) fn assemble(frame: Frame, external: Vec<Vec<Part>>) -> Self {
        let mut rest = frame.bytes.freeze();
        let mut taken = 0;
        let mut parts = VecDeque::with_capacity(frame.splices.len() * 2 + 1);
        for (splice, external) in frame.splices.iter().zip(external) {
            debug_assert_eq!(splice.len, external.iter().map(Part::len).sum::<usize>());
            parts.push_back(Part::Bytes(rest.split_to(splice.position - taken)));
            taken = splice.position;
            parts.extend(external);
        }
        if !rest.is_empty() {
            parts.push_back(Part::Bytes(rest));
        }
        Self { parts, charge: None }
    }

    /// Moves what it shares to memory of its own.
    pub(crate) fn own(&mut self) {
        self.parts.iter_mut().for_each(Part::own);
    }

    /// Bytes of memory that the frame has or shares (file ranges need none).
    pub(crate) fn memory_bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Bytes(bytes) | Part::Shared(bytes) => bytes.len(),
                Part::File { .. } => 0,
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use riverrun_protocol::Splice;

    use super::*;

    #[test]
    fn external_parts_stand_where_they_were_spliced() {
        let splices = vec![Splice { position: 8, len: 9 }];
        let encoded = Frame { bytes: BytesMut::from(&b"\0\0\0\x11headtail"[..]), splices };
        let frame =
            ResponseFrame::assemble(encoded, vec![vec![Part::Bytes(Bytes::from_static(b"-records-"))]]);
        let joined: Vec<u8> = frame
            .parts
            .iter()
            .flat_map(|part| match part {
                Part::Bytes(bytes) => bytes.to_vec(),
                Part::Shared(_) | Part::File { .. } => unreachable!("none was given"),
            })
            .collect();
        assert_eq!(joined, b"\0\0\0\x11head-records-tail");
        assert_eq!(frame.memory_bytes(), joined.len());
    }
}
