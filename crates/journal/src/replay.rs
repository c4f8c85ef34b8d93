//! Reading what earlier lives have left: held entries first, then the journal's files in the order of positions.
//!
//! Everything here was synced, so nothing is cut: a frame that is not there ends the replay with an error that names
//! file and position. A damaged payload in an intact frame costs its own entry only, which is reported beside.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;

use riverrun_env::Env;

use crate::frames::Frame;
use crate::held::HeldFile;
use crate::reader::FrameReader;
use crate::recovery::Excluded;
use crate::{DamagedEntry, JournalError, JournalId, RecoveredEntry};

/// A file to read, and the position where its frames end.
pub(crate) struct ReplayFile {
    pub(crate) reader: FrameReader,
    pub(crate) end: u64,
}

impl ReplayFile {
    /// The frame at `position`, which was synced once.
    fn frame_at(&mut self, position: u64) -> Result<Frame, JournalError> {
        self.reader.frame_at(position)?.map_err(|what| self.reader.corrupt(position, what))
    }
}

/// The unsettled entries of earlier lives, file by file.
pub struct Replay {
    env: Env,
    dir: PathBuf,
    id: JournalId,
    held: VecDeque<HeldFile>,
    files: VecDeque<ReplayFile>,
    excluded: Excluded,
    damaged: Vec<DamagedEntry>,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("held", &self.held)
            .field("files", &self.files.len())
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}

impl Replay {
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        id: JournalId,
        held: Vec<HeldFile>,
        files: Vec<ReplayFile>,
        excluded: Excluded,
    ) -> Self {
        Self { env, dir, id, held: held.into(), files: files.into(), excluded, damaged: Vec::new() }
    }

    /// The next entries in the order of their submission, those of one file at most; `None` at the end. First come
    /// those that were held aside; an entry that is held is not given again. After an error the replay is over: what
    /// comes later must not be served without what is missing.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Vec<RecoveredEntry>>, JournalError> {
        if let Some(held) = self.held.pop_front() {
            return held.read(&self.env, &self.dir, self.id).map(Some).inspect_err(|_| self.end());
        }
        let Some(mut file) = self.files.pop_front() else { return Ok(None) };
        self.read(&mut file).map(Some).inspect_err(|_| self.end())
    }

    /// Looks whether the frames of all that is left are there: then no later [`Self::next`] fails for one that is not. Reads
    /// most of it, and keeps none of it for that.
    pub fn check(&mut self) -> Result<(), JournalError> {
        for file in &mut self.files {
            let mut position = file.reader.header.frames_start();
            while position < file.end {
                position += file.frame_at(position)?.bytes as u64;
            }
        }
        Ok(())
    }

    /// The name under which the next entries are held aside, if they are: they stay there until they are released.
    pub fn held_next(&self) -> Option<&str> {
        self.held.front().map(|held| held.name.as_str())
    }

    fn end(&mut self) {
        self.held.clear();
        self.files.clear();
    }

    /// Entries found so far whose payloads are damaged although they were synced once.
    pub fn damaged(&self) -> &[DamagedEntry] {
        &self.damaged
    }

    fn read(&mut self, file: &mut ReplayFile) -> Result<Vec<RecoveredEntry>, JournalError> {
        let mut entries = Vec::new();
        let mut position = file.reader.header.frames_start();
        while position < file.end {
            let frame = file.frame_at(position)?;
            let bytes = file.reader.bytes_of(&frame)?;
            for (row, payload) in frame.entries(&bytes) {
                if self.excluded.has(row.header.stream, row.position) {
                    continue;
                }
                if row.is_payload(&payload) {
                    entries.push(RecoveredEntry { header: row.header, payload, position: row.position });
                } else {
                    self.damaged.push(DamagedEntry {
                        header: row.header,
                        path: file.reader.path.clone(),
                        position: row.position,
                        what: "the payload does not match its checksum".into(),
                    });
                }
            }
            position += frame.bytes as u64;
        }
        Ok(entries)
    }
}
