//! Which records a loss of power may take where the topic's level changes all the time. Pure.
//!
//! Nobody but the server knows at which level a record was acked. But it syncs what it acks at some levels, and a change
//! to one of them is a barrier: once it is reached, everything that was acked or seen before is synced. So a record must
//! stay
//!
//! - if the topic had a level that syncs from before it was sent until after its ack was heard, and nobody was about to
//!   change it;
//! - if such a level was reached after its ack, and before the next crash, unless a crash came between its sending and its
//!   ack: it may have been acked before that, and be gone.
//!
//! Any other may be gone after a crash. What must stay once must stay for good, whatever the level is then.
//!
//! Whether a crash has taken what it may take is looked for in the life after it. What is found there was seen in that life,
//! as if a reader had got it, and so it must stay once a level that syncs is reached then, or was there already. If it
//! is none before the next crash, the record may be gone again, and is looked for again. What was not found is gone, and
//! is looked for no more.

use std::collections::HashSet;

use super::payload::Identity;

/// How the topic stood when something was written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// The level is about to change, or does not sync.
    is_loose: bool,
    /// Changes that were begun.
    changes: u64,
    crashes: u64,
}

impl Moment {
    /// Whether the topic had a level that syncs from then until `now`.
    fn syncs_until(self, now: Self) -> bool {
        !self.is_loose && self.changes == now.changes
    }
}

/// Acks and sightings, these by their number.
#[derive(Debug, Default)]
struct Claims {
    acks: HashSet<Identity>,
    sightings: HashSet<usize>,
}

/// What binds, as far as the level decides it.
///
/// Invariants: nothing is `loose` while the level syncs.
#[derive(Debug, Default)]
pub(super) struct Binding {
    now: Moment,
    /// May be gone after a crash that comes before the level syncs.
    loose: Claims,
    /// May be gone.
    excused: Claims,
    /// Acks that were loose until a level that syncs was reached, since the last crash.
    settled: usize,
    settled_before_crashes: usize,
}

impl Binding {
    /// How the topic stands.
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Somebody is about to change the level.
    pub(super) fn change(&mut self) {
        self.now.is_loose = true;
        self.now.changes += 1;
    }

    /// After so many crashes all partitions were found at a level that syncs, which nobody has begun to change since.
    pub(super) fn reach(&mut self, crashes: u64) {
        if crashes != self.now.crashes {
            return;
        }
        self.now.is_loose = false;
        self.settled += std::mem::take(&mut self.loose).acks.len();
    }

    /// The power was cut.
    pub(super) fn crash(&mut self) {
        self.now.crashes += 1;
        let Claims { acks, sightings } = std::mem::take(&mut self.loose);
        self.excused.acks.extend(acks);
        self.excused.sightings.extend(sightings);
        self.settled_before_crashes += std::mem::take(&mut self.settled);
    }

    /// Of a record that was sent at `sent` an ack was heard.
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

    /// Somebody has read what is the sighting of this number. Who reads is stopped before a crash is written down.
    pub(super) fn see(&mut self, number: usize) {
        if self.now.is_loose {
            self.loose.sightings.insert(number);
        }
    }

    /// Whether a record that was acked may be gone.
    pub(super) fn excuses_ack(&self, identity: Identity) -> bool {
        self.excused.acks.contains(&identity)
    }

    /// Whether a record that was seen may be gone.
    pub(super) fn excuses_sighting(&self, number: usize) -> bool {
        self.excused.sightings.contains(&number)
    }

    /// Acks that a crash had to spare only because the level had changed since.
    pub(super) fn settled_before_crashes(&self) -> usize {
        self.settled_before_crashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Identity = Identity { stream: 1, sequence: 2 };

    /// What happens around one record. Its ack is heard, and a reader gets it, at the same time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        Sent,
        Acked,
        Change,
        /// Found out after so many crashes.
        Reach(u64),
        Crash,
    }

    /// Whether it must stay, as acked and as seen, and how many acks a change had to settle before a crash.
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
        (binds.0, binds.1, binding.settled_before_crashes())
    }

    #[test]
    fn what_was_acked_at_a_level_that_syncs_stays_whatever_comes() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        assert_eq!(after(&[Sent, Acked, Crash]), (true, true, 0));
        assert_eq!(after(&[Sent, Acked, Change, Crash, Crash]), (true, true, 0));
        assert_eq!(after(&[Change, Reach(0), Sent, Acked, Change, Crash]), (true, true, 0));
        // The ack was heard only after the crash, but at no other level.
        assert_eq!(after(&[Sent, Crash, Acked, Crash]), (true, true, 0));
    }

    #[test]
    fn what_may_have_been_acked_at_another_level_may_be_gone_after_the_next_crash() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        for steps in [&[Change, Sent, Acked, Crash][..], &[Sent, Change, Acked, Crash]] {
            assert_eq!(after(steps), (false, false, 0), "{steps:?}");
        }
        // Too late: what was lost does not come back with the level.
        assert_eq!(after(&[Change, Sent, Acked, Crash, Reach(1), Crash]), (false, false, 0));
        // The level was found before the crash, and of the next life nobody has found out.
        assert_eq!(after(&[Change, Crash, Sent, Acked, Reach(0), Crash]), (false, false, 0));
        // It was changed again, and back: between the two it may have been acked, and between the acks be gone.
        assert!(!after(&[Sent, Change, Crash, Reach(1), Acked, Crash]).0);
    }

    #[test]
    fn a_level_that_syncs_settles_what_was_acked_before_it_was_reached() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        assert_eq!(after(&[Change, Sent, Acked, Reach(0), Crash]), (true, true, 1));
        assert_eq!(after(&[Change, Sent, Acked, Reach(0), Change, Crash]), (true, true, 1));
        assert_eq!(after(&[Change, Sent, Reach(0), Acked, Crash]), (true, true, 0));
        assert_eq!(after(&[Change, Sent, Acked, Reach(0)]), (true, true, 0), "no crash has tried it");
        assert_eq!(after(&[Change, Crash, Sent, Acked, Reach(1), Crash]), (true, true, 1));
    }

    #[test]
    fn an_ack_that_may_be_older_than_a_crash_is_not_settled_by_a_change_after_it() {
        use Step::{Acked, Change, Crash, Reach, Sent};
        let (ack_binds, sighting_binds, settled) = after(&[Change, Sent, Crash, Acked, Reach(1), Crash]);
        assert!(!ack_binds && settled == 0);
        assert!(sighting_binds, "the reader got it in the life that has settled it");
    }
}
