//! The time that shards are fed.
//!
//! Guarantees that it passes as time does: a wall clock that is set forward would end every session and expire every
//! offset at once, and one that is set back would keep the dead alive. It begins at the wall clock's time, so that
//! what is stored with a group is a date.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use riverrun_env::Clock;
use riverrun_types::TimestampMs;

/// Wall time at the server's start, and what has passed since by the monotonic clock.
pub(super) struct GroupClock {
    clock: Arc<dyn Clock>,
    wall_at_start: TimestampMs,
    monotonic_at_start: Duration,
}

impl GroupClock {
    /// Begins now.
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self { wall_at_start: clock.wall(), monotonic_at_start: clock.monotonic(), clock: Arc::clone(clock) }
    }

    /// The time for groups.
    pub(super) fn now(&self) -> TimestampMs {
        let passed = self.clock.monotonic().saturating_sub(self.monotonic_at_start);
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        TimestampMs(self.wall_at_start.0.saturating_add(passed_ms))
    }
}

impl fmt::Debug for GroupClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupClock").field("wall_at_start", &self.wall_at_start).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimClock;

    use super::*;

    #[test]
    fn time_passes_but_does_not_jump_with_the_wall_clock() {
        let sim = Arc::new(SimClock::new());
        sim.advance(Duration::from_secs(7));
        let start = sim.wall();
        let clock = GroupClock::new(&(Arc::clone(&sim) as Arc<dyn Clock>));
        assert_eq!(clock.now(), start);
        sim.advance(Duration::from_secs(2));
        sim.set_wall(TimestampMs(start.0 + 1_000_000_000));
        assert_eq!(clock.now(), TimestampMs(start.0 + 2_000));
        sim.set_wall(TimestampMs(0));
        sim.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), TimestampMs(start.0 + 3_000));
    }
}
