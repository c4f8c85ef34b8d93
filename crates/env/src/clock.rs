//! The clocks as the server sees them: wall time for users and for comparison with another run, monotonic time for
//! measuring and for deadlines, boot time for ages.

use std::time::Duration;

use riverrun_types::TimestampMs;

/// Three clocks. Wall time may jump in either direction; the other two never go back.
///
/// Which clock to use:
///
/// - a deadline goes by monotonic time: it does not pass while the machine sleeps and can receive nothing;
/// - an age within this run goes by boot time;
/// - a time that is written down and compared with another run's is wall time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn wall(&self) -> TimestampMs;

    /// Time since a fixed point of this process, without the time in which the machine slept.
    fn monotonic(&self) -> Duration;

    /// Time since a fixed point, the machine's sleep included. A clock that knows of no sleep returns monotonic time.
    fn boot(&self) -> Duration {
        self.monotonic()
    }

    /// Blocks the calling thread for `time`. A thread mostly waits for another thread, in simulated worlds too: so
    /// the machine's time passes, and a clock that stands still does not move by it.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A wall clock that never runs ahead of the time that has passed since it was made. It is for expiry, where it is
/// compared with wall time that was written down: setting the clock forward makes nothing old at once. Set back, it
/// equals the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct PatientWall {
    wall: TimestampMs,
    boot: Duration,
}

impl PatientWall {
    /// Begins now.
    pub fn new(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), boot: clock.boot() }
    }

    /// The time now.
    pub fn now(&self, clock: &dyn Clock) -> TimestampMs {
        let passed = clock.boot().saturating_sub(self.boot);
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        clock.wall().min(TimestampMs(self.wall.0.saturating_add(passed_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimClock;

    #[test]
    fn a_patient_wall_clock_never_hurries() {
        let clock = SimClock::new();
        let (start, patient) = (clock.wall(), PatientWall::new(&clock));
        clock.advance(Duration::from_secs(1));
        clock.suspend(Duration::from_secs(2));
        assert_eq!(patient.now(&clock), TimestampMs(start.0 + 3_000));
        clock.set_wall(TimestampMs(start.0 + 1_000_000_000));
        assert_eq!(patient.now(&clock), TimestampMs(start.0 + 3_000));
        clock.set_wall(TimestampMs(7));
        assert_eq!(patient.now(&clock), TimestampMs(7));
    }
}
