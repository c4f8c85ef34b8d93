//! Segment files: their names, their making, and the set that is mapped in this process.
//!
//! Owns `<base offset, 20 digits>.log`. Guarantees that a segment has blocks for all its bytes before it is mapped,
//! that it had all its bytes when it was mapped, and that one process maps a segment for writing once for all its
//! users. A view maps it for reading, unless this process writes it anyway, and keeps its file from being used again.
//! A file of another size is refused. Never makes a file shorter.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use riverrun_types::Offset;

use crate::error::{At as _, Damage, QueueError};
use crate::layout::{MAKE_BYTE, PAGE_BYTES, VIEW_BYTE};
use crate::mapping::{Access, Mapping, POPULATE_BYTES};
use crate::opening;
use crate::spare::SPARE_NAMES;
use crate::sys::{self, LockFile, LockKind};

/// Names of a segment that an append makes, and of one that the background makes.
const NEW_NAME: &str = "segment.new";
const PREPARING_NAME: &str = "segment.preparing";
/// Names of segments that are ready for the next rolls. One is made ahead; more are reused files.
pub(crate) const PREPARED_NAMES: [&str; 3] =
    ["segment.prepared-1", "segment.prepared-2", "segment.prepared-3"];
const SUFFIX: &str = ".log";
/// Bytes allocated or cleared in one step in the background, which also has other work.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// How long a reader waits for the thread that removes a segment or reuses its file. That takes some microseconds,
/// unless the thread is stopped or does not get a processor.
const PIN_PATIENCE: Duration = Duration::from_secs(1);
const PIN_PAUSE: Duration = Duration::from_millis(1);
/// How long an append waits for a step on the file that it needs, before it makes another file.
const STEP_PATIENCE: Duration = Duration::from_millis(10);
const STEP_PAUSE: Duration = Duration::from_micros(50);

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: Offset,
    /// How many segments the queue had before this one.
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// Device and inode of its file, which identify it.
    file_id: (u64, u64),
    pub(crate) map: Mapping,
    /// Leading bytes that were made present before the segment was used.
    pub(crate) present: u64,
}

/// A segment that is read. Its file is not removed meanwhile, unless retention ignores readers, and never reused for
/// another segment.
#[derive(Clone, Debug)]
pub(crate) struct ReadSegment {
    segment: Arc<Segment>,
    /// Holds the shared lock that retention looks for; in a view, that of [`VIEW_BYTE`].
    _pin: Arc<LockFile>,
}

impl ReadSegment {
    /// The segment, if this is its last user in this process: dropping it then unmaps it.
    pub(crate) fn into_last(self) -> Option<Segment> {
        Arc::into_inner(self.segment)
    }
}

impl Deref for ReadSegment {
    type Target = Segment;

    #[inline]
    fn deref(&self) -> &Segment {
        &self.segment
    }
}

impl Segment {
    /// Position of the segment's first byte.
    pub(crate) fn start(&self) -> u64 {
        self.number * self.map.len() as u64
    }

    /// Refuses a mapping that has lost a part of its file.
    #[inline]
    pub(crate) fn check_whole(&self, within: usize) -> Result<(), QueueError> {
        if self.map.is_torn() { Err(self.damaged(within, Damage::Unreadable)) } else { Ok(()) }
    }

    /// True if the segment's name still leads to its file.
    pub(crate) fn is_in_place(&self) -> Result<bool, QueueError> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            there => there.at("look at", &self.path).map(|there| (there.dev(), there.ino()) == self.file_id),
        }
    }

    pub(crate) fn damaged(&self, within: usize, what: impl Into<Damage>) -> QueueError {
        QueueError::damaged(&self.path, within as u64, what)
    }
}

/// The file name of the segment that begins with `base`.
pub(crate) fn segment_name(base: Offset) -> String {
    format!("{base:020}{SUFFIX}", base = base.0)
}

/// The base offset in a file name; `None` if it is not a segment's name.
fn base_of(name: &str) -> Option<Offset> {
    let digits = name.strip_suffix(SUFFIX)?;
    let canonical = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { digits.parse().ok().map(Offset) } else { None }
}

