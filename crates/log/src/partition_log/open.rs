//! The state of a partition whose files are open: the appenders' part, the segments' writer's part, and the readers'
//! part.

use std::mem::offset_of;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use riverrun_env::{prefetch, prefetch_at, prefetch_shared};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::PartitionLog;
use super::compact::UnfinishedSwap;
use super::journaled::JournalOwner;
use super::read::RecentReads;
use super::tail::{Piece, Tail};
use super::unreadable::Unreadable;
use super::unwritable::Unwritable;
use super::writer::SegmentWriter;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::log_dir::LogDir;
use crate::mode::Mode;
use crate::producer_state::ProducerStates;
use crate::rank::{self, Ranked, RankedGuard};
use crate::segment::{Extent, Home, Segment};

/// The readers' view of the log: a snapshot that costs one reference count.
///
/// Invariants: segments are in the order of their offsets; all but the last are sealed; everything below `settled_end`
/// lies in the first `last_bytes` bytes of the last segment or in the others; records between `settled_end` and `end`
/// are in the tail.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) segments: Arc<Vec<Arc<Segment>>>,
    pub(crate) log_start: Offset,
    /// End of the segments.
    pub(crate) settled_end: Offset,
    /// The log end.
    pub(crate) end: Offset,
    pub(crate) last_bytes: u64,
    pub(crate) last_max_timestamp: TimestampMs,
    pub(crate) sealed_bytes: u64,
    pub(crate) latest_epoch: Option<LeaderEpoch>,
    /// Counts the times that segments were replaced: positions found before do not hold after.
    pub(crate) generation: u64,
}

impl View {
    /// Bytes of all segments.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.sealed_bytes + self.last_bytes
    }

    /// The part of segment `index` that readers of this view see.
    pub(crate) fn extent(&self, index: usize) -> Extent {
        if index + 1 == self.segments.len() {
            return Extent { size_bytes: self.last_bytes, next_offset: self.settled_end };
        }
        self.segments[index].extent().expect("all but the last segment are sealed")
    }

    /// Index of the segment that holds `offset`, or would.
    pub(crate) fn segment_of(&self, offset: Offset) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base_offset <= offset).checked_sub(1)
    }

    /// The segment that begins at `base`.
    pub(crate) fn segment_at(&self, base: Offset) -> Option<&Arc<Segment>> {
        let index = self.segments.binary_search_by_key(&base, |segment| segment.base_offset).ok()?;
        self.segments.get(index)
    }

    /// Largest timestamp of segment `index`.
    pub(crate) fn max_timestamp(&self, index: usize) -> Result<TimestampMs, LogError> {
        let segment = &self.segments[index];
        if segment.extent().is_some() { segment.max_timestamp() } else { Ok(self.last_max_timestamp) }
    }

    /// Replaces all segments. If the last one is not sealed, it was the last one before, too.
    pub(crate) fn set_segments(&mut self, segments: Vec<Arc<Segment>>) {
        let size = |segment: &Arc<Segment>| segment.extent().map_or(0, |extent| extent.size_bytes);
        if let Some((last, sealed)) = segments.split_last() {
            self.sealed_bytes = sealed.iter().map(size).sum();
            self.last_bytes = last.extent().map_or(self.last_bytes, |extent| extent.size_bytes);
        }
        self.segments = Arc::new(segments);
    }

    /// Removes the first `count` segments, and not the last one. Costs hardly more with many segments than with few,
    /// unless an older view is held.
    pub(crate) fn drop_front(&mut self, count: usize) {
        let size = |segment: &Arc<Segment>| segment.extent().map_or(0, |extent| extent.size_bytes);
        let gone: u64 = self.segments[..count].iter().map(size).sum();
        self.sealed_bytes -= gone;
        Arc::make_mut(&mut self.segments).drain(..count);
    }

    /// Adds a new, empty segment behind the last one, which is sealed. Costs no more with many segments than with few,
    /// unless an older view is held.
    pub(crate) fn push_segment(&mut self, segment: Arc<Segment>) {
        self.sealed_bytes += self.last_bytes;
        self.last_bytes = 0;
        self.last_max_timestamp = TimestampMs::NONE;
        Arc::make_mut(&mut self.segments).push(segment);
    }
}

/// The readers' view, and the bytes of it that lie in memory: both change together.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) view: View,
    pub(crate) tail: Tail,
    /// The log is not read or settled any more: entries that still come from the journal are dropped.
    pub(crate) is_abandoned: bool,
}

impl Shown {
    /// Bytes of the whole log.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.view.size_bytes() + self.tail.bytes()
    }
}

