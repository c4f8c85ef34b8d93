//! Looking through one segment for records of a time, batch by batch, as far as a slice goes.

use std::ops::ControlFlow;

use riverrun_env::File;
use riverrun_records::{BatchError, UnverifiedBatch};
use riverrun_types::{Offset, TimestampMs};

use super::open::{OpenLog, View};
use super::times::Wanted;
use crate::bad_sector::read_exact;
use crate::error::LogError;
use crate::index::IndexEntry;
use crate::segment::{Dense, Extent, Segment};

/// The place where a search goes on: all below the offset was looked through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) offset: Offset,
    boundary: Option<KnownBoundary>,
}

/// The boundary of the offset, as long as its segment is not replaced.
#[derive(Clone, Copy, Debug)]
struct KnownBoundary {
    generation: u64,
    base_offset: Offset,
    position: u64,
}

impl Place {
    pub(super) fn at(offset: Offset) -> Self {
        Self { offset, boundary: None }
    }

    /// All below that offset was looked through. It does not go back.
    pub(super) fn go_to(&mut self, offset: Offset) {
        *self = Self::at(offset.max(self.offset));
    }

    fn boundary_in(&self, view: &View, segment: &Segment) -> Option<u64> {
        let known = self.boundary?;
        let is_there = known.generation == view.generation && known.base_offset == segment.base_offset;
        is_there.then_some(known.position)
    }
}

/// The end of a look through a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It has seen all.
    Over,
    /// It has found the wanted record.
    BrokenOff,
    /// The slice is over.
    GivesWay,
}

impl OpenLog {
    /// Looks at the batches of a segment that may have the wanted record, and are not deleted, from a place on. A
    /// damaged batch is passed over if all up to its end is deleted.
    pub(super) fn look_through(
        &self,
        view: &View,
        index: usize,
        wanted: &mut Wanted,
        place: &mut Place,
        is_over: &mut dyn FnMut() -> bool,
    ) -> Result<Look, LogError> {
        let (segment, extent, log_start) = (&view.segments[index], view.extent(index), view.log_start);
        let from = log_start.max(place.offset);
        let begun = self.begin_in(view, index, wanted.at_least, place)?;
        let Some(start) = begun else { return Ok(Look::GivesWay) };
        let log = segment.log_file()?;
        let mut position = start;
        let mut look = Look::Over;
        while look == Look::Over && position < extent.size_bytes {
            // Before the look at it brings it back into memory.
            segment.forget_if_evicted(position, position + 1)?;
            let header = segment.header_at(&*log, position, extent.size_bytes)?;
            let mut bytes = vec![0; header.size_bytes()];
            let read = read_exact(&*log, &mut bytes, position);
            read.map_err(|error| LogError::io(&segment.log_path(), error))?;
            let end = position + header.size_bytes() as u64;
            let needs_no_look = header.last_offset() < from || header.max_timestamp() < wanted.at_least;
            let seen = if needs_no_look { believe(&bytes) } else { wanted.look_at(&bytes, log_start) };
            let flow = seen.or_else(|error| {
                let is_deleted = begins_at(segment, &*log, end, extent)? <= log_start;
                let passed_over = is_deleted.then_some(ControlFlow::Continue(()));
                passed_over.ok_or_else(|| LogError::batch(&segment.log_path(), position, error))
            })?;
            position = end;
            place.go_to(header.next_offset());
            if flow.is_break() {
                look = Look::BrokenOff;
            } else if position < extent.size_bytes && is_over() {
                look = Look::GivesWay;
            }
        }
        // No CRC covers offsets and epochs.
        segment.prove_headers(start, position)?;
        let (generation, base_offset) = (view.generation, segment.base_offset);
        match look {
            Look::Over => place.go_to(extent.next_offset),
            _ => place.boundary = Some(KnownBoundary { generation, base_offset, position }),
        }
        Ok(look)
    }

    /// The begin of a look through the segment, or its next place; none if its index has to be made dense first.
    fn begin_in(
        &self,
        view: &View,
        index: usize,
        at_least: TimestampMs,
        place: &Place,
    ) -> Result<Option<u64>, LogError> {
        let segment = &view.segments[index];
        if let Some(position) = place.boundary_in(view, segment) {
            return Ok(Some(position));
        }
        let entry = begin_of_look(segment, at_least, view.log_start.max(place.offset))?;
        let dense = self.dense_at(segment, entry, view.extent(index).size_bytes)?;
        Ok((dense != Dense::NotYet).then_some(u64::from(entry.position)))
    }
}

/// The batch was skipped because of its header: that is right only if the header can be believed.
fn believe(bytes: &[u8]) -> Result<ControlFlow<()>, BatchError> {
    UnverifiedBatch::only(bytes)?.verify()?;
    Ok(ControlFlow::Continue(()))
}

/// The last boundary before which no batch is late enough, or all are below `from`.
fn begin_of_look(segment: &Segment, timestamp: TimestampMs, from: Offset) -> Result<IndexEntry, LogError> {
    let relative = from.0 - segment.base_offset.0;
    let early = segment.last_entry_where(|entry| entry.max_timestamp < timestamp)?;
    let below = segment.last_entry_where(|entry| i64::from(entry.relative_offset) <= relative)?;
    Ok(if early.position > below.position { early } else { below })
}

/// The offset of the batch at a boundary, or of the next segment.
fn begins_at(segment: &Segment, log: &dyn File, position: u64, extent: Extent) -> Result<Offset, LogError> {
    if position == extent.size_bytes {
        return Ok(extent.next_offset);
    }
    Ok(segment.header_at(log, position, extent.size_bytes)?.base_offset())
}
