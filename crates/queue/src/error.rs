//! The errors of a queue, grouped by what the caller can do about them.
//!
//! Guarantees that an error of a file names the file, and damage also the place. No failure here is a signal.

use std::io;
use std::path::{Path, PathBuf};

use riverrun_records::BatchError;
use riverrun_types::{ErrorKind, Offset, Position};
use thiserror::Error;

/// Why a call on a queue failed.
#[derive(Debug, Error)]
pub enum QueueError {
    /// The operating system refused a call.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no queue in the directory.
    #[error("{}: no queue here", path.display())]
    NoQueue {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has a queue already.
    #[error("{}: there is a queue here already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds a server's files.
    #[error(
        "{}: '{found}' shows that a server keeps its data here: give the queue a directory of its own",
        path.display()
    )]
    Taken {
        /// The directory.
        path: PathBuf,
        /// The server's file that was found.
        found: &'static str,
    },
    /// A file was written by a later version of this software.
    #[error("{}: format version {found} is newer than {known}, the newest known one", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// A file does not hold what was published into it.
    #[error("{} is damaged at byte {position}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in it.
        position: Position,
        /// The kind of damage.
        what: Damage,
    },
    /// A batch exceeds a bound of this software, when it is inflated or in one of its counts. It is not damaged:
    /// another reader may accept it.
    #[error("{}: the batch at byte {position} is whole but exceeds a bound: {what}", path.display())]
    OverBound {
        /// The file.
        path: PathBuf,
        /// Start of the batch.
        position: Position,
        /// The bound that it exceeds.
        what: BatchError,
    },
    /// The batch would not fit into an empty segment, or the record exceeds Kafka's bounds.
    #[error("{size_bytes} bytes do not fit: a batch takes {limit_bytes} bytes at most")]
    TooLarge {
        /// Bytes that the batch would take.
        size_bytes: usize,
        /// Bytes that it may take.
        limit_bytes: usize,
    },
    /// The offset is not in the queue: below its start, or beyond its end.
    #[error("offset {offset} is not in the queue, which holds {start} up to {end}")]
    OffsetOutOfRange {
        /// The requested offset.
        offset: Offset,
        /// The first offset in the queue.
        start: Offset,
        /// The offset that the next record gets.
        end: Offset,
    },
    /// Another process kept a lock of the queue, or of a segment that it removes, for longer than the patience of the
    /// call. That process may be stopped.
    #[error("another appender holds the queue, and did not release it in time")]
    Busy,
    /// The named tailer is open elsewhere.
    #[error("{}: a tailer of this name is open already", path.display())]
    NameInUse {
        /// The file that stores its place.
        path: PathBuf,
    },
    /// The place of a named tailer is not of this queue as it is: the queue was made anew, or a power cut took
    /// records before the place. [`Queue::remove_tailer`](crate::Queue::remove_tailer) forgets it.
    #[error(
        "{}: this tailer's place, offset {offset}, is not in this queue any more, which ends at {end}: \
         the queue was made anew, or has lost records",
        path.display()
    )]
    PlaceLost {
        /// The file that stores the place.
        path: PathBuf,
        /// The next offset that the tailer would have read.
        offset: Offset,
        /// The offset that the next record gets.
        end: Offset,
    },
    /// The queue has as many appenders as it can have.
    #[error("the queue has {limit} appenders, and can have no more")]
    TooManyAppenders {
        /// The most appenders at once.
        limit: u32,
    },
    /// A sync of this queue has failed since the machine booted. Records that were not synced may be lost, so appends
    /// are refused; existing records can be read.
    #[error("{}: a sync has failed; the queue takes no more records", path.display())]
    Poisoned {
        /// The queue's directory.
        path: PathBuf,
    },
    /// Options contradict each other or the queue.
    #[error("{0}")]
    Options(String),
}

/// The kinds of damage.
#[derive(Debug, Error)]
pub enum Damage {
    /// The file is shorter or longer than it was made.
    #[error("the file has {found_bytes} bytes, not {expected_bytes}")]
    Size {
        /// Bytes that it has.
        found_bytes: u64,
        /// Bytes that it was made with.
        expected_bytes: u64,
    },
    /// The file is not of the kind that its name implies.
    #[error("this is not the control file of a queue")]
    Magic,
    /// A checksum does not fit.
    #[error("the checksum does not fit")]
    Checksum,
    /// This field of the control file has an impossible value.
    #[error("the {0} is impossible")]
    Field(&'static str),
    /// The bytes are not a valid batch.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// A batch does not have the offset that follows the batch before it.
    #[error("a batch has offset {found} where {expected} follows")]
    Offset {
        /// The batch's offset.
        found: Offset,
        /// The offset after the batch before it.
        expected: Offset,
    },
    /// A batch reaches beyond what is published.
    #[error("a batch of {size_bytes} bytes reaches beyond the published position")]
    Reach {
        /// The size in the batch's header.
        size_bytes: usize,
    },
    /// Published batches are missing.
    #[error("published batches are missing")]
    Missing,
    /// The file was removed, replaced, truncated or overwritten while it was in use.
    #[error("the file was removed, replaced, truncated or overwritten while the queue was in use")]
    Vanished,
    /// The published position went back: the control file was overwritten while it was in use.
    #[error("the published position went back")]
    WentBack,
    /// The mapping could not be read: the file was truncated, or the disk failed.
    #[error("the file was truncated while it was mapped, or the disk could not read it")]
    Unreadable,
}

impl QueueError {
    /// The right reaction to the error: retry, fix the request, or give up.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if is_shortage(source) => ErrorKind::Retry,
            Self::Busy | Self::NameInUse { .. } | Self::TooManyAppenders { .. } => ErrorKind::Retry,
            Self::Io { .. }
            | Self::Version { .. }
            | Self::Damaged { .. }
            | Self::OverBound { .. }
            | Self::Poisoned { .. } => ErrorKind::GiveUp,
            Self::NoQueue { .. }
            | Self::Exists { .. }
            | Self::Taken { .. }
            | Self::TooLarge { .. }
            | Self::OffsetOutOfRange { .. }
            | Self::PlaceLost { .. }
            | Self::Options(_) => ErrorKind::FixRequest,
        }
    }

    /// `Damaged`, or `OverBound` if the batch only exceeds a bound.
    pub(crate) fn damaged(path: &Path, position: u64, what: impl Into<Damage>) -> Self {
        let (path, position) = (path.to_owned(), Position(position));
        match what.into() {
            Damage::Batch(what) if !what.is_damage() => Self::OverBound { path, position, what },
            what => Self::Damaged { path, position, what },
        }
    }
}

/// True if the system lacks a resource that may become free: space (also the process's file size limit), descriptors
/// or memory.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Adds the file and the attempted action to an error of the operating system.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, QueueError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, QueueError> {
        self.map_err(|source| QueueError::Io { action, path: path.to_owned(), source })
    }
}
