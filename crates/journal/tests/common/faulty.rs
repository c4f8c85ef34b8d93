//! Files that behave as those of a careless journal, wrapped around another file system. The journal itself has no
//! such switches.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use riverrun_env::{
    AlignedBuffer, DirEntry, Directory, Env, File, FileSystem, LockGuard, OpenMode, Stat, Volume,
};

/// A bug to plant. One bug is planted elsewhere, inside recovery: trusting the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Syncs of files do nothing: entries are acked before they are durable.
    AckBeforeSync,
    /// A sync that fails is tried again, and believed.
    RetryFailedSync,
    /// Syncs of directories do nothing.
    SkipDirectorySync,
    /// A write begins in the last block before it, which it writes again.
    RewriteSyncedBlock,
    /// A write that stops short counts as done.
    IgnoreShortWrite,
}

/// A file system with a bug.
pub(crate) struct Faulty {
    inner: Arc<dyn FileSystem>,
    bug: Bug,
}

/// `env` with `bug` planted in its files.
pub(crate) fn plant(env: &Env, bug: Bug) -> Env {
    Env { fs: Arc::new(Faulty { inner: env.fs.clone(), bug }), ..env.clone() }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bug.fmt(f)
    }
}

impl FileSystem for Faulty {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile { inner: self.inner.open(path, mode)?, bug: self.bug }))
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile { inner: self.inner.open_direct(path)?, bug: self.bug }))
    }

    fn open_volume(&self, path: &Path) -> io::Result<Arc<dyn Volume>> {
        self.inner.open_volume(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        let inner = self.inner.open_dir(path)?;
        Ok(if self.bug == Bug::SkipDirectorySync { Box::new(UnsyncedDirectory(inner)) } else { inner })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.available_bytes(path)
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.total_bytes(path)
    }
}

#[derive(Debug)]
struct UnsyncedDirectory(Box<dyn Directory>);

impl Directory for UnsyncedDirectory {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }

    fn create_dir(&self, name: &OsStr) -> io::Result<()> {
        self.0.create_dir(name)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    bug: Bug,
}

/// The block that a careless writer rewrites.
const BLOCK: usize = 4096;

impl FaultyFile {
    /// Passes a write on; with the bug of the same name, the block before it as well.
    fn write(
        &self,
        bytes: &[u8],
        position: u64,
        to: fn(&dyn File, &[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.bug == Bug::RewriteSyncedBlock && position >= BLOCK as u64 {
            let mut both = AlignedBuffer::zeroed(BLOCK, BLOCK);
            self.inner.read_exact_at(&mut both, position - BLOCK as u64)?;
            let mut whole = AlignedBuffer::with_capacity(BLOCK + bytes.len(), BLOCK);
            whole.extend_from_slice(&both);
            whole.extend_from_slice(bytes);
            return to(&*self.inner, &whole, position - BLOCK as u64);
        }
        match to(&*self.inner, bytes, position) {
            Err(error) if self.bug == Bug::IgnoreShortWrite => {
                // The rest of the bytes that the disk took is synced as it should be.
                self.inner.sync_data().map_err(|_| error)
            }
            result => result,
        }
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.inner.read_at(buffer, position)
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.inner.read_exact_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.write(bytes, position, |file, bytes, position| file.write_all_at(bytes, position))
    }

    fn write_vectored_all_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        self.inner.write_vectored_all_at(slices, position)
    }

    fn write_durable_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if self.bug == Bug::AckBeforeSync {
            return self.inner.write_all_at(bytes, position);
        }
        let written =
            self.write(bytes, position, |file, bytes, position| file.write_durable_at(bytes, position));
        match written {
            Err(_) if self.bug == Bug::RetryFailedSync => self.inner.sync_data(),
            result => result,
        }
    }

    fn stat(&self) -> io::Result<Stat> {
        self.inner.stat()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.bug {
            Bug::AckBeforeSync => Ok(()),
            Bug::RetryFailedSync => self.inner.sync_data().or_else(|_| self.inner.sync_data()),
            _ => self.inner.sync_data(),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn advise_dont_need(&self, position: u64, len: u64) -> io::Result<()> {
        self.inner.advise_dont_need(position, len)
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
