//! The way of an append through the journal: submitted under the appender's lock, so that the journal's order is the
//! order of offsets; shown in the tail once it is stored; settled into the segments in large runs.
//!
//! The code here that the journal's thread runs is short and never waits for the disk.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use riverrun_env::prefetch_shared;
use riverrun_journal::{EntryHeader, EntryKind, EntryOwner, JournalError, StoredEntry, Submission, Wants};
use riverrun_types::{DurabilityLevel, ErrorKind, Offset, PartitionId, TimestampMs, Watermarks};

use super::open::OpenLog;
use super::tail::{Piece, TailEntry};
use super::watermarks::Marks;
use super::writer::{SegmentWriter, WriteBack};
use super::{PartitionLog, State};
use crate::error::{AppendError, LogError};
use crate::log_dir::Grown;
use crate::mode::Mode;
use crate::pace::Pace;
use crate::producer_state::AppendOrigin;
use crate::shared::{partition_of, stream_of};

/// A run of the tail that is settled at once, in bytes: what one write takes without holding the writer for long.
pub(super) const RUN_BYTES: usize = 1024 * 1024;

/// Bytes of one log that are settled before other logs have their turn: so many take a disk some hundredths of a
/// second, and with fewer a log that is appended to steadily would be settled in many small pieces.
const SHARE_BYTES: usize = 8 * 1024 * 1024;

/// A run of the tail that was brought into the segments.
struct Settled {
    bytes: usize,
    /// End of the segments with the run.
    end: Offset,
}

impl PartitionLog {
    /// Refuses an append that is too large for the journal.
    pub(super) fn check_fits_journal(&self, bytes: usize) -> Result<(), AppendError> {
        let Some(journal) = self.dir.shared().journal_of(self.id) else { return Ok(()) };
        let bytes_max = journal.entry_bytes_max();
        if bytes > bytes_max { Err(AppendError::LargerThanJournal { bytes, bytes_max }) } else { Ok(()) }
    }

    /// Submits a piece to the journal. While the journal waits for space, a client's piece is refused; the
    /// coordinator's piece waits with it, because the coordinator would otherwise have to read its state anew, and
    /// would miss the waiting ones. The caller holds the appender's lock, and nothing has happened after an error.
    pub(super) fn submit(&self, log: &OpenLog, piece: &Piece, origin: AppendOrigin) -> Result<(), LogError> {
        if let Some(failure) = log.journal_failure.get() {
            return Err(failure.clone());
        }
        let shared = self.dir.shared();
        shared.check_appending()?;
        let level = self.level_promised();
        let journal = shared.journal_of(self.id).ok_or(LogError::NoJournal { level })?;
        let bytes = piece.bytes.len() as u64;
        self.dir.add_unsettled(bytes);
        log.submitted_bytes.fetch_add(bytes, Ordering::Relaxed);
        let wants = if level.syncs_locally() { Wants::Sync } else { Wants::Write };
        let header = piece.header(self.id);
        let owner = log.owner.clone();
        let submission = Submission { header, payload: piece.bytes.clone(), wants, owner };
        let submitted = match origin {
            AppendOrigin::Client => journal.submit_unless_short(submission),
            AppendOrigin::Coordinator => journal.submit(submission),
        };
        submitted.map_err(|error| {
            log.take_back(bytes);
            match error {
                JournalError::Closed => LogError::Closed,
                error if error.kind() == ErrorKind::GiveUp => LogError::JournalFailed(error),
                error => LogError::Journal(error),
            }
        })?;
        if shared.is_journal_half_full() {
            shared.raise_alarms();
        }
        Ok(())
    }

    /// Whether the tail is as large as a run.
    pub(crate) fn has_large_tail(&self) -> bool {
        self.current_log().is_some_and(|log| log.shown.lock().tail.is_large())
    }

    /// End of the tail, if there is one.
    pub(crate) fn tail_end(&self) -> Option<Offset> {
        self.current_log()?.tail_end()
    }

