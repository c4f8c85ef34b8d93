//! Whether the journal's directory, and the files that a start would read, are still what their names lead to.
//!
//! The system takes what is written to a file that was removed, and no start finds it; nor does one read a file whose header
//! was written over. A journal whose directory or file was taken away, replaced or written over fails as after a failed
//! write: nothing more is acked. What it had is with its owners.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{Directory, File, FileSystem, Vanishing};

use crate::JournalError;
use crate::files::{CurrentFile, OlderFile};

/// The files that have a name, for who looks from outside of the journal's thread.
///
/// Invariants: each file lies under its name and begins with its header, unless somebody else has changed that, or all in
/// it is settled on disk: only such a one is renamed, removed or used again by the journal itself. None becomes shorter.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilesInUse(Arc<Mutex<Vec<NamedFile>>>);

/// A file as it should be found.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile {
    path: PathBuf,
    /// None of one that is only read by a start.
    file: Option<Arc<dyn File>>,
    /// Its length, as far as it was seen.
    len: u64,
    header: Vec<u8>,
    /// Where its frames end; none of the one that is written to.
    frames_end: Option<u64>,
}

impl NamedFile {
    /// The file that is written to.
    pub(crate) fn current(file: &CurrentFile) -> Self {
        Self {
            path: file.path.clone(),
            file: Some(file.file.clone()),
            len: file.room.filled(),
            header: file.header.encode(),
            frames_end: None,
        }
    }

    /// One that nothing is written to any more.
    pub(crate) fn older(path: PathBuf, file: &OlderFile) -> Self {
        let (header, frames_end) = (file.header.encode(), Some(file.frames_end));
        Self { path, file: None, len: file.bytes, header, frames_end }
    }

    fn is_needed(&self, settled_on_disk: u64) -> bool {
        self.frames_end.is_none_or(|end| end > settled_on_disk)
    }

    /// Fails if its name leads to it no more, or if it was cut or written over; otherwise answers its length.
    fn look(&self, fs: &dyn FileSystem) -> Result<u64, JournalError> {
        judge(&self.path, Vanishing::of_file(fs, &self.path, self.file.as_deref(), self.len))?;
        judge(&self.path, Vanishing::of_head(fs, &self.path, &self.header))?;
        let Some(file) = &self.file else { return Ok(self.len) };
        Ok(file.stat().map_err(|error| JournalError::io(&self.path, error))?.len)
    }
}

impl FilesInUse {
    pub(crate) fn set(&self, files: Vec<NamedFile>) {
        *self.0.lock() = files;
    }

    /// Fails if one of those that are needed is not as it should be. Nobody waits here for the disk but the caller.
    pub(crate) fn check(
        &self,
        fs: &dyn FileSystem,
        settled_on_disk: impl Fn() -> u64,
    ) -> Result<(), JournalError> {
        let files = self.0.lock().clone();
        for file in files.into_iter().filter(|file| file.is_needed(settled_on_disk())) {
            match file.look(fs) {
                Ok(len) => self.note_len(&file, len),
                // All in it was settled meanwhile, perhaps, and it is used again.
                Err(_) if !self.has(&file, settled_on_disk()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a file is still needed.
    fn has(&self, file: &NamedFile, settled_on_disk: u64) -> bool {
        let files = self.0.lock();
        files.iter().any(|known| known.header == file.header && known.is_needed(settled_on_disk))
    }

    fn note_len(&self, file: &NamedFile, len: u64) {
        let mut files = self.0.lock();
        if let Some(known) = files.iter_mut().find(|known| known.header == file.header) {
            known.len = known.len.max(len);
        }
    }
}

/// Fails if the name of an open directory leads to it no more, or its lock file is not there.
pub(crate) fn check_directory(
    fs: &dyn FileSystem,
    path: &Path,
    open: &dyn Directory,
    lock_file: &str,
) -> Result<(), JournalError> {
    judge(path, Vanishing::of_directory(fs, path, open))?;
    let lock = path.join(lock_file);
    judge(&lock, Vanishing::of_file(fs, &lock, None, 0))
}

fn judge(path: &Path, found: io::Result<Option<Vanishing>>) -> Result<(), JournalError> {
    match found.map_err(|error| JournalError::io(path, error))? {
        Some(how) => Err(JournalError::Vanished { path: path.to_path_buf(), how }),
        None => Ok(()),
    }
}
