//! Checking a journal's files without opening it: for `riverrun log verify`.
//!
//! Reads every frame and every payload, as a replay of everything would, and changes nothing. Tells damage from two
//! other states: the torn tail that a crash leaves, and settled bytes, which are not read any more.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_types::Position;

use super::{Excluded, TORN, Walk, id_of, note_held, older_of, walk};
use crate::damaged_header;
use crate::files::{FileName, open_to_look};
use crate::reader::{FrameReader, UNREAD};
use crate::replay::MISMATCH;
use crate::side_files::{HeldEntry, HeldFile};
use crate::{JournalError, JournalId, StreamId};

/// A fault of a journal's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFinding {
    /// The file.
    pub path: PathBuf,
    /// Position in it, in bytes from its start.
    pub position: u64,
    /// Description of the fault.
    pub what: String,
    /// A crash has left it: it was never synced, and the next start cuts it off.
    pub is_torn_tail: bool,
    /// It is durable elsewhere, so that it is not read here any more.
    pub is_settled: bool,
    /// The stream of the entry, if the fault hits a single one.
    pub stream: Option<StreamId>,
}

/// Checks the journal in `dir`. Fails only if the system cannot read.
pub fn verify(env: &Env, dir: &Path) -> Result<Vec<JournalFinding>, JournalError> {
    verify_with_held(env, dir, |_, _| {})
}

/// As [`verify`]; and calls `each` with the path and the entries of every side file that can be read, in the order of
/// their numbers.
pub fn verify_with_held(
    env: &Env,
    dir: &Path,
    each: impl FnMut(&Path, &[HeldEntry]),
) -> Result<Vec<JournalFinding>, JournalError> {
    let mut verification = Verification { env, dir, findings: Vec::new(), each };
    verification.run()?;
    Ok(verification.findings)
}

