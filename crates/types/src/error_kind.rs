//! One coarse kind for every error of ours: what the caller should do about it.

/// What to do about an error. Every error type of the library crates answers `kind()` with one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may succeed later: the resource is busy, moving or full for the moment.
    Retry,
    /// The request itself is wrong; sending it again gives the same answer.
    FixRequest,
    /// The storage or the process behind it is damaged; someone has to look.
    GiveUp,
}
