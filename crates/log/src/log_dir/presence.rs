//! Whether a log dir is still the opened one.
//!
//! A dir that was taken away, replaced or covered fails: bytes that are written to it are lost. Nothing is made in
//! another one that lies at its path by then: it is empty because something is missing, such as a mount.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use riverrun_types::PartitionId;

use super::device::DEVICE_CHECK_FILE;
use super::{LOCK_FILE, LogDir, topic_dir};
use crate::error::LogError;
use crate::presence::{check_directory, check_file, check_open_file};

/// Attempts to make a partition's directory. The topic's may go in between, when the last of its other partitions is
/// deleted; so many deletions in a row do not happen.
const TRIES: usize = 10;

impl LogDir {
    /// Fails if the dir is not the opened one any more; it has failed for good then.
    pub(crate) fn check_in_place(&self) -> Result<(), LogError> {
        self.check_usable()?;
        self.look(&[]).map_err(|error| self.judge(error))
    }

    /// As [`Self::check_in_place`], for the dir and for the caller's files in it, named `files`.
    pub(crate) fn check_with(&self, files: &[&str]) -> Result<(), LogError> {
        self.check_usable()?;
        self.look(files).map_err(|error| self.judge(error))
    }

    pub(super) fn look(&self, files: &[&str]) -> Result<(), LogError> {
        // A dir that was closed may be another server's by now.
        let (Some(root), Ok(())) = (&self.root, self.check_open()) else { return Ok(()) };
        let fs = &*self.env.fs;
        check_directory(fs, &self.path, &**root)?;
        if let Some(device) = &self.device {
            check_open_file(fs, &self.path.join(DEVICE_CHECK_FILE), &**device)?;
        }
        let names = std::iter::once(&LOCK_FILE).chain(files);
        names.map(|name| self.path.join(name)).try_for_each(|path| check_file(fs, &path, None, 0))?;
        // Does not wait while a move is written: the next look sees it.
        let Some(log_starts) = self.log_starts.try_lock() else { return Ok(()) };
        log_starts.as_ref().map_or(Ok(()), |log_starts| log_starts.check_in_place(fs))
    }

    /// Makes the directory of a partition, and its topic's, in the opened dir, wherever that is. Makes nothing above
    /// them.
    pub(crate) fn make_partition_dir(&self, id: PartitionId) -> Result<(), LogError> {
        self.check_in_place()?;
        let topic = topic_dir(id);
        let made = |path: &Path, made: io::Result<()>| made.map_err(|error| LogError::write(path, error));
        let path = self.partition_path(id);
        let mut tries_left = TRIES;
        loop {
            if let Some(root) = &self.root {
                made(&self.path.join(&topic), root.create_dir(OsStr::new(&topic)))?;
            }
            tries_left -= 1;
            match self.env.fs.create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries_left > 0 => {}
                outcome => return made(&path, outcome),
            }
        }
    }
}