/// The id of the journal in `dir`, from the first file whose header can be read; `None` if there is no such file.
/// Fails only if the system cannot read.
pub fn id_in(env: &Env, dir: &Path) -> Result<Option<JournalId>, JournalError> {
    for entry in env.fs.read_dir(dir).map_err(|error| JournalError::io(dir, error))? {
        let name = entry.name.to_str().filter(|_| !entry.is_dir).and_then(FileName::parse);
        let Some(name) = name.filter(|name| name.is_named) else { continue };
        match read_head(env, name.path(dir)) {
            Ok(file) => return Ok(Some(file.header.id)),
            Err(JournalError::Corrupt { .. } | JournalError::Format { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn read_head(env: &Env, path: PathBuf) -> Result<FrameReader, JournalError> {
    let file = open_to_look(env, &path).map_err(|error| JournalError::io(&path, error))?;
    FrameReader::open(path, file)
}

struct Verification<'a, E> {
    env: &'a Env,
    dir: &'a Path,
    findings: Vec<JournalFinding>,
    each: E,
}

impl<E: FnMut(&Path, &[HeldEntry])> Verification<'_, E> {
    fn run(&mut self) -> Result<(), JournalError> {
        let (mut names, mut held) = (Vec::new(), Vec::new());
        for entry in self.env.fs.read_dir(self.dir).map_err(|error| JournalError::io(self.dir, error))? {
            let Some(name) = entry.name.to_str().filter(|_| !entry.is_dir) else { continue };
            names.extend(FileName::parse(name).filter(|name| name.is_named));
            held.extend(HeldFile::parse(name));
        }
        let mut files = Vec::with_capacity(names.len());
        for &name in &names {
            if let Some(file) = self.open(name)? {
                files.push((name, file));
            }
        }
        files.sort_by_key(|(_, file)| file.header.start);
        held.sort_unstable();
        let id = self.as_finding(id_of(self.env, &files))?;
        if let Some(id) = id {
            // Without an intact header, the journal that the side files belong to is unknown.
            let is_told = !files.is_empty() || names.is_empty();
            let held_up_to = if is_told { self.check_held(&held, id)? } else { HashMap::new() };
            self.check_files(&mut files, held_up_to)?;
        }
        self.excuse_needless()
    }

    /// A start passes over files whose headers are damaged if the other files say that all in them is settled.
    fn excuse_needless(&mut self) -> Result<(), JournalError> {
        let needless = match damaged_header::needless(self.env, self.dir, open_to_look) {
            Err(error @ JournalError::Io { .. }) => return Err(error),
            needless => needless.unwrap_or_default(),
        };
        for path in needless.iter().map(|name| name.path(self.dir)) {
            let of_it = self.findings.iter_mut().filter(|finding| finding.path == path);
            of_it.for_each(|finding| finding.is_settled = true);
        }
        Ok(())
    }

    /// Turns an error about a file's content into a finding.
    fn as_finding<T>(&mut self, result: Result<T, JournalError>) -> Result<Option<T>, JournalError> {
        let (path, position, what) = match result {
            Ok(value) => return Ok(Some(value)),
            Err(JournalError::Corrupt { path, position, what }) => (path, position, what),
            Err(JournalError::Format { path, what }) => (path, 0, what),
            Err(error) => return Err(error),
        };
        self.find(path, position, what, false);
        Ok(None)
    }

    fn find(&mut self, path: PathBuf, position: u64, what: String, is_settled: bool) {
        self.findings.push(JournalFinding {
            path,
            position,
            what,
            is_torn_tail: false,
            is_settled,
            stream: None,
        });
    }

    fn open(&mut self, name: FileName) -> Result<Option<FrameReader>, JournalError> {
        let read = read_head(self.env, name.path(self.dir));
        self.as_finding(read)
    }

    fn check_files(
        &mut self,
        files: &mut [(FileName, FrameReader)],
        held: HashMap<StreamId, Position>,
    ) -> Result<(), JournalError> {
        let Some((_, last)) = files.last_mut() else { return Ok(()) };
        let walked = walk(last);
        let walk = self.as_finding(walked)?.unwrap_or_default();
        if walk.is_torn {
            self.findings.push(JournalFinding {
                path: last.path.clone(),
                position: walk.end - last.header.start,
                what: TORN.to_owned(),
                is_torn_tail: true,
                is_settled: false,
                stream: None,
            });
        }
        let in_headers = files.iter().map(|(_, file)| file.header.settled).max().unwrap_or(0);
        let excluded = Excluded { settled: in_headers.max(walk.settled), held };
        let Some(older) = self.as_finding(older_of(files, excluded.settled, walk.end))? else {
            return Ok(());
        };
        for ((_, file), older) in files.iter_mut().zip(older) {
            self.check_frames(file, older.frames_end, &walk, &excluded)?;
        }
        Ok(())
    }

    /// Checks the frames of one file up to `end`.
    fn check_frames(
        &mut self,
        file: &mut FrameReader,
        end: u64,
        walk: &Walk,
        excluded: &Excluded,
    ) -> Result<(), JournalError> {
        let mut position = file.header.frames_start();
        while position < end {
            let Some(frame) = self.as_finding(file.frame_at(position))? else { return Ok(()) };
            let frame = match frame {
                Ok(frame) => frame,
                Err(what) => {
                    let next = file.next_frame(position, end)?;
                    let is_settled = next.unwrap_or(end) <= excluded.settled;
                    let at = position - file.header.start;
                    self.find(file.path.clone(), at, what.to_owned(), is_settled);
                    let Some(next) = next.filter(|_| is_settled) else { return Ok(()) };
                    position = next;
                    continue;
                }
            };
            let bytes = file.bytes_of(&frame)?;
            for (row, payload) in frame.entries(&bytes) {
                if !row.is_payload(&payload) {
                    let is_unread = file.is_unread(position, frame.bytes);
                    let what = if is_unread { UNREAD } else { MISMATCH };
                    self.findings.push(JournalFinding {
                        path: file.path.clone(),
                        position: row.position.0 - file.header.start,
                        what: what.to_owned(),
                        is_torn_tail: position >= walk.synced && !is_unread,
                        is_settled: excluded.has(row.header.stream, row.position),
                        stream: Some(row.header.stream),
                    });
                }
            }
            position = frame.end();
        }
        Ok(())
    }

    /// Returns the last held entry of each stream: a start reads none of the stream's entries up to it.
    fn check_held(
        &mut self,
        held: &[HeldFile],
        id: JournalId,
    ) -> Result<HashMap<StreamId, Position>, JournalError> {
        let mut held_up_to = HashMap::new();
        for file in held {
            let read = file.read_placed(self.env, self.dir, id);
            let Some(entries) = self.as_finding(read)? else { continue };
            let path = file.path(self.dir);
            for HeldEntry { position, entry } in entries.iter().filter(|held| held.entry.is_damaged()) {
                let from = entry.header.base_offset;
                self.findings.push(JournalFinding {
                    path: path.clone(),
                    position: *position,
                    what: format!("records from offset {from} on are damaged and not in it"),
                    is_torn_tail: false,
                    is_settled: false,
                    stream: Some(entry.header.stream),
                });
            }
            (self.each)(&path, &entries);
            for HeldEntry { entry, .. } in entries {
                note_held(&mut held_up_to, &entry);
            }
        }
        Ok(held_up_to)
    }
}
