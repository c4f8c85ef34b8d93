//! Bringing partitions back that recovery had no room for.
//!
//! What the journals have of them was put aside then. Once there is room it is written as recovery would have done it,
//! and nobody uses a partition before all of it is. Only so many at a time: their entries are in memory meanwhile.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use riverrun_journal::{Journal, RecoveredEntry};
use riverrun_types::PartitionId;

use super::LogStore;
use super::aside::held_name_of;
use super::recovery::piece_of;
use crate::error::LogError;
use crate::partition_log::{PartitionLog, TailEntry};
use crate::producer_state::AppendOrigin;

/// Beyond so many bytes no other partition is begun in one cycle.
const CYCLE_BYTES: usize = 64 * 1024 * 1024;

impl LogStore {
    /// Tries again to write what there was no room for. The first error is returned.
    pub(super) fn bring_back(&self) -> Result<(), LogError> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let has_room = |log: &Arc<PartitionLog>| log.dir().check_writable(AppendOrigin::Client).is_ok();
        let (tried, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(has_room);
        self.waiting.lock().extend(left);
        let mut result = Ok(());
        for (index, journal) in self.shared.journals.iter().enumerate() {
            let is_of_it = |log: &&Arc<PartitionLog>| self.shared.journal_index_of(log.id()) == Some(index);
            let logs: Vec<_> = tried.iter().filter(is_of_it).cloned().collect();
            result = result.and(self.bring_back_from(journal, &logs));
        }
        result
    }

    fn bring_back_from(&self, journal: &Journal, logs: &[Arc<PartitionLog>]) -> Result<(), LogError> {
        if logs.is_empty() {
            return Ok(());
        }
        let mut read = read_aside(journal, logs);
        let mut result = read.as_ref().map(|_| ()).map_err(Clone::clone);
        for log in logs {
            let entries = read.as_mut().ok().and_then(|read| read.remove(&log.id()));
            let replayed = entries.map(|entries| replay_again(log, &entries));
            if !matches!(replayed, Some(Ok(()))) {
                self.waiting.lock().push(log.clone());
            }
            result = result.and(replayed.unwrap_or(Ok(())));
        }
        result
    }
}

/// What is aside of as many of the partitions as may be brought back at once.
fn read_aside(
    journal: &Journal,
    logs: &[Arc<PartitionLog>],
) -> Result<HashMap<PartitionId, Vec<RecoveredEntry>>, LogError> {
    let mut found: HashMap<_, Vec<_>> = HashMap::new();
    let ids: HashMap<_, _> = logs.iter().map(|log| (crate::shared::stream_of(log.id()), log.id())).collect();
    let names: BTreeSet<_> =
        logs.iter().flat_map(|log| [log.dir().held_name(), held_name_of(log.id())]).collect();
    let mut passed_over = BTreeSet::new();
    let mut bytes = 0;
    for name in names {
        let taken = journal.read_held(&name, |entries| {
            for entry in entries {
                let Some(id) = ids.get(&entry.header.stream).filter(|id| !passed_over.contains(*id)) else {
                    continue;
                };
                if bytes > CYCLE_BYTES && !found.contains_key(id) {
                    passed_over.insert(*id);
                    continue;
                }
                bytes += entry.payload.len();
                // It shares its file's memory with what is not wanted.
                let payload = Bytes::copy_from_slice(&entry.payload);
                found.entry(*id).or_default().push(RecoveredEntry { payload, ..entry });
            }
        });
        taken.map_err(LogError::Journal)?;
    }
    Ok(found)
}

/// Writes them in the order of their offsets. What was put aside twice may have been cut into batches since.
fn replay_again(log: &PartitionLog, entries: &[RecoveredEntry]) -> Result<(), LogError> {
    let pieces: Result<Vec<_>, LogError> = entries.iter().map(|entry| piece_of(log, entry)).collect();
    let mut pieces = pieces?;
    pieces.sort_by_key(|TailEntry { piece, .. }| (piece.base_offset, std::cmp::Reverse(piece.next_offset)));
    let mut end = None;
    pieces.retain(|TailEntry { piece, .. }| {
        let is_new = end.is_none_or(|end| piece.next_offset > end);
        if is_new {
            end = Some(piece.next_offset);
        }
        is_new
    });
    log.replay_again(&pieces)
}
