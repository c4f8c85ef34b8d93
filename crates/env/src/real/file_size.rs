//! The largest file that the process may write (`ulimit -f`).

/// Makes a write beyond that limit fail with an error, EFBIG, instead of the signal SIGXFSZ that ends the process.
/// The signal is the whole process's, and its children ignore it, too: so this is for the program that owns the
/// process, before its first threads and children.
#[expect(unsafe_code, reason = "a system call that takes numbers only, for which rustix has no function")]
pub fn ignore_file_size_signal() {
    // SAFETY: sets how one signal is taken, and hands no handler over.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    debug_assert_ne!(before, libc::SIG_ERR, "the system knows the signal");
}
