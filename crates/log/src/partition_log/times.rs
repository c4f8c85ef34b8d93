//! Finding records by time: `ListOffsets` with a timestamp, and with "the largest timestamp".

use std::ops::ControlFlow;

use riverrun_env::File;
use riverrun_records::{Batches, UnverifiedBatch};
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

    /// The first record with the largest timestamp of the log; none if the log is empty.
    pub fn max_timestamp(&self) -> Result<Option<Found>, LogError> {
        let log = self.open()?;
        let (view, mut largest) = {
            let shown = log.shown.lock();
            (shown.view.clone(), shown.tail.max_timestamp())
        };
        for index in 0..view.segments.len() {
            let of_segment = view.max_timestamp(index).inspect_err(|error| self.note_damage(error))?;
            largest = largest.max(of_segment);
        }
        if largest == TimestampMs::NONE {
            return Ok(None);
        }
        log.find_by_time(largest).inspect_err(|error| self.note_damage(error))
    }
}

impl OpenLog {
    /// Looks through the segments first, and through what was in the tail when they were.
    fn find_by_time(&self, timestamp: TimestampMs) -> Result<Option<Found>, LogError> {
        let (view, tail) = {
            let shown = self.shown.lock();
            let tail: Vec<Piece> = shown.tail.since(timestamp).cloned().collect();
            (shown.view.clone(), tail)
        };
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
    let log = segment.log_file()?;
    let start = begin_of_look(segment, timestamp, log_start)?;
    let mut position = start;
    let mut found = None;
    while found.is_none() && position < extent.size_bytes {
        // Before the look at it brings it back.
        segment.forget_if_evicted(position, position + 1)?;
        let header = segment.header_at(&*log, position, extent.size_bytes)?;
        let mut bytes = vec![0; header.size_bytes()];
        let read = read_exact(&*log, &mut bytes, position);
        read.map_err(|error| LogError::io(&segment.log_path(), error))?;
        let end = position + header.size_bytes() as u64;
        let is_candidate = header.max_timestamp() >= timestamp && header.last_offset() >= log_start;
        found = if is_candidate {
            find_in_batch(&bytes, timestamp, log_start)
        } else {
            // Nothing was found here only if the header can be believed.
            UnverifiedBatch::only(&bytes).and_then(UnverifiedBatch::verify).map(|_| None)
        }
        .or_else(|error| {
            let is_deleted = begins_at(segment, &*log, end, extent)? <= log_start;
            if is_deleted { Ok(None) } else { Err(LogError::batch(&segment.log_path(), position, error)) }
        })?;
        position = end;
    }
    // No CRC covers offsets and epochs.
    segment.prove_headers(start, position)?;
    Ok(found)
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
) -> Result<Option<Found>, riverrun_records::BatchError> {
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
