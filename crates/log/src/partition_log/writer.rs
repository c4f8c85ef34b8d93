//! The writer of the segments: takes pieces of the log in order, in runs as large as one segment takes, each with one
//! write, and shows readers the written runs.
//!
//! It serves appends that go straight to the segments and the tail that is settled. After an error the segments are as
//! they were after the last successful run: bytes in a file beyond their end are cut off, synced, before anything else
//! is written there.

use std::cell::LazyCell;
use std::io::IoSlice;
use std::sync::Arc;

use riverrun_env::File;
use riverrun_records::BatchHeader;
use riverrun_types::{Offset, TimestampMs};

use super::PartitionLog;
use super::open::OpenLog;
use super::states::StateFiles;
use super::tail::Piece;
use crate::config::LogConfig;
use crate::early_rolls::{Allowance, SMALL_SEGMENT_BYTES};
use crate::error::LogError;
use crate::index::{ENTRY_BYTES, IndexCursor, IndexEntry, OFFSET_SPAN_MAX, stamp_of};
use crate::producer_state::{BatchPlace, ProducerStates, SequencedBatch};
use crate::segment::{Extent, Segment};

/// A segment that is larger than this gets its space in steps of this, ahead of the writes, which saves the file system
/// a reservation with each of them: a fifth of a small write's processor time, more of a large one's. So no more is set
/// aside than is used already, and nothing for small partitions.
const ALLOCATION_STEP_BYTES: u64 = 4 * 1024 * 1024;
/// The disk begins to write a settled segment in pieces of this. If that were left to the checkpoint, which syncs all
/// bytes since the one before, a write of the journal would wait for all of them on the same device.
const WRITE_BACK_BYTES: u64 = 1024 * 1024;
/// The write-back leaves out the last page: the next batch goes to it, too.
const PAGE_BYTES: u64 = 4096;

/// The segment that is written to.
///
/// Invariants: `cursor` describes the batches that are shown; bytes of the file beyond it are worth nothing. Space that
/// is set aside does not make the file longer, and it is not longer than `stale_to`.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) segment: Arc<Segment>,
    pub(crate) cursor: IndexCursor,
    /// Largest timestamp of the first batch, from which `segment.ms` counts.
    pub(crate) first_timestamp: Option<TimestampMs>,
    /// Time at which the segment was made or opened, for batches without timestamps.
    pub(crate) opened_at: TimestampMs,
    /// Subtracted from `segment.ms`.
    pub(crate) jitter_ms: u64,
    /// Space is set aside up to here; none if the file system refused to.
    pub(crate) allocated: Option<u64>,
    /// Until the journal's entries are written anew, the file may have its old bytes up to here. They are written over,
    /// not cut first: a cut gives their space back, only to take as much again, and on file systems that tell the
    /// device of freed space, that takes long.
    pub(crate) stale_to: u64,
    /// The disk was told, or is being told, to begin with the bytes below.
    pub(crate) begun_to: u64,
    /// A recovery may have cut its index, or may have yet to cut stale bytes, and no checkpoint came after it.
    pub(crate) has_unsynced_cut: bool,
    /// A write has failed. Its bytes beyond the end may come back with a power cut until they are cut off, and synced.
    pub(crate) is_torn: bool,
}

/// The state that changes with the segments, and the checkpoint's part of it.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    pub(crate) active: Option<ActiveSegment>,
    /// End of the segments.
    pub(crate) end: Offset,
    /// The producers as of `end`.
    pub(crate) producers: ProducerStates,
    /// Everything below was synced by a checkpoint.
    pub(crate) recovery_point: Offset,
    /// The checkpoint lacks a change.
    pub(crate) is_dirty: bool,
    /// The log's state files.
    pub(crate) states: StateFiles,
    /// The log's allowance for small segments.
    pub(crate) early_rolls: Allowance,
}

/// Whether a segment ends before another batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Roll {
    /// It goes on.
    No,
    /// It ends, small as it is: the allowance covers that.
    Early,
    /// It has to end.
    Due,
}

/// A part of a segment whose writing the disk is to begin.
#[derive(Debug)]
pub(super) struct WriteBack {
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    position: u64,
    bytes: u64,
}

/// The part of the active segment that one write adds, and the cursor behind it.
struct Run {
    /// Number of pieces.
    count: usize,
    cursor: IndexCursor,
    entries: Vec<IndexEntry>,
    first_timestamp: Option<TimestampMs>,
}

