//! Owns how often the log is told that links do not come about: members try again many times a second.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Clock;

use crate::types::VoterId;

/// Time between two lines about links that are not let in.
const STRANGERS_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two lines about one member.
const MEMBER_INTERVAL: Duration = Duration::from_secs(1);

/// Lines about links that are not let in: one in a while, whoever makes them.
pub(crate) struct Strangers {
    clock: Arc<dyn Clock>,
    state: Mutex<StrangersState>,
}

#[derive(Default)]
struct StrangersState {
    last: Option<Duration>,
    left_out: u64,
}

impl Strangers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Warns that a link from there has ended, unless a line of the kind was written a moment ago.
    pub(crate) fn warn(&self, source: &str, reason: &dyn fmt::Display) {
        if let Some(left_out) = self.admit() {
            tracing::warn!(left_out, "a link from {source} was let go: {reason}");
        }
    }

    /// The number of lines left out before this one; `None` if it is left out, too.
    fn admit(&self) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_sub(last) < STRANGERS_INTERVAL) {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

/// Lines about members that do not take this one's messages: one whenever that, or the reason, changes.
pub(crate) struct Refusals {
    clock: Arc<dyn Clock>,
    told: Mutex<BTreeMap<VoterId, Told>>,
}

/// The log's knowledge of a member.
struct Told {
    at: Duration,
    reason: Option<String>,
}

impl Refusals {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, told: Mutex::default() }
    }

    /// A member refuses this one, or this one refuses it.
    pub(crate) fn refused(&self, member: VoterId, address: &str, reason: &str) {
        if self.is_new(member, Some(reason)) {
            tracing::warn!("member {member} at {address} does not take messages of this one: {reason}");
        }
    }

    /// A member has taken a message.
    pub(crate) fn taken(&self, member: VoterId, address: &str) {
        if self.is_new(member, None) {
            tracing::info!("member {member} at {address} takes messages of this one again");
        }
    }

    fn is_new(&self, member: VoterId, reason: Option<&str>) -> bool {
        let now = self.clock.monotonic();
        let mut told = self.told.lock();
        let is_new = match told.get(&member) {
            None => reason.is_some(),
            Some(last) => last.reason.as_deref() != reason && now.saturating_sub(last.at) >= MEMBER_INTERVAL,
        };
        if is_new {
            told.insert(member, Told { at: now, reason: reason.map(str::to_owned) });
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimClock;

    use super::*;

    const MEMBER: VoterId = VoterId { node: 1, life: 1 };
    const OTHER: VoterId = VoterId { node: 2, life: 1 };

    #[test]
    fn a_flood_of_strangers_is_one_line_and_a_count() {
        let clock = Arc::new(SimClock::new());
        let strangers = Strangers::new(clock.clone());
        let lines: Vec<_> = (0..100).filter_map(|_| strangers.admit()).collect();
        clock.advance(STRANGERS_INTERVAL);
        assert_eq!((lines, strangers.admit()), (vec![0], Some(99)));
    }

    #[test]
    fn a_refusal_is_told_once_until_it_changes() {
        let clock = Arc::new(SimClock::new());
        let refusals = Refusals::new(clock.clone());
        let reasons = [None, None, Some("a"), Some("a"), Some("b"), Some("b"), None, None, Some("b")];
        let told = reasons.map(|reason| {
            clock.advance(MEMBER_INTERVAL);
            refusals.is_new(MEMBER, reason)
        });
        assert_eq!(told, [false, false, true, false, true, false, true, false, true]);
        assert!(refusals.is_new(OTHER, Some("b")), "each member has its own");
    }

    #[test]
    fn a_refusal_that_comes_and_goes_is_not_told_each_time() {
        let clock = Arc::new(SimClock::new());
        let refusals = Refusals::new(clock.clone());
        let lines = (0..200).filter(|at| {
            clock.advance(Duration::from_millis(50));
            refusals.is_new(MEMBER, (at % 2 == 0).then_some("a"))
        });
        assert!((2..=11).contains(&lines.count()), "ten seconds have passed");
    }
}
