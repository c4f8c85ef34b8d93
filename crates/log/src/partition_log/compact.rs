//! Compaction of a partition that is in use: readers go on with the old segments until the new one is in place.
//!
//! Only records that a checkpoint has covered are compacted: recovery may then take any gap between offsets above the
//! recovery point for damage.
//!
//! Compaction keeps off the log dir's reserve. If a segment is too large for the room that there is, only the part of
//! the log below it is compacted. The server's own logs go on in the reserve, and would use it up: their compaction may
//! use it, too, and asks for no more than it writes, because hardly anything stays of most of their records.

use std::sync::Arc;

use riverrun_types::{Offset, TimestampMs};

use super::PartitionLog;
use super::open::{OpenLog, View};
use super::retention::segment_facts;
use crate::compaction::execute::{
    CleanJob, CleanOutcome, CleanStats, CleanerControl, CleanerOptions, CompactionTarget, Replacement,
    SourceSegment, clean,
};
use crate::compaction::plan::{Cleanable, CompactionInput, assess};
use crate::compaction::swap::Swap;
use crate::compaction::write::index_bytes_max;
use crate::error::LogError;
use crate::producer_state::AppendOrigin;
use crate::segment::{Extent, Segment};

/// Bytes of a segment that are compared with its index before the next look at whether to go on.
const COMPARED_BYTES: u64 = 1 << 20;

/// The options of a compaction's run.
#[derive(Clone, Copy)]
pub struct CompactOptions<'a> {
    /// Wall clock.
    pub now: TimestampMs,
    /// Nothing at or above it is compacted.
    pub high_watermark: Offset,
    /// The origin of the log's appends: the coordinator's may use most of the log dir's reserve.
    pub origin: AppendOrigin,
    /// Options of the cleaner.
    pub cleaner: CleanerOptions,
    /// Slows down or stops the run.
    pub control: &'a dyn CleanerControl,
}

/// A segment that replaces others, whatever happens, and that readers do not use yet: they have the others open.
#[derive(Debug)]
pub(crate) struct UnfinishedSwap {
    swap: Swap,
    replacement: Replacement,
}

impl PartitionLog {
    /// Measures the dirty part.
    pub fn cleanable(&self, now: TimestampMs, high_watermark: Offset) -> Result<Cleanable, LogError> {
        let log = self.open()?;
        Ok(self.survey(&log, now, high_watermark.min(log.recovery_point()))?.0)
    }

    /// Whether a run would be worth its while if a checkpoint covered the log up to its end. A log dir that has failed
    /// makes no checkpoint.
    pub fn compaction_awaits_checkpoint(
        &self,
        now: TimestampMs,
        high_watermark: Offset,
    ) -> Result<bool, LogError> {
        let log = self.open()?;
        let (config, covered) = (self.config(), log.recovery_point());
        let is_due = |until: Offset| Ok(self.survey(&log, now, until)?.0.is_due(&config));
        Ok(!self.dir.has_failed() && covered < high_watermark && is_due(high_watermark)? && !is_due(covered)?)
    }

    /// Compacts the cleanable part, whether or not it is due; `None` if there is nothing. All that it returns is
    /// durable. Readers and appends go on meanwhile; retention passes this log over. [`LogError::DirFull`] if there is
    /// no room for the replacement of the first segments. Files that were written and not used are removed when it
    /// returns, unless the log dir has failed.
    pub fn compact(&self, options: CompactOptions<'_>) -> Result<Option<CleanOutcome>, LogError> {
        self.dir.check_usable()?;
        self.reshape(|log, unfinished| {
            self.finish_swap(log, unfinished)?;
            self.compact_in(log, unfinished, options)
        })
        .map_err(|error| self.dir.judge(error))
        .inspect_err(|error| self.take_offline_if_damaged(error))
    }

