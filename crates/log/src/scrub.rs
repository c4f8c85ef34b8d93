//! The scrub: reads sealed segments again, slowly, to find damage before a reader does.
//!
//! Owns the choice and the order of the reads; the caller chooses time and thread. Makes the checks of `riverrun log
//! verify`, except those of the records inside of batches. Leaves the page cache as it was: bytes in it are read from
//! there and stay, others are read from the disk and dropped again. Damage takes the partition offline; below the log
//! start it is passed over; in an index alone it makes the index anew. A segment that the disk does not give back as a
//! whole is left there, and the others are read.
//!
//! The pure part is [`order`] and [`rate`]: the first partition, and the speed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::File;
use riverrun_types::Offset;

use crate::compaction::execute::CleanerControl;
use crate::error::LogError;
use crate::partition_log::{OpenLog, PartitionLog};
use crate::segment::{Extent, Segment};
use crate::segment_check::{Facts, Flaw, Half, SegmentCheck};

/// Bytes that are read between two looks at the pace.
const STEP_BYTES: u64 = 1024 * 1024;
/// A pass is planned to take this share of the time that it has, so that it comes to its end.
const SHARE_OF_INTERVAL: u64 = 2;
/// Slower is not worth it: a pass over little data is soon done.
const RATE_MIN: u64 = 256 * 1024;

/// Bytes per second at which a pass over `total_bytes` is done well within `interval`, but at most `rate_max`.
pub fn rate(total_bytes: u64, interval: Duration, rate_max: u64) -> u64 {
    let seconds = (interval.as_secs() / SHARE_OF_INTERVAL).max(1);
    total_bytes.div_ceil(seconds).max(RATE_MIN).min(rate_max.max(1))
}

/// Puts the partitions of a pass in order: each pass begins elsewhere, as `random` says, so that a server that is often
/// restarted comes to all of them in time.
pub fn order<T>(mut partitions: Vec<T>, random: u64) -> Vec<T> {
    if let Some(count) = std::num::NonZeroU64::new(partitions.len() as u64) {
        partitions.rotate_left(usize::try_from(random % count).unwrap_or(0));
    }
    partitions
}

/// The result of a scrub of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Sealed segments that were read to their ends.
    pub segments: usize,
    /// Bytes that were read.
    pub bytes: u64,
    /// Indexes that were damaged and made anew.
    pub indexes_rebuilt: usize,
    /// Sealed segments that the disk does not give back as a whole.
    pub unreadable: usize,
    /// The offset at which the next turn goes on, if something is left.
    pub next: Option<Offset>,
}

