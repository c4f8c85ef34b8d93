//! The files that a journal writes to: making them, making room in them, using them again.
//!
//! Owns the names in the journal's directory and decides which files may be overwritten. Guarantees that
//!
//! - a frame is only ever written where zeros were synced before, so that a group's sync writes no metadata of the
//!   file system;
//! - no block of a frame is written twice under one name;
//! - a file gets another start only once a synced header says that all in it is settled.
//!
//! Refuses to grow beyond the journal's size: the writer waits then. That size is small while the volume is in its
//! reserve. The last block that a file is filled to is kept for a note, or for the zeros behind one: without a note
//! no settled file could be used again.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{AlignedBuffer, Directory, Env, File, OpenMode, is_shortage};

use crate::file_maker::{FileMaker, MadeFile};
use crate::frames::FileHeader;
use crate::prefill::{FIRST_STEP_BYTES, PrefilledRange};
use crate::prefiller::Prefiller;
use crate::presence::{FilesInUse, NamedFile};
use crate::reader::UnreadFiles;
use crate::volume::Volume;
use crate::{JournalError, JournalId, JournalOptions};

/// Extension of files that hold frames.
const NAMED: &str = "journal";
/// Extension of files that hold nothing yet.
const UNNAMED: &str = "new";
/// Extension of retired files: damaged, and no longer needed.
const DAMAGED: &str = "damaged";

/// A file of a journal's directory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileName {
    pub(crate) number: u64,
    pub(crate) is_named: bool,
}

impl FileName {
    /// `None`: the name is not one of the journal's.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, extension) = name.split_once('.')?;
        let number = parse_number(number)?;
        match extension {
            NAMED => Some(Self { number, is_named: true }),
            UNNAMED => Some(Self { number, is_named: false }),
            _ => None,
        }
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:08}.{}", self.number, if self.is_named { NAMED } else { UNNAMED }))
    }
}

/// The number in a file's name: eight digits, or more for a larger number.
pub(crate) fn parse_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (format!("{number:08}") == digits).then_some(number)
}

/// How existing files are opened for reading.
pub(crate) type Open = fn(&Env, &Path) -> io::Result<Arc<dyn File>>;

/// Opens a file for reading only, for callers that may change nothing.
pub(crate) fn open_to_look(env: &Env, path: &Path) -> io::Result<Arc<dyn File>> {
    env.fs.open(path, OpenMode::Read)
}

/// Opens a file to read what is on the disk, past the page cache: by `O_DIRECT`, or by dropping the cached pages.
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

/// A name that no retired file has yet.
pub(crate) fn free_name(env: &Env, dir: &Path, number: u64) -> Result<PathBuf, JournalError> {
    let mut number = number;
    loop {
        let path = dir.join(format!("{number:08}.{DAMAGED}"));
        if !env.fs.exists(&path).map_err(|error| JournalError::io(&path, error))? {
            return Ok(path);
        }
        number += 1;
    }
}

/// Why there is no room for a frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The journal has its full size, and nothing in it is settled.
    #[error("the journal has its full size")]
    Full,
    /// The file system lacks something that may come back.
    #[error(transparent)]
    Shortage(JournalError),
    /// A write or a sync failed.
    #[error(transparent)]
    Failed(JournalError),
}

impl NoRoom {
    /// Classifies an error of making room, apart from syncs.
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

/// The file that the writer writes to.
#[derive(Debug)]
pub(crate) struct CurrentFile {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: FileHeader,
    pub(crate) room: Arc<PrefilledRange>,
    /// The prefiller is filling it.
    is_filled_ahead: bool,
    /// A small file to go on in was ordered, or exists.
    has_standby: bool,
    /// The file to come after it was ordered.
    has_ordered: bool,
}

/// A full file, or one of an earlier life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OlderFile {
    /// The name; that of a new file (`.new`) if the file was to be used again and the volume had no space for that.
    pub(crate) name: FileName,
    pub(crate) header: FileHeader,
    /// Position where its frames end; everything in it may be overwritten once this is settled.
    pub(crate) frames_end: u64,
    /// Bytes that it takes of the volume.
    pub(crate) bytes: u64,
}

/// Positions that a new file's header has to state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) synced: u64,
    pub(crate) settled: u64,
    /// The settled position that a synced header states already: bytes below it may be overwritten.
    pub(crate) settled_on_disk: u64,
}

