//! Bugs that a test plants below a quorum, to see that the checks find them.

use std::cell::Cell;

/// A bug of the stored half, or of its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Planted {
    #[default]
    None,
    /// A vote is given out before it is durable.
    VoteNotSynced,
    /// Entries are told to be durable when they are written.
    EntriesNotSynced,
    /// A leader leads on in its term after a start.
    LeadsOnAfterAStart,
    /// A member whose directory is gone comes back under its id.
    IdReused,
    /// Links are let in with any proof.
    ProofNotChecked,
    /// A proof does not say which side of a link has made it.
    RoleNotProved,
    /// All links have one nonce.
    NonceReused,
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
