//! Why a server does not start, with what to do.

use std::io;
use std::path::PathBuf;

use riverrun_journal::JournalError;
use riverrun_log::LogError;
use thiserror::Error;

use crate::config::ConfigError;
use crate::metadata::MetadataError;

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An option is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The metadata cannot be opened.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A log dir cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The disk does not let a journal be opened.
    #[error("a journal cannot be read: {source}. {way_out}")]
    Journal {
        /// The system's error, with the file.
        source: JournalError,
        /// The way out, and its price.
        way_out: String,
    },
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Bind {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The host of an address is not known.
    #[error(
        "cannot listen on {address}: its host is neither an address nor a name that is known here: {source}"
    )]
    Lookup {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// A directory is a queue's.
    #[error("{option}: a queue lies in {}: give the server a directory of its own", path.display())]
    QueueDir {
        /// The option that names the directory.
        option: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// A directory lies in a log dir of another server.
    #[error(
        "{option}: {} lies in {}, a log dir of cluster {cluster}, node {node}: give the server a directory of its own",
        path.display(), log_dir.display()
    )]
    OthersLogDir {
        /// The option that names the directory.
        option: &'static str,
        /// The directory.
        path: PathBuf,
        /// The log dir.
        log_dir: PathBuf,
        /// Whose it is.
        cluster: String,
        /// Whose it is.
        node: i32,
    },
    /// There is no queue where one is to be mounted.
    #[error("mounts: {mount}: {}: no queue here", dir.display())]
    NoQueue {
        /// The mount, as the option `mounts` has it.
        mount: String,
        /// The directory.
        dir: PathBuf,
    },
    /// Another server takes records for a queue.
    #[error("mounts: {mount}: {reason}")]
    MountTaken {
        /// The mount, as the option `mounts` has it.
        mount: String,
        /// The lock that is held, and the way out.
        reason: String,
    },
    /// A queue cannot be mounted.
    #[error("mounts: {mount}: {reason}")]
    Mount {
        /// The mount, as the option `mounts` has it.
        mount: String,
        /// The fault, and the way out.
        reason: String,
    },
    /// The process may have too few descriptors.
    #[error(
        "the system lets this process have {limit} open descriptors, and a server with this configuration needs at least \
         {needed}: raise the limit (ulimit -n, systemd's LimitNOFILE)"
    )]
    Descriptors {
        /// How many it may have.
        limit: u64,
        /// How many it needs.
        needed: u64,
    },
    /// The temporary directory cannot be made.
    #[error("cannot make a temporary directory: {0}")]
    TemporaryDirectory(io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The server's thread ended while it was starting.
    #[error("the server's thread died while starting")]
    Died,
}

/// The likely cause of an address that cannot be bound, where the system's error tells too little.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; is another server running there?",
        io::ErrorKind::AddrNotAvailable => "; it is no address of this machine",
        io::ErrorKind::PermissionDenied => "; ports below 1024 may need privileges",
        _ => "",
    }
}
