//! Files and directories as the server sees them.
//!
//! Owns the traits, two operations built from them that all crates need ([`atomic_replace`] and [`read_whole`]), and
//! the classes of disk errors ([`ChangeError`], [`is_shortage`], [`is_device_error`]). Positions are explicit
//! everywhere: there is no shared file cursor, so a handle may be used by many threads at once.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_types::TimestampMs;
use rustix::io::Errno;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    ReadWrite,
    /// For reading and writing; it must not exist yet.
    CreateNew,
    /// For reading and writing; made empty if it does not exist, and otherwise left as it is.
    CreateOrOpen,
}

/// One entry of a directory. A link stands for its target; a link without one, for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The entry's name, without the directory.
    pub name: OsString,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Size in bytes of a file; 0 for a directory.
    pub len: u64,
}

/// Identity of a file or directory, independent of its name: two with the same identity are one. An identity is used
/// again only once no name and no handle leads to its holder any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The file system that it belongs to.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Facts that a file system tells about a file or a directory without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its identity.
    pub identity: Identity,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Number of its names; 0 once the last one was removed, after which no path leads to it.
    pub links: u64,
    /// Size in bytes of a file; 0 for a directory.
    pub len: u64,
    /// Time at which the bytes or the size of a file last changed, by the wall clock of that moment, or the time that
    /// [`File::set_modified`] has set since. A power cut may leave an earlier time. For a directory it has no
    /// meaning.
    pub modified: TimestampMs,
}

/// Held while this process owns a lock file. Dropping it, or the end of the process, releases the lock.
pub trait LockGuard: Send + Sync + fmt::Debug {}

/// An open file. Handles stay usable after the file was renamed or removed.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads at most `buffer.len()` bytes from `position`; 0 means the end of the file.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Fills `buffer` from `position`; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `position`. After an error any prefix may have been written. Nothing is durable
    /// when it returns.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Writes all slices, one after the other, from `position` on; otherwise as [`Self::write_all_at`].
    fn write_vectored_all_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `position` and makes them durable, with the metadata that a reader needs to find
    /// them. After an error any prefix may have been written, and how much of it is durable is unknown; the call must
    /// not be repeated, as with [`Self::sync_data`].
    fn write_durable_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Identity of this file, and whether it still has a name.
    fn stat(&self) -> io::Result<Stat>;

    /// Whether the file holds no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros. Durable only after a sync.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sets the time of the file's last change, for a new copy that is as old as its original. Durable after
    /// [`Self::sync_all`]. `Unsupported` where the system cannot.
    fn set_modified(&self, _time: TimestampMs) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Cuts the file as [`Self::set_len`] does, and keeps the time of its last change where the system allows that:
    /// the rest is as old as it was.
    fn cut_as_old(&self, len: u64) -> io::Result<()> {
        let modified = self.stat()?.modified;
        self.set_len(len)?;
        // If this fails, the rest ages later than it should.
        let _ = self.set_modified(modified);
        Ok(())
    }

    /// Allocates space for this range, so that writing there later costs less. The file's length and its bytes stay;
    /// [`Self::set_len`] gives back space beyond the length. `Unsupported` where the system cannot.
    fn allocate(&self, _position: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Asks the system to begin to write this range to the disk, so that the next sync has less to wait for. Nothing
    /// is durable when it returns. It does nothing where the system cannot. The next sync reports errors of the
    /// writing itself, but perhaps not an error that this call returns: as after [`Self::sync_data`], the bytes are
    /// in an unknown state then.
    fn begin_write_back(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Whether the disk is writing nothing of this range, so that [`Self::finish_write_back`] would not wait; `true`
    /// where that is unknown.
    fn is_at_rest(&self, _position: u64, _len: u64) -> bool {
        true
    }

    /// Waits until the disk has taken the writes begun for this range. Nothing is durable when it returns, but the
    /// next sync has less to do. The wait cannot be interrupted, not even by the end of the process. Errors are as
    /// those of [`Self::begin_write_back`]; an error that this call reports is not reported again by a later sync of
    /// this handle.
    fn finish_write_back(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Makes the file's bytes and its size durable. After an error the bytes are in an unknown state and the call
    /// must not be repeated: the next one may succeed without having written anything.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`Self::sync_data`], with all metadata.
    fn sync_all(&self) -> io::Result<()>;

    /// Advises the page cache that this range will not be read again soon. Whole pages that do not wait to be written
    /// are dropped, so that the next read asks the disk.
    fn advise_dont_need(&self, position: u64, len: u64) -> io::Result<()>;

    /// Advises the page cache that this range will be read now, so that the disk is asked for all of it at once. Does
    /// not wait, and no result depends on it.
    fn advise_will_need(&self, _position: u64, _len: u64) {}

    /// The first position from `position` on that may hold more than the zeros of a hole; `None` if there is none up
    /// to the file's end. `position` itself where that is unknown.
    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        Ok(Some(position))
    }

    /// Whether the byte at `position` lies in the page cache; `false` where that is unknown. Waits for no disk, but
    /// if the byte is not cached, the system may begin to read it and the bytes behind it.
    fn is_cached(&self, _position: u64) -> bool {
        false
    }

    /// Whether the byte at `position` would have to come from the disk; `false` where that is unknown. Like
    /// [`Self::is_cached`], it waits for no disk, and the system may begin to read.
    fn is_evicted(&self, _position: u64) -> bool {
        false
    }

    /// The descriptor, for `sendfile`; `None` in simulation.
    fn raw_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A long-lived handle on the file system that holds a directory. It is kept open because the kernel reports a
/// failed write-back once to each descriptor that was open when it happened, and never to a later one.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Makes everything durable that was written to any file or directory of this file system before the call.
    fn sync(&self) -> io::Result<()>;

    /// Whether [`Self::sync`] fails if the system has lost a write that the sync stands for, now or since the volume
    /// was opened. Where it does not, a sync of each single file does.
    fn tells_of_lost_writes(&self) -> bool;

    /// Whether `path` is on this file system, so that [`Self::sync`] covers it.
    fn holds(&self, path: &Path) -> io::Result<bool>;
}

/// An open directory.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Makes the directory's entries durable: everything created, renamed or removed directly in it. After an error
    /// the call must not be repeated, as with [`File::sync_data`].
    fn sync(&self) -> io::Result<()>;

    /// Identity of this directory, and whether it still has a name.
    fn stat(&self) -> io::Result<Stat>;

    /// Makes a directory in this one, whatever its path leads to by now; no error if it exists. `NotFound` if this
    /// directory was removed.
    fn create_dir(&self, name: &OsStr) -> io::Result<()>;
}

