//! How long a shard rests after its log has failed: longer each time, up to a bound, until the log takes records again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The first rest. Loading reads all of the log, and a full disk does not get better at once.
pub(super) const REST: Duration = Duration::from_secs(1);
/// How often the rest doubles: what is broken until a restart is looked at every eight seconds.
const DOUBLINGS_MAX: u32 = 3;

/// The consequences of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) lasts: Duration,
    /// Whether it is the first since the log took records: the others are the same trouble.
    pub(super) is_first: bool,
}

/// The failures of one shard's log in a row.
#[derive(Debug, Default)]
pub(super) struct Failures(AtomicU32);

impl Failures {
    /// Counts one.
    pub(super) fn count(&self) -> Rest {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        Rest { lasts: REST * (1 << before.min(DOUBLINGS_MAX)), is_first: before == 0 }
    }

    /// The log has taken records. Returns whether it had failed before.
    pub(super) fn end(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_up_to_a_bound_and_the_first_failure_is_known() {
        let failures = Failures::default();
        let rests: Vec<Rest> = (0..6).map(|_| failures.count()).collect();
        let seconds: Vec<u64> = rests.iter().map(|rest| rest.lasts.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 8, 8]);
        assert_eq!(rests.iter().filter(|rest| rest.is_first).count(), 1);
        assert!(failures.end() && !failures.end());
        assert_eq!(failures.count(), rests[0]);
    }
}