/// Base offsets of the segments in `dir`, rising.
pub(crate) fn list(dir: &Path) -> Result<Vec<Offset>, QueueError> {
    let mut bases = Vec::new();
    for entry in std::fs::read_dir(dir).at("list", dir)? {
        let name = entry.at("list", dir)?.file_name();
        bases.extend(name.to_str().and_then(base_of));
    }
    bases.sort_unstable();
    Ok(bases)
}

/// Opens a segment's file, and checks its size; `None` if there is no such file.
pub(crate) fn open_file(path: &Path, segment_bytes: u64, access: Access) -> Result<Option<File>, QueueError> {
    let file = match access.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.at("open", path)?,
    };
    let found_bytes = file.metadata().at("look at", path)?.len();
    if found_bytes != segment_bytes {
        let damage = Damage::Size { found_bytes, expected_bytes: segment_bytes };
        return Err(QueueError::damaged(path, found_bytes.min(segment_bytes), damage));
    }
    Ok(Some(file))
}

/// Makes a file of zeros with blocks for all of them, under a name that is not a segment's yet. Nothing of it is
/// durable.
pub(crate) fn make_file(path: &Path, segment_bytes: u64) -> Result<File, QueueError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = opening::open_file(&mut options, path).at("create", path)?;
    allocate(&file, path, 0..segment_bytes)?;
    Ok(file)
}

/// Extends such a file by up to `portion` bytes. Returns whether it is complete. Calls `between` after every step,
/// which may take long. Gives up if another process is in a step of the same file for longer than `patience`.
///
/// On tmpfs, when a process is killed or stopped during a step, the kernel takes back the whole range of that step,
/// and with it the blocks that another process has allocated there. Each step there is therefore made under a lock of
/// the file, after a check that the file still has its name. A process that takes the name away and then the lock has
/// a file in which no other allocates. On a disk nothing is taken back and a step may take long, so there the lock is
/// not used.
fn continue_file(
    path: &Path,
    segment_bytes: u64,
    portion: u64,
    patience: Duration,
    mut between: impl FnMut(),
) -> Result<bool, QueueError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = opening::open_file(&mut options, path).at("create", path)?;
    // The existing bytes of a file of this name are allocated: by this process, or by one that has ended since.
    let mut begin = file.metadata().at("look at", path)?.len();
    if begin > segment_bytes {
        std::fs::remove_file(path).at("remove", path)?;
        return Ok(false);
    }
    let until = begin.saturating_add(portion).min(segment_bytes);
    let locks = sys::is_in_memory(&file);
    while begin < until {
        let end = (begin + STEP_BYTES).min(until);
        if locks && !lock_step(&file, path, patience)? || !is_named(&file, path)? {
            // An append could not wait, and completes this file: another one has to be made.
            return Ok(false);
        }
        allocate(&file, path, begin..end)?;
        begin = end;
        if locks {
            sys::unlock_byte(&file, MAKE_BYTE).at("unlock", path)?;
        }
        between();
    }
    Ok(begin == segment_bytes)
}

/// Takes the lock of a step; false if another process holds it for longer than `patience`.
fn lock_step(file: &File, path: &Path, patience: Duration) -> Result<bool, QueueError> {
    let begin = Instant::now();
    while !sys::try_lock_byte(file, MAKE_BYTE, LockKind::Exclusive).at("lock", path)? {
        if begin.elapsed() >= patience {
            return Ok(false);
        }
        std::thread::sleep(STEP_PAUSE);
    }
    Ok(true)
}

fn allocate(file: &File, path: &Path, range: std::ops::Range<u64>) -> Result<(), QueueError> {
    sys::allocate(file, range)
        .inspect_err(|_| {
            // A partly allocated file would take space that others need.
            let _ = std::fs::remove_file(path);
        })
        .at("allocate", path)
}

/// Whether `path` names this file, and not another one or none.
pub(crate) fn is_named(file: &File, path: &Path) -> Result<bool, QueueError> {
    let ours = file.metadata().at("look at", path)?;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        there => {
            there.at("look at", path).map(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        }
    }
}

/// The live pin of the segment that begins with `base`, if there is one. Forgets dead pins.
fn live_pin(pins: &mut Vec<(Offset, Weak<LockFile>)>, base: Offset) -> Option<Arc<LockFile>> {
    pins.retain(|(_, pin)| pin.strong_count() > 0);
    pins.iter().find(|(pinned, _)| *pinned == base).and_then(|(_, pin)| pin.upgrade())
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> Result<(), QueueError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.at("remove", path),
    }
}