/// Files by path.
///
/// Only a file is opened as a file, and only a directory as a directory. Anything else under the name, such as a FIFO
/// or a link to a file, is refused with an [`OddFile`] and never waited for.
pub trait FileSystem: Send + Sync + fmt::Debug {
    /// Opens a file. A file that this call made is durable after a sync of the file and one of its directory.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;

    /// Opens an existing file for reading and writing past the page cache: reads return the bytes on the disk.
    /// Addresses of buffers, positions and lengths have to be multiples of the device's block, at most 4096 bytes;
    /// others are refused. This makes nothing more durable. `Unsupported` if the file system cannot.
    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens the file system that holds the directory `path`.
    fn open_volume(&self, path: &Path) -> io::Result<Arc<dyn Volume>>;

    /// Makes a directory and its parents; no error if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory in an existing one; no error if it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// A directory's entries, in no particular order.
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Renames a file or directory; an existing file at `to` is replaced in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory; `DirectoryNotEmpty` otherwise.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory and its content, one entry after the other.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Opens the directory `path`, so that a later sync of it needs nothing more from the system.
    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn Directory>>;

    /// Opens and syncs the directory `path`.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_dir(path)?.sync()
    }

    /// Facts about the file or directory at `path`; a link stands for its target.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// Whether something exists at `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Takes the exclusive lock of the lock file `path`, which is made if need be, and of its directory, where the
    /// file system locks directories; `WouldBlock` if either has another living holder. The kernel releases them when
    /// the holder dies.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;

    /// As [`Self::lock`], but without the directory, for one that other programs lock for a purpose of theirs.
    fn lock_file(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.lock(path)
    }

    /// Bytes that can still be written to the file system of `path`.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Size in bytes of the whole file system of `path`, used or not.
    fn total_bytes(&self, path: &Path) -> io::Result<u64>;

    /// Bytes that lie in the page cache and on no disk yet, for all file systems: an upper bound of the bytes that
    /// any sync waits for. `None` where that is unknown.
    fn unwritten_bytes(&self) -> Option<u64> {
        None
    }
}

/// A file of an unexpected kind, where a file or a directory is wanted. It is the source of an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddFile {
    /// Its kind, with an article.
    pub found: &'static str,
    /// The wanted kind, with an article.
    pub wanted: &'static str,
}

impl fmt::Display for OddFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}, where {} is expected", self.found, self.wanted)
    }
}

impl std::error::Error for OddFile {}

impl OddFile {
    /// The odd file that caused the error, if one did.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<OddFile> for io::Error {
    fn from(odd: OddFile) -> Self {
        let kind = match odd.found {
            "a directory" => io::ErrorKind::IsADirectory,
            _ if odd.wanted == "a directory" => io::ErrorKind::NotADirectory,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, odd)
    }
}

/// Whether an operation was refused because the path leads to no file, or no directory, where one is wanted. The disk
/// is as good as before.
pub fn is_odd_file(error: &io::Error) -> bool {
    OddFile::of(error).is_some()
}

