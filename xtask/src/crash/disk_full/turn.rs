//! States that every stream has to reach: refused, answered, going on. Pure.

use crate::crash::load::{Outcomes, Tally};

/// The awaited state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Records are refused.
    Refused,
    /// Records are acked.
    Acked,
    /// Records are refused or acked.
    Answered,
}

impl Turn {
    /// The streams that have not reached it since `before`.
    pub(super) fn missing(self, before: &Tally, now: &Tally) -> Vec<u32> {
        let has_come = |stream: &u32, before: &Outcomes| {
            let now = now.get(stream).copied().unwrap_or_default();
            match self {
                Self::Refused => now.failed > before.failed,
                Self::Acked => now.acked > before.acked,
                Self::Answered => now.failed > before.failed || now.acked > before.acked,
            }
        };
        let missing = before.iter().filter(|(stream, before)| !has_come(stream, before));
        missing.map(|(stream, _)| *stream).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(outcomes: [(u64, u64); 3]) -> Tally {
        (1..).zip(outcomes.map(|(acked, failed)| Outcomes { acked, failed })).collect()
    }

    #[test]
    fn one_stream_that_hangs_is_found_whatever_the_others_do() {
        let before = tally([(5, 0), (7, 0), (0, 0)]);
        let now = tally([(5, 2), (7, 0), (90, 0)]);
        assert_eq!(Turn::Refused.missing(&before, &now), [2, 3]);
        assert_eq!(Turn::Acked.missing(&before, &now), [1, 2]);
        assert_eq!(Turn::Answered.missing(&before, &now), [2]);
    }

    #[test]
    fn earlier_outcomes_do_not_count() {
        let tally = tally([(5, 2), (7, 1), (1, 1)]);
        for turn in [Turn::Refused, Turn::Acked, Turn::Answered] {
            assert_eq!(turn.missing(&tally, &tally), [1, 2, 3]);
        }
    }
}
