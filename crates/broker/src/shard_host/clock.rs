//! The clocks as machines are fed them: [`riverrun_coordinator::Now`] says which is for what.

use riverrun_coordinator::{Moment, Now};
use riverrun_env::Clock;

/// All clocks, read now.
pub(super) fn now(clock: &dyn Clock) -> Now {
    let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Now { moment: Moment(ms(clock.monotonic())), passed_ms: ms(clock.boot()), wall: clock.wall() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use riverrun_env::sim::SimClock;
    use riverrun_types::TimestampMs;

    use super::*;

    #[test]
    fn each_clock_is_fed_as_it_shows_now() {
        let clock = SimClock::new();
        clock.advance(Duration::from_secs(2));
        clock.suspend(Duration::from_secs(5));
        clock.set_wall(TimestampMs(9));
        assert_eq!(now(&clock), Now { moment: Moment(2_000), passed_ms: 7_000, wall: TimestampMs(9) });
    }
}
