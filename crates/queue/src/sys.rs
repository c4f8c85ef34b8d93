//! The system calls of the queue behind safe functions: byte-range locks, futexes, memory barriers, allocation.
//!
//! Owns the calls that only Linux has. Guarantees nothing beyond the calls themselves.

#![expect(unsafe_code, reason = "system calls that std does not have")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Whether a lock of a byte is shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Length that stands for a range up to the end of the file, wherever that is.
const TO_THE_END: u64 = 0;

fn set_lock(file: &File, byte: u64, lock_type: libc::c_int) -> io::Result<bool> {
    set_locks(file, (byte, 1), lock_type)
}

fn set_locks(file: &File, (begin, bytes): (u64, u64), lock_type: libc::c_int) -> io::Result<bool> {
    // SAFETY: flock is a plain struct of integers, for which zeros are a value.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = lock_type as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = begin as libc::off_t;
    request.l_len = bytes as libc::off_t;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the request is a valid flock.
    let result = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut request) });
    match result {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks one byte of `file` for its open file description, if no other holds it. The kernel unlocks it when the last
/// descriptor of that description is closed, however its process ends.
pub(crate) fn try_lock_byte(file: &File, byte: u64, kind: LockKind) -> io::Result<bool> {
    let lock_type = if kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
    set_lock(file, byte, lock_type)
}

/// True if another description holds the shared lock of one byte of `file`, which may be open for reading only. False
/// where the file system has no locks.
pub(crate) fn is_lock_shared(file: &File, byte: u64) -> bool {
    // SAFETY: flock is a plain struct of integers, for which zeros are a value.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = libc::F_WRLCK as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = byte as libc::off_t;
    request.l_len = 1;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the request is a valid flock, which is ours.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) } == 0;
    asked && request.l_type == libc::F_RDLCK as libc::c_short
}

/// Undoes [`try_lock_byte`].
pub(crate) fn unlock_byte(file: &File, byte: u64) -> io::Result<()> {
    set_lock(file, byte, libc::F_UNLCK).map(|_| ())
}

/// A file with locks, which end when it is dropped.
///
/// Closing it is not enough: between fork and exec, a child process has every descriptor of its parent, and the locks
/// with them, so that an owner that has gone would be taken for alive. A process that was forked and has not called
/// exec unlocks nothing: the locks are its parent's.
#[derive(Debug)]
pub(crate) struct LockFile {
    file: File,
    process: u32,
}

impl From<File> for LockFile {
    fn from(file: File) -> Self {
        Self { file, process: std::process::id() }
    }
}

impl Deref for LockFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // A file system without locks has none to release.
        let _ = set_locks(&self.file, (0, TO_THE_END), libc::F_UNLCK);
        let _ = self.file.unlock();
    }
}

/// Allocates the blocks of a range of bytes, so that storing into the mapping does not need space that may be
/// missing. The file grows to the end of the range.
pub(crate) fn allocate(file: &File, range: std::ops::Range<u64>) -> io::Result<()> {
    let (begin, bytes) = (range.start as libc::off_t, (range.end - range.start) as libc::off_t);
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed.
        match check(unsafe { libc::fallocate(file.as_raw_fd(), 0, begin, bytes) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// True if `file` lies in memory only, so that no power cut leaves a state of it.
pub(crate) fn is_in_memory(file: &File) -> bool {
    // SAFETY: statfs is a plain struct of integers, for which zeros are a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the struct is ours to fill.
    let known = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } == 0;
    known && found.f_type == libc::TMPFS_MAGIC
}

/// Waits until `word` is woken; returns at once if it does not hold `expected`. May return early, and returns after
/// `timeout`.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
    };
    // SAFETY: the word is four aligned bytes that stay mapped while it is borrowed; the kernel only reads it. The
    // result gives the reason of the wake-up, and the caller reads the word again in any case.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const timeout) };
}

/// Sleeps for this long, without the up to 50 us more by which the kernel groups the wake-ups of other threads.
pub(crate) fn sleep_exactly(time: Duration) {
    // SAFETY: the calls take no memory of ours. Where one fails, the sleep is longer.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    std::thread::sleep(time);
    if slack > 0 {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack as libc::c_ulong) };
    }
}

