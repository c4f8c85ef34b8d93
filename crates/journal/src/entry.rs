//! Input and output of a journal: entries, their owners, and their places.
//!
//! A stream is opaque to the journal: it neither orders nor interprets what its users call a stream, an index or an
//! offset. It promises only the order of submission, over all streams.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_types::{LeaderEpoch, Offset, Position, TimestampMs};

use crate::{DamagedEntry, JournalError};

/// The stream that an entry belongs to. For the log: the topic's id (16 bytes) and the partition's index (4 bytes,
/// big-endian).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub [u8; 20]);

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Identity of a journal: drawn at random when its first file is made, and repeated in every file and frame since.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct JournalId(pub [u8; 16]);

impl JournalId {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(|id| Self(id.to_be_bytes()))
    }
}

impl fmt::Debug for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The kind of an entry's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Records, in the form in which the stream's log keeps them.
    Records,
}

/// Facts about an entry, stored beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// Kind of the payload.
    pub kind: EntryKind,
    /// Its index in the stream. The log puts the base offset here.
    pub index: u64,
    /// How often the stream had been cut when the entry got that index.
    pub cuts: u32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Leader epoch of its records.
    pub leader_epoch: LeaderEpoch,
}

/// When the journal calls the owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// After the sync: the entry survives the loss of power from then on.
    Sync,
    /// After the write, whether synced or not: the entry survives the end of the process. It is synced later, within
    /// [`crate::JournalOptions::sync_interval`]; [`crate::Journal::synced`] says when.
    Write,
}

/// An entry on its way into the journal.
#[derive(Clone)]
pub struct Submission {
    /// Facts about it.
    pub header: EntryHeader,
    /// Its bytes. Released once the entry is stored.
    pub payload: Bytes,
    /// When to call the owner.
    pub wants: Wants,
    /// The owner to call.
    pub owner: Arc<dyn EntryOwner>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("header", &self.header)
            .field("payload_bytes", &self.payload.len())
            .field("wants", &self.wants)
            .finish_non_exhaustive()
    }
}

/// An entry that the journal has stored.
#[derive(Clone, Debug)]
pub struct StoredEntry<'a> {
    /// Facts about it.
    pub header: &'a EntryHeader,
    /// Its bytes, as a slice of memory that the entries of its group share. No slice pins more than about twice the
    /// bytes of its group.
    pub payload: Bytes,
    /// Its place in the journal. Greater than that of every entry stored before.
    pub position: Position,
    /// Whether it is synced. Always true if the submission wanted [`Wants::Sync`].
    pub is_synced: bool,
    /// Wall clock, milliseconds since 1970.
    pub now: TimestampMs,
}

/// The receiver of the outcome of an entry.
///
/// Called on the journal's own thread, in the order of submission: it must neither block nor call the journal.
pub trait EntryOwner: Send + Sync {
    /// Hint that [`Self::stored`] will be called shortly. Implementations may only prefetch memory.
    fn announce(&self) {}

    /// The entry is stored as its submission wanted.
    fn stored(&self, entry: StoredEntry<'_>);

    /// The journal has failed and will not store the entry. A part of it may have reached the disk, so that a restart
    /// may find it all the same.
    fn failed(&self, header: &EntryHeader, error: &JournalError);
}

/// An entry that recovery has found, or that is to be written to a side file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    /// Facts about it.
    pub header: EntryHeader,
    /// Its bytes.
    pub payload: Bytes,
    /// Its place in the journal. An entry in a side file keeps the one that it had.
    pub position: Position,
}

impl RecoveredEntry {
    /// Stands for an entry whose payload was damaged: only its header and position are known. Holding it in a side
    /// file keeps that known until its stream's fate is decided.
    pub fn damaged(entry: &DamagedEntry) -> Self {
        Self { header: entry.header, payload: Bytes::new(), position: entry.position }
    }

    /// Whether it stands for an entry whose payload was damaged.
    pub fn is_damaged(&self) -> bool {
        self.payload.is_empty()
    }
}
