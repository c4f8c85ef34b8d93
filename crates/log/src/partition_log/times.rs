//! Finding records by time: `ListOffsets` with a timestamp, and with "the largest timestamp".

use std::cmp::Reverse;
use std::ops::ControlFlow;

use riverrun_env::File;
use riverrun_records::{BatchError, BatchHeader, Batches, UnverifiedBatch};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::PartitionLog;
use super::open::{OpenLog, View};
use super::tail::Piece;
use crate::bad_sector::read_exact;
use crate::error::LogError;
use crate::segment::{Extent, Segment};

/// A record found by time: its timestamp, its offset, and the epoch in which it was appended.
type Found = (TimestampMs, Offset, LeaderEpoch);

impl PartitionLog {
    /// The first record, in the order of offsets, whose timestamp is `timestamp` or later; none if there is none.
    pub fn offset_for_timestamp(&self, timestamp: TimestampMs) -> Result<Option<Found>, LogError> {
        let log = self.open()?;
        log.find_by_time(timestamp).inspect_err(|error| self.note_damage(error))
    }

    /// The first record with the largest timestamp of those that are there; none if there is none with a timestamp.
    pub fn max_timestamp(&self) -> Result<Option<Found>, LogError> {
        let log = self.open()?;
        log.find_largest().inspect_err(|error| self.note_damage(error))
    }
}

impl OpenLog {
    /// What the indexes say is tried first. It is the timestamp of no record that is there where the log start has passed
    /// it, or compaction has emptied its batch; then the segments are looked through.
    fn find_largest(&self) -> Result<Option<Found>, LogError> {
        let (view, in_tail) = {
            let shown = self.shown.lock();
            (shown.view.clone(), shown.tail.max_timestamp())
        };
        let noted = noted_timestamps(&view)?.into_iter().fold(in_tail, TimestampMs::max);
        if noted == TimestampMs::NONE {
            return Ok(None);
        }
        if let Some(found) = self.find_by_time(noted)? {
            return Ok(Some(found));
        }
        match self.largest_of_records()? {
            TimestampMs::NONE => Ok(None),
            largest => self.find_by_time(largest),
        }
    }

    /// The largest timestamp of the records that are there. Segments that may have the largest one come first, so that
    /// most of the others need no look.
    fn largest_of_records(&self) -> Result<TimestampMs, LogError> {
        let (view, tail) = self.snapshot_since(TimestampMs::NONE);
        let batches = tail.iter().flat_map(|piece| Batches::new(&piece.bytes).map_while(Result::ok));
        // The journal's bytes were checked when they came.
        let in_tail = batches.filter_map(|batch| largest_in_batch(batch.bytes(), view.log_start).ok());
        let mut largest = in_tail.max().unwrap_or(TimestampMs::NONE);
        let mut segments: Vec<(TimestampMs, usize)> = noted_timestamps(&view)?.into_iter().zip(0..).collect();
        segments.sort_unstable_by_key(|(noted, _)| Reverse(*noted));
        for (noted, index) in segments {
            if noted <= largest {
                break;
            }
            let (segment, extent) = (&view.segments[index], view.extent(index));
            largest = largest_in_segment(segment, extent, view.log_start, largest)?;
        }
        Ok(largest)
    }

