//! The append path: judge the sequence, assign offsets, stage.
//!
//! A batch with offsets is never changed again; its further way depends on the level. At a level that syncs it goes to
//! the journal at once. Otherwise it is staged, and any caller of [`PartitionLog::write_staged`] writes it to the
//! segment, with one write for all that is staged. If that fails, all of it is lost as if it had never come, and its
//! offsets are given again, in the same epoch: see [`PartitionLog::is_lost`]. No reader has seen any of it, and bytes
//! of it in the file are cut off for good first. Offsets of batches that the journal has taken are never given again:
//! after a failure the journal takes nothing more of a log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use riverrun_types::{Offset, TimestampMs};

use super::open::{Appender, OpenLog};
use super::prepare::{Prepared, prepare};
use super::tail::Piece;
use super::writer::SegmentWriter;
use super::{PartitionLog, State};
use crate::error::{AppendError, LogError};
use crate::log_dir::{DirWork, LogDir};
use crate::mode::Mode;
use crate::producer_state::{AppendOrigin, BatchPlace, ProducerStates, SequenceVerdict, SequencedBatch};
use crate::rank::RankedGuard;

/// A list of staged pieces that grew beyond this is not kept for the next ones.
const STAGED_KEPT: usize = 64;

/// Origin and time of an append.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    /// A client's batch is checked record by record and must be alone; the coordinator's batches are our own.
    pub origin: AppendOrigin,
    /// Wall clock.
    pub now: TimestampMs,
}

/// The place of an append in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Offset of the last record.
    pub last_offset: Offset,
    /// The time that was stamped on the records, if the topic has `LogAppendTime`.
    pub log_append_time: Option<TimestampMs>,
    /// First offset that can be read.
    pub log_start_offset: Offset,
    /// Bytes that were added; 0 for a duplicate.
    pub bytes: usize,
    /// These batches had come before; nothing was added. The answer may be given once `last_offset` is as durable as
    /// the topic asks.
    pub duplicate: bool,
    /// The log's number of losses: see [`PartitionLog::is_lost`].
    pub loss_count: u64,
}

impl PartitionLog {
    /// Appends whole batches, which are patched in place, and assigns their offsets. Exactly one from a client; one or
    /// more from the coordinator. When it returns nothing is readable or durable yet: at a sync level the journal has
    /// the batches and makes them both; otherwise the caller goes on with [`Self::write_staged`]. A caller acknowledges
    /// them when [`Self::watermarks`] have passed `last_offset`.
    pub fn append(&self, batches: BytesMut, options: AppendOptions) -> Result<Appended, AppendError> {
        let config = self.config();
        let prepared = prepare(batches, &config, options)?;
        loop {
            self.dir.shared().check_appending()?;
            self.dir.check_writable(options.origin)?;
            let log = self.open_for_append()?;
            log.check_takes_more(self.id)?;
            let mut appender = log.appender.lock();
            if appender.is_being_cut {
                return Err(LogError::BeingCut(self.id).into());
            }
            // The store closed the log between the two lines above: open it again.
            if !appender.is_retired {
                return self.stage(&log, &mut appender, prepared, options);
            }
        }
    }

