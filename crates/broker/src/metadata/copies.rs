//! Small files that are kept twice, `<name>` and `<name>-copy`, because without one of them the server cannot start:
//! damage to either loses nothing.
//!
//! The copy is written after the file. So it may be older than the file, by what happened when the machine stopped
//! between the two, and whoever reads it must bear that. It never stands in for a file of a newer program.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{ChangeError, Env, atomic_replace, read_whole};

use super::error::MetadataError;
use super::frames::FrameError;

/// What was read, and from which of the two.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) value: T,
    /// Why the file itself cannot be used; the value is the copy's then.
    pub(super) flaw: Option<MetadataError>,
}

/// Where the copy of a file lies.
pub(super) fn copy_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-copy");
    PathBuf::from(name)
}

/// Replaces both, each atomically; durable when it returns. A copy that finds no room stays as old as it is, and the
/// next start writes it.
pub(super) fn replace(env: &Env, path: &Path, bytes: &[u8]) -> Result<(), ChangeError> {
    atomic_replace(&*env.fs, path, bytes)?;
    let copy = copy_of(path);
    match atomic_replace(&*env.fs, &copy, bytes) {
        Err(ChangeError::Undone(error)) => {
            tracing::warn!(path = %copy.display(), %error, "the copy of a metadata file is out of date");
            Ok(())
        }
        copied => copied,
    }
}

/// Reads the file, or its copy if the file is damaged or missing. `None`: there is neither.
pub(super) fn read<T>(
    env: &Env,
    path: &Path,
    bytes_max: u64,
    parse: impl Fn(&Path, &[u8]) -> Result<T, MetadataError>,
) -> Result<Option<Read<T>>, MetadataError> {
    let flaw = match read_one(env, path, bytes_max, &parse) {
        Ok(Some(value)) => return Ok(Some(Read { value, flaw: None })),
        Ok(None) => None,
        Err(error) if is_damage(&error) => Some(error),
        Err(error) => return Err(error),
    };
    match read_one(env, &copy_of(path), bytes_max, &parse) {
        Ok(Some(value)) => {
            let flaw = flaw.unwrap_or_else(|| missing(path));
            tracing::error!(
                path = %path.display(), error = %flaw,
                "a metadata file is damaged: its copy is used, and the file is written anew"
            );
            Ok(Some(Read { value, flaw: Some(flaw) }))
        }
        Ok(None) => flaw.map_or(Ok(None), Err),
        Err(of_copy) => Err(flaw.unwrap_or(of_copy)),
    }
}

/// Reads both and answers what is wrong with each, too. A copy that is missing is no flaw: data that an older program
/// has left has none.
pub(super) fn verify<T>(
    env: &Env,
    path: &Path,
    bytes_max: u64,
    parse: impl Fn(&Path, &[u8]) -> Result<T, MetadataError>,
) -> (Option<T>, Vec<MetadataError>) {
    let file = read_one(env, path, bytes_max, &parse);
    let copy = read_one(env, &copy_of(path), bytes_max, &parse);
    let mut flaws = Vec::new();
    if matches!((&file, &copy), (Ok(None), Ok(Some(_)) | Err(_))) {
        flaws.push(missing(path));
    }
    let mut take = |read: Result<Option<T>, MetadataError>| match read {
        Ok(value) => value,
        Err(flaw) => {
            flaws.push(flaw);
            None
        }
    };
    let (file, copy) = (take(file), take(copy));
    (file.or(copy), flaws)
}

/// `None`: it is not there.
fn read_one<T>(
    env: &Env,
    path: &Path,
    bytes_max: u64,
    parse: &impl Fn(&Path, &[u8]) -> Result<T, MetadataError>,
) -> Result<Option<T>, MetadataError> {
    match read_whole(&*env.fs, path, bytes_max) {
        Ok(bytes) => parse(path, &bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(MetadataError::io("read", path)(error)),
    }
}

fn missing(path: &Path) -> MetadataError {
    MetadataError::io("read", path)(io::ErrorKind::NotFound.into())
}

/// Whether the bytes have suffered, rather than been written by a newer program.
fn is_damage(error: &MetadataError) -> bool {
    match error {
        MetadataError::File { source, .. } => !matches!(source, FrameError::NewerFormat(_)),
        MetadataError::Io { .. } => true,
        _ => false,
    }
}
