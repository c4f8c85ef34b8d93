//! Errors of the log, by the caller's answer to them.
//!
//! Every error names the file it is about. A partition that is found corrupt answers [`LogError::Corrupt`] from then
//! on, until a start finds it mended; the other partitions go on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Vanishing, is_descriptor_shortage, is_odd_file, is_shortage};
use riverrun_journal::JournalError;
use riverrun_records::{BatchError, ProduceError, RefusedRecords};
use riverrun_types::{DurabilityLevel, ErrorKind, Offset, PartitionId};
use thiserror::Error;

use crate::bad_sector::bad_sector;
use crate::fields::DecodeError;
use crate::producer_state::SequenceError;

/// Trouble with the storage itself.
#[derive(Clone, Debug, Error)]
pub enum LogError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A write or a sync failed, and not for a shortage, which may end: the log dir fails with it, and callers see
    /// [`LogError::DirFailed`].
    #[error("{}: writing failed: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Bytes that were once durable have changed.
    #[error("{} is corrupt at byte {position}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The position in it.
        position: u64,
        /// The fault there.
        what: String,
    },
    /// The disk does not give back this place of a segment: it has a bad sector there. Bytes around it are read as
    /// before; the place may become readable again.
    #[error("{} cannot be read at byte {position}: the disk answers with an error", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The position in it.
        position: u64,
    },
    /// A file or a directory that was in use is not at its place. Bytes that were written to it since may be lost.
    #[error("{} {how}", path.display())]
    Vanished {
        /// The file or directory.
        path: PathBuf,
        /// How it vanished.
        how: Vanishing,
    },
    /// Files of the log are not at their places, and retention or compaction is at work on them: the look is repeated.
    #[error("files of partition {0} are being removed or replaced")]
    BeingReshaped(PartitionId),
    /// The log is being cut: nothing is appended to it meanwhile.
    #[error("partition {0} is being cut")]
    BeingCut(PartitionId),
    /// A log can be cut no further back than to its start, nor where it was compacted.
    #[error(
        "partition {id} cannot be cut at offset {offset}: it begins at, or was compacted up to, {from} or beyond"
    )]
    CutTooFar {
        /// The partition.
        id: PartitionId,
        /// The requested end of the log.
        offset: Offset,
        /// The first offset at which it can be cut.
        from: Offset,
    },
    /// The log cannot be cut before its level has changed, or a checkpoint has taken the place of one that was damaged.
    #[error("partition {0} cannot be cut now")]
    CutWaits(PartitionId),
    /// An intact batch that inflates to more than the server reads, or than it has memory for. It is left alone, and so
    /// is the partition.
    #[error("{}: the batch at byte {position} is intact and cannot be processed: {source}", path.display())]
    Unprocessed {
        /// The file.
        path: PathBuf,
        /// The position in it.
        position: u64,
        /// The exceeded bound.
        source: BatchError,
    },
    /// A file of ours cannot be read: another kind, a newer version, damage.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: DecodeError,
    },
    /// Another process holds the log dir.
    #[error("{} is in use by another server; stop it or choose another directory", path.display())]
    Locked {
        /// The log dir.
        path: PathBuf,
    },
    /// A write or a sync in the log dir has failed. Unsynced bytes may be lost although they can still be read, so
    /// nothing more is written there until a restart.
    #[error("log dir {} has failed: {reason}", path.display())]
    DirFailed {
        /// The log dir.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// The log dir has no room for this append, or for a compaction's output. It is tried again later: retention or an
    /// administrator may make room.
    #[error(
        "log dir {} has {available_bytes} bytes left, of which {reserve_bytes} are kept in reserve",
        path.display()
    )]
    DirFull {
        /// The log dir.
        path: PathBuf,
        /// Bytes that were left at the last measurement.
        available_bytes: u64,
        /// Bytes that clients and compaction may not use.
        reserve_bytes: u64,
    },
    /// A journal cannot be opened or read.
    #[error(transparent)]
    Journal(JournalError),
    /// The partition's journal has failed: no append that needs it is acked any more, until a restart.
    #[error("the journal has failed: {0}")]
    JournalFailed(JournalError),
    /// A level that syncs needs a journal.
    #[error("durability {level} needs a journal, and this store has none")]
    NoJournal {
        /// The level.
        level: DurabilityLevel,
    },
    /// Records of the partition could not be brought into its segments: the journal keeps them, or keeps them aside,
    /// and the partition takes nothing more until they are there. The process's log tells the reason.
    #[error(
        "partition {0} takes nothing more: its records cannot be written to its log dir, and stay in the journal, or only in \
         memory if their level has none, until they can"
    )]
    Aside(PartitionId),
    /// The level of a partition could not be changed now; it is tried again.
    #[error("the durability of partition {0} cannot be changed now")]
    LevelWaits(PartitionId),
    /// Some log could not be covered by a checkpoint: its records in the journal are nowhere else.
    #[error("the journal in {} holds records that no checkpoint covers", path.display())]
    NotSettled {
        /// The journal's directory.
        path: PathBuf,
    },
    /// There is no time left to bring the journals' records into the segments: the store is being closed.
    #[error("the log store is being closed, and unsettled records are left to the journals")]
    OutOfTime,
    /// The disk of the log dir has not answered for seconds, and an append would have to wait for it.
    #[error("log dir {} does not answer", path.display())]
    DirHangs {
        /// The log dir.
        path: PathBuf,
    },
    /// Earlier records of the partition could not be written, and their producers have had no answer.
    #[error("appends to partition {0} were lost")]
    Lost(PartitionId),
    /// The journals' records were not brought into the segments yet.
    #[error("the journals' entries are still being recovered")]
    NotRecovered,
    /// The partition was deleted while the caller held it.
    #[error("partition {0} was deleted")]
    Deleted(PartitionId),
    /// The store was closed.
    #[error("the log store is closed")]
    Closed,
}

