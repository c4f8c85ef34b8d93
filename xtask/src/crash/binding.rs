//! Which records a loss of power may take while the topic's level changes all the time. Pure.
//!
//! Only the server knows at which level a record was acked. But a change to a sync level is a barrier: once it is
//! reached, everything that was acked or seen before is synced. So a record must stay
//!
//! - if the topic had a sync level from before the record was sent until after its ack arrived, and no change was begun
//!   meanwhile;
//! - if a sync level was reached after its ack, and before the next crash, unless a crash came between its sending and
//!   its ack: then it may have been acked before that crash, and be gone.
//!
//! Any other record may be gone after a crash. A record that must stay once must stay for good, whatever the level is
//! later.
//!
//! The life after a crash looks for the records that the crash may have taken. A record that is found counts as seen in
//! that life, as if a reader had got it. It must stay once a sync level is reached in that life, or held already.
//! Otherwise the next crash may take it, and it is looked for again. A record that is not found is gone, and is looked
//! for no more.

use std::collections::HashSet;

use super::payload::Identity;

/// State of the topic's level at the time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// A change was begun and its level is not reached, or the level does not sync.
    is_loose: bool,
    /// Number of changes that were begun.
    changes: u64,
    crashes: u64,
}

impl Moment {
    /// Whether the topic had a sync level from then until `now`.
    fn syncs_until(self, now: Self) -> bool {
        !self.is_loose && self.changes == now.changes
    }
}

/// Acks, and sightings by their number.
#[derive(Debug, Default)]
struct Claims {
    acks: HashSet<Identity>,
    sightings: HashSet<usize>,
}

/// Records that must stay, as far as the level decides it.
///
/// Invariants: nothing is `loose` while the level syncs.
#[derive(Debug, Default)]
pub(super) struct Binding {
    now: Moment,
    /// Claims that a crash may take if it comes before a sync level is reached.
    loose: Claims,
    /// Claims that a crash may have taken.
    excused: Claims,
    /// Acks that were loose until a sync level was reached, since the last crash.
    bound: usize,
    bound_before_crashes: usize,
}

impl Binding {
    /// State of the topic's level now.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// A change of the level begins.
    pub(super) fn change(&mut self) {
        self.now.is_loose = true;
        self.now.changes += 1;
    }

    /// All partitions were found at a sync level after `crashes` crashes, and no change was begun since.
    pub(super) fn reach(&mut self, crashes: u64) {
        if crashes != self.now.crashes {
            return;
        }
        self.now.is_loose = false;
        self.bound += std::mem::take(&mut self.loose).acks.len();
    }

    /// The power was cut.
    pub(super) fn crash(&mut self) {
        self.now.crashes += 1;
        let Claims { acks, sightings } = std::mem::take(&mut self.loose);
        self.excused.acks.extend(acks);
        self.excused.sightings.extend(sightings);
        self.bound_before_crashes += std::mem::take(&mut self.bound);
    }

    /// An ack arrived for a record that was sent at `sent`.
    pub(super) fn ack(&mut self, sent: Moment, identity: Identity) {
        if sent.syncs_until(self.now) {
            return;
        }
        if sent.crashes != self.now.crashes {
            self.excused.acks.insert(identity);
        } else if self.now.is_loose {
            self.loose.acks.insert(identity);
        }
    }

    /// A reader got a record; `number` is that of the sighting. Readers are stopped before a crash is recorded.
    pub(super) fn see(&mut self, number: usize) {
        if self.now.is_loose {
            self.loose.sightings.insert(number);
        }
    }

    /// Whether an acked record may be gone.
    pub(super) fn excuses_ack(&self, identity: Identity) -> bool {
        self.excused.acks.contains(&identity)
    }

    /// Whether a record that was seen may be gone.
    pub(super) fn excuses_sighting(&self, number: usize) -> bool {
        self.excused.sightings.contains(&number)
    }

    /// Number of acks that crashes had to spare only because the level had changed since.
    pub(super) fn bound_before_crashes(&self) -> usize {
        self.bound_before_crashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Identity = Identity { stream: 1, sequence: 2 };

    /// Events around one record. Its ack arrives at the same time as a reader gets it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        Sent,
        Acked,
        Change,
        /// The level was found reached after this many crashes.
        Reach(u64),
        Crash,
    }

    /// Whether the record must stay, as acked and as seen, and how many acks a change had made binding before a crash.
    fn after(steps: &[Step]) -> (bool, bool, usize) {
        let (mut binding, mut sent) = (Binding::default(), None);
        for step in steps {
            match step {
                Step::Sent => sent = Some(binding.now()),
                Step::Acked => {
                    binding.ack(sent.expect("sent before"), RECORD);
                    binding.see(7);
                }
                Step::Change => binding.change(),
                Step::Reach(crashes) => binding.reach(*crashes),
                Step::Crash => binding.crash(),
            }
        }
        let binds = (!binding.excuses_ack(RECORD), !binding.excuses_sighting(7));
        (binds.0, binds.1, binding.bound_before_crashes())
    }

    #[test]
    fn record_acked_at_a_sync_level_stays() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        assert_eq!(after(&[Sent, Acked, Crash]), (true, true, 0));
        assert_eq!(after(&[Sent, Acked, Change, Crash, Crash]), (true, true, 0));
        assert_eq!(after(&[Change, Reach(0), Sent, Acked, Change, Crash]), (true, true, 0));
        // The ack arrived only after the crash, but the level never changed.
        assert_eq!(after(&[Sent, Crash, Acked, Crash]), (true, true, 0));
    }

    #[test]
    fn record_perhaps_acked_at_an_async_level_may_be_gone() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        for steps in [&[Change, Sent, Acked, Crash][..], &[Sent, Change, Acked, Crash]] {
            assert_eq!(after(steps), (false, false, 0), "{steps:?}");
        }
        // Too late: a lost record does not return with the level.
        assert_eq!(after(&[Change, Sent, Acked, Crash, Reach(1), Crash]), (false, false, 0));
        // The level was found before the crash; in the next life it was not found again.
        assert_eq!(after(&[Change, Crash, Sent, Acked, Reach(0), Crash]), (false, false, 0));
        // The level was changed and changed back: the record may have been acked in between, and be gone when its ack
        // arrives.
        assert!(!after(&[Sent, Change, Crash, Reach(1), Acked, Crash]).0);
    }

    #[test]
    fn reached_sync_level_binds_earlier_acks() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        assert_eq!(after(&[Change, Sent, Acked, Reach(0), Crash]), (true, true, 1));
        assert_eq!(after(&[Change, Sent, Acked, Reach(0), Change, Crash]), (true, true, 1));
        assert_eq!(after(&[Change, Sent, Reach(0), Acked, Crash]), (true, true, 0));
        assert_eq!(after(&[Change, Sent, Acked, Reach(0)]), (true, true, 0), "no crash has tried it");
        assert_eq!(after(&[Change, Crash, Sent, Acked, Reach(1), Crash]), (true, true, 1));
    }

    #[test]
    fn ack_perhaps_older_than_a_crash_is_not_bound_by_a_change() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        let (ack_binds, sighting_binds, bound) = after(&[Change, Sent, Crash, Acked, Reach(1), Crash]);
        assert!(!ack_binds && bound == 0);
        assert!(sighting_binds, "the reader got it in the life whose level binds it");
    }
}
