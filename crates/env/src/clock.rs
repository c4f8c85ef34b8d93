//! The clocks as the server sees them: wall time for what users read and what another run reads, monotonic time for what
//! is measured and what waits, boot time for what becomes old.

use std::time::Duration;

use riverrun_types::TimestampMs;

/// Three clocks. Wall time may jump in either direction; the other two never go back.
///
/// A deadline goes by monotonic time: it does not end while the machine sleeps, since nobody can be heard then. How old a
/// thing of this run is goes by boot time. What is written down and compared with another run's is wall time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC.
    fn wall(&self) -> TimestampMs;

    /// Time since some fixed point of this process in which the machine was awake.
    fn monotonic(&self) -> Duration;

    /// Time since some fixed point, the machine's sleep among it. A clock that knows of no sleep has monotonic time for it.
    fn boot(&self) -> Duration {
        self.monotonic()
    }

    /// Has the calling thread wait for so long. What it waits for is mostly done by another thread, in simulated worlds too: so
    /// it is the machine's time that passes, and a clock that stands still does not move by it.
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A wall clock that never runs ahead of the time that has passed since it was made: for what expires, and is compared with
/// wall time that was written down. Set forward, it makes nothing old at once; set back, it is the wall clock.
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

    /// The time by now.
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
