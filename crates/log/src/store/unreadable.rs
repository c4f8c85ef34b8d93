//! Putting aside what a log dir cannot even read any more, as of a device that is gone.
//!
//! What was settled since the last checkpoint is in segments that nobody can read, and maybe on no disk; the journal has
//! it all until its files are used again. So it is read there, once, which is slow, and nothing else waits for it.

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

/// Why a journal could not be read. The next attempt meets the same, and is slow: around a bad sector a disk is asked for
/// block after block.
#[derive(Debug)]
pub(crate) struct FailedReread {
    error: LogError,
    /// For which partitions it was read, because their segments cannot be. They are not asked either until the next attempt:
    /// a device that is gone may take its time for each.
    partitions: HashSet<PartitionId>,
    retry: Backoff,
}

impl DirLogs {
    /// Whether the next attempt to read back what the partition needs of a journal has to wait.
    pub(super) fn is_known_unreadable(&self, index: usize, partition: PartitionId) -> bool {
        let now = self.env().clock.monotonic();
        let failed = self.failed_rereads.lock();
        let waits =
            |failed: &FailedReread| !failed.retry.is_due(now) && failed.partitions.contains(&partition);
        failed.get(&index).is_some_and(waits)
    }

    /// Puts aside what the segments of `logs` have that no checkpoint covers, read from the journal itself. Where that has
    /// failed, it is tried again after a pause.
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

    /// Has the next attempt made at once.
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
        // A bad sector in what others have sent is none of theirs, nor is one in what a checkpoint covers, was cut, is aside
        // or lies in memory.
        let is_unheld = |header: &EntryHeader, _: Position| {
            let is_of = |cuts: u32, unheld: &Range<Offset>| {
                header.cuts >= cuts && unheld.contains(&header.base_offset)
            };
            wanted.get(&header.stream).is_some_and(|(_, cuts, unheld)| is_of(*cuts, unheld))
        };
        let mut replay = journal.reread(covered).map_err(LogError::Journal)?;
        let mut damaged_count = 0;
        while let Some(mut entries) = replay.next_of(&is_unheld).map_err(LogError::Journal)? {
            // One that is damaged is not there any more, but what comes behind it must not hide that.
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
                    "an entry of the journal that a failed log dir may need is damaged: that is put aside in its place"
                );
            }
            damaged_count = replay.damaged().len();
        }
        // In the place of what is damaged there is a mark.
        for (log, cuts, unheld) in wanted.values() {
            log.note_held(*cuts, unheld.end, 0);
        }
        Ok(())
    }

    /// Behind the last record of an entry; behind its first one if nobody knows how many it had.
    pub(super) fn end_of(&self, entry: &RecoveredEntry) -> Offset {
        let now = self.env().clock.wall();
        let piece = Piece::of_entry(&entry.header, entry.payload.clone(), now);
        piece.map_or_else(|| entry.header.base_offset.next(), |piece| piece.next_offset)
    }
}