    /// Brings a share of the tail into the segments; other logs have their turn then. If something below the tail's end
    /// is left, returns that end as it was at the first call: to be called again with it as `upto` after the others'
    /// turn. Later entries may be left to the next time. All that is durable after it was durable before. After a
    /// failure of the log alone, the log takes no more until it succeeds.
    pub(crate) fn settle(
        &self,
        upto: Option<Offset>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Offset>, LogError> {
        let Some(log) = self.current_log() else { return Ok(None) };
        self.advance_synced(&log);
        let settled = self.check_settles(&log).and_then(|()| self.settle_share(&log, upto, pace));
        if !matches!(settled, Err(LogError::OutOfTime)) {
            log.judge_settling(self.id, settled.as_ref().err());
        }
        settled
    }

    fn settle_share(
        &self,
        log: &OpenLog,
        upto: Option<Offset>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Offset>, LogError> {
        let Some(end) = log.tail_end().map(|end| upto.unwrap_or(end)) else { return Ok(None) };
        let mut share = 0;
        loop {
            self.dir.check_time()?;
            let (settled, write_back) = {
                let mut writer = log.writer.lock();
                (self.settle_run(log, &mut writer)?, writer.take_write_back())
            };
            write_back.map_or(Ok(()), |write_back| self.begin_write_back(&write_back))?;
            let Some(settled) = settled else { break };
            pace.wrote(settled.bytes);
            share += settled.bytes;
            if settled.end >= end {
                break;
            }
            if share >= SHARE_BYTES {
                return Ok(Some(end));
            }
        }
        if log.tail_end().is_some() {
            self.dir.note_tail(self.id);
        }
        Ok(None)
    }

    /// Has the disk begin to write. Bytes that it refuses may be lost although the next sync succeeds, so the dir fails
    /// as after a failed sync.
    fn begin_write_back(&self, write_back: &WriteBack) -> Result<(), LogError> {
        let _until_it_has_failed = self.dir.writing_back();
        write_back.begin().map_err(|error| self.dir.judge(error))
    }

    /// Records that are appended and not synced yet.
    pub fn unsynced_records(&self) -> i64 {
        let lag = |marks: Watermarks| marks.appended.0.saturating_sub(marks.synced.0).max(0);
        if lag(self.watermarks()) > 0
            && let Some(log) = self.current_log()
        {
            self.advance_synced(&log);
        }
        lag(self.watermarks())
    }

    /// Moves the watermark `synced` over the entries that were stored unsynced and have been synced since.
    fn advance_synced(&self, log: &OpenLog) {
        let Some(journal) = self.dir.shared().journal_of(self.id) else { return };
        let synced = journal.synced();
        let mut shown = log.shown.lock();
        if let Some(end) = shown.tail.end_below(synced) {
            // Under the lock: the log may be cut next.
            self.marks.sync_to(end);
        }
    }

    /// As [`Self::settle`], for a caller that holds the writer: the disk begins to write it the next time.
    pub(super) fn settle_in(&self, log: &OpenLog, writer: &mut SegmentWriter) -> Result<(), LogError> {
        let Some(end) = log.tail_end() else { return Ok(()) };
        while self.settle_run(log, writer)?.is_some_and(|settled| settled.end < end) {}
        Ok(())
    }

    /// As [`Self::settle_in`], for a caller that does not hold the writer: another writer waits for one run at most.
    pub(super) fn settle_in_runs(&self, log: &OpenLog) -> Result<(), LogError> {
        let Some(end) = log.tail_end() else { return Ok(()) };
        loop {
            let settled = self.settle_run(log, &mut log.writer.lock())?;
            if settled.is_none_or(|settled| settled.end >= end) {
                return Ok(());
            }
        }
    }

    /// Brings the entries below `end` into the segments, and maybe later ones of the same run, for a caller that holds
    /// the writer.
    pub(super) fn settle_below(
        &self,
        log: &OpenLog,
        writer: &mut SegmentWriter,
        end: Offset,
    ) -> Result<(), LogError> {
        while writer.end < end && self.settle_run(log, writer)?.is_some() {}
        Ok(())
    }

    /// Brings one run of the tail into the segments; none if there is no tail.
    fn settle_run(&self, log: &OpenLog, writer: &mut SegmentWriter) -> Result<Option<Settled>, LogError> {
        let pieces = log.shown.lock().tail.front(RUN_BYTES);
        if pieces.is_empty() {
            return Ok(None);
        }
        self.dir.check_usable()?;
        self.write_pieces(log, writer, &pieces).map_err(|error| self.dir.judge(error))?;
        let bytes = pieces.iter().map(|piece| piece.bytes.len()).sum();
        Ok(Some(Settled { bytes, end: writer.end }))
    }

    /// Whether acks did not wait for a sync until now, and do at `level`.
    pub(super) fn begins_to_sync(&self, level: DurabilityLevel) -> bool {
        level.syncs_locally() && !self.level_reached().syncs_locally()
    }

    /// The level that acked records survive now; `None` if it is unknown because the log was not opened since the
    /// start. Opens nothing and does not wait.
    pub(crate) fn level_now(&self) -> Option<DurabilityLevel> {
        let is_closed = is_surely_closed(
            || self.opening.is_locked(),
            || matches!(self.state.try_read().as_deref(), Some(State::Closed)),
        );
        let level = self.marks.level()?;
        // All records of a closed log are under a checkpoint, or the journal has them.
        Some(if is_closed { self.level_at_opening() } else { level })
    }

    /// The level with which the log begins when it is opened: the options' one. A log that did without the journal goes
    /// on without it if that has failed meanwhile.
    pub(super) fn level_at_opening(&self) -> DurabilityLevel {
        let wanted = self.config().durability;
        let shared = self.dir.shared();
        let must_stay = |before: &DurabilityLevel| match (shared.mode_of(*before), shared.mode_of(wanted)) {
            (Ok(from), Ok(to)) => self.is_barred(from, to),
            _ => false,
        };
        self.marks.level().filter(must_stay).unwrap_or(wanted)
    }

    /// Whether appends cannot change to another way, because it leads through a journal that has failed: none could be
    /// acked any more.
    pub(super) fn is_barred(&self, from: Mode, to: Mode) -> bool {
        let has_failed = || self.dir.shared().journal_of(self.id).is_some_and(|it| it.failure().is_some());
        from == Mode::Segment && to == Mode::Journal && has_failed()
    }

    /// Brings the level to the options' one: at once, if that needs no sync and no other way.
    pub(super) fn follow_config(&self, log: &OpenLog) {
        let level = self.config().durability;
        let appender = log.appender.lock();
        match self.dir.shared().mode_of(level) {
            Ok(mode) if mode == appender.mode && !self.begins_to_sync(level) => self.marks.set_level(level),
            Ok(_) => self.dir.request_level_change(self.id),
            Err(error) => tracing::error!(partition = %self.id, %error, "the level stays"),
        }
    }
}

/// Whether a log is closed and may be opened at any time. A log that is being opened may have got the former level, so
/// that is asked first: an opening that begins later gets the present level.
fn is_surely_closed(is_being_opened: impl FnOnce() -> bool, is_closed: impl FnOnce() -> bool) -> bool {
    !is_being_opened() && is_closed()
}

/// The level that syncs locally where `level` does not, and the other way round.
pub(crate) fn counterpart(level: DurabilityLevel) -> DurabilityLevel {
    match level {
        DurabilityLevel::SyncSync => DurabilityLevel::SyncAsync,
        DurabilityLevel::SyncAsync => DurabilityLevel::SyncSync,
        DurabilityLevel::AsyncSync => DurabilityLevel::AsyncAsync,
        DurabilityLevel::AsyncAsync => DurabilityLevel::AsyncSync,
    }
}

impl Piece {
    /// The journal's header for its entry.
    pub(crate) fn header(&self, id: PartitionId) -> EntryHeader {
        EntryHeader {
            stream: stream_of(id),
            kind: EntryKind::Records,
            index: self.base_offset.0.unsigned_abs(),
            cuts: self.cuts,
            base_offset: self.base_offset,
            leader_epoch: self.epoch,
        }
    }

    /// Stands for an entry of which only the header is left: at least one offset.
    pub(crate) fn missing(header: &EntryHeader, now: TimestampMs) -> Self {
        Self {
            bytes: bytes::Bytes::new(),
            base_offset: header.base_offset,
            next_offset: header.base_offset.next(),
            epoch: header.leader_epoch,
            cuts: header.cuts,
            max_timestamp: TimestampMs::NONE,
            now,
        }
    }

    /// Whether it stands for an entry of which only the header is left.
    pub(crate) fn is_missing(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The piece of an entry of the journal. Its batches were checked before they were appended, or by their checksums
    /// when the journal was read; `None` if they are not as the header says.
    pub(crate) fn of_entry(header: &EntryHeader, bytes: bytes::Bytes, now: TimestampMs) -> Option<Self> {
        let mut piece = Self {
            bytes,
            base_offset: header.base_offset,
            next_offset: header.base_offset,
            epoch: header.leader_epoch,
            cuts: header.cuts,
            max_timestamp: TimestampMs::NONE,
            now,
        };
        let (mut end, mut next_offset, mut max_timestamp) = (0, header.base_offset, TimestampMs::NONE);
        for (start, batch) in piece.headers() {
            if batch.base_offset() != next_offset {
                return None;
            }
            end = start + batch.size_bytes();
            next_offset = batch.next_offset();
            max_timestamp = max_timestamp.max(batch.max_timestamp());
        }
        let is_whole = end == piece.bytes.len() && next_offset > header.base_offset;
        piece.next_offset = next_offset;
        piece.max_timestamp = max_timestamp;
        is_whole.then_some(piece)
    }
}

impl OpenLog {
    /// End of the tail, if there is one.
    pub(super) fn tail_end(&self) -> Option<Offset> {
        self.shown.lock().tail.end()
    }

    /// So many bytes are no longer on their way through the journal, and will be in no tail.
    fn take_back(&self, bytes: u64) {
        self.dir.remove_submitted(self.returned(bytes));
    }

    /// So many bytes have come back from the journal; returns how many of them were still counted. When the journal
    /// fails all are subtracted at once.
    fn returned(&self, bytes: u64) -> u64 {
        let counted = self.submitted_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |submitted| {
            Some(submitted.saturating_sub(bytes))
        });
        counted.map_or(0, |submitted| submitted.min(bytes))
    }

    /// Adds a stored entry to the tail, and calls `move_marks` with the log end before the log can be cut or abandoned.
    /// `None` if the log was abandoned: none of its entries on their way is counted then.
    pub(super) fn show_stored(&self, entry: TailEntry, move_marks: impl FnOnce(Offset)) -> Option<Grown> {
        let mut shown = self.shown.lock();
        if shown.is_abandoned {
            return None;
        }
        // An abandonment subtracts the bytes on their way and those in the tail: none is ever both.
        self.returned(entry.piece.bytes.len() as u64);
        let (epoch, base_offset) = (entry.piece.epoch, entry.piece.base_offset);
        debug_assert_eq!(shown.view.end, base_offset, "entries come back in the order of their offsets");
        shown.view.end = entry.piece.next_offset;
        if shown.view.latest_epoch.is_none_or(|latest| latest < epoch) {
            shown.view.latest_epoch = Some(epoch);
            self.epochs().assign(epoch, base_offset);
        }
        let (is_first, was_large) = (shown.tail.is_empty(), shown.tail.is_large());
        // Before the entry can be removed again.
        self.dir.count_stored(entry.piece.bytes.len() as u64);
        shown.tail.push(entry);
        move_marks(shown.view.end);
        Some(Grown { is_first, gets_large: !was_large && shown.tail.is_large() })
    }

    fn fail_journal(&self, handle: &PartitionLog, error: &JournalError) {
        if self.journal_failure.set(LogError::JournalFailed(error.clone())).is_ok() {
            tracing::error!(partition = %handle.id, %error, "appends that wait for the journal are given up; they were never acked as synced");
            handle.marks.lose_from(self.end());
        }
        let bytes = self.submitted_bytes.swap(0, Ordering::Relaxed);
        self.dir.remove_submitted(bytes);
    }
}

/// The owner of a log's entries in the journal: it keeps neither the log open nor the handle nor the store alive.
#[derive(Debug)]
pub(super) struct JournalOwner {
    log: Weak<OpenLog>,
    handle: Weak<PartitionLog>,
}

impl JournalOwner {
    pub(super) fn new(log: Weak<OpenLog>, handle: &PartitionLog) -> Self {
        Self { log, handle: handle.this.clone() }
    }

    /// Shows a stored entry, and moves the watermarks over it; then returns the handle, whose observer is to be called.
    fn show(&self, entry: StoredEntry<'_>) -> Option<Arc<PartitionLog>> {
        let log = self.log.upgrade()?;
        let handle = self.handle.upgrade();
        let (id, is_synced) = (partition_of(entry.header.stream), entry.is_synced);
        let bytes = entry.payload.len() as u64;
        let Some(piece) = Piece::of_entry(entry.header, entry.payload, entry.now) else {
            log.take_back(bytes);
            return None;
        };
        let move_marks = |end| {
            let Some(handle) = &handle else { return };
            handle.marks.append_to(end);
            if is_synced {
                handle.marks.sync_to(end);
            }
        };
        let grown = log.show_stored(TailEntry { piece, position: entry.position }, move_marks)?;
        log.dir.note_grown(grown, id);
        handle
    }
}

impl EntryOwner for JournalOwner {
    fn announce(&self) {
        OpenLog::prefetch_shown(&self.log);
        prefetch_shared(&self.handle, offset_of!(PartitionLog, marks), size_of::<Marks>());
    }

    fn stored(&self, entry: StoredEntry<'_>) {
        // The observer may have the log closed at once: the open log is not held any more.
        if let Some(handle) = self.show(entry) {
            handle.marks.tell_advanced();
        }
    }

    fn failed(&self, _header: &EntryHeader, error: &JournalError) {
        let Some(handle) = self.handle.upgrade() else { return };
        if let Some(log) = self.log.upgrade() {
            log.fail_journal(&handle, error);
        }
        handle.marks.tell_failed();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn log_whose_opening_ends_during_a_look_is_not_taken_for_closed() {
        const BEING_OPENED: i32 = 1;
        const OPEN: i32 = 2;
        for begins_at in [BEING_OPENED, OPEN] {
            let moment = Cell::new(begins_at);
            // The opening gets on while each answer is on its way.
            let look = || moment.replace(moment.get() + 1);
            assert!(!is_surely_closed(|| look() == BEING_OPENED, || look() < OPEN), "{begins_at}");
        }
        assert!(is_surely_closed(|| false, || true));
    }
}
