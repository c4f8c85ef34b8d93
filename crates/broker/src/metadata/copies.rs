//! Small files that are kept twice, `<name>` and `<name>-copy`, because without one of them the server cannot start:
//! damage to either loses nothing.
//!
//! The copy is written after the file. So it may be older than the file, if the machine stopped between the two or while
//! there is no room for it, and its reader must bear that. A copy that found no room is [`Behind`]: its owner reports it
//! and tries again. A copy never stands in for a file of a newer program.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::{ChangeError, Env, atomic_replace, is_shortage, read_whole};

use super::error::MetadataError;
use super::frames::FrameError;

/// The value that was read, from the file or its copy.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub(super) value: T,
    /// Why the file itself cannot be used; the value is the copy's then.
    pub(super) flaw: Option<MetadataError>,
}

/// The path of a file's copy.
pub(super) fn copy_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-copy");
    PathBuf::from(name)
}

/// A copy that is older than its file.
#[derive(Debug)]
pub(super) struct Behind {
    copy: PathBuf,
    /// The copy's new content. Kept, because the file may be damaged by the time that there is room.
    bytes: Vec<u8>,
    reason: io::Error,
}

impl Behind {
    /// Why the copy is older than its file, for people.
    pub(super) fn trouble(&self) -> String {
        let wait = if self.may_pass() { "the server tries again" } else { "a restart tries again" };
        format!("{} is older than its original; {wait}: {}", self.copy.display(), self.reason)
    }

    /// Whether a retry may succeed: a disk that has refused a write for a reason other than a shortage is not written to
    /// again.
    fn may_pass(&self) -> bool {
        is_shortage(&self.reason)
    }

    /// Tries again, if that may help. `None`: the copy is as new as its file, durably.
    pub(super) fn retry(self, env: &Env) -> Result<Option<Self>, ChangeError> {
        if !self.may_pass() {
            return Ok(Some(self));
        }
        let copy = self.copy.clone();
        let behind = write_copy(env, self.copy, self.bytes)?;
        if behind.is_none() {
            tracing::info!(path = %copy.display(), "the copy of a metadata file is up to date again");
        }
        Ok(behind)
    }
}

/// Replaces both, each atomically. Durable when it returns, except a copy that finds no room: it stays as old as it is.
pub(super) fn replace(env: &Env, path: &Path, bytes: Vec<u8>) -> Result<Option<Behind>, ChangeError> {
    atomic_replace(&*env.fs, path, &bytes)?;
    let behind = write_copy(env, copy_of(path), bytes)?;
    if let Some(Behind { copy, reason, .. }) = &behind {
        tracing::warn!(path = %copy.display(), error = %reason, "the copy of a metadata file is out of date");
    }
    Ok(behind)
}

fn write_copy(env: &Env, copy: PathBuf, bytes: Vec<u8>) -> Result<Option<Behind>, ChangeError> {
    match atomic_replace(&*env.fs, &copy, &bytes) {
        Ok(()) => Ok(None),
        Err(ChangeError::Undone(reason)) => Ok(Some(Behind { copy, bytes, reason })),
        Err(unknown) => Err(unknown),
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

/// Reads both and answers the flaws of each, too. A missing copy is no flaw: data of an older program has none.
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

/// `None`: there is no such file.
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

/// Whether the bytes are damaged, rather than written by a newer program.
fn is_damage(error: &MetadataError) -> bool {
    match error {
        MetadataError::File { source, .. } => !matches!(source, FrameError::NewerFormat(_)),
        MetadataError::Io { .. } => true,
        _ => false,
    }
}
