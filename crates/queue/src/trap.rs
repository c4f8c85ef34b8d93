//! Mapped files that lose their bytes: a fault that would kill the process sets a flag of the mapping instead.
//!
//! When another program truncates a file that is mapped, or the disk cannot read a page of it, the kernel answers an
//! access with SIGBUS. The handler of this module maps a page of zeros in place of the missing one, flags the mapping
//! as torn, and lets the access continue; users of the mapping check the flag and return an error. (The sound server
//! `pulseaudio` has long done so for its shared memory: memtrap.) Any other SIGBUS goes to the previous handler.
//!
//! The handler takes no lock and allocates nothing: it reads a table of atomics and makes one system call.

#![expect(unsafe_code, reason = "a signal handler")]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Most mappings of a process at once.
const ENTRIES: usize = 4096;

/// One mapping.
///
/// Invariants: free while `len` is 0; claimed and not yet in use while it is [`CLAIMED`].
struct Entry {
    base: AtomicUsize,
    len: AtomicUsize,
    torn: AtomicBool,
}

const CLAIMED: usize = usize::MAX;

static TABLE: [Entry; ENTRIES] =
    [const { Entry { base: AtomicUsize::new(0), len: AtomicUsize::new(0), torn: AtomicBool::new(false) } };
        ENTRIES];

/// How many entries are in use, and where to begin the search for a free one.
static USED: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// True if so many mappings are watched that optional ones should be dropped.
pub(crate) fn is_crowded() -> bool {
    USED.load(Relaxed) > ENTRIES / 2
}

/// The previous handler, and the size of a page.
static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

/// A mapping's place in the table, given back by [`Watched::forget`].
#[derive(Debug)]
pub(crate) struct Watched(usize);

impl Watched {
    /// Watches a mapping, from before its first access.
    pub(crate) fn over(base: usize, len: usize) -> io::Result<Self> {
        install();
        let next = NEXT.load(Relaxed);
        for index in (next..ENTRIES).chain(0..next) {
            let entry = &TABLE[index];
            if entry.len.compare_exchange(0, CLAIMED, AcqRel, Relaxed).is_ok() {
                entry.base.store(base, Relaxed);
                entry.torn.store(false, Relaxed);
                entry.len.store(len, Release);
                USED.fetch_add(1, Relaxed);
                NEXT.store((index + 1) % ENTRIES, Relaxed);
                return Ok(Self(index));
            }
        }
        Err(io::Error::from_raw_os_error(libc::EMFILE))
    }

    /// True if a part of the mapping was lost.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        TABLE[self.0].torn.load(Acquire)
    }

    /// Flags the mapping as torn.
    pub(crate) fn tear(&self) {
        TABLE[self.0].torn.store(true, Release);
    }

    /// Stops watching, before the mapping is unmapped.
    pub(crate) fn forget(&self) {
        TABLE[self.0].len.store(0, Release);
        USED.fetch_sub(1, Relaxed);
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: sysconf takes no memory of ours.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: sigaction is a plain struct, for which zeros are a value.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: both structs are ours; the handler is async-signal-safe, see there. A fault before the cell
        // is filled cannot be of a mapping of ours, since none is watched yet.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
        (before, page)
    });
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO, and errno is the thread's own.
    let (address, errno) = unsafe { ((*info).si_addr() as usize, libc::__errno_location()) };
    // SAFETY: as above; the errno of the interrupted code is restored.
    let saved = unsafe { *errno };
    if !replace(address) {
        pass_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
}

/// Maps a page of zeros at `address`, if that lies in a watched mapping.
fn replace(address: usize) -> bool {
    let Some((_, page_bytes)) = BEFORE.get() else { return false };
    for entry in &TABLE {
        let len = entry.len.load(Acquire);
        let base = entry.base.load(Relaxed);
        if len == 0 || len == CLAIMED || address < base || address - base >= len {
            continue;
        }
        let page = address / page_bytes * page_bytes;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Set first: another thread may read the zeros and then checks the flag.
        entry.torn.store(true, Release);
        // SAFETY: the page lies in a mapping of ours that is in use right now, by the access that failed.
        let made = unsafe { libc::mmap(page as *mut libc::c_void, *page_bytes, protection, flags, -1, 0) };
        return made != libc::MAP_FAILED;
    }
    false
}

/// Does with a foreign SIGBUS what would have happened without this handler.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().map(|(before, _)| before);
    let Some(before) = before.filter(|before| !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN))
    else {
        // SAFETY: restores the default, under which the access that is repeated now ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag the field holds a function of this type.
        let handler = unsafe {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(
                before.sa_sigaction,
            )
        };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag the field holds a function of this type.
        let handler =
            unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before.sa_sigaction) };
        handler(signal);
    }
}
