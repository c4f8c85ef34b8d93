//! `riverrun log`: a server's files, looked at without a server. Only `repair --cut` changes anything.

mod dump;
mod partitions;
mod progress;
mod repair;
mod verify;

use clap::Subcommand;
use riverrun_tools::exit::{Exit, Failure};

/// Commands on files.
#[derive(Subcommand, Debug)]
pub(crate) enum LogCommand {
    /// Print the batches of a .log file or of a partition's directory
    Dump(dump::DumpArgs),
    /// Check every byte of a server's files, and list what is wrong
    Verify(verify::VerifyArgs),
    /// Show which records of a damaged partition can be kept, and with --cut, cut off the rest
    Repair(repair::RepairArgs),
}

pub(crate) fn run(command: LogCommand) -> Result<(), Failure> {
    match command {
        LogCommand::Dump(args) => dump::run(&args),
        LogCommand::Verify(args) => verify::run(&args),
        LogCommand::Repair(args) => repair::run(&args),
    }
}

/// An error of the log crate: either the system refused, or the files are damaged.
fn log_failure(error: &riverrun_log::LogError) -> Failure {
    let exit = match error {
        riverrun_log::LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Exit::NotFound
        }
        riverrun_log::LogError::Corrupt { .. }
        | riverrun_log::LogError::Unreadable { .. }
        | riverrun_log::LogError::Format { .. } => Exit::CheckFailed,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