/// The files of a journal in use.
///
/// Invariants:
/// - `end` is where the next frame goes or, without a current file, where the frames of the last older file end.
/// - Frames lie below what `current.room` has filled, and at least one more block that was synced as zeros lies behind them,
///   unless the file ends there; behind a frame with entries there is one for a note besides.
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
    pub(crate) prefiller: Arc<Prefiller>,
    pub(crate) volume: Volume,
    pub(crate) unread: UnreadFiles,
    /// The same files, as [`FilesInUse`] shows them to checks from outside the journal's thread.
    pub(crate) in_use: FilesInUse,
}

impl Files {
    fn alignment(&self) -> u64 {
        self.options.alignment as u64
    }

    /// Bytes of frames that a file takes: its last block is kept for a note.
    pub(crate) fn frame_bytes_max(options: &JournalOptions) -> u64 {
        options.file_bytes - 2 * options.alignment as u64
    }

    /// Whether the current file has the place for a frame, allocated or not.
    pub(crate) fn has_place_for(&self, frame_bytes: u64, is_note: bool) -> bool {
        let kept = if is_note { 0 } else { self.alignment() };
        self.current.as_ref().is_some_and(|current| self.end + frame_bytes + kept <= current.header.end())
    }

    /// Fills the current file with zeros up to behind a frame of `frame_bytes` and a note, unless the prefiller has
    /// done so. Durable when it returns.
    pub(crate) fn allocate_for(&mut self, frame_bytes: u64) -> Result<(), NoRoom> {
        let offset = self.offset_behind(frame_bytes, 2 * self.alignment());
        let Some(current) = &mut self.current else { return Err(NoRoom::Full) };
        if current.room.filled() < offset {
            // The prefiller is late, or has given up.
            current.is_filled_ahead = false;
            if self.volume.is_in_reserve() {
                current.room.fill_sparingly(offset, &current.path)?;
            } else {
                current.room.fill_to(offset, &current.path)?;
            }
        }
        Ok(())
    }

    /// As [`Self::allocate_for`], for a note alone.
    pub(crate) fn allocate_for_note(&self) -> Result<(), NoRoom> {
        let offset = self.offset_behind(self.alignment(), self.alignment());
        let Some(current) = &self.current else { return Err(NoRoom::Full) };
        current.room.fill_exactly(offset, &current.path)
    }

    /// Offset, from the file's start, up to which the current file has to be filled so that `more` bytes behind a
    /// frame are.
    fn offset_behind(&self, frame_bytes: u64, more: u64) -> u64 {
        let Some(current) = &self.current else { return 0 };
        (self.end + frame_bytes + more - current.header.start).min(current.header.bytes)
    }

    /// Whether the filled part of the current file has room for a frame and a note behind it.
    pub(crate) fn is_filled_for(&self, frame_bytes: u64) -> bool {
        let offset = self.offset_behind(frame_bytes, 2 * self.alignment());
        self.current.as_ref().is_some_and(|current| current.room.filled() >= offset)
    }

    /// Whether the volume has less free space than its reserve.
    pub(crate) fn is_in_reserve(&self) -> bool {
        self.volume.is_in_reserve()
    }

    /// Whether the current file may grow by the bytes that [`Self::allocate_for`] needs.
    pub(crate) fn may_grow_for(&self, frame_bytes: u64) -> bool {
        let filled = self.current.as_ref().map_or(0, |current| current.room.filled());
        let missing = self.offset_behind(frame_bytes, 2 * self.alignment()).saturating_sub(filled);
        self.may_grow_by(missing.next_multiple_of(FIRST_STEP_BYTES))
    }

    /// Whether the files may take more of the volume.
    pub(crate) fn may_grow(&self) -> bool {
        self.may_grow_by(FIRST_STEP_BYTES.min(self.options.file_bytes))
    }

    fn may_grow_by(&self, bytes: u64) -> bool {
        !self.is_in_reserve()
            || self.bytes() + bytes <= self.volume.bytes_max_in_reserve().min(self.options.bytes_max())
    }

    /// Whether the journal may make another file of `bytes`. Without a current file it always may: it has no place
    /// for a note then, and needs one to use its other files again. With a single file it may, too, because that file
    /// cannot be used again while frames go there. Files that were made in the reserve are small, and there may be
    /// more of them.
    fn may_make(&self, bytes: u64, is_in_reserve: bool) -> bool {
        let Some(oldest) = self.older.front().filter(|_| self.current.is_some()) else { return true };
        if is_in_reserve {
            return self.may_grow_by(bytes);
        }
        let is_count_reached = self.older.len() + 1 >= self.options.files_max();
        !is_count_reached || self.next_start - oldest.header.start + bytes <= self.options.bytes_max()
    }

