//! How the process' memory is kept: in few arenas.
//!
//! The C library's allocator gives threads arenas of their own, up to eight for each processor, and what one arena has
//! free the others cannot use. Our large pieces of memory (requests, the journal's groups) are taken by one thread and
//! given back by another, so that each arena keeps what it needed at its busiest: with 10,000 partitions and the write
//! cache full about 180 MB were in use, and the process had up to 450 MB in RAM; with two arenas it has 225 to 245 MB.
//! Small pieces come from caches of each thread's own, so that an arena's lock is rarely waited for.
//!
//! This is one call at the start, and only where the allocator is glibc's. Others were tried under the same load:
//! jemalloc took 305 MB and two minutes of building, mimalloc 340 MB.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "mallopt has no safe form")]
mod glibc {
    /// Two arenas, and one for each four processors where there are many.
    const ARENAS_MIN: usize = 2;
    const PROCESSORS_PER_ARENA: usize = 4;

    /// An owner who has set one of these knows better.
    const VARIABLES: [&str; 2] = ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"];

    pub(super) fn arenas_max(processors: usize) -> libc::c_int {
        let arenas = (processors / PROCESSORS_PER_ARENA).max(ARENAS_MIN);
        libc::c_int::try_from(arenas).unwrap_or(libc::c_int::MAX)
    }

    pub(super) fn bound_arenas() {
        if VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // SAFETY: takes two numbers and sets one of the allocator's own, under its own lock.
        let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas_max(processors)) } == 1;
        debug_assert!(is_set, "the allocator knows the option");
    }
}

/// Bounds the number of arenas. Before other threads are started: an arena that is there stays.
pub(crate) fn bound_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::bound_arenas();
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::glibc::arenas_max;

    #[test]
    fn there_are_two_arenas_and_more_only_with_many_processors() {
        assert_eq!([1, 2, 8, 12, 64].map(arenas_max), [2, 2, 2, 3, 16]);
    }
}
