//! The errors of the client, and what the caller should do about each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};
use riverrun_records::BatchError;
use riverrun_types::{ErrorKind, NodeId, Offset};
use thiserror::Error;

use crate::topic_partition::TopicPartition;

/// A hint for a connection that the host refuses.
fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::ConnectionRefused { "; is the server running there?" } else { "" }
}

/// An error of the client or of the server that it talks to.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// No bootstrap server could be reached.
    #[error("cannot connect to {address}: {source}{}", hint(.source))]
    Connect {
        /// The server's address.
        address: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The connection broke. Whether the request took effect is not known.
    #[error("the connection to {address} was lost: {reason}")]
    Disconnected {
        /// The server's address.
        address: String,
        /// The cause.
        reason: String,
    },
    /// The servers that answer do not list this one. It may have left the cluster, or not have joined yet.
    #[error("the cluster has no server {}", .0.0)]
    UnknownNode(NodeId),
    /// No answer in time. Whether the request took effect is not known.
    #[error("no answer from {address} to {api} in {after:?}")]
    Timeout {
        /// The server's address.
        address: String,
        /// The request.
        api: ApiKey,
        /// How long the client waited.
        after: Duration,
    },
    /// The server and this client have no common version of the request.
    #[error("the server at {address} does not support {api}")]
    Unsupported {
        /// The server's address.
        address: String,
        /// The request.
        api: ApiKey,
    },
    /// The server answered with an error.
    #[error("{}", told(*.code, .message.as_deref()))]
    Server {
        /// Kafka's error.
        code: ErrorCode,
        /// The server's message.
        message: Option<String>,
    },
    /// The server's answer cannot be read.
    #[error("a malformed answer to {api}: {source}")]
    Malformed {
        /// The request.
        api: ApiKey,
        /// The error in its encoding.
        source: DecodeError,
    },
    /// The server's answer leaves out a requested item.
    #[error("the answer to {api} leaves out {missing}")]
    Incomplete {
        /// The request.
        api: ApiKey,
        /// The missing item.
        missing: String,
    },
    /// The server's answer is impossible.
    #[error("the answer to {api} is impossible: {what}")]
    Impossible {
        /// The request.
        api: ApiKey,
        /// The impossible part.
        what: String,
    },
    /// The request cannot be encoded in the version that the server supports.
    #[error("the request cannot be sent to this server: {0}")]
    Encode(#[from] EncodeError),
    /// A batch cannot be built.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The fetched bytes of a partition are damaged, or of an unknown format. A consumer reads them again with the
    /// next poll, unless a seek skips them.
    #[error("{partition} cannot be read at offset {offset}: {source}")]
    Unreadable {
        /// The partition.
        partition: TopicPartition,
        /// The first offset that could not be read.
        offset: Offset,
        /// The offset after the batch, if its header can be read.
        next: Option<Offset>,
        /// The kind of damage.
        source: BatchError,
    },
    /// The caller's input is wrong.
    #[error("{0}")]
    Invalid(String),
    /// A record could not be delivered within the delivery timeout.
    #[error(
        "{topic}-{partition}: not delivered within {after:?}; {}{}",
        tried(*.attempts, .server.as_deref()),
        cause(.last.as_ref())
    )]
    Undelivered {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// How long delivery was tried.
        after: Duration,
        /// How often its batch was sent.
        attempts: u32,
        /// The server that it was last sent to, or the partition's leader if it was never sent; `None` without a
        /// leader.
        server: Option<String>,
        /// The last obstacle; `None` if no server reported one.
        last: Option<Arc<ClientError>>,
    },
    /// A record did not get into the buffer within `max.block.ms`.
    #[error("not accepted within {after:?}: {what}{}", cause(.last.as_ref()))]
    Blocked {
        /// How long the sender waited.
        after: Duration,
        /// The resource that the sender waited for.
        what: String,
        /// The last obstacle of other records since one was delivered; `None` if there was none.
        last: Option<Arc<ClientError>>,
    },
    /// A record is too large for any request, or for the buffer.
    #[error("a record of up to {bytes} bytes exceeds {option}, {limit}")]
    RecordTooLarge {
        /// Most bytes that the record takes.
        bytes: usize,
        /// The option that limits it: `max.request.size` or `buffer.memory`.
        option: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// There is no such topic, or it has fewer partitions.
    #[error("there is no partition {0}")]
    UnknownPartition(TopicPartition),
    /// A partition has no offset to begin at, and the reset policy forbids choosing one.
    #[error("{partition} has no position to read from: {reason}")]
    NoPosition {
        /// The partition.
        partition: TopicPartition,
        /// The reason.
        reason: String,
    },
    /// The client has been closed.
    #[error("the client is closed")]
    Closed,
}

