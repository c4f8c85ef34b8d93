//! Reads the records that are durable in the journal only, so that they can be put aside when their log dir cannot take
//! them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use riverrun_journal::Position;
use riverrun_records::Batches;
use riverrun_types::Offset;

use super::journal_replay::EntryPlace;
use super::journaled::RUN_BYTES;
use super::open::OpenLog;
use super::tail::{Piece, TailEntry};
use super::{PartitionLog, State};
use crate::error::{LogError, ReadError};

/// Bytes of a segment that are read at once.
const READ_BYTES: usize = 1024 * 1024;
/// With more bytes aside than this, a log takes nothing more before a checkpoint covers it: its side files stay until
/// then.
const HELD_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl PartitionLog {
    /// The batches between the last checkpoint and the log end that are not aside yet, in order, each with a position
    /// that its journal had not settled: all, or the first ones of at least `bytes_max`; none if the journal needs them
    /// only beyond `unsettled`, which begins with that position. Batches that are in the segments already are read from
    /// there and checked.
    ///
    /// None of a log whose appends go past the journal, also while its level is being changed: a checkpoint covers all
    /// that the journal has of it. If its batches were put aside, and the change not made, appends would go on in the
    /// segments behind them; and the next start takes the end of the entries aside for the end of the log.
    pub(crate) fn take_unheld(
        &self,
        unsettled: &Range<Position>,
        bytes_max: usize,
    ) -> Result<Vec<TailEntry>, LogError> {
        let Some(log) = self.current_log() else { return Ok(Vec::new()) };
        // Keeps the settler away.
        let writer = log.writer.lock();
        if !log.appender.lock().mode.has_journal() {
            return Ok(Vec::new());
        }
        // Deleted records need not be kept.
        let known_end = writer.recovery_point.max(log.log_start());
        let mut from = known_end.0.max(log.held_end.load(Ordering::Relaxed));
        // Entries before may be in another journal, and have positions of that one.
        let tail_begin = log.shown.lock().tail.entries_from(Offset(from)).next().map(|entry| entry.position);
        if from >= writer.end.0 && tail_begin.is_none_or(|begin| begin >= unsettled.end) {
            return Ok(Vec::new());
        }
        let mut unheld = Vec::new();
        let mut bytes_taken = 0;
        while from < writer.end.0 && bytes_taken < bytes_max {
            let slice =
                self.read(Offset(from), READ_BYTES, writer.end, true).map_err(|error| match error {
                    ReadError::Storage(error) => error,
                    // They were deleted just now: the next call reads the rest.
                    error @ (ReadError::OutOfRange { .. } | ReadError::FarFromIndex) => {
                        LogError::corrupt(&self.path(), 0, error.to_string())
                    }
                })?;
            for chunk in &slice.chunks {
                let bytes = chunk.to_bytes().map_err(|error| LogError::io(&self.path(), error))?;
                bytes_taken += bytes.len();
                self.add_batches(&bytes, log.cuts, unsettled.start, &mut unheld)?;
            }
            if slice.next_offset.0 <= from {
                let what = format!("nothing can be read at offset {from}, before the end at {}", writer.end);
                return Err(LogError::corrupt(&self.path(), 0, what));
            }
            from = slice.next_offset.0;
        }
        if from < writer.end.0 {
            return Ok(unheld);
        }
        log.add_tail(Offset(from), bytes_max.saturating_sub(bytes_taken), &mut unheld);
        Ok(unheld)
    }

    fn add_batches(
        &self,
        bytes: &Bytes,
        cuts: u32,
        position: Position,
        unheld: &mut Vec<TailEntry>,
    ) -> Result<(), LogError> {
        for batch in Batches::new(bytes) {
            let batch = batch.and_then(riverrun_records::UnverifiedBatch::verify);
            let batch = batch.map_err(|error| LogError::corrupt(&self.path(), 0, error.to_string()))?;
            let header = batch.header();
            let piece = Piece {
                bytes: bytes.slice_ref(batch.bytes()),
                base_offset: header.base_offset(),
                next_offset: header.next_offset(),
                epoch: header.leader_epoch(),
                cuts,
                max_timestamp: header.max_timestamp(),
                now: self.dir.env().clock.wall(),
            };
            unheld.push(TailEntry { piece, position });
        }
        Ok(())
    }

    /// The log's number of cuts, and the offsets of the records that are in the segments, that no checkpoint covers and
    /// that are not aside yet, deleted ones too. Entries of a journal begin and end at both ends.
    pub(crate) fn unheld_settled(&self) -> (u32, Range<Offset>) {
        let Some(log) = self.current_log() else { return (0, Offset::ZERO..Offset::ZERO) };
        let writer = log.writer.lock();
        let begin = writer.recovery_point.max(Offset(log.held_end.load(Ordering::Relaxed)));
        (log.cuts, begin..writer.end.max(begin))
    }

    /// Everything below was put aside; `None` if the log is not open.
    pub(crate) fn held_end(&self) -> Option<Offset> {
        self.current_log().map(|log| Offset(log.held_end.load(Ordering::Relaxed)))
    }

    /// As [`Self::held_end`], for an open log whose appends go to a journal: the place of the next entry that is not
    /// aside. Waits for no thread that waits for the disk.
    pub(crate) fn held_end_of_journal(&self) -> Option<EntryPlace> {
        let log = self.log_at_hand()?;
        let has_journal = log.appender.lock().mode.has_journal();
        let base_offset = Offset(log.held_end.load(Ordering::Relaxed));
        has_journal.then_some(EntryPlace { cuts: log.cuts, base_offset })
    }

    /// Bytes of its records that the write cache counts; 0 while the log is being opened or closed. Does not wait.
    pub fn unsettled_bytes(&self) -> u64 {
        let state = self.state.try_read();
        let Some(State::Open(log)) = state.as_deref() else { return 0 };
        let submitted_bytes = log.submitted_bytes.load(Ordering::Relaxed);
        submitted_bytes + log.shown.lock().tail.counted_bytes()
    }

    /// Gives the tail memory of its own, about a run at a time: readers and the journal's thread have their turn
    /// between two of them. Waits for no thread that waits for the disk.
    pub(crate) fn unshare_tail(&self) {
        let Some(log) = self.log_at_hand() else { return };
        let Some(end) = log.tail_end() else { return };
        loop {
            let mut shown = log.shown.lock();
            let is_left = shown.tail.unshare_below(end, RUN_BYTES);
            shown.unlock_fair();
            if !is_left {
                return;
            }
        }
    }

    /// Everything below `end`, of a log with so many cuts, is aside and synced, and `bytes` of it since the last call.
    /// The write cache no longer counts its memory, because it may stay for as long as the process lives; the log takes
    /// nothing more meanwhile.
    pub(crate) fn note_held(&self, cuts: u32, end: Offset, bytes: u64) {
        let Some(log) = self.log_at_hand() else { return };
        if log.cuts != cuts {
            // It was cut meanwhile, and the entries aside do not belong to it any more.
            return;
        }
        log.held_end.fetch_max(end.0, Ordering::Relaxed);
        log.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        log.uncount_below(end);
    }

    /// As [`Self::note_held`], for records that were put aside earlier: the log dir takes nothing more now.
    pub(crate) fn uncount_held(&self) {
        if let Some(end) = self.held_end().filter(|end| *end > Offset::ZERO)
            && let Some(log) = self.current_log()
        {
            log.uncount_below(end);
        }
    }
}

