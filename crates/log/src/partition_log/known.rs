//! Facts of a partition that need no access to its files.

use riverrun_types::{Offset, PartitionId};

use super::{PartitionLog, State};
use crate::checkpoint::PartitionCheckpoint;

/// Facts of a partition that need no access to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownPartition {
    /// The partition.
    pub id: PartitionId,
    /// Bytes of its log.
    pub size_bytes: u64,
    /// First offset that can be read.
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub log_end: Offset,
    /// Whether its files are open: then the above is as of now. Otherwise it is as of the last checkpoint, which is
    /// exact for a log that was closed in order; after a kill the log may reach further, until it is recovered.
    pub is_open: bool,
    /// Whether files that are no longer part of the log keep their space until a later retention removes them. A
    /// partition that is closed has none.
    pub awaits_removals: bool,
}

impl KnownPartition {
    /// A partition that has a handle and nothing else yet.
    pub(crate) fn new(id: PartitionId) -> Self {
        Self {
            id,
            size_bytes: 0,
            log_start: Offset::ZERO,
            log_end: Offset::ZERO,
            is_open: false,
            awaits_removals: false,
        }
    }

    /// A partition whose log is closed.
    pub(crate) fn of_checkpoint(id: PartitionId, checkpoint: &PartitionCheckpoint) -> Self {
        Self {
            size_bytes: checkpoint.size_bytes,
            log_start: checkpoint.log_start,
            log_end: checkpoint.log_end.max(checkpoint.log_start),
            ..Self::new(id)
        }
    }
}

impl PartitionLog {
    /// Size and range if the log is open. A log that is being opened or closed counts as closed: this waits for no
    /// disk.
    pub(crate) fn known_if_open(&self) -> Option<KnownPartition> {
        let state = self.state.try_read()?;
        let State::Open(log) = &*state else { return None };
        let awaits_removals = !log.doomed.lock().is_empty();
        let shown = log.shown.lock();
        Some(KnownPartition {
            id: self.id,
            size_bytes: shown.size_bytes(),
            log_start: shown.view.log_start,
            log_end: shown.view.end,
            is_open: true,
            awaits_removals,
        })
    }
}
