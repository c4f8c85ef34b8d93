//! Changes of partitions' levels, by the settler.
//!
//! A partition's entries on their way through its journal have to be in the segments first. A full journal takes them
//! only once it is given files back, which only the settler does: so it goes on settling while it waits for the
//! journal.

use std::sync::Arc;
use std::time::Duration;

use riverrun_journal::Position;

use super::{DRAIN_POLL, DirLogs, LogStore, Relief, for_each};
use crate::error::LogError;
use crate::pace::Haste;
use crate::partition_log::{LevelChange, LevelChangeEnd, PartitionLog};

/// The longest wait for entries on their way through the journals, not counting the time for settling meanwhile.
const SWITCH_WAIT_MAX: Duration = Duration::from_secs(10);

impl LogStore {
    /// Changes the levels that are to change: a checkpoint first, so that the one while appends are held up is short.
    pub(super) fn change_levels(
        &self,
        dirs: &[Arc<DirLogs>],
        delivered: &[Position],
    ) -> Result<(), LogError> {
        let now = self.now();
        let take = |logs: &Arc<DirLogs>| {
            let due = logs.dir.level_changes.lock().take(now);
            logs.handles_of(&due)
        };
        let mut wanted: Vec<_> = dirs.iter().flat_map(take).collect();
        let all_count = wanted.len();
        wanted.retain(|partition| !partition.cannot_change_level());
        let mut stuck = all_count - wanted.len();
        if wanted.is_empty() {
            tell_stuck(stuck);
            return Ok(());
        }
        let mut result = self.recycle(dirs, delivered, Haste::Spread, |logs| logs.dir.check_usable().is_ok());
        let mut changes = Vec::new();
        for partition in &wanted {
            match partition.begin_level_change() {
                Ok(change) => changes.extend(change),
                Err(error) => {
                    if partition.failure().is_none() {
                        self.put_off(partition);
                    }
                    result = result.and(Err(error));
                }
            }
        }
        result = result.and(self.cover_level_changes(dirs, &changes));
        for change in changes {
            let partition = change.partition().clone();
            match change.finish() {
                LevelChangeEnd::Done => {}
                LevelChangeEnd::Later => {
                    self.put_off(&partition);
                    // The next cycle rests before it tries again.
                    result = result.and(Err(LogError::LevelWaits(partition.id())));
                }
                LevelChangeEnd::Never => stuck += 1,
            }
        }
        tell_stuck(stuck);
        result
    }

    fn put_off(&self, partition: &PartitionLog) {
        partition.dir().level_changes.lock().put_off(partition.id(), self.now());
    }

    /// Waits until the journals have stored the entries from before appends were held up, and has a checkpoint cover
    /// them.
    pub(super) fn cover_level_changes(
        &self,
        dirs: &[Arc<DirLogs>],
        changes: &[LevelChange],
    ) -> Result<(), LogError> {
        let mut result = Ok(());
        let mut relief = Relief::default();
        let mut waited = Duration::ZERO;
        let may_wait = |waited| waited < SWITCH_WAIT_MAX && self.check_time().is_ok();
        while changes.iter().any(LevelChange::is_draining) && may_wait(waited) {
            let recycle = |delivered: &[Position]| {
                self.recycle(dirs, delivered, Haste::AtOnce, |logs| logs.dir.check_usable().is_ok())
            };
            result = result.and(self.relieve(&mut relief, recycle));
            self.env.clock.sleep(DRAIN_POLL);
            waited += DRAIN_POLL;
        }
        if changes.iter().any(LevelChange::is_drained) {
            result = result.and(for_each(dirs, |logs| logs.settle(Haste::AtOnce)));
            result = result.and(for_each(dirs, |logs| logs.checkpoint(false, Haste::AtOnce).map(|_| ())));
        }
        result
    }
}

/// Logs that the levels of so many partitions do not change.
fn tell_stuck(partitions: usize) {
    if partitions > 0 {
        let what =
            "durability levels stay as they were until a restart: the journal or the log dir has failed";
        tracing::error!(partitions, "{what}");
    }
}
