//! Putting aside what a log dir cannot take, so that it does not keep the journals from using their files again.
//!
//! What a dir that has failed, or is full, still needs of a journal is written into a synced file beside the journal's
//! own. It comes back with the next start, and goes once the dir has it all under a checkpoint. So does what a
//! partition cannot take because something is missing before it, or in it: that keeps the partition offline at every
//! start, until someone has restored its log, moved the file away, or deleted the topic.
//!
//! A log dir's name here is its path's. Another dir may lie there at the next start: what is found under such a name may be
//! any dir's, and goes once all of them have what recovery has brought under a checkpoint.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use riverrun_journal::{Journal, Position, RecoveredEntry};
use riverrun_types::PartitionId;

use super::LogStore;
use super::dir_logs::DirLogs;
use crate::error::LogError;
use crate::log_dir::DIR_PREFIX;
use crate::partition_log::{PartitionLog, Piece, TailEntry};

/// Entries are put aside in files of about so many bytes.
const BATCH_BYTES: usize = 64 * 1024 * 1024;

/// How names begin of what is put aside for one partition.
const PARTITION_PREFIX: &str = "partition-";
/// The name of what is put aside of partitions that nobody knows.
pub(super) const UNKNOWN_NAME: &str = "unknown";

/// Entries on their way into one file of a journal.
struct Batch<'a> {
    journal: &'a Arc<Journal>,
    bytes: usize,
    entries: Vec<RecoveredEntry>,
    /// The last of the entries of each log, and the bytes of all of them.
    ends: Vec<(Arc<PartitionLog>, Piece, u64)>,
}

impl<'a> Batch<'a> {
    fn new(journal: &'a Arc<Journal>) -> Self {
        Self { journal, bytes: 0, entries: Vec::new(), ends: Vec::new() }
    }

    fn add(&mut self, log: &Arc<PartitionLog>, unheld: Vec<TailEntry>) {
        let Some(last) = unheld.last().map(|last| last.piece.clone()) else { return };
        let before = self.bytes;
        for TailEntry { piece, position } in unheld {
            self.bytes += piece.bytes.len();
            let header = piece.header(log.id());
            self.entries.push(RecoveredEntry { header, payload: piece.bytes, position });
        }
        self.ends.push((log.clone(), last, (self.bytes - before) as u64));
    }

    /// Synced when it returns.
    fn hold(&mut self, name: &str) -> Result<(), LogError> {
        let entries = std::mem::take(&mut self.entries);
        self.bytes = 0;
        self.journal.hold(name, &entries).map_err(LogError::Journal)?;
        for (log, last, bytes) in self.ends.drain(..) {
            log.note_held(last.cuts, last.next_offset, bytes);
        }
        Ok(())
    }
}

/// Of which partitions of a dir something is put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// Of all that the journals have something of.
    All,
    /// Of those that keep the journals from being given back what was delivered.
    Delivered,
}

impl DirLogs {
    /// Puts aside what the dir still needs of the journals, if it has failed, or if it is full and a journal is needed.
    pub(super) fn put_aside_if_stuck(&self, delivered: &[Position]) {
        let has_failed = self.dir.check_usable().is_err();
        let is_pressing = self.dir.space().is_full() && self.shared().is_journal_half_full();
        if has_failed || is_pressing {
            self.put_aside(delivered, Needed::All);
        } else if !self.shared().is_journal_half_full() {
            // Whatever could not be put aside before needs not be, until the journals need their files again.
            self.note_aside(Ok(()));
        }
    }

    /// To be called after a checkpoint: if that has left something out while a journal is needed, also puts that aside. The
    /// other partitions of the dir go on.
    pub(super) fn put_aside_if_uncovered(&self, delivered: &[Position]) {
        let is_covered = self.covered.lock().iter().zip(delivered).all(|(covered, end)| covered >= end);
        if is_covered && self.dir.check_usable().is_ok() && !self.dir.space().is_full() {
            self.note_aside(Ok(()));
        } else if !is_covered && self.shared().is_journal_half_full() {
            self.put_aside(delivered, Needed::Delivered);
        } else {
            self.put_aside_if_stuck(delivered);
        }
    }

