//! Load: records sent on a schedule from several threads, and records read, with what became of them.
//!
//! Owns the one loop that sends (over anything that can take records, see [`target`]), the threads of `riverrun perf` that
//! run it ([`producing`]), its consumers ([`consuming`]) and the figures that both leave behind ([`figures`]); the workers
//! of `riverrun bench` run the same loop. Guarantees that a sender never skips a record of its schedule and that a latency
//! ends when the client heard of the ack, not when somebody looked.

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

/// Why a load ended before its time.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The client could not go on.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No thread could be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread or task of the load failed in itself.
    #[error("a thread of the load failed")]
    Broken,
}

#[cfg(test)]
mod tests;
