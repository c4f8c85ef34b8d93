//! Bugs that a test plants, to see that they are found: in the controller, and in the members that act on it. Each is of one thread,
//! which a simulated world and a test share.

use std::cell::Cell;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    None,
    /// A leader that changes begins no epoch.
    LeaderWithoutEpoch,
    /// A partition's version stands still while its epoch moves.
    VersionStandsStill,
    /// A broker that is fenced may be elected.
    FencedElected,
    /// A new life leads on in the epoch of the one before.
    NewLifeSameEpoch,
    /// Replicas that may lack records stay candidates.
    UncleanKept,
    /// Eligible replicas stay so when the in-sync set is large enough again.
    EligibleKept,
    /// Replicas that leave a set that is too small are not eligible.
    EligibleForgotten,
    /// A change of the in-sync set may come from an older version.
    VersionNotChecked,
    /// A change of the in-sync set may name another life of a broker.
    IncarnationNotChecked,
    /// A broker that is fenced may join the in-sync set.
    FencedJoins,
    /// A refused change leaves the version as it was.
    RefusalKeepsVersion,
    /// A reassignment ends before its target is in sync.
    ReassignmentEndsEarly,
    /// A leader that acks by itself does not have to resign.
    NobodyResigns,
    /// Producer ids are given out, and not reserved.
    ProducerIdsNotReserved,
    /// The deletion of a topic takes another one along.
    DeletionTakesAnother,
    /// A snapshot lacks the configs of topics.
    SnapshotLacksConfigs,
    /// A snapshot lacks that brokers are fenced.
    SnapshotUnfences,
    /// A snapshot lacks the version of its image.
    SnapshotLacksVersion,
    /// A broker counts on its session from the answer on, and for longer than the controller does.
    LeaseTooLong,
    /// A member that begins to lead takes brokers for silent that it has not heard from.
    SessionsFromZero,
    /// A fenced broker is unfenced whatever it knows.
    UnfencedUnaware,
    /// A fenced broker stays fenced.
    NeverUnfenced,
    /// Decisions are answered before the quorum has agreed.
    AnsweredEarly,
}

thread_local! {
    static PLANTED: Cell<Planted> = const { Cell::new(Planted::None) };
}

pub(crate) fn plant(planted: Planted) {
    PLANTED.set(planted);
}

/// Whether this bug is planted.
pub(crate) fn is(planted: Planted) -> bool {
    PLANTED.get() == planted
}
