//! Puts entries aside that a log dir cannot take, so that they do not keep the journals from using their files again.
//!
//! Entries of a journal that a dir still needs after it has failed, or while it is full, are written into a synced file
//! beside the journal's own. The next start reads it, and it is removed once the dir has all of it under a checkpoint.
//! The same is done with entries that a partition cannot take because something is missing before or in them: that
//! keeps the partition offline at every start, until an administrator has restored its log, moved the file away, or
//! deleted the topic.
//!
//! A log dir's name here is made of its path. Another dir may lie there at the next start: entries that are found under
//! such a name may be any dir's, and are released once all dirs have covered the recovered entries by a checkpoint.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use riverrun_journal::{Journal, Position, RecoveredEntry};
use riverrun_types::PartitionId;

use super::LogStore;
use super::dir_logs::DirLogs;
use super::recovery::hold_held_of;
use crate::error::LogError;
use crate::log_dir::DIR_PREFIX;
use crate::partition_log::{PartitionLog, Piece, TailEntry};

/// Entries are put aside in files of about so many bytes.
const BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Begin of the names for entries of one partition.
const PARTITION_PREFIX: &str = "partition-";
/// The name for entries of unknown partitions.
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

/// The partitions of a dir whose entries are put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// All with entries in the journals.
    All,
    /// Those that keep the journals from being given back delivered entries.
    Delivered,
}

impl DirLogs {
    /// Puts aside the entries that the dir still needs, if it has failed, or if it is full and a journal is needed.
    pub(super) fn put_aside_if_stuck(&self, delivered: &[Position]) {
        let has_failed = self.dir.check_usable().is_err();
        let is_pressing = self.dir.space().is_full() && self.shared().is_journal_half_full();
        if has_failed || is_pressing {
            self.put_aside(delivered, Needed::All);
        } else if !self.shared().is_journal_half_full() {
            // Entries that could not be put aside before need not be, until the journals need their files again.
            self.report_aside(Ok(()));
        }
    }

    /// To be called after a checkpoint: if that has left partitions out while a journal is needed, puts their entries
    /// aside. The other partitions of the dir go on.
    pub(super) fn put_aside_if_uncovered(&self, delivered: &[Position]) {
        let is_covered = self.covered.lock().iter().zip(delivered).all(|(covered, end)| covered >= end);
        if is_covered && self.dir.check_usable().is_ok() && !self.dir.space().is_full() {
            self.report_aside(Ok(()));
        } else if !is_covered && self.shared().is_journal_half_full() {
            self.put_aside(delivered, Needed::Delivered);
        } else {
            self.put_aside_if_stuck(delivered);
        }
    }

