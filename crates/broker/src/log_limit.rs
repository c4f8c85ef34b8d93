//! Log lines that the outside can cause are rate-limited, so that an attacker cannot fill the disk with them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bad frames and bad requests.
pub(crate) static BAD_CLIENTS: LogLimit = LogLimit::new(Duration::from_secs(1));
/// Connections whose task panicked: whoever has found a request that does it sends it again.
pub(crate) static CONNECTION_PANICS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Connections above the bounds.
pub(crate) static REFUSED_CONNECTIONS: LogLimit = LogLimit::new(Duration::from_secs(1));
/// Connections that are closed to make room for others.
pub(crate) static DISPLACED_CONNECTIONS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Memory for responses that clients do not take, while others wait for it.
pub(crate) static RESPONSE_MEMORY: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Partitions that cannot be opened, read or appended to: each request that names one meets the trouble again. What
/// failed has a line of its own where it failed.
pub(crate) static STORAGE_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Metadata that cannot be changed: each request that would change it meets the trouble again.
pub(crate) static METADATA_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Partitions with which a job of the upkeep fails: a disk takes many of them with it, and the job comes again.
pub(crate) static UPKEEP_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Partitions of deleted topics whose files cannot be removed.
pub(crate) static REMOVAL_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Files of topics that the metadata does not know: each look over all partitions finds them again.
pub(crate) static UNKNOWN_TOPICS: LogLimit = LogLimit::new(Duration::from_hours(1));
/// Journals that cannot be settled: every cycle meets the trouble again.
pub(crate) static SETTLING_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(5), Duration::from_mins(1));
/// Partitions of group offsets that fail: a log dir takes many of them with it.
pub(crate) static GROUP_TROUBLE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(5), Duration::from_mins(1));
/// Requests that are refused because groups have taken all the memory that they may: clients try again and again.
pub(crate) static GROUP_MEMORY_SHORTAGE: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));

/// At most one line each `interval`, which doubles up to `interval_max` while the trouble goes on; says how many were
/// left out since the last.
#[derive(Debug)]
pub(crate) struct LogLimit {
    interval: Duration,
    interval_max: Duration,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    last: Option<Instant>,
    /// Until the next line.
    interval: Duration,
    suppressed: u64,
}

impl LogLimit {
    const fn new(interval: Duration) -> Self {
        Self::slowing_down(interval, interval)
    }

    const fn slowing_down(interval: Duration, interval_max: Duration) -> Self {
        let state = LimitState { last: None, interval, suppressed: 0 };
        Self { interval, interval_max, state: Mutex::new(state) }
    }

    /// Calls `line` with the number of lines left out, unless one was written a moment ago.
    pub(crate) fn warn(&self, line: impl FnOnce(u64)) {
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.last.is_some_and(|at| now.duration_since(at) < state.interval) {
            state.suppressed += 1;
            return;
        }
        let suppressed = std::mem::take(&mut state.suppressed);
        // What was quiet for so long begins anew.
        let is_recent = state.last.is_some_and(|at| now.duration_since(at) < 2 * state.interval);
        let goes_on = is_recent && suppressed > 0;
        state.interval = if goes_on { (state.interval * 2).min(self.interval_max) } else { self.interval };
        state.last = Some(now);
        drop(state);
        line(suppressed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_line_and_a_count() {
        let limit = LogLimit::new(Duration::from_secs(1));
        let mut lines = Vec::new();
        for _ in 0..100 {
            limit.warn(|suppressed| lines.push(suppressed));
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        limit.warn(|suppressed| lines.push(suppressed));
        assert_eq!(lines, [0, 99]);
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_that_goes_on_is_told_ever_more_rarely_and_new_trouble_at_once() {
        let limit = LogLimit::slowing_down(Duration::from_secs(1), Duration::from_secs(8));
        let (begun, mut at_s) = (Instant::now(), Vec::new());
        for _ in 0..400 {
            limit.warn(|_| at_s.push(begun.elapsed().as_secs()));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(at_s, [0, 1, 3, 7, 15, 23, 31, 39]);
        tokio::time::advance(Duration::from_secs(20)).await;
        at_s.clear();
        for _ in 0..25 {
            limit.warn(|_| at_s.push(begun.elapsed().as_secs()));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(at_s.len(), 2, "{at_s:?}");
    }
}