/// The segments of one queue that are mapped in this process.
///
/// Invariants: at most one live segment for each base offset and access, and one live pin. A segment that a tailer
/// leaves ([`ReadSegment::into_last`]) is removed from the list before it is unmapped. `prepared` has mappings of
/// files that are not segments yet, at most one for each.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    segment_bytes: u64,
    /// The purpose of opening. For reading, a segment is locked at [`VIEW_BYTE`] of its file, which does not keep
    /// retention from removing it; otherwise the file is locked. Both keep a descriptor of each segment that is read.
    access: Access,
    mapped: Mutex<Vec<Mapped>>,
    pins: Mutex<Vec<(Offset, Weak<LockFile>)>>,
    prepared: Mutex<Vec<Prepared>>,
}

/// A segment that is mapped, as long as it has users. A search for another segment takes no reference to this one,
/// not even briefly: the last user must be able to unmap it.
#[derive(Debug)]
struct Mapped {
    base: Offset,
    access: Access,
    segment: Weak<Segment>,
}

/// A segment without a name yet, mapped and made present ahead of its use.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) inode: u64,
    pub(crate) map: Mapping,
    /// Leading bytes that are present.
    pub(crate) present: u64,
    /// Leading bytes that are zeros, for a file that is to be reused. Valid while only the process that clears the
    /// file can use it.
    pub(crate) cleared: u64,
}

impl Segments {
    pub(crate) fn new(dir: &Path, segment_bytes: u64, access: Access) -> Self {
        Self {
            dir: dir.to_owned(),
            segment_bytes,
            access,
            mapped: Mutex::default(),
            pins: Mutex::default(),
            prepared: Mutex::default(),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    pub(crate) fn list(&self) -> Result<Vec<Offset>, QueueError> {
        list(&self.dir)
    }

    pub(crate) fn path(&self, base: Offset) -> PathBuf {
        self.dir.join(segment_name(base))
    }

    /// The file of the segment that begins with `base`; `None` if there is no such file.
    pub(crate) fn open(&self, base: Offset, access: Access) -> Result<Option<File>, QueueError> {
        open_file(&self.path(base), self.segment_bytes, access)
    }

    /// The segment that begins with `base`, mapped for writing; `None` if there is no such file. Retention may remove
    /// its name at any time.
    pub(crate) fn get(&self, base: Offset, number: u64) -> Result<Option<Arc<Segment>>, QueueError> {
        self.map(base, number, Access::Write)
    }

    /// The segment that begins with `base`, for reading; `None` if there is no such file.
    pub(crate) fn get_to_read(&self, base: Offset, number: u64) -> Result<Option<ReadSegment>, QueueError> {
        let Some(pin) = self.pin(base)? else { return Ok(None) };
        let segment = self.map(base, number, Access::Read)?;
        Ok(segment.map(|segment| ReadSegment { segment, _pin: pin }))
    }

    fn map(&self, base: Offset, number: u64, access: Access) -> Result<Option<Arc<Segment>>, QueueError> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|mapped| mapped.segment.strong_count() > 0);
        let serves =
            |mapped: &&Mapped| mapped.base == base && [Access::Write, access].contains(&mapped.access);
        if let Some(segment) = mapped.iter().filter(serves).find_map(|mapped| mapped.segment.upgrade()) {
            return Ok(Some(segment));
        }
        let path = self.path(base);
        let Some(file) = self.open(base, access)? else { return Ok(None) };
        let found = file.metadata().at("look at", &path)?;
        let prepared = match access {
            Access::Read => None,
            Access::Write => self.take_prepared(found.ino()),
        };
        let (map, present) = match prepared {
            Some(prepared) => (prepared.map, prepared.present),
            None => (Mapping::new(&file, self.segment_bytes as usize, access).at("map", &path)?, 0),
        };
        let file_id = (found.dev(), found.ino());
        let segment = Arc::new(Segment { base, number, path, file_id, map, present });
        mapped.push(Mapped { base, access, segment: Arc::downgrade(&segment) });
        Ok(Some(segment))
    }

