//! Whether lookups in a segment of this log walk far, and an end to it.

use std::sync::Arc;

use super::open::OpenLog;
use crate::error::LogError;
use crate::index::IndexEntry;
use crate::segment::{Dense, Segment};

impl OpenLog {
    /// Whether a lookup from this entry on walks no further than in an index of today. If it would, the index is made anew,
    /// by a piece of bounded size with each call.
    pub(super) fn dense_at(
        &self,
        segment: &Arc<Segment>,
        entry: IndexEntry,
        size_bytes: u64,
    ) -> Result<Dense, LogError> {
        if !segment.is_sparse_behind(entry, size_bytes)? {
            return Ok(Dense::Yes);
        }
        // Nothing is written to a dir that has failed.
        if self.dir.has_failed() {
            return Ok(Dense::Never);
        }
        let read = segment.read_for_index();
        if read != Dense::Yes {
            return Ok(read);
        }
        // Retention or compaction is at work: until it has ended the walk is long.
        let Some(_reshaping) = self.reshaping.try_lock() else { return Ok(Dense::Never) };
        let is_there = self.view().segment_at(segment.base_offset).is_some_and(|at| Arc::ptr_eq(at, segment));
        if !is_there {
            return Ok(Dense::Never);
        }
        if segment.replace_index() == Dense::Never {
            return Ok(Dense::Never);
        }
        // What was looked up before is an entry of the index that was.
        Ok(Dense::NotYet)
    }
}
