//! One run of compaction over one log: reads its segments and writes their replacements.
//!
//! First pass: the keys of the dirty part go into the offset map, until its end or until the map is full. Second pass:
//! every segment below the map's end is rewritten, group by group, and each group is put in place before the next
//! begins. A run that stops between two groups has done no harm: each group is right by itself, and the dirty point
//! moves only at the end. Files that a group has written and will not use are removed at once.
//!
//! A group's replacement is written beside it, and is at most as large: a group begins only if there is room for that,
//! if the run asks ahead, and goes on only as long as there is room for the next piece.
//!
//! Sees the log through [`CompactionTarget`], so that the log decides what its readers may see meanwhile.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use riverrun_env::{File, FileSystem, OpenMode};
use riverrun_records::{Batch, BatchError, BatchHeader, UnverifiedBatch};
use riverrun_types::{Offset, PartitionId, ProducerId, TimestampMs};

use super::offset_map::{OffsetMap, OffsetMapOptions};
use super::plan::{Cleanable, group_segments};
use super::rewrite::{RecordCounts, RewriteRules, Rewritten, rewrite};
use super::swap;
use super::write::{CleanedPlace, CleanedWriter, RoomCheck, index_bytes_max};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::retention::SegmentFacts;
use crate::scan::{BatchScan, ScanStop};

/// Options of the cleaner as such, the same for every log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerOptions {
    /// `log.cleaner.dedupe.buffer.size` per cleaning thread.
    pub dedupe_buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub load_factor: f64,
}

impl Default for CleanerOptions {
    fn default() -> Self {
        Self { dedupe_buffer_bytes: 128 * 1024 * 1024, load_factor: 0.9 }
    }
}

/// Throttles and stops a run, on behalf of the thread that compacts.
pub trait CleanerControl {
    /// The run has read or written so many bytes. A throttle waits here; see [`super::pace::IoPace`].
    fn on_io(&self, bytes: u64);

    /// Whether to stop: the server stops, or the partition is being deleted.
    fn is_stopped(&self) -> bool;
}

/// Runs without a limit to the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unhindered;

impl CleanerControl for Unhindered {
    fn on_io(&self, _bytes: u64) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A segment that is not appended to.
#[derive(Clone, Debug)]
pub(crate) struct SourceSegment {
    pub(crate) facts: SegmentFacts,
    pub(crate) path: PathBuf,
}

/// A group of segments and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Every segment whose base offset lies in here goes.
    pub(crate) offsets: Range<Offset>,
    /// Bytes of the one new segment; 0 if nothing stayed.
    pub(crate) size_bytes: u64,
}

/// The log as a run uses it.
pub(crate) trait CompactionTarget {
    /// Has a [`swap::Swap`] put the new segment in place and makes readers use it, so that no lookup falls between the two.
    /// An error ends the run.
    fn install(&mut self, replacement: &Replacement) -> Result<(), LogError>;
}

/// A run's input. The log allows no retention, truncation or second run until this one ends.
pub(crate) struct CleanJob<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) dir: PathBuf,
    pub(crate) partition: PartitionId,
    /// In order, from the first on; at least all that are cleanable. They are durable, names included: a power cut must
    /// not lose a record that supersedes another, when that other one is removed already.
    pub(crate) segments: &'a [SourceSegment],
    pub(crate) cleanable: Cleanable,
    pub(crate) last_offsets: &'a BTreeMap<ProducerId, Offset>,
    pub(crate) config: &'a LogConfig,
    /// Bytes of the segments that become one, at most; a larger one stays alone.
    pub(crate) group_bytes_max: u32,
    /// Checks the room of the log dir.
    pub(crate) room: RoomCheck<'a>,
    /// Begins no group for which there is no room at its present size, instead of finding out how much of it stays.
    pub(crate) asks_ahead: bool,
    pub(crate) options: CleanerOptions,
    pub(crate) now: TimestampMs,
    /// Seed of the offset map: random, so that nobody can construct two keys that look alike.
    pub(crate) seed: [u64; 2],
}

