//! Changes of logs that hold before the next checkpoint: a log start that has moved, and a cut.

use riverrun_env::ChangeError;
use riverrun_types::{Offset, PartitionId};

use super::LogDir;
use crate::checkpoint::PartitionCheckpoint;
use crate::error::LogError;
use crate::log_starts::{Change, LogStarts};
use crate::planted::{Planted, is_planted};

impl LogDir {
    /// Notes that a partition's log begins elsewhere now, or was cut. Durable when it returns. `is_deleted` is called
    /// under the memory's lock, because a deletion removes the partition from the memory first.
    pub(crate) fn persist(
        &self,
        id: PartitionId,
        change: Change,
        is_deleted: impl Fn() -> bool,
    ) -> Result<(), LogError> {
        self.check_usable()?;
        let mut log_starts = self.log_starts.lock();
        let Some(log_starts) = &mut *log_starts else { return Ok(()) };
        let generation = self.memory.lock().checkpoint.generation;
        let is_left_out = matches!(change, Change::Cut { .. }) && is_planted(Planted::AckBeforeSync);
        let put = if is_left_out { Ok(()) } else { log_starts.put(generation, id, change) };
        put.map_err(|error| self.judge_change(log_starts, error))?;
        let mut memory = self.memory.lock();
        if is_deleted() {
            return Err(LogError::Deleted(id));
        }
        memory.change(id, change);
        drop(memory);
        // A failed write meanwhile may be one that this sync stood for.
        self.check_usable()
    }

    /// Notes that the segments of a log have nothing from before its last cut. Durable when it returns.
    pub(crate) fn carry_out_cuts(&self, id: PartitionId) -> Result<(), LogError> {
        let mut log_starts = self.log_starts.lock();
        let Some(log_starts) = &mut *log_starts else { return Ok(()) };
        log_starts.carry_out_cuts(id).map_err(|error| self.judge_change(log_starts, error))
    }

    fn judge_change(&self, log_starts: &LogStarts, error: ChangeError) -> LogError {
        match error {
            ChangeError::Undone(error) => self.judge(LogError::write(log_starts.path(), error)),
            ChangeError::Unknown(error) => self.fail(log_starts.path(), &error),
        }
    }

    /// Number of a log's cuts. If the dir does not know the log, or its state is lost, `newest` is believed.
    pub(crate) fn cuts_or(&self, id: PartitionId, newest: u32) -> u32 {
        let mut memory = self.memory.lock();
        let fresh = || PartitionCheckpoint { cuts: newest, ..PartitionCheckpoint::starting_at(Offset::ZERO) };
        match memory.checkpoint.partitions.get_mut(&id) {
            Some(known) if known.is_lost => known.cuts = known.cuts.max(newest),
            None if newest > 0 => _ = memory.checkpoint.partitions.insert(id, fresh()),
            _ => {}
        }
        memory.checkpoint.partitions.get(&id).map_or(0, |known| known.cuts)
    }
}
