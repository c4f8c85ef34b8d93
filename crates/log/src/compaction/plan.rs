//! When a log is worth compacting, from where to where, and which segments become one.
//!
//! Pure; the counting is Kafka's. The log is *clean* below its first dirty offset (the end of the last run) and
//! *cleanable* from there to the first segment that may not be touched: the active one, one past the high
//! watermark, or one with a record younger than `min.compaction.lag.ms`. A log is due if the cleanable share of
//! the clean and cleanable bytes exceeds `min.cleanable.dirty.ratio`, or if its oldest dirty segment has waited
//! longer than `max.compaction.lag.ms`.

use std::ops::Range;

use riverrun_types::{Offset, TimestampMs};

use crate::config::LogConfig;
use crate::retention::SegmentFacts;

/// A log's state when compaction looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionInput<'a> {
    /// All segments in order of their offsets.
    pub segments: &'a [SegmentFacts],
    /// End of the last run's part, if there was a run.
    pub first_dirty: Option<Offset>,
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Nothing at or above it is compacted.
    pub high_watermark: Offset,
    /// Wall clock.
    pub now: TimestampMs,
}

/// The dirty part of one log, and its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleanable {
    /// Begin of the dirty part.
    pub first_dirty: Offset,
    /// Base offset of the first segment that may not be touched; never below `first_dirty`.
    pub first_uncleanable: Offset,
    /// Bytes below the dirty part.
    pub clean_bytes: u64,
    /// Bytes of the dirty part that may be cleaned.
    pub cleanable_bytes: u64,
    /// Some dirty record has waited longer than `max.compaction.lag.ms`.
    pub is_overdue: bool,
}

impl Cleanable {
    /// Dirty share of the bytes that a run would read, 0 to 1.
    pub fn ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        if total == 0 { 0.0 } else { self.cleanable_bytes as f64 / total as f64 }
    }

    /// Whether a run is worth its while now.
    pub fn is_due(&self, config: &LogConfig) -> bool {
        config.cleanup.compact
            && self.cleanable_bytes > 0
            && (self.is_overdue || self.ratio() > config.min_cleanable_dirty_ratio)
    }
}

/// Measures the dirty part.
pub fn assess(input: CompactionInput<'_>, config: &LogConfig) -> Cleanable {
    let first_dirty = first_dirty(&input);
    let untouchable = first_untouchable(&input, first_dirty, config.min_compaction_lag_ms);
    let bytes = |goes: &dyn Fn(&SegmentFacts) -> bool| -> u64 {
        input.segments.iter().filter(|segment| goes(segment)).map(|segment| segment.size_bytes).sum()
    };
    Cleanable {
        first_dirty,
        first_uncleanable: untouchable.max(first_dirty),
        clean_bytes: bytes(&|segment| segment.end_offset <= first_dirty),
        // Zero if the dirty part begins beyond the first untouchable segment, as after a deletion of records up to
        // beyond the last checkpoint: the segments between may not be touched either.
        cleanable_bytes: bytes(&|segment| {
            segment.end_offset > first_dirty && segment.base_offset < untouchable
        }),
        is_overdue: is_overdue(&input, first_dirty, config.max_compaction_lag_ms),
    }
}

/// The log with the largest share of dirty bytes among those that are due.
pub fn filthiest<K>(due: impl IntoIterator<Item = (K, Cleanable)>) -> Option<(K, Cleanable)> {
    due.into_iter().max_by(|(_, one), (_, other)| one.ratio().total_cmp(&other.ratio()))
}

/// A remembered dirty point counts only if it lies in the log: otherwise everything is dirty.
fn first_dirty(input: &CompactionInput<'_>) -> Offset {
    let log_end = input.segments.last().map_or(input.log_start, |segment| segment.end_offset);
    match input.first_dirty {
        Some(offset) if offset >= input.log_start && offset <= log_end => offset,
        _ => input.log_start,
    }
}

/// Base offset of the first segment that may not be touched, or the end of the last one.
fn first_untouchable(input: &CompactionInput<'_>, first_dirty: Offset, min_lag_ms: u64) -> Offset {
    let min_lag_ms = i64::try_from(min_lag_ms).unwrap_or(i64::MAX);
    let youngest_cleanable = input.now.0.saturating_sub(min_lag_ms);
    let untouchable = |segment: &&SegmentFacts| {
        let is_dirty = segment.end_offset > first_dirty;
        let is_young = min_lag_ms > 0 && segment.max_timestamp.0 > youngest_cleanable;
        segment.is_active || segment.end_offset > input.high_watermark || (is_dirty && is_young)
    };
    let log_end = input.segments.last().map_or(first_dirty, |segment| segment.end_offset);
    input.segments.iter().find(untouchable).map_or(log_end, |segment| segment.base_offset)
}

/// Whether the oldest dirty segment that is not active has waited longer than allowed.
fn is_overdue(input: &CompactionInput<'_>, first_dirty: Offset, max_lag_ms: u64) -> bool {
    let max_lag_ms = i64::try_from(max_lag_ms).unwrap_or(i64::MAX);
    let dirty =
        input.segments.iter().filter(|segment| !segment.is_active && segment.end_offset > first_dirty);
    let oldest = dirty.map(|segment| segment.first_timestamp.0).filter(|timestamp| *timestamp > 0).min();
    oldest.is_some_and(|timestamp| timestamp < input.now.0.saturating_sub(max_lag_ms))
}

/// Groups the segments with records below `end` so that each group fits into one segment of `segment_bytes`:
/// otherwise segments would shrink with each run until only crumbs are left. A group is a range of indexes.
///
/// A group never spans more than 2^31-1 offsets, because positions inside a segment are relative to its base.
pub fn group_segments(segments: &[SegmentFacts], end: Offset, segment_bytes: u32) -> Vec<Range<usize>> {
    let count = segments.iter().take_while(|segment| !segment.is_active && segment.base_offset < end).count();
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut group_bytes = 0_u64;
    for (index, segment) in segments[..count].iter().enumerate() {
        let joined = groups.last().is_some_and(|group| {
            let span = segment.end_offset.0 - segments[group.start].base_offset.0;
            group_bytes + segment.size_bytes <= u64::from(segment_bytes) && span <= i64::from(i32::MAX)
        });
        if let Some(group) = groups.last_mut().filter(|_| joined) {
            group.end = index + 1;
            group_bytes += segment.size_bytes;
        } else {
            groups.push(index..index + 1);
            group_bytes = segment.size_bytes;
        }
    }
    groups
}

#[cfg(test)]
mod tests;
