//! Changes the way of a partition's appends, between the segments and the journal, and whether acks wait for a sync.
//!
//! Recovery takes the journal's entries above the last checkpoint for the log's end. So when the way changes nothing
//! may lie above that checkpoint: appends are staged meanwhile, everything before them is brought into the segments and
//! under a checkpoint, and then the staged batches go the new way. Nothing is refused, lost or reordered; acks wait for
//! as long as the checkpoint takes. Until then the old level is the one that is reached, and a level that syncs is
//! [promised](PartitionLog::level_promised) all the same.

use std::sync::Arc;

use riverrun_types::Offset;

use super::PartitionLog;
use super::open::{Appender, OpenLog};
use super::tail::Piece;
use super::writer::{SegmentWriter, record_producer};
use crate::error::LogError;
use crate::mode::Mode;
use crate::producer_state::AppendOrigin;

/// A partition whose appends go nowhere at the moment.
pub(crate) struct LevelChange {
    partition: Arc<PartitionLog>,
    log: Arc<OpenLog>,
    from: Mode,
    /// The log's end once all submitted entries have come.
    end: Offset,
    /// Number of times that entries had been put aside for its log dir.
    asides: u64,
}

/// How a change of level has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelChangeEnd {
    /// The level is the options' one, or the partition was deleted.
    Done,
    /// It could not be made this time.
    Later,
    /// The journal or the log dir has failed: not before a restart.
    Never,
}

impl PartitionLog {
    /// Begins to stage appends, if the level asks for another way than the present one. After an error it is to be
    /// tried again, unless the log dir has failed.
    pub(crate) fn begin_level_change(self: &Arc<Self>) -> Result<Option<LevelChange>, LogError> {
        // Batches that were staged before go the old way.
        self.write_staged()?;
        Ok(self.hold_up())
    }

    /// Whether the options ask for a level that would lead through a journal that has failed. Such a change will not
    /// come: nothing need be held up or synced for it.
    pub(crate) fn cannot_change_level(&self) -> bool {
        let Some(log) = self.current_log() else { return false };
        let Ok(wanted) = self.dir.shared().mode_of(self.config().durability) else { return false };
        let from = log.appender.lock().mode;
        self.is_barred(from, wanted)
    }

    fn hold_up(self: &Arc<Self>) -> Option<LevelChange> {
        let log = self.current_log()?;
        let level = self.config().durability;
        let wanted = self.dir.shared().mode_of(level).ok()?;
        let asides = self.dir.aside_count();
        let mut appender = log.appender.lock();
        let from = appender.mode;
        if appender.is_retired || appender.is_being_cut || from.is_leaving() {
            return None;
        }
        if from == wanted && !self.begins_to_sync(level) {
            self.marks.set_level(level);
            return None;
        }
        let journal = self.dir.shared().journal_of(self.id)?;
        if appender.staged.iter().any(|piece| piece.bytes.len() > journal.entry_bytes_max()) {
            // Batches that were staged just now, for a segment, are too large for the journal: they are written the
            // next time.
            self.dir.request_level_change(self.id);
            return None;
        }
        // The end includes entries that were submitted to a journal that has failed: the next start may find them, and
        // takes them for the log's end, whatever the segments have there.
        let end = appender.staged.first().map_or(appender.next_offset, |piece| piece.base_offset);
        appender.mode = from.leaving();
        drop(appender);
        Some(LevelChange { partition: self.clone(), log, from, end, asides })
    }
}

impl LevelChange {
    pub(crate) fn partition(&self) -> &Arc<PartitionLog> {
        &self.partition
    }

    /// Whether the journal has stored all earlier entries, and the settler finds them.
    pub(crate) fn is_drained(&self) -> bool {
        self.log.end() >= self.end && self.partition.watermarks().appended >= self.end
    }

    /// Whether it will soon have stored them, as far as is known.
    pub(crate) fn is_draining(&self) -> bool {
        let appender = self.log.appender.lock();
        // Entries of a log that was deleted meanwhile are dropped, and so are batches that a failed write has lost.
        let is_lost = appender.is_retired || appender.next_offset < self.end;
        drop(appender);
        let journal = self.partition.dir.shared().journal_of(self.partition.id);
        let is_stuck = || journal.is_some_and(|journal| journal.failure().or(journal.shortage()).is_some());
        !is_lost && !self.is_drained() && !is_stuck()
    }

