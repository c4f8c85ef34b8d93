//! When each record is due.
//!
//! Owns the schedule of a paced load. Guarantees that a record's time depends on its number and the rate only, never
//! on how the records before it fared: a server that stalls finds all that was due meanwhile, each with the time at
//! which it should have gone, and the latency from that time shows the stall in full (no coordinated omission).
//! Refuses rates that are no number above 0.

use std::time::{Duration, Instant};

/// Records per second, above 0 and finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// This many a second; none unless it is a finite number above 0.
    pub fn per_second(rate: f64) -> Option<Self> {
        (rate.is_finite() && rate > 0.0).then_some(Self(rate))
    }

    /// Records per second.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// The times at which records are due.
///
/// Several senders may share one: the records' numbers are one sequence, whoever sends which of them.
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

    /// When the record of this number, from 0, is due; none where nothing is paced.
    pub fn due(&self, number: u64) -> Option<Instant> {
        let rate = self.rate?;
        // Computed from the number, not added up: a sum of rounded intervals drifts.
        Some(self.start + Duration::from_secs_f64(number as f64 / rate.get()))
    }
}

/// Lets the thread sleep until `due`, and not at all if that has passed.
///
/// It never waits by keeping a processor busy, which the server may need. So it wakes up some twenty microseconds late
/// where [`sharpen_sleep`] was called on the thread, and at high rates finds several records due. What it is late by
/// is part of every latency that is measured from the time due: it is small, and not hidden.
pub fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
}

/// Asks the kernel to wake this thread when it wants to be woken, and not up to 50 us later to save power.
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
    fn a_rate_is_a_number_above_zero() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::per_second(bad), None, "{bad}");
        }
        assert!((rate(0.5).get() - 0.5).abs() < f64::EPSILON);
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
