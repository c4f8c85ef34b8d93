//! A place in a segment that the disk does not give back: a bad sector.
//!
//! It is not damage that a checksum has found: the partition stays online, and records around the place are served. One
//! place of a partition is remembered, until it is read well again, the scrub has read all of its segment, or the
//! segment is no longer part of the log. A restart forgets it, too; the next read of it, or the scrub, reports it
//! again.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riverrun_types::Offset;

use super::open::OpenLog;
use super::{PartitionLog, State};
use crate::error::LogError;
use crate::file_names::{LOG_SUFFIX, parse_name};
use crate::segment::Segment;

#[derive(Debug)]
struct Place {
    /// Base offset of the segment.
    base: Offset,
    /// No offset from here on is hit. `None`: it has kept the log from being opened, so that the offset is unknown.
    until: Option<Offset>,
    error: LogError,
}

impl Place {
    /// Whether the place is among these bytes of a segment's `.log`.
    fn lies_in(&self, segment: &Segment, bytes: &Range<u64>) -> bool {
        let LogError::Unreadable { path, position } = &self.error else { return false };
        self.base == segment.base_offset && bytes.contains(position) && *path == segment.log_path()
    }
}

/// The remembered place of a partition, if there is one.
///
/// Invariants: `is_set` while there is one, for checks without the lock. Its error is [`LogError::Unreadable`].
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    is_set: AtomicBool,
    place: Mutex<Option<Box<Place>>>,
}

impl Unreadable {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Remembers `place` unless there is one; returns whether it is the first.
    fn set(&self, place: Place) -> bool {
        let mut known = self.place.lock();
        let is_first = known.is_none();
        known.get_or_insert_with(|| Box::new(place));
        self.is_set.store(true, Ordering::Relaxed);
        is_first
    }

    fn forget_if(&self, is_over: impl FnOnce(&Place) -> bool) {
        if !self.is_set() {
            return;
        }
        let mut place = self.place.lock();
        if place.as_deref().is_some_and(is_over) {
            *place = None;
            self.is_set.store(false, Ordering::Relaxed);
        }
    }

    /// Base offset of its segment.
    pub(super) fn base(&self) -> Option<Offset> {
        if self.is_set() { self.place.lock().as_deref().map(|place| place.base) } else { None }
    }

    /// The segment at `base` is well, or no longer part of the log.
    pub(super) fn forget_in(&self, base: Offset) {
        self.forget_if(|place| place.base == base);
    }

    /// The state of the place is unknown now.
    pub(super) fn forget(&self) {
        self.forget_if(|_| true);
    }

    /// The log was opened: the place that had kept it from that is read.
    pub(super) fn forget_opening(&self) {
        self.forget_if(|place| place.until.is_none());
    }
}

impl PartitionLog {
    /// The unreadable place of its segments, if one was met; none if the partition is offline because of damage. Opens
    /// nothing, and does not wait.
    pub(crate) fn unreadable(&self) -> Option<LogError> {
        if !self.unreadable.is_set() || self.damage().is_some() {
            return None;
        }
        let state = self.state.try_read()?;
        let view = if let State::Open(log) = &*state { Some(log.view()) } else { None };
        let place = self.unreadable.place.lock();
        let place = place.as_deref()?;
        let is_left = view.is_none_or(|view| {
            let is_deleted = place.until.is_some_and(|until| until <= view.log_start);
            !is_deleted && view.segment_at(place.base).is_some()
        });
        is_left.then(|| place.error.clone())
    }

    /// Remembers a bad sector, if the error is about one above the log start. Everything of its segment is proved anew,
    /// so that the place is not passed by unread.
    pub(crate) fn note_unreadable(&self, log: &OpenLog, error: &LogError) {
        let LogError::Unreadable { path, position } = error else { return };
        let is_of_dir = !matches!(self.dir.judge(error.clone()), LogError::Unreadable { .. });
        if is_of_dir || self.unreadable.is_set() {
            return;
        }
        let view = log.view();
        let Some(segment) = self.base_of(path).and_then(|base| view.segment_at(base)) else { return };
        let until = segment.end_of_stretch(*position);
        if until <= view.log_start {
            return;
        }
        segment.forget_proofs();
        self.remember(Place { base: segment.base_offset, until: Some(until), error: error.clone() });
    }

    /// As [`Self::note_unreadable`], for a log that cannot be opened.
    pub(super) fn note_opening_unreadable(&self, error: &LogError) {
        let LogError::Unreadable { path, .. } = error else { return };
        if let Some(base) = self.base_of(path) {
            self.remember(Place { base, until: None, error: error.clone() });
        }
    }

    fn remember(&self, place: Place) {
        let (error, keeps_closed) = (place.error.clone(), place.until.is_none());
        if !self.unreadable.set(place) {
            return;
        }
        let effect =
            if keeps_closed { "the partition cannot be opened" } else { "records around it are served" };
        tracing::error!(partition = %self.id, %error, effect, "a place of the partition cannot be read");
    }

    /// The segment was read to its end.
    pub(crate) fn forget_unreadable(&self, segment: &Segment) {
        self.unreadable.forget_in(segment.base_offset);
    }

    /// The base offset of the segment whose `.log` or index has this path.
    fn base_of(&self, path: &Path) -> Option<Offset> {
        let base = path.with_extension(&LOG_SUFFIX[1..]);
        let base = parse_name(base.file_name()?.to_str()?, LOG_SUFFIX)?;
        (path.parent() == Some(&*self.path())).then_some(base)
    }
}

impl OpenLog {
    /// These bytes of a segment's `.log` were read, unless they had been proved before.
    pub(super) fn forget_if_read(&self, segment: &Segment, bytes: &Range<u64>) {
        self.unreadable.forget_if(|place| place.lies_in(segment, bytes));
    }
}
