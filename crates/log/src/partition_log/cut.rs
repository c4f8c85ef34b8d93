//! Cutting a log: what lies at an offset and beyond is taken back, because the log's leader has other records there.
//!
//! A log counts its cuts. The count stands in each of its entries in the journal and in its log dir's checkpoint, so that what
//! was written before a cut and what was written after it are told apart wherever they are found. Nothing else could: the
//! offsets are given again, and the leader epoch of what takes their place may be lower than that of what was cut (KIP-279).
//!
//! In this order:
//! 1. Appends are refused. What lies below the cut is brought into the segments, and these are synced: the journal's entries
//!    from before the cut are of no use any more.
//! 2. The log dir writes the cut down, with its number, and syncs that (`log_starts.rs`).
//! 3. The log is recovered up to the cut, by the code that a start uses, and takes the place of the one before.
//!
//! A crash before the end of step 2 leaves the log as it was, or cut; one after it finds the cut, and cuts once more. Nothing
//! is appended to the cut log, and so nothing acked, before step 2 has ended. Until a checkpoint covers the log it goes through
//! the journal, whatever its level asks for (see [`super::level_change`]), so that what its segments have beyond the cut counts for
//! nothing at a start.

use std::sync::Arc;
use std::time::Duration;

use riverrun_records::{BatchHeader, Batches, UnverifiedBatch};
use riverrun_types::Offset;

use super::open::OpenLog;
use super::{PartitionLog, State, recovery};
use crate::error::{LogError, ReadError};
use crate::log_starts::Change;
use crate::mode::Mode;

/// Between two looks whether the journal has stored what was appended before.
const POLL: Duration = Duration::from_millis(1);

impl PartitionLog {
    /// Takes back everything from `offset` on; of a batch that holds `offset` all of it. Returns where the log ends then. Durable
    /// when it returns, and before anything else is appended. What was appended and lies beyond counts as lost, whether or not
    /// it was acked: the caller knows that it may go.
    ///
    /// Waits for the disk. After an error the log is as it was, or cut.
    pub fn truncate_to(&self, offset: Offset) -> Result<Offset, LogError> {
        loop {
            self.write_staged()?;
            let log = self.open()?;
            let _opening = self.opening.lock();
            if !matches!(&*self.state.read(), State::Open(current) if Arc::ptr_eq(current, &log)) {
                continue;
            }
            let mut reshaping = log.reshaping.lock();
            // What a compaction has begun would be refused by the next start once the log is cut within it.
            self.finish_swap(&log, &mut reshaping)?;
            let Some(mode) = self.begin_cut(&log)? else { continue };
            let prepared = self.prepare_cut(&log, mode, offset);
            let Ok(Some(end)) = prepared else {
                self.end_cut(&log);
                return prepared.map(|_| log.end());
            };
            if let Err(error) = self.write_cut(&log, end) {
                // The next start finds out whether a dir that has failed has the cut.
                if !self.dir.has_failed() {
                    self.end_cut(&log);
                }
                return Err(error);
            }
            self.finish_cut(&log, end)?;
            return Ok(end);
        }
    }

    /// The log is not cut, and goes on. A change of its level may have been asked for meanwhile.
    fn end_cut(&self, log: &OpenLog) {
        log.appender.lock().is_being_cut = false;
        self.follow_config(log);
    }

    /// Appends are refused from now on. Nothing if the store has closed the log meanwhile, or something was staged.
    fn begin_cut(&self, log: &OpenLog) -> Result<Option<Mode>, LogError> {
        if self.dir.shared().journal_of(self.id).is_none() {
            return Err(LogError::NoJournal { level: self.config().durability });
        }
        let mut appender = log.appender.lock();
        if appender.is_retired || (appender.mode == Mode::Segment && !appender.staged.is_empty()) {
            return Ok(None);
        }
        if appender.mode.is_leaving() || !self.dir.is_checkpoint_trusted(self.id) {
            return Err(LogError::CutWaits(self.id));
        }
        appender.is_being_cut = true;
        Ok(Some(appender.mode))
    }

