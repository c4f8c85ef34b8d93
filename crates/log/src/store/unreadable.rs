//! Puts aside records that a log dir cannot even read any more, as on a device that is gone.
//!
//! Records that were settled since the last checkpoint are in unreadable segments, and maybe on no disk; the journal
//! has them all until its files are used again. So they are read there, once, which is slow; no other work waits for
//! it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use riverrun_journal::{EntryHeader, Position, RecoveredEntry};
use riverrun_types::{Offset, PartitionId};

use super::backoff::Backoff;
use super::dir_logs::DirLogs;
use crate::error::LogError;
use crate::partition_log::{PartitionLog, Piece};
use crate::shared::{partition_of, stream_of};

/// The error of reading a journal. The next attempt meets the same, and is slow: around a bad sector a disk is asked
/// for block after block.
#[derive(Debug)]
pub(crate) struct FailedReread {
    error: LogError,
    /// The partitions that it was read for, because their segments cannot be. Their segments are not read either until
    /// the next attempt: a device that is gone may take its time for each.
    partitions: HashSet<PartitionId>,
    retry: Backoff,
}

impl DirLogs {
    /// Whether the next attempt to read the partition's entries back from a journal has to wait.
    pub(super) fn is_known_unreadable(&self, index: usize, partition: PartitionId) -> bool {
        let now = self.env().clock.monotonic();
        let failed = self.failed_rereads.lock();
        let waits =
            |failed: &FailedReread| !failed.retry.is_due(now) && failed.partitions.contains(&partition);
        failed.get(&index).is_some_and(waits)
    }

    /// Puts aside the records in the segments of `logs` that no checkpoint covers, read from the journal itself. After
    /// a failure, it is tried again after a pause.
    pub(super) fn put_aside_unread(
        &self,
        index: usize,
        covered: Position,
        logs: &[Arc<PartitionLog>],
    ) -> Result<(), LogError> {
        let now = self.env().clock.monotonic();
        let retry = match self.failed_rereads.lock().get(&index) {
            Some(failed) if !failed.retry.is_due(now) => return Err(failed.error.clone()),
            failed => failed.map(|failed| failed.retry).unwrap_or_default(),
        };
        let result = self.reread(index, covered, logs);
        let mut failed = self.failed_rereads.lock();
        match &result {
            Ok(()) => _ = failed.remove(&index),
            Err(error) => {
                let retry = retry.after_failure(error, self.env().clock.monotonic());
                let partitions = logs.iter().map(|log| log.id()).collect();
                failed.insert(index, FailedReread { error: error.clone(), partitions, retry });
            }
        }
        result
    }

    /// Lets the next attempt be made at once.
    pub(super) fn forget_failed_rereads(&self) {
        self.failed_rereads.lock().clear();
    }

    fn reread(&self, index: usize, covered: Position, logs: &[Arc<PartitionLog>]) -> Result<(), LogError> {
        let journal = &self.shared().journals[index];
        let wanted = logs.iter().map(|log| {
            let (cuts, unheld) = log.unheld_settled();
            (stream_of(log.id()), (log, cuts, unheld))
        });
        let wanted: HashMap<_, _> = wanted.collect();
        // A bad sector in entries of other partitions does not matter, nor does one in entries that a checkpoint
        // covers, that were cut, or that are aside or in memory.
        let is_unheld = |header: &EntryHeader, _: Position| {
            let is_of = |cuts: u32, unheld: &Range<Offset>| {
                header.cuts >= cuts && unheld.contains(&header.base_offset)
            };
            wanted.get(&header.stream).is_some_and(|(_, cuts, unheld)| is_of(*cuts, unheld))
        };
        let mut replay = journal.reread(covered).map_err(LogError::Journal)?;
        let mut damaged_count = 0;
        while let Some(mut entries) = replay.next_of(&is_unheld).map_err(LogError::Journal)? {
            // A damaged entry is lost, but later entries must not hide that.
            let damaged = &replay.damaged()[damaged_count..];
            entries.extend(damaged.iter().map(RecoveredEntry::damaged));
            entries.sort_by_key(|entry| entry.position);
            journal.hold(&self.dir.held_name(), &entries).map_err(LogError::Journal)?;
            for entry in &entries {
                if let Some((log, ..)) = wanted.get(&entry.header.stream) {
                    log.note_held(entry.header.cuts, self.end_of(entry), entry.payload.len() as u64);
                }
            }
            for damaged in damaged {
                tracing::error!(
                    path = %damaged.path.display(), position = damaged.position.0, what = damaged.what,
                    partition = %partition_of(damaged.header.stream), offset = damaged.header.base_offset.0,
                    "an entry of the journal that a failed log dir may need is damaged: a mark of that is put aside in its place"
                );
            }
            damaged_count = replay.damaged().len();
        }
        // Damaged entries have a mark in their place.
        for (log, cuts, unheld) in wanted.values() {
            log.note_held(*cuts, unheld.end, 0);
        }
        Ok(())
    }

    /// End of the last record of an entry; of its first one if their number is unknown.
    pub(super) fn end_of(&self, entry: &RecoveredEntry) -> Offset {
        let now = self.env().clock.wall();
        let piece = Piece::of_entry(&entry.header, entry.payload.clone(), now);
        piece.map_or_else(|| entry.header.base_offset.next(), |piece| piece.next_offset)
    }
}