/// Assigns offsets.
///
/// Invariants: `next_offset` is the end of `staged`, if that is not empty.
#[derive(Debug)]
pub(crate) struct Appender {
    pub(crate) next_offset: Offset,
    /// Epoch of the newest record, staged ones included.
    pub(crate) latest_epoch: Option<LeaderEpoch>,
    pub(crate) mode: Mode,
    /// Pieces that have their offsets and lie nowhere else yet, in order.
    pub(crate) staged: Vec<Piece>,
    /// Bytes of the staged pieces that the write cache counts, because they may have to wait: for a change of level, or
    /// for the disk.
    pub(crate) held_up_bytes: u64,
    /// The staged pieces are left to the log dir's writer.
    pub(crate) is_left: bool,
    /// The log is being cut: nothing is appended to it any more. Stays set after a cut.
    pub(crate) is_being_cut: bool,
    /// This log is no longer the partition's current one.
    pub(crate) is_retired: bool,
}

/// An open partition. Locks are taken in the order `reshaping`, `writer`, `appender`, then any one of the others. Only
/// `reshaping` and `writer` are held during waits for the disk.
#[derive(Debug)]
pub(crate) struct OpenLog {
    /// The owner of the log's entries in the journal.
    pub(super) owner: Arc<JournalOwner>,
    pub(crate) dir: Arc<LogDir>,
    /// Number of the log's cuts.
    pub(crate) cuts: u32,
    /// The reason why the journal takes nothing more of this log.
    pub(super) journal_failure: OnceLock<LogError>,
    /// Bytes that were submitted to the journal and are not in the tail yet. Stored bytes move there while `shown` is
    /// locked.
    pub(super) submitted_bytes: AtomicU64,
    /// Everything below was put aside for a later start.
    pub(super) held_end: AtomicI64,
    /// Bytes that were put aside since the start and that no checkpoint covers.
    pub(super) held_bytes: AtomicU64,
    pub(super) unwritable: Unwritable,
    /// The partition's unreadable places.
    pub(super) unreadable: Arc<Unreadable>,
    pub(crate) home: Arc<Home>,
    pub(crate) writer: Ranked<rank::Writer, SegmentWriter>,
    pub(crate) appender: Ranked<rank::Appender, Appender>,
    pub(super) shown: Ranked<rank::Shown, Shown>,
    /// As in `shown`. A field of its own, because the journal's thread changes `shown` all the time.
    log_start: AtomicI64,
    epochs: Ranked<rank::Part, EpochCache>,
    /// The producers, as of the appender's next offset.
    producers: Ranked<rank::Part, ProducerStates>,
    /// First offset that compaction has not covered.
    pub(crate) first_dirty: Ranked<rank::Part, Option<Offset>>,
    /// None before the first read: many logs are only written to.
    pub(crate) recent_reads: Mutex<Option<Box<RecentReads>>>,
    pub(crate) doomed: Ranked<rank::Part, Vec<super::retention::DoomedFile>>,
    /// Held while segments are removed or replaced, so that retention and compaction do not meet. The swap in it is
    /// finished before any other change of segments.
    pub(crate) reshaping: Ranked<rank::Reshaping, Option<UnfinishedSwap>>,
}

/// The parts of a log that recovery has put together.
#[derive(Debug)]
pub(crate) struct OpenParts {
    pub(crate) cuts: u32,
    pub(crate) home: Arc<Home>,
    pub(crate) writer: SegmentWriter,
    pub(crate) view: View,
    pub(crate) epochs: EpochCache,
    pub(crate) first_dirty: Option<Offset>,
}

impl OpenLog {
    pub(crate) fn new(handle: &PartitionLog, mode: Mode, parts: OpenParts) -> Arc<Self> {
        let appender = Appender {
            next_offset: parts.view.end,
            latest_epoch: parts.view.latest_epoch,
            mode,
            staged: Vec::new(),
            held_up_bytes: 0,
            is_left: false,
            is_being_cut: false,
            is_retired: false,
        };
        Arc::new_cyclic(|this| Self {
            owner: Arc::new(JournalOwner::new(this.clone(), handle)),
            dir: handle.dir.clone(),
            cuts: parts.cuts,
            journal_failure: OnceLock::new(),
            submitted_bytes: AtomicU64::new(0),
            held_end: AtomicI64::new(0),
            held_bytes: AtomicU64::new(0),
            unwritable: Unwritable::default(),
            unreadable: handle.unreadable.clone(),
            log_start: AtomicI64::new(parts.view.log_start.0),
            home: parts.home,
            producers: Ranked::new(parts.writer.producers.clone()),
            writer: Ranked::new(parts.writer),
            appender: Ranked::new(appender),
            shown: Ranked::new(Shown { view: parts.view, tail: Tail::default(), is_abandoned: false }),
            epochs: Ranked::new(parts.epochs),
            first_dirty: Ranked::new(parts.first_dirty),
            recent_reads: Mutex::default(),
            doomed: Ranked::default(),
            reshaping: Ranked::default(),
        })
    }