impl CleanJob<'_> {
    /// Opens a segment for one pass over it: a log may have more segments than the process may have descriptors.
    fn open(&self, segment: &SourceSegment) -> Result<Arc<dyn File>, LogError> {
        let file = self.fs.open(&segment.path, OpenMode::Read);
        file.map_err(|error| LogError::io(&segment.path, error))
    }
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanStats {
    /// Bytes of the segments that were rewritten.
    pub bytes_before: u64,
    /// Bytes that took their place.
    pub bytes_after: u64,
    /// Records in the segments that were rewritten.
    pub records_before: u64,
    /// Records that stayed.
    pub records_after: u64,
    /// Records that went because they had no key.
    pub keyless_records: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanOutcome {
    /// Begin of the dirty part after the run; `None` if it was stopped, and then that is unchanged.
    pub first_dirty: Option<Offset>,
    /// The counts of the run.
    pub stats: CleanStats,
}

/// Runs `job`. All that it installed is durable when it returns. After an error, the files that were being written are
/// removed. If the log dir takes no writes any more they stay: they are worth nothing, and are removed when the
/// partition is opened next.
pub(crate) fn clean(
    job: &CleanJob<'_>,
    target: &mut dyn CompactionTarget,
    control: &dyn CleanerControl,
) -> Result<CleanOutcome, LogError> {
    let mut stats = CleanStats::default();
    let Some((map, mapped_end)) = map_keys(job, control, &mut stats)? else {
        return Ok(CleanOutcome { first_dirty: None, stats });
    };
    let rules = RewriteRules {
        map: &map,
        first_dirty: job.cleanable.first_dirty,
        mapped_end,
        segment_end: job.cleanable.first_uncleanable,
        last_offsets: job.last_offsets,
        now: job.now,
        delete_retention_ms: job.config.delete_retention_ms,
    };
    let facts: Vec<_> = job.segments.iter().map(|segment| segment.facts).collect();
    for group in group_segments(&facts, mapped_end, job.group_bytes_max) {
        let segments = &job.segments[group];
        let segment_end = segments.last().map_or(mapped_end, |last| last.facts.end_offset);
        let run = GroupRun { job, rules: RewriteRules { segment_end, ..rules }, segments, control };
        if !run.run(target, &mut stats)? {
            return Ok(CleanOutcome { first_dirty: None, stats });
        }
    }
    Ok(CleanOutcome { first_dirty: Some(mapped_end), stats })
}

/// Builds the offset map. Returns the offset up to which the map knows the keys; `None` if stopped.
fn map_keys(
    job: &CleanJob<'_>,
    control: &dyn CleanerControl,
    stats: &mut CleanStats,
) -> Result<Option<(OffsetMap, Offset)>, LogError> {
    let dirty = job.cleanable.first_dirty..job.cleanable.first_uncleanable;
    let mut map = OffsetMap::new(OffsetMapOptions {
        buffer_bytes: job.options.dedupe_buffer_bytes,
        load_factor: job.options.load_factor,
        keys_max: u64::try_from(dirty.end.0 - dirty.start.0).unwrap_or(0),
        seed: job.seed,
    });
    let is_dirty = |facts: &SegmentFacts| facts.end_offset > dirty.start && facts.base_offset < dirty.end;
    for segment in job.segments.iter().filter(|segment| is_dirty(&segment.facts)) {
        let file = job.open(segment)?;
        let mut reader = SegmentReader::new(segment, &*file);
        while let Some(bytes) = reader.next_batch(control, stats)? {
            if control.is_stopped() {
                return Ok(None);
            }
            let batch = reader.verify(&bytes)?;
            let full_at = map_batch(&batch, dirty.start, &mut map).map_err(|cause| reader.failure(cause))?;
            if let Some(offset) = full_at {
                return Ok(Some((map, offset)));
            }
        }
    }
    Ok(Some((map, dirty.end)))
}

/// Puts the keys of one batch into the map; returns the offset of the first record that did not fit.
fn map_batch(batch: &Batch<'_>, from: Offset, map: &mut OffsetMap) -> Result<Option<Offset>, BatchError> {
    if batch.is_control() || batch.last_offset() < from {
        return Ok(None);
    }
    let records = batch.records()?;
    for record in &records {
        let record = record?;
        if let Some(key) = record.key.filter(|_| record.offset >= from)
            && !map.put(key, record.offset)
        {
            return Ok(Some(record.offset));
        }
    }
    Ok(None)
}

/// The end of a group's rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupEnd {
    Replaced,
    /// Nothing would differ.
    Kept,
    Stopped,
}

/// The second pass over one group.
struct GroupRun<'a> {
    job: &'a CleanJob<'a>,
    rules: RewriteRules<'a>,
    segments: &'a [SourceSegment],
    control: &'a dyn CleanerControl,
}

