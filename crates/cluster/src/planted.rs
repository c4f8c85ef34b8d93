//! Bugs that a test plants in a quorum, its controller and its members, to see that the checks find them.
//!
//! A simulated world runs on one thread, and so a bug is planted for the thread that plants it.

use std::cell::Cell;

/// A bug of the stored half, of the messages, of the use of `openraft`, of the owner, or of the controller and its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    None,
    /// A vote is given out before it is durable.
    VoteNotSynced,
    /// A vote is given out before it is even written.
    VoteFromMemory,
    /// The vote is not among what a rewritten log keeps.
    VoteLostAtRewrite,
    /// Entries are told to be durable when they are written.
    EntriesNotSynced,
    /// Entries are told to be durable before the sync, which comes then.
    AnsweredBeforeSync,
    /// A failed sync is taken for a good one.
    FailedSyncIgnored,
    /// Bytes that a failed sync may have left in the page cache alone are believed at the next start.
    CachedTailBelieved,
    /// Nothing says that the last frame was synced.
    NoMark,
    /// The checksum of a frame is not looked at.
    ChecksumNotChecked,
    /// A truncation is carried out in memory alone.
    TruncationNotWritten,
    /// At a start the entries of an older term stay where a truncation and others came behind them.
    OldEntriesKept,
    /// More is purged from the file than is in a snapshot.
    PurgedBeyond,
    /// A snapshot is told to be durable before it is written, and what comes behind it is written first.
    PurgedBeforeSnapshot,
    /// The state of a snapshot is a command ahead of the index that it names.
    SnapshotMidApply,
    /// A snapshot forgets who the members are.
    MembershipLost,
    /// An older snapshot takes the place of a newer one.
    OlderSnapshotStored,
    /// A snapshot is answered at once where it is not needed, since its entries are here and not durable yet.
    InstallAnsweredEarly,
    /// A message for another life of the directory is taken.
    OtherLifeAnswers,
    /// Every request for a vote is granted.
    VoteAlwaysGranted,
    /// A leader leads on in its term after a start.
    LeadsOnAfterAStart,
    /// A leader that has lost its quorum leads on.
    NoProbe,
    /// A member whose directory is gone comes back under its id.
    IdReused,
    /// Links are let in with any proof.
    ProofNotChecked,
    /// A proof does not say which side of a link has made it.
    RoleNotProved,
    /// All links have one nonce.
    NonceReused,
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

/// A bug is planted until this is dropped.
#[must_use]
pub(crate) struct Planting(());

/// Plants a bug in all members of this thread.
pub(crate) fn plant(bug: Planted) -> Planting {
    PLANTED.set(bug);
    Planting(())
}

impl Drop for Planting {
    fn drop(&mut self) {
        PLANTED.set(Planted::None);
    }
}

/// Whether this bug is planted.
pub(crate) fn is_planted(bug: Planted) -> bool {
    PLANTED.get() == bug
}