    fn compact_in(
        &self,
        log: &OpenLog,
        unfinished: &mut Option<UnfinishedSwap>,
        options: CompactOptions<'_>,
    ) -> Result<Option<CleanOutcome>, LogError> {
        let (origin, room_bytes) = (options.origin, self.room_bytes(options.origin));
        let Some((cleanable, segments)) = self.fitting(log, options, room_bytes)? else { return Ok(None) };
        if !compare_headers(&log.view(), cleanable.first_uncleanable, options.control)? {
            return Ok(Some(CleanOutcome { first_dirty: None, stats: CleanStats::default() }));
        }
        let random = &self.dir.env().random;
        let last_offsets = log.writer.lock().producers.last_offsets();
        let config = self.config();
        let group_room_bytes =
            room_bytes.saturating_sub(index_bytes_max(room_bytes, config.index_interval_bytes));
        let job = CleanJob {
            fs: &*log.home.fs,
            dir: log.home.dir.clone(),
            partition: self.id,
            segments: &segments,
            cleanable,
            last_offsets: &last_offsets,
            config: &config,
            group_bytes_max: u32::try_from(group_room_bytes)
                .map_or(config.segment_bytes, |bytes| bytes.min(config.segment_bytes)),
            room: &|bytes| self.check_room(bytes, origin),
            asks_ahead: origin == AppendOrigin::Client,
            options: options.cleaner,
            now: options.now,
            seed: [random.next_u64(), random.next_u64()],
        };
        let outcome = clean(&job, &mut Installer { handle: self, log, unfinished }, options.control)?;
        if outcome.first_dirty.is_some() {
            *log.first_dirty.lock() = outcome.first_dirty;
            self.mark_dirty(&mut log.writer.lock());
        }
        Ok(Some(outcome))
    }

    /// Finishes the swap that a compaction has begun, and shows readers the new segment. To be called before segments
    /// are removed or replaced: otherwise the next opening of the log would undo that.
    pub(super) fn finish_swap(
        &self,
        log: &OpenLog,
        unfinished: &mut Option<UnfinishedSwap>,
    ) -> Result<(), LogError> {
        let Some(UnfinishedSwap { swap, replacement }) = &*unfinished else { return Ok(()) };
        // A sync that has failed is not repeated.
        self.dir.check_usable()?;
        let home = &log.home;
        swap.finish(&*home.fs).map_err(|error| self.dir.judge(LogError::write(&home.dir, error)))?;
        let extent = Extent { size_bytes: replacement.size_bytes, next_offset: replacement.offsets.end };
        let new = Segment::sealed(home.clone(), replacement.offsets.start, extent);
        let is_inside = |base: &Offset| replacement.offsets.start < *base && *base < replacement.offsets.end;
        let bases = log.view();
        let bases = bases.segments.iter().map(|segment| segment.base_offset);
        let inside: Vec<_> = bases.filter(is_inside).collect();
        log.update_view(|view| replace(view, replacement, new));
        *unfinished = None;
        let mut writer = log.writer.lock();
        writer.states.loosen(inside);
        self.mark_dirty(&mut writer);
        Ok(())
    }

    /// The part that a run may touch if there is room for so many bytes: the cleanable part, or, if the run asks ahead,
    /// as much of it as lies below the first segment that is too large. None if nothing is cleanable.
    fn fitting(
        &self,
        log: &OpenLog,
        options: CompactOptions<'_>,
        room_bytes: u64,
    ) -> Result<Option<(Cleanable, Vec<SourceSegment>)>, LogError> {
        let until = options.high_watermark.min(log.recovery_point());
        let (cleanable, segments) = self.survey(log, options.now, until)?;
        if cleanable.cleanable_bytes == 0 {
            return Ok(None);
        }
        if room_bytes == 0 {
            return Err(self.no_room());
        }
        if options.origin == AppendOrigin::Coordinator {
            return Ok(Some((cleanable, segments)));
        }
        let interval_bytes = self.config().index_interval_bytes;
        let is_too_large = |segment: &&SourceSegment| {
            let bytes = segment.facts.size_bytes;
            bytes.saturating_add(index_bytes_max(bytes, interval_bytes)) > room_bytes
        };
        let Some(too_large) = segments.iter().find(is_too_large).map(|segment| segment.facts.base_offset)
        else {
            return Ok(Some((cleanable, segments)));
        };
        let fitting = self.survey(log, options.now, too_large)?;
        if fitting.0.cleanable_bytes == 0 { Err(self.no_room()) } else { Ok(Some(fitting)) }
    }

    /// Bytes that may be written to the log dir now.
    fn room_bytes(&self, origin: AppendOrigin) -> u64 {
        self.dir.measure_space();
        self.dir.space().room_bytes(origin)
    }

