//! Whether a log dir has room: a reserve that clients may not use, and the end of all space.
//!
//! The reserve is for work that must go on while producers wait: group offsets, deletion, checkpoints. The dir is
//! measured now and then and after each shortage, not at each append; when space comes back, the next measurement finds
//! it. Records that were appended since, and those that only the journal has, will need room as well and are
//! subtracted: otherwise a burst of producers would use up the reserve before the next measurement. Compaction of
//! clients' logs keeps off the reserve as well. That of the server's own logs may use it, because only compaction
//! removes the group offsets that go on in it; it leaves a floor for them. Both have the dir measured before each piece
//! that they write.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::error::LogError;
use crate::producer_state::AppendOrigin;
use crate::write_cache::take_off;

/// Compaction of the server's own logs leaves this share of the reserve.
const FLOOR_SHARE: u64 = 8;
/// In the reserve, an own log's active segment of this share of it is ended. Group offsets lie in 50 logs unless
/// configured otherwise.
const ROLL_SHARE: u64 = 128;

const AMPLE: u8 = 0;
/// Less is left than the reserve.
const RESERVE: u8 = 1;
/// The journal's entries cannot be brought into the segments.
const FULL: u8 = 2;

/// The room of one log dir at the last measurement, and the changes since.
///
/// Invariants: `unsettled_bytes` is the dir's part of the write cache's count.
#[derive(Debug)]
pub(crate) struct Space {
    reserve_bytes: u64,
    state: AtomicU8,
    /// Free bytes at the last measurement, without those that were unsettled then and those that were appended since.
    left_bytes: AtomicI64,
    unsettled_bytes: AtomicU64,
    /// Free bytes at the last measurement since settling found no room: with more of them another attempt is worth it.
    free_when_full: AtomicU64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// As before.
    Same,
    /// Clients are refused now, or no longer.
    Other,
    /// The dir is full, and there is more room than when settling found none: another attempt is due.
    WorthATry,
}

impl Space {
    pub(crate) fn new(reserve_bytes: u64) -> Self {
        Self {
            reserve_bytes,
            state: AtomicU8::new(AMPLE),
            left_bytes: AtomicI64::new(i64::MAX),
            unsettled_bytes: AtomicU64::new(0),
            free_when_full: AtomicU64::new(u64::MAX),
        }
    }

    /// Clients are refused while less is left.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Refuses an append for which there is no room; it may come again later.
    pub(crate) fn check(&self, origin: AppendOrigin, dir: &Path) -> Result<(), LogError> {
        let has_room = origin == AppendOrigin::Coordinator || !self.is_in_reserve();
        if has_room && !self.is_full() { Ok(()) } else { Err(self.refusal(dir)) }
    }

    /// Bytes that compaction of a log that `origin` appends to may write, by the last measurement; none in a full dir.
    pub(crate) fn room_bytes(&self, origin: AppendOrigin) -> u64 {
        let kept_bytes = match origin {
            AppendOrigin::Client => self.reserve_bytes,
            AppendOrigin::Coordinator => self.reserve_bytes / FLOOR_SHARE,
        };
        let left_bytes = self.left_bytes.load(Ordering::Relaxed);
        let room_bytes = u64::try_from(left_bytes).unwrap_or(0).saturating_sub(kept_bytes);
        if self.is_full() { 0 } else { room_bytes }
    }

    /// The size of an own log's active segment at which compaction should get at it.
    pub(crate) fn own_active_bytes_max(&self) -> u64 {
        if self.is_in_reserve() { self.reserve_bytes / ROLL_SHARE } else { u64::MAX }
    }

    /// The error of a request without room.
    pub(crate) fn refusal(&self, dir: &Path) -> LogError {
        LogError::DirFull {
            path: dir.to_path_buf(),
            available_bytes: u64::try_from(self.left_bytes.load(Ordering::Relaxed)).unwrap_or(0),
            reserve_bytes: self.reserve_bytes,
        }
    }

