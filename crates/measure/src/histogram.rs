//! Latencies: each one is recorded, to three digits.
//!
//! Owns recording, merging and percentiles. Guarantees that nothing is sampled and nothing is cut off above: the
//! histogram grows to any latency, and greatest, sum and count are exact.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Digits to which a value is kept.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// The greatest latency that has its place from the start; the histogram grows above it.
const EXPECTED_MAX_US: u64 = 60_000_000;

/// Many numbers of one unit.
///
/// Invariants: `sum` and `max` are exactly those of the values that `histogram` counts.
#[derive(Clone, Debug)]
pub struct Values {
    histogram: Histogram<u64>,
    sum: u128,
    max: u64,
}

impl Values {
    /// None yet, with room for values up to `expected_max` from the start, which is above 1.
    pub fn with_room_to(expected_max: u64) -> Self {
        let mut histogram = Histogram::new_with_bounds(1, expected_max.max(2), SIGNIFICANT_DIGITS)
            .expect("two is enough, and three digits are allowed");
        histogram.auto(true);
        Self { histogram, sum: 0, max: 0 }
    }

    /// Adds one value.
    pub fn record(&mut self, value: u64) {
        self.record_many(value, 1);
    }

    /// Adds `count` equal values.
    pub fn record_many(&mut self, value: u64, count: u64) {
        // A count stops at its greatest. Only a histogram of half the memory's size would be refused.
        self.histogram.record_n(value, count).expect("the histogram grows");
        self.sum += u128::from(value) * u128::from(count);
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the histogram grows");
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.sum, self.max) = (0, 0);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The greatest; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The least, to three digits; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.histogram.min() }
    }

    /// Sum over count; 0 if there is none.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    /// The value that `percentile` percent of all do not exceed, to three digits; 0 if there is none.
    pub fn percentile(&self, percentile: f64) -> u64 {
        if self.is_empty() { 0 } else { self.histogram.value_at_percentile(percentile).min(self.max) }
    }
}

/// The latencies of many records, in microseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Values);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self(Values::with_room_to(EXPECTED_MAX_US))
    }

    /// Adds one latency.
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Adds `count` equal latencies.
    pub fn record_many(&mut self, latency: Duration, count: u64) {
        self.record_many_us(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), count);
    }

    /// Adds one latency, given in microseconds.
    pub fn record_us(&mut self, latency_us: u64) {
        self.record_many_us(latency_us, 1);
    }

    /// Adds `count` equal latencies, as records that were acked together have them.
    pub fn record_many_us(&mut self, latency_us: u64, count: u64) {
        self.0.record_many(latency_us, count);
    }

    /// Adds all latencies of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Adds the least latencies of `other`: each of them `times` times, but at most `most` in all.
    pub fn merge_least(&mut self, other: &Self, times: u64, most: u64) {
        let mut left = most;
        for step in other.histogram().iter_recorded() {
            let count = step.count_since_last_iteration().saturating_mul(times).min(left);
            if count == 0 {
                break;
            }
            self.record_many_us(step.value_iterated_to().min(other.max_us()), count);
            left -= count;
        }
    }

    /// Forgets all latencies.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Whether there is no latency.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The greatest; 0 if there is none.
    pub fn max_us(&self) -> u64 {
        self.0.max()
    }

    /// The least, to three digits; 0 if there is none.
    pub fn min_us(&self) -> u64 {
        self.0.min()
    }

    /// Sum over count; 0 if there is none.
    pub fn mean_us(&self) -> f64 {
        self.0.mean()
    }

    /// The value that `percentile` percent of all do not exceed, to three digits; 0 if there is none.
    pub fn percentile_us(&self, percentile: f64) -> u64 {
        self.0.percentile(percentile)
    }

    /// The usual figures.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.count(),
            mean_us: self.mean_us(),
            min_us: self.min_us(),
            p50_us: self.percentile_us(50.0),
            p75_us: self.percentile_us(75.0),
            p90_us: self.percentile_us(90.0),
            p95_us: self.percentile_us(95.0),
            p99_us: self.percentile_us(99.0),
            p999_us: self.percentile_us(99.9),
            p9999_us: self.percentile_us(99.99),
            max_us: self.max_us(),
        }
    }

    /// Percentiles and their values, as a plot of the tail needs them: finer the nearer to 100, as many steps again each
    /// time the distance to 100 halves.
    pub fn quantiles(&self) -> Vec<(f64, u64)> {
        /// Steps to each halving.
        const STEPS: u32 = 5;
        self.histogram()
            .iter_quantiles(STEPS)
            .map(|step| (step.quantile_iterated_to() * 100.0, step.value_iterated_to().min(self.max_us())))
            .collect()
    }

    /// The counts themselves.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0.histogram
    }
}

