//! The simulated file system as code under test sees it, and the switches with which a test injects faults.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use riverrun_types::TimestampMs;
use rustix::io::Errno;

use super::clock::SimClock;
use super::crash_states::CrashStates;
use super::disk::{Disk, Inode, PlantedBug};
use crate::{DirEntry, Directory, File, FileSystem, LockGuard, OpenMode, Stat, Volume, is_device_error};

/// Reads and writes past the page cache take multiples of this many bytes.
const DIRECT_BLOCK_BYTES: usize = 512;

/// A file system in memory that can lose power.
///
/// A *process kill* ([`Self::kill`]) keeps every byte that was written. A *power cut* ([`Self::crash`]) keeps synced
/// bytes and, of the rest, an arbitrary subset of 512-byte sectors and directory changes. After either, handles and
/// locks of the former life are dead.
#[derive(Clone, Debug)]
pub struct SimFileSystem {
    disk: Arc<Mutex<Disk>>,
    meanwhile: Arc<Mutex<Meanwhile>>,
    volumes: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
    hang: Arc<Hang>,
}

/// The path below which a device does not answer, and the calls that wait for it.
#[derive(Debug, Default)]
struct Hang {
    path: Mutex<Option<PathBuf>>,
    is_over: Condvar,
}

impl Hang {
    /// Waits while the device of `path` does not answer.
    fn wait(&self, path: &Path) {
        let mut hanging = self.path.lock();
        while hanging.as_ref().is_some_and(|below| path.starts_with(below)) {
            self.is_over.wait(&mut hanging);
        }
    }
}

type Action = Box<dyn FnOnce() + Send>;

/// Actions that run while the next call of a sort is waited for.
#[derive(Default)]
struct Meanwhile {
    read: Option<Action>,
    sync: Option<Action>,
    write_back: Option<Action>,
    cut: Option<Action>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_some = [&self.read, &self.sync, &self.write_back, &self.cut].map(Option::is_some);
        f.debug_tuple("Meanwhile").field(&is_some).finish()
    }
}

impl SimFileSystem {
    /// An empty disk without faults; `seed` decides what a power cut keeps.
    pub fn new(seed: u64) -> Self {
        Self::with_disk(Disk::new(seed))
    }

    pub(super) fn with_disk(disk: Disk) -> Self {
        let disk = Arc::new(Mutex::new(disk));
        Self { disk, meanwhile: Arc::default(), volumes: Arc::default(), hang: Arc::default() }
    }

    /// Takes the times of files from this clock.
    pub(super) fn follow(&self, clock: &Arc<SimClock>) {
        self.disk.lock().clock = clock.clone();
    }

