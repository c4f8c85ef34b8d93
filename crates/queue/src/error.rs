//! What can go wrong in a queue, by what the caller can do about it.
//!
//! Guarantees that trouble with a file names the file, and damage also the place. Nothing here is a signal.

use std::io;
use std::path::{Path, PathBuf};

use riverrun_records::BatchError;
use riverrun_types::{ErrorKind, Offset, Position};
use thiserror::Error;

/// Why a call on a queue did not do what it was asked.
#[derive(Debug, Error)]
pub enum QueueError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no queue in the directory.
    #[error("{}: no queue here", path.display())]
    NoQueue {
        /// The directory.
        path: PathBuf,
    },
    /// There is a queue in the directory already.
    #[error("{}: there is a queue here already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A server keeps something of its own in the directory.
    #[error(
        "{}: '{found}' lies here, as where a server keeps its data: give the queue a directory of its own",
        path.display()
    )]
    Taken {
        /// The directory.
        path: PathBuf,
        /// What lies in it.
        found: &'static str,
    },
    /// A file was written by a later version of this software.
    #[error("{}: format version {found} is newer than {known}, the newest that is known", path.display())]
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
        /// Where in it.
        position: Position,
        /// What is wrong there.
        what: Damage,
    },
    /// A batch is more than this software reads, when it is inflated or in what it counts. It is not damaged: another
    /// reader may take it.
    #[error("{}: the batch at byte {position} is whole, and more than is read: {what}", path.display())]
    OverBound {
        /// The file.
        path: PathBuf,
        /// Where in it the batch begins.
        position: Position,
        /// Which bound it passes.
        what: BatchError,
    },
    /// The batch would not fit into an empty segment, or the record is over Kafka's bounds.
    #[error("{size_bytes} bytes do not fit: a batch takes {limit_bytes} bytes at most")]
    TooLarge {
        /// What the batch would take.
        size_bytes: usize,
        /// What it may take.
        limit_bytes: usize,
    },
    /// The offset is not in the queue: below its start, or beyond its end.
    #[error("offset {offset} is not in the queue, which holds {start} up to {end}")]
    OffsetOutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The first offset that is there.
        start: Offset,
        /// The offset that the next record gets.
        end: Offset,
    },
    /// Another appender holds the queue, or a segment that it takes away, and did not let go in time. It may be
    /// stopped.
    #[error("another appender holds the queue, and did not let go in time")]
    Busy,
    /// A named tailer is open elsewhere.
    #[error("{}: a tailer of this name is open already", path.display())]
    NameInUse {
        /// The file that keeps its place.
        path: PathBuf,
    },
    /// The place of a named tailer is not of this queue as it is: the queue was made anew, or records before
    /// the place were lost with the power. [`Queue::remove_tailer`](crate::Queue::remove_tailer) forgets it.
    #[error(
        "{}: this tailer's place, offset {offset}, is not in this queue any more, which ends at {end}: \
         the queue was made anew, or has lost records",
        path.display()
    )]
    PlaceLost {
        /// The file that keeps the place.
        path: PathBuf,
        /// The next offset that the tailer would have read.
        offset: Offset,
        /// The offset that the next record gets.
        end: Offset,
    },
    /// As many appenders are attached as there can be.
    #[error("{limit} appenders are attached to the queue, and there can be no more")]
    TooManyAppenders {
        /// How many there can be.
        limit: u32,
    },
    /// A sync of this queue failed since the machine started. What was not synced before may be lost, so
    /// nothing more is appended; what is there can be read.
    #[error("{}: a sync has failed; nothing is appended any more", path.display())]
    Poisoned {
        /// The queue's directory.
        path: PathBuf,
    },
    /// Options contradict themselves, or the queue.
    #[error("{0}")]
    Options(String),
}

/// What is wrong with a damaged file.
#[derive(Debug, Error)]
pub enum Damage {
    /// The file is shorter or longer than it was made.
    #[error("the file has {found_bytes} bytes, not {expected_bytes}")]
    Size {
        /// Bytes it has.
        found_bytes: u64,
        /// Bytes it was made with.
        expected_bytes: u64,
    },
    /// The file is not of the kind that its name says.
    #[error("this is no control file of a queue")]
    Magic,
    /// A checksum does not fit.
    #[error("the checksum does not fit")]
    Checksum,
    /// A field of the control file points where nothing can be.
    #[error("the {0} is impossible")]
    Field(&'static str),
    /// What should be a batch is none.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// A batch has another offset than the one that follows the batch before it.
    #[error("a batch has offset {found} where {expected} follows")]
    Offset {
        /// The batch's offset.
        found: Offset,
        /// The offset after the batch before it.
        expected: Offset,
    },
    /// A batch reaches beyond what is published.
    #[error("a batch of {size_bytes} bytes reaches beyond what is published")]
    Reach {
        /// What the batch's header says that it has.
        size_bytes: usize,
    },
    /// Published batches are missing.
    #[error("batches that were published are missing")]
    Missing,
    /// The file was removed, replaced, cut or written over while it was in use.
    #[error("the file was removed, replaced, cut or written over while the queue was in use")]
    Vanished,
    /// Less is published than was before: the control file was written over while it was in use.
    #[error("the queue has gone back before what was published")]
    WentBack,
    /// The file could not be read through its mapping: it was cut, or the disk could not read it.
    #[error("the file was cut while it was mapped, or the disk could not read it")]
    Unreadable,
}

impl QueueError {
    /// What the caller should do about it.
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

    /// Damage, unless what is wrong with a batch is only that it passes a bound.
    pub(crate) fn damaged(path: &Path, position: u64, what: impl Into<Damage>) -> Self {
        let (path, position) = (path.to_owned(), Position(position));
        match what.into() {
            Damage::Batch(what) if !what.is_damage() => Self::OverBound { path, position, what },
            what => Self::Damaged { path, position, what },
        }
    }
}

/// Whether the system lacks something that may be there again later: space, also below the process's limit for a file,
/// descriptors, memory.
fn is_shortage(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory)
        || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Names the file and what was tried on an error of the operating system.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, QueueError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, QueueError> {
        self.map_err(|source| QueueError::Io { action, path: path.to_owned(), source })
    }
}
