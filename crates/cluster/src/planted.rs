//! Bugs that a test plants in a quorum, to see that the checks find them.
//!
//! A simulated world runs on one thread, and so a bug is planted for the thread that plants it.

use std::cell::Cell;

/// A bug of the stored half, of the messages, of the use of `openraft`, or of the owner.
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
    /// What a failed sync may have left in the page cache alone is believed at the next start.
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
    /// Whoever asks for a vote gets it.
    VoteAlwaysGranted,
    /// A leader leads on in its term after a start.
    LeadsOnAfterAStart,
    /// A leader that has lost its quorum leads on.
    NoProbe,
    /// A member whose directory is gone comes back under its id.
    IdReused,
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
