//! Keeps a log dir that hangs from holding up the others: the journals are given back without it, its records do not
//! fill the write cache, and its tails keep none of the others' memory.
//!
//! The dir's own settler waits for its disk. So another dir's settler does this, and touches neither the disk nor a
//! lock that is held during waits for it: it reads the dir's entries from the journals, wherever the dir has come to
//! since. The dir may go on at any moment. A checkpoint that began after its entries were put aside releases them then,
//! and no other.

use std::collections::HashMap;

use riverrun_journal::{EntryHeader, Position, RecoveredEntry};

use super::dir_logs::DirLogs;
use crate::error::LogError;
use crate::partition_log::{EntryPlace, PartitionLog};
use crate::shared::stream_of;

impl DirLogs {
    /// Gives its tails memory of their own: the journals' groups, which they share with settled entries of others, are
    /// freed.
    pub(crate) fn unshare_tails(&self) {
        self.handles().iter().for_each(|log| log.unshare_tail());
    }

    /// Puts aside the entries that keep the journals from being given back up to `delivered`. Does nothing if that is
    /// being done.
    pub(super) fn put_aside_hanging(&self, delivered: &[Position]) {
        let Some(mut asides) = self.dir.asides.try_lock() else { return };
        *asides += 1;
        let mut result = Ok(());
        for (index, end) in delivered.iter().copied().enumerate() {
            let covered = self.covered.lock()[index];
            if covered >= end {
                continue;
            }
            let put = self.hold_from_journal(index, covered);
            if put.is_ok() {
                self.note_covered(index, end);
                tracing::warn!(
                    path = %self.path().display(), bytes = end.0 - covered.0,
                    "a log dir hangs: its entries of the journal are kept aside, so that the others go on"
                );
            }
            result = result.and(put);
        }
        self.report_aside(result);
    }

    /// Puts aside the entries of a journal that were delivered at `covered` or later and that no checkpoint of the
    /// partition covers.
    fn hold_from_journal(&self, index: usize, covered: Position) -> Result<(), LogError> {
        let journal = &self.shared().journals[index];
        let wanted: HashMap<_, _> = self
            .logs_of(index)
            .filter_map(|log| Some((stream_of(log.id()), (log.unheld_from()?, log))))
            .collect();
        let is_wanted = |header: &EntryHeader, _: Position| {
            wanted.get(&header.stream).is_some_and(|(from, _)| EntryPlace::of(header) >= *from)
        };
        let mut replay = journal.reread(covered).map_err(LogError::Journal)?;
        let mut damaged_count = 0;
        while let Some(mut entries) = replay.next_of(&is_wanted).map_err(LogError::Journal)? {
            let damaged = &replay.damaged()[damaged_count..];
            entries.extend(damaged.iter().map(RecoveredEntry::damaged));
            damaged_count = replay.damaged().len();
            entries.sort_by_key(|entry| entry.position);
            journal.hold(&self.dir.held_name(), &entries).map_err(LogError::Journal)?;
            for entry in &entries {
                if let Some((_, log)) = wanted.get(&entry.header.stream) {
                    log.note_held(entry.header.cuts, self.end_of(entry), entry.payload.len() as u64);
                }
            }
        }
        Ok(())
    }
}

impl PartitionLog {
    /// The place in the journal from which on its entries may be under no checkpoint, and are not aside; `None` if the
    /// log is closed, or its appends go past the journal.
    fn unheld_from(&self) -> Option<EntryPlace> {
        let held_end = self.held_end_of_journal()?;
        Some(EntryPlace { base_offset: held_end.base_offset.max(self.known_end()), ..held_end })
    }
}
