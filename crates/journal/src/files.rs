//! The files that a journal writes to: making them, making room in them, using them again.
//!
//! Owns the names in the journal's directory and which files may be overwritten. Guarantees that a frame is only ever
//! written where zeros were synced before, so that a group's sync writes no metadata of the file system; that no block
//! of a frame is written twice under one name; and that a file gets another start only once a synced header says that
//! nothing in it need be found. Refuses to grow beyond the journal's size: the writer waits then. That size is small
//! while the volume is in its reserve.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{AlignedBuffer, Env, File, OpenMode, is_shortage};

use crate::ahead::Ahead;
use crate::frames::FileHeader;
use crate::making::{FileMaker, MadeFile};
use crate::room::{FIRST_STEP_BYTES, Room};
use crate::volume::Volume;
use crate::{JournalError, JournalId, JournalOptions};

/// Extension of files that hold frames.
const NAMED: &str = "journal";
/// Extension of files that hold nothing yet.
const UNNAMED: &str = "new";

/// A file of a journal's directory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub(crate) number: u64,
    pub(crate) is_named: bool,
}

impl FileName {
    /// `None`: the name is not one of ours.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, extension) = name.split_once('.')?;
        let is_number = number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        match (is_number, extension) {
            (true, NAMED) => Some(Self { number: number.parse().ok()?, is_named: true }),
            (true, UNNAMED) => Some(Self { number: number.parse().ok()?, is_named: false }),
            _ => None,
        }
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:08}.{}", self.number, if self.is_named { NAMED } else { UNNAMED }))
    }
}

/// Opens a file to read what the disk has, past the page cache: by `O_DIRECT`, or by dropping what is cached.
pub(crate) fn open_to_recover(env: &Env, path: &Path) -> io::Result<Arc<dyn File>> {
    match env.fs.open_direct(path) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            let file = env.fs.open(path, OpenMode::Read)?;
            let len = file.len()?;
            file.advise_dont_need(0, len.next_multiple_of(1 << 20))?;
            Ok(file)
        }
        result => result,
    }
}

/// Why there is no room for a frame.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// The journal has its full size, and nothing in it is settled.
    Full,
    /// The file system is out of something that may come back.
    Shortage(JournalError),
    /// A write or a sync failed.
    Failed(JournalError),
}

impl NoRoom {
    /// Judges an error of making room, apart from syncs.
    pub(crate) fn of(path: &Path, error: io::Error) -> Self {
        if is_shortage(&error) {
            Self::Shortage(JournalError::io(path, error))
        } else {
            Self::failed(path, error)
        }
    }

    pub(crate) fn failed(path: &Path, error: io::Error) -> Self {
        Self::Failed(JournalError::write(path, error))
    }
}

/// The file that is written to.
#[derive(Debug)]
pub(crate) struct CurrentFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: FileHeader,
    pub(crate) room: Arc<Room>,
    /// It is being filled ahead.
    is_filled_ahead: bool,
    /// A file to come after it was asked for.
    has_ordered: bool,
}

/// A full file, or one of an earlier life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OlderFile {
    pub(crate) name: FileName,
    /// Position of its first byte.
    pub(crate) start: u64,
    /// Position where its frames end; everything in it may be overwritten once this is settled.
    pub(crate) frames_end: u64,
}

/// What a new file's header has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) synced: u64,
    pub(crate) settled: u64,
    /// The settled position that a synced header says already: what lies below may be overwritten.
    pub(crate) settled_on_disk: u64,
}

/// The files of a journal in use.
///
/// Invariants:
/// - `end` is where the next frame goes or, without a current file, where the frames of the last older file end.
/// - Frames lie below what `current.room` has filled, and at least one more block that was synced as zeros lies behind them,
///   unless the file ends there.
/// - `older` is in the order of positions; all of them lie below the current file, and `next_start` behind that.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) env: Env,
    pub(crate) dir: PathBuf,
    pub(crate) options: JournalOptions,
    pub(crate) id: JournalId,
    pub(crate) current: Option<CurrentFile>,
    pub(crate) older: VecDeque<OlderFile>,
    pub(crate) end: u64,
    pub(crate) next_start: u64,
    pub(crate) next_number: u64,
    pub(crate) ahead: Arc<Ahead>,
    pub(crate) volume: Volume,
}

