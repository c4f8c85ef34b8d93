//! Checkpoints of a log dir: how far each of its partitions is synced.
//!
//! What has changed is captured, then the dir is synced, and only then what was captured is written down: a checkpoint
//! says of no partition more than the disk has.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use riverrun_env::{ChangeError, OpenMode, atomic_replace, is_shortage};
use riverrun_types::PartitionId;

use super::presence::drop_vanished;
use super::{DirWork, LogDir, Unwritten};
use crate::checkpoint::{CHECKPOINT_FILE, PartitionCheckpoint, VERSION_BYTE_AT};
use crate::error::LogError;
use crate::pace::{Haste, Pace};
use crate::partition_log::PartitionLog;

/// How much of what had changed a checkpoint has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// All of it.
    Complete,
    /// Some partitions were left out.
    Partial,
}

/// A partition and what was captured of it.
pub(super) struct Captured {
    pub(super) log: Arc<PartitionLog>,
    checkpoint: PartitionCheckpoint,
}

impl LogDir {
    /// Syncs the dir and remembers how far each partition is synced, if anything has changed.
    pub(crate) fn checkpoint(&self, is_clean: bool, haste: Haste) -> Result<Coverage, LogError> {
        self.checkpoint_of(|_| true, is_clean, haste)
    }

    /// The same for these partitions: of the others it says what it said before.
    pub(super) fn checkpoint_some(&self, ids: &HashSet<PartitionId>, haste: Haste) -> Result<(), LogError> {
        self.checkpoint_of(|id| ids.contains(id), false, haste).map(|_| ())
    }

    fn checkpoint_of(
        &self,
        is_wanted: impl Fn(&PartitionId) -> bool,
        is_clean: bool,
        haste: Haste,
    ) -> Result<Coverage, LogError> {
        let _in_haste = self.hurry.note(haste);
        let _checkpointing = self.checkpointing.lock();
        // It may be another process's by now: only the last checkpoint comes after the closing.
        if self.check_open().is_err() && !is_clean {
            return Ok(Coverage::Partial);
        }
        {
            let _working = self.working(DirWork::Checkpoint);
            self.check_in_place()?;
        }
        self.check_time()?;
        let (dirty, is_unwritten) = {
            let mut memory = self.memory.lock();
            (memory.dirty.extract_if(.., |id| is_wanted(id)).collect::<Vec<_>>(), memory.is_unwritten)
        };
        if dirty.is_empty() && !is_unwritten && !is_clean {
            return Ok(Coverage::Complete);
        }
        let (mut captured, mut coverage) = self.capture(dirty);
        // What could not be captured may have made the dir fail.
        self.check_usable()?;
        let in_time = self.check_time();
        let needs_sync = !captured.is_empty() || !self.has_synced_found();
        let synced = in_time.and_then(|()| if needs_sync { self.sync(&captured) } else { Ok(()) });
        // Of what was taken away meanwhile the sync says nothing.
        let synced = synced.and_then(|()| self.check_in_place());
        if synced.is_ok() && !drop_vanished(&mut captured) {
            coverage = Coverage::Partial;
        }
        let is_clean = is_clean && coverage == Coverage::Complete;
        if let Err(error) = synced.and_then(|()| self.write_checkpoint(&captured, is_clean)) {
            // The logs learn from a later one that they are covered.
            for Captured { log, .. } in &captured {
                log.note_uncovered();
            }
            return Err(error);
        }
        Ok(coverage)
    }

    /// Syncs everything that is in the dir, and fails if something of what was captured is lost, or if there is no time left
    /// to stop: a sync that has begun nobody ends.
    fn sync(&self, captured: &[Captured]) -> Result<(), LogError> {
        let volumes = self.volumes.as_ref().ok_or(LogError::Closed)?;
        let left = self.write_back(captured)?;
        let _working = self.working(DirWork::Checkpoint);
        volumes.sync().map_err(|error| self.fail(&self.path, &error))?;
        if !volumes.tell_of_lost_writes() {
            for Captured { log, .. } in captured {
                log.sync_uncovered().map_err(|error| self.judge(error))?;
            }
        }
        // It says nothing of pages that the system has let go of just before, when it was told to begin with them.
        drop(self.write_backs.write());
        self.check_usable()?;
        left.iter().for_each(Unwritten::note_written);
        self.has_synced_found.store(true, Ordering::Release);
        Ok(())
    }

