//! Opening a journal: finds its files, tells a torn tail from corruption, and writes the tail anew.
//!
//! All files but the last end where the header of the next one says, and everything in them was synced. In the last
//! file the frames state how far it was synced: a chain of frames that breaks below that position is corruption, one
//! that breaks at or above it has a torn tail. Bytes that a later frame calls settled may be damaged, because they
//! are not needed. The intact part of the tail may be in the page cache or in the device only, so it is written to
//! another file and synced before the caller sees it; until that file has its name, the old tail counts.
//!
//! Guarantees: whatever the journal's size, only the headers of the last file's frames and the payloads of its tail
//! are read here; and an interrupted recovery changes nothing that the next one finds.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use riverrun_env::{AlignedBuffer, Env, OpenMode};
use riverrun_types::Position;

use crate::files::{CurrentFile, FileName, Files, NoRoom, OlderFile, open_to_recover};
use crate::frames::{EntryToEncode, FileHeader, Frame, FrameHeader, encode_frame, frame_bytes};
use crate::prefiller::Prefiller;
use crate::presence::FilesInUse;
use crate::reader::{FrameReader, UNREAD, UnreadFiles};
use crate::replay::{Replay, ReplayFile};
use crate::side_files::HeldFile;
use crate::volume::Volume;
use crate::{JournalError, JournalId, JournalOptions, RecoveredEntry, StreamId};

mod closed;
mod verify;

pub(crate) use closed::retire_damaged;
pub use verify::{JournalFinding, id_in, verify, verify_with_held};

#[cfg(test)]
mod tests;
#[cfg(test)]
use tests::trusts_page_cache;

/// The state from which an opened journal starts.
pub(crate) struct Recovered {
    pub(crate) files: Files,
    pub(crate) replay: Replay,
    pub(crate) held: Vec<HeldFile>,
    /// End of the frames; everything before it is synced.
    pub(crate) synced: u64,
    pub(crate) settled: u64,
    /// The highest position that a synced header or frame states.
    pub(crate) settled_on_disk: u64,
    /// Start of the oldest file that has something unsettled.
    pub(crate) oldest: u64,
}

/// Decides which entries need not be found: those that are durable elsewhere, or held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excluded {
    pub(crate) settled: u64,
    /// For each stream, the last entry of it that is held.
    pub(crate) held: HashMap<StreamId, Position>,
}

impl Excluded {
    pub(crate) fn has(&self, stream: StreamId, position: Position) -> bool {
        position.0 < self.settled || self.held.get(&stream).is_some_and(|held| position <= *held)
    }
}

/// The files of a directory.
#[derive(Default)]
struct Listing {
    files: Vec<FileName>,
    held: Vec<HeldFile>,
}

/// The extent of the frames of the last file.
#[derive(Default)]
struct Walk {
    /// End of the last frame of the chain.
    end: u64,
    /// Positions of the chain's frames, and the settled positions that they state.
    frames: Vec<(u64, u64)>,
    /// The highest synced position that any frame in the file states.
    synced: u64,
    /// The highest settled position that any frame states. An entry was durable elsewhere before a frame could say
    /// so: that stays true whatever became of the frames beside it, and whether or not that frame itself was synced.
    /// Only using files again takes a synced frame.
    settled: u64,
    /// Whether a frame begins behind the chain and is not whole.
    is_torn: bool,
}

/// The description of such a frame.
const TORN: &str = "a torn group ends the journal";

/// A bug that a test plants: serving the content of the page cache as it is.
#[cfg(not(test))]
const fn trusts_page_cache() -> bool {
    false
}

