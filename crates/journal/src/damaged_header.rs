//! Files whose header is damaged, where the others show that nothing in them is needed.
//!
//! Without its header a file has no place among the others. But each frame in it says its own position, and the other
//! files say up to where the journal is settled. A file is passed over if
//!
//! - all of it but the header can be read,
//! - it has entries that can be read, all of them below the settled position, and
//! - no file is missing that has entries above it.
//!
//! The last file may not be passed over, because the others know nothing of it: a file that is used again, and has
//! nothing yet but the entries of before, has a higher number than all others. A file that is passed over is
//! *retired*: it is kept under another name for inspection.

use std::path::Path;
use std::sync::Arc;

use riverrun_env::{Env, File};

use crate::files::{FileName, Open, free_name, open_to_recover};
use crate::reader::{FrameReader, Survey};
use crate::recovery::check_present;
use crate::{JournalError, JournalId};

/// Retires the files whose headers are damaged if nothing in them is needed; otherwise fails with `error`, the damage
/// that was found. The new names are durable when it returns. If it is interrupted, the next call goes on.
pub(crate) fn retire_settled(env: &Env, dir: &Path, error: JournalError) -> Result<(), JournalError> {
    let needless = needless(env, dir, open_to_recover)?;
    if needless.is_empty() {
        return Err(error);
    }
    for name in needless {
        let (path, retired) = (name.path(dir), free_name(env, dir, name.number)?);
        env.fs.rename(&path, &retired).map_err(|error| JournalError::io(&path, error))?;
        tracing::warn!(
            %error, path = %retired.display(),
            "the header of a journal file is damaged, and the other files say that everything in it is settled: it is \
             kept under another name, and may be deleted"
        );
    }
    env.fs.sync_dir(dir).map_err(|error| JournalError::write(dir, error))
}

/// The files whose headers are damaged, if nothing in any of them is needed. All of them are opened by `open`.
pub(crate) fn needless(env: &Env, dir: &Path, open: Open) -> Result<Vec<FileName>, JournalError> {
    let files = Files::in_dir(env, dir, open)?;
    if files.headless.is_empty() || !files.are_headless_settled(env, dir)? {
        return Ok(Vec::new());
    }
    Ok(files.headless)
}

/// The files of a journal that have a name.
///
/// Invariants: `intact` is in the order of positions.
struct Files {
    intact: Vec<(FileName, FrameReader)>,
    headless: Vec<FileName>,
    open: Open,
}

impl Files {
    fn in_dir(env: &Env, dir: &Path, open: Open) -> Result<Self, JournalError> {
        let mut files = Self { intact: Vec::new(), headless: Vec::new(), open };
        for entry in env.fs.read_dir(dir).map_err(|error| JournalError::io(dir, error))? {
            let name = entry.name.to_str().filter(|_| !entry.is_dir).and_then(FileName::parse);
            let Some(name) = name.filter(|name| name.is_named) else { continue };
            let path = name.path(dir);
            let file = files.open(env, &path)?;
            match FrameReader::open(path, file) {
                Ok(reader) => files.intact.push((name, reader)),
                Err(JournalError::Corrupt { .. }) => files.headless.push(name),
                Err(error) => return Err(error),
            }
        }
        files.intact.sort_by_key(|(_, file)| file.header.start);
        Ok(files)
    }

    fn open(&self, env: &Env, path: &Path) -> Result<Arc<dyn File>, JournalError> {
        (self.open)(env, path).map_err(|error| JournalError::io(path, error))
    }

    fn survey(&self, env: &Env, path: &Path, id: JournalId) -> Result<Survey, JournalError> {
        Survey::of(path, self.open(env, path)?, id).map_err(|error| JournalError::io(path, error))
    }

    /// Whether everything in the files without a header is settled by the word of the others.
    fn are_headless_settled(&self, env: &Env, dir: &Path) -> Result<bool, JournalError> {
        let Some((_, last)) = self.intact.last() else { return Ok(false) };
        let id = last.header.id;
        if self.intact.iter().any(|(_, file)| file.header.id != id) {
            return Ok(false);
        }
        let in_headers = self.intact.iter().map(|(_, file)| file.header.settled).max();
        let settled = self.survey(env, &last.path, id)?.settled.max(in_headers).unwrap_or(0);
        let number_max = self.intact.iter().map(|(name, _)| name.number).max();
        for name in &self.headless {
            let Survey { entries_end, unread, .. } = self.survey(env, &name.path(dir), id)?;
            if !unread.is_empty() || !(1..=settled).contains(&entries_end) || Some(name.number) > number_max {
                return Ok(false);
            }
        }
        Ok(self.lack_only_settled(settled))
    }

    /// Whether no file is missing before any of the others that has something above `settled`.
    fn lack_only_settled(&self, settled: u64) -> bool {
        let mut before: Option<&FrameReader> = None;
        self.intact.iter().all(|(_, file)| {
            let is_before_there = before.map_or(file.header.previous_end == 0, |before| {
                before.header.next_start() == file.header.start
            });
            before = Some(file);
            check_present(file, settled, is_before_there).is_ok()
        })
    }
}