    /// A journal for which that fails keeps no other.
    fn put_aside(&self, delivered: &[Position], needed: Needed) {
        let mut asides = self.dir.asides.lock();
        *asides += 1;
        let mut result = Ok(());
        for (index, delivered) in delivered.iter().copied().enumerate() {
            let end = match needed {
                Needed::All => Position(u64::MAX),
                Needed::Delivered => delivered,
            };
            let put = self.put_aside_of(index, end);
            if put.is_ok() {
                self.note_covered(index, delivered);
                self.logs_of(index).for_each(|log| log.uncount_held());
            }
            result = result.and(put);
        }
        self.note_aside(result);
    }

    /// The partitions whose journal is the one at `index`.
    pub(super) fn logs_of(&self, index: usize) -> impl Iterator<Item = Arc<PartitionLog>> {
        let logs = self.handles().into_iter();
        logs.filter(move |log| self.shared().journal_index_of(log.id()) == Some(index))
    }

    /// Says why what the dir needs cannot be put aside, once for each reason: the next attempts meet the same.
    pub(super) fn note_aside(&self, result: Result<(), LogError>) {
        let mut trouble = self.aside_trouble.lock();
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| trouble.as_ref() != Some(error)) {
            tracing::error!(path = %self.path().display(), error, "the journals keep what the log dir cannot take");
        }
        *trouble = error;
    }

    /// Why what the dir needs of the journals could not be put aside, if it was needed when that was tried last.
    pub(super) fn aside_trouble(&self) -> Option<String> {
        self.aside_trouble.lock().clone()
    }

    /// Puts aside what the partitions have that needs one journal below `end`.
    fn put_aside_of(&self, index: usize, end: Position) -> Result<(), LogError> {
        let covered = self.covered.lock()[index];
        let mut batch = Batch::new(&self.shared().journals[index]);
        let mut unreadable = Vec::new();
        for log in self.logs_of(index) {
            let is_readable = !self.is_known_unreadable(index, log.id());
            if !is_readable || !self.hold_unheld(&log, &(covered..end), &mut batch)? {
                unreadable.push(log);
            }
        }
        batch.hold(&self.dir.held_name())?;
        // Where nothing was delivered since the last time, what cannot be read is none of what the journal has.
        if unreadable.is_empty() || self.shared().journals[index].delivered() <= covered {
            return Ok(());
        }
        self.put_aside_unread(index, covered, &unreadable)?;
        // What comes behind the segments is in memory.
        for log in &unreadable {
            self.hold_unheld(log, &(covered..end), &mut batch)?;
        }
        batch.hold(&self.dir.held_name())
    }

    /// Puts aside what a partition has, the last part of it with the next one's. Whether it can be read.
    fn hold_unheld(
        &self,
        log: &Arc<PartitionLog>,
        unsettled: &Range<Position>,
        batch: &mut Batch<'_>,
    ) -> Result<bool, LogError> {
        loop {
            match log.take_unheld(unsettled, BATCH_BYTES) {
                Ok(unheld) => batch.add(log, unheld),
                Err(error) => {
                    tracing::debug!(partition = %log.id(), %error, "read back from the journal instead");
                    return Ok(false);
                }
            }
            if batch.bytes < BATCH_BYTES {
                return Ok(true);
            }
            batch.hold(&self.dir.held_name())?;
        }
    }

    /// The dir needs nothing of a journal below `end` any more: it has it, or it is aside.
    pub(super) fn note_covered(&self, index: usize, end: Position) {
        let covered = &mut self.covered.lock()[index];
        *covered = (*covered).max(end);
    }

    /// Forgets what was put aside for partitions of this dir that have it all now, and for the dir itself if what lies
    /// under its name `is_own`. A partition that is offline lacks something. Nothing is forgotten if more was put aside than
    /// so many times: the checkpoint that the caller has made may not cover that.
    fn release_held(&self, is_own: bool, asides: u64) -> Result<(), LogError> {
        let count = self.dir.asides.lock();
        if *count != asides {
            return Ok(());
        }
        for (index, journal) in self.shared().journals.iter().enumerate() {
            let names = journal.held();
            if names.is_empty() {
                continue;
            }
            let mut needed = HashSet::new();
            let mut own = HashSet::new();
            for log in self.logs_of(index) {
                let name = held_name_of(log.id());
                if log.is_offline() {
                    // What is aside for the partition alone is there in whole, if it is offline for that.
                    if !names.contains(&name) || log.is_waiting() {
                        needed.insert(self.dir.held_name());
                    }
                    needed.insert(name);
                } else {
                    own.insert(name);
                }
            }
            if is_own {
                own.insert(self.dir.held_name());
            }
            for name in names.iter().filter(|name| own.contains(*name) && !needed.contains(*name)) {
                journal.release_held(name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }
}

impl LogStore {
    /// Forgets what was put aside for dirs that have just covered all that they have, and for partitions of theirs. What was
    /// found under the name of a dir, or under one that nobody comes for, recovery has written, to whichever dirs it belongs,
    /// or put aside anew: it goes once every dir has all of it under a checkpoint.
    /// Each dir comes with how often something had been put aside for it before.
    pub(super) fn release_held(&self, complete: &[(&DirLogs, u64)]) -> Result<(), LogError> {
        let mut open = self.dirs.iter().filter(|logs| logs.dir.is_open());
        let is_recovery_covered = open.all(|logs| logs.has_covered_recovery());
        for (logs, asides) in complete {
            let is_own = is_recovery_covered || !self.found_aside.contains(&logs.dir.held_name());
            logs.release_held(is_own, *asides)?;
        }
        if is_recovery_covered { self.release_foreign() } else { Ok(()) }
    }

    /// Forgets what was put aside under names that nobody comes for: of a log dir that lay elsewhere then, and of
    /// partitions that were unknown then.
    fn release_foreign(&self) -> Result<(), LogError> {
        let current: HashSet<_> = self.dirs.iter().map(|logs| logs.dir.held_name()).collect();
        let has_unknown = !self.unknown.lock().is_empty();
        let is_foreign = |name: &String| match name.as_str() {
            UNKNOWN_NAME => !has_unknown,
            name => is_of_dir(name) && !current.contains(name),
        };
        for journal in &self.shared.journals {
            for name in journal.held().into_iter().filter(is_foreign) {
                journal.release_held(&name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }

    /// Forgets what was put aside for partitions that are no more. After the recovery all others have handles.
    pub(super) fn release_deleted(&self) -> Result<(), LogError> {
        for journal in &self.shared.journals {
            let names: Vec<_> = journal.held().into_iter().filter(|name| is_of_partition(name)).collect();
            if names.is_empty() {
                continue;
            }
            let handles = self.dirs.iter().flat_map(|logs| logs.handles());
            let needed: HashSet<_> = handles.map(|log| held_name_of(log.id())).collect();
            for name in names.iter().filter(|name| !needed.contains(*name)) {
                journal.release_held(name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }
}

/// Under which name the journals keep what one partition cannot take, although its log dir could.
pub(super) fn held_name_of(id: PartitionId) -> String {
    format!("{PARTITION_PREFIX}{:032x}-{}", u128::from_be_bytes(id.topic.0), id.index)
}

/// Whether a name is such a one.
pub(super) fn is_of_partition(name: &str) -> bool {
    name.starts_with(PARTITION_PREFIX)
}

/// Whether a name is a log dir's.
pub(super) fn is_of_dir(name: &str) -> bool {
    name.starts_with(DIR_PREFIX)
}
