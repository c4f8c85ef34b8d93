//! The error of a run that could not be made.

use std::io;

use riverrun_client::ClientError;
use riverrun_types::ErrorKind;

use crate::plan::PLACES_MAX;
use crate::worker::LoadError;

/// The reason why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server refused or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Producers or consumers could not be set up.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A topic could not be created.
    #[error("topic {topic}: {error}")]
    Topic {
        /// Name of the topic.
        topic: String,
        /// The server's error.
        error: ClientError,
    },
    /// A topic that existed before has another number of partitions than the plan.
    #[error("topic {topic} has {found} partition(s), and the run needs {wanted}")]
    Partitions {
        /// Name of the topic.
        topic: String,
        /// Partitions that the plan asks for.
        wanted: u32,
        /// Partitions that it has.
        found: usize,
    },
    /// Topics that are only read do not exist, and no earlier run of the same command creates them.
    #[error("there is nothing to read: no topic {}", named(.topics))]
    Missing {
        /// Names of the topics.
        topics: Vec<String>,
    },
    /// A topic that existed before holds records, which the run would count as its own.
    #[error(
        "topic {topic} holds records already, which would count as the run's own: delete it, or name another"
    )]
    NotEmpty {
        /// Name of the topic.
        topic: String,
    },
    /// A topic that existed before stays, with the records that an earlier run of the same command sends to it. This
    /// run would count them as its own.
    #[error(
        "topic {topic} exists already, so that no run deletes it, and records of an earlier run would count as this \
         one's: delete it, name another, or make one run of it"
    )]
    SentToBefore {
        /// Name of the topic.
        topic: String,
    },
    /// All consumers together would have more partitions than a process can keep the names of.
    #[error(
        "all consumers together would be assigned {partitions} partitions, more than {most}: a topic counts with all of its \
         partitions, for each consumer that is in no group with others",
        most = PLACES_MAX
    )]
    Assigned {
        /// Number of partitions.
        partitions: u64,
    },
    /// The plan asks for more replicas than there are servers.
    #[error(
        "replicationFactor {wanted} with {servers} server(s); --replication-factor {servers} runs it with fewer"
    )]
    Replication {
        /// Replication factor of the plan.
        wanted: i16,
        /// Number of servers.
        servers: usize,
    },
    /// Producers and consumers were not all ready in time.
    #[error("not ready after {after_s} s: {acked} of {sent} records acked, {received} of {expected} read{}", cause(.error.as_ref()))]
    NotReady {
        /// Length of the wait, in seconds.
        after_s: u64,
        /// Records sent as probes.
        sent: u64,
        /// Number of them that were acked.
        acked: u64,
        /// Number of reads, over all groups.
        received: u64,
        /// Number of reads expected, over all groups.
        expected: u64,
        /// The first error.
        error: Option<String>,
    },
    /// A worker in another process failed.
    #[error("worker {address}: {message}")]
    Worker {
        /// Address of the worker.
        address: String,
        /// Its message.
        message: String,
    },
    /// The disk cannot be filled, or freed again.
    #[error("diskFullMinutes: {0}")]
    DiskFull(String),
    /// The run was stopped before it was done.
    #[error("stopped before it was done")]
    Stopped,
    /// The run was stopped, and stopped again while its topics were being deleted.
    #[error("stopped at once: topics that the run created stay on the server")]
    StoppedAtOnce,
    /// The server's process ended before there was anything to measure.
    #[error("the server's process {pid} has ended")]
    ServerEnded {
        /// Its id.
        pid: u32,
    },
    /// The server's process cannot be watched.
    #[error("{0}")]
    Process(#[from] io::Error),
}

impl RunError {
    /// The caller's possible reaction.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Client(error) | Self::Topic { error, .. } => error.kind(),
            Self::Load(error) => error.kind(),
            Self::Partitions { .. }
            | Self::Missing { .. }
            | Self::NotEmpty { .. }
            | Self::SentToBefore { .. }
            | Self::Assigned { .. }
            | Self::Replication { .. }
            | Self::DiskFull(_)
            | Self::Process(_) => ErrorKind::FixRequest,
            Self::NotReady { .. }
            | Self::Worker { .. }
            | Self::Stopped
            | Self::StoppedAtOnce
            | Self::ServerEnded { .. } => ErrorKind::Retry,
        }
    }
}

/// Most topics that an error names; the rest are counted.
const NAMED_MAX: usize = 10;

fn named(topics: &[String]) -> String {
    let (told, more) = topics.split_at(topics.len().min(NAMED_MAX));
    let of_more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    told.join(", ") + &of_more
}

fn cause(error: Option<&String>) -> String {
    error.map_or_else(String::new, |error| format!("; {error}"))
}