    fn check_room(&self, bytes: u64, origin: AppendOrigin) -> Result<(), LogError> {
        if bytes <= self.room_bytes(origin) { Ok(()) } else { Err(self.no_room()) }
    }

    fn no_room(&self) -> LogError {
        self.dir.space().refusal(self.dir.path())
    }

    /// The dirty part below `until`, and the segments that may be touched.
    fn survey(
        &self,
        log: &OpenLog,
        now: TimestampMs,
        until: Offset,
    ) -> Result<(Cleanable, Vec<SourceSegment>), LogError> {
        let view = log.view();
        let facts = segment_facts(&view, true)?;
        let input = CompactionInput {
            segments: &facts,
            first_dirty: *log.first_dirty.lock(),
            log_start: view.log_start,
            high_watermark: until,
            now,
        };
        let cleanable = assess(input, &self.config());
        let mut segments = Vec::new();
        for (facts, segment) in facts.iter().zip(view.segments.iter()) {
            if facts.end_offset <= cleanable.first_uncleanable && !facts.is_active {
                segments.push(SourceSegment { facts: *facts, path: segment.log_path() });
            }
        }
        Ok((cleanable, segments))
    }
}

/// Makes readers of one log use a run's new segments.
struct Installer<'a> {
    handle: &'a PartitionLog,
    log: &'a OpenLog,
    unfinished: &'a mut Option<UnfinishedSwap>,
}

impl Installer<'_> {
    /// Passes the point of no return.
    fn commit(&self, replacement: &Replacement) -> Result<UnfinishedSwap, LogError> {
        let home = &self.log.home;
        let swap = Swap::commit(&*home.fs, &home.dir, replacement.offsets.clone())
            .map_err(|error| self.log.dir.judge(LogError::write(&home.dir, error)))?;
        Ok(UnfinishedSwap { swap, replacement: replacement.clone() })
    }
}

impl CompactionTarget for Installer<'_> {
    fn install(&mut self, replacement: &Replacement) -> Result<(), LogError> {
        if self.log.appender.lock().is_retired {
            // The log was deleted or closed meanwhile, and its directory may be another's.
            return Err(LogError::Closed);
        }
        let view = self.log.view();
        let is_replaced = |segment: &&Arc<Segment>| replacement.offsets.contains(&segment.base_offset);
        let replaced = || view.segments.iter().filter(is_replaced);
        // Readers of the old view must not open the new file under the old name.
        let held = replaced().try_for_each(|segment| segment.hold_open());
        let committed = held.and_then(|()| self.commit(replacement));
        if committed.is_err() {
            // They keep their names, and others want the descriptors.
            for segment in replaced() {
                segment.let_close();
            }
        }
        *self.unfinished = Some(committed?);
        self.handle.finish_swap(self.log, self.unfinished)
    }
}

/// Puts the new segment into the view, in the place of the old ones. The log start stays: offsets that compaction has
/// emptied are gaps, not the log's end.
fn replace(view: &mut View, replacement: &Replacement, new: Segment) {
    let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(view.segments.len());
    let mut new = Some(Arc::new(new));
    for segment in view.segments.iter() {
        if replacement.offsets.contains(&segment.base_offset) {
            segments.extend(new.take());
        } else {
            segments.push(segment.clone());
        }
    }
    view.set_segments(segments);
    view.generation += 1;
}

/// The new segment gets new checksums. So the old ones must first prove that its sources are intact on the disk, also
/// those that were proved in memory. The batches' own CRCs are checked while they are read. False if stopped.
fn compare_headers(view: &View, upto: Offset, control: &dyn CleanerControl) -> Result<bool, LogError> {
    for segment in view.segments.iter().filter(|segment| segment.base_offset < upto) {
        let Some(Extent { size_bytes, .. }) = segment.extent() else { continue };
        let mut position = 0;
        while position < size_bytes {
            if control.is_stopped() {
                return Ok(false);
            }
            let end = size_bytes.min(position + COMPARED_BYTES);
            let (_, compared_upto) = segment.compare_headers(position, end)?;
            control.on_io(compared_upto - position);
            position = compared_upto;
        }
    }
    Ok(true)
}