fn told(code: ErrorCode, message: Option<&str>) -> String {
    match message {
        None => code.to_string(),
        // A group of another protocol has the same code, and only the server's message tells the two apart: a single
        // word is merely the name of the failed item.
        Some(text) if code == ErrorCode::GROUP_ID_NOT_FOUND && text.contains(' ') => {
            format!("{} ({}): {text}", code.name(), code.0)
        }
        Some(text) => format!("{code}: {text}"),
    }
}

/// How often a batch was sent, and to which server.
fn tried(attempts: u32, server: Option<&str>) -> String {
    let to = |what: &str| server.map(|server| format!("{what} to {server}")).unwrap_or_default();
    match attempts {
        0 => format!("never sent{}", to("")),
        1 => format!("sent once{}", to(",")),
        _ => format!("sent {attempts} times{}", to(", last")),
    }
}

fn cause(last: Option<&Arc<ClientError>>) -> String {
    last.map(|error| format!("; last error: {error}")).unwrap_or_default()
}

impl ClientError {
    /// Turns an error code into a result.
    pub fn check(code: i16, message: Option<&str>) -> Result<(), Self> {
        match ErrorCode(code) {
            ErrorCode::NONE => Ok(()),
            code => Err(Self::Server { code, message: message.map(str::to_owned) }),
        }
    }

    /// The right reaction to the error: retry, fix the request, or give up.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::UnknownNode(_)
            | Self::Timeout { .. }
            | Self::Blocked { .. }
            | Self::Undelivered { .. } => ErrorKind::Retry,
            Self::Server { code, .. } if code.is_retriable() => ErrorKind::Retry,
            Self::Malformed { .. }
            | Self::Incomplete { .. }
            | Self::Impossible { .. }
            | Self::Unreadable { .. }
            | Self::Closed => ErrorKind::GiveUp,
            Self::Server { .. }
            | Self::Unsupported { .. }
            | Self::Encode(_)
            | Self::Batch(_)
            | Self::UnknownPartition(_)
            | Self::NoPosition { .. }
            | Self::RecordTooLarge { .. }
            | Self::Invalid(_) => ErrorKind::FixRequest,
        }
    }

    /// The server's error code, if the server reported the error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { code, .. } => Some(*code),
            Self::UnknownPartition(_) => Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_asks_whether_the_server_is_there() {
        let told = |kind: io::ErrorKind| {
            let source = Arc::new(io::Error::from(kind));
            ClientError::Connect { address: "127.0.0.1:9092".to_owned(), source }.to_string()
        };
        assert!(told(io::ErrorKind::ConnectionRefused).ends_with("; is the server running there?"));
        assert!(!told(io::ErrorKind::TimedOut).contains("running"));
    }

    #[test]
    fn undelivered_record_reports_its_attempts() {
        let (after, server) = (Duration::from_secs(15), Some("server 1 (a:1)".to_owned()));
        let last = Some(Arc::new(ClientError::Closed));
        for (attempts, server, last, told) in [
            (0, None, None, "never sent"),
            (0, server.clone(), None, "never sent to server 1 (a:1)"),
            (1, server.clone(), None, "sent once, to server 1 (a:1)"),
            (7, server, last, "sent 7 times, last to server 1 (a:1); last error: the client is closed"),
        ] {
            let error =
                ClientError::Undelivered { topic: "t".into(), partition: 3, after, attempts, server, last };
            assert_eq!(error.to_string(), format!("t-3: not delivered within 15s; {told}"));
        }
    }
}