impl LogError {
    /// An error of the system about the file; [`LogError::Unreadable`] if it tells the position of a bad sector.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        match bad_sector(&source) {
            Some(position) => Self::Unreadable { path: path.to_path_buf(), position },
            None => Self::Io { path: path.to_path_buf(), source: Arc::new(source) },
        }
    }

    /// Judges an error of a write. Shortages pass, and a name that was removed, or given to something else, is not the
    /// disk's fault; any other error says that the disk does not keep its bytes.
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        let is_name = is_odd_file(&source)
            || matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            );
        if is_name || is_shortage(&source) { Self::io(path, source) } else { Self::sync(path, source) }
    }

    /// An error of a sync. Whatever its reason, the pages count as written from now on.
    pub(crate) fn sync(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_path_buf(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(path: &Path, position: u64, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_path_buf(), position, what: what.into() }
    }

    /// The error of an unusable batch in the file: damage only if its bytes are wrong.
    pub(crate) fn batch(path: &Path, position: u64, source: BatchError) -> Self {
        if source.is_damage() {
            Self::corrupt(path, position, source.to_string())
        } else {
            Self::Unprocessed { path: path.to_path_buf(), position, source }
        }
    }

    /// Whether an opening failed because the process, or the machine, has no descriptor left.
    pub fn is_descriptor_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_descriptor_shortage(source))
    }

    /// The caller's right reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // Space may come back: retention, or an administrator, makes some. So may descriptors and memory.
            Self::Io { source, .. } if is_shortage(source) => ErrorKind::Retry,
            Self::Closed
            | Self::OutOfTime
            | Self::DirFull { .. }
            | Self::DirHangs { .. }
            | Self::Lost(_)
            | Self::NotRecovered
            | Self::NotSettled { .. }
            | Self::Aside(_)
            | Self::BeingReshaped(_)
            | Self::BeingCut(_)
            | Self::CutWaits(_)
            | Self::LevelWaits(_) => ErrorKind::Retry,
            Self::Journal(source) => source.kind(),
            Self::NoJournal { .. } | Self::Locked { .. } | Self::Deleted(_) | Self::CutTooFar { .. } => {
                ErrorKind::FixRequest
            }
            Self::Io { .. }
            | Self::JournalFailed(_)
            | Self::Write { .. }
            | Self::Corrupt { .. }
            | Self::Unreadable { .. }
            | Self::Vanished { .. }
            | Self::Unprocessed { .. }
            | Self::Format { .. }
            | Self::DirFailed { .. } => ErrorKind::GiveUp,
        }
    }

    /// Whether the disk, or the user's share of it, is full. A file at its largest size says nothing of other files.
    pub(crate) fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero
        )
    }

    /// Whether the partition stays offline after this, so that the same answer is given without trying again.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::Format { .. } => true,
            Self::Io { source, .. } => is_odd_file(source),
            Self::Vanished { how, .. } => *how != Vanishing::Missing,
            _ => false,
        }
    }
}

/// Why an append was refused. Nothing was written.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// The batch is damaged or breaks a rule.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// Some of its records break rules of the topic.
    #[error("{0}")]
    Records(RefusedRecords),
    /// The batch is larger than `max.message.bytes`.
    #[error("a batch of {bytes} bytes is larger than max.message.bytes, {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The batches are larger than a segment may be.
    #[error("{bytes} bytes do not fit into a segment of {segment_bytes} bytes")]
    LargerThanSegment {
        /// Their size.
        bytes: usize,
        /// `segment.bytes`.
        segment_bytes: usize,
    },
    /// The batches are larger than an entry of the journal may be.
    #[error("{bytes} bytes do not fit into the journal, which takes {bytes_max} at once")]
    LargerThanJournal {
        /// Their size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The producer's sequence or epoch does not fit.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] LogError),
}

impl From<ProduceError> for AppendError {
    fn from(refused: ProduceError) -> Self {
        match refused {
            ProduceError::Batch(error) => Self::Batch(error),
            ProduceError::Records(records) => Self::Records(records),
        }
    }
}

impl AppendError {
    /// The caller's right reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Batch(error) => error.kind(),
            Self::Records(refused) => refused.error().kind(),
            Self::TooLarge { .. } | Self::LargerThanSegment { .. } | Self::LargerThanJournal { .. } => {
                ErrorKind::FixRequest
            }
            Self::Sequence(error) => error.kind(),
            Self::Storage(error) => error.kind(),
        }
    }
}

/// Why a read failed.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// The offset is outside the log.
    #[error("offset {offset} is outside the log, which holds {log_start} up to {log_end}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// First offset that can be read.
        log_start: Offset,
        /// The offset after the last record.
        log_end: Offset,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] LogError),
    /// The index of the segment has no entry near the offset: the search takes longer than the reader allows.
    #[error("the offset lies far from all entries of its segment's index")]
    FarFromIndex,
}

impl ReadError {
    /// The caller's right reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfRange { .. } => ErrorKind::FixRequest,
            Self::Storage(error) => error.kind(),
            Self::FarFromIndex => ErrorKind::Retry,
        }
    }
}
