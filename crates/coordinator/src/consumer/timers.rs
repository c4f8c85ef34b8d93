//! Deadlines of silent or slow members of a group.
//!
//! Owns two deadlines per member: the end of its session, moved by each heartbeat, and the end of the time that it
//! has to give up partitions, or, as a classic member, to rejoin or to sync. They are soft state: they are not in the
//! log, and a load starts them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::time::Moment;

/// Deadlines of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Deadlines {
    session: Moment,
    revocation: Option<Moment>,
}

impl Deadlines {
    fn first(self) -> Moment {
        self.revocation.map_or(self.session, |revocation| revocation.min(self.session))
    }
}

/// Deadlines of all members.
///
/// Invariants: `due` holds the first deadline of each member of `by_member`, and nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    by_member: BTreeMap<Arc<str>, Deadlines>,
    due: BTreeSet<(Moment, Arc<str>)>,
}

impl Timers {
    /// Sets the end of the member's session; a time to revoke stays.
    pub(super) fn set_session(&mut self, member: &Arc<str>, session: Moment) {
        let revocation = self.by_member.get(member).and_then(|deadlines| deadlines.revocation);
        self.set(member, Deadlines { session, revocation });
    }

    /// Sets or removes the member's time to revoke. A member without a session has none: it is unknown here.
    pub(super) fn set_revocation(&mut self, member: &Arc<str>, revocation: Option<Moment>) {
        if let Some(&deadlines) = self.by_member.get(member) {
            self.set(member, Deadlines { revocation, ..deadlines });
        }
    }

    /// Sets the member's time to revoke, unless it is running.
    pub(super) fn start_revocation(&mut self, member: &Arc<str>, revocation: Moment) {
        if self.by_member.get(member).is_some_and(|deadlines| deadlines.revocation.is_none()) {
            self.set_revocation(member, Some(revocation));
        }
    }

    /// Forgets a member.
    pub(super) fn remove(&mut self, member: &str) {
        if let Some((member, deadlines)) = self.by_member.remove_entry(member) {
            self.due.remove(&(deadlines.first(), member));
        }
    }

    /// The first deadline of all.
    pub(super) fn next(&self) -> Option<Moment> {
        self.due.first().map(|(deadline, _)| *deadline)
    }

    /// A member whose deadline is at or before `now`, the longest overdue first.
    pub(super) fn overdue(&self, now: Moment) -> Option<Arc<str>> {
        self.due.first().filter(|(deadline, _)| *deadline <= now).map(|(_, member)| Arc::clone(member))
    }

    fn set(&mut self, member: &Arc<str>, deadlines: Deadlines) {
        if let Some(old) = self.by_member.insert(Arc::clone(member), deadlines) {
            self.due.remove(&(old.first(), Arc::clone(member)));
        }
        self.due.insert((deadlines.first(), Arc::clone(member)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Moment {
        Moment(time)
    }

    #[test]
    fn the_earlier_of_a_members_deadlines_counts() {
        let (mut timers, member) = (Timers::default(), Arc::from("m"));
        timers.set_session(&member, at(100));
        timers.set_revocation(&member, Some(at(40)));
        assert_eq!((timers.next(), timers.overdue(at(39))), (Some(at(40)), None));
        assert_eq!(timers.overdue(at(40)), Some(Arc::clone(&member)));
        timers.set_session(&member, at(200));
        assert_eq!(timers.next(), Some(at(40)), "a heartbeat does not extend the time to revoke");
        timers.start_revocation(&member, at(90));
        assert_eq!(timers.next(), Some(at(40)), "it is running already");
        timers.set_revocation(&member, None);
        assert_eq!(timers.next(), Some(at(200)));
        timers.start_revocation(&member, at(90));
        assert_eq!(timers.next(), Some(at(90)));
    }

    #[test]
    fn a_removed_member_is_never_due() {
        let (mut timers, member) = (Timers::default(), Arc::from("m"));
        timers.set_session(&member, at(100));
        timers.remove("m");
        assert_eq!((timers.next(), timers.overdue(at(1_000))), (None, None));
        timers.set_revocation(&member, Some(at(40)));
        assert_eq!(timers.next(), None);
    }
}
