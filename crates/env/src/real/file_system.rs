//! The operating system's file system.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::file::RealFile;
use super::opening;
use super::volume::RealVolume;
use crate::{DirEntry, Directory, File, FileSystem, LockGuard, OpenMode, Stat, Volume};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFileSystem;

/// Owns the open lock file and, if that is locked, its directory. The kernel drops a lock with the last descriptor,
/// and a child process has one until its exec: so the locks are released explicitly first.
#[derive(Debug)]
struct RealLock {
    file: fs::File,
    directory: Option<fs::File>,
}

impl RealLock {
    /// The directory is locked first: the lock file can be removed or replaced under its holder, and then the new one
    /// would be free.
    fn with_directory(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = opening::open_dir(parent.unwrap_or(Path::new(".")))?;
        // Some file systems, such as NFS, lock no directories: any other error is ignored.
        if let Err(Errno::WOULDBLOCK) =
            rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
        {
            return Err(Errno::WOULDBLOCK.into());
        }
        let mut lock = Self::of_file(path)?;
        lock.directory = Some(directory);
        Ok(lock)
    }

    fn of_file(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = opening::open_file(path, &mut options, OFlags::empty())?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, directory: None })
    }
}

impl LockGuard for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        for held in std::iter::once(&self.file).chain(&self.directory) {
            // If this fails, the lock ends with the descriptor.
            let _ = rustix::fs::flock(held, FlockOperation::Unlock);
        }
    }
}

#[derive(Debug)]
struct RealDirectory(fs::File);

impl Directory for RealDirectory {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(opening::stat_of(&self.0.metadata()?))
    }

    fn create_dir(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }
}

impl FileSystem for RealFileSystem {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        match mode {
            OpenMode::Read | OpenMode::ReadWrite => {}
            OpenMode::CreateNew => {
                options.create_new(true);
            }
            OpenMode::CreateOrOpen => {
                options.create(true).truncate(false);
            }
        }
        Ok(Arc::new(RealFile(opening::open_file(path, &mut options, OFlags::empty())?)))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile(opening::open_direct(path)?)))
    }

    fn open_volume(&self, path: &Path) -> io::Result<Arc<dyn Volume>> {
        Ok(Arc::new(RealVolume::open(path)?))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            // An entry that vanished since it was listed counts as never there.
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // A link without a target is still a name that is taken.
                Ok(link) if link.is_symlink() => fs::metadata(entry.path()).unwrap_or(link),
                result => result?,
            };
            let is_dir = metadata.is_dir();
            entries.push(DirEntry {
                name: entry.file_name(),
                is_dir,
                len: if is_dir { 0 } else { metadata.len() },
            });
        }
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        Ok(Box::new(RealDirectory(opening::open_dir(path)?)))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(opening::stat_of(&fs::metadata(path)?))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        Ok(Box::new(RealLock::with_directory(path)?))
    }

    fn lock_file(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        Ok(Box::new(RealLock::of_file(path)?))
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }

    fn unwritten_bytes(&self) -> Option<u64> {
        parse_unwritten(&fs::read_to_string("/proc/meminfo").ok()?)
    }
}

/// Reads the pages that wait to be written, and those being written, from the text of `/proc/meminfo`.
fn parse_unwritten(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(kib("Dirty:")?.saturating_add(kib("Writeback:")?).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwritten_bytes_are_dirty_or_being_written() {
        let text = "MemFree:  7 kB\nDirty:     12 kB\nWriteback:       3 kB\nWritebackTmp:   99 kB\n";
        assert_eq!(parse_unwritten(text), Some(15 * 1024));
        assert_eq!(parse_unwritten("Dirty:     12 kB\n"), None);
    }

    #[test]
    fn lock_ends_though_a_child_process_has_its_descriptor() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let lock = RealLock::with_directory(&path).expect("free");
        let held = std::iter::once(&lock.file).chain(&lock.directory);
        let inherited: Vec<_> = held.map(|held| held.try_clone().expect("a descriptor")).collect();
        assert!(RealFileSystem.lock(&path).is_err(), "it is held");
        drop(lock);
        assert!(RealFileSystem.lock(&path).is_ok());
        drop(inherited);
    }

    #[test]
    fn a_lock_holds_though_its_file_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let lock = RealFileSystem.lock(&path).expect("free");
        fs::remove_file(&path).expect("removed");
        let refused = RealFileSystem.lock(&path).expect_err("it is held");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        assert!(RealFileSystem.lock(&path).is_ok());
    }

    #[test]
    fn a_lock_of_a_file_alone_leaves_its_directory_to_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let _lock = RealFileSystem.lock_file(&path).expect("free");
        assert!(RealFileSystem.lock_file(&path).is_err(), "it is held");
        assert!(RealFileSystem.lock(&dir.path().join("other")).is_ok());
    }
}
