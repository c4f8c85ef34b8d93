//! The server in process, over real sockets, with raw frames: every request in every version, bytes that are
//! wrong in every way we know, and what a client may rely on.

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod framing;
mod topic_admin;
mod versions;
