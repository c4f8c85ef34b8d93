//! `log.cleaner.io.max.bytes.per.second`: how long compaction waits so that it does not crowd out the rest.
//!
//! Pure: bytes and monotonic time in, a wait out. The compacting thread sleeps.

use std::time::Duration;

/// Waits shorter than this are saved up: timers are not that precise.
const WAIT_MIN: Duration = Duration::from_millis(5);
/// No single wait is longer, so that a stop is noticed soon.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Spreads bytes over time.
///
/// Invariants: `free_at` is when all bytes charged so far will have had their time; it never lies in the past by
/// more than the last charge found it, so idle time is not saved up for a burst.
#[derive(Clone, Debug)]
pub struct IoPace {
    bytes_per_second: Option<u64>,
    free_at: Duration,
}

impl IoPace {
    /// At most `bytes_per_second`, read and written together; `None` for no limit.
    pub fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at: Duration::ZERO }
    }

    /// Charges `bytes` at monotonic time `now` and answers how long to wait before the next charge, if at all.
    pub fn charge(&mut self, bytes: u64, now: Duration) -> Option<Duration> {
        let rate = self.bytes_per_second?.max(1);
        let cost = Duration::from_nanos(nanos(bytes, rate));
        self.free_at = self.free_at.max(now).saturating_add(cost);
        let wait = self.free_at.saturating_sub(now);
        (wait >= WAIT_MIN).then_some(wait.min(WAIT_MAX))
    }
}

/// Time that `bytes` take at `rate` bytes per second, in nanoseconds.
fn nanos(bytes: u64, rate: u64) -> u64 {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_time_no_more_bytes_pass_than_the_rate_allows() {
        let mut pace = IoPace::new(Some(1_000_000));
        let mut now = Duration::from_secs(50);
        let mut passed = 0;
        while passed < 5_000_000 {
            passed += 2_000;
            now += pace.charge(2_000, now).unwrap_or_default();
        }
        let seconds = now.as_secs_f64() - 50.0;
        assert!((4.98..=5.01).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_long_debt_is_paid_in_short_waits() {
        let mut pace = IoPace::new(Some(1_000));
        assert_eq!(pace.charge(3_500, Duration::ZERO), Some(Duration::from_secs(1)));
        let rest = [1, 2, 3].map(|second| pace.charge(0, Duration::from_secs(second)));
        assert_eq!(
            rest,
            [Some(Duration::from_secs(1)), Some(Duration::from_secs(1)), Some(Duration::from_millis(500))]
        );
        assert_eq!(pace.charge(0, Duration::from_millis(3_500)), None);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut pace = IoPace::new(Some(1_000));
        assert_eq!(pace.charge(1, Duration::from_secs(100)), None);
        assert_eq!(pace.charge(100, Duration::from_secs(100)), Some(Duration::from_millis(101)));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = IoPace::new(None);
        assert_eq!(pace.charge(u64::MAX, Duration::ZERO), None);
        let mut slow = IoPace::new(Some(0));
        assert_eq!(slow.charge(u64::MAX, Duration::ZERO), Some(WAIT_MAX));
    }
}
