//! What keeps a consumer from its work while it tries again by itself.
//!
//! Pure, but for the clock. A consumer that is polled hears nothing of errors that may pass; here it can ask for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use riverrun_types::ErrorKind;
use tokio::time::Instant;

use crate::cluster::ClusterOptions;
use crate::error::ClientError;
use crate::retry::{Backoff, Chance};

/// Something that has failed and is tried again.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// How the last attempt ended.
    pub error: ClientError,
    since: Instant,
}

impl Trouble {
    /// How long it has not worked: since the first attempt began that did not.
    pub fn lasts(&self) -> Duration {
        self.since.elapsed()
    }

    /// The one that has lasted longer.
    pub(super) fn older(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|trouble| trouble.since)
    }
}

/// One thing that is tried until it works.
///
/// Invariants: `begun` is when the first attempt began since it worked; `error` is how the last one ended; `failures` is
/// how many have failed since then.
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

    /// One has failed. Only what may pass is kept: the rest is told at once.
    pub(super) fn fail(&mut self, error: &ClientError) {
        self.begin(Instant::now());
        self.failures = self.failures.saturating_add(1);
        if error.kind() == ErrorKind::Retry {
            self.error = Some(error.clone());
        }
    }

    /// It cannot even be tried. What the last attempt has ended with stays.
    pub(super) fn fail_without(&mut self, error: impl FnOnce() -> ClientError) {
        if self.error.is_none() {
            self.fail(&error());
        }
    }

    /// It works, but does not help: tried ever less often all the same. That is no trouble by itself.
    pub(super) fn work_in_vain(&mut self) {
        *self = Self { failures: self.failures.saturating_add(1), ..Self::default() };
    }

    /// Whether only one has failed since it worked.
    pub(super) fn are_new(&self) -> bool {
        self.failures == 1
    }

    /// There is something else to try it for: the next pause is short. What has failed is no less trouble for that.
    pub(super) fn begin_anew(&mut self) {
        self.failures = 0;
    }

    /// It works so far. What comes next has to work, too, before a pause is short again.
    pub(super) fn get_on(&mut self) {
        *self = Self { failures: self.failures, ..Self::default() };
    }

    /// It works.
    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// When to try again.
    pub(super) fn next_at(&self, options: &ClusterOptions, chance: Chance) -> Instant {
        let pause = Backoff::of_retries(options).pause(self.failures.saturating_sub(1), chance);
        chance.drawn_at() + pause
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        Some(Trouble { error: self.error.clone()?, since: self.begun? })
    }
}

/// The attempts of a task, which the consumer can look at.
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
    async fn what_keeps_failing_is_tried_ever_less_often_until_it_works() {
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
    async fn what_has_failed_together_is_tried_together_again() {
        let (options, chance) = (ClusterOptions::new("a:1"), Chance::draw());
        let (mut one, mut other) = (Attempts::default(), Attempts::default());
        one.fail(&error(ErrorCode::NOT_COORDINATOR));
        let at = one.next_at(&options, chance);
        tokio::time::advance(Duration::from_millis(7)).await;
        other.fail(&error(ErrorCode::NOT_COORDINATOR));
        assert_eq!(other.next_at(&options, chance), at);
    }

    #[tokio::test]
    async fn what_does_not_pass_is_not_trouble_but_an_error() {
        let mut attempts = Attempts::default();
        attempts.fail(&error(ErrorCode::INVALID_GROUP_ID));
        assert!(attempts.trouble().is_none());
    }
}
