//! Why a run could not be made.

use std::io;

use riverrun_client::ClientError;
use riverrun_types::ErrorKind;

use crate::plan::PLACES_MAX;
use crate::worker::LoadError;

/// Why a run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server refused or could not be reached.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Producers or consumers could not be set up.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A topic could not be made.
    #[error("topic {topic}: {error}")]
    Topic {
        /// Which.
        topic: String,
        /// What the server said.
        error: ClientError,
    },
    /// A topic that was there before is not as the plan wants it.
    #[error("topic {topic} is there with {found} partition(s), and the run wants {wanted}")]
    Partitions {
        /// Which.
        topic: String,
        /// How many the plan wants.
        wanted: u32,
        /// How many there are.
        found: usize,
    },
    /// Topics that are only read are not there, and no earlier run of the same command makes them.
    #[error("there is nothing to read: no topic {}", named(.topics))]
    Missing {
        /// Which.
        topics: Vec<String>,
    },
    /// A topic that was there before holds records, which the run would take for its own.
    #[error(
        "topic {topic} holds records already, which would count as the run's own: delete it, or name another"
    )]
    NotEmpty {
        /// Which.
        topic: String,
    },
    /// A topic that was there before stays, with what an earlier run of the same command sends to it, which this run would
    /// take for its own.
    #[error(
        "topic {topic} is there already, so that no run deletes it, and what an earlier run sends to it would count as this \
         one's: delete it, name another, or make one run of it"
    )]
    SentToBefore {
        /// Which.
        topic: String,
    },
    /// All consumers together would have more partitions than a process can keep the names of.
    #[error(
        "all consumers together would be assigned {partitions} partitions, more than {most}: a topic counts with all of its \
         partitions, for each consumer that is in no group with others",
        most = PLACES_MAX
    )]
    Assigned {
        /// How many.
        partitions: u64,
    },
    /// The plan wants more replicas than there are servers.
    #[error(
        "replicationFactor {wanted} with {servers} server(s); --replication-factor {servers} runs it with fewer"
    )]
    Replication {
        /// What the plan wants.
        wanted: i16,
        /// What there is.
        servers: usize,
    },
    /// Producers and consumers did not all come to work in time.
    #[error("not ready after {after_s} s: {acked} of {sent} records acked, {received} of {expected} read{}", cause(.error.as_ref()))]
    NotReady {
        /// How long that was waited for.
        after_s: u64,
        /// Records sent to find out.
        sent: u64,
        /// Of these, acked.
        acked: u64,
        /// Read by all groups.
        received: u64,
        /// To be read by all groups.
        expected: u64,
        /// The first error.
        error: Option<String>,
    },
    /// A worker elsewhere failed.
    #[error("worker {address}: {message}")]
    Worker {
        /// Which.
        address: String,
        /// What it said.
        message: String,
    },
    /// The disk cannot be filled, or freed again.
    #[error("diskFullMinutes: {0}")]
    DiskFull(String),
    /// It was stopped before it was done.
    #[error("stopped before it was done")]
    Stopped,
    /// It was stopped, and then again while its topics were being deleted.
    #[error("stopped at once: topics that were made for it stay behind")]
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
    /// What the caller should do.
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

/// Topics that an error names; of more it says how many.
const NAMED_MAX: usize = 10;

fn named(topics: &[String]) -> String {
    let (told, more) = topics.split_at(topics.len().min(NAMED_MAX));
    let of_more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    told.join(", ") + &of_more
}

fn cause(error: Option<&String>) -> String {
    error.map_or_else(String::new, |error| format!("; {error}"))
}
