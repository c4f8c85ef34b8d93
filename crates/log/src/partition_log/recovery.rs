//! Opening a partition: lists its files, finds their intact part, and builds the log's state from it.
//!
//! Everything below the *recovery point*, which the log dir's checkpoint has, was synced. Above it the files are
//! scanned batch by batch: CRC, offsets without gaps, epochs that do not fall. The first damage there is a torn tail
//! and is cut off. Damage below it is corruption: nothing is cut, the error names file and position, and the partition
//! stays offline. The same holds below the end of a later cut, which syncs what it leaves. If the checkpoint itself was
//! damaged, the recovery point is unknown: then damage is cut only if no intact batch follows.
//!
//! A cut that is [written down](super::cut) is carried out here, at once and at each start until a checkpoint covers
//! the log. Records behind it go to a segment of their own: readers may still have ranges of the files before, and
//! these are never written over. Once the files have nothing from before the cut, that is written down, too: if the
//! checkpoint is damaged later, all that is found in them counts.
//!
//! A log whose index says that the file ends exactly at the recovery point needs no scan, however the server stopped.
//! State files above the recovery point describe records that may be lost, or cut off: they are removed, and segments
//! that are sealed anew get others. Recovery may be interrupted anywhere, and running it again gives the same bytes.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use riverrun_env::{ChangeError, OpenMode, atomic_replace, is_device_error};
use riverrun_types::{LeaderEpoch, Offset, TimestampMs};

use super::PartitionLog;
use super::open::{OpenLog, OpenParts, View};
use super::states::{self, StateFiles, is_due};
use super::writer::{ActiveSegment, SegmentWriter, record_producer};
use crate::checkpoint::PartitionCheckpoint;
use crate::config::LogConfig;
use crate::early_rolls::Allowance;
use crate::epochs::EpochCache;
use crate::error::LogError;
use crate::fields::DecodeError;
use crate::index::{IndexCursor, IndexEntry};
use crate::log_dir::DirWork;
use crate::partition_files::{self, PartitionFiles};
use crate::producer_state::ProducerStates;
use crate::scan::{BatchScan, ScanStop, ScannedBatch};
use crate::segment::{Extent, Home, Segment};
use crate::state_file::{LogState, STATE_BYTES_MAX, decode_state, encode_state};

/// Bytes of a page of the page cache; larger pages are dropped as well if they are wholly in the range.
const PAGE_BYTES: u64 = 4096;

/// Opens the partition's files and recovers them if they need it.
///
/// `replay_from`: the journal has everything from this offset on, and the segments' bytes from there on count for
/// nothing. The end of the last cut has the same effect, if no checkpoint has covered the log since. If the checkpoint
/// cannot be believed, the segments may go on alone: then their bytes count.
pub(super) fn recover(log: &PartitionLog, replay_from: Option<Offset>) -> Result<Arc<OpenLog>, LogError> {
    let home = log.home();
    let mut files = list(log, &home)?;
    let checkpoint =
        log.dir.checkpointed(log.id).unwrap_or_else(|| PartitionCheckpoint::starting_at(Offset::ZERO));
    let is_replay = replay_from.is_some();
    let replay_from = checkpoint.cut_end.or(replay_from.filter(|_| !checkpoint.is_lost));
    remove_deleted(&home, &mut files, checkpoint.log_start.min(checkpoint.recovery_point))?;
    log.look_again(&home, &files, &checkpoint)?;
    let mut opening = Opening {
        log,
        config: log.config(),
        now: log.dir.env().clock.wall(),
        is_trusted: !checkpoint.is_lost,
        recovery_point: checkpoint.recovery_point,
        epochs: checkpoint.epochs.clone(),
        producers: ProducerStates::new(),
        named_state: None,
        states: std::mem::take(&mut files.states),
        state_bytes_since: 0,
        segments: Vec::new(),
        is_dirty: checkpoint.is_lost || checkpoint.cut_end.is_some(),
        is_replay,
        replay_from,
        home,
        checkpoint,
    };
    opening.check_listing(&mut files)?;
    opening.drop_replayed(&mut files)?;
    opening.run(&files)?;
    opening.carry_out_cut()?;
    opening.finish()
}

