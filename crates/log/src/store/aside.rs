//! Putting aside what a log dir cannot take, so that it does not keep the journals from using their files again.
//!
//! What a dir that has failed, or is full, still needs of a journal is written into a synced file beside the journal's
//! own. It comes back with the next start, and goes once the dir has it all under a checkpoint.

use std::sync::Arc;

use riverrun_journal::{EntryHeader, EntryKind, Journal, Position, RecoveredEntry};
use riverrun_types::{Offset, PartitionId};

use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::partition_log::{PartitionLog, Piece};
use crate::shared::stream_of;

/// Entries are put aside in files of about so many bytes.
const BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Entries on their way into one file of a journal.
struct Batch<'a> {
    journal: &'a Arc<Journal>,
    bytes: usize,
    entries: Vec<RecoveredEntry>,
    ends: Vec<(Arc<PartitionLog>, Offset)>,
}

impl<'a> Batch<'a> {
    fn new(journal: &'a Arc<Journal>) -> Self {
        Self { journal, bytes: 0, entries: Vec::new(), ends: Vec::new() }
    }

    fn add(&mut self, log: &Arc<PartitionLog>, pieces: Vec<(Piece, Position)>) {
        if let Some((last, _)) = pieces.last() {
            self.ends.push((log.clone(), last.next_offset));
        }
        for (piece, position) in pieces {
            self.bytes += piece.bytes.len();
            self.entries.push(entry_of(log.id(), &piece, position));
        }
    }

    /// Synced when it returns.
    fn hold(&mut self, name: &str) -> Result<(), LogError> {
        let entries = std::mem::take(&mut self.entries);
        self.bytes = 0;
        self.journal.hold(name, &entries).map_err(LogError::Journal)?;
        for (log, end) in self.ends.drain(..) {
            log.note_held(end);
        }
        Ok(())
    }
}

impl LogDir {
    /// Puts aside what the dir still needs of the journals, if it has failed, or if it is full and a journal is needed.
    pub(super) fn put_aside_if_stuck(&self, delivered: &[Position]) {
        let has_failed = self.check_usable().is_err();
        let is_pressing = self.space().is_full() && self.shared().is_journal_half_full();
        if !has_failed && !is_pressing {
            return;
        }
        match self.put_aside() {
            Ok(()) => self.covered.lock().copy_from_slice(delivered),
            Err(error) => {
                tracing::error!(path = %self.path().display(), %error, "the journals keep what the log dir cannot take");
            }
        }
    }

    fn put_aside(&self) -> Result<(), LogError> {
        let settled = self.covered.lock().iter().min().copied().unwrap_or_default();
        let mut batches: Vec<_> = self.shared().journals.iter().map(Batch::new).collect();
        for log in self.handles() {
            let Some(index) = self.shared().journal_index_of(log.id()) else { continue };
            let unheld = log.take_unheld(settled)?;
            batches[index].add(&log, unheld);
            if batches[index].bytes >= BATCH_BYTES {
                batches[index].hold(&self.held_name())?;
            }
        }
        batches.iter_mut().try_for_each(|batch| batch.hold(&self.held_name()))
    }

    /// Forgets what was put aside for this dir: it has it all now, unless a partition of it is offline.
    pub(super) fn release_held(&self) -> Result<(), LogError> {
        let name = self.held_name();
        for journal in &self.shared().journals {
            let is_needed = || self.handles().iter().any(|log| log.is_offline());
            if journal.held().contains(&name) && !is_needed() {
                journal.release_held(&name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }
}

/// What the journal keeps of a piece.
pub(super) fn entry_of(id: PartitionId, piece: &Piece, position: Position) -> RecoveredEntry {
    let header = EntryHeader {
        stream: stream_of(id),
        kind: EntryKind::Records,
        index: piece.base_offset.0.unsigned_abs(),
        epoch: piece.epoch.0.unsigned_abs(),
        base_offset: piece.base_offset,
        leader_epoch: piece.epoch,
    };
    RecoveredEntry { header, payload: piece.bytes.clone(), position }
}
