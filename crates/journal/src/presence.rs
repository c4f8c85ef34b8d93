//! Checks that the journal's directory, and the files that a start would read, are still what their names lead to.
//!
//! The system accepts writes to a file that was removed, but no start finds them; nor does a start read a file whose
//! header was written over. A journal whose directory or file was removed, replaced or written over fails as after a
//! failed write: nothing more is acked. Its owners keep the entries whose outcome they know.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{Directory, File, FileSystem, Vanishing};

use crate::JournalError;
use crate::files::{CurrentFile, OlderFile};

/// The files that have a name, for checks from outside the journal's thread.
///
/// Invariants: each file lies under its name and begins with its header, unless another process has changed that, or
/// all in it is settled on disk: the journal itself renames, removes or uses again only such a file. No file becomes
/// shorter.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilesInUse(Arc<Mutex<Vec<NamedFile>>>);

/// The expected state of a file.
#[derive(Clone, Debug)]
pub(crate) struct NamedFile {
    path: PathBuf,
    /// `None` for a file that only a start reads.
    file: Option<Arc<dyn File>>,
    /// Its length in bytes, as of the last check.
    len: u64,
    header: Vec<u8>,
    /// End of its frames; `None` for the current file.
    frames_end: Option<u64>,
}

impl NamedFile {
    /// The current file.
    pub(crate) fn current(file: &CurrentFile) -> Self {
        Self {
            path: file.path.clone(),
            file: Some(file.file.clone()),
            len: file.room.filled(),
            header: file.header.encode(),
            frames_end: None,
        }
    }

    /// A file that no frame is written to any more.
    pub(crate) fn older(path: PathBuf, file: &OlderFile) -> Self {
        let (header, frames_end) = (file.header.encode(), Some(file.frames_end));
        Self { path, file: None, len: file.bytes, header, frames_end }
    }

    fn is_needed(&self, settled_on_disk: u64) -> bool {
        self.frames_end.is_none_or(|end| end > settled_on_disk)
    }

    /// Returns the file's length; fails if its name does not lead to it any more, or if it was cut or written over.
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

    /// Fails if one of the needed files is not as it should be. Only the caller waits for the disk here.
    pub(crate) fn check(
        &self,
        fs: &dyn FileSystem,
        settled_on_disk: impl Fn() -> u64,
    ) -> Result<(), JournalError> {
        let files = self.0.lock().clone();
        for file in files.into_iter().filter(|file| file.is_needed(settled_on_disk())) {
            match file.look(fs) {
                Ok(len) => self.note_len(&file, len),
                // Perhaps all in it was settled meanwhile, and it is used again.
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

/// Fails if the name of an open directory does not lead to it any more, or its lock file is missing.
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
