//! Making checkpoints of a log dir: how far each of its partitions is synced.
//!
//! The states of partitions that have changed are captured, then the dir is synced, and only then the captured states
//! are written down: a checkpoint says of no partition more than the disk has.

use std::collections::HashSet;
use std::sync::Arc;

use riverrun_types::PartitionId;

use super::DirLogs;
use crate::checkpoint::PartitionCheckpoint;
use crate::error::LogError;
use crate::log_dir::DirWork;
use crate::pace::Haste;
use crate::partition_log::PartitionLog;

/// How many of the changed partitions a checkpoint has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Coverage {
    /// All of them.
    Complete,
    /// Some partitions were left out.
    Partial,
}

/// A partition and its captured state.
pub(super) struct Captured {
    log: Arc<PartitionLog>,
    checkpoint: PartitionCheckpoint,
}

impl DirLogs {
    /// Syncs the dir and remembers how far each partition is synced, if anything has changed.
    pub(in crate::store) fn checkpoint(&self, is_clean: bool, haste: Haste) -> Result<Coverage, LogError> {
        self.checkpoint_of(|_| true, is_clean, haste)
    }

    /// As [`Self::checkpoint`], for these partitions only: the states of the others stay.
    pub(super) fn checkpoint_some(&self, ids: &HashSet<PartitionId>, haste: Haste) -> Result<(), LogError> {
        self.checkpoint_of(|id| ids.contains(id), false, haste).map(|_| ())
    }

    fn checkpoint_of(
        &self,
        is_wanted: impl Fn(&PartitionId) -> bool,
        is_clean: bool,
        haste: Haste,
    ) -> Result<Coverage, LogError> {
        let _in_haste = self.dir.hurry.enter(haste);
        let _checkpointing = self.checkpointing.lock();
        // The dir may be another process's by now: only the last checkpoint comes after the closing.
        if self.dir.check_open().is_err() && !is_clean {
            return Ok(Coverage::Partial);
        }
        {
            let _working = self.dir.working(DirWork::Checkpoint);
            self.dir.check_in_place()?;
        }
        self.dir.check_time()?;
        let (dirty, is_unwritten) = self.dir.take_dirty(is_wanted);
        if dirty.is_empty() && !is_unwritten && !is_clean {
            return Ok(Coverage::Complete);
        }
        let (mut captured, mut coverage) = self.capture(dirty);
        // A failed capture may have made the dir fail.
        self.dir.check_usable()?;
        let in_time = self.dir.check_time();
        let needs_sync = !captured.is_empty() || !self.dir.has_synced_found();
        let synced = in_time.and_then(|()| if needs_sync { self.sync(&captured) } else { Ok(()) });
        // The sync says nothing of files that were taken away meanwhile.
        let synced = synced.and_then(|()| self.dir.check_in_place());
        if synced.is_ok() && !drop_vanished(&mut captured) {
            coverage = Coverage::Partial;
        }
        let is_clean = is_clean && coverage == Coverage::Complete;
        if let Err(error) = synced.and_then(|()| self.write_checkpoint(&captured, is_clean)) {
            // The logs learn from a later checkpoint that they are covered.
            for Captured { log, .. } in &captured {
                log.stay_dirty();
            }
            return Err(error);
        }
        Ok(coverage)
    }

    /// Syncs everything that is in the dir. Fails if captured bytes are lost, or if there is no time left to stop: a
    /// sync cannot be ended.
    fn sync(&self, captured: &[Captured]) -> Result<(), LogError> {
        let left = self
            .dir
            .write_back(|| captured.iter().flat_map(|captured| captured.log.unwritten()).collect())?;
        let _working = self.dir.working(DirWork::Checkpoint);
        if !self.dir.sync_volumes()? {
            for Captured { log, .. } in captured {
                log.sync_uncovered().map_err(|error| self.dir.judge(error))?;
            }
        }
        self.dir.confirm_sync(&left)
    }

    /// Syncs the bytes of an earlier process that did not stop in order, if that was not done since the start.
    pub(in crate::store) fn sync_found(&self) -> Result<(), LogError> {
        let _checkpointing = self.checkpointing.lock();
        if self.dir.has_synced_found() {
            return Ok(());
        }
        self.dir.check_open()?;
        self.dir.check_usable()?;
        self.sync(&[])
    }

    pub(super) fn capture(&self, dirty: Vec<PartitionId>) -> (Vec<Captured>, Coverage) {
        let mut captured = Vec::with_capacity(dirty.len());
        let mut left_out = None;
        let (mut left_out_count, mut vanished_count) = (0_usize, 0_usize);
        let mut pace = self.dir.pace();
        for id in dirty {
            let _slice_ends = pace.step();
            if self.dir.check_time().is_err() {
                // The checkpoint will not be made.
                self.dir.mark_dirty(id);
                continue;
            }
            let Some(log) = self.handle(id) else { continue };
            let working = self.dir.working(DirWork::Checkpoint);
            let captured_now = log.capture();
            drop(working);
            match captured_now {
                Ok(Some(checkpoint)) => captured.push(Captured { log, checkpoint }),
                Ok(None) => {}
                Err(LogError::Vanished { .. }) => {
                    // The log has logged it, and the checkpoint keeps its former state.
                    self.dir.mark_dirty(id);
                    vanished_count += 1;
                }
                Err(error) => {
                    let error = self.dir.judge(error);
                    // It stays dirty, and the checkpoint keeps its former state.
                    self.dir.mark_dirty(id);
                    left_out.get_or_insert((id, error));
                    left_out_count += 1;
                }
            }
        }
        let Some((first, error)) = left_out else {
            let coverage = if vanished_count == 0 { Coverage::Complete } else { Coverage::Partial };
            return (captured, coverage);
        };
        // One line for all of them: a device that fails takes many with it.
        tracing::warn!(
            path = %self.path().display(), partitions = left_out_count, %first, %error,
            "partitions are left out of the checkpoint"
        );
        (captured, Coverage::Partial)
    }

    /// Writes the dir's state with the captured states, which are synced by now, and tells the logs that they are
    /// covered.
    pub(super) fn write_checkpoint(&self, captured: &[Captured], is_clean: bool) -> Result<(), LogError> {
        // A partition that was deleted since has left the dir's memory already.
        let is_here = |captured: &&Captured| !captured.log.is_deleted();
        let here = captured.iter().filter(is_here);
        self.dir.write_checkpoint(here.map(|it| (it.log.id(), &it.checkpoint)), is_clean)?;
        let _working = self.dir.working(DirWork::Checkpoint);
        for Captured { log, checkpoint } in captured {
            log.confirm_capture(checkpoint);
        }
        Ok(())
    }
}

/// Drops the captured partitions that have vanished: nothing may be said of them. Returns whether none was dropped.
fn drop_vanished(captured: &mut Vec<Captured>) -> bool {
    let before = captured.len();
    captured.retain(|captured| {
        let is_there = captured.log.check_uncovered_in_place().is_ok();
        if !is_there {
            captured.log.stay_dirty();
        }
        is_there
    });
    captured.len() == before
}
