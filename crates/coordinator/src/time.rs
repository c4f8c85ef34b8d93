//! The times that the host passes to a shard, and the use of each.
//!
//! | used for | type | reason |
//! |---|---|---|
//! | sessions, rebalances, intervals, sweeps | [`Moment`] | setting a wall clock must end no session, and no heartbeat can be received while the machine sleeps |
//! | when an offset was committed, when a group became empty, when a target was made | [`Stamp`] | it is written down and read by another run, and compared in this one |
//!
//! Guarantees that nothing expires because a wall clock was set, in either direction, as far as one run can know. An
//! event of this run is as old as the time that has passed since. A loaded event is as old as it was at the load,
//! plus the time that has passed since; but no older than by the wall clock of now, which may have been wrong at the
//! load.

use std::fmt;

use riverrun_types::TimestampMs;

/// A moment of this run in milliseconds in which the machine was awake, since some earlier point: for deadlines. It
/// is never written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// The moment `ms` milliseconds later.
    pub(crate) fn after(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The clocks, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Time in which the machine was awake: for deadlines.
    pub moment: Moment,
    /// Milliseconds since some point before this run, the machine's sleep included: for ages.
    pub passed_ms: i64,
    /// The wall clock: for times that are written down.
    pub wall: TimestampMs,
}

impl Now {
    /// A time at which all clocks show the same, as in a simulation.
    pub fn simulated(ms: i64) -> Self {
        Self { moment: Moment(ms), passed_ms: ms, wall: TimestampMs(ms) }
    }

    /// The setting of the wall clock.
    pub fn setting(self) -> Setting {
        Setting(self.wall.0.saturating_sub(self.passed_ms))
    }
}

/// The setting of the wall clock: its difference to the time that has passed. It stays the same while the clock is
/// not set, also over the machine's sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting(i64);

impl Setting {
    /// Whether the clock was set in between, so that times which were written down under the one setting are to be
    /// rewritten under the other.
    pub fn is_other_than(self, before: Self) -> bool {
        self.0.saturating_sub(before.0).saturating_abs() >= CORRECTION_MS_MIN
    }
}

/// Difference in milliseconds from which on a time is rewritten after the wall clock was set. Clocks are slewed and
/// set by less every day; the ages that depend on these times are hours and days.
const CORRECTION_MS_MIN: i64 = 60_000;

/// The time of an event that is written down.
///
/// Two are equal, and shown alike, if they are written down alike.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// The wall clock's time, as the record has it.
    pub wall: TimestampMs,
    /// [`Now::passed_ms`] at that time, if it was in this run.
    passed_ms: Option<i64>,
}

impl PartialEq for Stamp {
    fn eq(&self, other: &Self) -> bool {
        self.wall == other.wall
    }
}

impl Eq for Stamp {}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stamp").field(&self.wall.0).finish()
    }
}

impl Stamp {
    /// The stamp of an event of now.
    pub(crate) fn now(now: Now) -> Self {
        Self { wall: now.wall, passed_ms: Some(now.passed_ms) }
    }

    /// The stamp of a recorded event.
    pub(crate) fn recorded(wall: TimestampMs) -> Self {
        Self { wall, passed_ms: None }
    }

    /// Milliseconds since then, or `None` if that was in an earlier run.
    pub(crate) fn passed_since_ms(self, now: Now) -> Option<i64> {
        self.passed_ms.map(|then_ms| now.passed_ms.saturating_sub(then_ms))
    }

    /// The same event with the time that a right wall clock would have shown, if it was set since, so that another
    /// run does not read the wrong one. `None` if there is nothing to correct.
    pub(crate) fn corrected(self, now: Now) -> Option<Self> {
        let wall = TimestampMs(now.wall.0.saturating_sub(self.passed_since_ms(now)?));
        let is_off = wall.0.saturating_sub(self.wall.0).saturating_abs() >= CORRECTION_MS_MIN;
        is_off.then_some(Self { wall, ..self })
    }
}

/// Ages of events, in a shard that has been loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ages {
    pub(crate) now: Now,
    /// When the load ended.
    pub(crate) loaded: Now,
}

impl Ages {
    /// Age of this event, in milliseconds.
    pub(crate) fn of(&self, stamp: Stamp) -> i64 {
        let Self { now, loaded } = self;
        stamp.passed_since_ms(*now).unwrap_or_else(|| {
            let at_load_ms = loaded.wall.0.saturating_sub(stamp.wall.0).max(0);
            let passed_ms = now.passed_ms.saturating_sub(loaded.passed_ms);
            at_load_ms.saturating_add(passed_ms).min(now.wall.0.saturating_sub(stamp.wall.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that has passed, with the wall clock at it.
    fn at(passed_ms: i64, wall_ms: i64) -> Now {
        Now { moment: Moment(passed_ms), passed_ms, wall: TimestampMs(wall_ms) }
    }

    const MONTH: i64 = 30 * 24 * 3_600_000;

    #[test]
    fn event_of_this_run_is_as_old_as_the_time_passed() {
        let (loaded, stamp) = (at(0, MONTH), Stamp::now(at(1_000, MONTH + 1_000)));
        for wall_ms in [0, MONTH, 5 * MONTH] {
            assert_eq!(Ages { now: at(4_000, wall_ms), loaded }.of(stamp), 3_000);
        }
    }

    #[test]
    fn loaded_event_is_as_old_as_both_clocks_grant() {
        let stamp = Stamp::recorded(TimestampMs(10 * MONTH));
        let loaded = at(0, 10 * MONTH + 5_000);
        assert_eq!(Ages { now: at(2_000, 10 * MONTH + 7_000), loaded }.of(stamp), 7_000);
        assert_eq!(Ages { now: at(2_000, 11 * MONTH), loaded }.of(stamp), 7_000, "the clock was set forward");
        let (behind, ahead) = (at(0, 9 * MONTH), at(0, 11 * MONTH));
        assert_eq!(
            Ages { now: at(2_000, 11 * MONTH), loaded: behind }.of(stamp),
            2_000,
            "the start was a month behind"
        );
        assert_eq!(
            Ages { now: at(2_000, 10 * MONTH + 7_000), loaded: ahead }.of(stamp),
            7_000,
            "the start was a month ahead"
        );
    }

    #[test]
    fn a_time_that_a_wrong_clock_gave_is_corrected() {
        let stamp = Stamp::now(at(1_000, MONTH));
        assert_eq!(stamp.corrected(at(2_000, MONTH + 1_000 + CORRECTION_MS_MIN - 1)), None);
        let corrected = stamp.corrected(at(2_000, 2 * MONTH)).expect("off by a month");
        assert_eq!(corrected.wall, TimestampMs(2 * MONTH - 1_000));
        assert_eq!(corrected.corrected(at(3_000, 2 * MONTH + 1_000)), None);
        assert_eq!(Stamp::recorded(TimestampMs(0)).corrected(at(0, MONTH)), None, "the run is unknown");
    }
}
