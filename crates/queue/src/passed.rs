//! Segments that the queue has passed and that the background thread keeps mapped for a while.
//!
//! Unmapping takes milliseconds, which readers and appenders need not spend; and a segment that retention is going to
//! remove can be used again as it is. But a process can have only so many mappings (`trap.rs`), and a file that
//! another process has removed takes its space as long as it is mapped.
//!
//! Guarantees that one queue keeps no more than [`SEGMENTS_MAX`], and none in a process that is short of mappings.

use std::sync::Arc;

use riverrun_types::Offset;

use crate::segment::Segment;
use crate::trap;

/// Most bytes of segments that stay mapped, and most segments.
const BYTES_MAX: u64 = 4 << 30;
const SEGMENTS_MAX: usize = 64;

/// Passed segments of one queue.
///
/// Invariants: `segments` have rising base offsets.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    segments: Vec<Arc<Segment>>,
}

impl Passed {
    /// Adds the one that was passed last.
    pub(crate) fn push(&mut self, segment: Arc<Segment>) {
        self.segments.push(segment);
    }

    /// Takes the segment that begins with `base` out of the list.
    pub(crate) fn take(&mut self, base: Offset) -> Option<Arc<Segment>> {
        let index = self.segments.iter().position(|segment| segment.base == base)?;
        Some(self.segments.remove(index))
    }

    /// Unmaps segments whose files are gone, whichever process removed them, and those above the limit. Looks up few
    /// files.
    pub(crate) fn let_go(&mut self) {
        // Retention removes the oldest first, so an existing file ends the search.
        let mut gone = true;
        self.segments.retain(|segment| {
            gone = gone && !segment.path.exists();
            // The last user of a segment unmaps it, and that has to be the caller.
            !gone || Arc::strong_count(segment) > 1
        });
        let excess = self.segments.len().saturating_sub(self.limit(trap::is_crowded()));
        self.segments.drain(..excess);
    }

    fn limit(&self, crowded: bool) -> usize {
        let Some(first) = self.segments.first().filter(|_| !crowded) else { return 0 };
        SEGMENTS_MAX.min((BYTES_MAX / first.map.len() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::mapping::{Access, Mapping};
    use crate::segment::Segments;

    const BYTES: u64 = 4096;

    /// The test that fills the table runs alone.
    static TABLE: Mutex<()> = Mutex::new(());

    fn segments(dir: &tempfile::TempDir) -> Segments {
        Segments::new(dir.path(), BYTES, Access::Write)
    }

    /// Makes the next segment, and adds it to the passed ones.
    fn pass(segments: &Segments, passed: &mut Passed, number: u64) {
        let base = Offset(number.cast_signed());
        File::create(segments.path(base)).and_then(|file| file.set_len(BYTES)).expect("room");
        passed.push(segments.expect(base, number).expect("a place in the table"));
    }

    fn bases(passed: &Passed) -> Vec<i64> {
        passed.segments.iter().map(|segment| segment.base.0).collect()
    }

    #[test]
    fn very_many_small_segments_leave_room_for_other_mappings() {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a directory");
        let (segments, mut passed) = (segments(&dir), Passed::default());
        for number in 0..5000 {
            pass(&segments, &mut passed, number);
            passed.let_go();
        }
        assert_eq!(bases(&passed), (5000 - SEGMENTS_MAX as i64..5000).collect::<Vec<_>>());
    }

    #[test]
    fn process_short_of_mappings_keeps_no_passed_segments() {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a directory");
        let (segments, mut passed) = (segments(&dir), Passed::default());
        pass(&segments, &mut passed, 0);
        let file = File::open(segments.path(Offset(0))).expect("there");
        let mut others = Vec::new();
        while !trap::is_crowded() {
            others.push(Mapping::new(&file, BYTES as usize, Access::Read).expect("a place in the table"));
        }
        passed.let_go();
        assert!(passed.segments.is_empty());
    }

    #[test]
    fn only_segments_that_others_removed_are_unmapped() {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::tempdir().expect("a directory");
        let (segments, mut passed) = (segments(&dir), Passed::default());
        for number in 0..4 {
            pass(&segments, &mut passed, number);
        }
        passed.let_go();
        let read = Arc::clone(&passed.segments[0]);
        for base in 0..2 {
            assert!(segments.remove(Offset(base), false).expect("there"));
        }
        passed.let_go();
        assert_eq!(bases(&passed), [0, 2, 3], "the last user unmaps it, and that must not be a reader");
        drop(read);
        passed.let_go();
        assert_eq!(bases(&passed), [2, 3]);
        assert!(passed.take(Offset(3)).is_some_and(|segment| segment.base == Offset(3)));
        assert!(passed.take(Offset(3)).is_none());
    }
}