    /// Brings what lies below the cut to where a start finds it. Returns where that is; nothing if the log ends there.
    fn prepare_cut(&self, log: &OpenLog, mode: Mode, offset: Offset) -> Result<Option<Offset>, LogError> {
        let from = log.log_start().max(log.first_dirty.lock().unwrap_or_default());
        if offset < from {
            return Err(LogError::CutTooFar { id: self.id, offset, from });
        }
        if mode == Mode::Journal {
            self.await_stored(log)?;
        }
        if offset >= log.end() {
            return Ok(None);
        }
        let end = self.boundary_at(log, offset)?;
        if end < from || !self.is_end_of_batch(log, end)? {
            return Err(LogError::CutTooFar { id: self.id, offset: end, from });
        }
        let mut writer = log.writer.lock();
        self.settle_below(log, &mut writer, end)?;
        if writer.recovery_point < end {
            log.sync_above(writer.recovery_point).map_err(|error| self.dir.judge(error))?;
        }
        Ok(Some(end))
    }

    /// Waits until all that was handed to the journal is in the tail.
    fn await_stored(&self, log: &OpenLog) -> Result<(), LogError> {
        let end = log.appender.lock().next_offset;
        while log.end() < end {
            self.dir.shared().check_appending()?;
            if let Some(failure) = log.journal_failure.get() {
                return Err(failure.clone());
            }
            let journal = self.dir.shared().journal_of(self.id);
            if let Some(shortage) = journal.and_then(|journal| journal.shortage()) {
                return Err(LogError::Journal(shortage));
            }
            self.dir.env().clock.sleep(POLL);
        }
        Ok(())
    }

    /// Where the batch begins that holds `offset`.
    fn boundary_at(&self, log: &OpenLog, offset: Offset) -> Result<Offset, LogError> {
        let header = self.batch_at(log, offset)?;
        Ok(header.map_or(offset, |header| header.base_offset().min(offset)))
    }

    /// Whether a batch ends at `end`, or the log begins there. Where a compaction was that did not come to its end, there may be
    /// a gap: nobody could tell it from what is lost once the log ends behind it.
    fn is_end_of_batch(&self, log: &OpenLog, end: Offset) -> Result<bool, LogError> {
        if end <= log.log_start() {
            return Ok(true);
        }
        let before = self.batch_at(log, end.plus(-1))?;
        Ok(before.is_some_and(|header| header.next_offset() == end))
    }

    /// The header of the batch that holds `offset`, or of the first one after it; none if the log ends before.
    fn batch_at(&self, log: &OpenLog, offset: Offset) -> Result<Option<BatchHeader>, LogError> {
        let corrupt = |what: String| LogError::corrupt(&self.path(), 0, what);
        let read = self.read(offset, 1, log.end(), true);
        let slice = read.map_err(|error| match error {
            ReadError::Storage(error) => error,
            error @ (ReadError::OutOfRange { .. } | ReadError::FarFromIndex) => corrupt(error.to_string()),
        })?;
        let Some(chunk) = slice.chunks.first() else { return Ok(None) };
        let bytes = chunk.to_bytes().map_err(|error| LogError::io(&self.path(), error))?;
        let first = Batches::new(&bytes).next().transpose();
        let first = first.and_then(|batch| batch.map(UnverifiedBatch::verify).transpose());
        let first = first.map_err(|error| corrupt(error.to_string()))?;
        Ok(first.map(|batch| *batch.header()))
    }

    /// Has the log dir write the cut down. Durable when it returns.
    fn write_cut(&self, log: &OpenLog, end: Offset) -> Result<(), LogError> {
        // The count comes from the disk.
        let number = log.cuts.checked_add(1);
        let number = number.ok_or_else(|| LogError::corrupt(&self.path(), 0, "it was cut too often"))?;
        self.persist(Change::Cut { number, end })
    }

    /// The log takes the cut that was written down. If that fails, its next use does.
    fn finish_cut(&self, before: &OpenLog, end: Offset) -> Result<(), LogError> {
        // Nobody writes to the segments meanwhile.
        let writer = before.writer.lock();
        before.remove_doomed();
        before.abandon();
        // Nobody moves them by what the log had before: that has nothing any more.
        self.marks.lose_from(end);
        self.marks.cut_to(end);
        // Nobody knows on which side of the cut it lies. Whoever reads it next tells again.
        self.unreadable.forget();
        let recovered = recovery::recover(self, None);
        drop(writer);
        let mut state = self.state.write();
        self.leave(&mut state, State::Closed);
        let taken = self.take_over(&mut state, recovered);
        drop(state);
        if let Ok(log) = &taken {
            // The checkpoint may not know of the last compaction.
            let first_dirty = *before.first_dirty.lock();
            *log.first_dirty.lock() = first_dirty.map(|first_dirty| first_dirty.min(end));
            tracing::info!(partition = %self.id, %end, cuts = log.cuts, "the log was cut");
        }
        self.marks.tell_failed();
        taken.map(|_| ())
    }
}

#[cfg(test)]
mod tests;
