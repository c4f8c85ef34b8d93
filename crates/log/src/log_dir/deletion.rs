//! Removal of a deleted partition's files, and with the last partition of its topic's directory.

use std::io;
use std::path::Path;

use riverrun_env::is_shortage;
use riverrun_types::PartitionId;

use super::{LogDir, topic_dir};
use crate::error::LogError;

/// Prefix of a partition's or topic's directory between its deletion and its removal.
const DELETED_PREFIX: &str = "deleted-";

impl LogDir {
    /// Removes a partition that nothing writes to any more. Its directory is renamed first, so that it is gone at once
    /// under its name, unless there is no space for the other name. An interrupted caller must call again.
    pub(crate) fn delete(&self, id: PartitionId) -> Result<(), LogError> {
        // A dir that was closed may be another server's by now.
        self.check_open()?;
        self.delete_in_use(id).map_err(|error| self.judge(error))
    }

    fn delete_in_use(&self, id: PartitionId) -> Result<(), LogError> {
        {
            let mut memory = self.memory.lock();
            memory.is_unwritten |= memory.checkpoint.partitions.remove(&id).is_some();
        }
        // The dir may be away: then the files are missing at the path, and not removed.
        self.check_opened()?;
        self.look(&[]).map_err(|error| self.judge(error))?;
        let path = self.partition_path(id);
        let renamed = self.path.join(format!("{DELETED_PREFIX}{}-{}", topic_dir(id), id.index));
        let doomed = match self.env.fs.rename(&path, &renamed) {
            Ok(()) => renamed,
            // Some file systems want room for a name that only changes (XFS), and none to remove one. If this is cut
            // short, the rest is never opened: the deletion is durable already.
            Err(error) if is_shortage(&error) => path,
            // The topic's directory is a link, or a mount.
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path,
            Err(error) => return Err(LogError::io(&path, error)),
        };
        gone(self.env.fs.remove_dir_all(&doomed), &doomed)?;
        self.remove_if_empty(&self.path.join(topic_dir(id)))
    }

    /// Removes the topic's directory with its last partition, also if an earlier process removed that: metadata that
    /// has forgotten the topic would count as lost while the directory is there.
    fn remove_if_empty(&self, path: &Path) -> Result<(), LogError> {
        match self.env.fs.remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => self.remove_link_if_empty(path),
            removed => gone(removed, path),
        }
    }

    /// Removes a link to a topic's directory if that is empty. The directory itself stays.
    fn remove_link_if_empty(&self, path: &Path) -> Result<(), LogError> {
        let entries = self.env.fs.read_dir(path).map_err(|error| LogError::io(path, error))?;
        if entries.is_empty() { gone(self.env.fs.remove_file(path), path) } else { Ok(()) }
    }

    /// Removes the rest of interrupted deletions.
    pub(super) fn remove_leftovers(&self) -> Result<(), LogError> {
        let entries = self.env.fs.read_dir(&self.path).map_err(|error| LogError::io(&self.path, error))?;
        let doomed = entries.iter().filter(|entry| {
            entry.is_dir && entry.name.to_str().is_some_and(|name| name.starts_with(DELETED_PREFIX))
        });
        for entry in doomed {
            let path = self.path.join(&entry.name);
            self.env.fs.remove_dir_all(&path).map_err(|error| LogError::io(&path, error))?;
        }
        Ok(())
    }
}

/// Judges a removal; fine if there was nothing to remove.
fn gone(removed: io::Result<()>, path: &Path) -> Result<(), LogError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io(path, error)),
        _ => Ok(()),
    }
}
