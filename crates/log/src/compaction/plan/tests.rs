use super::*;
use crate::config::CleanupPolicy;

/// Segments of ten records each from (bytes, largest timestamp); the last one is active.
fn segments(rows: &[(u64, i64)]) -> Vec<SegmentFacts> {
    let facts = |(index, (size_bytes, timestamp)): (usize, &(u64, i64))| {
        let base = 10 * i64::try_from(index).unwrap();
        SegmentFacts {
            base_offset: Offset(base),
            end_offset: Offset(base + 10),
            size_bytes: *size_bytes,
            first_timestamp: TimestampMs(*timestamp),
            max_timestamp: TimestampMs(*timestamp),
            is_active: index + 1 == rows.len(),
        }
    };
    rows.iter().enumerate().map(facts).collect()
}

fn compacted() -> LogConfig {
    LogConfig { cleanup: CleanupPolicy { delete: false, compact: true }, ..LogConfig::default() }
}

const ROWS: &[(u64, i64)] = &[(100, 1000), (200, 2000), (300, 3000), (400, 4000), (50, 5000)];

fn assess_rows(
    first_dirty: Option<i64>,
    log_start: i64,
    high_watermark: i64,
    config: &LogConfig,
) -> Cleanable {
    let segments = segments(ROWS);
    let input = CompactionInput {
        segments: &segments,
        first_dirty: first_dirty.map(Offset),
        log_start: Offset(log_start),
        high_watermark: Offset(high_watermark),
        now: TimestampMs(6000),
    };
    assess(input, config)
}

#[test]
fn active_segment_counts_as_neither_clean_nor_cleanable() {
    let cases = [
        // (first dirty, log start, high watermark) -> (dirty from, to, clean bytes, cleanable bytes)
        ((None, 0, 50), (0, 40, 0, 1000)),
        ((Some(20), 0, 50), (20, 40, 300, 700)),
        ((Some(40), 0, 50), (40, 40, 1000, 0)),
        // Inside a segment: that segment is read again, as dirty.
        ((Some(25), 0, 50), (25, 40, 300, 700)),
        // The high watermark stops it at the segment that it lies in.
        ((Some(10), 0, 35), (10, 30, 100, 500)),
        ((Some(20), 0, 5), (20, 20, 300, 0)),
        // A log start beyond the first untouchable segment: the segments between may not be touched either.
        ((None, 25, 15), (25, 25, 300, 0)),
        // A point that lies outside the log is not believed.
        ((Some(3), 20, 50), (20, 40, 300, 700)),
        ((Some(99), 0, 50), (0, 40, 0, 1000)),
    ];
    for ((first_dirty, log_start, high_watermark), (from, to, clean_bytes, cleanable_bytes)) in cases {
        let found = assess_rows(first_dirty, log_start, high_watermark, &compacted());
        let expected = Cleanable {
            first_dirty: Offset(from),
            first_uncleanable: Offset(to),
            clean_bytes,
            cleanable_bytes,
            is_overdue: false,
        };
        assert_eq!(
            found, expected,
            "dirty from {first_dirty:?}, start {log_start}, visible {high_watermark}"
        );
    }
}

#[test]
fn log_is_due_above_the_ratio_or_when_a_record_waited_too_long() {
    let config = |ratio: f64, max_lag_ms: u64| LogConfig {
        min_cleanable_dirty_ratio: ratio,
        max_compaction_lag_ms: max_lag_ms,
        ..compacted()
    };
    let no_lag = u64::MAX;
    let cases = [
        // 700 of 1000 bytes are dirty from 20 on; the first dirty record is of 3000, now is 6000.
        (Some(20), 0.5, no_lag, true),
        (Some(20), 0.69, no_lag, true),
        (Some(20), 0.7, no_lag, false),
        (Some(20), 0.9, 3000, false),
        (Some(20), 0.9, 2999, true),
        (Some(40), 0.0, 0, false),
    ];
    for (first_dirty, ratio, max_lag_ms, due) in cases {
        let config = config(ratio, max_lag_ms);
        let found = assess_rows(first_dirty, 0, 50, &config);
        assert_eq!(found.is_due(&config), due, "from {first_dirty:?}, ratio {ratio}, lag {max_lag_ms}");
        let not_compacted = LogConfig { cleanup: CleanupPolicy { delete: true, compact: false }, ..config };
        assert!(!found.is_due(&not_compacted));
    }
}

#[test]
fn young_records_wait_for_their_lag() {
    for (min_lag_ms, to) in
        [(0, 40), (1999, 40), (2000, 40), (2001, 30), (3001, 20), (5001, 0), (u64::MAX, 0)]
    {
        let config = LogConfig { min_compaction_lag_ms: min_lag_ms, ..compacted() };
        assert_eq!(assess_rows(None, 0, 50, &config).first_uncleanable, Offset(to), "lag {min_lag_ms}");
    }
    // Clean segments were old enough once.
    let config = LogConfig { min_compaction_lag_ms: 5001, ..compacted() };
    assert_eq!(assess_rows(Some(20), 0, 50, &config).first_uncleanable, Offset(20));
}

#[test]
fn the_filthiest_log_goes_first() {
    let log = |clean_bytes, cleanable_bytes| Cleanable {
        first_dirty: Offset(0),
        first_uncleanable: Offset(1),
        clean_bytes,
        cleanable_bytes,
        is_overdue: false,
    };
    let found = filthiest([("a", log(50, 50)), ("b", log(10, 90)), ("c", log(0, 0)), ("d", log(100, 0))]);
    assert_eq!(found.map(|(name, _)| name), Some("b"));
    assert_eq!(filthiest::<()>([]), None);
}

type Groups = &'static [(usize, usize)];

fn groups(segments: &[SegmentFacts], end: Offset, segment_bytes: u32) -> Vec<(usize, usize)> {
    group_segments(segments, end, segment_bytes).into_iter().map(|group| (group.start, group.end)).collect()
}

#[test]
fn segments_are_joined_up_to_the_segment_size() {
    let segments = segments(ROWS);
    let cases: [(i64, u32, Groups); 6] = [
        (50, 10_000, &[(0, 4)]),
        (40, 300, &[(0, 2), (2, 3), (3, 4)]),
        (40, 299, &[(0, 1), (1, 2), (2, 3), (3, 4)]),
        (40, 500, &[(0, 2), (2, 3), (3, 4)]),
        // A segment with any record below the end belongs to the run.
        (21, 10_000, &[(0, 3)]),
        (0, 10_000, &[]),
    ];
    for (end, segment_bytes, expected) in cases {
        let found = groups(&segments, Offset(end), segment_bytes);
        assert_eq!(found, expected, "end {end}, {segment_bytes} bytes");
    }
}

#[test]
fn group_spans_no_more_offsets_than_a_relative_one_can_hold() {
    let mut wide = segments(&[(1, 0), (1, 0), (1, 0), (1, 0)]);
    wide[1].end_offset = Offset(i64::from(i32::MAX));
    wide[2].base_offset = Offset(i64::from(i32::MAX));
    wide[2].end_offset = Offset(i64::from(i32::MAX) + 1);
    assert_eq!(groups(&wide, Offset(i64::MAX), 100), [(0, 2), (2, 3)]);
}