    /// Looks through the segments first, and through what was in the tail when they were.
    fn find_by_time(&self, timestamp: TimestampMs) -> Result<Option<Found>, LogError> {
        let (view, tail) = self.snapshot_since(timestamp);
        if let Some(found) = find_in_view(&view, timestamp)? {
            return Ok(Some(found));
        }
        for piece in &tail {
            if let Some(found) = find_in_piece(piece, timestamp, view.log_start) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The segments, and what of the tail may have a record of `timestamp` or later.
    fn snapshot_since(&self, timestamp: TimestampMs) -> (View, Vec<Piece>) {
        let shown = self.shown.lock();
        (shown.view.clone(), shown.tail.since(timestamp).cloned().collect())
    }
}

/// The largest timestamp that the index of each segment notes.
fn noted_timestamps(view: &View) -> Result<Vec<TimestampMs>, LogError> {
    (0..view.segments.len()).map(|index| view.max_timestamp(index)).collect()
}

/// The journal's bytes were checked when they came.
fn find_in_piece(piece: &Piece, timestamp: TimestampMs, log_start: Offset) -> Option<Found> {
    let mut batches = Batches::new(&piece.bytes).map_while(Result::ok);
    batches.find_map(|batch| find_in_batch(batch.bytes(), timestamp, log_start).ok()?)
}

fn find_in_view(view: &View, timestamp: TimestampMs) -> Result<Option<Found>, LogError> {
    for (index, segment) in view.segments.iter().enumerate() {
        if view.max_timestamp(index)? < timestamp {
            continue;
        }
        if let Some(found) = find_in_segment(segment, view.extent(index), timestamp, view.log_start)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_in_segment(
    segment: &Segment,
    extent: Extent,
    timestamp: TimestampMs,
    log_start: Offset,
) -> Result<Option<Found>, LogError> {
    let mut found = None;
    look_through(segment, extent, timestamp, log_start, |header, bytes| {
        if header.max_timestamp() < timestamp {
            return believe(bytes);
        }
        found = find_in_batch(bytes, timestamp, log_start)?;
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// The largest timestamp of the segment's records, or `above` if none is larger.
fn largest_in_segment(
    segment: &Segment,
    extent: Extent,
    log_start: Offset,
    above: TimestampMs,
) -> Result<TimestampMs, LogError> {
    let mut largest = above;
    look_through(segment, extent, TimestampMs(above.0.saturating_add(1)), log_start, |header, bytes| {
        if header.max_timestamp() <= largest {
            return believe(bytes);
        }
        largest = largest.max(largest_in_batch(bytes, log_start)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(largest)
}

/// Nothing was looked for in the batch, because of its header: that is right only if the header can be believed.
fn believe(bytes: &[u8]) -> Result<ControlFlow<()>, BatchError> {
    UnverifiedBatch::only(bytes)?.verify()?;
    Ok(ControlFlow::Continue(()))
}

/// Shows the batches that may have a record of `timestamp` or later, and are not deleted, until one breaks off. A damaged
/// batch is passed over if all up to its end is deleted.
fn look_through(
    segment: &Segment,
    extent: Extent,
    timestamp: TimestampMs,
    log_start: Offset,
    mut show: impl FnMut(&BatchHeader, &[u8]) -> Result<ControlFlow<()>, BatchError>,
) -> Result<(), LogError> {
    let log = segment.log_file()?;
    let start = begin_of_look(segment, timestamp, log_start)?;
    let mut position = start;
    let mut is_over = false;
    while !is_over && position < extent.size_bytes {
        // Before the look at it brings it back.
        segment.forget_if_evicted(position, position + 1)?;
        let header = segment.header_at(&*log, position, extent.size_bytes)?;
        let mut bytes = vec![0; header.size_bytes()];
        let read = read_exact(&*log, &mut bytes, position);
        read.map_err(|error| LogError::io(&segment.log_path(), error))?;
        let end = position + header.size_bytes() as u64;
        let is_deleted = header.last_offset() < log_start;
        let shown = if is_deleted { believe(&bytes) } else { show(&header, &bytes) };
        is_over = shown.map(|flow| flow.is_break()).or_else(|error| {
            let is_deleted = begins_at(segment, &*log, end, extent)? <= log_start;
            if is_deleted { Ok(false) } else { Err(LogError::batch(&segment.log_path(), position, error)) }
        })?;
        position = end;
    }
    // No CRC covers offsets and epochs.
    segment.prove_headers(start, position)
}

/// The last boundary before which nothing is late enough, or all is deleted.
fn begin_of_look(segment: &Segment, timestamp: TimestampMs, log_start: Offset) -> Result<u64, LogError> {
    let relative = log_start.0 - segment.base_offset.0;
    let early = segment.last_entry_where(|entry| entry.max_timestamp < timestamp)?;
    let deleted = segment.last_entry_where(|entry| i64::from(entry.relative_offset) <= relative)?;
    Ok(u64::from(early.position.max(deleted.position)))
}

/// The offset of the batch at a boundary, or of what follows the segment.
fn begins_at(segment: &Segment, log: &dyn File, position: u64, extent: Extent) -> Result<Offset, LogError> {
    if position == extent.size_bytes {
        return Ok(extent.next_offset);
    }
    Ok(segment.header_at(log, position, extent.size_bytes)?.base_offset())
}

fn find_in_batch(
    bytes: &[u8],
    timestamp: TimestampMs,
    log_start: Offset,
) -> Result<Option<Found>, BatchError> {
    let batch = UnverifiedBatch::only(bytes)?.verify()?;
    let mut found = None;
    batch.visit_stamps(|record| {
        if record.timestamp >= timestamp && record.offset >= log_start {
            found = Some((record.timestamp, record.offset, batch.leader_epoch()));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The largest timestamp of the batch's records that are not deleted; none if there is no such record.
fn largest_in_batch(bytes: &[u8], log_start: Offset) -> Result<TimestampMs, BatchError> {
    let batch = UnverifiedBatch::only(bytes)?.verify()?;
    let mut largest = TimestampMs::NONE;
    batch.visit_stamps(|record| {
        if record.offset >= log_start {
            largest = largest.max(record.timestamp);
        }
        ControlFlow::Continue(())
    })?;
    Ok(largest)
}