    fn stage(
        &self,
        log: &OpenLog,
        appender: &mut Appender,
        mut prepared: Prepared,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        // Read before the journal has the chance to fail.
        let loss_count = self.marks.loss_count();
        let log_start = log.log_start();
        let mut producers = prepared.has_producers().then(|| log.producers());
        let has_history = appender.next_offset > Offset::ZERO;
        let duplicate = producers
            .as_deref()
            .map(|producers| find_duplicate(producers, &prepared, options.origin, has_history));
        if let Some(place) = duplicate.transpose()?.flatten() {
            drop(producers);
            log.check_not_lost(&place)?;
            return Ok(duplicate_of(place, &prepared, log_start, loss_count));
        }
        self.check_dir_takes(appender.mode, options.origin)?;
        if appender.mode != Mode::Segment {
            self.check_fits_journal(prepared.len())?;
        }
        // Epochs never fall within a log, whatever the caller's count.
        let epoch =
            appender.latest_epoch.map_or(self.leader_epoch(), |latest| latest.max(self.leader_epoch()));
        let base_offset = appender.next_offset;
        prepared.assign(base_offset, epoch);
        let log_append_time = prepared.log_append_time;
        let piece = prepared.take_piece(base_offset, epoch, log.cuts, options.now);
        if appender.mode == Mode::Journal {
            self.submit(log, &piece, options.origin)?;
        }
        if let Some(producers) = &mut producers {
            for batch in prepared.batches().filter(|batch| batch.header.has_producer_id()) {
                producers.record(batch.sequenced(), batch.place(), options.now);
            }
        }
        drop(producers);
        let place = Appended {
            base_offset,
            last_offset: piece.next_offset.plus(-1),
            log_append_time,
            log_start_offset: log_start,
            bytes: piece.bytes.len(),
            duplicate: false,
            loss_count,
        };
        self.dir.space().take(piece.bytes.len() as u64);
        appender.next_offset = piece.next_offset;
        appender.latest_epoch = Some(epoch);
        if appender.mode.is_leaving() || (appender.mode == Mode::Segment && self.dir.may_leave()) {
            // It can be written only when the level has changed, or the disk answers: until then it takes its part of
            // the bound.
            self.dir.add_unsettled(piece.bytes.len() as u64);
            appender.held_up_bytes += piece.bytes.len() as u64;
        }
        if appender.mode != Mode::Journal {
            self.has_staged.store(true, Ordering::Relaxed);
            // Mostly each append is written before the next one comes; a vector by itself makes room for four.
            if appender.staged.is_empty() {
                appender.staged.reserve_exact(1);
            }
            appender.staged.push(piece);
        }
        Ok(place)
    }

    /// Refuses a client's append that would wait for the disk without a bound. The coordinator's appends wait with the
    /// disk, and its groups are unchanged when it answers. A dir that is stuck takes nothing in any mode: its tails no
    /// longer count for the producers' backpressure.
    fn check_dir_takes(&self, mode: Mode, origin: AppendOrigin) -> Result<(), LogError> {
        if origin == AppendOrigin::Coordinator {
            return Ok(());
        }
        if mode == Mode::Segment {
            self.dir.check_takes_writes()?;
        }
        self.dir.check_not_stuck()
    }

    /// The open log. A log that is closed is not opened if its dir does not answer.
    pub(super) fn open_for_append(&self) -> Result<Arc<OpenLog>, LogError> {
        if let Some(log) = self.current_log() {
            self.note_use();
            self.check_undamaged()?;
            return Ok(log);
        }
        self.dir.check_opens()?;
        self.open()
    }

    /// As [`Self::write_staged`], for threads that serve clients: does not wait for a disk that is slow, or for any
    /// disk if there are several. [The log dir's writer](crate::LogStore::write_left) writes the rest, and moves the
    /// watermark.
    pub fn leave_staged(&self) -> Result<(), LogError> {
        self.leave_staged_if(LogDir::leaves_now)
    }

    /// As [`Self::leave_staged`], for threads that hold a lock that others wait for: does not wait for any disk that
    /// has a writer.
    pub fn leave_to_writer(&self) -> Result<(), LogError> {
        self.leave_staged_if(LogDir::may_leave)
    }

    fn leave_staged_if(&self, is_left: impl Fn(&LogDir) -> bool) -> Result<(), LogError> {
        if !self.has_staged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(log) = self.current_log() else { return Ok(()) };
        let mut appender = log.appender.lock();
        // Another thread may be writing this thread's batches, or the level may have changed.
        if appender.mode != Mode::Segment || appender.staged.is_empty() {
            return Ok(());
        }
        if !is_left(&self.dir) {
            drop(appender);
            return self.write_staged();
        }
        if !std::mem::replace(&mut appender.is_left, true) {
            drop(appender);
            self.dir.leave(self.id);
        }
        Ok(())
    }

    /// Writes all staged batches to the segments, other threads' too, and moves the watermark `appended`: the bytes are
    /// in the page cache then and survive the end of the process. At a level that syncs there is nothing to do. After
    /// an error everything staged is lost, this caller's appends and all others'.
    pub fn write_staged(&self) -> Result<(), LogError> {
        // This thread's own staged batches are visible to it here. Logs that only go to the journal take no lock.
        if !self.has_staged.load(Ordering::Relaxed) {
            return Ok(());
        }
        let log = match &*self.state.read() {
            State::Open(log) => log.clone(),
            _ => return Ok(()),
        };
        let mut writer = self.writer_of(&log);
        let working = self.dir.working(DirWork::Writes(self.id));
        let end = writer.end;
        let result = self.write_staged_in(&log, &mut writer);
        let has_advanced = writer.end > end;
        drop(writer);
        drop(working);
        if has_advanced {
            self.marks.tell_advanced();
        }
        if result.is_err() {
            self.marks.tell_failed();
        }
        result
    }