impl GroupRun<'_> {
    /// Rewrites the group and puts it in place, if that changes anything. `false` if stopped.
    fn run(&self, target: &mut dyn CompactionTarget, stats: &mut CleanStats) -> Result<bool, LogError> {
        let ended = self.check_room().and_then(|()| self.replace(target, stats));
        // The files stay if the log dir takes no writes any more, or none of this process.
        let is_left = matches!(
            ended,
            Ok(GroupEnd::Replaced)
                | Err(LogError::Write { .. } | LogError::DirFailed { .. } | LogError::Closed)
        );
        let discarded = if is_left { Ok(()) } else { self.discard() };
        let end = ended?;
        discarded?;
        Ok(end != GroupEnd::Stopped)
    }

    /// Fails if the run asks ahead and there is no room for the group at its present size.
    fn check_room(&self) -> Result<(), LogError> {
        if !self.job.asks_ahead {
            return Ok(());
        }
        let bytes = self.segments.iter().map(|segment| segment.facts.size_bytes).sum();
        (self.job.room)(index_bytes_max(bytes, self.job.config.index_interval_bytes).saturating_add(bytes))
    }

    fn replace(
        &self,
        target: &mut dyn CompactionTarget,
        stats: &mut CleanStats,
    ) -> Result<GroupEnd, LogError> {
        let offsets = self.offsets();
        let mut writer = CleanedWriter::create(self.job.fs, &self.place(), self.job.room)?;
        let mut is_changed = self.segments.len() > 1;
        for segment in self.segments {
            match self.rewrite_segment(segment, &mut writer, stats)? {
                None => return Ok(GroupEnd::Stopped),
                Some(changed) => is_changed |= changed,
            }
        }
        if !is_changed {
            return Ok(GroupEnd::Kept);
        }
        let size_bytes = writer.len();
        writer.finish(offsets.end)?;
        target.install(&Replacement { offsets, size_bytes })?;
        Ok(GroupEnd::Replaced)
    }

    /// Copies the remaining records of one segment; returns whether anything differs, or `None` if stopped.
    fn rewrite_segment(
        &self,
        segment: &SourceSegment,
        writer: &mut CleanedWriter<'_>,
        stats: &mut CleanStats,
    ) -> Result<Option<bool>, LogError> {
        let file = self.job.open(segment)?;
        let stat = file.stat().map_err(|error| LogError::io(&segment.path, error))?;
        writer.begin_source(stat.modified);
        let mut reader = SegmentReader::new(segment, &*file);
        let mut is_changed = false;
        while let Some(bytes) = reader.next_batch(self.control, stats)? {
            if self.control.is_stopped() {
                return Ok(None);
            }
            let batch = reader.verify(&bytes)?;
            let (rewritten, counts) = rewrite(&batch, &self.rules).map_err(|cause| reader.failure(cause))?;
            let before = writer.len();
            match &rewritten {
                Rewritten::Kept => writer.append(batch.header(), &bytes)?,
                Rewritten::Rebuilt(new) => {
                    let header = BatchHeader::parse(new).map_err(|cause| reader.failure(cause))?;
                    writer.append(&header, new)?;
                }
                Rewritten::Dropped => {}
            }
            is_changed |= rewritten != Rewritten::Kept;
            let written = writer.len() - before;
            self.control.on_io(written);
            stats.count(counts, bytes.len() as u64, written);
        }
        Ok(Some(is_changed))
    }

    fn offsets(&self) -> Range<Offset> {
        let first = self.segments.first().expect("a group is not empty");
        let last = self.segments.last().expect("a group is not empty");
        first.facts.base_offset..last.facts.end_offset
    }

    fn place(&self) -> CleanedPlace {
        CleanedPlace {
            dir: self.job.dir.clone(),
            partition: self.job.partition,
            base_offset: self.offsets().start,
            index_interval_bytes: self.job.config.index_interval_bytes,
        }
    }

    fn discard(&self) -> Result<(), LogError> {
        let discarded = swap::discard(self.job.fs, &self.job.dir, &self.offsets());
        discarded.map_err(|error| LogError::io(&self.job.dir, error))
    }
}

impl CleanStats {
    fn count(&mut self, counts: RecordCounts, bytes_before: u64, bytes_after: u64) {
        self.bytes_before += bytes_before;
        self.bytes_after += bytes_after;
        self.records_before += counts.read;
        self.records_after += counts.kept;
        self.keyless_records += counts.keyless;
    }
}

/// Reads a segment batch by batch and knows its position, for errors.
struct SegmentReader<'a> {
    segment: &'a SourceSegment,
    scan: BatchScan<'a>,
    position: u64,
}

impl<'a> SegmentReader<'a> {
    fn new(segment: &'a SourceSegment, file: &'a dyn File) -> Self {
        let base = segment.facts.base_offset;
        let scan = BatchScan::new(file, base, base, 0, segment.facts.size_bytes);
        Self { segment, scan, position: 0 }
    }

    /// The bytes of the next batch, which are not verified yet.
    fn next_batch(
        &mut self,
        control: &dyn CleanerControl,
        stats: &mut CleanStats,
    ) -> Result<Option<Vec<u8>>, LogError> {
        let path = &self.segment.path;
        let position = self.scan.position();
        let next = self.scan.next_bytes().map_err(|stop| match stop {
            ScanStop::Io(error) => LogError::io(path, error),
            ScanStop::Damage { position, what, .. } => LogError::corrupt(path, position, what),
        })?;
        let Some(bytes) = next else { return Ok(None) };
        self.position = position;
        control.on_io(bytes.len() as u64);
        stats.read_bytes += bytes.len() as u64;
        Ok(Some(bytes))
    }

    fn verify<'b>(&self, bytes: &'b [u8]) -> Result<Batch<'b>, LogError> {
        UnverifiedBatch::only(bytes).and_then(UnverifiedBatch::verify).map_err(|cause| self.failure(cause))
    }

    fn failure(&self, cause: BatchError) -> LogError {
        LogError::batch(&self.segment.path, self.position, cause)
    }
}

#[cfg(test)]
mod tests;
