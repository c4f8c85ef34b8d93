//! What goes into a journal and what comes out of it: entries, their owners, and where they are.
//!
//! A stream is opaque to the journal: it neither orders nor interprets what its users call a stream, an index or an
//! offset. It promises only the order of submission, over all streams.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_types::{LeaderEpoch, Offset, Position, TimestampMs};

use crate::{DamagedEntry, JournalError};

/// Whose entry it is. For the log: the topic's id (16 bytes) and the partition's index (big-endian).
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

/// Identity of a journal: drawn at random when its first file is made, and in every file and frame since.
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

/// What an entry's payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Records, in the form that the stream's log keeps them in.
    Records,
}

/// What is kept of an entry beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Whose it is.
    pub stream: StreamId,
    /// What the payload is.
    pub kind: EntryKind,
    /// Its index in the stream. The log puts the base offset here.
    pub index: u64,
    /// How often the stream had been cut when it got that index.
    pub cuts: u32,
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Leader epoch of its records.
    pub leader_epoch: LeaderEpoch,
}

/// When the owner of an entry is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Once it is synced: it survives the loss of power from then on.
    Sync,
    /// Once it is written, whether synced or not: it survives the end of the process. It is synced later, within
    /// [`crate::JournalOptions::sync_interval`]; [`crate::Journal::synced`] says when.
    Write,
}

/// An entry on its way into the journal.
#[derive(Clone)]
pub struct Submission {
    /// What it is.
    pub header: EntryHeader,
    /// Its bytes. Released once the entry is stored.
    pub payload: Bytes,
    /// When to tell the owner.
    pub wants: Wants,
    /// Whom to tell.
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
    /// What it is.
    pub header: &'a EntryHeader,
    /// Its bytes, as a slice of memory that the entries of its group share. No slice pins more than about twice the
    /// bytes of its group.
    pub payload: Bytes,
    /// Where it is. Greater than that of every entry stored before.
    pub position: Position,
    /// Whether it is synced. Always, if the submission wanted that.
    pub is_synced: bool,
    /// Wall clock.
    pub now: TimestampMs,
}

/// Who is told what became of an entry.
///
/// Called on the journal's own thread, in the order of submission: it must neither block nor call the journal.
pub trait EntryOwner: Send + Sync {
    /// [`Self::stored`] comes soon: what it needs may be prefetched. Nothing else may be done here.
    fn announce(&self) {}

    /// The entry is stored as its submission wanted.
    fn stored(&self, entry: StoredEntry<'_>);

    /// The entry will never be stored as far as anybody can know: the journal has failed. After a restart it may be
    /// found all the same.
    fn failed(&self, header: &EntryHeader, error: &JournalError);
}

/// An entry that recovery has found, or that is to be held aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    /// What it is.
    pub header: EntryHeader,
    /// Its bytes.
    pub payload: Bytes,
    /// Where it is, or was when it was held aside.
    pub position: Position,
}

impl RecoveredEntry {
    /// Stands for an entry that was damaged: it is known that there was one, and where it began. Holding it aside keeps
    /// that known for as long as nobody has decided what becomes of its stream.
    pub fn damaged(entry: &DamagedEntry) -> Self {
        Self { header: entry.header, payload: Bytes::new(), position: entry.position }
    }

    /// Whether it stands for an entry that was damaged.
    pub fn is_damaged(&self) -> bool {
        self.payload.is_empty()
    }
}
