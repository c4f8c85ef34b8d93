//! When each record is due.
//!
//! Owns the schedule of a paced load. Guarantees that a record's time depends on its number and the rate only, never on
//! the records before it. So a server that stalls gets all records that were due meanwhile, and the latency from the time
//! at which each was due shows the stall in full (no coordinated omission). Refuses rates that are no number, or so low
//! that no run would see a second record.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Records per second, finite and at least [`MIN`](Self::MIN).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(into = "f64", try_from = "f64")]
pub struct Rate(f64);

/// A number that is no [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no rate: that is a number of at least {min} records a second", min = Rate::MIN)]
pub struct RateError(f64);

impl Rate {
    /// The least rate: a record in eleven and a half days. Times of slower ones would soon be beyond what a clock can tell.
    pub const MIN: f64 = 1e-6;

    /// This many records a second; none unless it is a finite number of at least [`MIN`](Self::MIN).
    pub fn per_second(rate: f64) -> Option<Self> {
        (rate.is_finite() && rate >= Self::MIN).then_some(Self(rate))
    }

    /// This many records a second, or the nearest number that is a rate.
    pub fn nearest(rate: f64) -> Self {
        Self(if rate.is_nan() { Self::MIN } else { rate.clamp(Self::MIN, f64::MAX) })
    }

    /// Records per second.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Rate {
    type Error = RateError;

    fn try_from(rate: f64) -> Result<Self, RateError> {
        Self::per_second(rate).ok_or(RateError(rate))
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.get()
    }
}

/// A record that is due later than this is never due: no run lasts so long, and the clock can still tell such times.
const NEVER_AFTER: Duration = Duration::from_hours(24 * 365 * 100);

/// The times at which records are due.
///
/// Several senders may share one: the numbers of their records are one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    rate: Option<Rate>,
}

impl Schedule {
    /// Begins at `start`; without a rate, every record is due at once.
    pub fn new(start: Instant, rate: Option<Rate>) -> Self {
        Self { start, rate }
    }

    /// The time at which the record of this number, from 0, is due; none where nothing is paced.
    pub fn due(&self, number: u64) -> Option<Instant> {
        let rate = self.rate?;
        // Computed from the number, not added up: a sum of rounded intervals drifts.
        let after = Duration::try_from_secs_f64(number as f64 / rate.get()).unwrap_or(NEVER_AFTER);
        Some(self.start + after.min(NEVER_AFTER))
    }
}

/// Lets the thread sleep until `due`; returns at once if that has passed.
///
/// It never waits by keeping a processor busy, which the server may need. So it wakes up some twenty microseconds late
/// where [`sharpen_sleep`] was called on the thread, and at high rates finds several records due. This delay is part of
/// every latency that is measured from the time due: it is small, and not hidden.
pub fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

/// Asks the kernel to wake this thread on time, and not up to 50 us later to save power.
pub fn sharpen_sleep() {
    if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::MIN.into()) {
        tracing::debug!(%error, "timer slack stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(rate: f64) -> Rate {
        Rate::per_second(rate).expect("a rate")
    }

    #[test]
    fn a_rate_is_a_number_and_not_next_to_nothing() {
        for bad in [0.0, -1.0, 1e-300, 9e-7, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::per_second(bad), None, "{bad}");
        }
        assert!((rate(0.5).get() - 0.5).abs() < f64::EPSILON);
        let nearest = [f64::NAN, -3.0, 0.0, 0.5, f64::INFINITY].map(|rate| Rate::nearest(rate).get());
        assert!(nearest.iter().all(|nearest| Rate::per_second(*nearest).is_some()), "{nearest:?}");
        assert_eq!(serde_json::from_str::<Rate>("0.5").ok(), Some(rate(0.5)));
        let error = serde_json::from_str::<Rate>("1e-300").expect_err("next to nothing");
        assert!(error.to_string().contains("at least 0.000001 records a second"), "{error}");
    }

    #[test]
    fn every_record_of_the_slowest_load_has_a_time() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Some(rate(Rate::MIN)));
        assert_eq!(schedule.due(2), Some(start + Duration::from_secs(2_000_000)));
        for number in [1 << 48, u64::MAX] {
            assert_eq!(schedule.due(number), Some(start + NEVER_AFTER));
        }
    }

    #[test]
    fn a_record_s_time_depends_on_its_number_only() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Some(rate(3.0)));
        assert_eq!(schedule.due(0), Some(start));
        assert_eq!(schedule.due(3), Some(start + Duration::from_secs(1)));
        // After an hour and more nothing has been rounded away.
        assert_eq!(schedule.due(3 * 100_000), Some(start + Duration::from_secs(100_000)));
        assert_eq!(Schedule::new(start, None).due(7), None);
    }

    #[test]
    fn sleeping_until_a_time_that_has_passed_returns_at_once() {
        let before = Instant::now();
        sleep_until(before.checked_sub(Duration::from_secs(3)).unwrap_or(before));
        assert!(before.elapsed() < Duration::from_millis(100));
        sleep_until(before + Duration::from_millis(30));
        assert!(before.elapsed() >= Duration::from_millis(30));
    }
}
