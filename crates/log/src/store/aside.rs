//! Putting aside what a log dir cannot take, so that it does not keep the journals from using their files again.
//!
//! What a dir that has failed, or is full, still needs of a journal is written into a synced file beside the journal's
//! own. It comes back with the next start, and goes once the dir has it all under a checkpoint.

use riverrun_journal::{EntryHeader, EntryKind, Position, RecoveredEntry};
use riverrun_types::PartitionId;

use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::partition_log::Piece;
use crate::shared::stream_of;

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
        let name = self.held_name();
        let settled = self.covered.lock().iter().min().copied().unwrap_or_default();
        for log in self.handles() {
            let Some(journal) = self.shared().journal_of(log.id()) else { continue };
            let unheld = log.take_unheld(settled)?;
            let entries: Vec<_> =
                unheld.iter().map(|(piece, position)| entry_of(log.id(), piece, *position)).collect();
            if !entries.is_empty() {
                journal.hold(&name, &entries).map_err(LogError::Journal)?;
                log.note_held(&entries);
            }
        }
        Ok(())
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

fn entry_of(id: PartitionId, piece: &Piece, position: Position) -> RecoveredEntry {
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
