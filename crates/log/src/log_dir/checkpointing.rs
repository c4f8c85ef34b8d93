//! The checkpoint of a log dir: how far each of its partitions is synced.
//!
//! To make one, the store captures the partitions that have changed, has the dir synced, and only then has the captured
//! states written: a checkpoint says of no partition more than the disk has.

use std::sync::atomic::Ordering;

use riverrun_env::{ChangeError, OpenMode, atomic_replace, is_shortage};
use riverrun_types::PartitionId;

use super::{DirWork, LogDir, Unwritten};
use crate::checkpoint::{CHECKPOINT_FILE, PartitionCheckpoint, VERSION_BYTE_AT};
use crate::error::LogError;

impl LogDir {
    /// The wanted ones of the partitions that have changes since the checkpoint, and whether the file lacks something
    /// of the memory.
    pub(crate) fn take_dirty(&self, is_wanted: impl Fn(&PartitionId) -> bool) -> (Vec<PartitionId>, bool) {
        let mut memory = self.memory.lock();
        (memory.dirty.extract_if(.., |id| is_wanted(id)).collect(), memory.is_unwritten)
    }

    /// Syncs everything that is in the dir. Returns whether that tells of all lost bytes.
    pub(crate) fn sync_volumes(&self) -> Result<bool, LogError> {
        let volumes = self.volumes.as_ref().ok_or(LogError::Closed)?;
        volumes.sync().map_err(|error| self.fail(&self.path, &error))?;
        Ok(volumes.tell_of_lost_writes())
    }

    /// To be called after a sync, before it is believed: it does not tell of pages that the system dropped just before,
    /// when it was told to begin with them.
    pub(crate) fn check_write_backs(&self) -> Result<(), LogError> {
        drop(self.write_backs.write());
        self.check_usable()
    }

    /// The bytes `unwritten`, as all that was in the dir before the sync, are synced.
    pub(crate) fn confirm_sync(&self, unwritten: &[Unwritten]) -> Result<(), LogError> {
        self.check_write_backs()?;
        unwritten.iter().for_each(Unwritten::note_written);
        self.has_synced_found.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether bytes that an earlier process has left survive a power cut.
    pub(crate) fn has_synced_found(&self) -> bool {
        self.has_synced_found.load(Ordering::Acquire)
    }

    /// The dir is used from now on: the file must not say any more that the server stopped cleanly. If there is no
    /// space for another file, the present one is made to say no more than after a kill.
    pub(super) fn begin_use(&self, has_checkpoint: bool) -> Result<(), LogError> {
        match self.write_checkpoint(std::iter::empty(), false) {
            Err(LogError::Io { path, source }) if has_checkpoint && is_shortage(&source) => {
                tracing::warn!(path = %path.display(), error = %source, "the checkpoint before stays for now");
                if self.was_clean { self.take_clean_back() } else { Ok(()) }
            }
            result => result,
        }
    }

    /// Changes one byte of the file, which takes no space. Durable when it returns.
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

    /// Writes the dir's state with the states in `captured`, which are synced by now. `captured` is iterated under the
    /// memory's lock: a deletion removes its partition from the memory first. Durable when it returns.
    pub(crate) fn write_checkpoint<'a>(
        &self,
        captured: impl Iterator<Item = (PartitionId, &'a PartitionCheckpoint)>,
        is_clean: bool,
    ) -> Result<(), LogError> {
        let (bytes, generation) = {
            // A move that is under way counts as older than the new generation: it has to be in the bytes.
            let _log_starts = self.log_starts.lock();
            let mut memory = self.memory.lock();
            for (id, checkpoint) in captured {
                memory.take(id, checkpoint);
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
        Ok(())
    }
}
