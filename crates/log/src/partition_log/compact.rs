//! Compaction of a partition that is in use: readers go on with the old segments until the new one is in place.
//!
//! Only what a checkpoint has covered is compacted: recovery may then take any gap between offsets above the
//! recovery point for damage.

use std::sync::Arc;

use riverrun_types::{Offset, TimestampMs};

use super::PartitionLog;
use super::cleanup::segment_facts;
use super::open::{OpenLog, View};
use crate::compaction::execute::{
    CleanJob, CleanOutcome, CleanerControl, CleanerOptions, CompactionTarget, Replacement, SourceSegment,
    clean,
};
use crate::compaction::plan::{Cleanable, CompactionInput, assess};
use crate::compaction::swap;
use crate::error::LogError;
use crate::segment::{Extent, Segment};

/// What a run of compaction is given.
#[derive(Clone, Copy)]
pub struct CompactOptions<'a> {
    /// Wall clock.
    pub now: TimestampMs,
    /// Nothing at or above it is compacted.
    pub high_watermark: Offset,
    /// Options of the cleaner.
    pub cleaner: CleanerOptions,
    /// Where the run is slowed down or stopped.
    pub control: &'a dyn CleanerControl,
}

impl PartitionLog {
    /// Measures what there is to clean.
    pub fn cleanable(&self, now: TimestampMs, high_watermark: Offset) -> Result<Cleanable, LogError> {
        let log = self.open()?;
        Ok(self.survey(&log, now, high_watermark.min(log.recovery_point()))?.0)
    }

    /// Whether a run would be worth its while if a checkpoint covered the log up to its end. None can where the log dir
    /// has failed.
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

    /// Compacts what is cleanable, whether or not it is due; `None` if there is nothing. What it returns is
    /// durable. Readers and appends go on meanwhile; retention passes this log over.
    pub fn compact(&self, options: CompactOptions<'_>) -> Result<Option<CleanOutcome>, LogError> {
        self.dir.check_usable()?;
        self.reshape(|log| self.compact_in(log, options))
            .map_err(|error| self.dir.judge(error))
            .inspect_err(|error| self.note_damage(error))
    }

    fn compact_in(
        &self,
        log: &OpenLog,
        options: CompactOptions<'_>,
    ) -> Result<Option<CleanOutcome>, LogError> {
        let until = options.high_watermark.min(log.recovery_point());
        let (cleanable, segments) = self.survey(log, options.now, until)?;
        if cleanable.cleanable_bytes == 0 {
            return Ok(None);
        }
        // What is written anew gets new checksums: the old ones prove first that it is what was written. The batches' own
        // are looked at while they are read.
        for segment in log.view().segments.iter() {
            if let Some(extent) =
                segment.extent().filter(|_| segment.base_offset < cleanable.first_uncleanable)
            {
                segment.prove_headers(0, extent.size_bytes)?;
            }
        }
        let random = &self.dir.env().random;
        let last_offsets = log.writer.lock().producers.last_offsets();
        let config = self.config();
        let job = CleanJob {
            fs: &*log.home.fs,
            dir: log.home.dir.clone(),
            partition: self.id,
            segments: &segments,
            cleanable,
            last_offsets: &last_offsets,
            config: &config,
            options: options.cleaner,
            now: options.now,
            seed: [random.next_u64(), random.next_u64()],
        };
        let outcome = clean(&job, &mut Installer { log }, options.control)?;
        if outcome.first_dirty.is_some() {
            *log.first_dirty.lock() = outcome.first_dirty;
        }
        self.mark_dirty(&mut log.writer.lock());
        Ok(Some(outcome))
    }

    /// What there is to clean below `until`, and the segments that may be touched.
    fn survey(
        &self,
        log: &OpenLog,
        now: TimestampMs,
        until: Offset,
    ) -> Result<(Cleanable, Vec<SourceSegment>), LogError> {
        let view = log.view();
        let facts = segment_facts(&view, now, true)?;
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

/// Makes readers of one log use what a run has written.
struct Installer<'a> {
    log: &'a OpenLog,
}

impl CompactionTarget for Installer<'_> {
    fn install(&mut self, replacement: &Replacement) -> Result<(), LogError> {
        if self.log.appender.lock().is_retired {
            // It was deleted or closed meanwhile, and its directory is nobody's or another's.
            return Err(LogError::Closed);
        }
        let view = self.log.view();
        let replaces = |segment: &Segment| replacement.offsets.contains(&segment.base_offset);
        for segment in view.segments.iter().filter(|segment| replaces(segment)) {
            // Readers of the old view must not open the new file under the old name.
            segment.hold_open()?;
        }
        let home = &self.log.home;
        swap::install(&*home.fs, &home.dir, replacement.offsets.clone())
            .map_err(|error| LogError::write(&home.dir, error))?;
        let extent = Extent { size_bytes: replacement.size_bytes, next_offset: replacement.offsets.end };
        let new = Segment::sealed(home.clone(), replacement.offsets.start, extent);
        self.log.update_view(|view| replace(view, replacement, new));
        Ok(())
    }
}

/// Puts the new segment into the view, in the place of the old ones. The log start stays: offsets that compaction
/// has emptied are gaps, not the log's end.
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
