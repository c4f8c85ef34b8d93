//! Shrinking a workload so that it fits the time and the machine at hand.
//!
//! Times, backlogs and numbers of records shrink. What makes a scenario what it is stays: partitions, rates, sizes of
//! records, producers and consumers. The result says by how much it was shrunk.

use crate::omb::Workload;

/// A measurement that is shrunk is not shorter than this, in minutes: five periods of a second tell nothing less.
const TEST_MINUTES_MIN: f64 = 5.0 / 60.0;
/// A warm-up that is shrunk is not shorter than this, in minutes.
const WARMUP_MINUTES_MIN: f64 = 2.0 / 60.0;

/// Shrinks a workload; 1 leaves it as it is.
pub(super) fn shrink(workload: &mut Workload, scale: f64) {
    let shorter = |minutes: f64, least: f64| (minutes * scale).max(minutes.min(least));
    workload.test_duration_minutes = shorter(workload.test_duration_minutes, TEST_MINUTES_MIN);
    let warmup = workload.warmup().as_secs_f64() / 60.0;
    workload.warmup_duration_minutes = Some(shorter(warmup, WARMUP_MINUTES_MIN));
    workload.consumer_backlog_size_gb *= scale;
    workload.messages = workload.messages.map(|messages| fewer(messages, scale));
}

#[expect(clippy::cast_possible_truncation, reason = "a share of a count is no greater than it")]
fn fewer(messages: u64, scale: f64) -> u64 {
    ((messages as f64 * scale) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_shrink_and_nothing_else_does() {
        let workload = Workload {
            topics: 3,
            producer_rate: 100.0,
            message_size: 512,
            consumer_backlog_size_gb: 8.0,
            test_duration_minutes: 10.0,
            warmup_duration_minutes: Some(1.0),
            messages: Some(5000),
            ..Workload::default()
        };
        let mut shrunk = workload.clone();
        shrink(&mut shrunk, 0.1);
        assert_eq!((shrunk.test().as_secs(), shrunk.warmup().as_secs(), shrunk.messages), (60, 6, Some(500)));
        assert!((shrunk.consumer_backlog_size_gb - 0.8).abs() < 1e-9);
        assert_eq!((shrunk.topics, shrunk.message_size), (3, 512));
        let mut least = workload.clone();
        shrink(&mut least, 0.0001);
        assert_eq!((least.test().as_secs(), least.warmup().as_secs(), least.messages), (5, 2, Some(1)));
        let mut same = workload.clone();
        shrink(&mut same, 1.0);
        assert_eq!(same, workload);
    }
}
