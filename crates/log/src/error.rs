//! What can go wrong in the log, by what the caller has to answer.
//!
//! Every error names the file it is about. A partition that is found corrupt answers [`LogError::Corrupt`] from
//! then on, until someone has looked; the other partitions go on.

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
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// A write or a sync failed, and not for want of space or anything else that comes back: the log dir fails with
    /// it, and callers see [`LogError::DirFailed`].
    #[error("{}: writing failed: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Bytes that were once durable are not what was written.
    #[error("{} is corrupt at byte {position}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: u64,
        /// What is wrong there.
        what: String,
    },
    /// The disk does not give back this place of a segment: it has a bad sector there. What lies around it is read as
    /// before, and nobody knows whether it stays so.
    #[error("{} cannot be read at byte {position}: the disk answers with an error", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: u64,
    },
    /// A file or a directory that was in use is not where it was. What was written to it since may be lost.
    #[error("{} {how}", path.display())]
    Vanished {
        /// The file or directory.
        path: PathBuf,
        /// What became of it.
        how: Vanishing,
    },
    /// Files of the log are not where they were, and retention or compaction is at work on them: it is looked again.
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
        /// Where it was to be cut.
        offset: Offset,
        /// Where it can be cut first.
        from: Offset,
    },
    /// The log cannot be cut before its level has changed, or a checkpoint has taken the place of one that was damaged.
    #[error("partition {0} cannot be cut now")]
    CutWaits(PartitionId),
    /// A batch that is what was written, and that inflates to more than anybody here reads, or has no memory for. It
    /// is left alone, and so is the partition.
    #[error("{}: the batch at byte {position} is intact and cannot be processed: {source}", path.display())]
    Unprocessed {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: u64,
        /// What there is too much of.
        source: BatchError,
    },
    /// A file of ours cannot be read: another kind, a newer version, damage.
    #[error("{}: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// Another process holds the log dir.
    #[error("{} is in use by another server; stop it or choose another directory", path.display())]
    Locked {
        /// The log dir.
        path: PathBuf,
    },
    /// A write or a sync in the log dir has failed. What was not synced before may be lost although it can still be
    /// read, so nothing more is written there until a restart.
    #[error("log dir {} has failed: {reason}", path.display())]
    DirFailed {
        /// The log dir.
        path: PathBuf,
        /// The failure.
        reason: String,
    },
    /// The log dir has no room for this append, or for what a compaction would write. It is tried again later: space comes
    /// back by retention, or somebody makes some.
    #[error(
        "log dir {} has {available_bytes} bytes left, of which {reserve_bytes} are kept in reserve",
        path.display()
    )]
    DirFull {
        /// The log dir.
        path: PathBuf,
        /// What was left when it was last measured.
        available_bytes: u64,
        /// What clients and compaction may not use.
        reserve_bytes: u64,
    },
    /// A journal cannot be opened or read.
    #[error(transparent)]
    Journal(JournalError),
    /// The partition's journal has failed: nothing more is acked that would have to be in it, until a restart.
    #[error("the journal has failed: {0}")]
    JournalFailed(JournalError),
    /// A level that syncs needs a journal.
    #[error("durability {level} needs a journal, and this store has none")]
    NoJournal {
        /// The level.
        level: DurabilityLevel,
    },
    /// What the partition has could not be brought into its segments: the journal keeps it, or keeps it aside, and the
    /// partition takes nothing more until it is there. The log says what stands in the way.
    #[error(
        "partition {0} takes nothing more: records of it cannot be written to its log dir, and stay in the journal, or only \
         in memory where their level has none, until they can"
    )]
    Aside(PartitionId),
    /// The level of a partition could not be changed now; it is tried again.
    #[error("the durability of partition {0} cannot be changed now")]
    LevelWaits(PartitionId),
    /// Some log could not be covered by a checkpoint: what the journal has of it is nowhere else.
    #[error("the journal in {} holds records that no checkpoint covers", path.display())]
    NotSettled {
        /// The journal's directory.
        path: PathBuf,
    },
    /// There is no time left to bring what the journals hold into the segments: the store is being closed.
    #[error("the log store is being closed, and what the journals hold is left to them")]
    OutOfTime,
    /// The disk of the log dir has not answered for seconds, and what is appended would have to wait for it.
    #[error("log dir {} does not answer", path.display())]
    DirHangs {
        /// The log dir.
        path: PathBuf,
    },
    /// What was appended to the partition before could not be written, and whoever has appended that was not told.
    #[error("appends to partition {0} were lost")]
    Lost(PartitionId),
    /// What the journals hold was not brought into the segments yet.
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
    /// What an error of the system says of the file; [`LogError::Unreadable`] if it tells where a bad sector is.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        match bad_sector(&source) {
            Some(position) => Self::Unreadable { path: path.to_path_buf(), position },
            None => Self::Io { path: path.to_path_buf(), source: Arc::new(source) },
        }
    }

    /// Judges an error of a write. Shortages pass, and a name that someone took away, or gave to something else, is not the disk's fault; all else
    /// says that the disk does not keep what it is given.
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

    /// What follows from a batch in the file that cannot be used: damage only if its bytes are wrong.
    pub(crate) fn batch(path: &Path, position: u64, source: BatchError) -> Self {
        if source.is_damage() {
            Self::corrupt(path, position, source.to_string())
        } else {
            Self::Unprocessed { path: path.to_path_buf(), position, source }
        }
    }

    /// Whether the process, or the machine, has no descriptor left for what was to be opened.
    pub fn is_descriptor_shortage(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_descriptor_shortage(source))
    }

    /// What the caller should do.
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

    /// Whether the disk, or the user's share of it, is full. A file that may not grow says nothing of the others.
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
    /// Some records of it break rules of the topic.
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
        /// What fits.
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
    /// What the caller should do.
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

/// Why nothing was read.
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
    /// The index of the segment has no entry near the offset: to find it takes longer than the reader was willing to wait.
    #[error("the offset lies far from all entries of its segment's index")]
    FarFromIndex,
}

impl ReadError {
    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfRange { .. } => ErrorKind::FixRequest,
            Self::Storage(error) => error.kind(),
            Self::FarFromIndex => ErrorKind::Retry,
        }
    }
}
