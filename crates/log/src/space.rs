//! Whether a log dir has room: a reserve that clients may not use, and the end of all space.
//!
//! The reserve is for what must go on while producers wait: group offsets, deletion, checkpoints. It is measured now
//! and then and after each shortage, not at each append; when space comes back, the next measurement finds it.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::error::LogError;
use crate::producer_state::AppendOrigin;

const AMPLE: u8 = 0;
/// Less is left than the reserve.
const RESERVE: u8 = 1;
/// What the journal has cannot be brought into the segments.
const FULL: u8 = 2;

/// The room of one log dir as it was measured last.
#[derive(Debug)]
pub(crate) struct Space {
    reserve_bytes: u64,
    state: AtomicU8,
    available_bytes: AtomicU64,
}

impl Space {
    pub(crate) fn new(reserve_bytes: u64) -> Self {
        Self { reserve_bytes, state: AtomicU8::new(AMPLE), available_bytes: AtomicU64::new(u64::MAX) }
    }

    /// Refuses an append for which there is no room; it may come again later.
    pub(crate) fn check(&self, origin: AppendOrigin, dir: &Path) -> Result<(), LogError> {
        let state = self.state.load(Ordering::Relaxed);
        if state == AMPLE || (state == RESERVE && origin == AppendOrigin::Coordinator) {
            return Ok(());
        }
        Err(LogError::DirFull {
            path: dir.to_path_buf(),
            available_bytes: self.available_bytes.load(Ordering::Relaxed),
            reserve_bytes: self.reserve_bytes,
        })
    }

    /// So much is left now. Returns whether that changes anything.
    pub(crate) fn measured(&self, available_bytes: u64) -> bool {
        self.available_bytes.store(available_bytes, Ordering::Relaxed);
        let measured = if available_bytes < self.reserve_bytes { RESERVE } else { AMPLE };
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

#[cfg(test)]
mod tests {
    use AppendOrigin::{Client, Coordinator};

    use super::*;

    #[test]
    fn clients_keep_off_the_reserve_and_everybody_off_a_full_dir() {
        let space = Space::new(1000);
        let is_refused = |origin| space.check(origin, Path::new("/logs")).is_err();
        assert!(!space.measured(1000) && !is_refused(Client));
        assert!(space.measured(999));
        assert!(is_refused(Client) && !is_refused(Coordinator));
        space.found_full();
        assert!(!space.measured(5000), "room that was measured is not room that was used");
        assert!(is_refused(Client) && is_refused(Coordinator));
        assert!(space.found_room());
        assert!(!is_refused(Client));
        assert!(space.measured(10) && space.measured(5000) && !is_refused(Client));
    }
}
