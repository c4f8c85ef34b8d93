//! Whether the journal's directory, and the file that is written to, are still what their names lead to.
//!
//! The system takes what is written to a file that was removed, and no start finds it. A journal whose directory or file
//! was taken away or replaced fails as after a failed write: nothing more is acked. What it had is with its owners.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{Directory, File, FileSystem, Vanishing};

use crate::JournalError;

/// The file that is written to, for who looks from outside of the journal's thread.
///
/// Invariants: the file lies under this name, unless somebody else has changed that: only settled files are renamed by
/// the journal itself; it never becomes shorter.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileInUse(Arc<Mutex<Option<NamedFile>>>);

#[derive(Debug)]
struct NamedFile {
    path: PathBuf,
    file: Arc<dyn File>,
    /// Its length, as far as it was seen.
    len: u64,
}

impl FileInUse {
    pub(crate) fn set(&self, path: &Path, file: &Arc<dyn File>, len: u64) {
        *self.0.lock() = Some(NamedFile { path: path.to_path_buf(), file: file.clone(), len });
    }

    /// Fails if its name leads to it no more, or if it was cut. Journal files are seldom changed, and the lock holds up only
    /// that.
    pub(crate) fn check(&self, fs: &dyn FileSystem) -> Result<(), JournalError> {
        let mut in_use = self.0.lock();
        let Some(NamedFile { path, file, len }) = &mut *in_use else { return Ok(()) };
        judge(path, Vanishing::of_file(fs, path, Some(&**file), *len))?;
        *len = file.stat().map_err(|error| JournalError::io(path, error))?.len.max(*len);
        Ok(())
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