/// Finds the content of `dir` and writes the tail anew.
pub(crate) fn recover(env: &Env, dir: &Path, options: JournalOptions) -> Result<Recovered, JournalError> {
    let listing = list(env, dir)?;
    make_names_durable(env, dir, &listing)?;
    let unread = UnreadFiles::default();
    let mut found = open_files(env, dir, &listing, &unread)?;
    let walk = match found.last_mut() {
        Some((_, last)) => walk(last)?,
        None => Walk::default(),
    };
    let mut files = files_of(env, dir, options, &listing, &found, &walk)?;
    let in_headers = found.iter().map(|(_, file)| file.header.settled).max().unwrap_or(0);
    let settled = in_headers.max(walk.settled);
    files.older = older_of(&found, settled, files.end)?.into();
    files.unread = unread;
    let held = held_up_to(env, dir, files.id, &listing)?;
    let excluded = Excluded { settled, held };
    let tail = match found.last_mut() {
        Some((_, last)) => read_tail(last, &walk, files.end, &excluded)?,
        None => Vec::new(),
    };
    // Other frames may be in the page cache only: good to skip entries by, not to use files again by.
    let mut settled_on_disk = in_headers.max(walk.settled_below(files.end));
    let ends = files.older.iter().map(|older| older.frames_end);
    let readers = found.into_iter().map(|(_, reader)| reader).zip(ends);
    let needed = readers.filter(|(_, end)| *end > settled);
    let mut replay: Vec<_> = needed.map(|(reader, end)| ReplayFile::new(reader, end)).collect();
    if !tail.is_empty() {
        replay.push(rewrite(&mut files, &tail, settled, settled_on_disk)?);
        settled_on_disk = settled;
    }
    files.show();
    let oldest = replay.first().map_or(files.next_start, |file| file.reader.header.start);
    let held = listing.held.clone();
    Ok(Recovered {
        synced: files.end,
        replay: Replay::new(env.clone(), dir.to_path_buf(), files.id, listing.held, replay, excluded),
        held,
        files,
        settled,
        settled_on_disk,
        oldest,
    })
}

/// Syncs the directory. A name may have been given right before the last life ended, so that it may not be durable,
/// and nothing that builds on it may outlive it. The same holds for the directory itself before the first file.
fn make_names_durable(env: &Env, dir: &Path, listing: &Listing) -> Result<(), JournalError> {
    if listing.files.is_empty() {
        return sync_ancestors(env, dir);
    }
    env.fs.sync_dir(dir).map_err(|error| JournalError::write(dir, error))
}

/// The files as the writer takes them over, without the older ones: the next frame goes behind all that was found.
fn files_of(
    env: &Env,
    dir: &Path,
    options: JournalOptions,
    listing: &Listing,
    found: &[(FileName, FrameReader)],
    walk: &Walk,
) -> Result<Files, JournalError> {
    let last = found.last().map(|(_, last)| &last.header);
    let end = |last: &FileHeader| {
        if trusts_page_cache() { walk.end } else { walk.synced.max(last.frames_start()) }
    };
    let volume = Volume::new(env, dir, options.reserve_bytes);
    Ok(Files {
        env: env.clone(),
        dir: dir.to_path_buf(),
        options,
        id: id_of(env, found)?,
        current: None,
        older: VecDeque::new(),
        end: last.map_or(0, end),
        next_start: last.map_or(0, FileHeader::next_start),
        next_number: listing.files.iter().map(|name| name.number + 1).max().unwrap_or(0),
        prefiller: Arc::new(Prefiller::new(volume.clone())),
        volume,
        unread: UnreadFiles::default(),
        in_use: FilesInUse::default(),
    })
}

/// The last held entry of each stream that has any.
fn held_up_to(
    env: &Env,
    dir: &Path,
    id: JournalId,
    listing: &Listing,
) -> Result<HashMap<StreamId, Position>, JournalError> {
    let mut held_up_to = HashMap::new();
    for held in &listing.held {
        held.read(env, dir, id)?.iter().for_each(|entry| note_held(&mut held_up_to, entry));
    }
    Ok(held_up_to)
}

/// Remembers an entry, if it is the last held one of its stream.
fn note_held(held_up_to: &mut HashMap<StreamId, Position>, entry: &RecoveredEntry) {
    let last = held_up_to.entry(entry.header.stream).or_default();
    *last = (*last).max(entry.position);
}

