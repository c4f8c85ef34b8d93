//! Problems that keep a consumer from its work while it retries.
//!
//! Pure, except for the clock. A polling application gets no errors that may pass; it can ask for them here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use riverrun_types::ErrorKind;
use tokio::time::Instant;

use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use crate::retry::{Backoff, Chance};

/// A failing operation that is retried.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// The error of the last attempt.
    pub error: ClientError,
    since: Instant,
}

impl Trouble {
    /// How long the operation has failed: since the beginning of the first failed attempt.
    pub fn lasts(&self) -> Duration {
        self.since.elapsed()
    }

    /// The one that has lasted longer.
    pub(super) fn older(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|trouble| trouble.since)
    }
}

/// Attempts at one operation until it succeeds.
///
/// Invariants: `begun` is when the first attempt after the last success began; `error` is how the last one ended;
/// `failures` counts the failed ones since then.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    begun: Option<Instant>,
    error: Option<ClientError>,
    failures: u32,
}

impl Attempts {
    /// An attempt begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.begun.get_or_insert(now);
    }

    /// An attempt has failed. Only an error that may pass is kept: others are returned at once.
    pub(super) fn fail(&mut self, error: &ClientError) {
        self.begin(Instant::now());
        self.failures = self.failures.saturating_add(1);
        if error.kind() == ErrorKind::Retry {
            self.error = Some(error.clone());
        }
    }

    /// No attempt is possible. The error of the last attempt stays.
    pub(super) fn fail_without(&mut self, error: impl FnOnce() -> ClientError) {
        if self.error.is_none() {
            self.fail(&error());
        }
    }

    /// The attempt succeeded without effect: it is repeated with growing pauses, but is no trouble.
    pub(super) fn work_in_vain(&mut self) {
        *self = Self { failures: self.failures.saturating_add(1), ..Self::default() };
    }

    /// True after one failure since the last success.
    pub(super) fn are_new(&self) -> bool {
        self.failures == 1
    }

    /// There is a new reason for the operation: the next pause is short. Earlier failures remain trouble.
    pub(super) fn begin_anew(&mut self) {
        self.failures = 0;
    }

    /// A part has succeeded. The next part has to succeed, too, before a pause is short again.
    pub(super) fn get_on(&mut self) {
        *self = Self { failures: self.failures, ..Self::default() };
    }

    /// The operation has succeeded.
    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// When the next attempt is due.
    pub(super) fn next_at(&self, options: &ClusterOptions, chance: Chance) -> Instant {
        let pause = Backoff::of_retries(options).pause(self.failures.saturating_sub(1), chance);
        chance.drawn_at() + pause
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        Some(Trouble { error: self.error.clone()?, since: self.begun? })
    }
}

/// The attempts of a task, which the consumer can read.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedAttempts(Arc<Mutex<Attempts>>);

impl SharedAttempts {
    pub(super) fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_protocol::ErrorCode;

    use super::*;

    fn error(code: ErrorCode) -> ClientError {
        ClientError::Server { code, message: None }
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_lasts_from_the_first_attempt_to_the_first_that_works() {
        let mut attempts = Attempts::default();
        attempts.begin(Instant::now());
        assert!(attempts.trouble().is_none(), "nothing has failed yet");
        for code in [ErrorCode::NOT_COORDINATOR, ErrorCode::REQUEST_TIMED_OUT] {
            tokio::time::advance(Duration::from_secs(1)).await;
            attempts.fail(&error(code));
            attempts.begin(Instant::now());
        }
        let trouble = attempts.trouble().expect("it fails");
        assert_eq!(trouble.lasts(), Duration::from_secs(2));
        assert_eq!(trouble.error.code(), Some(ErrorCode::REQUEST_TIMED_OUT));
        let mut newer = Attempts::default();
        newer.fail(&error(ErrorCode::NOT_COORDINATOR));
        let oldest = Trouble::older(newer.trouble(), attempts.trouble()).expect("one of them");
        assert_eq!(oldest.error.code(), Some(ErrorCode::REQUEST_TIMED_OUT));
        attempts.succeed();
        assert!(attempts.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_operation_is_retried_with_growing_pauses() {
        let options = ClusterOptions::new("a:1");
        let mut attempts = Attempts::default();
        for least_ms in [80, 160, 320, 640, 800, 800] {
            attempts.fail(&error(ErrorCode::NOT_COORDINATOR));
            let pause = attempts.next_at(&options, Chance::draw()) - Instant::now();
            assert!(pause >= Duration::from_millis(least_ms) && pause <= Duration::from_secs(1), "{pause:?}");
        }
        attempts.succeed();
        assert!(attempts.next_at(&options, Chance::draw()) - Instant::now() <= Duration::from_millis(120));
    }

    #[tokio::test(start_paused = true)]
    async fn operations_that_failed_together_share_a_pause() {
        let (options, chance) = (ClusterOptions::new("a:1"), Chance::draw());
        let (mut one, mut other) = (Attempts::default(), Attempts::default());
        one.fail(&error(ErrorCode::NOT_COORDINATOR));
        let at = one.next_at(&options, chance);
        tokio::time::advance(Duration::from_millis(7)).await;
        other.fail(&error(ErrorCode::NOT_COORDINATOR));
        assert_eq!(other.next_at(&options, chance), at);
    }

    #[tokio::test]
    async fn permanent_error_is_returned_and_no_trouble() {
        let mut attempts = Attempts::default();
        attempts.fail(&error(ErrorCode::INVALID_GROUP_ID));
        assert!(attempts.trouble().is_none());
    }
}