impl Files {
    fn alignment(&self) -> u64 {
        self.options.alignment as u64
    }

    /// Bytes of frames that a file takes: its last block is kept for a note of what is settled.
    pub(crate) fn frame_bytes_max(options: &JournalOptions) -> u64 {
        options.file_bytes - 2 * options.alignment as u64
    }

    /// Whether the current file has the place for a frame, allocated or not.
    pub(crate) fn has_place_for(&self, frame_bytes: u64, is_note: bool) -> bool {
        let kept = if is_note { 0 } else { self.alignment() };
        self.current.as_ref().is_some_and(|current| self.end + frame_bytes + kept <= current.header.end())
    }

    /// Fills the current file with zeros up to behind a frame of `frame_bytes`, as far as that was not done ahead.
    /// Durable when it returns.
    pub(crate) fn allocate_for(&mut self, frame_bytes: u64) -> Result<(), NoRoom> {
        let offset = self.offset_behind(frame_bytes, self.alignment());
        let Some(current) = &mut self.current else { return Err(NoRoom::Full) };
        if current.room.filled() < offset {
            // Whoever fills it ahead is late, or has given up.
            current.is_filled_ahead = false;
            if self.volume.is_in_reserve() {
                current.room.fill_sparingly(offset, &current.path)?;
            } else {
                current.room.fill_to(offset, &current.path)?;
            }
        }
        Ok(())
    }

    /// Where the current file has to be filled to if `more` is to be filled behind a frame, from its start.
    fn offset_behind(&self, frame_bytes: u64, more: u64) -> u64 {
        let Some(current) = &self.current else { return 0 };
        (self.end + frame_bytes + more - current.header.start).min(current.header.bytes)
    }

    /// Whether a frame, and a note behind it, go into what the current file is filled to.
    pub(crate) fn is_filled_for(&self, frame_bytes: u64) -> bool {
        let offset = self.offset_behind(frame_bytes, 2 * self.alignment());
        self.current.as_ref().is_some_and(|current| current.room.filled() >= offset)
    }

    /// Whether the current file may take more of the volume.
    pub(crate) fn may_grow(&self) -> bool {
        !self.volume.is_in_reserve() || self.bytes() < self.volume.bytes_max_in_reserve()
    }

    /// What the files take of the volume, about.
    fn bytes(&self) -> u64 {
        let bytes = |file: &OlderFile| file.frames_end.saturating_sub(file.start);
        let older: u64 = self.older.iter().map(|file| bytes(file).next_multiple_of(FIRST_STEP_BYTES)).sum();
        older + self.current.as_ref().map_or(0, |current| current.room.filled())
    }

    /// Whether half of what the current file is filled to is used, and no other could be used after it.
    pub(crate) fn ends_soon(&self, settled: u64) -> bool {
        let is_one_settled = self.older.front().is_some_and(|file| file.frames_end <= settled);
        let is_used = |current: &CurrentFile| 2 * (self.end - current.header.start) >= current.room.filled();
        !is_one_settled && self.current.as_ref().is_some_and(is_used)
    }

