//! Mistakes that a test makes on purpose, to see that it finds them. Never made outside of tests.

/// The mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A replay takes the first entry of each offset, as if nothing had been cut.
    ReplayByOffset,
    /// A replay takes the entries of the highest epoch.
    ReplayByEpoch,
    /// A cut counts as made before it is written down.
    AckBeforeSync,
}

#[cfg(not(test))]
pub(crate) const fn is_planted(_bug: Planted) -> bool {
    false
}

#[cfg(test)]
pub(crate) use of_thread::{is_planted, plant};

/// A mistake is made by the thread that has planted it.
#[cfg(test)]
mod of_thread {
    use std::cell::Cell;

    use super::Planted;

    thread_local! {
        static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    pub(crate) fn is_planted(bug: Planted) -> bool {
        PLANTED.get() == Some(bug)
    }

    pub(crate) fn plant(bug: Option<Planted>) {
        PLANTED.set(bug);
    }
}
