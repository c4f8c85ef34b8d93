//! The state of a partition whose files are open: what the appender owns, and what readers see.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use riverrun_env::File;
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::read::RecentReads;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::index::IndexCursor;
use crate::producer_state::ProducerStates;
use crate::segment::{Extent, Home, Segment};

/// What readers see of the log: a snapshot that costs one reference count.
///
/// Invariants: segments are in the order of their offsets; all but the last are sealed; everything below `end` lies
/// in the first `last_bytes` bytes of the last segment or in the others.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) segments: Arc<Vec<Arc<Segment>>>,
    pub(crate) log_start: Offset,
    pub(crate) end: Offset,
    pub(crate) last_bytes: u64,
    pub(crate) last_max_timestamp: TimestampMs,
    pub(crate) sealed_bytes: u64,
    pub(crate) latest_epoch: Option<LeaderEpoch>,
    /// Counts the times that segments were replaced: positions found before do not hold after.
    pub(crate) generation: u64,
}

impl View {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.sealed_bytes + self.last_bytes
    }

    /// How far segment `index` reaches for readers of this view.
    pub(crate) fn extent(&self, index: usize) -> Extent {
        if index + 1 == self.segments.len() {
            return Extent { size_bytes: self.last_bytes, next_offset: self.end };
        }
        self.segments[index].extent().expect("all but the last segment are sealed")
    }

    /// Index of the segment that holds `offset`, or would.
    pub(crate) fn segment_of(&self, offset: Offset) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base_offset <= offset).checked_sub(1)
    }

    /// Largest timestamp of segment `index`.
    pub(crate) fn max_timestamp(&self, index: usize) -> Result<TimestampMs, LogError> {
        let segment = &self.segments[index];
        if segment.extent().is_some() { segment.max_timestamp() } else { Ok(self.last_max_timestamp) }
    }

    /// Puts other segments in the place of all. If the last one is not sealed it is the one that was last before.
    pub(crate) fn set_segments(&mut self, segments: Vec<Arc<Segment>>) {
        let size = |segment: &Arc<Segment>| segment.extent().map_or(0, |extent| extent.size_bytes);
        if let Some((last, sealed)) = segments.split_last() {
            self.sealed_bytes = sealed.iter().map(size).sum();
            self.last_bytes = last.extent().map_or(self.last_bytes, |extent| extent.size_bytes);
        }
        self.segments = Arc::new(segments);
    }
}

/// The segment that appends go to.
///
/// Invariants: `cursor` describes the batches that are published; bytes of the file beyond it are worth nothing.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) cursor: IndexCursor,
    /// Largest timestamp of the first batch, from which `segment.ms` counts.
    pub(crate) first_timestamp: Option<TimestampMs>,
    /// When the segment was made or opened, for batches without timestamps.
    pub(crate) opened_at: TimestampMs,
    /// Taken off `segment.ms`.
    pub(crate) jitter_ms: u64,
}

/// What only the appender touches.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) active: Option<ActiveSegment>,
    pub(crate) next_offset: Offset,
    /// Everything below was synced by a checkpoint.
    pub(crate) recovery_point: Offset,
    /// Something has changed that the checkpoint does not know.
    pub(crate) is_dirty: bool,
    /// This log is no longer the partition's current one.
    pub(crate) is_retired: bool,
    /// Offsets of the producer snapshots that exist, oldest first.
    pub(crate) snapshots: Vec<Offset>,
}

/// An open partition. Locks are taken in the order `appender`, then any one of the others.
#[derive(Debug)]
pub(crate) struct OpenLog {
    pub(crate) home: Arc<Home>,
    pub(crate) appender: Mutex<Appender>,
    view: Mutex<View>,
    epochs: Mutex<EpochCache>,
    producers: Mutex<ProducerStates>,
    /// First offset that compaction has not covered.
    pub(crate) first_dirty: Mutex<Option<Offset>>,
    pub(crate) recent_reads: Mutex<RecentReads>,
    pub(crate) doomed: Mutex<Vec<super::cleanup::DoomedFile>>,
    /// Held while segments are taken away or replaced, so that retention and compaction do not meet.
    pub(crate) reshaping: Mutex<()>,
}

/// What recovery has found.
#[derive(Debug)]
pub(crate) struct OpenParts {
    pub(crate) home: Arc<Home>,
    pub(crate) appender: Appender,
    pub(crate) view: View,
    pub(crate) epochs: EpochCache,
    pub(crate) producers: ProducerStates,
    pub(crate) first_dirty: Option<Offset>,
}

impl OpenLog {
    pub(crate) fn new(parts: OpenParts) -> Self {
        Self {
            home: parts.home,
            appender: Mutex::new(parts.appender),
            view: Mutex::new(parts.view),
            epochs: Mutex::new(parts.epochs),
            producers: Mutex::new(parts.producers),
            first_dirty: Mutex::new(parts.first_dirty),
            recent_reads: Mutex::default(),
            doomed: Mutex::default(),
            reshaping: Mutex::default(),
        }
    }

    /// What readers see now.
    pub(crate) fn view(&self) -> View {
        self.view.lock().clone()
    }

    /// Changes what readers see. Only under the appender's lock.
    pub(crate) fn update_view(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.lock());
    }

    pub(crate) fn epochs(&self) -> MutexGuard<'_, EpochCache> {
        self.epochs.lock()
    }

    pub(crate) fn producers(&self) -> MutexGuard<'_, ProducerStates> {
        self.producers.lock()
    }

    pub(crate) fn recovery_point(&self) -> Offset {
        self.appender.lock().recovery_point
    }

    pub(crate) fn close_unused_segments(&self) {
        for segment in self.view().segments.iter() {
            segment.close_unused_files();
        }
    }

    /// Refuses appends from now on, unless there is something that the checkpoint does not know, or retention or
    /// compaction are at work.
    pub(crate) fn retire(&self) -> bool {
        let Some(_reshaping) = self.reshaping.try_lock() else { return false };
        let mut appender = self.appender.lock();
        if appender.is_dirty {
            return false;
        }
        appender.is_retired = true;
        drop(appender);
        self.remove_doomed();
        true
    }

    /// Refuses appends from now on, whatever is lost by it.
    pub(crate) fn abandon(&self) {
        self.appender.lock().is_retired = true;
    }
}