    /// Writes, syncs and directory changes carried out so far.
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations
    }

    /// Syncs of files, directories and volumes carried out so far.
    pub fn syncs(&self) -> u64 {
        self.disk.lock().syncs
    }

    /// Bytes that callers asked the system to begin to write to the disk.
    pub fn write_back_bytes(&self) -> u64 {
        self.disk.lock().write_back_bytes
    }

    /// Stops the machine after `count` more operations that change something: every later call fails, and if the next
    /// one is a write, a prefix of it may get through. [`Self::kill`] or [`Self::crash`] starts it again.
    pub fn stop_after(&self, count: u64) {
        let mut disk = self.disk.lock();
        disk.stop_at = Some(disk.operations + count);
    }

    /// Lets `count` more syncs succeed and the next one fail. As on Linux the failed sync's pages count as clean
    /// afterwards: a repeated sync succeeds and writes nothing.
    pub fn fail_sync_after(&self, count: u64) {
        let mut disk = self.disk.lock();
        disk.fail_sync_at = Some(disk.syncs + count);
    }

    /// Runs `action` during the next sync of a file or the next durable write, on the calling thread: the caller of
    /// the sync must not hold anything that the action waits for.
    pub fn during_next_sync(&self, action: impl FnOnce() + Send + 'static) {
        self.meanwhile.lock().sync = Some(Box::new(action));
    }

    /// As [`Self::during_next_sync`], for the next read of a file.
    pub fn during_next_read(&self, action: impl FnOnce() + Send + 'static) {
        self.meanwhile.lock().read = Some(Box::new(action));
    }

    /// As [`Self::during_next_sync`], for the next call that sets the length of a file.
    pub fn during_next_cut(&self, action: impl FnOnce() + Send + 'static) {
        self.meanwhile.lock().cut = Some(Box::new(action));
    }

    /// As [`Self::during_next_sync`], for the next [`File::begin_write_back`].
    pub fn during_next_write_back(&self, action: impl FnOnce() + Send + 'static) {
        self.meanwhile.lock().write_back = Some(Box::new(action));
    }

    /// Lets `count` more writes to files succeed and the next one fail with an input/output error, after a part of it
    /// got through.
    pub fn fail_write_after(&self, count: u64) {
        let mut disk = self.disk.lock();
        disk.fail_write_at = Some(disk.writes + count);
    }

    /// Lets `count` more calls of [`File::begin_write_back`] succeed and the next one fail for lack of space, as a
    /// file system does that drops the pages then: they count as clean, and a sync succeeds and writes nothing.
    pub fn fail_write_back_after(&self, count: u64) {
        let mut disk = self.disk.lock();
        disk.fail_write_back_at = Some(disk.write_backs + count);
    }

    /// Makes the next cut of a file fail with an input/output error.
    pub fn fail_next_cut(&self) {
        self.disk.lock().cuts_to_fail = 1;
    }

    /// Calls so far that name a path, such as open, list, rename and remove.
    pub fn calls(&self) -> u64 {
        self.disk.lock().calls
    }

    /// Lets `count` more of these calls succeed and the next one fail with an error of this kind, without an effect.
    pub fn fail_call_after(&self, count: u64, kind: io::ErrorKind) {
        let mut disk = self.disk.lock();
        disk.fail_call_at = Some((disk.calls + count, kind));
    }

    /// Makes every opening and listing of a file or directory fail because the machine has no descriptor left;
    /// `false` ends it.
    pub fn exhaust_descriptors(&self, are_exhausted: bool) {
        self.disk.lock().are_descriptors_exhausted = are_exhausted;
    }

    /// Makes every opening below `path`, and every read of the files that are there now, fail with an input/output
    /// error, as of a device that is gone; `None` ends it.
    pub fn make_unreadable(&self, path: Option<&Path>) -> io::Result<()> {
        self.disk.lock().make_unreadable(path)
    }

    /// Makes every operation below `path` fail with an input/output error, as of a dead device; `None` ends it.
    pub fn kill_device(&self, path: Option<&Path>) -> io::Result<()> {
        self.disk.lock().kill_device(path)
    }

    /// Makes every operation at and below `path` wait, as for a device or a file server that does not answer; `None`
    /// ends it.
    pub fn hang_device(&self, path: Option<&Path>) {
        *self.hang.path.lock() = path.map(Path::to_path_buf);
        self.hang.is_over.notify_all();
    }

    /// Refuses, for lack of rights, every opening at `path` and below, and every use of the files that are there now;
    /// `None` ends it.
    pub fn forbid(&self, path: Option<&Path>) -> io::Result<()> {
        self.disk.lock().forbid(path)
    }

    /// Makes these bytes of the file at `path` unreadable, and no others of it; none, if the range is empty.
    ///
    /// - A read that begins there fails with an input/output error.
    /// - A read that reaches them ends before them.
    /// - Past the page cache a read fails as a whole, with the error of the block layer, as on Linux.
    ///
    /// A cut of the file before these bytes removes them.
    pub fn break_sectors(&self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        self.disk.lock().break_sectors(path, bytes)
    }

    /// Makes power cuts harsher: a 4096-byte block that is being written, and all bytes synced in it before, may hold
    /// anything afterwards. Without this a 512-byte sector is old or new.
    pub fn tear_blocks(&self, are_torn: bool) {
        self.disk.lock().tears_blocks = are_torn;
    }

    /// Refuses every opening of a file past the page cache as unsupported; `false` ends it.
    pub fn refuse_direct(&self, is_refused: bool) {
        self.disk.lock().is_direct_refused = is_refused;
    }

    /// Makes syncs of volumes succeed even after a lost write, as on an overlay or an old kernel; `false` ends it.
    /// The next sync of such a single file fails.
    pub fn silence_volumes(&self, are_silent: bool) {
        self.disk.lock().untold = are_silent.then(BTreeSet::new);
    }

    /// From now on, until the process dies, the code under test behaves as if it had this bug.
    pub fn plant(&self, bug: PlantedBug) {
        self.disk.lock().planted = Some(bug);
    }

    /// Sets the bytes by which files may still grow; `None` means without end. A write that does not fit is carried
    /// out as far as it does.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.disk.lock().space = bytes;
    }

    /// Stops all growth of files below `path`, as if that were a full volume of its own, whatever is removed there;
    /// `None` ends it.
    pub fn fill_device(&self, path: Option<&Path>) {
        self.disk.lock().full = path.map(Path::to_path_buf);
    }

    /// Makes everything at and below `path` a file system of its own: a sync of the one around it leaves the files
    /// there as they are, and nothing is renamed across.
    pub fn mount(&self, path: &Path) -> io::Result<()> {
        self.with(|disk| {
            disk.mounted = Some(disk.resolve(path)?);
            Ok(())
        })
    }

    /// Declares everything below `path` a volume of `bytes`. Its free space stays the same.
    pub fn set_total_bytes(&self, path: &Path, bytes: u64) {
        self.volumes.lock().insert(path.to_path_buf(), bytes);
    }

    /// Refuses every renaming for lack of space, as XFS does on a full volume; `false` ends it.
    pub fn refuse_renames(&self, are_refused: bool) {
        self.disk.lock().renames_left = are_refused.then_some(0);
    }

    /// As [`Self::refuse_renames`], after `count` more renamings.
    pub fn refuse_renames_after(&self, count: u64) {
        self.disk.lock().renames_left = Some(count);
    }

    /// The process is killed; the page cache stays.
    pub fn kill(&self) {
        self.disk.lock().restart();
    }

    /// The power fails.
    pub fn crash(&self) {
        self.disk.lock().crash();
    }

    /// The states in which a power cut at this moment may leave the disk, at most `bound` of them: each a disk of its
    /// own, while this one goes on.
    pub fn crash_states(&self, bound: usize) -> CrashStates {
        CrashStates::new(&self.disk.lock(), bound)
    }

    /// Runs `action` on the disk on behalf of the process that lives now.
    fn with<T>(&self, action: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock();
        let life = disk.life;
        disk.check_alive(life)?;
        disk.pass_call()?;
        action(&mut disk)
    }
}

