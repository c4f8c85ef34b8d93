//! Brings partitions back for which recovery had no room.
//!
//! Their entries were put aside then. Once there is room they are written as recovery would have done it, and a
//! partition is not used before all of them are. Only a few partitions at a time: their entries are in memory
//! meanwhile.
//!
//! Each attempt reads all entries aside, so one that fails is followed by a pause.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riverrun_journal::{Journal, RecoveredEntry};
use riverrun_types::PartitionId;

use super::LogStore;
use super::backoff::Backoff;
use super::dir_logs::DirLogs;
use super::recovery::piece_of;
use super::side_files::held_name_of;
use crate::error::LogError;
use crate::partition_log::{PartitionLog, TailEntry};
use crate::producer_state::AppendOrigin;

/// Beyond so many bytes no other partition is begun in one cycle.
const CYCLE_BYTES: usize = 64 * 1024 * 1024;

/// A partition that is to be brought back.
#[derive(Debug)]
pub(super) struct Waiting {
    log: Arc<PartitionLog>,
    retry: Backoff,
}

impl Waiting {
    pub(super) fn new(log: Arc<PartitionLog>) -> Self {
        Self { log, retry: Backoff::default() }
    }

    fn is_due(&self, now: Duration) -> bool {
        self.retry.is_due(now) && self.log.dir().check_writable(AppendOrigin::Client).is_ok()
    }

    fn after_failure(self, error: &LogError, now: Duration) -> Self {
        Self { retry: self.retry.after_failure(error, now), ..self }
    }
}

impl LogStore {
    /// Tries again to write the entries aside for `dirs`. The first error is returned.
    pub(super) fn bring_back(&self, dirs: &[Arc<DirLogs>]) -> Result<(), LogError> {
        let now = self.now();
        let is_theirs = |waiting: &Waiting| dirs.iter().any(|logs| Arc::ptr_eq(&logs.dir, waiting.log.dir()));
        let due = {
            let mut waiting = self.waiting.lock();
            // Some were deleted meanwhile.
            waiting.retain(|waiting| waiting.log.is_waiting());
            let all = std::mem::take(&mut *waiting).into_iter();
            let (due, left): (Vec<_>, Vec<_>) =
                all.partition(|waiting| is_theirs(waiting) && waiting.is_due(now));
            *waiting = left;
            due
        };
        if due.is_empty() {
            return Ok(());
        }
        let mut read = read_aside(&self.shared.journals, &due);
        let mut result = read.as_ref().map(|_| ()).map_err(Clone::clone);
        for waiting in due {
            let left = match read.as_mut().map(|read| read.remove(&waiting.log.id())) {
                Err(error) => waiting.after_failure(error, self.now()),
                // Other partitions come first in this cycle.
                Ok(None) => waiting,
                Ok(Some(entries)) => {
                    let Err(error) = replay_again(&waiting.log, &entries) else { continue };
                    let left = waiting.after_failure(&error, self.now());
                    result = result.and(Err(error));
                    left
                }
            };
            self.waiting.lock().push(left);
        }
        result
    }
}

/// The entries aside of as many of the partitions as may be brought back at once, in whichever of the journals they
/// lie.
fn read_aside(
    journals: &[Arc<Journal>],
    due: &[Waiting],
) -> Result<HashMap<PartitionId, Vec<RecoveredEntry>>, LogError> {
    let logs = || due.iter().map(|waiting| &waiting.log);
    let mut found: HashMap<_, Vec<_>> = HashMap::new();
    let ids: HashMap<_, _> = logs().map(|log| (crate::shared::stream_of(log.id()), log.id())).collect();
    let names: BTreeSet<_> = logs().flat_map(|log| [log.dir().held_name(), held_name_of(log.id())]).collect();
    let mut passed_over = BTreeSet::new();
    let mut bytes = 0;
    for (name, journal) in names.iter().flat_map(|name| journals.iter().map(move |journal| (name, journal))) {
        let taken = journal.read_held(name, |entries| {
            for entry in entries {
                let Some(id) = ids.get(&entry.header.stream).filter(|id| !passed_over.contains(*id)) else {
                    continue;
                };
                if bytes > CYCLE_BYTES && !found.contains_key(id) {
                    passed_over.insert(*id);
                    continue;
                }
                bytes += entry.payload.len();
                // It shares its file's memory with unwanted entries.
                let payload = Bytes::copy_from_slice(&entry.payload);
                found.entry(*id).or_default().push(RecoveredEntry { payload, ..entry });
            }
        });
        taken.map_err(LogError::Journal)?;
    }
    Ok(found)
}

/// Writes them in the order of their offsets, those from before a cut of the log first. Entries that were put aside
/// twice may have been cut into batches since.
fn replay_again(log: &PartitionLog, entries: &[RecoveredEntry]) -> Result<(), LogError> {
    let pieces: Result<Vec<_>, LogError> = entries.iter().map(|entry| piece_of(log, entry)).collect();
    let mut pieces = pieces?;
    pieces.sort_by_key(|TailEntry { piece, .. }| (piece.cuts, piece.base_offset, Reverse(piece.next_offset)));
    let mut end = None;
    pieces.retain(|TailEntry { piece, .. }| {
        let is_new = end.is_none_or(|end| (piece.cuts, piece.next_offset) > end);
        if is_new {
            end = Some((piece.cuts, piece.next_offset));
        }
        is_new
    });
    log.replay_again(&pieces)
}