    /// Lets appends go on: the new way if a checkpoint covers everything before them and the new way is open, and the
    /// old way otherwise.
    pub(crate) fn finish(self) -> LevelChangeEnd {
        // While entries are put aside, each partition's segment end and way are read in turn.
        let asides = self.partition.dir.asides.lock();
        let writer = self.log.writer.lock();
        let mut appender = self.log.appender.lock();
        let wanted = self.partition.config().durability;
        let mode = self.partition.dir.shared().mode_of(wanted).unwrap_or(self.from);
        let is_covered = !writer.is_dirty && writer.end == self.end && writer.recovery_point == self.end;
        let is_barred = self.partition.is_barred(self.from, mode);
        let needs_nothing = mode == self.from && !self.partition.begins_to_sync(wanted);
        // A start takes the end of the entries aside for the end of the log: nothing may go past the journal behind it.
        let may_be_aside = self.from == Mode::Journal && *asides != self.asides;
        let is_done = !is_barred && ((is_covered && !may_be_aside) || needs_nothing);
        appender.mode = if is_done { mode } else { self.from };
        // From here on the journal's count, or the writer's, includes it.
        self.partition.dir.remove_submitted(std::mem::take(&mut appender.held_up_bytes));
        if is_done {
            self.partition.marks.set_level(wanted);
            self.partition.dir.shared().count_reached(self.partition.id.topic, wanted);
        }
        drop(asides);
        self.partition.marks.sync_to(writer.recovery_point);
        let submitted = self.submit_staged(&writer, &mut appender);
        drop((appender, writer));
        tracing::debug!(
            partition = %self.partition.id, level = %self.partition.level_reached(), is_done, "level changed"
        );
        self.partition.marks.tell_advanced();
        if let Err(error) = submitted.and_then(|()| self.partition.write_staged()) {
            tracing::warn!(partition = %self.partition.id, %error, "appends were lost in a change of level");
            self.partition.marks.tell_failed();
        }
        let journal_has_failed = is_barred || self.log.journal_failure.get().is_some();
        match (
            is_done || self.partition.is_deleted(),
            journal_has_failed || self.partition.failure().is_some(),
        ) {
            (true, _) => LevelChangeEnd::Done,
            (false, false) => LevelChangeEnd::Later,
            (false, true) => LevelChangeEnd::Never,
        }
    }

    /// Submits the staged batches to the journal, if that is their new way.
    fn submit_staged(&self, writer: &SegmentWriter, appender: &mut Appender) -> Result<(), LogError> {
        if appender.mode != Mode::Journal {
            return Ok(());
        }
        let staged = std::mem::take(&mut appender.staged);
        for (index, piece) in staged.iter().enumerate() {
            // They were accepted already, and wait with the journal.
            if let Err(error) = self.partition.submit(&self.log, piece, AppendOrigin::Coordinator) {
                // The journal has failed or is closed, and takes nothing else of this log either.
                appender.next_offset = piece.base_offset;
                self.log.reset_producers(writer, &staged[..index]);
                self.partition.marks.lose_from(piece.base_offset);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl OpenLog {
    /// Forgets the batches of producers that are neither in the log nor `submitted`: if one comes again, it must not be
    /// taken for a duplicate.
    pub(super) fn reset_producers(&self, writer: &SegmentWriter, submitted: &[Piece]) {
        let (mut pieces, end) = {
            let shown = self.shown.lock();
            let tail = shown.tail.entries().map(|entry| entry.piece.clone());
            (tail.collect::<Vec<_>>(), shown.view.end)
        };
        pieces.extend(submitted.iter().filter(|piece| piece.base_offset >= end).cloned());
        let mut producers = self.producers();
        producers.clone_from(&writer.producers);
        for piece in &pieces {
            for (_, header) in piece.headers() {
                record_producer(&mut producers, &header, piece.now);
            }
        }
    }
}
