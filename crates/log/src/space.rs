//! Whether a log dir has room: a reserve that clients may not use, and the end of all space.
//!
//! The reserve is for what must go on while producers wait: group offsets, deletion, checkpoints. The dir is measured now
//! and then and after each shortage, not at each append; when space comes back, the next measurement finds it. What was
//! appended since, and what only the journal has yet, will need room as well and is taken off: otherwise a burst of
//! producers would be through the reserve before anybody looks.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::error::LogError;
use crate::producer_state::AppendOrigin;

const AMPLE: u8 = 0;
/// Less is left than the reserve.
const RESERVE: u8 = 1;
/// What the journal has cannot be brought into the segments.
const FULL: u8 = 2;

/// The room of one log dir as it was measured last, and what became of it since.
///
/// Invariants: `unsettled_bytes` is the dir's part of what the write cache counts.
#[derive(Debug)]
pub(crate) struct Space {
    reserve_bytes: u64,
    state: AtomicU8,
    /// What was free when it was measured, without what was unsettled then and what was appended since.
    left_bytes: AtomicI64,
    unsettled_bytes: AtomicU64,
}

impl Space {
    pub(crate) fn new(reserve_bytes: u64) -> Self {
        Self {
            reserve_bytes,
            state: AtomicU8::new(AMPLE),
            left_bytes: AtomicI64::new(i64::MAX),
            unsettled_bytes: AtomicU64::new(0),
        }
    }

    /// Refuses an append for which there is no room; it may come again later.
    pub(crate) fn check(&self, origin: AppendOrigin, dir: &Path) -> Result<(), LogError> {
        let has_room = origin == AppendOrigin::Coordinator || !self.is_in_reserve();
        if has_room && !self.is_full() {
            return Ok(());
        }
        Err(LogError::DirFull {
            path: dir.to_path_buf(),
            available_bytes: u64::try_from(self.left_bytes.load(Ordering::Relaxed)).unwrap_or(0),
            reserve_bytes: self.reserve_bytes,
        })
    }

    /// Never without a reserve: then the disk itself says when it is full.
    fn is_in_reserve(&self) -> bool {
        self.reserve_bytes > 0 && self.left_bytes.load(Ordering::Relaxed) < to_signed(self.reserve_bytes)
    }

    /// So many bytes were appended, and need room now or when they are settled.
    pub(crate) fn take(&self, bytes: u64) {
        self.left_bytes.fetch_sub(to_signed(bytes), Ordering::Relaxed);
    }

    /// So many bytes more are unsettled.
    pub(crate) fn add_unsettled(&self, bytes: u64) {
        self.unsettled_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes are settled, or never will be.
    pub(crate) fn remove_unsettled(&self, bytes: u64) {
        self.unsettled_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that need room and have none yet. Read before what is available: what is settled in between counts twice
    /// then, and not at all the other way round.
    pub(crate) fn unsettled_bytes(&self) -> u64 {
        self.unsettled_bytes.load(Ordering::Relaxed)
    }

    /// So much is available now, and so much of it is promised already. Returns whether that changes anything.
    pub(crate) fn measured(&self, available_bytes: u64, unsettled_bytes: u64) -> bool {
        let left_bytes = to_signed(available_bytes).saturating_sub(to_signed(unsettled_bytes));
        self.left_bytes.store(left_bytes, Ordering::Relaxed);
        let measured = if self.is_in_reserve() { RESERVE } else { AMPLE };
        let other = if measured == AMPLE { RESERVE } else { AMPLE };
        // A full dir stays full until something could be written.
        self.state.compare_exchange(other, measured, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Settling found no room.
    pub(crate) fn found_full(&self) {
        self.state.store(FULL, Ordering::Relaxed);
    }

    /// Everything could be settled. Returns whether that changes anything.
    pub(crate) fn found_room(&self) -> bool {
        self.state.compare_exchange(FULL, AMPLE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FULL
    }
}

fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use AppendOrigin::{Client, Coordinator};

    use super::*;

    #[test]
    fn clients_keep_off_the_reserve_and_everybody_off_a_full_dir() {
        let space = Space::new(1000);
        let is_refused = |origin| space.check(origin, Path::new("/logs")).is_err();
        assert!(!space.measured(1000, 0) && !is_refused(Client));
        assert!(space.measured(999, 0));
        assert!(is_refused(Client) && !is_refused(Coordinator));
        space.found_full();
        assert!(!space.measured(5000, 0), "room that was measured is not room that was used");
        assert!(is_refused(Client) && is_refused(Coordinator));
        assert!(space.found_room());
        assert!(!is_refused(Client));
        assert!(space.measured(10, 0) && space.measured(5000, 0) && !is_refused(Client));
    }
    #[test]
    fn what_was_appended_since_and_what_is_unsettled_leaves_less() {
        let space = Space::new(1000);
        let is_refused = |origin| space.check(origin, Path::new("/logs")).is_err();
        space.measured(3000, 0);
        space.take(2000);
        assert!(!is_refused(Client));
        space.take(1);
        assert!(is_refused(Client) && !is_refused(Coordinator), "nobody has measured it yet");
        space.add_unsettled(500);
        space.measured(1499, space.unsettled_bytes());
        assert!(is_refused(Client));
        space.remove_unsettled(500);
        space.measured(1499, space.unsettled_bytes());
        assert!(!is_refused(Client));
    }
}