impl PartitionLog {
    /// Writes the pieces behind the segments' end, and shows them to readers. After an error the pieces before
    /// `writer.end` are written, and none of the others.
    pub(super) fn write_pieces(
        &self,
        log: &OpenLog,
        writer: &mut SegmentWriter,
        pieces: &[Piece],
    ) -> Result<(), LogError> {
        let config = self.config();
        let mut left = pieces;
        while let Some(first) = left.first() {
            self.make_room(log, writer, first, &config)?;
            self.mark_dirty(writer);
            let may_roll_early = LazyCell::new(|| self.may_roll_early(&writer.early_rolls));
            let active = writer.active.as_mut().expect("there is an active segment with room");
            let run = active.plan(left, &config, || *may_roll_early);
            let (written, rest) = left.split_at(run.count);
            active.write(written, run)?;
            writer.pass(written);
            log.show(writer, written);
            self.store_index(writer);
            left = rest;
        }
        Ok(())
    }

    /// Tells the store that the log has changed since the checkpoint.
    pub(super) fn mark_dirty(&self, writer: &mut SegmentWriter) {
        if !writer.is_dirty {
            writer.is_dirty = true;
            self.dir.mark_dirty(self.id);
        }
    }

    /// Makes sure that there is an active segment with room for the piece.
    fn make_room(
        &self,
        log: &OpenLog,
        writer: &mut SegmentWriter,
        piece: &Piece,
        config: &LogConfig,
    ) -> Result<(), LogError> {
        let roll = writer.active.as_ref().map_or(Roll::Due, |active| {
            let entry_count = active.segment.entry_count();
            let may_roll_early = || self.may_roll_early(&writer.early_rolls);
            active.roll(&active.cursor, entry_count, active.first_timestamp, piece, config, may_roll_early)
        });
        if roll == Roll::No {
            return Ok(());
        }
        self.start_segment(log, writer, config, piece.now)?;
        if roll == Roll::Early {
            let now = self.dir.env().clock.monotonic();
            self.dir.early_rolls().take(&mut writer.early_rolls, now);
        }
        Ok(())
    }

    fn may_roll_early(&self, allowance: &Allowance) -> bool {
        self.dir.early_rolls().may(allowance, self.dir.env().clock.monotonic())
    }

    /// Makes the segment that the next batch goes to, and seals the active one, if there is one: if there is no room
    /// for another, appends still go there.
    pub(super) fn start_segment(
        &self,
        log: &OpenLog,
        writer: &mut SegmentWriter,
        config: &LogConfig,
        now: TimestampMs,
    ) -> Result<(), LogError> {
        let home = &log.home;
        if log.view().segments.is_empty() {
            self.dir.make_partition_dir(self.id)?;
            self.dir.include(&home.dir)?;
        }
        let base_offset = writer.end;
        writer.complete_active()?;
        log.write_sealed_state(writer)?;
        let segment = Arc::new(Segment::create(home.clone(), base_offset)?);
        writer.end_active();
        writer.active = Some(ActiveSegment {
            cursor: IndexCursor::at(base_offset, IndexEntry::START, config.index_interval_bytes),
            segment: segment.clone(),
            first_timestamp: None,
            opened_at: now,
            jitter_ms: self.dir.jitter_ms(config.segment_jitter_ms),
            allocated: Some(0),
            stale_to: 0,
            begun_to: 0,
            has_unsynced_cut: false,
            is_torn: false,
        });
        log.update_view(|view| view.push_segment(segment));
        Ok(())
    }

    /// Writes index entries once a page of them has gathered. If space is short they stay in memory, and the next write
    /// tries again; the written batches are as good as before.
    fn store_index(&self, writer: &SegmentWriter) {
        let Some(active) = &writer.active else { return };
        if let Err(error) = active.segment.store_full_tail() {
            let error = self.dir.judge(error);
            tracing::warn!(partition = %self.id, %error, "index entries stay in memory");
        }
    }
}

impl OpenLog {
    /// Shows readers the written pieces: in the segments now, and no longer in the tail.
    fn show(&self, writer: &SegmentWriter, written: &[Piece]) {
        let mut guard = self.shown.lock();
        let shown = &mut *guard;
        if let Some(active) = &writer.active {
            shown.view.last_bytes = active.cursor.position;
            shown.view.last_max_timestamp = active.cursor.max_timestamp;
        }
        shown.view.settled_end = writer.end;
        shown.view.end = shown.view.end.max(writer.end);
        let aside_before = shown.tail.aside_bytes();
        let settled_bytes = shown.tail.forget_below(writer.end);
        let aside_after = shown.tail.aside_bytes();
        for piece in written {
            if shown.view.latest_epoch.is_none_or(|latest| latest < piece.epoch) {
                shown.view.latest_epoch = Some(piece.epoch);
                self.epochs().assign(piece.epoch, piece.base_offset);
            }
        }
        drop(guard);
        self.dir.shared().cache.move_aside(aside_before, aside_after);
        if settled_bytes > 0 {
            self.dir.remove_stored(settled_bytes);
        }
    }
}

