//! Fetching: sessions that remember what a client fetches, reading what it may see, and what becomes of readers whose
//! records have left memory.

pub(crate) mod catch_up;
pub(crate) mod held_files;
pub(crate) mod read;
pub(crate) mod readers;
pub(crate) mod session;