/// The partition's files. A scan of them may take long; a listing takes long only if the disk does not answer.
fn list(log: &PartitionLog, home: &Home) -> Result<PartitionFiles, LogError> {
    let _working = log.dir.working(DirWork::Opens(log.id));
    log.dir.include(&home.dir)?;
    partition_files::list(home)
}

/// Removes segments that end at or below `below`, which retention has deleted: a power cut may have undone some of the
/// removals. Retention deletes nothing above the recovery point.
fn remove_deleted(home: &Home, files: &mut PartitionFiles, below: Offset) -> Result<(), LogError> {
    let successors = files.segments.iter().skip(1);
    let count = successors.take_while(|(base, _)| *base <= below).count();
    for (base, _) in files.segments.drain(..count) {
        partition_files::remove(home, &home.log_path(base))?;
        partition_files::remove(home, &home.index_path(base))?;
    }
    Ok(())
}

/// A segment that is in order. All but the last are sealed.
struct Found {
    segment: Segment,
    /// The end of its batches, if it was scanned.
    tail: Option<Tail>,
}

#[derive(Clone, Copy)]
struct Tail {
    cursor: IndexCursor,
    end: Offset,
    /// The file's bytes up to here may count for nothing.
    stale_to: u64,
}

/// The end of one segment's scan.
enum SegmentEnd {
    /// At the end of the file; this is the offset after the last batch.
    Whole(Offset),
    /// At damage that was cut off.
    Cut(Offset),
}

/// A partition that is being opened.
struct Opening<'a> {
    log: &'a PartitionLog,
    home: Arc<Home>,
    config: Arc<LogConfig>,
    now: TimestampMs,
    checkpoint: PartitionCheckpoint,
    /// The checkpoint can be believed; otherwise there is none.
    is_trusted: bool,
    recovery_point: Offset,
    epochs: EpochCache,
    producers: ProducerStates,
    /// Offset of the state file that the next checkpoint can name.
    named_state: Option<Offset>,
    /// Offsets of the state files, in order.
    states: Vec<Offset>,
    /// Bytes of the segments that were sealed without a state file since.
    state_bytes_since: u64,
    segments: Vec<Found>,
    is_dirty: bool,
    /// The journal has entries of it, which come next: into memory, or into the segments.
    is_replay: bool,
    /// Everything from here on comes from the journal.
    replay_from: Option<Offset>,
}

