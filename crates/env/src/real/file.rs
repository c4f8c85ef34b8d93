//! An open file of the operating system, with explicit positions and without a cursor.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileExt;

use riverrun_types::TimestampMs;
use rustix::fs::{Advice, FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, ReadWriteFlags};

use super::opening::stat_of;
use crate::{File, Stat};

/// `cachestat`, which has the same number on all supported machines. It describes the pages of a range by five
/// numbers: cached, dirty, being written, evicted, recently evicted.
const SYS_CACHESTAT: libc::c_long = 451;
const CACHESTAT_FIELDS: usize = 5;
const CACHESTAT_WRITEBACK: usize = 2;

/// A file opened by [`crate::RealFileSystem`].
#[derive(Debug)]
pub(super) struct RealFile(pub(super) fs::File);

impl RealFile {
    /// Reads the byte at `position` if that needs no waiting.
    fn probe(&self, position: u64) -> rustix::io::Result<usize> {
        let mut probe = [0; 1];
        rustix::io::preadv2(&self.0, &mut [io::IoSliceMut::new(&mut probe)], position, ReadWriteFlags::NOWAIT)
    }

    #[expect(unsafe_code, reason = "a system call that takes numbers only, for which rustix has no function")]
    fn write_back(&self, position: u64, len: u64, flags: libc::c_uint) -> io::Result<()> {
        let (position, len) = (position.cast_signed(), len.cast_signed());
        loop {
            // SAFETY: the descriptor is open as long as `self`, and no memory is handed over.
            let result = unsafe { libc::sync_file_range(self.0.as_raw_fd(), position, len, flags) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                // The kernel lacks the call, has it not for this file, or a sandbox forbids it: nothing has happened.
                Some(Errno::NOSYS | Errno::INVAL | Errno::SPIPE | Errno::PERM) => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(&self.0, buffer, position) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.0, buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(&self.0, bytes, position).map_err(explained)
    }

    fn write_vectored_all_at(&self, mut slices: &mut [IoSlice<'_>], mut position: u64) -> io::Result<()> {
        // Empty slices at the front would make a write of nothing look like a device that takes no more bytes.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match rustix::io::pwritev(&self.0, slices, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut slices, written);
                    position += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(explained(error.into())),
            }
        }
        Ok(())
    }

    fn write_durable_at(&self, mut bytes: &[u8], mut position: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwritev2(&self.0, &[IoSlice::new(bytes)], position, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    position += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(explained(error.into())),
            }
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn stat(&self) -> io::Result<Stat> {
        Ok(stat_of(&self.0.metadata()?))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len).map_err(explained)
    }

    fn set_modified(&self, time: TimestampMs) -> io::Result<()> {
        let modified =
            Timespec { tv_sec: time.0.div_euclid(1000), tv_nsec: time.0.rem_euclid(1000) * 1_000_000 };
        let untouched = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Ok(rustix::fs::futimens(
            &self.0,
            &Timestamps { last_access: untouched, last_modification: modified },
        )?)
    }

    fn allocate(&self, position: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, position, len)?)
    }

    fn begin_write_back(&self, position: u64, len: u64) -> io::Result<()> {
        // It does not consume errors of earlier writing, so that the next sync reports them.
        self.write_back(position, len, libc::SYNC_FILE_RANGE_WRITE)
    }

    fn finish_write_back(&self, position: u64, len: u64) -> io::Result<()> {
        self.write_back(position, len, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    }

    #[expect(unsafe_code, reason = "a system call for which neither rustix nor libc has a function")]
    fn is_at_rest(&self, position: u64, len: u64) -> bool {
        let range = [position, len];
        let mut pages = [0_u64; CACHESTAT_FIELDS];
        // SAFETY: the descriptor is open as long as `self`; the system reads two numbers and writes five, which are there.
        let result = unsafe {
            libc::syscall(SYS_CACHESTAT, self.0.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0)
        };
        // A kernel before 6.5 does not know it, and the files of some file systems have no such pages.
        result != 0 || pages[CACHESTAT_WRITEBACK] == 0
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn advise_dont_need(&self, position: u64, len: u64) -> io::Result<()> {
        // A length of zero would mean "to the end" to the system.
        if let Some(len) = std::num::NonZeroU64::new(len) {
            rustix::fs::fadvise(&self.0, position, Some(len), Advice::DontNeed)?;
        }
        Ok(())
    }

    fn advise_will_need(&self, position: u64, len: u64) {
        if let Some(len) = std::num::NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.0, position, Some(len), Advice::WillNeed);
        }
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        // Every read and write has a position of its own, so the file's cursor is free.
        match rustix::fs::seek(&self.0, SeekFrom::Data(position)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // A file system without this call.
            Err(Errno::INVAL) => Ok(Some(position)),
            Err(error) => Err(error.into()),
        }
    }

    fn is_cached(&self, position: u64) -> bool {
        self.probe(position) == Ok(1)
    }

    fn is_evicted(&self, position: u64) -> bool {
        self.probe(position) == Err(Errno::AGAIN)
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Adds the possible limits to the error of a file that may not grow, because the system's text names neither.
fn explained(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::FileTooLarge {
        return error;
    }
    let told = format!("{error}: the process, or the file system, may have no larger file (see ulimit -f)");
    io::Error::new(io::ErrorKind::FileTooLarge, told)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn holes_are_passed_over_where_the_file_system_knows_them() {
        let file = RealFile(tempfile::tempfile().unwrap());
        file.set_len(1 << 40).unwrap();
        file.write_all_at(&[1; 10], 1 << 30).unwrap();
        let first = file.next_data(0).unwrap().unwrap();
        assert!(first <= 1 << 30);
        assert_eq!(file.next_data(1 << 30).unwrap(), Some(1 << 30));
        assert!(file.next_data(1 << 31).unwrap().is_none_or(|data| data == 1 << 31));
    }

    #[test]
    fn a_file_that_is_cut_is_as_old_as_it_was() {
        let file = RealFile(tempfile::tempfile().unwrap());
        file.write_all_at(&[1; 10], 0).unwrap();
        for time in [-1_001, 0, 1_700_000_000_123] {
            file.set_modified(TimestampMs(time)).unwrap();
            file.cut_as_old(5).unwrap();
            assert_eq!(file.stat().unwrap().modified, TimestampMs(time));
        }
        file.write_all_at(&[1; 10], 0).unwrap();
        assert!(file.stat().unwrap().modified > TimestampMs(1_700_000_000_123));
    }

    #[test]
    fn fresh_bytes_are_resident_and_missing_ones_are_not() {
        let file = RealFile(tempfile::tempfile().unwrap());
        file.write_all_at(&[1; 5000], 0).unwrap();
        assert!(!file.is_evicted(0) && !file.is_evicted(4999) && !file.is_evicted(1 << 20));
    }

    #[test]
    fn prefetch_errors_are_reported_unless_unsupported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, [1; 5000]).unwrap();
        RealFile(fs::File::open(&path).unwrap()).begin_write_back(0, 4096).unwrap();
        RealFile(fs::File::open(&path).unwrap()).finish_write_back(0, 4096).unwrap();
        assert!(RealFile(fs::File::open(&path).unwrap()).is_at_rest(0, 4096));
        let (_reader, writer) = io::pipe().unwrap();
        RealFile(fs::File::from(std::os::fd::OwnedFd::from(writer))).begin_write_back(0, 4096).unwrap();
        // The system writes nothing back through a descriptor that only stands for a path.
        let handle = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
        let error = RealFile(fs::File::from(handle)).begin_write_back(0, 4096).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::BADF));
    }
}
