//! Load: records sent on a schedule from several threads, and records read, with what became of them.
//!
//! Owns the loop that sends over anything that can take records ([`target`]), its threads ([`producing`]), the consumers
//! ([`consuming`]) and the figures that both leave behind ([`figures`]). Guarantees that a sender never skips a record
//! of its schedule and that a latency ends when the client heard of the ack, not when somebody looked.

pub mod consuming;
pub mod figures;
pub mod producing;
mod sending;
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