fn list(env: &Env, dir: &Path) -> Result<Listing, JournalError> {
    let (mut listing, mut useless) = (Listing::default(), Vec::new());
    for entry in env.fs.read_dir(dir).map_err(|error| JournalError::io(dir, error))? {
        let Some(name) = entry.name.to_str().filter(|_| !entry.is_dir) else { continue };
        listing.files.extend(FileName::parse(name));
        listing.held.extend(HeldFile::parse(name));
        if HeldFile::is_unfinished(name) {
            useless.push(dir.join(name));
        }
    }
    listing.files.sort_unstable();
    listing.held.sort_unstable();
    // Files without a name hold nothing; their place on the disk is of use elsewhere.
    useless.extend(listing.files.iter().filter(|name| !name.is_named).map(|name| name.path(dir)));
    for path in useless {
        env.fs.remove_file(&path).map_err(|error| JournalError::io(&path, error))?;
    }
    Ok(listing)
}

/// Makes the directory itself durable, before the first file in it.
fn sync_ancestors(env: &Env, dir: &Path) -> Result<(), JournalError> {
    for ancestor in dir.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
        match env.fs.sync_dir(ancestor) {
            // A directory that this process may not read was not made by it.
            Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
                return Err(JournalError::io(ancestor, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens all files that have a name, in the order of their positions.
fn open_files(
    env: &Env,
    dir: &Path,
    listing: &Listing,
    unread: &UnreadFiles,
) -> Result<Vec<(FileName, FrameReader)>, JournalError> {
    let mut found = Vec::new();
    for name in listing.files.iter().filter(|name| name.is_named) {
        let path = name.path(dir);
        let file = if trusts_page_cache() {
            env.fs.open(&path, OpenMode::Read)
        } else {
            open_to_recover(env, &path)
        };
        let file = file.map_err(|error| JournalError::io(&path, error))?;
        found.push((*name, FrameReader::open_noted(path, file, unread)?));
    }
    found.sort_by_key(|(_, file)| file.header.start);
    Ok(found)
}

fn id_of(env: &Env, found: &[(FileName, FrameReader)]) -> Result<JournalId, JournalError> {
    let Some((_, first)) = found.first() else {
        let mut id = JournalId([0; 16]);
        env.random.fill(&mut id.0);
        return Ok(id);
    };
    let id = first.header.id;
    match found.iter().find(|(_, file)| file.header.id != id) {
        Some((_, other)) => Err(JournalError::format(
            &other.path,
            format!(
                "the file is of journal {}, and {} of journal {id}; move the one that does not belong here away",
                other.header.id,
                first.path.display()
            ),
        )),
        None => Ok(id),
    }
}

/// The files but the last, each with the end of its frames; `last_end` is that of the last file. Fails if a file that
/// had something unsettled is missing.
fn older_of(
    found: &[(FileName, FrameReader)],
    settled: u64,
    last_end: u64,
) -> Result<Vec<OlderFile>, JournalError> {
    if let Some((_, first)) = found.first() {
        check_present(first, settled, first.header.previous_end == 0)?;
    }
    let mut older = Vec::with_capacity(found.len());
    for (index, (name, file)) in found.iter().enumerate() {
        let next = found.get(index + 1).map(|(_, next)| next);
        if let Some(next) = next {
            check_present(next, settled, file.header.next_start() == next.header.start)?;
        }
        let frames_end = next.map_or(last_end, |next| next.header.previous_end);
        let (header, bytes) = (file.header, file.bytes_from(file.header.start) as u64);
        older.push(OlderFile { name: *name, header, frames_end, bytes });
    }
    Ok(older)
}

/// Fails if the file before `file` is missing (`!is_before_there`) and had something unsettled.
pub(crate) fn check_present(
    file: &FrameReader,
    settled: u64,
    is_before_there: bool,
) -> Result<(), JournalError> {
    if is_before_there || file.header.previous_end <= settled {
        return Ok(());
    }
    let what =
        format!("the file before it is missing, with entries up to position {}", file.header.previous_end);
    Err(file.corrupt(file.header.start, &what))
}

/// Follows the chain of frames to its end and judges why it ends.
fn walk(file: &mut FrameReader) -> Result<Walk, JournalError> {
    let found = intact_frames(file)?;
    let settled = found.iter().map(|frame| frame.settled).max().unwrap_or(0);
    let begin = chain_start(&found, file.header.frames_start(), settled);
    // A later frame may say that the bytes that end the chain were synced once.
    let synced = found.iter().map(|frame| frame.synced).fold(file.header.synced, u64::max);
    let mut walk = Walk { end: begin, frames: Vec::new(), synced, settled, is_torn: false };
    for frame in found.iter().skip_while(|frame| frame.start < begin) {
        if frame.start != walk.end {
            break;
        }
        walk.frames.push((frame.start, frame.settled));
        walk.end = frame.end;
    }
    if file.is_cut_at(walk.end)? {
        return Err(file.corrupt(walk.end, "the file was cut there"));
    }
    if file.frame_at(walk.end)?.is_err_and(|what| what == UNREAD) {
        // These bytes are unknown: a torn tail, or the last synced frame.
        return Err(file.corrupt(walk.end, UNREAD));
    }
    if walk.end < walk.synced {
        let what = file.frame_at(walk.end)?.err().unwrap_or("no frame begins there");
        return Err(file.corrupt(walk.end, what));
    }
    walk.is_torn = file.is_torn_at(walk.end)?;
    Ok(walk)
}

/// A frame of the last file.
struct Found {
    start: u64,
    end: u64,
    synced: u64,
    settled: u64,
}

/// All frames of a file that can be read, in order, whatever lies between them.
fn intact_frames(file: &mut FrameReader) -> Result<Vec<Found>, JournalError> {
    let mut found = Vec::new();
    let mut position = file.header.frames_start();
    while file.bytes_from(position) > 0 {
        match file.frame_at(position)? {
            Ok(frame) => {
                position = frame.end();
                let (start, synced) = (frame.header.position, frame.header.synced);
                found.push(Found { start, end: position, synced, settled: frame.settled() });
            }
            Err(_) => position += u64::from(file.header.alignment),
        }
    }
    Ok(found)
}

/// Start of the chain of frames: behind the last gap before which all is settled. Damage before that position loses
/// nothing.
fn chain_start(found: &[Found], frames_start: u64, settled: u64) -> u64 {
    let ends = std::iter::once(frames_start).chain(found.iter().map(|frame| frame.end));
    let behind_gaps = found.iter().zip(ends).filter(|(frame, end)| frame.start != *end);
    let starts = behind_gaps.map(|(frame, _)| frame.start).take_while(|start| *start <= settled);
    starts.last().unwrap_or(frames_start)
}

impl Walk {
    /// The highest settled position that a frame of the chain below `end` states.
    fn settled_below(&self, end: u64) -> u64 {
        let frames = self.frames.iter().take_while(|(position, _)| *position < end);
        frames.map(|(_, settled)| *settled).max().unwrap_or(0)
    }
}

/// The entries at or above `from`, frame by frame, up to the first damage: whether they were synced is unknown.
fn read_tail(
    file: &mut FrameReader,
    walk: &Walk,
    from: u64,
    excluded: &Excluded,
) -> Result<Vec<Vec<RecoveredEntry>>, JournalError> {
    let mut tail = Vec::new();
    for position in walk.frames.iter().map(|(position, _)| *position).filter(|position| *position >= from) {
        // It was intact a moment ago.
        let frame = file.frame_at(position)?.map_err(|what| file.corrupt(position, what))?;
        let bytes = file.bytes_of(&frame)?;
        let Some(kept) = needed_entries(&frame, &bytes, excluded) else {
            if file.is_unread(position, frame.bytes) {
                // It may have been synced.
                return Err(file.corrupt(position, UNREAD));
            }
            tracing::warn!(path = %file.path.display(), position, "{TORN}");
            return Ok(tail);
        };
        if !kept.is_empty() {
            tail.push(kept);
        }
    }
    if walk.is_torn {
        tracing::warn!(path = %file.path.display(), position = walk.end, "{TORN}");
    }
    Ok(tail)
}

/// The entries of a frame that are not `excluded`; `None` if the payload of one is damaged.
fn needed_entries(frame: &Frame, bytes: &Bytes, excluded: &Excluded) -> Option<Vec<RecoveredEntry>> {
    let entry = |(row, payload): (&crate::frames::EntryRow, Bytes)| {
        row.is_payload(&payload).then_some(RecoveredEntry {
            header: row.header,
            payload,
            position: row.position,
        })
    };
    let needed = frame.entries(bytes).filter(|(row, _)| !excluded.has(row.header.stream, row.position));
    needed.map(entry).collect()
}

/// Writes the tail to a file of its own and makes that the current one. Its frames are durable when this returns.
fn rewrite(
    files: &mut Files,
    tail: &[Vec<RecoveredEntry>],
    settled: u64,
    settled_on_disk: u64,
) -> Result<ReplayFile, JournalError> {
    let failed = |error| match error {
        NoRoom::Shortage(error) | NoRoom::Failed(error) => error,
        NoRoom::Full => JournalError::invalid("a new file has room"),
    };
    let alignment = files.options.alignment;
    let sizes = tail.iter().map(|entries| {
        let payload_bytes = entries.iter().map(|entry| entry.payload.len()).sum();
        frame_bytes(entries.len(), payload_bytes).next_multiple_of(alignment)
    });
    let frames_bytes = sizes.sum::<usize>() as u64;
    // The header, the tail, a note, and zeros behind it.
    let filled = frames_bytes + 3 * alignment as u64;
    let bytes = files.first_bytes(filled, settled_on_disk).max(frames_bytes + 2 * alignment as u64);
    let mut file = make_for_tail(files, bytes, filled, settled_on_disk).map_err(failed)?;
    file.header.settled = settled;
    file.header.synced = file.header.frames_start() + frames_bytes;
    let mut position = file.header.frames_start();
    for entries in tail {
        let frame = encode(files.id, position, settled, entries, alignment);
        file.file
            .write_all_at(&frame, position - file.header.start)
            .map_err(|error| JournalError::write(&file.path, error))?;
        position += frame.len() as u64;
    }
    let dir = files.env.fs.open_dir(&files.dir).map_err(|error| JournalError::io(&files.dir, error))?;
    files.name(file, &*dir).map_err(failed)?;
    files.end = position;
    let current = files.current.as_ref().map(|current| current.path.clone());
    let path: PathBuf = current.unwrap_or_default();
    let file = open_to_recover(&files.env, &path).map_err(|error| JournalError::io(&path, error))?;
    Ok(ReplayFile::new(FrameReader::open_noted(path, file, &files.unread)?, position))
}

/// Makes a file without a name, with room up to `filled`, and not much more if there is no space for that. If there
/// is no space at all, removes files in which everything is settled.
fn make_for_tail(
    files: &mut Files,
    bytes: u64,
    filled: u64,
    settled_on_disk: u64,
) -> Result<CurrentFile, NoRoom> {
    loop {
        let made = files.make(bytes).and_then(|file| allocate(&file, filled).map(|()| file));
        let Err(NoRoom::Shortage(_)) = &made else { return made };
        // The last file holds the tail.
        let is_of_use = files.older.len() > 1 && files.older[0].frames_end <= settled_on_disk;
        let Some(oldest) = files.older.front().filter(|_| is_of_use) else { return made };
        let path = oldest.name.path(&files.dir);
        files.env.fs.remove_file(&path).map_err(|error| NoRoom::of(&path, error))?;
        files.older.pop_front();
    }
}

/// A step of the usual size is more than a short tail needs.
fn allocate(file: &CurrentFile, filled: u64) -> Result<(), NoRoom> {
    match file.allocate_to(filled) {
        Err(NoRoom::Shortage(_)) => file.room.fill_exactly(filled, &file.path),
        result => result,
    }
}

fn encode(
    id: JournalId,
    position: u64,
    settled: u64,
    entries: &[RecoveredEntry],
    alignment: usize,
) -> AlignedBuffer {
    let payload_bytes = entries.iter().map(|entry| entry.payload.len()).sum();
    let bytes = frame_bytes(entries.len(), payload_bytes).next_multiple_of(alignment);
    let mut frame = AlignedBuffer::with_capacity(bytes, alignment);
    let header = FrameHeader { id, position, synced: position, settled };
    let entries = entries.iter().map(|entry| EntryToEncode {
        header: &entry.header,
        payload: &entry.payload,
        payload_crc: crc32c::crc32c(&entry.payload),
    });
    encode_frame(&mut frame, &header, entries, alignment);
    frame
}