impl SegmentWriter {
    /// Whether a durable checkpoint has all of the log. The state of a checkpoint that is under way, or has failed, is
    /// not covered.
    pub(super) fn is_covered(&self, has_segments: bool) -> bool {
        !self.is_dirty && (!has_segments || self.recovery_point == self.end)
    }

    /// Seals the active segment, so that the next write begins another. Its index is whole when it returns.
    pub(super) fn seal_active(&mut self, log: &OpenLog) -> Result<(), LogError> {
        self.complete_active()?;
        log.write_sealed_state(self)?;
        self.end_active();
        Ok(())
    }

    /// Completes the active segment's files as for its sealing, and gives back space that they do not need: the next
    /// one may need it. It can still be appended to.
    ///
    /// If all of it lies below the recovery point, bytes that a recovery has cut off are gone for good when this
    /// returns: a start takes such a segment as its files say, and they must not come back with a power cut.
    fn complete_active(&mut self) -> Result<(), LogError> {
        self.complete_index()?;
        self.cut_stale()?;
        self.give_space_back();
        match &self.active {
            Some(active) if active.has_unsynced_cut && self.end <= self.recovery_point => {
                active.segment.sync()
            }
            _ => Ok(()),
        }
    }

    /// Seals the active segment, which is complete.
    fn end_active(&mut self) {
        let Some(active) = self.active.take() else { return };
        let extent = Extent { size_bytes: active.cursor.position, next_offset: self.end };
        active.segment.seal(extent);
    }

    /// Cuts the bytes of a failed write, and the old bytes of the active segment that the journal's entries were not
    /// written over. Until then nothing may call the log complete: the next start would take them for records.
    pub(super) fn cut_stale(&mut self) -> Result<(), LogError> {
        self.active.as_mut().map_or(Ok(()), ActiveSegment::cut_stale)
    }

    /// The part of the active segment whose writing the disk is to begin, once it is large enough.
    pub(super) fn take_write_back(&mut self) -> Option<WriteBack> {
        self.active.as_mut().and_then(ActiveSegment::take_write_back)
    }

    /// Leaves no space set aside: nothing is written for a while.
    pub(super) fn give_space_back(&mut self) {
        if let Some(active) = &mut self.active {
            active.give_space_back();
        }
    }

    /// Remembers the producers of written pieces.
    fn pass(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            for (_, header) in piece.headers().filter(|(_, header)| header.has_producer_id()) {
                record_producer(&mut self.producers, &header, piece.now);
            }
            self.end = piece.next_offset;
            self.states.count(piece.bytes.len());
        }
    }
}

impl ActiveSegment {
    /// Kafka's conditions: no room by size, time, index or offsets. Checked for the segment as it is or as it will be.
    /// While it is small, time and index count only if the log [may end it](crate::early_rolls).
    fn roll(
        &self,
        cursor: &IndexCursor,
        entry_count: u32,
        first_timestamp: Option<TimestampMs>,
        piece: &Piece,
        config: &LogConfig,
        may_roll_early: impl FnOnce() -> bool,
    ) -> Roll {
        if cursor.position == 0 {
            return Roll::No;
        }
        let last_offset = piece.next_offset.plus(-1);
        if last_offset.0 - self.segment.base_offset.0 >= OFFSET_SPAN_MAX {
            return Roll::Due;
        }
        let size_bytes = cursor.position + piece.bytes.len() as u64;
        // The file has these bytes already, and a new segment would cut those behind them: the journal may have them
        // damaged.
        if size_bytes <= self.stale_to {
            return Roll::No;
        }
        if size_bytes > u64::from(config.segment_bytes) {
            return Roll::Due;
        }
        let index_bytes = u64::from(entry_count + 1) * ENTRY_BYTES as u64;
        let is_asked_for = index_bytes > u64::from(config.segment_index_bytes)
            || self.spans_too_much(first_timestamp, piece.max_timestamp, config, piece.now);
        match (is_asked_for, cursor.position >= SMALL_SEGMENT_BYTES) {
            (true, true) => Roll::Due,
            (true, false) if may_roll_early() => Roll::Early,
            (true | false, _) => Roll::No,
        }
    }

