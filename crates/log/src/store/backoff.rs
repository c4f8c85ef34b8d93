//! The time of the next attempt at work that costs too much for each cycle.

use std::time::Duration;

use riverrun_types::ErrorKind;

use crate::error::LogError;

/// After the first attempt that fails, none is made for so long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// The time of the next attempt. If another thing than room is missing, such as the right to open a file, or a readable
/// sector, the pause doubles with each attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// No attempt is made before, by monotonic time.
    not_before: Duration,
    /// The pause after the next failed attempt.
    pause: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { not_before: Duration::ZERO, pause: PAUSE_MIN }
    }
}

impl Backoff {
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    pub(super) fn after_failure(self, error: &LogError, now: Duration) -> Self {
        let (pause, next) = match error.kind() {
            ErrorKind::Retry => (PAUSE_MIN, PAUSE_MIN),
            _ => (self.pause, (self.pause * 2).min(PAUSE_MAX)),
        };
        Self { not_before: now.saturating_add(pause), pause: next }
    }
}