    /// A failure for one journal does not keep the others from it.
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
        self.report_aside(result);
    }

    /// The partitions whose journal is the one at `index`.
    pub(super) fn logs_of(&self, index: usize) -> impl Iterator<Item = Arc<PartitionLog>> {
        let logs = self.handles().into_iter();
        logs.filter(move |log| self.shared().journal_index_of(log.id()) == Some(index))
    }

    /// Logs why the dir's entries cannot be put aside, once for each reason: the next attempts meet the same.
    pub(super) fn report_aside(&self, result: Result<(), LogError>) {
        let mut trouble = self.aside_trouble.lock();
        let error = result.err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| trouble.as_ref() != Some(error)) {
            tracing::error!(path = %self.path().display(), error, "the journals keep what the log dir cannot take");
        }
        *trouble = error;
    }

    /// The error of the last attempt to put the dir's entries aside, if that was needed and failed.
    pub(super) fn aside_trouble(&self) -> Option<String> {
        self.aside_trouble.lock().clone()
    }

    /// Puts aside the entries of partitions that need one journal below `end`.
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
        // If nothing was delivered since the last time, the unreadable segments have no records of the journal.
        if unreadable.is_empty() || self.shared().journals[index].delivered() <= covered {
            return Ok(());
        }
        self.put_aside_unread(index, covered, &unreadable)?;
        // Records behind the segments are in memory.
        for log in &unreadable {
            self.hold_unheld(log, &(covered..end), &mut batch)?;
        }
        batch.hold(&self.dir.held_name())
    }

    /// Puts aside the entries of a partition, the last part of them with the next one's. Returns whether its segments
    /// can be read.
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

    /// Releases the entries aside for partitions of this dir that have them all now, and for the dir itself if those
    /// under its name are its own (`is_own`). A partition that is offline lacks some, and keeps those under a name of
    /// its own, unless it waits for room. Does nothing if entries were put aside more than `asides` times: the caller's
    /// checkpoint may not cover the last ones.
    fn release_held(&self, is_own: bool, asides: u64) -> Result<(), LogError> {
        let count = self.dir.asides.lock();
        if *count != asides {
            return Ok(());
        }
        if self.shared().journals.iter().all(|journal| journal.held().is_empty()) {
            return Ok(());
        }
        let handles = self.handles();
        let needs_dir = handles.iter().any(|log| log.is_waiting());
        let online = handles.iter().filter(|log| !log.is_offline());
        let mut own: HashSet<_> = online.map(|log| held_name_of(log.id())).collect();
        if is_own && !needs_dir {
            own.insert(self.dir.held_name());
        }
        let offline = names_of_offline(handles.into_iter());
        // A partition may have entries in any of the journals, if these were other ones before.
        for journal in &self.shared().journals {
            for name in journal.held().iter().filter(|name| own.contains(*name)) {
                if is_of_dir(name) {
                    hold_held_of(journal, &offline)?;
                }
                journal.release_held(name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }
}

impl LogStore {
    /// Releases the entries aside for dirs that have just covered everything, and for their partitions. Recovery has
    /// written the entries under the name of a dir, or under a name that is not used any more, into the dirs that they
    /// belong to, or has put them aside anew: they are released once every dir has covered them by a checkpoint. Each
    /// dir comes with the number of times that entries had been put aside for it before.
    pub(super) fn release_held(&self, complete: &[(&DirLogs, u64)]) -> Result<(), LogError> {
        let mut open = self.dirs.iter().filter(|logs| logs.dir.is_open());
        let is_recovery_covered = open.all(|logs| logs.has_covered_recovery());
        for (logs, asides) in complete {
            let is_own = is_recovery_covered || !self.found_aside.contains(&logs.dir.held_name());
            logs.release_held(is_own, *asides)?;
        }
        if is_recovery_covered { self.release_foreign() } else { Ok(()) }
    }

    /// Releases entries under names that are not used any more: of a log dir at another path, and of partitions that
    /// were unknown.
    fn release_foreign(&self) -> Result<(), LogError> {
        let current: HashSet<_> = self.dirs.iter().map(|logs| logs.dir.held_name()).collect();
        let has_unknown = !self.unknown.lock().is_empty();
        let is_foreign = |name: &String| match name.as_str() {
            UNKNOWN_NAME => !has_unknown,
            name => is_of_dir(name) && !current.contains(name),
        };
        let handles = || self.dirs.iter().flat_map(|logs| logs.handles());
        for journal in &self.shared.journals {
            for name in journal.held().into_iter().filter(is_foreign) {
                hold_held_of(journal, &names_of_offline(handles()))?;
                journal.release_held(&name).map_err(LogError::Journal)?;
            }
        }
        Ok(())
    }

    /// Releases the entries of deleted partitions. After the recovery all others have handles.
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

/// Those of the logs that are offline, and the names under which they keep their entries aside when other names go: a
/// log may have gone offline after it had taken some.
fn names_of_offline(logs: impl Iterator<Item = Arc<PartitionLog>>) -> BTreeMap<PartitionId, String> {
    let name_of =
        |log: &PartitionLog| if log.is_waiting() { log.dir().held_name() } else { held_name_of(log.id()) };
    logs.filter(|log| log.is_offline()).map(|log| (log.id(), name_of(&log))).collect()
}

/// The name under which the journals keep entries that one partition cannot take, although its log dir could.
pub(super) fn held_name_of(id: PartitionId) -> String {
    format!("{PARTITION_PREFIX}{:032x}-{}", u128::from_be_bytes(id.topic.0), id.index)
}

/// Whether a name is one for a partition.
pub(super) fn is_of_partition(name: &str) -> bool {
    name.starts_with(PARTITION_PREFIX)
}

/// Whether a name is a log dir's.
pub(super) fn is_of_dir(name: &str) -> bool {
    name.starts_with(DIR_PREFIX)
}
