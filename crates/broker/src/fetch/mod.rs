//! Fetching: sessions that remember what a client fetches, and reading what it may see.

pub(crate) mod read;
pub(crate) mod session;
