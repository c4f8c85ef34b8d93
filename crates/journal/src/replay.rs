//! Reading the entries that earlier lives have left: held ones first, then the journal's files in the order of
//! positions.
//!
//! All of it was synced, so nothing is cut: a missing frame ends the replay with an error that names file and
//! position, unless it is settled. So does a place that the disk does not give back. A damaged payload in an intact
//! frame costs only its own entry, which is reported separately.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_types::Position;

use crate::frames::Frame;
use crate::reader::{FrameReader, UNREAD};
use crate::recovery::Excluded;
use crate::side_files::HeldFile;
use crate::{DamagedEntry, EntryHeader, JournalError, JournalId, RecoveredEntry};

/// Bytes of payloads given at once, apart from one frame more: a file may be larger than memory should hold.
const PART_BYTES: usize = 64 * 1024 * 1024;
/// The description of an entry that can be read and is damaged.
pub(crate) const MISMATCH: &str = "the payload of an entry does not match its checksum";

/// Selects the entries that the caller wants.
type IsWanted<'a> = &'a dyn Fn(&EntryHeader, Position) -> bool;

/// A file to read, and the position where its frames end.
pub(crate) struct ReplayFile {
    pub(crate) reader: FrameReader,
    pub(crate) end: u64,
    /// Position where the next frame begins.
    next: u64,
}

impl ReplayFile {
    pub(crate) fn new(reader: FrameReader, end: u64) -> Self {
        Self { next: reader.header.frames_start(), reader, end }
    }

    /// The frame at `position`, which was synced once; or the first intact one behind it if all before that is
    /// settled, so that the damage there does not matter.
    fn frame_from(&mut self, position: u64, settled: u64) -> Result<Frame, JournalError> {
        let what = match self.reader.frame_at(position)? {
            Ok(frame) => return Ok(frame),
            Err(what) => what,
        };
        match self.reader.next_frame(position, self.end)? {
            Some(next) if next <= settled => self.frame_from(next, settled),
            _ => Err(self.reader.corrupt(position, what)),
        }
    }

    /// Appends the wanted entries of the frame at `position` that are not `excluded`, and those with damaged payloads
    /// to `damaged`. Returns where the next frame begins.
    fn read_frame(
        &mut self,
        position: u64,
        excluded: &Excluded,
        is_wanted: IsWanted<'_>,
        mut take: impl FnMut(RecoveredEntry),
        damaged: &mut Vec<DamagedEntry>,
    ) -> Result<u64, JournalError> {
        let frame = self.frame_from(position, excluded.settled)?;
        let bytes = self.reader.bytes_of(&frame)?;
        for (row, payload) in frame.entries(&bytes) {
            if excluded.has(row.header.stream, row.position) || !is_wanted(&row.header, row.position) {
                continue;
            }
            if row.is_payload(&payload) {
                take(RecoveredEntry { header: row.header, payload, position: row.position });
            } else if self.reader.is_unread(frame.header.position, frame.bytes) {
                // The disk may give it back the next time, so it is not given up now.
                return Err(self.reader.corrupt(row.position.0, UNREAD));
            } else {
                damaged.push(damaged_entry(row.header, &self.reader.path, row.position));
            }
        }
        Ok(frame.end())
    }
}

/// The unsettled entries of earlier lives, file by file.
///
/// Invariants: each of `files` has something that was not given yet.
pub struct Replay {
    env: Env,
    dir: PathBuf,
    id: JournalId,
    held: VecDeque<HeldFile>,
    files: VecDeque<ReplayFile>,
    excluded: Excluded,
    damaged: Vec<DamagedEntry>,
    pub(crate) part_bytes: usize,
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
        let (held, files, damaged) = (held.into(), files.into(), Vec::new());
        Self { env, dir, id, held, files, excluded, damaged, part_bytes: PART_BYTES }
    }

    /// The next entries in the order of their submission; `None` at the end. They are of one file at most, and of a
    /// large file only a part. Held entries come first; an entry that is held is not given again. After an error the
    /// replay is over: later entries must not be served without the missing ones.
    #[expect(clippy::should_implement_trait, reason = "an iterator of results would go on after an error")]
    pub fn next(&mut self) -> Result<Option<Vec<RecoveredEntry>>, JournalError> {
        self.next_of(&|_, _| true)
    }

    /// As [`Self::next`], of the wanted entries only: damage in the payloads of others is ignored.
    pub fn next_of(&mut self, is_wanted: IsWanted<'_>) -> Result<Option<Vec<RecoveredEntry>>, JournalError> {
        if let Some(held) = self.held.pop_front() {
            let mut entries = held.read(&self.env, &self.dir, self.id).inspect_err(|_| self.end())?;
            entries.retain(|entry| is_wanted(&entry.header, entry.position));
            return Ok(Some(entries));
        }
        let Some(mut file) = self.files.pop_front() else { return Ok(None) };
        let entries = self.read(&mut file, is_wanted).inspect_err(|_| self.end())?;
        if file.next < file.end {
            self.files.push_front(file);
        }
        Ok(Some(entries))
    }

    /// Checks that the frames of the rest are there: then no later [`Self::next`] fails for a missing one. Returns
    /// the entries whose payloads are damaged, in the order in which they will be found. Reads everything, and keeps
    /// nothing in memory for that.
    pub fn check(&mut self) -> Result<Vec<DamagedEntry>, JournalError> {
        let mut damaged = Vec::new();
        for held in &self.held {
            let (path, entries) = (held.path(&self.dir), held.read(&self.env, &self.dir, self.id)?);
            let stand_ins = entries.iter().filter(|entry| entry.is_damaged());
            damaged.extend(stand_ins.map(|entry| damaged_entry(entry.header, &path, entry.position)));
        }
        for file in &mut self.files {
            let mut position = file.next;
            while position < file.end {
                position = file.read_frame(position, &self.excluded, &|_, _| true, |_| {}, &mut damaged)?;
            }
        }
        Ok(damaged)
    }

    /// The name under which the next entries are held, if they are: their side files stay until the name is released.
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

    fn read(
        &mut self,
        file: &mut ReplayFile,
        is_wanted: IsWanted<'_>,
    ) -> Result<Vec<RecoveredEntry>, JournalError> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while file.next < file.end && bytes < self.part_bytes {
            let take = |entry: RecoveredEntry| {
                bytes += entry.payload.len();
                entries.push(entry);
            };
            file.next = file.read_frame(file.next, &self.excluded, is_wanted, take, &mut self.damaged)?;
        }
        Ok(entries)
    }
}

fn damaged_entry(header: EntryHeader, path: &Path, position: Position) -> DamagedEntry {
    DamagedEntry { header, path: path.to_path_buf(), position, what: MISMATCH.to_owned() }
}