    /// Whether a record of `timestamp` would make the segment span more than it may.
    pub(super) fn is_too_old(&self, timestamp: TimestampMs, config: &LogConfig, now: TimestampMs) -> bool {
        self.spans_too_much(self.first_timestamp, timestamp, config, now)
    }

    /// If the first batch has no timestamp, the segment's own age counts.
    fn spans_too_much(
        &self,
        first_timestamp: Option<TimestampMs>,
        timestamp: TimestampMs,
        config: &LogConfig,
        now: TimestampMs,
    ) -> bool {
        let limit_ms = config.segment_span_ms_max().saturating_sub(self.jitter_ms);
        let limit_ms = i64::try_from(limit_ms).unwrap_or(i64::MAX);
        let span_ms = match first_timestamp {
            Some(first) if first.0 >= 0 => timestamp.0.saturating_sub(first.0),
            _ => now.0.saturating_sub(self.opened_at.0),
        };
        span_ms > limit_ms
    }

    /// As many of the pieces as fit, and at least the first; nothing changes yet.
    fn plan(&self, pieces: &[Piece], config: &LogConfig, may_roll_early: impl Fn() -> bool) -> Run {
        let mut run =
            Run { count: 0, cursor: self.cursor, entries: Vec::new(), first_timestamp: self.first_timestamp };
        let stored = self.segment.entry_count();
        let ends_before = |run: &Run, piece: &Piece| {
            let entry_count = stored + u32::try_from(run.entries.len()).unwrap_or(u32::MAX);
            self.roll(&run.cursor, entry_count, run.first_timestamp, piece, config, &may_roll_early)
                != Roll::No
        };
        for piece in pieces {
            if run.count > 0 && ends_before(&run, piece) {
                break;
            }
            run.take(piece);
        }
        run
    }

    /// Writes the pieces of a run after the last batch, with one write, and adds them to the index. After an error the
    /// segment is as before: bytes that have reached the file lie beyond its end. Unless the log dir fails with the
    /// error, the next run is written to the same place, once they are cut off for good.
    fn write(&mut self, pieces: &[Piece], run: Run) -> Result<(), LogError> {
        self.cut_torn()?;
        let size = self.cursor.position;
        let file = self.segment.log_file_to_append()?;
        self.allocate(&*file, run.cursor.position);
        let written = match pieces {
            [piece] => file.write_all_at(&piece.bytes, size),
            pieces => {
                let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(&piece.bytes)).collect();
                file.write_vectored_all_at(&mut slices, size)
            }
        };
        if let Err(error) = written {
            // It gives back the space. If this fails too, the next write tries again.
            let _ = file.set_len(size);
            self.allocated = None;
            self.is_torn = true;
            return Err(LogError::write(&self.segment.log_path(), error));
        }
        for entry in run.entries {
            self.segment.push_entry(entry);
        }
        self.cursor = run.cursor;
        self.first_timestamp = run.first_timestamp;
        Ok(())
    }

    /// Sets space aside for a write up to `end` and those after it. After a refusal the write may succeed without.
    fn allocate(&mut self, file: &dyn File, end: u64) {
        let Some(allocated) = self.allocated else { return };
        if end <= allocated.max(ALLOCATION_STEP_BYTES) {
            return;
        }
        let from = allocated.max(self.cursor.position);
        let bytes = end.saturating_sub(from) + ALLOCATION_STEP_BYTES;
        self.allocated = file.allocate(from, bytes).is_ok().then_some(from + bytes);
    }

    fn take_write_back(&mut self) -> Option<WriteBack> {
        let (position, end) = (self.begun_to, self.cursor.position - self.cursor.position % PAGE_BYTES);
        let bytes = end.saturating_sub(position);
        if bytes < WRITE_BACK_BYTES {
            return None;
        }
        let file = self.segment.log_file_to_append().ok()?;
        self.begun_to = end;
        Some(WriteBack { segment: self.segment.clone(), file, position, bytes })
    }

    /// Cuts off the bytes of a failed write. Durable when it returns, because the offsets of the lost records are given
    /// again: a reader has seen other records there, and a power cut must not put the lost ones, of the same epoch, in
    /// their place.
    fn cut_torn(&mut self) -> Result<(), LogError> {
        if !self.is_torn {
            return Ok(());
        }
        let (path, file) = (self.segment.log_path(), self.segment.log_file_to_append()?);
        file.set_len(self.cursor.position).map_err(|error| LogError::write(&path, error))?;
        file.sync_data().map_err(|error| LogError::sync(&path, error))?;
        self.is_torn = false;
        Ok(())
    }

    fn cut_stale(&mut self) -> Result<(), LogError> {
        self.cut_torn()?;
        let size = self.cursor.position;
        if self.stale_to > size {
            let cut = self.segment.log_file_to_append()?.cut_as_old(size);
            cut.map_err(|error| LogError::write(&self.segment.log_path(), error))?;
            self.allocated = Some(size);
        }
        self.stale_to = 0;
        Ok(())
    }

    fn give_space_back(&mut self) {
        let size = self.cursor.position;
        if self.allocated.is_some_and(|allocated| allocated > size) {
            // If this fails, the file takes more space than it needs until it is removed.
            let _ = self.segment.log_file_to_append().map(|file| file.cut_as_old(size));
            self.allocated = Some(size);
        }
    }
}