    /// Prefetches the state that changes when a stored entry is shown.
    pub(super) fn prefetch_shown(this: &Weak<Self>) {
        prefetch_shared(this, offset_of!(Self, shown), size_of::<Ranked<rank::Shown, Shown>>());
        prefetch_at(this.as_ptr(), offset_of!(Self, submitted_bytes), size_of::<AtomicU64>());
        prefetch_at(this.as_ptr(), offset_of!(Self, dir), size_of::<usize>());
    }

    /// Prefetches the state that an append changes.
    pub(super) fn prefetch_appender(&self) {
        prefetch(&self.owner);
        prefetch(&self.dir);
        prefetch(&self.journal_failure);
        prefetch(&self.submitted_bytes);
        prefetch(&self.appender);
        prefetch(&self.log_start);
        prefetch(&self.producers);
    }

    /// The readers' present view.
    pub(crate) fn view(&self) -> View {
        self.shown.lock().view.clone()
    }

    /// First offset that can be read.
    pub(crate) fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    /// The log end.
    pub(crate) fn end(&self) -> Offset {
        self.shown.lock().view.end
    }

    /// Changes the segments of the readers' view.
    pub(crate) fn update_view(&self, change: impl FnOnce(&mut View)) {
        let unreadable = self.unreadable.base();
        let mut shown = self.shown.lock();
        let find = |view: &View| unreadable.and_then(|base| view.segment_at(base).cloned());
        let before = find(&shown.view);
        change(&mut shown.view);
        self.log_start.store(shown.view.log_start.0, Ordering::Release);
        let after = find(&shown.view);
        drop(shown);
        if let Some(gone) = before.filter(|before| !after.is_some_and(|after| Arc::ptr_eq(before, &after))) {
            self.unreadable.forget_in(gone.base_offset);
        }
    }

    /// Whether the log was cut, and another one has taken its place.
    pub(super) fn was_cut(&self) -> bool {
        let appender = self.appender.lock();
        appender.is_being_cut && appender.is_retired
    }

    pub(crate) fn epochs(&self) -> RankedGuard<'_, EpochCache> {
        self.epochs.lock()
    }

    pub(crate) fn producers(&self) -> RankedGuard<'_, ProducerStates> {
        self.producers.lock()
    }

    pub(crate) fn recovery_point(&self) -> Offset {
        self.writer.lock().recovery_point
    }

    pub(crate) fn close_unused_segments(&self) {
        for segment in self.view().segments.iter() {
            segment.close_unused_files();
        }
    }

    /// Refuses appends from now on, so that the log can be closed: [`Self::tidy_up`] comes next. Does nothing if the
    /// checkpoint lacks something of the log, or a writer, retention or compaction is at work. Waits for no disk.
    pub(crate) fn retire(&self) -> bool {
        let Some(_reshaping) = self.reshaping.try_lock() else { return false };
        let Some(writer) = self.writer.try_lock() else { return false };
        let mut appender = self.appender.lock();
        // Offsets that are neither staged nor in a segment are on their way through the journal.
        let is_on_its_way = appender.next_offset != writer.end || appender.mode.is_leaving();
        let has_segments = !self.shown.lock().view.segments.is_empty();
        if is_on_its_way || !writer.is_covered(has_segments) {
            return false;
        }
        appender.is_retired = true;
        true
    }

    /// Gives back what the files of a log that is retired do not need. The caller keeps it from being opened again
    /// meanwhile.
    pub(crate) fn tidy_up(&self) {
        self.writer.lock().give_space_back();
        self.remove_doomed();
    }

    /// Refuses appends from now on. Its records in memory are lost.
    pub(crate) fn abandon(&self) {
        let mut appender = self.appender.lock();
        appender.is_retired = true;
        appender.staged = Vec::new();
        let held_up_bytes = std::mem::take(&mut appender.held_up_bytes);
        drop(appender);
        let mut shown = self.shown.lock();
        shown.is_abandoned = true;
        let tail = std::mem::take(&mut shown.tail);
        // Entries that are still on their way are dropped: an entry gets into the tail under the same lock.
        let submitted_bytes = self.submitted_bytes.swap(0, Ordering::Relaxed);
        drop(shown);
        self.dir.shared().cache.move_aside(tail.aside_bytes(), 0);
        self.dir.remove_stored(tail.counted_bytes());
        self.dir.remove_submitted(submitted_bytes + held_up_bytes);
    }
}