    /// Unmaps the pages of a full segment from `begin` on from this process's writable mapping, if the kernel will
    /// write them to disk. Otherwise, before each page is written, every core that runs this process would get an
    /// interrupt that makes the page read-only. Pages before `begin` are written already, and a read-only mapping has
    /// no page to write.
    pub(crate) fn forget_pages(&self, base: Offset, begin: u64) {
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let written = mapped.iter().find(|mapped| mapped.base == base && mapped.access == Access::Write);
        let segment = written.and_then(|mapped| mapped.segment.upgrade());
        drop(mapped);
        let Some(segment) = segment else { return };
        let (first, bytes) = (begin as usize / PAGE_BYTES * PAGE_BYTES, segment.map.len());
        for begin in (first..bytes).step_by(POPULATE_BYTES) {
            segment.map.forget_pages(begin, POPULATE_BYTES.min(bytes - begin));
        }
    }

    /// Keeps retention from removing the segment that begins with `base`, or in a view the file from being reused;
    /// `None` if the segment has been removed.
    fn pin(&self, base: Offset) -> Result<Option<Arc<LockFile>>, QueueError> {
        if let Some(pin) = live_pin(&mut self.pins(), base) {
            return Ok(Some(pin));
        }
        let path = self.path(base);
        let Some(file) = self.open(base, Access::Read)?.map(LockFile::from) else { return Ok(None) };
        let begin = Instant::now();
        while !self.try_share(&file).at("lock", &path)? {
            if begin.elapsed() >= PIN_PATIENCE {
                return Err(QueueError::Busy);
            }
            std::thread::sleep(PIN_PAUSE);
        }
        // Retention checks for these locks; before this one was taken, it may have removed the file.
        if !is_named(&file, &path)? {
            return Ok(None);
        }
        let mut pins = self.pins();
        // Another thread may have pinned the same segment meanwhile.
        if let Some(pin) = live_pin(&mut pins, base) {
            return Ok(Some(pin));
        }
        let pin = Arc::new(file);
        pins.push((base, Arc::downgrade(&pin)));
        Ok(Some(pin))
    }