    /// Size of a file that has room for `needed` bytes, and hardly more.
    fn small_bytes(&self, needed: u64) -> u64 {
        needed.next_multiple_of(FIRST_STEP_BYTES).min(self.options.file_bytes)
    }

    /// Size of the file with which a life begins, and which has room for `needed` bytes. It goes beyond the journal's
    /// size where no other file can be used again, so that no producer waits for settling right after a start. Once
    /// lives that settle nothing have made twice as many files as there may be, it is a small file.
    pub(crate) fn first_bytes(&self, needed: u64, settled_on_disk: u64) -> u64 {
        let is_one_settled = self.older.front().is_some_and(|file| file.frames_end <= settled_on_disk);
        let are_too_many = self.older.len() >= 2 * self.options.files_max();
        if are_too_many && !is_one_settled { self.small_bytes(needed) } else { self.options.file_bytes }
    }

    /// Bytes that the files take of the volume.
    fn bytes(&self) -> u64 {
        let older: u64 = self.older.iter().map(|file| file.bytes).sum();
        older + self.current.as_ref().map_or(0, |current| current.room.filled())
    }

    /// Whether half of the filled part of the current file is unsettled, and no other file could be used after it.
    pub(crate) fn ends_soon(&self, settled: u64) -> bool {
        let is_one_settled = self.older.front().is_some_and(|file| file.frames_end <= settled);
        let unsettled = |current: &CurrentFile| self.end.saturating_sub(current.header.start.max(settled));
        let is_used = |current: &CurrentFile| 2 * unsettled(current) >= current.room.filled();
        !is_one_settled && self.current.as_ref().is_some_and(is_used)
    }

