//! Beginning a journal anew that is damaged but was closed in order, so that all of it is durable elsewhere.
//!
//! The caller says that it was closed so; that alone may be out of date, for example after an older copy of the
//! caller's own files was restored. So the journal's files are asked, too, the damaged ones as far as anything in
//! them can be read. These have to lie below a settled position that some intact frame or header states:
//!
//! - each frame with entries,
//! - each place that the disk does not give back,
//! - the frames of a file that is missing.
//!
//! If nothing intact is left to state one, nothing is settled. If the check passes, no file is needed any more,
//! and the journal begins anew, with an id and positions of its own. Damaged files are retired: kept under another
//! name for inspection.

use std::ops::Range;
use std::path::Path;

use riverrun_env::Env;

use super::list;
use crate::files::{FileName, free_name, open_to_recover};
use crate::reader::{FrameReader, Survey};
use crate::{JournalError, JournalId};

/// A file of the journal.
#[derive(Clone, Copy)]
struct Found {
    name: FileName,
    is_header_damaged: bool,
    /// The highest settled position that anything intact in it states.
    settled: Option<u64>,
}

/// Retires the damaged files of journal `id` and removes the others, if nothing in any of them is needed; otherwise
/// fails with `error`, the damage that was found. Durable when it returns. If it is interrupted, the next call goes
/// on.
pub(crate) fn retire_damaged(
    env: &Env,
    dir: &Path,
    id: JournalId,
    error: JournalError,
) -> Result<(), JournalError> {
    let Some(mut files) = files_without_need(env, dir, id)? else { return Err(error) };
    files.sort_by_key(|file| file.settled);
    let sync = || env.fs.sync_dir(dir).map_err(|error| JournalError::write(dir, error));
    // One file states that all is settled: it goes when all others are gone.
    let Some((last, others)) = files.split_last() else { return Err(error) };
    others.iter().try_for_each(|file| clear(env, dir, *file, &error))?;
    sync()?;
    clear(env, dir, *last, &error)?;
    sync()
}

/// Retires the file if it is damaged, and otherwise removes it.
fn clear(env: &Env, dir: &Path, file: Found, error: &JournalError) -> Result<(), JournalError> {
    let path = file.name.path(dir);
    let failed = |error| JournalError::io(&path, error);
    let is_named = matches!(error, JournalError::Corrupt { path: damaged, .. } if *damaged == path);
    if !file.is_header_damaged && !is_named {
        return env.fs.remove_file(&path).map_err(failed);
    }
    let retired = free_name(env, dir, file.name.number)?;
    env.fs.rename(&path, &retired).map_err(failed)?;
    tracing::warn!(
        %error, path = %retired.display(),
        "a journal file is damaged; the server was stopped in order, so that nothing in it is needed: it is kept under \
         another name, and may be deleted"
    );
    Ok(())
}

/// All files of the journal, if everything that can be read in them is settled by their own word. `None`: something
/// may be needed, or is another journal's.
fn files_without_need(env: &Env, dir: &Path, id: JournalId) -> Result<Option<Vec<Found>>, JournalError> {
    let listing = list(env, dir)?;
    let named: Vec<_> = listing.files.iter().copied().filter(|name| name.is_named).collect();
    let (mut entries_end, mut settled) = (0, None);
    // Positions, each with the end of its file's frames.
    let mut unread = Vec::new();
    let mut files = Vec::with_capacity(named.len());
    for &name in &named {
        let path = name.path(dir);
        let file = open_to_recover(env, &path).map_err(|error| JournalError::io(&path, error))?;
        let survey = Survey::of(&path, file.clone(), id).map_err(|error| JournalError::io(&path, error))?;
        let header = match FrameReader::open(path, file) {
            Ok(reader) if reader.header.id == id => Some(reader.header),
            Err(JournalError::Corrupt { .. }) => None,
            Err(error @ JournalError::Io { .. }) => return Err(error),
            _ => return Ok(None),
        };
        if header.is_none() && !survey.unread.is_empty() {
            return Ok(None);
        }
        let start = header.map_or(0, |header| header.start);
        let positions = survey.unread.iter().map(|unread| start + unread.start..start + unread.end);
        unread.extend(positions.map(|unread| (unread, survey.frames_end)));
        let said = header.map(|header| header.settled).max(survey.settled);
        files.push(Found { name, is_header_damaged: header.is_none(), settled: said });
        let is_next = |before: &FileName| before.number.checked_add(1) == Some(name.number);
        let missing_end = header.filter(|_| !named.iter().any(is_next)).map(|header| header.previous_end);
        entries_end = entries_end.max(survey.entries_end).max(missing_end.unwrap_or(0));
        settled = said.max(settled);
    }
    let Some(settled) = settled.filter(|_| listing.held.is_empty()) else { return Ok(None) };
    // Nothing was written to a file behind the note of a stop: a later life has begun a file of its own.
    let may_hold_more = |(unread, frames_end): &(Range<u64>, u64)| {
        unread.end > settled && (unread.start < settled || *frames_end != settled)
    };
    let is_needed = entries_end > settled || unread.iter().any(may_hold_more);
    Ok((!is_needed).then_some(files))
}