    /// Why the current file cannot be trusted any more, if filling it has failed.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.current.as_ref().and_then(|current| current.room.failure())
    }

    /// Has the current file filled ahead, once a small part of it is used, and a file made that comes after it, once
    /// an eighth is used and no other will do. `true`: something was asked for. Small files are full from the start.
    pub(crate) fn look_ahead(&mut self, settled: u64) -> bool {
        let bytes = self.options.file_bytes;
        let Some(current) = self.current.as_mut().filter(|_| bytes > FIRST_STEP_BYTES) else { return false };
        let used = self.end - current.header.start;
        let mut has_asked = false;
        if !current.is_filled_ahead && used > FIRST_STEP_BYTES / 2 && !current.room.is_full() {
            current.is_filled_ahead = true;
            self.ahead.fill(current.room.clone(), current.path.clone());
            has_asked = true;
        }
        // Also a small server has a file to turn to when its volume is full: this one, if it is the only one, could not be
        // used again although everything in it is settled.
        if used > FIRST_STEP_BYTES / 2 && self.older.is_empty() && !self.ahead.has_spare(FIRST_STEP_BYTES) {
            let order = self.maker(FIRST_STEP_BYTES);
            self.ahead.order(order);
            self.next_number += 1;
            has_asked = true;
        }
        let Some(current) = self.current.as_mut() else { return has_asked };
        let is_due = !current.has_ordered && used > (bytes / 8).max(FIRST_STEP_BYTES / 2);
        if !is_due {
            return has_asked;
        }
        current.has_ordered = true;
        let is_one_settled = self.older.front().is_some_and(|file| file.frames_end <= settled);
        let has_its_size = self.older.len() + 2 > self.options.files_max();
        if is_one_settled || has_its_size || self.ahead.has_spare(bytes) || self.volume.is_in_reserve() {
            return has_asked;
        }
        let order = self.maker(bytes);
        self.next_number += 1;
        self.ahead.order(order);
        true
    }

    /// Goes on in another file with room for a frame of `frame_bytes`, all frames before being synced: in one that was
    /// made ahead, in one that is settled, or in a new one. A journal without a current file may always have one more:
    /// it has no place to note what is settled, and needs that to use its other files again. So may one that has only
    /// one file, which it cannot use again while frames go there. Durable when it returns.
    pub(crate) fn begin(&mut self, claims: Claims, frame_bytes: u64) -> Result<(), NoRoom> {
        // The header, the frame, and a note.
        let needed = frame_bytes + 3 * self.alignment();
        let is_in_reserve = self.volume.is_in_reserve();
        let small = needed.next_multiple_of(FIRST_STEP_BYTES).min(self.options.file_bytes);
        let count = self.older.len() + usize::from(self.current.is_some());
        let is_one_settled = self.older.front().is_some_and(|file| file.frames_end <= claims.settled_on_disk);
        let mut file = if let Some(spare) = self.ahead.take(!is_one_settled, needed) {
            self.with_header(spare)
        } else if is_one_settled {
            self.recycle(is_in_reserve, needed)?
        } else if is_in_reserve {
            let may_grow = self.bytes() + small <= self.volume.bytes_max_in_reserve();
            if self.current.is_some() && count > 1 && (count >= self.options.files_max() || !may_grow) {
                return Err(NoRoom::Full);
            }
            self.make(small)?
        } else if count < self.options.files_max() || self.current.is_none() {
            self.make(self.options.file_bytes)?
        } else {
            return Err(NoRoom::Full);
        };
        file.header.synced = claims.synced;
        file.header.settled = claims.settled;
        file.allocate_to(2 * self.alignment() + frame_bytes)
            .inspect_err(|reason| self.give_back(&file, reason))?;
        self.name(file)?;
        self.remove_surplus(claims.settled_on_disk);
        Ok(())
    }

    /// Removes files that the journal no longer needs to have its size: recovery may have made one too many, and the
    /// options may have changed. What cannot be removed is used again instead.
    fn remove_surplus(&mut self, settled_on_disk: u64) {
        while let Some(oldest) = self.older.front().copied()
            && oldest.frames_end <= settled_on_disk
            && self.older.len() >= self.options.files_max()
        {
            let path = oldest.name.path(&self.dir);
            if let Err(error) = self.env.fs.remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a settled journal file could not be removed");
                return;
            }
            self.older.pop_front();
        }
    }

    /// Removes a file for which the system is short of something: its place on the disk is of use elsewhere.
    fn give_back(&self, file: &CurrentFile, reason: &NoRoom) {
        if matches!(reason, NoRoom::Shortage(_))
            && let Err(error) = self.env.fs.remove_file(&file.path)
        {
            tracing::warn!(path = %file.path.display(), %error, "a journal file without a name is left behind");
        }
    }

    /// Makes a file of `bytes` without a name and without room, at the positions that come next.
    pub(crate) fn make(&mut self, bytes: u64) -> Result<CurrentFile, NoRoom> {
        self.maker(bytes).make().map(|made| self.with_header(made))
    }

    fn maker(&self, bytes: u64) -> FileMaker {
        FileMaker {
            env: self.env.clone(),
            dir: self.dir.clone(),
            sync_method: self.options.sync_method,
            number: self.next_number,
            bytes,
        }
    }

    /// Puts a file that was made at the positions that come next.
    fn with_header(&self, made: MadeFile) -> CurrentFile {
        let header = FileHeader {
            id: self.id,
            alignment: u32::try_from(self.options.alignment).expect("checked with the options"),
            start: self.next_start,
            bytes: made.room.bytes(),
            previous_end: self.end,
            synced: 0,
            settled: 0,
        };
        let MadeFile { number, path, file, room, .. } = made;
        CurrentFile { number, path, file, header, room, is_filled_ahead: false, has_ordered: false }
    }

    /// Takes the name from the oldest file, which is settled on disk. Its bytes may be overwritten when this returns.
    /// In the reserve it stays as large as it is, or gives a part back, if it is the only one: another will be needed to use
    /// it once more.
    fn recycle(&mut self, is_in_reserve: bool, needed: u64) -> Result<CurrentFile, NoRoom> {
        let oldest = *self.older.front().expect("the caller has seen it");
        let mut maker = self.maker(self.options.file_bytes);
        let (from, to) = (oldest.name.path(&self.dir), maker.path());
        self.env.fs.rename(&from, &to).map_err(|error| NoRoom::of(&from, error))?;
        self.older.pop_front();
        self.sync_dir()?;
        if is_in_reserve {
            let len = self.len_to_reuse(&to, maker.bytes).map_err(|error| NoRoom::of(&to, error))?;
            let is_only = self.current.is_none() && self.older.is_empty();
            let given_back = if is_only { (len / 2).min(FIRST_STEP_BYTES) } else { 0 };
            maker.bytes = (len - given_back).next_multiple_of(self.alignment()).max(needed);
        }
        let len = self.len_to_reuse(&to, maker.bytes).map_err(|error| NoRoom::of(&to, error))?;
        maker.open(len).map(|made| self.with_header(made))
    }

    /// Cuts a file that is longer than `bytes`, and says how much of it can be overwritten.
    fn len_to_reuse(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        let file = self.env.fs.open(path, OpenMode::ReadWrite)?;
        let len = file.len()?;
        if len > bytes {
            file.set_len(bytes)?;
        }
        let len = len.min(bytes);
        Ok(len - len % self.alignment())
    }

    /// Writes the header of a file and gives it its name; it is the current file then. All of it is durable when this
    /// returns.
    pub(crate) fn name(&mut self, file: CurrentFile) -> Result<(), NoRoom> {
        let mut header = AlignedBuffer::with_capacity(self.options.alignment, self.options.alignment);
        header.extend_from_slice(&file.header.encode());
        header.extend_zeros(self.options.alignment - header.len());
        let write = || {
            file.file.write_all_at(&header, 0)?;
            file.file.sync_data()
        };
        write().map_err(|error| NoRoom::failed(&file.path, error))?;
        let path = FileName { number: file.number, is_named: true }.path(&self.dir);
        self.env.fs.rename(&file.path, &path).map_err(|error| NoRoom::failed(&path, error))?;
        self.sync_dir()?;
        self.next_number = self.next_number.max(file.number + 1);
        self.next_start = file.header.next_start();
        if let Some(full) = self.current.take() {
            full.room.leave();
            let name = FileName { number: full.number, is_named: true };
            self.older.push_back(OlderFile { name, start: full.header.start, frames_end: self.end });
        }
        self.end = file.header.frames_start();
        self.current = Some(CurrentFile { path, ..file });
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), NoRoom> {
        self.env.fs.sync_dir(&self.dir).map_err(|error| NoRoom::failed(&self.dir, error))
    }
}

impl CurrentFile {
    /// Fills the file with zeros up to `offset` at least, or to its end, and syncs that.
    pub(crate) fn allocate_to(&self, offset: u64) -> Result<(), NoRoom> {
        self.room.fill_to(offset, &self.path)
    }
}
