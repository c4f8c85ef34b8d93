//! Puts a cleaned segment in the place of the segments that it was made from.
//!
//! A crash at any instant leaves either all of the old segments or the new one. The names carry the state, so no
//! other file has to agree with them:
//!
//! ```text
//! <base>.log.cleaned  <base>.index.cleaned             being written; worth nothing
//! <base>-<end>.log.swap  <base>-<end>.index.swap       complete and synced; takes the place of every segment
//!                                                      whose base offset is in base..end
//! <base>.log  <base>.index                             in place
//! ```
//!
//! The rename to `.log.swap` is the point of no return. Before it the directory is synced with `.index.swap` in it.
//! After it come, each made durable before the next: the rename itself, the removal of the old segments, the renames of
//! the index and of the log into place. System resources for that, such as descriptors, are taken before the first
//! rename. If the system refuses a step all the same, a log in use goes on with the old segments, which it has open,
//! and does nothing else to its segments before the [`Swap`] is finished. When a log is opened, [`recover`] finishes or
//! undoes the swap that it finds; it may itself be cut short and run again.
//!
//! So there is one swap of a log at most, and it ends where a segment begins. Any other `.log.swap` belongs to another
//! state of the log, and would remove later records: it is refused, and nothing is changed.
//!
//! If nothing of a group stays, a segment of one batch without records takes its place, so that the log has no
//! hole; the next run joins it with its neighbours.
//!
//! The end offset stands in the name because the cleaned batches may end before it: without it, a superseded
//! record in an old segment that lies beyond them could come back after its tombstone was dropped.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{Directory, FileSystem};
use riverrun_types::Offset;

use crate::error::LogError;
use crate::file_names::{INDEX_SUFFIX, LOG_SUFFIX, parse_name};

/// Both files of a segment, by their suffixes.
const LOG: &str = LOG_SUFFIX;
const INDEX: &str = INDEX_SUFFIX;
const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";

/// Path of the log that is being written for the segment at `base`.
pub fn cleaned_log(dir: &Path, base: Offset) -> PathBuf {
    dir.join(format!("{:020}{LOG}{CLEANED}", base.0))
}

/// Path of the index that is being written for the segment at `base`.
pub fn cleaned_index(dir: &Path, base: Offset) -> PathBuf {
    dir.join(format!("{:020}{INDEX}{CLEANED}", base.0))
}

fn swap_path(dir: &Path, range: &Range<Offset>, kind: &str) -> PathBuf {
    dir.join(format!("{:020}-{:020}{kind}{SWAP}", range.start.0, range.end.0))
}

fn final_path(dir: &Path, base: Offset, kind: &str) -> PathBuf {
    dir.join(format!("{:020}{kind}", base.0))
}

/// A swap past the point of no return, with all system resources that finishing it takes. Until it is finished, nothing
/// else may remove or replace segments of the log.
#[derive(Debug)]
pub struct Swap {
    dir: PathBuf,
    range: Range<Offset>,
    directory: Arc<dyn Directory>,
    /// The files of the old segments but the first, whose files the renames replace.
    replaced: Vec<PathBuf>,
}

impl Swap {
    /// Decides that the cleaned segment at `range.start` replaces all segments whose base offset lies in `range`. Both
    /// of its files are complete and synced. After an error the old segments count, and [`discard`] removes the rest.
    /// If the error came from a sync, or leaves the disk's state open, [`recover`] removes it, in another life of the
    /// process.
    pub fn commit(fs: &dyn FileSystem, dir: &Path, range: Range<Offset>) -> io::Result<Self> {
        let directory: Arc<dyn Directory> = fs.open_dir(dir)?.into();
        let swap = Self::new(dir, range, directory, &names(fs, dir)?);
        fs.rename(&cleaned_index(dir, swap.range.start), &swap_path(dir, &swap.range, INDEX))?;
        sync_names(&*swap.directory)?;
        fs.rename(&cleaned_log(dir, swap.range.start), &swap_path(dir, &swap.range, LOG))?;
        Ok(swap)
    }

    fn new(dir: &Path, range: Range<Offset>, directory: Arc<dyn Directory>, names: &[String]) -> Self {
        let is_replaced = |name: &&String| {
            let base = [LOG, INDEX].into_iter().find_map(|kind| parse_name(name, kind));
            base.is_some_and(|base| range.contains(&base) && base != range.start)
        };
        let replaced = names.iter().filter(is_replaced).map(|name| dir.join(name)).collect();
        Self { dir: dir.to_path_buf(), range, directory, replaced }
    }

    /// Puts the cleaned segment in its place. Durable when it returns. Each step may have been done before: after an
    /// error it can be called again, unless the error came from a sync.
    pub fn finish(&self, fs: &dyn FileSystem) -> io::Result<()> {
        sync_names(&*self.directory)?;
        for path in &self.replaced {
            unless_missing(fs.remove_file(path))?;
        }
        sync_names(&*self.directory)?;
        unless_missing(self.move_into_place(fs, INDEX))?;
        self.move_into_place(fs, LOG)
    }