impl Opening<'_> {
    /// Removes the segments that hold nothing but records of the journal.
    fn drop_replayed(&self, files: &mut PartitionFiles) -> Result<(), LogError> {
        let Some(from) = self.replay_from else { return Ok(()) };
        // A segment that begins there stays as an empty one: its name is the log's end.
        let begins_there = files.segments.first().is_some_and(|(base, _)| *base == from);
        let kept = files.segments.partition_point(|(base, _)| *base < from).max(usize::from(begins_there));
        for (base, _) in files.segments.drain(kept..) {
            partition_files::remove(&self.home, &self.home.log_path(base))?;
            partition_files::remove(&self.home, &self.home.index_path(base))?;
        }
        match files.segments.first_mut() {
            Some((base, size_bytes)) if self.cut_to_carry_out() == Some(*base) && *size_bytes > 0 => {
                *size_bytes = 0;
                self.replace_by_empty(&self.home.log_path(*base))
            }
            _ => Ok(()),
        }
    }

    /// Puts an empty file in the place of one whose ranges readers may have.
    fn replace_by_empty(&self, path: &Path) -> Result<(), LogError> {
        atomic_replace(&*self.home.fs, path, &[]).map_err(|error| match error {
            ChangeError::Undone(error) => LogError::write(path, error),
            ChangeError::Unknown(error) => LogError::sync(path, error),
        })
    }

    /// The log's end after its last cut, if no checkpoint has covered it since. In a log dir that has failed nothing
    /// more is written to the log, and it is only read.
    fn cut_to_carry_out(&self) -> Option<Offset> {
        self.checkpoint.cut_end.filter(|_| !self.log.dir.has_failed())
    }

    /// Cuts off the last segment what lies beyond the log's cut, and begins another one there. Durable when it returns.
    fn carry_out_cut(&mut self) -> Result<(), LogError> {
        let Some(end) = self.cut_to_carry_out() else { return Ok(()) };
        if let Some(Found { segment, tail: Some(tail) }) = self.segments.last()
            && tail.end == end
            && segment.base_offset < end
        {
            if tail.stale_to > tail.cursor.position {
                let file = segment.log_file()?;
                file.cut_as_old(tail.cursor.position)
                    .map_err(|error| LogError::sync(&segment.log_path(), error))?;
            }
            self.seal_last(end)?;
            self.segments.last().map_or(Ok(()), |found| found.segment.sync())?;
            let segment = Segment::create(self.home.clone(), end)?;
            let cursor = IndexCursor::at(end, IndexEntry::START, self.config.index_interval_bytes);
            self.segments.push(Found { segment, tail: Some(Tail { cursor, end, stale_to: 0 }) });
        }
        if !self.segments.is_empty() {
            partition_files::sync_dir(&self.home)?;
        }
        self.log.dir.carry_out_cuts(self.log.id)
    }

    /// Compares the files with the range that the checkpoint asks for: everything from the log start up to the end of
    /// what was synced. If that is empty, segments that do not connect to the log start are a torn tail, whose beginning was
    /// lost.
    fn check_listing(&self, files: &mut PartitionFiles) -> Result<(), LogError> {
        let log_start = self.checkpoint.log_start;
        let synced = self.checkpoint.durable_end();
        let missing = match files.segments.first() {
            None => format!("no segments, where offsets up to {synced} were synced"),
            Some((base, _)) if self.is_trusted && *base > log_start => {
                format!("the first segment begins at {base}, the log at {log_start}")
            }
            Some(_) => return Ok(()),
        };
        if log_start < synced {
            return Err(LogError::corrupt(&self.home.dir, 0, missing));
        }
        self.remove_segments(&std::mem::take(&mut files.segments))
    }

    fn run(&mut self, files: &PartitionFiles) -> Result<(), LogError> {
        // A log that has lost all its segments, because all of it was deleted, still knows its producers.
        let Some((first_base, _)) = files.segments.first() else { return self.load_producers() };
        // Retention may have passed the recovery point.
        self.recovery_point = self.recovery_point.max(*first_base);
        let first = files.segments.partition_point(|(base, _)| *base <= self.recovery_point) - 1;
        for (index, (base, size_bytes)) in files.segments[..first].iter().enumerate() {
            let extent = Extent { size_bytes: *size_bytes, next_offset: files.segments[index + 1].0 };
            let segment = Segment::sealed(self.home.clone(), *base, extent);
            self.segments.push(Found { segment, tail: None });
        }
        if first + 1 == files.segments.len() && self.open_without_scan(files.segments[first])? {
            return self.load_producers();
        }
        self.load_producers()?;
        self.is_dirty = true;
        self.scan_segments(files, first)
    }

    /// Takes the last segment as it is, if its index says that it ends at the recovery point.
    fn open_without_scan(&mut self, (base, size_bytes): (Offset, u64)) -> Result<bool, LogError> {
        if !self.is_trusted {
            return Ok(false);
        }
        let segment = Segment::open(self.home.clone(), base);
        let extent = Extent { size_bytes, next_offset: self.recovery_point };
        let Some(entry) = segment.load_if_ends_at(extent)? else { return Ok(false) };
        let cursor = IndexCursor::at(base, entry, self.config.index_interval_bytes);
        self.segments
            .push(Found { segment, tail: Some(Tail { cursor, end: self.recovery_point, stale_to: 0 }) });
        Ok(true)
    }

    /// Scans from the recovery point on. Everything behind the first damage is removed.
    fn scan_segments(&mut self, files: &PartitionFiles, first: usize) -> Result<(), LogError> {
        for index in first..files.segments.len() {
            let (base, size_bytes) = files.segments[index];
            let next_base = files.segments.get(index + 1).map(|(base, _)| *base);
            let end = self.scan_segment(base, size_bytes, next_base.is_some())?;
            let (SegmentEnd::Whole(end_offset) | SegmentEnd::Cut(end_offset)) = end;
            if let (SegmentEnd::Whole(_), Some(next)) = (&end, next_base)
                && self.joins(end_offset, next)
            {
                self.seal_last(next)?;
                continue;
            }
            self.check_reaches(end_offset, base)?;
            if next_base.is_some() && !self.is_trusted {
                let what = format!("ends at offset {end_offset}, and segments follow");
                return Err(LogError::corrupt(&self.home.log_path(base), size_bytes, what));
            }
            return self.remove_segments(&files.segments[index + 1..]);
        }
        Ok(())
    }

    /// Whether a segment that ends at `end` goes on in one that begins at `next`. Gaps come from compaction, which
    /// stays below the recovery point; without a checkpoint that can be anywhere.
    fn joins(&self, end: Offset, next: Offset) -> bool {
        end == next || (!self.is_trusted && end < next)
    }

    /// Whether a log that ends at `end` has lost synced records, apart from those that were deleted on request.
    fn has_lost(&self, end: Offset) -> bool {
        let synced = self.synced_end();
        end < synced && self.checkpoint.log_start < synced
    }

    /// Everything below was synced. A cut syncs what it leaves, also above the recovery point.
    fn synced_end(&self) -> Offset {
        self.recovery_point.max(self.checkpoint.durable_end())
    }

    /// A log that ends below the recovery point is corrupt.
    fn check_reaches(&self, end: Offset, base: Offset) -> Result<(), LogError> {
        if !self.has_lost(end) {
            return Ok(());
        }
        let what = format!("ends at offset {end}, where offsets up to {} were synced", self.synced_end());
        Err(LogError::corrupt(&self.home.log_path(base), 0, what))
    }

    fn seal_last(&mut self, next_offset: Offset) -> Result<(), LogError> {
        let Some(Found { segment, tail: Some(tail) }) = self.segments.last_mut() else { return Ok(()) };
        if let Some(entry) = tail.cursor.end_entry(next_offset) {
            segment.push_entry(entry);
        }
        segment.store_tail()?;
        segment.seal(Extent { size_bytes: tail.cursor.position, next_offset });
        self.state_bytes_since += tail.cursor.position;
        let bytes = self.encode_state(next_offset);
        if is_due(bytes.len(), self.state_bytes_since) {
            self.write_state(next_offset, &bytes)
        } else {
            Ok(())
        }
    }

    /// Scans one segment from the last boundary below the recovery point, and rebuilds its index from there on.
    fn scan_segment(
        &mut self,
        base: Offset,
        size_bytes: u64,
        has_next: bool,
    ) -> Result<SegmentEnd, LogError> {
        let segment = Segment::open(self.home.clone(), base);
        segment.open_index();
        let known_relative = self.recovery_point.0 - base.0;
        let is_trusted = self.is_trusted;
        let entry = segment.load_trusted(|entry| {
            is_trusted
                && i64::from(entry.relative_offset) <= known_relative
                && u64::from(entry.position) <= size_bytes
        })?;
        segment.cut_index_file()?;
        let mut cursor = IndexCursor::at(base, entry, self.config.index_interval_bytes);
        let file = segment.log_file()?;
        let position = u64::from(entry.position);
        // After a failed sync memory shows bytes that the disk does not have: so clean pages are dropped, and read from
        // the disk.
        let page = position - position % PAGE_BYTES;
        let forgotten = file.advise_dont_need(page, size_bytes.saturating_sub(page));
        forgotten.map_err(|error| LogError::io(&segment.log_path(), error))?;
        let expected = base.plus(i64::from(entry.relative_offset));
        let mut scan = BatchScan::new(&*file, base, expected, position, size_bytes);
        let mut stale_to = 0;
        // Up to here the offsets, which no CRC covers, are certain: those below the recovery point as long as they have
        // no gaps.
        let mut certain = expected;
        let damage = loop {
            let before = scan.expected();
            if self.replay_from.is_some_and(|from| before >= from) {
                self.check_ends_for_replay(&segment, scan.position(), before)?;
                stale_to = size_bytes;
                break None;
            }
            match scan.next_batch() {
                Ok(None) => break None,
                Ok(Some(batch)) => match self.check_batch(&batch, before) {
                    Ok(()) => {
                        if batch.header.base_offset() == certain || before >= self.recovery_point {
                            certain = scan.expected();
                        }
                        self.take(&segment, &mut cursor, &batch);
                    }
                    Err(what) => break Some((batch.position, what, before)),
                },
                Err(ScanStop::Damage { position, what, .. }) => break Some((position, what, before)),
                Err(stop) => return Err(segment.scan_failed(stop)),
            }
        };
        let end = match damage {
            None => SegmentEnd::Whole(scan.expected()),
            Some((position, what, expected)) => {
                self.check_may_cut(&segment, &mut scan, position, &what, certain, has_next)?;
                cut(&segment, position, &what)?;
                SegmentEnd::Cut(expected)
            }
        };
        let (SegmentEnd::Whole(offset) | SegmentEnd::Cut(offset)) = end;
        self.segments.push(Found { segment, tail: Some(Tail { cursor, end: offset, stale_to }) });
        Ok(end)
    }

    /// The segment ends at the begin of the journal's entries. Its bytes beyond are written over, and until the next
    /// checkpoint the journal has all of those records: the next recovery would end it here again.
    fn check_ends_for_replay(&self, segment: &Segment, position: u64, end: Offset) -> Result<(), LogError> {
        if self.replay_from == Some(end) {
            return Ok(());
        }
        let what = format!("a batch ends at offset {end}, within the journal's entries");
        Err(LogError::corrupt(&segment.log_path(), position, what))
    }

    /// The segments must reach up to the begin of the journal's entries, unless only records below the log start are
    /// missing.
    fn check_joins_journal(&self, end: Offset) -> Result<(), LogError> {
        match self.replay_from {
            Some(from) if from != end && from > self.checkpoint.log_start => {
                let what = format!("ends at offset {end}, and the journal goes on at {from}");
                let base = self.segments.last().map_or(Offset::ZERO, |found| found.segment.base_offset);
                Err(LogError::corrupt(&self.home.log_path(base), 0, what))
            }
            _ => Ok(()),
        }
    }

    /// The rules for a batch beyond its own CRC. Gaps come only from compaction, which stays below the recovery point.
    fn check_batch(&self, batch: &ScannedBatch, expected: Offset) -> Result<(), String> {
        let header = &batch.header;
        if self.is_trusted && !batch.may_come_at(expected, self.recovery_point) {
            return Err(format!("offset {} where {expected} must come", header.base_offset()));
        }
        let newest = self.epochs.latest().map_or(LeaderEpoch(0), |entry| entry.epoch);
        if header.base_offset() >= self.recovery_point && header.leader_epoch() < newest {
            return Err(format!("leader epoch {} after {}", header.leader_epoch().0, newest.0));
        }
        Ok(())
    }

    fn check_may_cut(
        &self,
        segment: &Segment,
        scan: &mut BatchScan<'_>,
        position: u64,
        what: &str,
        certain: Offset,
        has_next: bool,
    ) -> Result<(), LogError> {
        let corrupt = |what: &str| Err(LogError::corrupt(&segment.log_path(), position, what));
        if self.has_lost(certain) {
            return corrupt(what);
        }
        if self.is_trusted {
            return Ok(());
        }
        // It may be a value that a client has sent: then nothing is cut, and the log is not opened.
        let follows = has_next || has_intact(scan).map_err(|stop| segment.scan_failed(stop))?;
        if follows { corrupt(&format!("{what}, and intact batches follow")) } else { Ok(()) }
    }

    /// Takes a batch into index, epochs and producers.
    fn take(&mut self, segment: &Segment, cursor: &mut IndexCursor, batch: &ScannedBatch) {
        if let Some(entry) = cursor.entry_due(batch.header.base_offset()) {
            segment.push_entry(entry);
        }
        cursor.pass(&batch.header, &batch.stamp);
        if batch.header.base_offset() >= self.recovery_point {
            self.epochs.assign(batch.header.leader_epoch(), batch.header.base_offset());
            record_producer(&mut self.producers, &batch.header, self.now);
        }
    }

    /// Removes the segments behind a cut.
    fn remove_segments(&self, segments: &[(Offset, u64)]) -> Result<(), LogError> {
        for (base, _) in segments {
            for path in [self.home.log_path(*base), self.home.index_path(*base)] {
                tracing::warn!(path = %path.display(), "removed: it lies behind a torn tail");
                partition_files::remove(&self.home, &path)?;
            }
        }
        if segments.is_empty() {
            return Ok(());
        }
        partition_files::sync_dir(&self.home)
    }

    /// The producers as of the recovery point: from the state file that the checkpoint names and from the checkpoint,
    /// or from the newest state file that decodes and the headers after it. State files beyond are removed. If one
    /// cannot be read, nothing is changed: the next opening tries again.
    fn load_producers(&mut self) -> Result<(), LogError> {
        match self.read_producers()? {
            Ok(producers) if self.recovery_point < self.checkpoint.producers_end => {
                self.cut_producers(producers)?;
            }
            Ok(producers) => {
                self.producers = producers;
                self.named_state = self.checkpoint.producers_at;
            }
            Err(error) => {
                tracing::warn!(partition = %self.home.partition, %error, "producers are rebuilt from the log");
                if let Some(state) = self.checkpoint.producers_at {
                    self.remove_state(state)?;
                }
                self.rebuild_producers()?;
                self.is_dirty = true;
            }
        }
        let beyond = self.states.partition_point(|state| *state <= self.recovery_point);
        for state in self.states.drain(beyond..) {
            partition_files::remove(&self.home, &self.home.state_path(state))?;
        }
        Ok(())
    }

    /// Producers that have appended nothing since the log ended at the cut are unchanged since then. The others are
    /// read from the headers of the log.
    fn cut_producers(&mut self, mut known: ProducerStates) -> Result<(), LogError> {
        self.is_dirty = true;
        if known.forget_from(self.recovery_point) {
            self.rebuild_producers()?;
        }
        self.producers.overlay(known);
        // The state file that the checkpoint names is removed. The next start, if no checkpoint comes before it, finds
        // this one.
        if self.checkpoint.producers_at.is_some_and(|state| state > self.recovery_point) {
            self.write_state(self.recovery_point, &self.encode_state(self.recovery_point))?;
            self.sync_state(self.recovery_point)?;
        }
        Ok(())
    }

    /// The inner error is the damage of what the checkpoint has, or names.
    fn read_producers(&mut self) -> Result<Result<ProducerStates, String>, LogError> {
        let mut producers = match self.checkpoint.producers_at {
            Some(offset) => match self.read_state(offset)? {
                Ok(state) => state.producers,
                Err(damage) => return Ok(Err(damage)),
            },
            // If the checkpoint is lost, and the log has lost its front, too, a state file knows more than the headers.
            None if !self.is_trusted => self.newest_state()?.unwrap_or_default().1.producers,
            None => ProducerStates::new(),
        };
        let newer = self.checkpoint.producers.states().map_err(|error| error.to_string());
        Ok(newer.map(|newer| {
            producers.overlay(newer);
            producers
        }))
    }

    /// Reads a state file. The inner error says that it is damaged, missing or on a bad sector, and worth nothing. One that cannot be
    /// read now, or only by a newer program, may have the only copy of producers whose batches are gone.
    fn read_state(&self, offset: Offset) -> Result<Result<LogState, String>, LogError> {
        let path = self.home.state_path(offset);
        let read = self.home.read_whole(&path, STATE_BYTES_MAX);
        let damage = |what: &dyn Display| Ok(Err(format!("{}: {what}", path.display())));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) if is_lost(&error) => return damage(&error),
            Err(error) => return Err(LogError::io(&path, error)),
        };
        match decode_state(&bytes, self.home.partition, offset) {
            Ok(state) => Ok(Ok(state)),
            Err(source @ DecodeError::NewerVersion { .. }) => Err(LogError::Format { path, source }),
            Err(source) => damage(&source),
        }
    }

    /// The newest state file at or below the recovery point that decodes. Files that do not are worth nothing, and are
    /// removed.
    fn newest_state(&mut self) -> Result<Option<(Offset, LogState)>, LogError> {
        let mut upto = self.states.partition_point(|state| *state <= self.recovery_point);
        while let Some(index) = upto.checked_sub(1) {
            let offset = self.states[index];
            match self.read_state(offset)? {
                Ok(state) => return Ok(Some((offset, state))),
                Err(error) => {
                    tracing::warn!(partition = %self.home.partition, %error, "a state file is removed");
                }
            }
            self.remove_state(offset)?;
            upto = index;
        }
        Ok(None)
    }

    /// The state as of `offset`, up to which the log is known.
    fn encode_state(&self, offset: Offset) -> Vec<u8> {
        let mut epochs = self.epochs.clone();
        epochs.truncate_end(offset);
        encode_state(self.home.partition, offset, &epochs, &self.producers)
    }

    /// Writes a state file. If there is no room for it, the log goes on without.
    fn write_state(&mut self, offset: Offset, bytes: &[u8]) -> Result<(), LogError> {
        match states::write_file(&self.home, offset, bytes) {
            Err(error) if error.is_full() => return self.remove_state(offset),
            written => written?,
        }
        self.state_bytes_since = 0;
        if let Err(index) = self.states.binary_search(&offset) {
            self.states.insert(index, offset);
        }
        Ok(())
    }

    /// Makes a state file durable, if it exists.
    fn sync_state(&self, offset: Offset) -> Result<(), LogError> {
        let path = self.home.state_path(offset);
        match self.home.open(&path, OpenMode::ReadWrite).and_then(|file| file.sync_all()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => {
                synced.map_err(|error| LogError::sync(&path, error))?;
                partition_files::sync_dir(&self.home)
            }
        }
    }

    fn remove_state(&mut self, offset: Offset) -> Result<(), LogError> {
        if let Ok(index) = self.states.binary_search(&offset) {
            self.states.remove(index);
        }
        partition_files::remove(&self.home, &self.home.state_path(offset))
    }

    /// Rebuilds the producers from the newest state file, and the headers after it.
    fn rebuild_producers(&mut self) -> Result<(), LogError> {
        let (from, state) = self.newest_state()?.unwrap_or_default();
        self.producers = state.producers;
        let segments = partition_files::list(&self.home)?.segments;
        let first = segments.partition_point(|(base, _)| *base <= from).saturating_sub(1);
        for (base, size_bytes) in &segments[first..] {
            let segment = Segment::open(self.home.clone(), *base);
            let file = segment.log_file()?;
            let mut position = 0;
            while position < *size_bytes {
                let header = segment.header_at(&*file, position, *size_bytes)?;
                if header.base_offset() >= self.recovery_point {
                    return Ok(());
                }
                if header.base_offset() >= from {
                    record_producer(&mut self.producers, &header, self.now);
                }
                position += header.size_bytes() as u64;
                if header.next_offset() >= self.recovery_point {
                    // The bytes behind may have been cut, or never synced.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Ends the index of the last segment and puts everything together.
    fn finish(mut self) -> Result<Arc<OpenLog>, LogError> {
        let end = self.close_index()?;
        self.check_joins_journal(end)?;
        let log_start = self
            .checkpoint
            .log_start
            .max(self.segments.first().map_or(Offset::ZERO, |first| first.segment.base_offset));
        let has_segments = !self.segments.is_empty();
        // With the journal's entries the end may be beyond the start yet.
        let (active, end) = if end < log_start && !self.is_replay {
            (Some(self.start_over(log_start)?), log_start)
        } else {
            (self.take_active()?, end)
        };
        self.epochs.truncate_end(end);
        self.epochs.truncate_start(log_start);
        let view = self.view(log_start, end, active.as_ref());
        let writer = SegmentWriter {
            active,
            end,
            producers: self.producers.counted_in(self.log.dir.open_logs().producers()),
            // Without segments nothing lies below the end that would have to be recovered.
            recovery_point: if has_segments { self.recovery_point.min(end) } else { end },
            is_dirty: self.is_dirty,
            states: StateFiles::found(&self.states, self.checkpoint.producers_at, self.named_state, &view),
            early_rolls: Allowance::of_log(),
        };
        let first_dirty = self.checkpoint.first_dirty;
        let cuts = self.checkpoint.cuts;
        let parts = OpenParts { cuts, home: self.home, writer, view, epochs: self.epochs, first_dirty };
        // A log that was cut goes on in the journal, like a log with entries there.
        self.log.begin(parts, self.is_replay || self.checkpoint.cut_end.is_some())
    }

    /// Writes the last segment's index to its end; returns the log end.
    fn close_index(&mut self) -> Result<Offset, LogError> {
        let Some(Found { segment, tail: Some(tail) }) = self.segments.last_mut() else {
            // Without segments nothing lies between the log start and the journal's entries.
            let log_start = self.checkpoint.log_start;
            return Ok(self.replay_from.map_or(log_start, |from| from.min(log_start)));
        };
        // The journal's entries come behind it, now or later. If they begin another segment, this one is sealed first.
        if self.replay_from.is_none() {
            if let Some(entry) = tail.cursor.end_entry(tail.end) {
                segment.push_entry(entry);
            }
            segment.store_tail()?;
        }
        Ok(tail.end)
    }

    /// The last segment, to which appends go on.
    fn take_active(&mut self) -> Result<Option<ActiveSegment>, LogError> {
        let Some(Found { segment, tail: Some(tail) }) = self.segments.pop() else { return Ok(None) };
        let first_timestamp = segment.first_timestamp(tail.cursor.position)?;
        let active = self.activate(Arc::new(segment), tail.cursor, first_timestamp);
        Ok(Some(ActiveSegment { stale_to: tail.stale_to, ..active }))
    }

    fn activate(
        &self,
        segment: Arc<Segment>,
        cursor: IndexCursor,
        first_timestamp: Option<TimestampMs>,
    ) -> ActiveSegment {
        // The segments after it may have been removed, and it may have been compacted before.
        segment.allow_gaps_below(self.recovery_point);
        segment.note_written_from(cursor.position);
        segment.note_written_back(cursor.position);
        ActiveSegment {
            segment,
            allocated: Some(cursor.position),
            stale_to: 0,
            begun_to: cursor.position,
            has_unsynced_cut: self.is_dirty,
            is_torn: false,
            cursor,
            first_timestamp,
            opened_at: self.now,
            jitter_ms: self.log.dir.jitter_ms(self.config.segment_jitter_ms),
        }
    }

    /// The log ends below its start: its end was lost with the power, after records up to beyond it had been deleted on
    /// request. None of its records may be read, and offsets go on at the start.
    fn start_over(&mut self, log_start: Offset) -> Result<ActiveSegment, LogError> {
        self.is_dirty = true;
        let old: Vec<_> = self.segments.drain(..).map(|found| (found.segment.base_offset, 0)).collect();
        let segment = Arc::new(Segment::create(self.home.clone(), log_start)?);
        self.remove_segments(&old)?;
        // The next recovery would forget the producers that only the removed segments have: so does this one.
        self.producers = ProducerStates::new();
        self.load_producers()?;
        let cursor = IndexCursor::at(log_start, IndexEntry::START, self.config.index_interval_bytes);
        Ok(self.activate(segment, cursor, None))
    }

    fn view(&mut self, log_start: Offset, end: Offset, active: Option<&ActiveSegment>) -> View {
        let mut segments: Vec<_> = self.segments.drain(..).map(|found| Arc::new(found.segment)).collect();
        let sealed_bytes =
            segments.iter().filter_map(|segment| segment.extent()).map(|extent| extent.size_bytes).sum();
        segments.extend(active.map(|active| active.segment.clone()));
        View {
            segments: Arc::new(segments),
            log_start,
            settled_end: end,
            end,
            last_bytes: active.map_or(0, |active| active.cursor.position),
            last_max_timestamp: active.map_or(TimestampMs::NONE, |active| active.cursor.max_timestamp),
            sealed_bytes,
            latest_epoch: self.epochs.latest().map(|entry| entry.epoch),
            // Positions from before a cut hold no longer.
            generation: u64::from(self.checkpoint.cuts) << 32,
        }
    }
}

/// Whether a file that could not be read has nothing to give, now or later. Want of descriptors or of rights passes.
fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) || is_device_error(error)
}

/// Whether an intact batch begins at the end of a scan or behind it. The offsets before may be wrong: they do not
/// count.
fn has_intact(scan: &mut BatchScan<'_>) -> Result<bool, ScanStop> {
    scan.expect(scan.base_offset());
    match scan.next_batch() {
        Err(ScanStop::Damage { .. }) => scan.skip_damage(),
        batch => Ok(batch?.is_some()),
    }
}

/// Cuts the file at the end of its intact part. Durable when it returns, so that the rest cannot come back under later
/// appends.
fn cut(segment: &Segment, position: u64, what: &str) -> Result<(), LogError> {
    let path = segment.log_path();
    tracing::warn!(path = %path.display(), position, what, "cut a torn tail");
    let file = segment.log_file()?;
    file.cut_as_old(position).and_then(|()| file.sync_data()).map_err(|error| LogError::sync(&path, error))
}
