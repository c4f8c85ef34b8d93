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
//! The rename to `.log.swap` is the point of no return. Before it the directory is synced with `.index.swap` in
//! it; after it come, each made durable before the next: the old segments go, the index moves into place, the log
//! moves into place. [`recover`] finishes or undoes what it finds, and may itself be cut short and run again.
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

use riverrun_env::FileSystem;
use riverrun_types::Offset;

use crate::segment::{INDEX_SUFFIX, LOG_SUFFIX, parse_name};

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

/// Puts the cleaned segment at `range.start` in the place of all segments whose base offset lies in `range`. Both
/// of its files are complete and synced. Durable when it returns; after an error [`recover`] brings the directory
/// into one of the two states.
pub fn install(fs: &dyn FileSystem, dir: &Path, range: Range<Offset>) -> io::Result<()> {
    fs.rename(&cleaned_index(dir, range.start), &swap_path(dir, &range, INDEX))?;
    sync_names(fs, dir)?;
    fs.rename(&cleaned_log(dir, range.start), &swap_path(dir, &range, LOG))?;
    sync_names(fs, dir)?;
    complete(fs, dir, &range)
}

/// Removes what was written for the segment at `base` and will not be used.
pub fn discard(fs: &dyn FileSystem, dir: &Path, base: Offset) -> io::Result<()> {
    for path in [cleaned_log(dir, base), cleaned_index(dir, base)] {
        if fs.exists(&path)? {
            fs.remove_file(&path)?;
        }
    }
    Ok(())
}

/// Finishes the swaps that had passed the point of no return and removes what had not. Runs before a partition's
/// directory is listed; returns whether there was anything to do.
pub fn recover(fs: &dyn FileSystem, dir: &Path) -> io::Result<bool> {
    let names = names(fs, dir)?;
    let committed: Vec<_> = names.iter().filter_map(|name| parse_swap(name, LOG)).collect();
    let mut found = false;
    for range in &committed {
        complete(fs, dir, range)?;
        found = true;
    }
    for name in &names {
        let is_unused = name.ends_with(CLEANED)
            || parse_swap(name, INDEX).is_some_and(|range| !committed.contains(&range));
        if is_unused {
            fs.remove_file(&dir.join(name))?;
            found = true;
        }
    }
    if found {
        sync_names(fs, dir)?;
    }
    Ok(found)
}

/// What comes after the point of no return. Each step may have been done before.
fn complete(fs: &dyn FileSystem, dir: &Path, range: &Range<Offset>) -> io::Result<()> {
    remove_replaced(fs, dir, range)?;
    sync_names(fs, dir)?;
    let index = swap_path(dir, range, INDEX);
    if fs.exists(&index)? {
        fs.rename(&index, &final_path(dir, range.start, INDEX))?;
        sync_names(fs, dir)?;
    }
    fs.rename(&swap_path(dir, range, LOG), &final_path(dir, range.start, LOG))?;
    sync_names(fs, dir)
}

/// Removes the old segments but the first, whose files the renames replace.
fn remove_replaced(fs: &dyn FileSystem, dir: &Path, range: &Range<Offset>) -> io::Result<()> {
    for name in names(fs, dir)? {
        let base = [LOG, INDEX].into_iter().find_map(|kind| parse_name(&name, kind));
        if base.is_some_and(|base| range.contains(&base) && base != range.start) {
            fs.remove_file(&dir.join(name))?;
        }
    }
    Ok(())
}

/// Makes the names in the directory durable. Whatever a sync fails with, it is no shortage that passes.
fn sync_names(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let directory = fs.open_dir(dir)?;
    directory.sync().map_err(|error| io::Error::other(format!("the directory cannot be synced: {error}")))
}

fn names(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs.read_dir(dir)?;
    // A name that is not text is none of ours.
    Ok(entries.iter().filter_map(|entry| OsStr::to_str(&entry.name).map(str::to_owned)).collect())
}

fn parse_swap(name: &str, kind: &str) -> Option<Range<Offset>> {
    let (start, end) = name.strip_suffix(SWAP)?.strip_suffix(kind)?.split_once('-')?;
    Some(parse_name(start, "")?..parse_name(end, "")?)
}

#[cfg(test)]
mod tests;
