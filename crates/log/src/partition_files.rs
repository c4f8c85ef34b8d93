//! The files in a partition's directory.
//!
//! Owns telling our files from others, and removing the rest of an interrupted operation. A file of an unknown name is
//! left alone.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use riverrun_types::Offset;

use crate::compaction::swap;
use crate::error::LogError;
use crate::file_names::{
    DAMAGED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, NEW_SUFFIX, STATE_SUFFIX, parse_name,
};
use crate::segment::Home;

/// Endings of the files of an interrupted compaction.
const COMPACTION_SUFFIXES: [&str; 2] = [".cleaned", ".swap"];

/// The files of one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionFiles {
    /// Base offset and size in bytes of each `.log`, in order.
    pub(crate) segments: Vec<(Offset, u64)>,
    /// Offsets of the state files, in order.
    pub(crate) states: Vec<Offset>,
    /// Base offsets of segments in which damage was found.
    pub(crate) damaged: Vec<Offset>,
}

/// Lists a partition's files after tidying up; empty if there is no directory.
pub(crate) fn list(home: &Home) -> Result<PartitionFiles, LogError> {
    let mut names = names(home)?;
    if names.iter().any(|(name, _)| has_suffix(name, &COMPACTION_SUFFIXES)) {
        recover_compaction(home, &names)?;
        names = self::names(home)?;
    }
    let mut files = PartitionFiles::default();
    for (name, len) in &names {
        if let Some(base) = parse_name(name, LOG_SUFFIX) {
            files.segments.push((base, *len));
        } else if let Some(offset) = parse_name(name, STATE_SUFFIX) {
            files.states.push(offset);
        } else if let Some(base) = parse_name(name, DAMAGED_SUFFIX) {
            files.damaged.push(base);
        } else if has_suffix(name, &[DELETED_SUFFIX, NEW_SUFFIX]) {
            remove(home, &home.dir.join(name))?;
        }
    }
    files.segments.sort_unstable();
    files.states.sort_unstable();
    remove_stray_indexes(home, &names, &files)?;
    Ok(files)
}

/// Tidies up after an interrupted compaction. If the log dir takes no writes any more, worthless files stay, and a log
/// whose segments were being replaced is not opened: the names that its directory shows may not be those on the disk.
fn recover_compaction(home: &Home, names: &[(String, u64)]) -> Result<(), LogError> {
    if !home.has_failed.load(Ordering::Acquire) {
        return swap::recover(&*home.fs, &home.dir).map(|_| ());
    }
    if names.iter().any(|(name, _)| swap::is_committed(name)) {
        let what = "a compaction cannot be finished in a log dir that has failed";
        return Err(LogError::io(&home.dir, io::Error::other(what)));
    }
    Ok(())
}

/// Removes each index without its log.
fn remove_stray_indexes(
    home: &Home,
    names: &[(String, u64)],
    files: &PartitionFiles,
) -> Result<(), LogError> {
    for base in names.iter().filter_map(|(name, _)| parse_name(name, INDEX_SUFFIX)) {
        if files.segments.binary_search_by_key(&base, |(base, _)| *base).is_err() {
            remove(home, &home.index_path(base))?;
        }
    }
    Ok(())
}

/// Names and sizes of all files; a name that is not text is not one of ours.
fn names(home: &Home) -> Result<Vec<(String, u64)>, LogError> {
    match home.fs.read_dir(&home.dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LogError::io(&home.dir, error)),
        Ok(entries) => {
            let files = entries.into_iter().filter(|entry| !entry.is_dir);
            Ok(files.filter_map(|entry| Some((entry.name.into_string().ok()?, entry.len))).collect())
        }
    }
}

fn has_suffix(name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Makes the names in a partition's directory durable.
pub(crate) fn sync_dir(home: &Home) -> Result<(), LogError> {
    let directory = home.fs.open_dir(&home.dir).map_err(|error| LogError::io(&home.dir, error))?;
    directory.sync().map_err(|error| LogError::sync(&home.dir, error))
}

/// Removes a file; fine if it is not there.
pub(crate) fn remove(home: &Home, path: &Path) -> Result<(), LogError> {
    match home.fs.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io(path, error)),
        _ => Ok(()),
    }
}
