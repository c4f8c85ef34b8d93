//! Load: records sent on a schedule from several threads, and records read, with their outcomes.
//!
//! Owns the one loop that sends (to any [`target`] that takes records), the threads of `riverrun perf` that run it
//! ([`producing`]), its consumers ([`consuming`]) and the figures of both ([`figures`]); the workers of `riverrun
//! bench` run the same loop. Guarantees that a sender skips no record of its schedule, and that a latency ends when the
//! client gets the ack, not when the figures are collected.

pub(crate) mod clock;
pub mod consuming;
pub mod figures;
pub(crate) mod meter;
pub(crate) mod orders;
pub mod producing;
pub(crate) mod sending;
pub mod target;

use std::io;

use riverrun_client::ClientError;
use thiserror::Error;

/// The error that ended a load early.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The client could not go on.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread or task of the load panicked.
    #[error("a thread of the load failed")]
    Broken,
}

#[cfg(test)]
mod tests;
