//! A file in memory, shared with every process that maps it.
//!
//! Guarantees that every access lies inside the mapping, and that the file had all its bytes when it was mapped.
//! Bytes that another process may be writing are reached through atomics and raw copies only; slices are lent only of
//! published bytes, which no process writes any more.

#![expect(unsafe_code, reason = "memory that is shared with other processes")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{LINE_BYTES, PAGE_BYTES};
use crate::opening::open_file;
use crate::sys;
use crate::trap::Watched;

/// Linux 5.14.
const MADV_POPULATE_READ: libc::c_int = 22;
/// Linux 5.14.
const MADV_POPULATE_WRITE: libc::c_int = 23;
/// Bytes made present by one call: another thread that maps or unmaps a file, or an append, waits no longer than for
/// these.
pub(crate) const POPULATE_BYTES: usize = 256 << 10;

/// The purpose for which a file is opened and mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// For reading: a store would raise a signal.
    Read,
    /// For reading and storing.
    Write,
}

impl Access {
    /// Opens an existing file.
    pub(crate) fn open(self, path: &Path) -> io::Result<File> {
        open_file(OpenOptions::new().read(true).write(self == Self::Write), path)
    }
}

/// A shared mapping of the beginning of a file.
///
/// Invariants: `base..base + len` is mapped readable until the drop, and writable if it was made so; `base` is
/// page-aligned.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    watched: Watched,
}