    /// The error with which filling the current file has failed, after which the file cannot be trusted.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.current.as_ref().and_then(|current| current.room.failure())
    }

    /// Orders work from the prefiller: to fill the current file once a small part of it is used, and to make the next
    /// file once an eighth is used and no older file will do. Returns whether something was ordered. Small files are
    /// full from the start.
    pub(crate) fn look_ahead(&mut self, settled: u64) -> bool {
        let bytes = self.options.file_bytes;
        let Some(current) = self.current.as_mut().filter(|_| bytes > FIRST_STEP_BYTES) else { return false };
        let used = self.end - current.header.start;
        let mut has_asked = false;
        if !current.is_filled_ahead && used > FIRST_STEP_BYTES / 2 && !current.room.is_full() {
            current.is_filled_ahead = true;
            self.prefiller.fill(current.room.clone(), current.path.clone());
            has_asked = true;
        }
        // A small server, too, needs a second file when its volume is full: its only file could not be used again
        // although all in it is settled.
        let wants_standby = !current.has_standby && used > FIRST_STEP_BYTES / 2 && self.older.is_empty();
        current.has_standby |= wants_standby;
        if wants_standby && !self.prefiller.has_spare(FIRST_STEP_BYTES) {
            let order = self.maker(FIRST_STEP_BYTES);
            self.prefiller.order(order);
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
        let is_of_use = !is_one_settled && !self.prefiller.has_spare(bytes) && !self.is_in_reserve();
        if !is_of_use || !self.may_make(bytes, false) {
            return has_asked;
        }
        let order = self.maker(bytes);
        self.next_number += 1;
        self.prefiller.order(order);
        true
    }

    /// Goes on in another file with room for a frame of `frame_bytes`; all frames before are synced. That is a file
    /// made ahead, a settled one, or a new one if the journal may have another. Durable when it returns.
    pub(crate) fn begin(&mut self, claims: Claims, frame_bytes: u64) -> Result<(), NoRoom> {
        // Opened before anything is changed, so that a process without a free descriptor can try again.
        let dir = self.env.fs.open_dir(&self.dir).map_err(|error| NoRoom::of(&self.dir, error))?;
        // The header, the frame, and a note.
        let needed = frame_bytes + 2 * self.alignment();
        let is_in_reserve = self.is_in_reserve();
        if !is_in_reserve {
            self.retire_unread(claims.settled_on_disk);
        }
        let oldest = self.older.front().copied();
        let is_one_settled = oldest.as_ref().is_some_and(|file| file.frames_end <= claims.settled_on_disk);
        let mut recycled = None;
        let mut file = if let Some(spare) = self.prefiller.take(!is_one_settled, needed) {
            self.with_header(spare)
        } else if is_one_settled {
            recycled = oldest;
            self.recycle(&*dir, is_in_reserve, needed)?
        } else {
            let bytes = match &self.current {
                _ if is_in_reserve => self.small_bytes(needed),
                None => self.first_bytes(needed, claims.settled_on_disk),
                Some(_) => self.options.file_bytes,
            };
            if !self.may_make(bytes, is_in_reserve) {
                return Err(NoRoom::Full);
            }
            self.make(bytes)?
        };
        // A block of zeros lies behind the note, too, unless the file ends there.
        if let Err(reason) = file.allocate_to(needed + self.alignment()) {
            if !matches!(reason, NoRoom::Shortage(_)) || file.room.filled() < needed {
                // If another file can be used again, removing this one gives that one space to grow.
                let is_last = self.older.front().is_none_or(|next| next.frames_end > claims.settled_on_disk);
                match recycled.filter(|_| is_last) {
                    Some(oldest) => self.put_back(&file, oldest, true, &reason),
                    None => self.give_back(&file, &reason),
                }
                return Err(reason);
            }
            file.end_where_filled();
        }
        file.header.synced = claims.synced;
        file.header.settled = claims.settled;
        if let Err(reason) = self.put_name(&mut file, &*dir) {
            match recycled {
                Some(oldest) => self.put_back(&file, oldest, false, &reason),
                None => self.give_back(&file, &reason),
            }
            return Err(reason);
        }
        self.go_on_in(file);
        self.remove_surplus(claims.settled_on_disk, is_in_reserve);
        Ok(())
    }

    /// Retires settled files with bad sectors: a write to them might fail, and another tool may be able to read more
    /// of them. A file that cannot be renamed is used again.
    fn retire_unread(&mut self, settled_on_disk: u64) {
        while let Some(oldest) = self.older.front()
            && oldest.frames_end <= settled_on_disk
            && self.unread.has(&oldest.name.path(&self.dir))
        {
            let path = oldest.name.path(&self.dir);
            let renamed = free_name(&self.env, &self.dir, oldest.name.number).and_then(|retired| {
                self.env.fs.rename(&path, &retired).map_err(|error| JournalError::io(&path, error))
            });
            if let Err(error) = renamed {
                tracing::warn!(%error, "a settled journal file with bad sectors is used again");
                return;
            }
            tracing::warn!(
                path = %path.display(),
                "the disk does not give back all of this journal file, in which all is settled: it is kept with the \
                 ending .damaged, and may be deleted"
            );
            self.unread.forget(&path);
            self.older.pop_front();
        }
    }

    /// Removes files beyond the journal's size: recovery may have made one too many, and the options may have
    /// changed. Small files are of use for as long as the volume is in its reserve. A file that cannot be removed is
    /// used again instead.
    fn remove_surplus(&mut self, settled_on_disk: u64, is_in_reserve: bool) {
        while let Some(oldest) = self.older.front()
            && oldest.frames_end <= settled_on_disk
            && self.older.len() >= self.options.files_max()
            && !(is_in_reserve && self.bytes() <= self.volume.share_bytes())
        {
            let path = oldest.name.path(&self.dir);
            if let Err(error) = self.env.fs.remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a settled journal file could not be removed");
                return;
            }
            self.older.pop_front();
        }
    }

    /// Keeps a file that was [recycled](Self::recycle) but finds no space for zeros or for its name. It may be the
    /// only other file, and large enough for a smaller frame later. It gets its old name back if possible; but none
    /// if anything but zeros behind its content was written (`is_as_before`). A start removes a file without a name.
    fn put_back(&mut self, file: &CurrentFile, oldest: OlderFile, is_as_before: bool, reason: &NoRoom) {
        if !matches!(reason, NoRoom::Shortage(_)) {
            return;
        }
        let may_have_name = is_as_before && oldest.name.is_named;
        let has_name = may_have_name && self.env.fs.rename(&file.path, &oldest.name.path(&self.dir)).is_ok();
        let name = if has_name { oldest.name } else { FileName { number: file.number, is_named: false } };
        self.next_number = self.next_number.max(file.number + 1);
        self.older.push_front(OlderFile { name, bytes: file.room.filled(), ..oldest });
    }

    /// Removes a file for which the system lacks something: its place on the disk is of use elsewhere.
    fn give_back(&self, file: &CurrentFile, reason: &NoRoom) {
        if matches!(reason, NoRoom::Shortage(_))
            && let Err(error) = self.env.fs.remove_file(&file.path)
        {
            tracing::warn!(path = %file.path.display(), %error, "a journal file without a name is left behind");
        }
    }

    /// Makes a file of `bytes` without a name and without room, at the next free positions.
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

    /// Gives a made file the next free positions.
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
        let [is_filled_ahead, has_standby, has_ordered] = [false; 3];
        CurrentFile { number, path, file, header, room, is_filled_ahead, has_standby, has_ordered }
    }

    /// Takes the name from the oldest file, if that has one and is settled on disk. The file's bytes may be
    /// overwritten when this returns. In the reserve a file that is large enough keeps its size. The content is
    /// durable once the new header is.
    fn recycle(
        &mut self,
        dir: &dyn Directory,
        is_in_reserve: bool,
        needed: u64,
    ) -> Result<CurrentFile, NoRoom> {
        let mut maker = self.maker(self.options.file_bytes);
        let oldest = self.older.front_mut().expect("the caller has seen it");
        if oldest.name.is_named {
            let (from, to) = (oldest.name.path(&self.dir), maker.path());
            self.env.fs.rename(&from, &to).map_err(|error| NoRoom::of(&from, error))?;
            oldest.name = FileName { number: maker.number, is_named: false };
            self.next_number += 1;
            dir.sync().map_err(|error| NoRoom::failed(&self.dir, error))?;
        } else {
            maker.number = oldest.name.number;
        }
        let path = maker.path();
        let len = self.len_to_reuse(&path, maker.bytes).map_err(|error| NoRoom::of(&path, error))?;
        if is_in_reserve {
            maker.bytes = len.max(needed);
        }
        let file = self.with_header(maker.open(len)?);
        self.older.pop_front();
        Ok(file)
    }

    /// Cuts a file that is longer than `bytes`; returns how many of its bytes can be overwritten.
    fn len_to_reuse(&self, path: &Path, bytes: u64) -> io::Result<u64> {
        let file = self.env.fs.open(path, OpenMode::ReadWrite)?;
        let len = file.len()?;
        if len > bytes {
            file.set_len(bytes)?;
        }
        let len = len.min(bytes);
        Ok(len - len % self.alignment())
    }

    /// Writes the header of a file, gives the file its name, and makes it the current one. All of it is durable when
    /// this returns.
    pub(crate) fn name(&mut self, mut file: CurrentFile, dir: &dyn Directory) -> Result<(), NoRoom> {
        self.put_name(&mut file, dir).inspect_err(|reason| self.give_back(&file, reason))?;
        self.go_on_in(file);
        Ok(())
    }

    /// Writes the header of a file and gives it its name, which is durable when this returns.
    fn put_name(&self, file: &mut CurrentFile, dir: &dyn Directory) -> Result<(), NoRoom> {
        let mut header = AlignedBuffer::with_capacity(self.options.alignment, self.options.alignment);
        header.extend_from_slice(&file.header.encode());
        header.extend_zeros(self.options.alignment - header.len());
        let write = || {
            file.file.write_all_at(&header, 0)?;
            file.file.sync_data()
        };
        write().map_err(|error| NoRoom::failed(&file.path, error))?;
        let path = FileName { number: file.number, is_named: true }.path(&self.dir);
        // Some file systems (XFS) need space even to change a name.
        self.env.fs.rename(&file.path, &path).map_err(|error| NoRoom::of(&path, error))?;
        file.path = path;
        dir.sync().map_err(|error| NoRoom::failed(&self.dir, error))
    }

    /// Makes a file with a name the current one.
    fn go_on_in(&mut self, file: CurrentFile) {
        self.next_number = self.next_number.max(file.number + 1);
        self.next_start = file.header.next_start();
        if let Some(full) = self.current.take() {
            full.room.leave();
            let name = FileName { number: full.number, is_named: true };
            let (header, bytes) = (full.header, full.room.filled());
            self.older.push_back(OlderFile { name, header, frames_end: self.end, bytes });
        }
        self.end = file.header.frames_start();
        self.current = Some(file);
        self.show();
    }

    /// Publishes which files have a name, for checks from outside the journal's thread.
    pub(crate) fn show(&self) {
        let older = self.older.iter().filter(|file| file.name.is_named);
        let older = older.map(|file| NamedFile::older(file.name.path(&self.dir), file));
        self.in_use.set(older.chain(self.current.as_ref().map(NamedFile::current)).collect());
    }
}

impl CurrentFile {
    /// Fills the file with zeros up to `offset` at least, or to its end, and syncs that.
    pub(crate) fn allocate_to(&self, offset: u64) -> Result<(), NoRoom> {
        self.room.fill_to(offset, &self.path)
    }

    /// Gives the file the size that it is filled to. It has no name yet.
    fn end_where_filled(&mut self) {
        self.room.leave();
        self.header.bytes = self.room.bytes();
    }
}
