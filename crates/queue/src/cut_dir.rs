//! The files that a recovery has cut off, kept beside the queue until an operator removes them.
//!
//! Owns `cut-<epoch, 6 digits>/` in the queue's directory, one for each recovery that had to cut: whole segments
//! under their names, and the end of a segment as `<segment's name>.from-<its first byte>`. Guarantees that no file
//! in it is ever overwritten, and that the cut bytes are durable there before the queue drops them. The queue itself
//! never reads them.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use riverrun_types::LeaderEpoch;

use crate::control::sync_dir;
use crate::error::{At as _, QueueError};

/// Most unfinished recoveries of one epoch: each leaves its own files.
const TRIES_MAX: u32 = 1000;

/// The directory of one recovery.
#[derive(Debug)]
pub(crate) struct CutDir {
    dir: PathBuf,
}

impl CutDir {
    /// Makes the directory for the bytes that are cut before `epoch` begins, unless it exists.
    pub(crate) fn open(queue_dir: &Path, epoch: LeaderEpoch) -> Result<Self, QueueError> {
        let dir = queue_dir.join(format!("cut-{:06}", epoch.0));
        std::fs::create_dir_all(&dir).at("create", &dir)?;
        sync_dir(queue_dir)?;
        Ok(Self { dir })
    }

    /// Copies a range of a file, if the range has any bytes.
    pub(crate) fn copy(&self, from: &File, path: &Path, part: Range<u64>) -> Result<(), QueueError> {
        if part.is_empty() {
            return Ok(());
        }
        let name = format!("{}.from-{}", name_of(path), part.start);
        let (copy, mut to) = self.free(&name)?;
        let mut source = from;
        source.seek(SeekFrom::Start(part.start)).at("read", path)?;
        let bytes = part.end - part.start;
        std::io::copy(&mut std::io::Read::take(source, bytes), &mut to).at("write", &copy)?;
        to.sync_all().at("sync", &copy)
    }

    /// Moves a whole file.
    pub(crate) fn move_file(&self, path: &Path) -> Result<(), QueueError> {
        // A new file takes the name first, so that no older one is replaced.
        let (to, _) = self.free(&name_of(path))?;
        std::fs::rename(path, &to).at("rename", path)
    }

    /// Makes every file in the directory durable. Returns the directory's path.
    pub(crate) fn sync(self) -> Result<PathBuf, QueueError> {
        sync_dir(&self.dir)?;
        Ok(self.dir)
    }

    /// A new file of this name, or the name with a number.
    fn free(&self, name: &str) -> Result<(PathBuf, File), QueueError> {
        let mut path = self.dir.join(name);
        for number in 1..TRIES_MAX {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    path = self.dir.join(format!("{name}.{number}"));
                }
                opened => return opened.at("create", &path).map(|file| (path, file)),
            }
        }
        let full = std::io::Error::other("too many files of this name");
        Err(full).at("create", &path)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
