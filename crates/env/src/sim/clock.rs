//! A clock that stands still until a test moves it.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use riverrun_types::TimestampMs;

use crate::Clock;

/// Wall time at which a simulated world begins: a round number in 2023, far from zero, so that arithmetic that mixes
/// durations and instants shows.
const START_MS: i64 = 1_700_000_000_000;

/// A simulated clock.
#[derive(Debug)]
pub struct SimClock {
    state: Mutex<State>,
    /// Notified when the clock is moved forward.
    moved: Condvar,
}

#[derive(Clone, Debug)]
struct State {
    wall_ms: i64,
    monotonic: Duration,
    asleep: Duration,
}

impl SimClock {
    /// A clock at the start of a simulated world.
    pub fn new() -> Self {
        Self::at(State { wall_ms: START_MS, monotonic: Duration::ZERO, asleep: Duration::ZERO })
    }

    fn at(state: State) -> Self {
        Self { state: Mutex::new(state), moved: Condvar::new() }
    }

    /// Another clock that shows the same.
    pub(super) fn fork(&self) -> Self {
        Self::at(self.state.lock().clone())
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.wall_ms += i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        state.monotonic += by;
        self.moved.notify_all();
    }

    /// Lets the machine sleep for `time`: wall time and boot time go on.
    pub fn suspend(&self, time: Duration) {
        let mut state = self.state.lock();
        state.wall_ms += i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        state.asleep += time;
    }

    /// Sets the wall clock alone, as an administrator would.
    pub fn set_wall(&self, wall: TimestampMs) {
        self.state.lock().wall_ms = wall.0;
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimClock {
    fn wall(&self) -> TimestampMs {
        TimestampMs(self.state.lock().wall_ms)
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().monotonic
    }

    fn boot(&self) -> Duration {
        let state = self.state.lock();
        state.monotonic + state.asleep
    }

    /// Ends as soon as a test has moved the clock that far, and otherwise by the machine's time.
    fn sleep(&self, time: Duration) {
        let mut state = self.state.lock();
        let until = state.monotonic.saturating_add(time);
        self.moved.wait_while_for(&mut state, |state| state.monotonic < until, time);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::RealClock;

    #[test]
    fn the_wall_clock_can_jump_while_the_monotonic_clock_cannot() {
        let clock = SimClock::new();
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.wall(), TimestampMs(START_MS + 2_000));
        clock.set_wall(TimestampMs(7));
        assert_eq!(clock.wall(), TimestampMs(7));
        assert_eq!(clock.monotonic(), Duration::from_secs(2));
    }

    #[test]
    fn sleep_ends_by_machine_time_and_does_not_move_the_clock() {
        let (clock, real) = (SimClock::new(), RealClock::new());
        clock.sleep(Duration::from_millis(5));
        assert!(real.monotonic() >= Duration::from_millis(5));
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }

    #[test]
    fn a_sleep_ends_once_the_clock_is_moved_so_far() {
        let clock = SimClock::new();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| clock.sleep(Duration::from_hours(1)));
            // Until it sleeps a move does not count.
            while !sleeper.is_finished() {
                clock.advance(Duration::from_mins(30));
                thread::yield_now();
            }
        });
        assert!(clock.monotonic() >= Duration::from_hours(1));
    }

    #[test]
    fn monotonic_time_alone_stands_still_while_the_machine_sleeps() {
        let clock = SimClock::new();
        clock.suspend(Duration::from_secs(3));
        assert_eq!((clock.monotonic(), clock.boot()), (Duration::ZERO, Duration::from_secs(3)));
        assert_eq!(clock.wall(), TimestampMs(START_MS + 3_000));
    }
}