    /// The right to write. A wait for it is not always one for the page cache: a checkpoint may have it.
    fn writer_of<'a>(&self, log: &'a OpenLog) -> RankedGuard<'a, SegmentWriter> {
        if let Some(writer) = log.writer.try_lock() {
            return writer;
        }
        let _working = self.dir.working(DirWork::AwaitsWriter(self.id));
        log.writer.lock()
    }

    /// The caller calls the observer.
    fn write_staged_in(&self, log: &OpenLog, writer: &mut SegmentWriter) -> Result<(), LogError> {
        let (mut pieces, held_up_bytes) = {
            let mut appender = log.appender.lock();
            appender.is_left = false;
            if appender.mode != Mode::Segment || appender.staged.is_empty() {
                return Ok(());
            }
            (std::mem::take(&mut appender.staged), std::mem::take(&mut appender.held_up_bytes))
        };
        let written = self.dir.check_usable().and_then(|()| self.write_pieces(log, writer, &pieces));
        self.dir.remove_submitted(held_up_bytes);
        self.marks.append_to(writer.end);
        if let Err(error) = written {
            self.lose_staged(log, writer);
            return Err(self.dir.judge(error));
        }
        pieces.clear();
        log.give_back(pieces);
        Ok(())
    }

    /// Forgets everything that is not in the segments: it had offsets, and will never be in the log.
    fn lose_staged(&self, log: &OpenLog, writer: &SegmentWriter) {
        let mut appender = log.appender.lock();
        appender.staged.clear();
        self.dir.remove_submitted(std::mem::take(&mut appender.held_up_bytes));
        appender.next_offset = writer.end;
        appender.latest_epoch = log.view().latest_epoch;
        log.producers().clone_from(&writer.producers);
        self.marks.lose_from(writer.end);
    }

    /// Whether the append will never be in the log: it had got its offsets, and then the disk or the journal refused
    /// it. Other records may have these offsets by now, so a caller that waits for the watermarks asks this too, before
    /// believing them.
    pub fn is_lost(&self, appended: &Appended) -> bool {
        self.marks.is_lost(appended.loss_count, appended.last_offset.next())
    }
}

fn duplicate_of(place: BatchPlace, prepared: &Prepared, log_start: Offset, loss_count: u64) -> Appended {
    Appended {
        base_offset: place.base_offset,
        last_offset: place.last_offset,
        log_append_time: prepared.log_append_time.map(|_| place.timestamp),
        log_start_offset: log_start,
        bytes: 0,
        duplicate: true,
        loss_count,
    }
}

impl OpenLog {
    /// Fails if the first one of a duplicate was lost with the journal: its producer would wait for it for ever. A
    /// journal that fails after this check counts a loss.
    fn check_not_lost(&self, place: &BatchPlace) -> Result<(), LogError> {
        match self.journal_failure.get() {
            Some(failure) if place.last_offset >= self.end() => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Keeps the memory of an emptied list for what is staged next.
    fn give_back(&self, pieces: Vec<Piece>) {
        let mut appender = self.appender.lock();
        if appender.staged.capacity() == 0 && pieces.capacity() <= STAGED_KEPT {
            appender.staged = pieces;
        }
    }
}

fn find_duplicate(
    producers: &ProducerStates,
    prepared: &Prepared,
    origin: AppendOrigin,
    has_history: bool,
) -> Result<Option<BatchPlace>, AppendError> {
    let verdict = match origin {
        AppendOrigin::Client => {
            let first = prepared.batches().next().map(|batch| batch.sequenced());
            producers.check(first.as_slice(), origin, has_history)?
        }
        AppendOrigin::Coordinator => {
            let batches: Vec<SequencedBatch> = prepared.batches().map(|batch| batch.sequenced()).collect();
            producers.check(&batches, origin, has_history)?
        }
    };
    match verdict {
        SequenceVerdict::Append => Ok(None),
        SequenceVerdict::Duplicate(place) => Ok(Some(place)),
    }
}
