//! A partition's part in a checkpoint: captures the state that holds once the log dir is synced, and notes that it is.

use riverrun_types::Offset;

use super::open::OpenLog;
use super::writer::SegmentWriter;
use super::{PartitionLog, State};
use crate::checkpoint::PartitionCheckpoint;
use crate::error::LogError;
use crate::log_dir::Unwritten;
use crate::producer_state::EncodedProducers;
use crate::segment::Segment;

/// Bytes of a partition's producers that a checkpoint holds at most: those of five producers, or of more with few
/// batches.
const PRODUCERS_BYTES_MAX: usize = 1024;

impl PartitionLog {
    /// The state for the next checkpoint, if it has changed since the last one. The index, and a state file if one is
    /// needed, are written, so that a sync of the log dir makes the returned state true. Nothing is durable before that
    /// sync.
    pub(crate) fn capture(&self) -> Result<Option<PartitionCheckpoint>, LogError> {
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return Ok(None),
        };
        let mut writer = log.writer.lock();
        if !writer.is_dirty || log.appender.lock().is_retired {
            return Ok(None);
        }
        self.check_not_vanished()?;
        writer.cut_stale()?;
        writer.complete_index()?;
        let producers = log.capture_producers(&mut writer)?;
        let view = log.view();
        writer.is_dirty = false;
        let first_dirty = *log.first_dirty.lock();
        Ok(Some(PartitionCheckpoint {
            recovery_point: writer.end,
            is_lost: false,
            cuts: log.cuts,
            cut_end: None,
            producers_end: writer.end,
            log_start: view.log_start,
            log_end: writer.end.max(view.log_start),
            first_dirty,
            producers_at: writer.states.named(),
            producers,
            size_bytes: view.size_bytes(),
            epochs: log.epochs_below(writer.end),
        }))
    }

    /// Syncs each segment of which something is not covered, by itself: for a file system whose own sync does not tell
    /// of lost bytes.
    pub(crate) fn sync_uncovered(&self) -> Result<(), LogError> {
        let Some(log) = self.current_log() else { return Ok(()) };
        let covered = log.recovery_point();
        let is_covered = |segment: &Segment| segment.extent().is_some_and(|end| end.next_offset <= covered);
        let view = log.view();
        let mut uncovered = view.segments.iter().filter(|segment| !is_covered(segment));
        uncovered.try_for_each(|segment| segment.sync_log())
    }

    /// The bytes of the segments that the next sync may have to write, in order. Waits for no writer.
    pub(crate) fn unwritten(&self) -> Vec<Unwritten> {
        let Some(log) = self.current_log() else { return Vec::new() };
        let view = log.view();
        let last = view.segments.len().saturating_sub(1);
        let parts = view.segments.iter().enumerate().rev().map(|(index, segment)| {
            let bytes = segment.unwritten(view.extent(index).size_bytes);
            (index, Unwritten { segment: segment.clone(), bytes })
        });
        // All bytes before a segment that is written were written before it.
        let parts = parts.take_while(|(index, part)| *index == last || !part.bytes.is_empty());
        let mut parts: Vec<_> = parts.map(|(_, part)| part).collect();
        parts.retain(|part| !part.bytes.is_empty());
        parts.reverse();
        parts
    }

    /// The checkpoint with `captured` in it is durable.
    pub(crate) fn confirm_capture(&self, captured: &PartitionCheckpoint) {
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return,
        };
        let mut writer = log.writer.lock();
        if log.cuts != captured.cuts || log.appender.lock().is_retired {
            // The log was cut since.
            return;
        }
        writer.recovery_point = writer.recovery_point.max(captured.recovery_point);
        if let Some(active) = &mut writer.active {
            active.has_unsynced_cut = false;
        }
        log.forget_held_below(captured.recovery_point);
        log.remove_needless_states(&mut writer, captured.producers_at);
        // While the log cannot be cut.
        self.marks.sync_to(captured.recovery_point);
        drop(writer);
        // Acks may wait for it: those of a log that is to sync and does not go through the journal yet.
        if self.level_promised() != self.level_reached() {
            self.marks.tell_advanced();
        }
    }
}

impl PartitionLog {
    /// The captured state did not get into a checkpoint.
    pub(crate) fn stay_dirty(&self) {
        if let Some(log) = self.current_log() {
            self.mark_dirty(&mut log.writer.lock());
        }
    }
}

impl SegmentWriter {
    /// Writes the index up to the segments' end, so that the next start finds it complete.
    pub(super) fn complete_index(&mut self) -> Result<(), LogError> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if let Some(entry) = active.cursor.end_entry(self.end) {
            active.segment.push_entry(entry);
        }
        active.segment.store_tail()
    }
}

impl OpenLog {
    /// The checkpoint's part of the producers as of the segments' end, beside the state file that it names: all, or
    /// those that have appended since. If both take too much there is a new state file.
    fn capture_producers(&self, writer: &mut SegmentWriter) -> Result<EncodedProducers, LogError> {
        if let Some(all) = writer.producers.encoded_since(Offset::ZERO, PRODUCERS_BYTES_MAX) {
            writer.states.name(None);
            return Ok(all);
        }
        for state in [writer.states.named(), writer.states.newest()].into_iter().flatten() {
            if let Some(newer) = writer.producers.encoded_since(state, PRODUCERS_BYTES_MAX) {
                writer.states.name(Some(state));
                return Ok(newer);
            }
        }
        self.write_state(writer)?;
        writer.states.name(Some(writer.end));
        Ok(EncodedProducers::default())
    }
}
