//! Fails if a name no longer leads to the file or directory in use: see [`Vanishing`].

use std::path::Path;

use riverrun_env::{Directory, File, FileSystem, Vanishing};

use crate::error::LogError;

/// Compares an open directory with the one under its name.
pub(crate) fn check_directory(
    fs: &dyn FileSystem,
    path: &Path,
    open: &dyn Directory,
) -> Result<(), LogError> {
    judge(path, Vanishing::of_directory(fs, path, open))
}

/// Compares an open file with the one under its name.
pub(crate) fn check_open_file(fs: &dyn FileSystem, path: &Path, open: &dyn File) -> Result<(), LogError> {
    judge(path, Vanishing::of_open_file(fs, path, open))
}

/// As [`check_open_file`], for a file that may be open, and has `len_min` bytes at least.
pub(crate) fn check_file(
    fs: &dyn FileSystem,
    path: &Path,
    open: Option<&dyn File>,
    len_min: u64,
) -> Result<(), LogError> {
    judge(path, Vanishing::of_file(fs, path, open, len_min))
}

/// An error of the system is no sign: uses of the device show whether it is well.
fn judge(path: &Path, found: std::io::Result<Option<Vanishing>>) -> Result<(), LogError> {
    match found {
        Ok(Some(how)) => Err(LogError::Vanished { path: path.to_path_buf(), how }),
        Ok(None) => Ok(()),
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "the system does not tell whether it is in its place");
            Ok(())
        }
    }
}
