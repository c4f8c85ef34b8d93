//! Whether the application still polls. A member whose application does not poll has to leave its group, even if its
//! task is healthy: its partitions would not be read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Debug)]
struct State {
    /// Since when no poll is in progress; `None` while one is.
    silent_since: Option<Instant>,
    /// True if it was silent for too long, and has not polled since.
    expired: bool,
}

/// Times of the consumer's polls.
#[derive(Debug)]
pub(super) struct PollWatch {
    state: Mutex<State>,
    resumed: Notify,
}

impl PollWatch {
    pub(super) fn new() -> Self {
        let state = State { silent_since: Some(Instant::now()), expired: false };
        Self { state: Mutex::new(state), resumed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a poll, which ends when the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Polling {
        let mut state = self.lock();
        state.silent_since = None;
        if std::mem::take(&mut state.expired) {
            self.resumed.notify_one();
        }
        drop(state);
        Polling(Arc::clone(self))
    }

    /// Returns when there was no poll for this long.
    pub(super) async fn silence(&self, limit: Duration) {
        loop {
            let now = Instant::now();
            let at = {
                let mut state = self.lock();
                let at = state.silent_since.unwrap_or(now) + limit;
                state.expired = at <= now;
                at
            };
            if at <= now {
                return;
            }
            sleep_until(at).await;
        }
    }

    /// Returns when a poll follows a silence.
    pub(super) async fn resumed(&self) {
        while self.lock().expired {
            self.resumed.notified().await;
        }
    }
}

/// A poll that is in progress.
#[derive(Debug)]
pub(in crate::consumer) struct Polling(Arc<PollWatch>);

impl Drop for Polling {
    fn drop(&mut self) {
        self.0.lock().silent_since = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn silence_counts_from_the_end_of_the_last_poll() {
        let watch = Arc::new(PollWatch::new());
        let begun = Instant::now();
        let polling = watch.begin();
        assert!(tokio::time::timeout(LIMIT * 5, watch.silence(LIMIT)).await.is_err(), "it polls");
        drop(polling);
        watch.silence(LIMIT).await;
        assert_eq!(begun.elapsed(), LIMIT * 6);
        assert!(tokio::time::timeout(LIMIT, watch.resumed()).await.is_err(), "no poll comes");
        drop(watch.begin());
        watch.resumed().await;
        drop(watch.begin());
        assert!(tokio::time::timeout(LIMIT / 2, watch.silence(LIMIT)).await.is_err());
    }
}
