//! Log lines that the outside can cause are rate-limited by kind and source, so that an attacker can neither fill the disk
//! with them nor keep those about others away.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bad frames and bad requests.
pub(crate) static BAD_CLIENTS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Connections whose task panicked: a client that has found a request that does it sends it again.
pub(crate) static CONNECTION_PANICS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Connections above the bounds.
pub(crate) static REFUSED_CONNECTIONS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Connections that are closed to make room for others.
pub(crate) static DISPLACED_CONNECTIONS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Connections to the admin port that have to go.
pub(crate) static ADMIN_VISITS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Records for the server's own topics: a producer that is refused tries again.
pub(crate) static INTERNAL_WRITES: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Topics that a client has named and that are not made yet: it asks again and again.
pub(crate) static AUTO_CREATIONS: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Memory for responses that clients do not take, while others wait for it.
pub(crate) static RESPONSE_MEMORY: LogLimit =
    LogLimit::slowing_down(Duration::from_secs(1), Duration::from_mins(1));
/// Partitions that cannot be opened, read or appended to: each request that names one meets the trouble again. The failure
/// itself has a line of its own.
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

/// Changes that clients have made, one line for each request. A tool that makes topics one by one is logged in full, and
/// a million of them are a few lines a minute.
pub(crate) static CHANGES: [LogLimit; Change::COUNT] =
    [const { LogLimit::in_bursts(20, Duration::from_secs(10)) }; Change::COUNT];

/// A change that a client has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    TopicsCreated,
    TopicsDeleted,
    PartitionsAdded,
    ConfigsAltered,
    GroupsCreated,
    GroupsDeleted,
    GroupsExpired,
    GroupsEmptied,
    GroupProtocol,
}

impl Change {
    const COUNT: usize = 9;

    /// The limit of this kind: each kind has its own, so that none silences another.
    pub(crate) fn limit(self) -> &'static LogLimit {
        &CHANGES[self as usize]
    }
}

/// Sources that a kind remembers. Those beyond share one share: an attacker with many addresses gets no more lines for
/// them.
const SOURCES_MAX: usize = 64;

/// A number of lines each `interval`, for each source of them. The interval doubles up to `interval_max` while the trouble
/// goes on; a line says how many were left out since the last.
///
/// Invariants: at most [`SOURCES_MAX`] sources are remembered; no line is written while a lock is held.
#[derive(Debug)]
pub(crate) struct LogLimit {
    lines: u32,
    interval: Duration,
    interval_max: Duration,
    /// State of lines without a source, and of sources beyond the bound.
    shared: Mutex<LimitState>,
    sources: Mutex<BTreeMap<IpAddr, LimitState>>,
}

#[derive(Debug)]
struct LimitState {
    /// Begin of the current interval.
    begun: Option<Instant>,
    interval: Duration,
    /// Lines that may still be written in it.
    left: u32,
    suppressed: u64,
}

impl LimitState {
    const fn new() -> Self {
        Self { begun: None, interval: Duration::ZERO, left: 0, suppressed: 0 }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.begun.is_none_or(|begun| now.duration_since(begun) >= self.interval)
    }

    /// The number of lines left out, if one may be written.
    fn admit(&mut self, limit: &LogLimit, now: Instant) -> Option<u64> {
        if !self.is_over(now) {
            let Some(left) = self.left.checked_sub(1) else {
                self.suppressed += 1;
                return None;
            };
            self.left = left;
            return Some(0);
        }
        let suppressed = std::mem::take(&mut self.suppressed);
        // After so long a silence the interval begins anew.
        let is_recent = self.begun.is_some_and(|begun| now.duration_since(begun) < 2 * self.interval);
        let goes_on = is_recent && suppressed > 0;
        self.interval = if goes_on { (self.interval * 2).min(limit.interval_max) } else { limit.interval };
        self.begun = Some(now);
        self.left = limit.lines - 1;
        Some(suppressed)
    }
}

impl LogLimit {
    const fn new(interval: Duration) -> Self {
        Self::slowing_down(interval, interval)
    }

    const fn slowing_down(interval: Duration, interval_max: Duration) -> Self {
        Self::of(1, interval, interval_max)
    }

    const fn in_bursts(lines: u32, interval: Duration) -> Self {
        Self::of(lines, interval, interval)
    }

    const fn of(lines: u32, interval: Duration, interval_max: Duration) -> Self {
        Self {
            lines,
            interval,
            interval_max,
            shared: Mutex::new(LimitState::new()),
            sources: Mutex::new(BTreeMap::new()),
        }
    }

    /// Calls `line` with the number of lines left out, unless one was written a moment ago.
    pub(crate) fn warn(&self, line: impl FnOnce(u64)) {
        let admitted = self.shared.lock().admit(self, Instant::now());
        if let Some(suppressed) = admitted {
            line(suppressed);
        }
    }

    /// The same for lines that this address causes.
    pub(crate) fn warn_of(&self, source: IpAddr, line: impl FnOnce(u64)) {
        if let Some(suppressed) = self.admit_of(network(source), Instant::now()) {
            line(suppressed);
        }
    }

    fn admit_of(&self, source: IpAddr, now: Instant) -> Option<u64> {
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            // A source that left out no line and may write again needs no memory.
            sources.retain(|_, state| state.suppressed > 0 || !state.is_over(now));
            if sources.len() >= SOURCES_MAX {
                drop(sources);
                return self.shared.lock().admit(self, now);
            }
        }
        sources.entry(source).or_insert_with(LimitState::new).admit(self, now)
    }
}

/// The address, of IPv6 its first 64 bits: one subscriber has the other 64.
fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
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
    async fn lasting_trouble_is_logged_ever_less_and_new_one_at_once() {
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

    #[tokio::test(start_paused = true)]
    async fn a_source_that_floods_leaves_others_their_lines() {
        let limit = LogLimit::new(Duration::from_secs(1));
        let source = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut lines = Vec::new();
        for _ in 0..100 {
            limit.warn_of(source(1), |suppressed| lines.push((1, suppressed)));
        }
        limit.warn_of(source(2), |suppressed| lines.push((2, suppressed)));
        tokio::time::advance(Duration::from_secs(1)).await;
        limit.warn_of(source(1), |suppressed| lines.push((1, suppressed)));
        assert_eq!(lines, [(1, 0), (2, 0), (1, 99)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_sources_have_the_lines_and_the_memory_of_a_few() {
        let limit = LogLimit::new(Duration::from_secs(1));
        let mut lines = 0;
        for index in 0..1000_u32 {
            limit.warn_of(IpAddr::from(index.to_be_bytes()), |_| lines += 1);
        }
        assert_eq!(lines, SOURCES_MAX + 1);
        // A thousand addresses of one /64 are one source.
        let other = LogLimit::new(Duration::from_secs(1));
        for index in 0..1000_u16 {
            other.warn_of(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, index]), |_| lines += 1);
        }
        assert_eq!(lines, SOURCES_MAX + 2);
        // Sources whose interval is over make room.
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut is_told = false;
        limit.warn_of(IpAddr::from([255; 4]), |_| is_told = true);
        assert!(is_told && limit.sources.lock().len() <= SOURCES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_told_in_full_up_to_its_bound() {
        let limit = LogLimit::in_bursts(20, Duration::from_secs(10));
        let mut lines = Vec::new();
        for _ in 0..1000 {
            limit.warn(|suppressed| lines.push(suppressed));
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        limit.warn(|suppressed| lines.push(suppressed));
        assert_eq!((lines.len(), lines.last()), (21, Some(&980)));
    }
}
