//! The checkpoint of a log dir: how far each of its partitions is synced.
//!
//! Who makes one captures what has changed, has the dir synced, and only then what was captured written down: a checkpoint
//! says of no partition more than the disk has.

use std::sync::atomic::Ordering;

use riverrun_env::{ChangeError, OpenMode, atomic_replace, is_shortage};
use riverrun_types::PartitionId;

use super::{DirWork, LogDir, Unwritten};
use crate::checkpoint::{CHECKPOINT_FILE, PartitionCheckpoint, VERSION_BYTE_AT};
use crate::error::LogError;

impl LogDir {
    /// Those of the partitions that the checkpoint lacks something of which are wanted, and whether the file says less than the
    /// memory.
    pub(crate) fn take_dirty(&self, is_wanted: impl Fn(&PartitionId) -> bool) -> (Vec<PartitionId>, bool) {
        let mut memory = self.memory.lock();
        (memory.dirty.extract_if(.., |id| is_wanted(id)).collect(), memory.is_unwritten)
    }

    /// Syncs everything that is in the dir. Returns whether that tells of all that was lost.
    pub(crate) fn sync_volumes(&self) -> Result<bool, LogError> {
        let volumes = self.volumes.as_ref().ok_or(LogError::Closed)?;
        volumes.sync().map_err(|error| self.fail(&self.path, &error))?;
        Ok(volumes.tell_of_lost_writes())
    }

    /// All that was in the dir before the sync is synced, this among it.
    pub(crate) fn note_synced(&self, unwritten: &[Unwritten]) -> Result<(), LogError> {
        // It says nothing of pages that the system has let go of just before, when it was told to begin with them.
        drop(self.write_backs.write());
        self.check_usable()?;
        unwritten.iter().for_each(Unwritten::note_written);
        self.has_synced_found.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether a power cut takes nothing of what was there at the start.
    pub(crate) fn has_synced_found(&self) -> bool {
        self.has_synced_found.load(Ordering::Acquire)
    }

    /// The dir is used from now on, so that the file must not say any more that the server stopped cleanly. Where there is
    /// no space for another one, the one that is there, if one is, says as much as after a kill until there is some.
    pub(super) fn note_use(&self, has_checkpoint: bool) -> Result<(), LogError> {
        match self.write_checkpoint(std::iter::empty(), false) {
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

    /// Writes what is known, with what was captured and is synced now. `captured` is gone through under the memory's lock: a
    /// deletion takes away what is taken over of a partition before. Durable when it returns.
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
