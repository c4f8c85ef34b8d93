//! Random times, lengths and chances from one seed, so that a run can be repeated.
//!
//! The server's own timing is not part of the seed: the same seed makes the same plan, not the same crash. The way of
//! drawing a number below another must not change, because `docs/long-runs.md` names seeds.

use std::time::Duration;

use riverrun_bench::random::SeededRandom;

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(SeededRandom);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, or zero if that is zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A length below `end`, or zero if that is zero.
    pub(crate) fn size_below(&mut self, end: usize) -> usize {
        // A number below a `usize` fits into one.
        usize::try_from(self.below(end as u64)).unwrap_or_default()
    }

    /// True once in `times` calls, on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time between zero and `limit`, to the microsecond.
    pub(crate) fn up_to(&mut self, limit: Duration) -> Duration {
        let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX - 1);
        Duration::from_micros(self.below(limit_us + 1))
    }

    /// Another generator, so that the draws of one part do not depend on those of another.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.0.split())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.next(), rng.below(7), rng.fork().next()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn draws_stay_below_their_end() {
        let mut rng = Rng::new(3);
        assert!((0..1000).all(|_| rng.below(5) < 5));
        assert_eq!(rng.below(0), 0);
        let limit = Duration::from_micros(9);
        assert!((0..1000).all(|_| rng.up_to(limit) <= limit));
    }
}