    fn move_into_place(&self, fs: &dyn FileSystem, kind: &str) -> io::Result<()> {
        let from = swap_path(&self.dir, &self.range, kind);
        fs.rename(&from, &final_path(&self.dir, self.range.start, kind))?;
        sync_names(&*self.directory)
    }
}

/// A missing file was removed or renamed by an earlier call.
fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the files that were written for the group of `range` and will not be used. Leaves a swap alone that has
/// passed the point of no return.
pub fn discard(fs: &dyn FileSystem, dir: &Path, range: &Range<Offset>) -> io::Result<()> {
    if fs.exists(&swap_path(dir, range, LOG))? {
        return Ok(());
    }
    let [log, index] = [cleaned_log(dir, range.start), cleaned_index(dir, range.start)];
    for path in [log, index, swap_path(dir, range, INDEX)] {
        unless_missing(fs.remove_file(&path))?;
    }
    Ok(())
}

/// Whether a file of this name says that a swap has passed the point of no return.
pub fn is_committed(name: &str) -> bool {
    parse_swap(name, LOG).is_some()
}

/// Finishes a swap that had passed the point of no return and removes any other. Runs before a partition's directory is
/// listed; returns whether there was one. [`LogError::Corrupt`] names a swap that does not fit the segments; nothing is
/// changed then.
pub fn recover(fs: &dyn FileSystem, dir: &Path) -> Result<bool, LogError> {
    let write = |error| LogError::write(dir, error);
    let names = names(fs, dir).map_err(write)?;
    let committed = committed(dir, &names).map_err(Misfit::into_error)?;
    recover_listed(fs, dir, &names, &committed).map_err(write)
}

/// Whether `names`, those in `dir`, include a swap that [`recover`] would finish or undo.
pub(crate) fn is_unfinished(dir: &Path, names: &[String]) -> Result<bool, Misfit> {
    let committed = committed(dir, names)?;
    Ok(!committed.is_empty() || names.iter().any(|name| parse_swap(name, INDEX).is_some()))
}

/// A swap that does not fit the segments: it is neither finished nor undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Its log.
    pub(crate) path: PathBuf,
    pub(crate) what: String,
}

impl Misfit {
    pub(crate) fn into_error(self) -> LogError {
        LogError::corrupt(&self.path, 0, self.what)
    }
}

/// The swaps that have passed the point of no return.
fn committed(dir: &Path, names: &[String]) -> Result<Vec<Range<Offset>>, Misfit> {
    let committed: Vec<_> = names.iter().filter_map(|name| parse_swap(name, LOG)).collect();
    for range in &committed {
        check_fits(range, dir, names, &committed)?;
    }
    Ok(committed)
}

fn check_fits(
    range: &Range<Offset>,
    dir: &Path,
    names: &[String],
    committed: &[Range<Offset>],
) -> Result<(), Misfit> {
    let bases = names.iter().filter_map(|name| parse_name(name, LOG));
    let next = bases.filter(|base| *base >= range.end).min();
    let reaches_further = |other: &&Range<Offset>| {
        let overlaps = other.start < range.end && range.start < other.end;
        *other != range && overlaps && other.end >= range.end
    };
    let what = match (next, committed.iter().find(reaches_further)) {
        (Some(next), _) if next != range.end => format!("the next segment begins at {next}"),
        (_, Some(other)) => format!("another one is of offsets {} to {}", other.start, other.end),
        _ => return Ok(()),
    };
    let what = format!("a compaction of offsets {} to {} was overtaken: {what}", range.start, range.end);
    Err(Misfit { path: swap_path(dir, range, LOG), what })
}

fn recover_listed(
    fs: &dyn FileSystem,
    dir: &Path,
    names: &[String],
    committed: &[Range<Offset>],
) -> io::Result<bool> {
    let directory: Arc<dyn Directory> = fs.open_dir(dir)?.into();
    for range in committed {
        Swap::new(dir, range.clone(), directory.clone(), names).finish(fs)?;
    }
    let is_unused = |name: &&String| {
        name.ends_with(CLEANED) || parse_swap(name, INDEX).is_some_and(|range| !committed.contains(&range))
    };
    let unused: Vec<_> = names.iter().filter(is_unused).collect();
    for name in &unused {
        fs.remove_file(&dir.join(name))?;
    }
    let was_any = !(committed.is_empty() && unused.is_empty());
    if was_any {
        sync_names(&*directory)?;
    }
    Ok(was_any)
}

/// Makes the names in the directory durable. A failed sync is never a shortage that passes, whatever its error.
fn sync_names(directory: &dyn Directory) -> io::Result<()> {
    directory.sync().map_err(|error| io::Error::other(format!("the directory cannot be synced: {error}")))
}

fn names(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs.read_dir(dir)?;
    // A name that is not text is not one of ours.
    Ok(entries.iter().filter_map(|entry| OsStr::to_str(&entry.name).map(str::to_owned)).collect())
}

fn parse_swap(name: &str, kind: &str) -> Option<Range<Offset>> {
    let (start, end) = name.strip_suffix(SWAP)?.strip_suffix(kind)?.split_once('-')?;
    let range = parse_name(start, "")?..parse_name(end, "")?;
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests;