impl FileSystem for SimFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.hang.wait(path);
        let create = matches!(mode, OpenMode::CreateNew | OpenMode::CreateOrOpen);
        self.with(|disk| {
            let inode = disk.open(path, create, mode == OpenMode::CreateNew)?;
            let writable = mode != OpenMode::Read;
            let (fs, path) = (self.clone(), path.to_path_buf());
            let file = SimFile { fs, path, inode, life: disk.life, writable, is_direct: false };
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.hang.wait(path);
        self.with(|disk| {
            let inode = disk.open(path, false, false)?;
            if disk.is_direct_refused {
                let message = format!("{}: the file system has no O_DIRECT", path.display());
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
            let (fs, path) = (self.clone(), path.to_path_buf());
            let file = SimFile { fs, path, inode, life: disk.life, writable: true, is_direct: true };
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn open_volume(&self, path: &Path) -> io::Result<Arc<dyn Volume>> {
        self.hang.wait(path);
        self.with(|disk| {
            disk.list(path)?;
            let directory = disk.resolve(path)?;
            let (fs, path) = (self.clone(), path.to_path_buf());
            let volume = SimVolume { fs, path, directory, life: disk.life };
            Ok(Arc::new(volume) as Arc<dyn Volume>)
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.hang.wait(path);
        self.with(|disk| disk.create_dir_all(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.hang.wait(path);
        self.with(|disk| {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            let parent = disk.open_dir(path.parent().unwrap_or(Path::new("")))?;
            disk.create_dir_in(parent, name)
        })
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.hang.wait(path);
        self.with(|disk| {
            disk.check_device_of(path)?;
            Ok(disk.stat(disk.resolve(path)?))
        })
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.hang.wait(path);
        let entries = self.with(|disk| disk.list(path))?;
        let entry = |(name, size): (_, Option<u64>)| DirEntry {
            name,
            is_dir: size.is_none(),
            len: size.unwrap_or(0),
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.hang.wait(from);
        self.with(|disk| disk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.hang.wait(path);
        self.with(|disk| disk.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.hang.wait(path);
        self.with(|disk| disk.remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.hang.wait(path);
        self.with(|disk| disk.remove_dir_all(path))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        self.hang.wait(path);
        self.with(|disk| {
            let inode = disk.open_dir(path)?;
            Ok(Box::new(SimDirectory { disk: self.disk.clone(), inode, life: disk.life })
                as Box<dyn Directory>)
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.hang.wait(path);
        self.with(|disk| match disk.resolve(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(false)
            }
            result => result.map(|_| true),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.hang.wait(path);
        self.with(|disk| {
            let inode = disk.open(path, true, false)?;
            if !disk.locked.insert(inode) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(Box::new(SimLock { disk: self.disk.clone(), inode, life: disk.life }) as Box<dyn LockGuard>)
        })
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.hang.wait(path);
        self.with(|disk| Ok(disk.space_of(path).unwrap_or(u64::MAX)))
    }

    // A simulation limits the free space: the disk itself is as large as possible, unless the test has set a size.
    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let volumes = self.volumes.lock();
        let bytes = volumes.iter().find(|(volume, _)| path.starts_with(volume)).map(|(_, bytes)| *bytes);
        self.with(|_| Ok(bytes.unwrap_or(u64::MAX)))
    }
}

/// Holds a lock file, unless the process that took it has died.
#[derive(Debug)]
struct SimLock {
    disk: Arc<Mutex<Disk>>,
    inode: Inode,
    life: u64,
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.life == self.life {
            disk.locked.remove(&self.inode);
        }
    }
}

#[derive(Debug)]
struct SimVolume {
    fs: SimFileSystem,
    path: PathBuf,
    directory: Inode,
    life: u64,
}

impl Volume for SimVolume {
    fn sync(&self) -> io::Result<()> {
        self.fs.hang.wait(&self.path);
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        disk.sync_volume(self.directory)
    }

    fn tells_of_lost_writes(&self) -> bool {
        self.fs.disk.lock().untold.is_none()
    }

    fn holds(&self, path: &Path) -> io::Result<bool> {
        let disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        let (inode, mounted) = (disk.resolve(path)?, disk.mounted());
        Ok(mounted.contains(&inode) == mounted.contains(&self.directory))
    }
}

#[derive(Debug)]
struct SimDirectory {
    disk: Arc<Mutex<Disk>>,
    inode: Inode,
    life: u64,
}

impl Directory for SimDirectory {
    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.life)?;
        disk.sync_dir(self.inode)
    }

    fn stat(&self) -> io::Result<Stat> {
        let disk = self.disk.lock();
        disk.check_alive(self.life)?;
        Ok(disk.stat(self.inode))
    }

    fn create_dir(&self, name: &OsStr) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.check_alive(self.life)?;
        disk.create_dir_in(self.inode, name)
    }
}

/// An open file of one life of the process.
#[derive(Debug)]
struct SimFile {
    fs: SimFileSystem,
    /// The path by which it was opened.
    path: PathBuf,
    inode: Inode,
    life: u64,
    writable: bool,
    is_direct: bool,
}

impl SimFile {
    /// Refuses the calls that a file opened past the page cache refuses.
    fn check_aligned(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let is_aligned = position.is_multiple_of(DIRECT_BLOCK_BYTES as u64)
            && bytes.len().is_multiple_of(DIRECT_BLOCK_BYTES)
            && bytes.as_ptr().addr().is_multiple_of(DIRECT_BLOCK_BYTES);
        if self.is_direct && !is_aligned { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
    }

    /// Runs the test's action for a read.
    fn wait_for_read(&self) {
        self.fs.hang.wait(&self.path);
        let meanwhile = self.fs.meanwhile.lock().read.take();
        if let Some(action) = meanwhile {
            action();
        }
    }

    /// Runs the test's action for a sync.
    fn wait_for_sync(&self) {
        self.fs.hang.wait(&self.path);
        let meanwhile = self.fs.meanwhile.lock().sync.take();
        if let Some(action) = meanwhile {
            action();
        }
    }

    fn write(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.check_aligned(bytes, position)?;
        self.fs.hang.wait(&self.path);
        let mut disk = self.fs.disk.lock();
        // The disk itself notices the stop, so that the write at which it comes can leave a prefix.
        if disk.life != self.life {
            disk.check_alive(self.life)?;
        }
        if !self.writable {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        disk.write(self.inode, bytes, position)
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.check_aligned(buffer, position)?;
        self.wait_for_read();
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        let len = match disk.readable_len(self.inode, position, buffer.len()) {
            Ok(len) if self.is_direct && len < buffer.len() => return Err(Errno::NODATA.into()),
            Err(error) if self.is_direct && is_device_error(&error) => return Err(Errno::NODATA.into()),
            len => len?,
        };
        let buffer = &mut buffer[..len];
        let position = usize::try_from(position).map_err(io::Error::other)?;
        let image = disk.file_mut(self.inode)?;
        if self.is_direct {
            let bytes = image.read_direct(position, buffer.len());
            buffer[..bytes.len()].copy_from_slice(&bytes);
            return Ok(bytes.len());
        }
        let bytes = image.read(position, buffer.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let read = self.read_at(buffer, position)?;
        if read == buffer.len() {
            return Ok(());
        }
        // The next byte is unreadable, or there is none.
        self.fs.disk.lock().readable_len(self.inode, position + read as u64, 1)?;
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.write(bytes, position)
    }

    fn write_vectored_all_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.write(&bytes, position)
    }

    fn write_durable_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.write(bytes, position)?;
        self.wait_for_sync();
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        disk.sync_range(self.inode, position, bytes.len())
    }

    fn stat(&self) -> io::Result<Stat> {
        let disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        Ok(disk.stat(self.inode))
    }

    fn len(&self) -> io::Result<u64> {
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        Ok(disk.file_mut(self.inode)?.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fs.hang.wait(&self.path);
        let meanwhile = self.fs.meanwhile.lock().cut.take();
        if let Some(action) = meanwhile {
            action();
        }
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        if !self.writable {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        disk.set_len(self.inode, len)
    }

    fn set_modified(&self, time: TimestampMs) -> io::Result<()> {
        self.fs.hang.wait(&self.path);
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        disk.set_modified(self.inode, time)
    }

    fn begin_write_back(&self, position: u64, len: u64) -> io::Result<()> {
        self.fs.hang.wait(&self.path);
        let meanwhile = self.fs.meanwhile.lock().write_back.take();
        if let Some(action) = meanwhile {
            action();
        }
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        disk.begin_write_back(self.inode, position, len)
    }

    fn finish_write_back(&self, _position: u64, _len: u64) -> io::Result<()> {
        self.fs.hang.wait(&self.path);
        self.fs.disk.lock().check_alive(self.life)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.wait_for_sync();
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        disk.sync_file(self.inode)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn advise_dont_need(&self, position: u64, len: u64) -> io::Result<()> {
        let mut disk = self.fs.disk.lock();
        disk.check_alive(self.life)?;
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let end = start.saturating_add(usize::try_from(len).map_err(io::Error::other)?);
        disk.file_mut(self.inode)?.drop_clean(start..end);
        Ok(())
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