// SAFETY: the mapping is plain memory that belongs to no thread; access rules are those of its methods.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access goes through atomics, or is of bytes that the queue's protocol gives to one
// writer.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which must have them and be open for `access`.
    pub(crate) fn new(file: &File, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        match Watched::over(base.as_ptr() as usize, len) {
            Ok(watched) => Ok(Self { base, len, watched }),
            Err(error) => {
                // SAFETY: the mapping was just made, and is known to no other code.
                unsafe { libc::munmap(base.as_ptr().cast(), len) };
                Err(error)
            }
        }
    }

    /// True if bytes of the file were gone when they were accessed: reads there returned zeros, and stores are lost.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        self.watched.is_torn()
    }

    /// Makes [`is_torn`](Self::is_torn) true, although no access has met a missing page.
    pub(crate) fn tear(&self) {
        self.watched.tear();
    }

    /// Reads a byte of each page of a range except the first, which the caller reads, so that
    /// [`is_torn`](Self::is_torn) reports a missing one afterwards.
    #[inline]
    pub(crate) fn touch(&self, at: usize, len: usize) {
        self.check(at, len);
        let last = (at + len).checked_sub(1).filter(|last| *last >= at);
        for place in (at..at + len).step_by(PAGE_BYTES).skip(1).chain(last) {
            // SAFETY: in bounds; the value does not matter.
            unsafe { self.base.as_ptr().add(place).read_volatile() };
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn check(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} lies outside of a mapping");
    }

    /// The eight bytes at `at`, which is a multiple of eight.
    #[inline]
    pub(crate) fn atomic_u64(&self, at: usize) -> &AtomicU64 {
        self.check(at, 8);
        assert!(at.is_multiple_of(8));
        // SAFETY: in bounds and aligned; every access to these bytes is through atomics of the same width.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The four bytes at `at`, which is a multiple of four.
    #[inline]
    pub(crate) fn atomic_u32(&self, at: usize) -> &AtomicU32 {
        self.check(at, 4);
        assert!(at.is_multiple_of(4));
        // SAFETY: in bounds and aligned; every access to these bytes is through atomics. The kernel also compares the
        // two halves of a position (futex), and reads them as four bytes.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// Lends `len` bytes from `at` on.
    ///
    /// # Safety
    ///
    /// The bytes are published (no process writes them any more), or the caller holds the writer lock and lends
    /// no [`slice_mut`](Self::slice_mut) of them meanwhile.
    #[inline]
    pub(crate) unsafe fn slice(&self, at: usize, len: usize) -> &[u8] {
        self.check(at, len);
        // SAFETY: in bounds; the caller vouches that no other code writes there.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// Lends `len` bytes from `at` on for writing.
    ///
    /// # Safety
    ///
    /// The caller holds the writer lock, the bytes lie beyond what is published, and no other slice of them
    /// lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "shared memory: the writer lock is what makes it exclusive")]
    pub(crate) unsafe fn slice_mut(&self, at: usize, len: usize) -> &mut [u8] {
        self.check(at, len);
        // SAFETY: in bounds; the caller vouches that no other code reads or writes there.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }

    /// Returns when the bytes of a range are on disk, whichever process stored them, and the file's size with them.
    /// Other pages are left alone, so that stores into them stay quick. Requires a writable mapping: for others the
    /// kernel syncs nothing.
    pub(crate) fn sync(&self, at: usize, len: usize) -> io::Result<()> {
        self.check(at, len);
        let begin = at / PAGE_BYTES * PAGE_BYTES;
        // SAFETY: the range lies in the mapping, and syncing changes no byte of it.
        let result =
            unsafe { libc::msync(self.base.as_ptr().add(begin).cast(), at + len - begin, libc::MS_SYNC) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if self.is_torn() { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Prefetches the cache lines of a range for storing, as far as they lie in the mapping. Changes nothing and
    /// waits for nothing.
    #[inline]
    pub(crate) fn fetch_for_write(&self, at: usize, len: usize) {
        let end = (at + len).min(self.len);
        for place in (at..end).step_by(LINE_BYTES) {
            sys::fetch_for_write(self.base.as_ptr().wrapping_add(place));
        }
    }

    /// Makes the pages of a range present and writable, so that the first store into each is as quick as the next.
    /// Changes no byte. Kernels before Linux 5.14 cannot do so; there only the stores are slower.
    pub(crate) fn populate(&self, at: usize, len: usize) {
        self.check(at, len);
        // The kernel requires a range that begins with a page.
        let (first, end) = (at / PAGE_BYTES * PAGE_BYTES, at + len);
        for begin in (first..end).step_by(POPULATE_BYTES) {
            self.advise(begin, POPULATE_BYTES.min(end - begin), MADV_POPULATE_WRITE);
        }
    }

    /// As [`populate`](Self::populate), for pages that the page cache has already: many are mapped at once.
    pub(crate) fn populate_old(&self, at: usize, len: usize) {
        self.check(at, len);
        self.advise(at, len, MADV_POPULATE_READ);
    }

    /// Unmaps the pages of a range from this process, which makes a later `munmap` quick. They stay in the page
    /// cache, and an access maps them again.
    pub(crate) fn forget_pages(&self, at: usize, len: usize) {
        self.check(at, len);
        self.advise(at, len, libc::MADV_DONTNEED);
    }

    fn advise(&self, at: usize, len: usize, advice: libc::c_int) {
        // SAFETY: the callers have checked that the range lies in the mapping, and the advice leaves its contents
        // as they are.
        unsafe { libc::madvise(self.base.as_ptr().add(at).cast(), len, advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watched.forget();
        // SAFETY: this is the mapping that `new` made, and no borrow of it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use riverrun_types::Offset;

    use super::*;
    use crate::segment::{Segment, Segments, make_file};

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn pages_are_made_present_from_wherever_a_range_begins() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * PAGE_BYTES as u64).expect("room");
        let map = Mapping::new(&file, 3 * PAGE_BYTES, Access::Write).expect("mapped");
        map.populate(PAGE_BYTES + 100, PAGE_BYTES);
        let mut present = [0_u8; 3];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let asked =
            unsafe { libc::mincore(map.base.as_ptr().cast(), 3 * PAGE_BYTES, present.as_mut_ptr().cast()) };
        assert_eq!((asked, present.map(|page| page & 1)[1..].to_vec()), (0, vec![1, 1]));
    }

    /// KiB of a segment that are mapped into this process.
    fn present_kib(segment: &Segment) -> u64 {
        let base = segment.map.base.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("a Linux");
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&format!("{base:x}-")));
        let present = lines.find_map(|line| line.strip_prefix("Rss:")).expect("mapped");
        present.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn pages_of_a_full_segment_leave_its_writer_unchanged() {
        const BYTES: u64 = 3 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let segments = Segments::new(dir.path(), BYTES, Access::Write);
        for base in [7, 8] {
            make_file(&segments.path(Offset(base)), BYTES).expect("room");
        }
        // Mapped for reading before it is mapped for writing, so by a mapping of its own.
        let read = segments.get_to_read(Offset(7), 0).expect("no lock").expect("there");
        let both = [7, 8].map(|base| {
            let segment = segments.expect(Offset(base), 0).expect("there");
            // SAFETY: no other code has the segment or uses its slices.
            unsafe { segment.map.slice_mut(0, BYTES as usize) }.fill(1);
            segment
        });
        read.map.touch(0, BYTES as usize);
        segments.forget_pages(Offset(7), BYTES - 5000);
        let kept_kib = present_kib(&both[0]);
        assert!((2 << 10..3 << 10).contains(&kept_kib), "{kept_kib}: earlier pages are not dirty any more");
        segments.forget_pages(Offset(7), 0);
        segments.forget_pages(Offset(9), 0);
        assert!(present_kib(&both[0]) == 0 && present_kib(&both[1]) > 0);
        assert!(present_kib(&read) > 0, "nothing is written by this one");
        // SAFETY: as above.
        assert!(unsafe { both[0].map.slice(0, BYTES as usize) }.iter().all(|byte| *byte == 1));
    }
}
