//! Log lines that the outside can cause are rate-limited, so that an attacker cannot fill the disk with them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bad frames and bad requests.
pub(crate) static BAD_CLIENTS: LogLimit = LogLimit::new(Duration::from_secs(1));
/// Connections above the bounds.
pub(crate) static REFUSED_CONNECTIONS: LogLimit = LogLimit::new(Duration::from_secs(1));
/// Partitions that cannot be opened, read or appended to: each request that names one meets the trouble again.
pub(crate) static STORAGE_TROUBLE: LogLimit = LogLimit::new(Duration::from_secs(1));
/// Files of topics that the metadata does not know: each look over all partitions finds them again.
pub(crate) static UNKNOWN_TOPICS: LogLimit = LogLimit::new(Duration::from_hours(1));
/// Journals that cannot be settled: every cycle meets the trouble again.
pub(crate) static SETTLING_TROUBLE: LogLimit = LogLimit::new(Duration::from_secs(5));

/// At most one line each `interval`; says how many were left out since the last.
#[derive(Debug)]
pub(crate) struct LogLimit {
    interval: Duration,
    last: Mutex<Option<Instant>>,
    suppressed: AtomicU64,
}

impl LogLimit {
    const fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::new(None), suppressed: AtomicU64::new(0) }
    }

    /// Calls `line` with the number of lines left out, unless one was written a moment ago.
    pub(crate) fn warn(&self, line: impl FnOnce(u64)) {
        let mut last = self.last.lock();
        let now = Instant::now();
        if last.is_some_and(|at| now.duration_since(at) < self.interval) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        *last = Some(now);
        drop(last);
        line(self.suppressed.swap(0, Ordering::Relaxed));
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
}
