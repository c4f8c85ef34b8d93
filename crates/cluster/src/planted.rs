//! Bugs that a test plants below a quorum, to see that the checks find them.

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
}
