//! Cutting a log: records at an offset and beyond are taken back, because the log's leader has other records there.
//!
//! A log counts its cuts. The count stands in each of its entries in the journal and in its log dir's checkpoint, so
//! that records from before a cut and those from after it are told apart wherever they are found. Nothing else could:
//! the offsets are given again, and the leader epoch of the later records may be lower than that of the earlier ones
//! (KIP-279).
//!
//! In this order:
//! 1. Appends are refused. Records below the cut are brought into the segments, and these are synced: the journal's
//!    entries from before the cut are of no use any more.
//! 2. The log dir writes the cut down, with its number, and syncs that (`log_starts.rs`).
//! 3. The log is recovered up to the cut, by the code that a start uses. Its files have nothing beyond the cut then,
//!    which is synced, and written down, too. The log replaces the one before.
//!
//! A crash before the end of step 2 leaves the log as it was, or cut; one after it finds the cut, and cuts once more.
//! Nothing is appended to the cut log, and so nothing acked, before step 3 has ended. Until a checkpoint covers the log
//! it goes through the journal, whatever its level asks for (see [`super::level_change`]), so that bytes of its
//! segments beyond the cut count for nothing at a start. If the checkpoint is damaged, nobody knows whether one had
//! covered the log. Then bytes beyond a cut count if it was carried out: they are from after it.

use std::sync::Arc;
use std::time::Duration;

use riverrun_records::{BatchHeader, Batches, UnverifiedBatch};
use riverrun_types::Offset;

use super::open::OpenLog;
use super::{PartitionLog, State, recovery};
use crate::error::{LogError, ReadError};
use crate::log_starts::{CUTS_MAX, Change};
use crate::mode::Mode;

/// Time between two looks at whether the journal has stored earlier appends.
const POLL: Duration = Duration::from_millis(1);

impl PartitionLog {
    /// Takes back everything from `offset` on, and the whole batch that holds `offset`. Returns the log's new end.
    /// Durable when it returns, and before anything else is appended. Appends beyond the end count as lost, whether or
    /// not they were acked: the caller knows that they may go.
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
            let Some(mode) = self.begin_cut(&log)? else { continue };
            // Retention and compaction do not wait for the journal.
            let appended = self.await_appended(&log, mode);
            let mut reshaping = log.reshaping.lock();
            // The next start would refuse an unfinished swap if the log were cut within it.
            let whole = appended.and_then(|()| self.finish_swap(&log, &mut reshaping));
            let prepared = whole.and_then(|()| self.prepare_cut(&log, offset));
            let Ok(Some(end)) = prepared else {
                self.end_cut(&log);
                return prepared.map(|_| log.end());
            };
            if let Err(error) = self.write_cut(&log, end) {
                // If the dir has failed, the next start finds out whether the cut is on the disk.
                if !self.dir.has_failed() {
                    self.end_cut(&log);
                }
                return Err(error);
            }
            self.finish_cut(&log, end)?;
            return Ok(end);
        }
    }

    /// The log is not cut, and goes on. A change of its level may have been requested meanwhile.
    fn end_cut(&self, log: &OpenLog) {
        log.appender.lock().is_being_cut = false;
        self.follow_config(log);
    }

    /// Refuses appends from now on. `None` if the store has closed the log meanwhile, or something was staged.
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

    /// Brings the records below the cut into the segments, and syncs them. Returns the log's new end; `None` if the log
    /// ends there.
    fn prepare_cut(&self, log: &OpenLog, offset: Offset) -> Result<Option<Offset>, LogError> {
        let from = log.log_start().max(log.first_dirty.lock().unwrap_or_default());
        if offset < from {
            return Err(LogError::CutTooFar { id: self.id, offset, from });
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
            self.dir.check_write_backs()?;
        }
        Ok(Some(end))
    }

    /// Waits until everything that was appended is in the log.
    fn await_appended(&self, log: &OpenLog, mode: Mode) -> Result<(), LogError> {
        if mode == Mode::Journal {
            return self.await_stored(log);
        }
        // Another thread may have taken what was staged, and may be writing it: that lies behind the log's end yet.
        drop(log.writer.lock());
        Ok(())
    }

    /// Waits until all submitted entries are in the tail. A stop and a deletion do not wait for that.
    fn await_stored(&self, log: &OpenLog) -> Result<(), LogError> {
        let end = log.appender.lock().next_offset;
        while log.end() < end {
            self.dir.shared().check_appending()?;
            if self.is_deleted() {
                return Err(LogError::Deleted(self.id));
            }
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

    /// Base offset of the batch that holds `offset`.
    fn boundary_at(&self, log: &OpenLog, offset: Offset) -> Result<Offset, LogError> {
        let header = self.batch_at(log, offset)?;
        Ok(header.map_or(offset, |header| header.base_offset().min(offset)))
    }

    /// Whether a batch ends at `end`, or the log begins there. An interrupted compaction may have left a gap: if the
    /// log ended behind it, it could not be told from a loss.
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
        let number = Some(log.cuts + 1).filter(|number| *number <= CUTS_MAX);
        let number = number.ok_or_else(|| LogError::corrupt(&self.path(), 0, "it was cut too often"))?;
        self.persist(Change::Cut { number, end, is_carried_out: false })
    }

    /// Cuts the log as it was written down. If that fails, the log's next opening does it.
    fn finish_cut(&self, before: &OpenLog, end: Offset) -> Result<(), LogError> {
        // Keeps others from writing to the segments.
        let writer = before.writer.lock();
        before.remove_doomed();
        before.abandon();
        // The old log's entries cannot move the marks any more: it has none.
        self.marks.lose_from(end);
        self.marks.cut_to(end);
        // The unreadable place may be on either side of the cut. Its next reader reports it again.
        self.unreadable.forget();
        let recovered = recovery::recover(self, None).map_err(|error| self.dir.judge(error));
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
