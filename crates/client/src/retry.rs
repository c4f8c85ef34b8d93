//! Retries: only of errors that may pass, with pauses, until the retry timeout.
//!
//! Owns the pauses of all repeated attempts: each is twice as long as the one before, up to a bound, and varies a
//! little at random, so that the clients of a server that was away do not all return at the same time (KIP-580).

use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use riverrun_types::ErrorKind;

/// The fraction by which a pause varies.
const JITTER: f64 = 0.2;
/// Most doublings: any bound is reached by then.
const DOUBLINGS_MAX: u32 = 31;

/// The random variation of a pause, and its beginning. Partitions that failed together share one, and are retried
/// together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    factor: f64,
    drawn_at: Instant,
}

impl Chance {
    pub(crate) fn draw() -> Self {
        // Without randomness, the pause is the mean.
        let drawn = getrandom::u32().unwrap_or(u32::MAX / 2);
        let factor = 1.0 - JITTER + 2.0 * JITTER * f64::from(drawn) / f64::from(u32::MAX);
        Self { factor, drawn_at: Instant::now() }
    }

    /// When it was drawn: the pauses with it begin then.
    pub(crate) fn drawn_at(self) -> Instant {
        self.drawn_at
    }
}

/// The growth of pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// Between two attempts at the same request.
    pub(crate) fn of_retries(options: &ClusterOptions) -> Self {
        Self { first: options.retry_backoff, max: options.retry_backoff_max }
    }

    /// Between two connections to the same server.
    pub(crate) fn of_reconnects(options: &ClusterOptions) -> Self {
        Self { first: options.reconnect_backoff, max: options.reconnect_backoff_max }
    }

    /// The pause after one more failure than these. If the first pause is no shorter than the bound, all are the
    /// bound.
    pub(crate) fn pause(&self, failures_before: u32, chance: Chance) -> Duration {
        if self.first >= self.max {
            return self.max;
        }
        let doubled = self.first.saturating_mul(1 << failures_before.min(DOUBLINGS_MAX)).min(self.max);
        doubled.mul_f64(chance.factor).min(self.max)
    }
}

/// The pauses of one operation that is repeated until it succeeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    backoff: Backoff,
    failures: u32,
}

impl Pauses {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0 }
    }

    /// The pause after a failed attempt.
    pub(crate) fn fail(&mut self) -> Duration {
        let pause = self.backoff.pause(self.failures, Chance::draw());
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// The pause after a successful attempt: the next failure counts as the first again.
    pub(crate) fn succeed(&mut self) -> Duration {
        self.failures = 0;
        self.backoff.pause(0, Chance::draw())
    }
}

/// The time limit of one call for all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    /// `None` for a time beyond the clock's range.
    deadline: Option<Instant>,
    pauses: Pauses,
}

impl Retry {
    pub(crate) fn new(options: &ClusterOptions) -> Self {
        Self::within(options, options.retry_timeout)
    }

    /// For a caller with less time. With none, there is one attempt.
    pub(crate) fn within(options: &ClusterOptions, patience: Duration) -> Self {
        let deadline = Instant::now().checked_add(patience);
        Self { deadline, pauses: Pauses::new(Backoff::of_retries(options)) }
    }

    /// Pauses before another attempt, or returns the error if another is useless or too late.
    pub(crate) async fn pause_after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if error.kind() != ErrorKind::Retry {
            return Err(error);
        }
        self.pause_or_give_up(error).await
    }

    /// The same for an error that is usually not retriable, but is here.
    pub(crate) async fn pause_or_give_up(&mut self, error: ClientError) -> Result<(), ClientError> {
        if self.pause().await { Ok(()) } else { Err(error) }
    }

    /// Pauses before another attempt. False if there is no time for one.
    pub(crate) async fn pause(&mut self) -> bool {
        let pause = self.pauses.fail();
        if self.deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::ErrorCode;

    use super::*;

    fn backoff(first_ms: u64, max_ms: u64) -> Backoff {
        Backoff { first: Duration::from_millis(first_ms), max: Duration::from_millis(max_ms) }
    }

    #[test]
    fn pauses_double_with_a_fifth_of_chance_up_to_their_bound() {
        for (failures, mean_ms) in
            [(0, 100), (1, 200), (2, 400), (3, 800), (4, 1000), (40, 1000), (u32::MAX, 1000)]
        {
            let pauses: Vec<_> =
                (0..200).map(|_| backoff(100, 1000).pause(failures, Chance::draw())).collect();
            let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            let share = |tenths: u64| Duration::from_millis(mean_ms * tenths / 10);
            assert!(*least >= share(8) && *least < share(9), "after {failures}: {least:?}");
            let bound = share(12).min(Duration::from_secs(1));
            assert!(*most <= bound && *most > bound.mul_f64(0.9), "after {failures}: {most:?}");
        }
    }

    #[test]
    fn a_bound_below_the_first_pause_is_every_pause() {
        for failures in [0, 1, 9] {
            assert_eq!(backoff(500, 20).pause(failures, Chance::draw()), Duration::from_millis(20));
            assert_eq!(backoff(0, 1000).pause(failures, Chance::draw()), Duration::ZERO);
        }
    }

    #[test]
    fn success_resets_the_pauses() {
        let mut pauses = Pauses::new(backoff(100, 100_000));
        for _ in 0..5 {
            pauses.fail();
        }
        assert!(pauses.fail() > Duration::from_secs(2));
        assert!(pauses.succeed() < Duration::from_millis(130));
        assert!(pauses.fail() < Duration::from_millis(130));
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_come_ever_less_often_until_their_time_is_over() {
        let mut options = ClusterOptions::new("a:1");
        options.retry_timeout = Duration::from_secs(20);
        let mut retry = Retry::new(&options);
        let error = ClientError::Server { code: ErrorCode::NOT_COORDINATOR, message: None };
        let (mut attempts, begun) = (1, Instant::now());
        while retry.pause_after(error.clone()).await.is_ok() {
            attempts += 1;
        }
        // 1.5 s of growing pauses, and then one a second; with pauses of 100 ms it would be 200.
        assert!((20..=30).contains(&attempts), "{attempts}");
        assert!(begun.elapsed() > Duration::from_secs(18) && begun.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_that_no_clock_reaches_is_no_limit() {
        let mut retry = Retry::within(&ClusterOptions::new("a:1"), Duration::MAX);
        let error = ClientError::Server { code: ErrorCode::NOT_COORDINATOR, message: None };
        for attempt in 0..1000 {
            assert!(retry.pause_after(error.clone()).await.is_ok(), "attempt {attempt}");
        }
    }
}