impl OpenLog {
    /// Adds the tail's entries from `from` on, of at least `bytes_max` bytes if there are so many, a run at a time: the
    /// journal's thread has its turn between two of them. The caller has the writer, so none leaves meanwhile.
    fn add_tail(&self, mut from: Offset, bytes_max: usize, unheld: &mut Vec<TailEntry>) {
        let Some(end) = self.tail_end() else { return };
        let mut bytes_left = bytes_max;
        while from < end && bytes_left > 0 {
            let run_bytes_max = bytes_left.min(RUN_BYTES);
            let mut run_bytes = 0;
            let shown = self.shown.lock();
            for entry in shown.tail.entries_from(from) {
                if run_bytes >= run_bytes_max {
                    break;
                }
                run_bytes += entry.piece.bytes.len();
                from = entry.piece.next_offset;
                unheld.push(entry.clone());
            }
            shown.unlock_fair();
            if run_bytes == 0 {
                return;
            }
            bytes_left = bytes_left.saturating_sub(run_bytes);
        }
    }

    /// Takes the entries that end at or below `end` out of the write cache's count, as far as there is room beside it.
    pub(super) fn uncount_below(&self, end: Offset) {
        let mut shown = self.shown.lock();
        let cache = &self.dir.shared().cache;
        // A dir that takes nothing more keeps its tails, maybe until the next start: they take no room from others.
        let room_bytes = (!self.dir.takes_nothing()).then(|| cache.room_aside_bytes());
        let aside_before = shown.tail.aside_bytes();
        let bytes = shown.tail.uncount_below(end, room_bytes);
        cache.move_aside(aside_before, shown.tail.aside_bytes());
        drop(shown);
        self.dir.remove_stored(bytes);
    }

    /// Whether a part of the log is aside and still in memory, or much of it that no checkpoint covers.
    pub(super) fn is_aside(&self) -> bool {
        let held_end = self.held_end.load(Ordering::Relaxed);
        if held_end == 0 {
            return false;
        }
        // The room beside the write cache does not matter here.
        let is_aside = |entry: &TailEntry| entry.piece.next_offset.0 <= held_end;
        let is_in_memory = self.shown.lock().tail.entries().next().is_some_and(is_aside);
        is_in_memory || self.held_bytes.load(Ordering::Relaxed) >= HELD_BYTES_MAX
    }

    /// A checkpoint covers everything below `end`.
    pub(super) fn forget_held_below(&self, end: Offset) {
        if self.held_end.load(Ordering::Relaxed) <= end.0 {
            self.held_bytes.store(0, Ordering::Relaxed);
        }
    }
}