    /// Syncs what a process that did not stop in order has left, if that was not done since the start.
    pub(crate) fn sync_found(&self) -> Result<(), LogError> {
        let _checkpointing = self.checkpointing.lock();
        if self.has_synced_found() {
            return Ok(());
        }
        self.check_open()?;
        self.check_usable()?;
        self.sync(&[])
    }

    /// Whether a power cut takes nothing of what was there at the start.
    pub(crate) fn has_synced_found(&self) -> bool {
        self.has_synced_found.load(Ordering::Acquire)
    }

    pub(super) fn capture(&self, dirty: Vec<PartitionId>) -> (Vec<Captured>, Coverage) {
        let mut captured = Vec::with_capacity(dirty.len());
        let mut left_out = None;
        let (mut left_out_count, mut vanished_count) = (0_usize, 0_usize);
        let mut pace = Pace::new(&self.env, &*self.shared, &self.hurry);
        for id in dirty {
            let _slice_ends = pace.step();
            if self.check_time().is_err() {
                // The checkpoint will not be made.
                self.mark_dirty(id);
                continue;
            }
            let Some(log) = self.handle(id) else { continue };
            let working = self.working(DirWork::Checkpoint);
            let captured_now = log.capture();
            drop(working);
            match captured_now {
                Ok(Some(checkpoint)) => captured.push(Captured { log, checkpoint }),
                Ok(None) => {}
                Err(LogError::Vanished { .. }) => {
                    // It has said so, and the checkpoint says of it what it said before.
                    self.mark_dirty(id);
                    vanished_count += 1;
                }
                Err(error) => {
                    let error = self.judge(error);
                    // It stays dirty, and the checkpoint says of it what it said before.
                    self.mark_dirty(id);
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
            path = %self.path.display(), partitions = left_out_count, %first, %error,
            "partitions are left out of the checkpoint"
        );
        (captured, Coverage::Partial)
    }

    /// The dir is used from now on, so that the file must not say any more that the server stopped cleanly. Where there is
    /// no space for another one, the one that is there, if one is, says as much as after a kill until there is some.
    pub(super) fn note_use(&self, has_checkpoint: bool) -> Result<(), LogError> {
        match self.write_checkpoint(&[], false) {
            Err(LogError::Io { path, source }) if has_checkpoint && is_shortage(&source) => {
                tracing::warn!(path = %path.display(), error = %source, "the checkpoint before stays for now");
                if self.was_clean { self.take_clean_back() } else { Ok(()) }
            }
            result => result,
        }
    }

    /// Writes over one byte of the file, which takes no space. Durable when it returns.
    fn take_clean_back(&self) -> Result<(), LogError> {
        let path = self.path.join(CHECKPOINT_FILE);
        let invert = || {
            let file = self.env.fs.open(&path, OpenMode::ReadWrite)?;
            let mut version = [0];
            file.read_exact_at(&mut version, VERSION_BYTE_AT as u64)?;
            file.write_all_at(&[!version[0]], VERSION_BYTE_AT as u64)?;
            file.sync_data()
        };
        invert().map_err(|error| LogError::io(&path, error))
    }

    /// Writes what is known, with what was captured and is synced now.
    pub(super) fn write_checkpoint(&self, captured: &[Captured], is_clean: bool) -> Result<(), LogError> {
        let (bytes, generation) = {
            // A move that is under way counts as older than the new generation: it has to be in the bytes.
            let _log_starts = self.log_starts.lock();
            let mut memory = self.memory.lock();
            // One that was deleted since has left the memory already.
            let is_here = |captured: &&Captured| !captured.log.is_deleted();
            for Captured { log, checkpoint } in captured.iter().filter(is_here) {
                memory.take(log.id(), checkpoint);
            }
            memory.is_unwritten = true;
            memory.checkpoint.generation += 1;
            memory.checkpoint.is_clean = is_clean;
            (memory.checkpoint.encode(), memory.checkpoint.generation)
        };
        let path = self.path.join(CHECKPOINT_FILE);
        let _working = self.working(DirWork::Checkpoint);
        let replaced = atomic_replace(&*self.env.fs, &path, &bytes);
        replaced.map_err(|error| match error {
            // The checkpoint before is whole, and the next one is written to a file of its own.
            ChangeError::Undone(error) => self.judge(LogError::io(&path, error)),
            ChangeError::Unknown(error) => self.fail(&path, &error),
        })?;
        if let Some(log_starts) = &mut *self.log_starts.lock() {
            log_starts.checkpointed(generation);
        }
        self.memory.lock().is_unwritten = false;
        for Captured { log, checkpoint } in captured {
            log.confirm_capture(checkpoint);
        }
        Ok(())
    }
}
