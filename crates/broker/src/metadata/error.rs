//! Errors of metadata: changes that are refused, and files that cannot be used.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use riverrun_env::{Vanishing, is_shortage};
use riverrun_types::ErrorKind;
use thiserror::Error;

use super::frames::FrameError;
use super::store::ACCEPT_METADATA_LOSS_FILE;

/// The answer to a client that wants to change a mounted topic.
pub(crate) const NOT_CHANGED: &str = "The topic is a queue of this machine: it is changed where it lies.";
/// Upper bound of names that an error shows.
const SHOWN_MAX: usize = 5;

/// The first of these names, and dots for the others.
pub(super) fn first_few(names: impl IntoIterator<Item = impl Display>) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(SHOWN_MAX).map(|name| name.to_string()).collect();
    let dots = if names.next().is_some() { ", ..." } else { "" };
    first.join(", ") + dots
}

/// Why a change to a topic is refused. Nothing has changed. The texts are for clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TopicError {
    /// The name cannot be a topic's.
    #[error("{0}")]
    InvalidName(String),
    /// The name is kept for a topic of the server's own.
    #[error("The name is kept for a topic of the server's own, which this version does not make.")]
    Reserved,
    /// There is a topic of this name.
    #[error("Topic '{0}' already exists.")]
    Exists(String),
    /// Another topic's name differs only in `.` and `_`.
    #[error("Topic '{name}' collides with existing topic: {other}")]
    Collides {
        /// The name that was asked for.
        name: String,
        /// The topic that is there.
        other: Arc<str>,
    },
    /// There is no such topic.
    #[error("This server does not host this topic-partition.")]
    Unknown,
    /// The topic is mounted: clients cannot change it.
    #[error("Topic '{0}': {NOT_CHANGED}")]
    Mounted(String),
    /// The queue is a topic already.
    #[error("The queue is mounted as topic '{other}' already.")]
    MountedTwice {
        /// The topic's name.
        other: Arc<str>,
    },
    /// The number of partitions is not possible.
    #[error("{0}")]
    InvalidPartitions(String),
    /// The server has all the partitions that it takes.
    #[error("{0}")]
    TooManyPartitions(String),
    /// No log dir takes new partitions.
    #[error("No log directory takes new partitions: each is cordoned (cordoned.log.dirs) or has failed.")]
    NoLogDir,
}

/// Why the metadata could not be read or changed.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// Its file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A running server owns the directory.
    #[error("{} is in use by another running server", .0.display())]
    InUse(PathBuf),
    /// A running server owns a log dir.
    #[error(
        "log dir {}: a running server{owner} uses it: stop that one, or name a directory of this server's own",
        path.display()
    )]
    LogDirInUse {
        /// The log dir.
        path: PathBuf,
        /// The cluster and node that the log dir belongs to, as ` of cluster ..., node ...`; empty where that is not known.
        owner: String,
    },
    /// A file does not read.
    #[error("the metadata file {} cannot be used: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The flaw.
        source: FrameError,
    },
    /// The checksums are right, but this program does not understand the content.
    #[error("the metadata file {} cannot be used: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Metadata that was once durable is not there any more.
    #[error("{source}. {way_out}")]
    Lost {
        /// The error of the file that cannot be read.
        source: Box<MetadataError>,
        /// The advice for the operator.
        way_out: String,
    },
    /// The log dirs have topics, or partitions of topics, that the metadata does not know.
    #[error(
        "the metadata in {} does not know the topics or partitions of {count} directories with records: {shown}. \
         Restore it from a copy that does; or make a file {ACCEPT_METADATA_LOSS_FILE} in it to start with what it knows: \
         directories of topics are then renamed to lost-<topic id> and left alone, and partitions of topics that it knows \
         are taken back into these",
        meta.display()
    )]
    UnknownTopics {
        /// The metadata's directory.
        meta: PathBuf,
        /// The number of directories.
        count: usize,
        /// The first of them.
        shown: String,
    },
    /// A partition that the metadata has lost cannot be taken back where it lies.
    #[error("the partition in {}, which the metadata does not know, cannot be taken back: {reason}", path.display())]
    NotTakenBack {
        /// Its directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A metadata mark is ahead of the metadata.
    #[error(
        "the metadata in {} is older than what this server has done: it says {has}, and {} says {told}. Restore its \
         newest copy; or make a file {ACCEPT_METADATA_LOSS_FILE} in it to start with this one: starts and producer ids \
         then go on above all that were used, and other changes that it lacks are lost",
        meta.display(), mark.display()
    )]
    Older {
        /// The metadata's directory.
        meta: PathBuf,
        /// The progress of the metadata.
        has: String,
        /// The mark.
        mark: PathBuf,
        /// The progress that the mark tells.
        told: String,
    },
    /// There is no metadata, and none may be made.
    #[error(
        "no metadata is in {}, and data.dir.create=false lets no start make any: mount the disk that has it; or start once \
         with data.dir.create=true, for a new cluster without topics",
        .0.display()
    )]
    Absent(PathBuf),
    /// There is no metadata, and a log dir belongs to a cluster.
    #[error(
        "log dir {}: it belongs to cluster {cluster}, node {node}, but there is no metadata in {}: restore that from a copy, \
         or start with other log dirs",
        path.display(), meta.display()
    )]
    Missing {
        /// The log dir.
        path: PathBuf,
        /// The cluster that it belongs to.
        cluster: String,
        /// The node that it belongs to.
        node: i32,
        /// The directory without metadata.
        meta: PathBuf,
    },
    /// The metadata is of another node than the configured one.
    #[error(
        "{} belongs to node {found}, but node.id says {node}: set node.id={found}, or start with another data.dir",
        path.display()
    )]
    OtherNode {
        /// The metadata's directory.
        path: PathBuf,
        /// The node that it belongs to.
        found: i32,
        /// The configured node.
        node: i32,
    },
    /// The directory is of another cluster or node.
    #[error(
        "{} belongs to cluster {found_cluster}, node {found_node}, but this server is cluster {cluster}, node {node}: \
         start the server with its own directories, or with that cluster's metadata",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The cluster that it belongs to.
        found_cluster: String,
        /// The node that it belongs to.
        found_node: i32,
        /// This server's cluster.
        cluster: String,
        /// This server's node.
        node: i32,
    },
    /// A log dir cannot be used as it stands.
    #[error("log dir {}: {reason}", path.display())]
    LogDir {
        /// The directory.
        path: PathBuf,
        /// The flaw, and what to do.
        reason: String,
    },
    /// A journal that may hold records is missing.
    #[error("journal.dirs: {0}")]
    Journals(String),
    /// The change is larger than a metadata file takes at once.
    #[error("the request changes too much at once; split it")]
    TooLarge,
    /// The topic of group offsets cannot be made.
    #[error("the topic of group offsets cannot be made: {0}")]
    OffsetsTopic(String),
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A file or directory in use is not in its place: no start would find anything written there.
    #[error("{} {how}", path.display())]
    Vanished {
        /// The file or directory.
        path: PathBuf,
        /// The way in which it vanished.
        how: Vanishing,
    },
    /// An earlier write or sync failed, or a file or directory in use vanished: only a restart finds out what the disk holds.
    #[error("metadata cannot change until the server is restarted: {0}")]
    Poisoned(String),
}

impl MetadataError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// The coarse kind, which tells the caller what to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } if is_shortage(source) => ErrorKind::Retry,
            Self::InUse(_) | Self::LogDirInUse { .. } | Self::Stopping => ErrorKind::Retry,
            Self::TooLarge => ErrorKind::FixRequest,
            _ => ErrorKind::GiveUp,
        }
    }
}