    fn pins(&self) -> MutexGuard<'_, Vec<(Offset, Weak<LockFile>)>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of a segment's reader, unless the file is being taken away.
    fn try_share(&self, file: &File) -> io::Result<bool> {
        match self.access {
            Access::Write => match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => Ok(false),
                locked => locked.map(|()| true).map_err(io::Error::from),
            },
            Access::Read => match sys::try_lock_byte(file, VIEW_BYTE, LockKind::Shared) {
                // Files are reused in memory only. Elsewhere, as on a read-only mount, a missing lock does no harm.
                Err(_) if !sys::is_in_memory(file) => Ok(true),
                tried => tried,
            },
        }
    }

    pub(crate) fn prepared(&self) -> MutexGuard<'_, Vec<Prepared>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The prepared segment for this file, whichever process named the file.
    pub(crate) fn take_prepared(&self, inode: u64) -> Option<Prepared> {
        self.prepared().extract_if(.., |prepared| prepared.inode == inode).next()
    }

    /// Continues to make a segment ready for the next roll, unless one is ready, by up to `portion` bytes of its
    /// file; of a complete file, makes the first `present_bytes` present. Returns whether it is complete. Requires
    /// the lock of [`PREPARE_BYTE`](crate::layout::PREPARE_BYTE). Calls `between` after every step.
    pub(crate) fn prepare(
        &self,
        portion: u64,
        present_bytes: u64,
        between: impl FnMut(),
    ) -> Result<bool, QueueError> {
        let mut names = PREPARED_NAMES.map(|name| self.dir.join(name));
        // The file that an append takes first, or the one to make.
        names.sort_by_key(|name| !name.exists());
        let ([path, ..], new) = (names, self.dir.join(PREPARING_NAME));
        if path.exists() {
            // A file begun before another one could be reused would keep its space for nothing.
            remove_file(&new)?;
        } else {
            if !continue_file(&new, self.segment_bytes, portion, Duration::ZERO, between)? {
                return Ok(false);
            }
            match std::fs::rename(&new, &path) {
                // An append could not wait, and has completed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                renamed => renamed.at("rename", &new)?,
            }
        }
        // An append may take the file away at any time: then there is nothing to prepare until the next round.
        let Some(file) = open_file(&path, self.segment_bytes, Access::Write)? else { return Ok(false) };
        let inode = file.metadata().at("look at", &path)?.ino();
        if self.prepared().iter().all(|prepared| prepared.inode != inode) {
            let map = Mapping::new(&file, self.segment_bytes as usize, Access::Write).at("map", &path)?;
            self.prepared().push(Prepared { inode, map, present: 0, cleared: 0 });
        }
        while self.make_prepared_present(inode, present_bytes) {}
        Ok(true)
    }

    /// Makes a little more of the prepared segment present; false if nothing is left to do. An append that takes the
    /// segment away waits no longer than for that.
    fn make_prepared_present(&self, inode: u64, present_bytes: u64) -> bool {
        let mut all = self.prepared();
        let lacks = |prepared: &&mut Prepared| prepared.inode == inode && prepared.present < present_bytes;
        let Some(prepared) = all.iter_mut().find(lacks) else {
            return false;
        };
        let end = present_bytes.min(prepared.present + POPULATE_BYTES as u64);
        prepared.map.populate(prepared.present as usize, (end - prepared.present) as usize);
        prepared.present = end;
        true
    }

    /// Removes files of segments that were never used. Requires sole access.
    pub(crate) fn remove_unused(&self) -> Result<(), QueueError> {
        for name in [NEW_NAME, PREPARING_NAME].into_iter().chain(PREPARED_NAMES).chain(SPARE_NAMES) {
            remove_file(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// Removes the file of the segment that begins with `base`, unless another process was quicker; false if the file
    /// is open for reading and `ignore_readers` is not set.
    pub(crate) fn remove(&self, base: Offset, ignore_readers: bool) -> Result<bool, QueueError> {
        let path = self.path(base);
        let file = match opening::open_to_read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            opened => opened.at("open", &path)?,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if !ignore_readers => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error).at("lock", &path),
            _ => {}
        }
        remove_file(&path).map(|()| true)
    }

    /// As [`get`](Self::get), for a segment that must be there.
    pub(crate) fn expect(&self, base: Offset, number: u64) -> Result<Arc<Segment>, QueueError> {
        self.get(base, number)?.ok_or_else(|| self.missing(base))
    }

    pub(crate) fn missing(&self, base: Offset) -> QueueError {
        QueueError::damaged(&self.path(base), 0, Damage::Missing)
    }

    /// The segment that begins with `base`, made if it does not exist. Requires the writer lock or sole access.
    pub(crate) fn get_or_make(&self, base: Offset, number: u64) -> Result<Arc<Segment>, QueueError> {
        if let Some(segment) = self.get(base, number)? {
            return Ok(segment);
        }
        let path = self.path(base);
        for name in PREPARED_NAMES {
            let prepared = self.dir.join(name);
            match std::fs::rename(&prepared, &path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                renamed => {
                    renamed.at("rename", &prepared)?;
                    return self.expect(base, number);
                }
            }
        }
        let (new, begun) = (self.dir.join(NEW_NAME), self.dir.join(PREPARING_NAME));
        // A process that works on the file ends its step, and then finds the file renamed.
        let is_begun = std::fs::rename(&begun, &new).is_ok();
        if !is_begun || !continue_file(&new, self.segment_bytes, u64::MAX, STEP_PATIENCE, || ())? {
            // Another process may still work on the file: it keeps the unlinked one.
            remove_file(&new)?;
            make_file(&new, self.segment_bytes)?;
        }
        std::fs::rename(&new, &path).at("rename", &new)?;
        self.expect(base, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_they_are_written_are_segments() {
        assert_eq!(base_of(&segment_name(Offset(42))), Some(Offset(42)));
        for other in
            ["42.log", "00000000000000000042.index", "-0000000000000000042.log", "99999999999999999999.log"]
        {
            assert_eq!(base_of(other), None, "{other}");
        }
    }

    #[test]
    fn reader_waits_for_a_removal_within_its_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        for access in [Access::Write, Access::Read] {
            let segments = Segments::new(dir.path(), 4096, access);
            let path = segments.path(Offset(7));
            make_file(&path, 4096).expect("room for a page");
            let hold = || {
                let file = Access::Write.open(&path).expect("there");
                match access {
                    Access::Write => file.try_lock().expect("unlocked"),
                    Access::Read => {
                        assert!(
                            sys::try_lock_byte(&file, VIEW_BYTE, LockKind::Exclusive)
                                .expect("a kernel of now")
                        );
                    }
                }
                file
            };
            let stopped = hold();
            assert!(matches!(segments.get_to_read(Offset(7), 0), Err(QueueError::Busy)));
            drop(stopped);
            let busy = hold();
            std::thread::scope(|scope| {
                let reading = scope.spawn(|| segments.get_to_read(Offset(7), 0));
                std::thread::sleep(2 * PIN_PAUSE);
                drop(busy);
                assert!(reading.join().expect("no panic").is_ok_and(|segment| segment.is_some()));
            });
        }
    }

    #[test]
    fn view_without_locks_reads_only_files_never_reused() {
        for dir in dirs() {
            let views = Segments::new(dir.path(), 4096, Access::Read);
            let path = views.path(Offset(7));
            make_file(&path, 4096).expect("room for a page");
            // A file that is open for writing only cannot be locked for sharing.
            let file = OpenOptions::new().write(true).open(&path).expect("there");
            assert_eq!(views.try_share(&file).is_ok(), !sys::is_in_memory(&file));
        }
    }

    #[test]
    fn any_process_continues_the_next_segment_in_portions() {
        const BYTES: u64 = 3 * 4096;
        let dir = tempfile::tempdir().expect("a directory");
        let preparing = dir.path().join(PREPARING_NAME);
        for (portion, made_bytes) in [(4096, Some(4096)), (0, Some(4096)), (4096, Some(8192)), (9999, None)] {
            let segments = Segments::new(dir.path(), BYTES, Access::Write);
            let whole = segments.prepare(portion, 4096, || ()).expect("room");
            let found = std::fs::metadata(&preparing).map(|file| file.len()).ok();
            assert_eq!((whole, found), (made_bytes.is_none(), made_bytes));
        }
        let segments = Segments::new(dir.path(), BYTES, Access::Write);
        assert_eq!(segments.get_or_make(Offset(5), 1).expect("made").map.len() as u64, BYTES);
        assert!(!dir.path().join(PREPARED_NAMES[0]).exists(), "it is the segment now");
    }

    #[test]
    fn append_that_cannot_wait_finishes_the_begun_file() {
        const BYTES: u64 = 3 * 4096;
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), BYTES, Access::Write);
        let preparing = dir.path().join(PREPARING_NAME);
        assert!(!segments.prepare(4096, 0, || ()).expect("room"));
        let begun = std::fs::metadata(&preparing).expect("begun").ino();
        let mut made = None;
        let whole = segments.prepare(BYTES, 0, || made = segments.get_or_make(Offset(5), 1).ok());
        assert!(!whole.expect("no error"), "its maker begins another");
        assert_eq!(made.expect("made").map.len() as u64, BYTES);
        let file = std::fs::metadata(segments.path(Offset(5))).expect("made");
        assert_eq!((file.ino(), file.len()), (begun, BYTES));
        std::fs::write(&preparing, [0; BYTES as usize + 1]).expect("room");
        assert_eq!(segments.get_or_make(Offset(6), 2).expect("made anew").map.len() as u64, BYTES);
    }

    /// Directories on a disk and in memory, as far as both exist.
    fn dirs() -> impl Iterator<Item = tempfile::TempDir> {
        [tempfile::tempdir().ok(), tempfile::tempdir_in("/dev/shm").ok()].into_iter().flatten()
    }

    #[test]
    fn append_leaves_a_begun_file_to_its_stopped_maker_in_memory() {
        const BYTES: u64 = 3 * 4096;
        for dir in dirs() {
            let segments = Segments::new(dir.path(), BYTES, Access::Write);
            let preparing = dir.path().join(PREPARING_NAME);
            assert!(!segments.prepare(4096, 0, || ()).expect("room"));
            let stopped = Access::Write.open(&preparing).expect("begun");
            let leaves = sys::is_in_memory(&stopped);
            assert!(sys::try_lock_byte(&stopped, MAKE_BYTE, LockKind::Exclusive).expect("a kernel of now"));
            assert!(!segments.prepare(4096, 0, || ()).expect("no error"), "and so does the background");
            assert_eq!(segments.get_or_make(Offset(5), 1).expect("made").map.len() as u64, BYTES);
            assert_eq!(is_named(&stopped, &segments.path(Offset(5))).expect("looked at"), !leaves);
            let len = stopped.metadata().expect("open").len();
            assert_eq!(len, if leaves { 4096 } else { BYTES }, "in memory it is as it was");
            assert!(!dir.path().join(NEW_NAME).exists());
        }
    }

    #[test]
    fn making_a_segment_releases_it_after_each_step() {
        const BYTES: u64 = 3 * STEP_BYTES;
        for (dir, portion) in dirs().zip([BYTES; 2]).chain(dirs().zip([STEP_BYTES; 2])) {
            let segments = Segments::new(dir.path(), BYTES, Access::Write);
            let begun = || std::fs::metadata(dir.path().join(PREPARING_NAME)).map(|file| file.ino()).ok();
            let (mut inode, mut steps) = (None, 0);
            let whole = segments.prepare(portion, 0, || {
                (inode, steps) = (inode.or(begun()), steps + 1);
                segments.get_or_make(Offset(5), 1).expect("made");
            });
            assert_eq!((whole.expect("no error"), steps), (false, 1));
            let made = std::fs::metadata(segments.path(Offset(5))).expect("made");
            assert_eq!((Some(made.ino()), made.len()), (inode, BYTES), "an append goes on with it");
        }
    }

    #[test]
    fn search_for_a_segment_references_no_other() {
        const BYTES: u64 = 16 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), BYTES, Access::Write);
        for base in [7, 8] {
            make_file(&segments.path(Offset(base)), BYTES).expect("room");
        }
        let written = segments.expect(Offset(7), 0).expect("there");
        std::thread::scope(|scope| {
            // The other thread ends also if this one fails, because the sender is dropped.
            let (alive, over) = std::sync::mpsc::sync_channel::<()>(0);
            let segments = &segments;
            scope.spawn(move || {
                while over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    segments.forget_pages(Offset(7), 0);
                    segments.expect(Offset(7), 0).expect("there");
                }
            });
            let lasts = (0..2000).filter(|_| {
                let read = segments.get_to_read(Offset(8), 1).expect("unlocked").expect("there");
                read.into_last().is_some()
            });
            assert_eq!(lasts.count(), 2000);
            drop(alive);
        });
        drop(written);
    }

    #[test]
    fn begun_file_is_removed_when_a_reused_file_comes_next() {
        const BYTES: u64 = 3 * 4096;
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), BYTES, Access::Write);
        let preparing = dir.path().join(PREPARING_NAME);
        assert!(!segments.prepare(4096, 0, || ()).expect("room") && preparing.exists());
        make_file(&dir.path().join(PREPARED_NAMES[0]), BYTES).expect("room");
        for _ in 0..2 {
            assert!(segments.prepare(4096, 0, || ()).expect("ready"));
            assert!(!preparing.exists());
        }
    }

    #[test]
    fn waiting_for_a_segment_blocks_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), 4096, Access::Write);
        for base in [7, 8] {
            make_file(&segments.path(Offset(base)), 4096).expect("room for a page");
        }
        let stopped = File::open(segments.path(Offset(7))).expect("there");
        stopped.try_lock().expect("unlocked");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| segments.get_to_read(Offset(7), 0));
            std::thread::sleep(20 * PIN_PAUSE);
            assert!(segments.get_to_read(Offset(8), 1).is_ok_and(|segment| segment.is_some()));
            drop(stopped);
            assert!(waiting.join().expect("no panic").is_ok_and(|segment| segment.is_some()));
        });
    }

    #[test]
    fn a_segment_that_another_process_has_removed_is_gone_as_well() {
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), 4096, Access::Write);
        make_file(&segments.path(Offset(7)), 4096).expect("room for a page");
        for _ in 0..2 {
            assert!(segments.remove(Offset(7), false).is_ok_and(|gone| gone));
        }
    }
}
