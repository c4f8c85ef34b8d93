//! One coarse kind for every error of this project: what the caller should do about it.

/// The right reaction to an error. Every error type of the library crates has a `kind()` that returns one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later: the resource is busy, moving or full for the moment.
    Retry,
    /// The request itself is wrong; sending it again gives the same answer.
    FixRequest,
    /// The storage or the process behind it is damaged; an operator has to look.
    GiveUp,
}