impl PartitionLog {
    /// Checks the sealed segments that end above `from`, until `turn_bytes` are read: the last of them is read to its
    /// end. Blocks for the disk and for the pauses of `control`. Damage takes the partition offline, and is the error.
    /// An unreadable place is remembered, unless its whole log dir fails then.
    pub fn scrub(
        &self,
        from: Offset,
        turn_bytes: u64,
        control: &dyn CleanerControl,
    ) -> Result<Scrubbed, LogError> {
        let log = self.open()?;
        let segments = log.view().segments;
        let mut scrubbed = Scrubbed::default();
        for (segment, extent) in sealed(&segments).filter(|(_, extent)| extent.next_offset > from) {
            if control.is_stopped() {
                break;
            }
            if scrubbed.bytes >= turn_bytes {
                scrubbed.next = Some(segment.base_offset);
                break;
            }
            match self.scrub_segment(segment, extent, control, &mut scrubbed) {
                // Retention or compaction has removed the files.
                Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error @ LogError::Unreadable { .. }) => {
                    self.pass_unreadable(&log, error)?;
                    scrubbed.unreadable += 1;
                }
                result => result
                    .map_err(|error| self.unless_cut(&log, error))
                    .inspect_err(|error| self.take_offline_if_damaged(error))?,
            }
        }
        Ok(scrubbed)
    }

    /// Leaves a segment that cannot be read as a whole, unless the device is dead.
    fn pass_unreadable(&self, log: &OpenLog, error: LogError) -> Result<(), LogError> {
        let error = self.dir().judge_at_once(error);
        if !matches!(error, LogError::Unreadable { .. }) {
            return Err(error);
        }
        tracing::error!(partition = %self.id(), %error, "the scrub leaves the rest of this segment");
        self.note_unreadable(log, &error);
        Ok(())
    }

    fn scrub_segment(
        &self,
        segment: &Segment,
        extent: Extent,
        control: &dyn CleanerControl,
        scrubbed: &mut Scrubbed,
    ) -> Result<(), LogError> {
        let io = |error| LogError::io(&segment.log_path(), error);
        let file = segment.log_file_once()?;
        let facts = Facts {
            base: segment.base_offset,
            size_bytes: extent.size_bytes,
            next_base: Some(extent.next_offset),
            gapless_from: None,
            walks_records: false,
        };
        let mut check = SegmentCheck::new(facts, segment.index_content()?);
        let cold = cold_steps(&*file, extent.size_bytes);
        let mut is_done = false;
        let rebuilt_before = scrubbed.indexes_rebuilt;
        while !is_done && !control.is_stopped() {
            let from = check.position();
            is_done = check.run(&*file, STEP_BYTES).map_err(io)?;
            // The search behind damage has no pace: the sooner the damage is known the better.
            let read = check.position() - from;
            scrubbed.bytes += read;
            drop_steps(&*file, &cold, from, check.position()).map_err(io)?;
            control.on_io(read);
            if self.is_gone(segment)? {
                return Ok(());
            }
            let is_rebuilt = scrubbed.indexes_rebuilt > rebuilt_before;
            scrubbed.indexes_rebuilt += usize::from(self.judge_flaws(segment, &mut check, is_rebuilt)?);
        }
        if is_done {
            scrubbed.segments += 1;
            self.forget_unreadable(segment);
        }
        Ok(())
    }

    /// Whether the segment is no longer part of the log: then its files mean nothing.
    fn is_gone(&self, segment: &Segment) -> Result<bool, LogError> {
        let view = self.open()?.view();
        Ok(!view.segments.iter().any(|current| std::ptr::eq(Arc::as_ptr(current), segment)))
    }

    /// Acts on the flaws, and forgets them. Returns whether the index was rebuilt. That takes a scan of the segment and
    /// so is done once: the check goes on with the entries of the old index.
    fn judge_flaws(
        &self,
        segment: &Segment,
        check: &mut SegmentCheck,
        mut is_rebuilt: bool,
    ) -> Result<bool, LogError> {
        let was_rebuilt = is_rebuilt;
        if check.flaws.is_empty() {
            return Ok(false);
        }
        let log_start = self.open()?.view().log_start;
        for flaw in std::mem::take(&mut check.flaws) {
            let Flaw { half, position, what, unreadable_at, .. } = &flaw;
            if is_below(&flaw, log_start) {
                tracing::warn!(
                    path = %segment.log_path().display(), position, what,
                    "the scrub passes over damage below the log start"
                );
            } else if let Some(position) = *unreadable_at {
                return Err(LogError::Unreadable { path: segment.log_path(), position });
            } else if *half == Half::Log {
                return Err(LogError::corrupt(&segment.log_path(), *position, what.clone()));
            } else if !is_rebuilt {
                tracing::warn!(path = %segment.index_path().display(), position, what, "the scrub found damage of an index");
                segment.rebuild_index()?;
                is_rebuilt = true;
            }
        }
        Ok(is_rebuilt && !was_rebuilt)
    }
}

/// The segments that nothing is appended to any more, and their extents.
fn sealed(segments: &[Arc<Segment>]) -> impl Iterator<Item = (&Segment, Extent)> {
    segments.iter().filter_map(|segment| Some((&**segment, segment.extent()?)))
}

fn is_below(flaw: &Flaw, log_start: Offset) -> bool {
    flaw.until.is_some_and(|until| until <= log_start)
}

/// Which steps of a file do not lie in the page cache, judged by their first bytes.
fn cold_steps(file: &dyn File, size_bytes: u64) -> Vec<bool> {
    (0..size_bytes.div_ceil(STEP_BYTES)).map(|step| !file.is_cached(step * STEP_BYTES)).collect()
}

/// Drops the cold steps that end in a range that was read from the page cache. The system drops whole pages only.
fn drop_steps(file: &dyn File, cold: &[bool], from: u64, upto: u64) -> io::Result<()> {
    let first = from / STEP_BYTES;
    for step in first..upto.div_ceil(STEP_BYTES) {
        let is_cold = usize::try_from(step).ok().and_then(|step| cold.get(step)).copied().unwrap_or(false);
        if is_cold {
            file.advise_dont_need(step * STEP_BYTES, STEP_BYTES)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_ends_well_within_its_time_unless_too_fast_for_that() {
        let week = Duration::from_hours(7 * 24);
        let rate_of = |total| rate(total, week, 10 << 20);
        assert_eq!(rate_of(0), RATE_MIN);
        assert_eq!(rate_of(1 << 40), (1_u64 << 40).div_ceil(7 * 24 * 3600 / 2));
        assert_eq!(rate_of(1 << 50), 10 << 20);
        assert_eq!(rate(1 << 40, Duration::ZERO, 1000), 1000);
        assert_eq!(rate(5, week, 0), 1);
    }

    #[test]
    fn every_pass_covers_all_partitions_from_a_random_one_on() {
        assert_eq!(order(Vec::<i32>::new(), 7), []);
        for random in 0..10 {
            let mut ordered = order(vec![1, 2, 3], random);
            let shift = i32::try_from(random % 3).unwrap();
            assert_eq!(ordered[0], 1 + shift);
            ordered.sort_unstable();
            assert_eq!(ordered, [1, 2, 3]);
        }
    }
}
