//! The allowance of topics that are made because requests name them.
//!
//! A topic that is made by name costs its sender a few bytes, and the server memory for ever. So each source has an
//! allowance that refills, and so has the server: a service that starts gets all of its topics at once, and a loop over
//! made-up names gets few. A name beyond it is answered so that its client asks again. `CreateTopics` is not counted:
//! it names topics in order to make them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::flow::source::Source;

/// Topics that a source may have made at once: as many as one service uses.
const SOURCE_BURST: u32 = 1_000;
/// How many more it may have made each second.
const SOURCE_PER_SECOND: u32 = 50;
/// Topics that all sources may have made at once: as many as one `CreateTopics` makes.
const SERVER_BURST: u32 = 10_000;
/// How many more all of them may have made each second.
const SERVER_PER_SECOND: u32 = 500;
/// Sources that are remembered. Those beyond share one allowance.
const SOURCES_MAX: usize = 1_000;

/// Invariants: at most [`SOURCES_MAX`] sources are remembered, none of them with a full allowance for long once others
/// come.
#[derive(Debug)]
pub(crate) struct AutoCreations {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    server: Allowance,
    sources: BTreeMap<Source, Allowance>,
    others: Allowance,
}

/// Invariants: `left` is at most `burst`.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    burst: u32,
    per_second: u32,
    left: u32,
    refilled_at: Duration,
}

impl Allowance {
    fn full(burst: u32, per_second: u32, now: Duration) -> Self {
        Self { burst, per_second, left: burst, refilled_at: now }
    }

    fn of_source(now: Duration) -> Self {
        Self::full(SOURCE_BURST, SOURCE_PER_SECOND, now)
    }

    fn refill(&mut self, now: Duration) {
        let each = Duration::from_secs(1) / self.per_second;
        let passed = now.saturating_sub(self.refilled_at);
        let more = u32::try_from(passed.as_nanos() / each.as_nanos()).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(self.burst);
        // The part of the next one that has passed is left to grow.
        self.refilled_at = self.refilled_at.saturating_add(each.saturating_mul(more));
    }
}

impl AutoCreations {
    pub(crate) fn new(now: Duration) -> Self {
        let server = Allowance::full(SERVER_BURST, SERVER_PER_SECOND, now);
        let state = State { server, sources: BTreeMap::new(), others: Allowance::of_source(now) };
        Self { state: Mutex::new(state) }
    }

    /// How many of `wanted` topics may be made for a source at `now`, by monotonic time. They count as made.
    pub(crate) fn take(&self, source: Source, wanted: usize, now: Duration) -> usize {
        let mut state = self.state.lock();
        let State { server, sources, others } = &mut *state;
        server.refill(now);
        if sources.len() >= SOURCES_MAX && !sources.contains_key(&source) {
            sources.retain(|_, allowance| {
                allowance.refill(now);
                allowance.left < allowance.burst
            });
        }
        let own = if sources.len() < SOURCES_MAX || sources.contains_key(&source) {
            sources.entry(source).or_insert_with(|| Allowance::of_source(now))
        } else {
            others
        };
        own.refill(now);
        let granted = u32::try_from(wanted).unwrap_or(u32::MAX).min(own.left).min(server.left);
        own.left -= granted;
        server.left -= granted;
        granted as usize
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn source(number: u32) -> Source {
        Source::of(Ipv4Addr::from_bits(0x7f00_0000 + number).into())
    }

    #[test]
    fn a_source_has_a_burst_and_then_a_rate() {
        let creations = AutoCreations::new(Duration::ZERO);
        let take = |number, wanted, ms| creations.take(source(number), wanted, Duration::from_millis(ms));
        assert_eq!(take(1, 999_000, 0), 1_000);
        assert_eq!(take(1, 1, 10), 0);
        assert_eq!(take(2, 600, 10), 600, "another one has its own");
        assert_eq!(take(1, 100, 1_010), 50);
        assert_eq!(take(1, 10_000, 3_600_000), 1_000, "no more than the burst is saved");
    }

    #[test]
    fn slow_refill_of_the_allowance_adds_up_over_many_takes() {
        let creations = AutoCreations::new(Duration::ZERO);
        creations.take(source(1), 1_000, Duration::ZERO);
        let taken: usize =
            (1..=1_000).map(|ms| creations.take(source(1), 1, Duration::from_millis(ms))).sum();
        assert_eq!(taken, 50);
    }

    #[test]
    fn many_sources_share_what_the_server_has() {
        let creations = AutoCreations::new(Duration::ZERO);
        let taken: usize =
            (0..5_000).map(|number| creations.take(source(number), 1_000, Duration::ZERO)).sum();
        assert_eq!(taken, 10_000);
        assert!(creations.state.lock().sources.len() <= SOURCES_MAX);
    }
}