/// Wakes up to `count` threads, of any process, that wait for `word`.
pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel only uses the word's address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Prefetches the cache line of `place` for storing. An address that is not mapped is no error.
#[inline]
pub(crate) fn fetch_for_write(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which changes no register and no memory, and is nothing on processors that lack it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which changes no register and no memory.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = place;
}

const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process with the kernel, so that [`barrier_in_appenders`] reaches its threads. False where that is
/// not possible: then its appenders need barriers of their own.
pub(crate) fn reached_by_barriers() -> bool {
    static REACHED: OnceLock<bool> = OnceLock::new();
    *REACHED.get_or_init(|| membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED))
}

/// A full memory barrier in this thread and in every running thread of the registered processes. A thread that is
/// about to sleep pays for the barrier, so that appending needs none.
pub(crate) fn barrier_in_appenders() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    membarrier(MEMBARRIER_GLOBAL_EXPEDITED);
}

/// A number that no other call returns.
pub(crate) fn random_id() -> io::Result<u128> {
    let mut bytes = [0; 16];
    // SAFETY: the buffer is ours and has as many bytes as are asked for.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // The kernel returns up to 256 bytes at once, or an error.
    if filled == 16 { Ok(u128::from_le_bytes(bytes)) } else { Err(io::Error::last_os_error()) }
}

/// Milliseconds since 1970, as exact as the kernel's tick (1 to 10 ms): a fifth of the cost of the exact clock.
pub(crate) fn wall_coarse_ms() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct that it is given; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

/// Distinguishes one life of a file system from another, by the machine's boot and the mount. Memory survives neither
/// a boot nor the loss of a mounted device. One file system may be reached by several mounts, as from containers: if
/// a process has the queue open, `queue::counts` knows that its life continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) boot: u128,
    pub(crate) mount: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

const STATX_MNT_ID: u32 = 0x1000;
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

impl Life {
    /// True if both are of one file in one boot, by whatever mounts: its pages and its locks are the same then.
    pub(crate) fn is_of_one_file(&self, other: &Self) -> bool {
        *self == Self { mount: self.mount, ..*other }
    }

    /// The life in which `file` is open.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = file.metadata()?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
        let boot = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
        Ok(Self { boot, mount: mount_of(file)?, device: metadata.dev(), inode: metadata.ino() })
    }
}

fn mount_of(file: &File) -> io::Result<u64> {
    // SAFETY: statx is a plain struct of integers, for which zeros are a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let mask = STATX_MNT_ID | STATX_MNT_ID_UNIQUE;
    // SAFETY: the descriptor is open, the path is an empty string, and the struct is ours to fill.
    let result =
        unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut found) };
    check(result)?;
    Ok(found.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_sees_that_a_lock_is_shared() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let reading = File::open(file.path()).expect("a file");
        assert!(!is_lock_shared(&reading, 7), "no description has it");
        assert!(try_lock_byte(file.as_file(), 7, LockKind::Exclusive).expect("locks"));
        assert!(!is_lock_shared(&reading, 7), "one is alone");
        assert!(try_lock_byte(file.as_file(), 7, LockKind::Shared).expect("locks"));
        assert!(is_lock_shared(&reading, 7));
        assert!(!is_lock_shared(&reading, 8), "another byte");
        drop(file);
        assert!(!is_lock_shared(&reading, 7), "it went with its holder");
    }

    #[test]
    fn locks_end_although_a_forked_child_has_the_descriptor() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || LockFile::from(File::options().write(true).open(file.path()).expect("a file"));
        for ends in [true, false] {
            let mut held = open();
            assert!(try_lock_byte(&held, 7, LockKind::Exclusive).expect("locks"));
            held.try_lock_shared().expect("no description has it");
            if !ends {
                held.process += 1;
            }
            let inherited = held.try_clone().expect("a descriptor");
            drop(held);
            let next = open();
            assert_eq!(try_lock_byte(&next, 7, LockKind::Exclusive).expect("locks"), ends, "another's stay");
            assert_eq!(next.try_lock().is_ok(), ends);
            drop(inherited);
        }
    }
}