/// The usual figures of many latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of latencies.
    pub count: u64,
    /// Sum over count.
    pub mean_us: f64,
    /// The least.
    pub min_us: u64,
    /// The median.
    pub p50_us: u64,
    /// 75 %.
    pub p75_us: u64,
    /// 90 %.
    pub p90_us: u64,
    /// 95 %.
    pub p95_us: u64,
    /// 99 %.
    pub p99_us: u64,
    /// 99.9 %.
    pub p999_us: u64,
    /// 99.99 %.
    pub p9999_us: u64,
    /// The greatest, exactly.
    pub max_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_cut_off_however_long_it_took() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_hours(30));
        latencies.record(Duration::ZERO);
        assert_eq!((latencies.max_us(), latencies.min_us(), latencies.count()), (108_000_000_000, 0, 2));
        assert_eq!(latencies.percentile_us(100.0), latencies.max_us());
    }

    #[test]
    fn greatest_and_mean_are_exact_and_percentiles_to_three_digits() {
        let mut latencies = Latencies::new();
        (1..=100_000).for_each(|us| latencies.record_us(us));
        latencies.record_many_us(1_234_567, 1);
        assert_eq!(latencies.max_us(), 1_234_567);
        let mean = (100_000.0 * 100_001.0 / 2.0 + 1_234_567.0) / 100_001.0;
        assert!((latencies.mean_us() - mean).abs() < 1e-6);
        for (percentile, expected) in [(50.0, 50_000.0), (99.0, 99_000.0), (99.99, 99_990.0)] {
            let found = latencies.percentile_us(percentile) as f64;
            assert!((found / expected - 1.0).abs() < 0.001, "{percentile} % is {found}");
        }
    }

    #[test]
    fn merged_latencies_are_those_of_both() {
        let (mut one, mut other, mut both) = (Latencies::new(), Latencies::new(), Latencies::new());
        for us in [3, 400, 90_000_000_000] {
            one.record_us(us);
            both.record_us(us);
        }
        other.record_many_us(70, 5);
        both.record_many_us(70, 5);
        other.merge(&one);
        assert_eq!(other.summary(), both.summary());
        assert_eq!(other.quantiles(), both.quantiles());
        other.clear();
        assert_eq!(other.summary(), LatencySummary::default());
    }

    #[test]
    fn merge_least_adds_each_of_the_least_values_the_wanted_times() {
        let mut other = Latencies::new();
        other.record_many_us(90_000_000_001, 2);
        other.record_many_us(70, 3);
        let merged = |times, most| {
            let mut one = Latencies::new();
            one.merge_least(&other, times, most);
            (one.count(), one.min_us(), one.max_us())
        };
        assert_eq!(merged(2, 10), (10, 70, 90_000_000_001));
        assert_eq!(merged(2, 7), (7, 70, 90_000_000_001));
        assert_eq!(merged(2, 6), (6, 70, 70), "the least of them");
        assert_eq!((merged(0, 10), merged(2, 0)), ((0, 0, 0), (0, 0, 0)));
    }

    #[test]
    fn values_beyond_the_room_expected_are_kept() {
        let mut values = Values::with_room_to(1000);
        values.record_many(10, 99);
        values.record(900_000_000_123);
        assert_eq!((values.count(), values.max(), values.percentile(99.0)), (100, 900_000_000_123, 10));
        assert_eq!(values.percentile(100.0), values.max());
        assert!((values.mean() - (990.0 + 900_000_000_123.0) / 100.0).abs() < 1.0);
    }

    #[test]
    fn quantiles_grow_up_to_the_greatest() {
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|us| latencies.record_us(us));
        let quantiles = latencies.quantiles();
        assert!(quantiles.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
        assert_eq!(quantiles.last().map(|last| last.1), Some(10_000));
        assert!(quantiles.iter().filter(|(percentile, _)| *percentile >= 99.0).count() > 10);
    }
}
