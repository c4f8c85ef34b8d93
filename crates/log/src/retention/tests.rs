use proptest::prelude::*;

use super::*;
use crate::config::CleanupPolicy;

/// Segments from (records, bytes, largest timestamp); the last one is active.
fn segments(rows: &[(i64, u64, i64)]) -> Vec<SegmentFacts> {
    let mut base = 0;
    let mut all: Vec<SegmentFacts> = vec![];
    for (records, size_bytes, timestamp) in rows {
        all.push(SegmentFacts {
            base_offset: Offset(base),
            end_offset: Offset(base + records),
            size_bytes: *size_bytes,
            first_timestamp: TimestampMs(*timestamp),
            max_timestamp: TimestampMs(*timestamp),
            is_active: false,
        });
        base += records;
    }
    if let Some(last) = all.last_mut() {
        last.is_active = true;
    }
    all
}

fn size(segments: &[SegmentFacts]) -> u64 {
    segments.iter().map(|segment| segment.size_bytes).sum()
}

fn config(retention_ms: Option<u64>, retention_bytes: Option<u64>) -> LogConfig {
    LogConfig { retention_ms, retention_bytes, ..LogConfig::default() }
}

struct Case {
    name: &'static str,
    rows: &'static [(i64, u64, i64)],
    log_start: i64,
    high_watermark: i64,
    retention_ms: Option<u64>,
    retention_bytes: Option<u64>,
    expected: (usize, bool, i64, Option<RetentionReason>),
}

const NOW: i64 = 10_000;
const THREE: &[(i64, u64, i64)] = &[(10, 100, 1000), (10, 100, 2000), (10, 100, 3000)];

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "no limits", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: None, retention_bytes: None,
        expected: (0, false, 0, None) },
    Case { name: "no segments", rows: &[], log_start: 5, high_watermark: 5, retention_ms: Some(0), retention_bytes: Some(0),
        expected: (0, false, 5, None) },
    Case { name: "time takes the old ones", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: Some(7500), retention_bytes: None,
        expected: (2, false, 20, Some(RetentionReason::Time)) },
    Case { name: "exactly as old as allowed stays", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: Some(9000), retention_bytes: None,
        expected: (0, false, 0, None) },
    Case { name: "one millisecond older goes", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: Some(8999), retention_bytes: None,
        expected: (1, false, 10, Some(RetentionReason::Time)) },
    Case { name: "all expired: the active one is rolled first", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: Some(10), retention_bytes: None,
        expected: (3, true, 30, Some(RetentionReason::Time)) },
    Case { name: "an empty active one stays", rows: &[(10, 100, 1000), (0, 0, 1000)], log_start: 0, high_watermark: 10, retention_ms: Some(10), retention_bytes: None,
        expected: (1, false, 10, Some(RetentionReason::Time)) },
    Case { name: "an empty one between goes with what follows it", rows: &[(10, 100, 1000), (10, 0, 9999), (10, 100, 1000), (10, 0, 9999), (10, 100, 9999)], log_start: 0, high_watermark: 50, retention_ms: Some(100), retention_bytes: None,
        expected: (3, false, 30, Some(RetentionReason::Time)) },
    Case { name: "a young one protects older ones behind it", rows: &[(10, 100, 1000), (10, 100, 9999), (10, 100, 1000)], log_start: 0, high_watermark: 30, retention_ms: Some(100), retention_bytes: None,
        expected: (1, false, 10, Some(RetentionReason::Time)) },
    Case { name: "a timestamp in the future never expires", rows: &[(10, 100, i64::MAX), (10, 100, 1000)], log_start: 0, high_watermark: 20, retention_ms: Some(0), retention_bytes: None,
        expected: (0, false, 0, None) },
    Case { name: "nothing goes past the high watermark", rows: THREE, log_start: 0, high_watermark: 19, retention_ms: Some(10), retention_bytes: None,
        expected: (1, false, 10, Some(RetentionReason::Time)) },
    Case { name: "size never goes below the limit", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: None, retention_bytes: Some(150),
        expected: (1, false, 10, Some(RetentionReason::Size)) },
    Case { name: "exactly the limit is kept", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: None, retention_bytes: Some(200),
        expected: (1, false, 10, Some(RetentionReason::Size)) },
    Case { name: "one byte below a segment's worth", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: None, retention_bytes: Some(201),
        expected: (0, false, 0, None) },
    Case { name: "size 0 takes all", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: None, retention_bytes: Some(0),
        expected: (3, true, 30, Some(RetentionReason::Size)) },
    Case { name: "time goes on where size stopped", rows: THREE, log_start: 0, high_watermark: 30, retention_ms: Some(7500), retention_bytes: Some(200),
        expected: (2, false, 20, Some(RetentionReason::Time)) },
    Case { name: "delete-records inside a segment keeps it", rows: THREE, log_start: 9, high_watermark: 30, retention_ms: None, retention_bytes: None,
        expected: (0, false, 9, None) },
    Case { name: "delete-records past a segment", rows: THREE, log_start: 14, high_watermark: 30, retention_ms: None, retention_bytes: None,
        expected: (1, false, 14, Some(RetentionReason::BelowLogStart)) },
    Case { name: "delete-records up to the end keeps the active one", rows: THREE, log_start: 30, high_watermark: 30, retention_ms: None, retention_bytes: None,
        expected: (2, false, 30, Some(RetentionReason::BelowLogStart)) },
];

