//! Retention: decides which segments are deleted, and the log start after that.
//!
//! Pure: facts about the segments, the topic's options, the log start and the time in, a decision out. It keeps Kafka's
//! order and comparisons: first segments below the log start (moved by delete-records), then size, then time. Only a
//! prefix of the log is ever deleted, and nothing past the high watermark.
//!
//! A log may have very many segments, and each costs a look. So a decision is made from the first ones of them, and the
//! rest is decided the next time: the same segments go in the end.
//!
//! The active segment is never deleted as such. If everything in it has to go too, the decision says
//! [`roll`](RetentionDecision::roll): the caller rolls first and then deletes the segments that are inactive by then.

use riverrun_types::{Offset, TimestampMs};

use crate::config::LogConfig;

/// The facts of one segment for the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Offset that names the segment's files.
    pub base_offset: Offset,
    /// Offset after its last record (or the next segment's base offset); equals `base_offset` if it is empty.
    pub end_offset: Offset,
    /// Bytes of its batches.
    pub size_bytes: u64,
    /// Largest timestamp of its first batch; `TimestampMs::NONE` if that has none.
    pub first_timestamp: TimestampMs,
    /// Largest timestamp of its records. If no record has one, the time at which the segment was last written.
    pub max_timestamp: TimestampMs,
    /// Whether appends go to it. Only the last segment can be active, and none has to be.
    pub is_active: bool,
}

/// A log's state when retention looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionInput<'a> {
    /// Segments in order of their offsets: all, or the first ones.
    pub segments: &'a [SegmentFacts],
    /// Whether these are all.
    pub is_whole: bool,
    /// Bytes of all segments.
    pub size_bytes: u64,
    /// First offset that readers may see.
    pub log_start: Offset,
    /// Nothing at or above it is deleted.
    pub high_watermark: Offset,
    /// Wall clock.
    pub now: TimestampMs,
}

/// The reason for the last deleted segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionReason {
    /// Every record lies below the log start.
    BelowLogStart,
    /// `retention.bytes`.
    Size,
    /// `retention.ms`.
    Time,
}

/// Retention's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionDecision {
    /// Number of segments to delete, from the front. 0: nothing to do.
    pub delete_count: usize,
    /// The active segment is among them: roll before deleting.
    pub roll: bool,
    /// The log start afterwards; never below the one before.
    pub log_start: Offset,
    /// The reason for the last deleted one; `None` if none is.
    pub reason: Option<RetentionReason>,
}

impl RetentionDecision {
    /// Whether further segments, which the decision was not made from, may be deleted as well.
    pub(crate) fn is_cut_short(self, input: RetentionInput<'_>) -> bool {
        // The last of its segments had no known successor.
        !input.is_whole && self.delete_count > 0 && self.delete_count + 1 >= input.segments.len()
    }

    /// The decision that spares the log's last segment, if this one does not and deletes others.
    pub(crate) fn all_but_last(self, input: RetentionInput<'_>) -> Option<Self> {
        let delete_count = self.delete_count.checked_sub(1).filter(|count| *count > 0)?;
        let log_start = input.segments[delete_count - 1].end_offset.max(input.log_start);
        (input.is_whole && self.delete_count == input.segments.len()).then_some(Self {
            delete_count,
            roll: false,
            log_start,
            ..self
        })
    }
}

/// The number of first segments that a decision is made from, by the bytes of each: those up to the `full_max`th that
/// is not empty, because an empty one goes only with one that is not.
pub(crate) fn front_len(sizes: impl IntoIterator<Item = u64>, full_max: usize) -> usize {
    let mut full = 0;
    let is_within = |bytes: &u64| {
        let is_within = full < full_max;
        full += usize::from(*bytes > 0);
        is_within
    };
    sizes.into_iter().take_while(is_within).count()
}

/// Decides which segments go now.
///
/// Size and time count only if `cleanup.policy` has `delete`; records below the log start go under any policy.
pub fn decide(input: RetentionInput<'_>, config: &LogConfig) -> RetentionDecision {
    let mut passes = vec![(RetentionReason::BelowLogStart, below_log_start(&input))];
    if config.cleanup.delete {
        let after_start = passes[0].1;
        let after_size = over_size(&input, after_start, config.retention_bytes);
        let after_time = expired(&input, after_size, config.retention_ms);
        passes.push((RetentionReason::Size, after_size));
        passes.push((RetentionReason::Time, after_time));
    }
    let delete_count = passes.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let reason = passes.iter().find(|(_, count)| *count == delete_count && delete_count > 0);
    let last = delete_count.checked_sub(1).map(|index| input.segments[index]);
    RetentionDecision {
        delete_count,
        roll: last.is_some_and(|segment| segment.is_active),
        log_start: last.map_or(input.log_start, |segment| segment.end_offset.max(input.log_start)),
        reason: reason.map(|(reason, _)| *reason),
    }
}

/// Segments whose successor begins at or below the log start. The last segment has no successor and stays.
fn below_log_start(input: &RetentionInput<'_>) -> usize {
    let successors = input.segments.iter().skip(1);
    successors.take_while(|next| next.base_offset <= input.log_start.min(input.high_watermark)).count()
}

/// Segments beyond `from` that go because the log stays at or above the size limit without them.
fn over_size(input: &RetentionInput<'_>, from: usize, retention_bytes: Option<u64>) -> usize {
    let Some(limit) = retention_bytes else { return from };
    let before: u64 = input.segments[..from].iter().map(|segment| segment.size_bytes).sum();
    let total = input.size_bytes.saturating_sub(before);
    let mut excess = total.saturating_sub(limit);
    extend(input, from, |segment| {
        let goes = total >= limit && excess >= segment.size_bytes;
        if goes {
            excess -= segment.size_bytes;
        }
        goes
    })
}

/// Segments beyond `from` whose newest record is older than the retention time.
fn expired(input: &RetentionInput<'_>, from: usize, retention_ms: Option<u64>) -> usize {
    let Some(limit_ms) = retention_ms else { return from };
    let limit_ms = i64::try_from(limit_ms).unwrap_or(i64::MAX);
    extend(input, from, |segment| input.now.0.saturating_sub(segment.max_timestamp.0) > limit_ms)
}

/// Walks on from `from` while `goes` holds, the high watermark has passed the segment, and it is not an empty last one:
/// that one stays, or an idle log would roll forever. Other empty segments, which compaction leaves, go with the next
/// one.
fn extend(input: &RetentionInput<'_>, from: usize, mut goes: impl FnMut(&SegmentFacts) -> bool) -> usize {
    let last = input.is_whole.then(|| input.segments.len().saturating_sub(1));
    let walked = input.segments.iter().enumerate().skip(from).take_while(|(index, segment)| {
        let is_empty = segment.size_bytes == 0;
        let is_passed = segment.end_offset <= input.high_watermark;
        is_passed && if is_empty { Some(*index) != last } else { goes(segment) }
    });
    walked.filter(|(_, segment)| segment.size_bytes > 0).last().map_or(from, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests;
