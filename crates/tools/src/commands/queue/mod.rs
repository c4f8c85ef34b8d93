//! `riverrun queue`: the embedded queue from the command line, without a server.

mod append;
#[cfg(feature = "bench")]
mod bench;
mod create;
mod info;
mod partition;
mod tail;

use std::path::Path;

use clap::Subcommand;
use riverrun_queue::{Queue, QueueError};

#[cfg(not(feature = "bench"))]
use super::bench;
use crate::exit::{Exit, Failure};

/// Commands on queues.
#[derive(Subcommand, Debug)]
pub enum QueueCommand {
    /// Make an empty queue in a directory
    Create(create::CreateArgs),
    /// Append each line of stdin as a record
    Append(append::AppendArgs),
    /// Print records of a queue or of a server's partition, and with --follow, wait for more
    Tail(tail::TailArgs),
    /// Show the state of a queue
    Info(info::InfoArgs),
    /// Read every record of a queue and check every batch
    Verify(info::InfoArgs),
    /// Measure the latency of a paced stream through one queue, or through several with services between them
    Bench(bench::BenchArgs),
}

/// Does what the command line says.
pub fn run(command: QueueCommand) -> Result<(), Failure> {
    match command {
        QueueCommand::Create(args) => create::run(&args),
        QueueCommand::Append(args) => append::run(&args),
        QueueCommand::Tail(args) => tail::run(&args),
        QueueCommand::Info(args) => info::run(&args),
        QueueCommand::Verify(args) => info::verify(&args),
        QueueCommand::Bench(args) => bench::run(&args),
    }
}

/// Opens a queue to write to it, and says what a recovery had to set aside.
fn open(dir: &Path) -> Result<Queue, QueueError> {
    let queue = Queue::open(dir)?;
    let recovery = queue.recovery();
    if let (Some((path, at)), Some(cut_to)) = (&recovery.cut_at, &recovery.cut_to) {
        let (path, cut_to) = (path.display(), cut_to.display());
        tracing::warn!("{path} was not whole from byte {at} on: what followed was moved to {cut_to}");
    }
    Ok(queue)
}

/// An error of the queue, with the exit code that says what to do about it.
fn queue_failure(error: &QueueError) -> Failure {
    let exit = match error {
        QueueError::NoQueue { .. } => Exit::NotFound,
        QueueError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Exit::NotFound,
        QueueError::Exists { .. }
        | QueueError::Taken { .. }
        | QueueError::NameInUse { .. }
        | QueueError::Busy => Exit::Conflict,
        QueueError::Damaged { .. } | QueueError::Version { .. } => Exit::CheckFailed,
        QueueError::Options(_)
        | QueueError::TooLarge { .. }
        | QueueError::OffsetOutOfRange { .. }
        | QueueError::PlaceLost { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