    /// Never without a reserve: then the disk itself refuses when it is full.
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
        take_off(&self.unsettled_bytes, bytes);
    }

    /// Bytes that need room and have none yet. Read before the free space: bytes that are settled in between count
    /// twice then, and not at all the other way round.
    pub(crate) fn unsettled_bytes(&self) -> u64 {
        self.unsettled_bytes.load(Ordering::Relaxed)
    }

    /// So much is free now, and so much of it is promised already.
    pub(crate) fn measured(&self, available_bytes: u64, unsettled_bytes: u64) -> Measured {
        let left_bytes = to_signed(available_bytes).saturating_sub(to_signed(unsettled_bytes));
        self.left_bytes.store(left_bytes, Ordering::Relaxed);
        let measured = if self.is_in_reserve() { RESERVE } else { AMPLE };
        let other = if measured == AMPLE { RESERVE } else { AMPLE };
        // A full dir stays full until a write has succeeded.
        if self.is_full() {
            let before = self.free_when_full.swap(available_bytes, Ordering::Relaxed);
            return if available_bytes > before { Measured::WorthATry } else { Measured::Same };
        }
        let is_other =
            self.state.compare_exchange(other, measured, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_other { Measured::Other } else { Measured::Same }
    }

    /// Settling found no room. The next measurement shows how much there was.
    pub(crate) fn found_full(&self) {
        self.free_when_full.store(u64::MAX, Ordering::Relaxed);
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
    use Measured::{Same, WorthATry};

    use super::*;

    #[test]
    fn clients_keep_off_the_reserve_and_everybody_off_a_full_dir() {
        let space = Space::new(1000);
        let is_refused = |origin| space.check(origin, Path::new("/logs")).is_err();
        assert_eq!(space.measured(1000, 0), Measured::Same);
        assert!(!is_refused(Client));
        assert_eq!(space.measured(999, 0), Measured::Other);
        assert!(is_refused(Client) && !is_refused(Coordinator));
        space.found_full();
        assert_eq!(
            space.measured(5000, 0),
            Measured::Same,
            "room that was measured is not room that was used"
        );
        assert!(is_refused(Client) && is_refused(Coordinator));
        assert!(space.found_room());
        assert!(!is_refused(Client));
        assert_eq!(space.measured(10, 0), Measured::Other);
        assert_eq!(space.measured(5000, 0), Measured::Other);
        assert!(!is_refused(Client));
    }

    #[test]
    fn room_beside_the_reserve_is_the_rest_of_the_last_measurement() {
        let space = Space::new(1000);
        space.add_unsettled(200);
        space.measured(3000, space.unsettled_bytes());
        assert_eq!(space.room_bytes(Client), 1800);
        assert_eq!(space.room_bytes(Coordinator), 2675, "an eighth of the reserve stays");
        assert_eq!(space.own_active_bytes_max(), u64::MAX);
        space.take(500);
        assert_eq!(space.room_bytes(Client), 1300);
        space.take(2000);
        assert_eq!(space.room_bytes(Client), 0, "in the reserve");
        assert_eq!(space.room_bytes(Coordinator), 175);
        assert_eq!(space.own_active_bytes_max(), 7);
        space.take(2000);
        assert_eq!(space.room_bytes(Client), 0, "less than nothing is left");
        space.measured(3000, 0);
        space.found_full();
        let room = [Client, Coordinator].map(|origin| space.room_bytes(origin));
        assert_eq!(room, [0, 0], "whether any of it can be used is unknown");
    }

    #[test]
    fn full_dir_is_tried_again_only_with_more_room_than_before() {
        let space = Space::new(1000);
        space.found_full();
        let measured = [7, 7, 5, 6, 6, 5000, 5000].map(|available_bytes| space.measured(available_bytes, 0));
        assert_eq!(measured, [Same, Same, Same, WorthATry, Same, WorthATry, Same]);
        space.found_full();
        assert_eq!(space.measured(6000, 0), Same, "so much was there when it was tried");
        assert_eq!(space.measured(6001, 0), WorthATry);
    }

    #[test]
    fn later_appends_and_unsettled_bytes_reduce_the_room() {
        let space = Space::new(1000);
        let is_refused = |origin| space.check(origin, Path::new("/logs")).is_err();
        space.measured(3000, 0);
        space.take(2000);
        assert!(!is_refused(Client));
        space.take(1);
        assert!(is_refused(Client) && !is_refused(Coordinator), "it was not measured yet");
        space.add_unsettled(500);
        space.measured(1499, space.unsettled_bytes());
        assert!(is_refused(Client));
        space.remove_unsettled(500);
        space.measured(1499, space.unsettled_bytes());
        assert!(!is_refused(Client));
    }
}