impl WriteBack {
    /// Has the disk begin, and waits if it has much to do already: to be called without any lock of the log.
    pub(super) fn begin(&self) -> Result<(), LogError> {
        let begun = self.file.begin_write_back(self.position, self.bytes);
        begun.map_err(|error| LogError::sync(&self.segment.log_path(), error))
    }
}

impl Run {
    fn take(&mut self, piece: &Piece) {
        for (start, header) in piece.headers() {
            self.entries.extend(self.cursor.entry_due(header.base_offset()));
            self.cursor.pass(&header, &stamp_of(&piece.bytes[start..]));
            self.first_timestamp.get_or_insert(header.max_timestamp());
        }
        self.count += 1;
    }
}

/// Remembers a batch's producer, epoch and sequences.
pub(crate) fn record_producer(producers: &mut ProducerStates, header: &BatchHeader, now: TimestampMs) {
    if !header.has_producer_id() {
        return;
    }
    let batch = SequencedBatch {
        producer_id: header.producer_id(),
        epoch: header.producer_epoch(),
        first_sequence: header.base_sequence(),
        last_sequence: header.last_sequence(),
    };
    let place = BatchPlace {
        base_offset: header.base_offset(),
        last_offset: header.last_offset(),
        timestamp: header.max_timestamp(),
    };
    producers.record(batch, place, now);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::thread;
    use std::time::Duration;

    use riverrun_env::sim::SimEnv;
    use riverrun_env::{Env, FileSystem};
    use riverrun_types::{LeaderEpoch, PartitionId, TopicId};

    use super::*;
    use crate::options::StoreOptions;
    use crate::store::LogStore;

    #[test]
    fn a_segment_is_added_without_copying_the_list_of_the_others() {
        let sim = SimEnv::new(1);
        let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
        let id = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let log = store.partition(id, 0, Arc::new(LogConfig::default()), LeaderEpoch(1)).unwrap();
        let open = log.open().unwrap();
        let mut writer = open.writer.lock();
        let mut add = |base| {
            writer.end = Offset(base);
            log.start_segment(&open, &mut writer, &log.config(), TimestampMs(0)).unwrap();
            Arc::as_ptr(&open.shown.lock().view.segments)
        };
        let first = add(0);
        assert!((1..50).all(|base| add(base) == first));
        let held = open.view();
        let other = add(50);
        assert!(other != first && (51..60).all(|base| add(base) == other));
        assert_eq!((held.segments.len(), open.view().segments.len()), (50, 60));
    }

    #[test]
    fn deletion_waits_for_the_making_of_the_first_segment() {
        let sim = SimEnv::new(1);
        let store = LogStore::open(&sim.env(), &[PathBuf::from("/logs")], StoreOptions::default()).unwrap();
        let id = PartitionId { topic: TopicId([1; 16]), index: 0 };
        let log = store.partition(id, 0, Arc::new(LogConfig::default()), LeaderEpoch(1)).unwrap();
        let open = log.open().unwrap();
        let mut writer = open.writer.lock();
        thread::scope(|scope| {
            let deletion = scope.spawn(|| store.delete(id, 0));
            while !open.appender.lock().is_retired {
                thread::yield_now();
            }
            // Time for it to go on, which it must not.
            Env::real().clock.sleep(Duration::from_millis(50));
            log.start_segment(&open, &mut writer, &log.config(), TimestampMs(0)).unwrap();
            assert!(sim.fs.exists(&log.path()).unwrap());
            drop(writer);
            deletion.join().unwrap().unwrap();
        });
        assert!(!sim.fs.exists(&log.path()).unwrap());
    }
}
