//! The errors of a journal, ordered by what the caller has to do about them.
//!
//! Every error that is about a file names it. A failed write or sync is [`JournalError::Write`] and stays: the
//! journal gives it as its answer to every call until a restart has read past the page cache.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Vanishing, is_shortage};
use riverrun_types::{ErrorKind, Position};
use thiserror::Error;

/// Why a journal refused or failed.
#[derive(Clone, Debug, Error)]
pub enum JournalError {
    /// The operating system refused something that leaves what was acked untouched.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A write or a sync failed: the journal is poisoned, and nothing is acked any more. It is unknown which unsynced
    /// bytes the disk holds, and a later sync would not tell.
    #[error(
        "{}: writing or syncing failed, and the journal takes nothing more until a restart has read the disk: {source}",
        path.display()
    )]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Bytes that were once synced are not what was written.
    #[error("{} is corrupt at byte {position}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Position in it, in bytes from its start.
        position: u64,
        /// The fault there, and the way out.
        what: String,
    },
    /// This program cannot read the file: another kind, a newer version, another journal's.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// How it differs from a file of this journal.
        what: String,
    },
    /// The journal's directory, or a file that a start would read, was removed or replaced while it was in use: no
    /// start would find the entries written there. The journal is poisoned as after a failed write.
    #[error("{} {how}: the journal takes nothing more", path.display())]
    Vanished {
        /// The file or directory.
        path: PathBuf,
        /// How the name was lost.
        how: Vanishing,
    },
    /// Another process holds the journal.
    #[error("{} is in use by another server; stop it or choose another directory", path.display())]
    Locked {
        /// The journal's directory.
        path: PathBuf,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// The entry does not fit into a journal file.
    #[error("an entry of {bytes} bytes is larger than the journal takes, {bytes_max}")]
    TooLarge {
        /// Its payload's size.
        bytes: usize,
        /// The limit, as [`crate::Journal::entry_bytes_max`] gives it.
        bytes_max: usize,
    },
    /// An option or a name that cannot be used.
    #[error("{what}")]
    Invalid {
        /// The reason.
        what: String,
    },
}

impl JournalError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(path: &Path, position: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_path_buf(), position, what: what.into() }
    }

    pub(crate) fn format(path: &Path, what: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    /// The right reaction to the error: retry, fix the request, or give up.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if is_shortage(source) => ErrorKind::Retry,
            Self::Closed => ErrorKind::Retry,
            Self::Locked { .. } | Self::TooLarge { .. } | Self::Invalid { .. } => ErrorKind::FixRequest,
            Self::Io { .. }
            | Self::Write { .. }
            | Self::Corrupt { .. }
            | Self::Format { .. }
            | Self::Vanished { .. } => ErrorKind::GiveUp,
        }
    }
}

/// An entry that was synced once and whose payload is damaged. Its frame is intact, so that the entries around it can
/// be told apart from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedEntry {
    /// Its header, which is intact.
    pub header: crate::EntryHeader,
    /// The file that holds it.
    pub path: PathBuf,
    /// Its position in the journal.
    pub position: Position,
    /// The fault.
    pub what: String,
}
