//! Whether lookups in a segment of this log walk far, and an end to it.

use std::sync::Arc;

use super::open::OpenLog;
use crate::error::LogError;
use crate::index::IndexEntry;
use crate::segment::{Dense, Segment};

impl OpenLog {
    /// Whether a lookup from this entry on walks no further than in an index of today. If it would, the index is made anew,
    /// by a piece of bounded size with each call.
    pub(crate) fn dense_at(
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
        match segment.read_for_index() {
            Dense::Yes => Ok(self.replace_index_of(segment)),
            Dense::Never if segment.is_sparse_behind(entry, size_bytes)? => Ok(Dense::Never),
            // `Never`: another thread has made it dense since the entry was looked up.
            Dense::NotYet | Dense::Never => Ok(Dense::NotYet),
        }
    }

    /// `NotYet`: the caller's entry is one of the old index.
    fn replace_index_of(&self, segment: &Arc<Segment>) -> Dense {
        // Retention or compaction is at work: until it has ended the walk is long.
        let Some(_reshaping) = self.reshaping.try_lock() else { return Dense::Never };
        if self.appender.lock().is_being_cut {
            // The files belong to another log now.
            return Dense::Never;
        }
        let is_there = self.view().segment_at(segment.base_offset).is_some_and(|at| Arc::ptr_eq(at, segment));
        if !is_there {
            segment.leave_index();
            return Dense::Never;
        }
        if let Err(error) = segment.replace_index() {
            // Lookups go on in memory.
            let error = self.dir.judge(error);
            tracing::warn!(path = %segment.index_path().display(), %error, "the dense index is not written");
        }
        Dense::NotYet
    }
}
