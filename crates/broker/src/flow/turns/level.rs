//! The network's time that a source or a connection had of late, and how much later its turn comes for that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::flow::pace::TURN_TIME_MAX;

/// Half of the time that was had is forgotten after so long: the unit of the times that a [`Level`] counts in.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(1);
/// Time of late up to which a connection or source had little: a fifteenth of a thread's. A client that asks for something a
/// hundred times a second takes less. No turn comes later for it; beyond, one comes as much later as it takes until no more
/// than this is left.
pub(super) const LIGHT_TIME: Duration = Duration::from_millis(100);
/// A turn comes so many times its expected length later. What is short goes before what is long also where there are so many
/// sources that none of them has more than [`LIGHT_TIME`].
const TURN_WEIGHT: u32 = 2000;
/// The expected length of a connection's first turn: turns of connections that ask for little are shorter, so that these come
/// before many newcomers that come at the same time.
const FIRST_TURN: Duration = TURN_TIME_MAX.checked_div(4).expect("no zero");
/// The last turn's length counts for one of so many parts of the expected length. It is a small part: a turn takes long also
/// where something else has the thread's core meanwhile.
const LAST_PART: u32 = 8;

/// The time that a source or a connection had up to now.
///
/// Invariants: it needs no change as time goes by, since the levels of all are forgotten at the same pace.
#[derive(Debug)]
pub(super) struct Level {
    /// The half-life since the server's start, as the bits of a fraction, in which [`LIGHT_TIME`] is left of what was had:
    /// later than now if it is more, infinitely early if it is nothing.
    light_at: AtomicU64,
    /// How long a turn is expected to take.
    turn_nanos: AtomicU32,
}

impl Default for Level {
    fn default() -> Self {
        Self::light_at(f64::NEG_INFINITY)
    }
}

impl Level {
    fn light_at(light_at: f64) -> Self {
        let turn_nanos = AtomicU32::new(FIRST_TURN.subsec_nanos());
        Self { light_at: AtomicU64::new(light_at.to_bits()), turn_nanos }
    }

    /// The level of a newcomer among so many connections that had this together.
    pub(super) fn part(&self, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        Self::light_at(f64::from_bits(self.light_at.load(Ordering::Relaxed)) - f64::from(count).log2())
    }

    /// Notes a turn that ends now.
    pub(super) fn add(&self, now: Duration, took: Duration) {
        let (now, took_light) = (half_lives(now), took.div_duration_f64(LIGHT_TIME));
        let add = |bits| Some((now + (left(bits, now) + took_light).log2()).to_bits());
        // It never refuses.
        let _ = self.light_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        let took = took.min(TURN_TIME_MAX).subsec_nanos();
        let expected = self.turn_nanos.load(Ordering::Relaxed);
        // If two turns end at the same time, one may be lost: it is a guess.
        self.turn_nanos.store(expected - expected / LAST_PART + took / LAST_PART, Ordering::Relaxed);
    }

    /// The time that is not forgotten by now.
    pub(super) fn had(&self, now: Duration) -> Duration {
        let left = left(self.light_at.load(Ordering::Relaxed), half_lives(now));
        Duration::try_from_secs_f64(LIGHT_TIME.as_secs_f64() * left).unwrap_or(Duration::MAX)
    }

    /// How much later than without any of this the next turn comes.
    pub(super) fn delay(&self, now: Duration) -> Duration {
        let until_light = (f64::from_bits(self.light_at.load(Ordering::Relaxed)) - half_lives(now)).max(0.0);
        let expected = Duration::from_nanos(self.turn_nanos.load(Ordering::Relaxed).into());
        HALF_LIFE.mul_f64(until_light) + TURN_WEIGHT * expected
    }
}

fn half_lives(now: Duration) -> f64 {
    now.div_duration_f64(HALF_LIFE)
}

/// How many times [`LIGHT_TIME`] is left.
fn left(light_at_bits: u64, now: f64) -> f64 {
    (f64::from_bits(light_at_bits) - now).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn half_of_what_was_had_is_forgotten_in_each_half_life() {
        let level = Level::default();
        let had_ms = |now: Duration| (level.had(now) + MS / 2).as_millis();
        assert_eq!(level.had(Duration::ZERO), Duration::ZERO);
        level.add(7 * HALF_LIFE, 800 * MS);
        assert_eq!([7, 9, 100].map(|now| had_ms(now * HALF_LIFE)), [800, 200, 0]);
        level.add(8 * HALF_LIFE, 100 * MS);
        assert_eq!(had_ms(8 * HALF_LIFE), 500);
        level.add(1_000_000 * HALF_LIFE, 3 * MS);
        assert_eq!(had_ms(1_000_000 * HALF_LIFE), 3, "also after years");
    }

    #[test]
    fn a_turn_comes_later_for_what_was_had_and_for_long_turns() {
        let level = Level::default();
        assert_eq!(level.delay(HALF_LIFE), TURN_WEIGHT * FIRST_TURN);
        for _ in 0..400 {
            level.add(HALF_LIFE, MS);
        }
        assert!(level.delay(HALF_LIFE).abs_diff(2 * HALF_LIFE + TURN_WEIGHT * MS) < 10 * MS);
        assert!(level.delay(3 * HALF_LIFE).abs_diff(TURN_WEIGHT * MS) < 10 * MS, "it is forgotten");
        let short = Level::default();
        (0..1000).for_each(|_| short.add(HALF_LIFE, MS / 20));
        assert!(
            short.delay(2 * HALF_LIFE).abs_diff(TURN_WEIGHT * MS / 20) < MS,
            "{:?}",
            short.delay(2 * HALF_LIFE)
        );
    }

    #[test]
    fn a_newcomer_has_its_part_of_what_all_had() {
        let level = Level::default();
        assert_eq!(level.part(3).had(HALF_LIFE), Duration::ZERO);
        level.add(HALF_LIFE, 800 * MS);
        assert!(level.part(4).had(HALF_LIFE).abs_diff(200 * MS) < MS);
    }
}