/// Why a durable change of a file failed, by the state of the disk afterwards.
#[derive(Debug)]
pub enum ChangeError {
    /// Nothing was renamed yet, and no sync failed: the old content is still there, and the change may be tried
    /// again.
    Undone(io::Error),
    /// A rename or a sync failed. The disk's content is unknown, and no later sync would tell: nothing is built on it
    /// before a restart has read it.
    Unknown(io::Error),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undone(error) => error.fmt(f),
            Self::Unknown(error) => write!(f, "the disk's state is unknown: {error}"),
        }
    }
}

impl std::error::Error for ChangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let (Self::Undone(error) | Self::Unknown(error)) = self;
        Some(error)
    }
}

/// For callers that give up either way.
impl From<ChangeError> for io::Error {
    fn from(error: ChangeError) -> Self {
        let (ChangeError::Undone(error) | ChangeError::Unknown(error)) = error;
        error
    }
}

/// Whether the system refused for lack of a resource that may come back: space, quota, a file's largest size,
/// descriptors, memory. The disk is as good as before then, and the call may be tried again.
pub fn is_shortage(error: &io::Error) -> bool {
    let is_storage = matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            // A write that stopped short without a reason.
            | io::ErrorKind::WriteZero
            | io::ErrorKind::OutOfMemory
    );
    is_storage || is_descriptor_shortage(error)
}

/// Whether the process or the machine had no descriptor left.
pub fn is_descriptor_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the process has as many descriptors as it may: closing any other file makes room. If the machine has none
/// left, another process may take the room first.
pub fn is_at_descriptor_limit(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}

/// Whether the device failed to read or write: it has a bad sector, or is dead. Linux reports EIO. Past the page
/// cache it passes on the block layer's error: ENODATA for a medium error, EILSEQ where protection information does
/// not match (`blk_errors` in its `block/blk-core.c`).
pub fn is_device_error(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NODATA | Errno::ILSEQ))
}

/// Number of bytes of a file before the first one that the device cannot read, or before its end.
pub fn readable_bytes(fs: &dyn FileSystem, path: &Path) -> io::Result<u64> {
    let file = fs.open(path, OpenMode::Read)?;
    let (mut buffer, mut position) = ([0; 4096], 0);
    loop {
        match file.read_at(&mut buffer, position) {
            Ok(0) => return Ok(position),
            Ok(count) => position += count as u64,
            Err(error) if is_device_error(&error) => return Ok(position),
            Err(error) => return Err(error),
        }
    }
}

/// Replaces the file at `path` by `bytes` in one step: a reader, also one after a crash, finds the old bytes or the
/// new ones and nothing between. Durable when it returns. It opens everything that it needs first: with too few
/// descriptors it fails before it has changed anything. Without space it gives back what it took.
pub fn atomic_replace(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<(), ChangeError> {
    let (temporary, parent) = temporary_of(path).map_err(ChangeError::Undone)?;
    let open = || -> io::Result<_> { Ok((fs.open_dir(parent)?, open_new(fs, &temporary)?)) };
    let (directory, file) = open().map_err(ChangeError::Undone)?;
    let undone = |error| {
        // If this fails, the next replacement writes over it.
        let _ = fs.remove_file(&temporary);
        ChangeError::Undone(error)
    };
    file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).map_err(undone)?;
    file.sync_all().map_err(ChangeError::Unknown)?;
    // Some file systems (XFS) need space even to change a name, and refuse before they change it.
    let refused = |error| if is_shortage(&error) { undone(error) } else { ChangeError::Unknown(error) };
    fs.rename(&temporary, path).map_err(refused)?;
    directory.sync().map_err(ChangeError::Unknown)
}

/// Opens the file that the new bytes are written to. Whatever lies under its name is worthless, even if it is no
/// file.
fn open_new(fs: &dyn FileSystem, temporary: &Path) -> io::Result<Arc<dyn File>> {
    match fs.open(temporary, OpenMode::CreateOrOpen) {
        Err(error) if is_odd_file(&error) => {
            fs.remove_file(temporary)?;
            fs.open(temporary, OpenMode::CreateNew)
        }
        opened => opened,
    }
}

/// The path that the new bytes are written to first, and its directory.
fn temporary_of(path: &Path) -> io::Result<(PathBuf, &Path)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a file to replace has a directory and a name",
        ));
    };
    let mut temporary = name.to_os_string();
    temporary.push(".new");
    Ok((parent.join(temporary), parent))
}

/// Reads the file at `path`; `InvalidData` if it holds more than `bytes_max`.
pub fn read_whole(fs: &dyn FileSystem, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = fs.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > bytes_max {
        let message = format!("{}: {len} bytes where at most {bytes_max} are expected", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