#[test]
fn each_policy_decides_as_its_row_says() {
    for case in CASES {
        let segments = segments(case.rows);
        let input = RetentionInput {
            segments: &segments,
            is_whole: true,
            size_bytes: size(&segments),
            log_start: Offset(case.log_start),
            high_watermark: Offset(case.high_watermark),
            now: TimestampMs(NOW),
        };
        let decision = decide(input, &config(case.retention_ms, case.retention_bytes));
        let (delete_count, roll, log_start, reason) = case.expected;
        let expected = RetentionDecision { delete_count, roll, log_start: Offset(log_start), reason };
        assert_eq!(decision, expected, "{}", case.name);
    }
}

#[test]
fn the_last_segment_is_spared_where_all_would_go_and_others_do() {
    let spared = |rows, retention_ms| {
        let (segments, high_watermark) = (segments(rows), Offset(30));
        let input = RetentionInput {
            segments: &segments,
            is_whole: true,
            size_bytes: size(&segments),
            log_start: Offset(3),
            high_watermark,
            now: TimestampMs(NOW),
        };
        decide(input, &config(Some(retention_ms), None)).all_but_last(input)
    };
    let fewer = spared(THREE, 10).expect("two others");
    assert_eq!((fewer.delete_count, fewer.roll, fewer.log_start), (2, false, Offset(20)));
    assert_eq!(spared(THREE, 7500), None, "it stays anyway");
    assert_eq!(spared(&THREE[..1], 10), None, "there is no other");
    assert_eq!(spared(THREE, 20_000), None);
}

#[test]
fn compacted_log_loses_only_segments_below_its_start() {
    let segments = segments(THREE);
    let cleanup = CleanupPolicy { delete: false, compact: true };
    let config = LogConfig { cleanup, ..config(Some(0), Some(0)) };
    let input = RetentionInput {
        segments: &segments,
        is_whole: true,
        size_bytes: size(&segments),
        log_start: Offset(10),
        high_watermark: Offset(30),
        now: TimestampMs(NOW),
    };
    let decision = decide(input, &config);
    assert_eq!((decision.delete_count, decision.reason), (1, Some(RetentionReason::BelowLogStart)));
}

/// The number of deleted segments and the new log start, if so many segments are looked at in a time: in one run of
/// retention, or in as many as have something to delete.
fn in_parts(
    input: RetentionInput<'_>,
    config: &LogConfig,
    full_max: usize,
    is_once: bool,
) -> (usize, Offset) {
    let (mut gone, mut log_start) = (0, input.log_start);
    loop {
        let left = &input.segments[gone..];
        let front = front_len(left.iter().map(|segment| segment.size_bytes), full_max);
        let part = RetentionInput {
            segments: &left[..front],
            is_whole: front == left.len(),
            size_bytes: size(left),
            log_start,
            ..input
        };
        let decision = decide(part, config);
        gone += decision.delete_count;
        log_start = decision.log_start;
        let goes_on = if is_once { decision.is_cut_short(part) } else { decision.delete_count > 0 };
        if !goes_on {
            return (gone, log_start);
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_facts_only_a_visible_prefix_goes(
        rows in prop::collection::vec((0..20_i64, 0..300_u64, 0..20_000_i64), 0..8),
        log_start in 0..100_i64,
        high_watermark in 0..100_i64,
        retention_ms in prop::option::of(0..20_000_u64),
        retention_bytes in prop::option::of(0..1500_u64),
    ) {
        let segments = segments(&rows);
        let (log_start, high_watermark) = (Offset(log_start), Offset(high_watermark));
        let input = RetentionInput {
            segments: &segments,
            is_whole: true,
            size_bytes: size(&segments),
            log_start, high_watermark, now: TimestampMs(NOW) };
        let config = config(retention_ms, retention_bytes);
        let decision = decide(input, &config);
        // A later part may find remaining segments below the log start, which one decision leaves to the next.
        prop_assert!(in_parts(input, &config, 2, true).0 >= decision.delete_count);
        prop_assert_eq!(in_parts(input, &config, 2, false), in_parts(input, &config, usize::MAX, false));
        prop_assert!(decision.delete_count <= segments.len());
        prop_assert!(decision.log_start >= log_start);
        prop_assert_eq!(decision.roll, decision.delete_count > 0 && decision.delete_count == segments.len());
        let gone = &segments[..decision.delete_count];
        prop_assert!(gone.iter().all(|segment| segment.end_offset <= high_watermark));
        prop_assert!(gone.iter().all(|segment| segment.end_offset <= decision.log_start));
        if let (Some(limit), Some(RetentionReason::Size)) = (retention_bytes, decision.reason) {
            prop_assert!(size(&segments[decision.delete_count..]) >= limit);
        }
    }
}
