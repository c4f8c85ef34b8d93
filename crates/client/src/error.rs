//! What can go wrong in the client, and what the caller should do about it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use riverrun_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};
use riverrun_records::BatchError;
use riverrun_types::{ErrorKind, NodeId, Offset};
use thiserror::Error;

use crate::topic_partition::TopicPartition;

/// A question that helps where somebody is at the address, and nobody listens.
fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::ConnectionRefused { "; is the server running there?" } else { "" }
}

/// An error of the client or of the server that it talks to.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// No server of the list could be reached.
    #[error("cannot connect to {address}: {source}{}", hint(.source))]
    Connect {
        /// Where.
        address: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The connection broke. Whether the request took effect is not known.
    #[error("the connection to {address} was lost: {reason}")]
    Disconnected {
        /// Where.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The servers that answer do not name this one among those of the cluster. It may have left, or be yet to come.
    #[error("the cluster has no server {}", .0.0)]
    UnknownNode(NodeId),
    /// No answer in time. Whether the request took effect is not known.
    #[error("no answer from {address} to {api} in {after:?}")]
    Timeout {
        /// Where.
        address: String,
        /// What was asked.
        api: ApiKey,
        /// How long we waited.
        after: Duration,
    },
    /// The server does not know the request in any version that this client knows.
    #[error("the server at {address} does not support {api}")]
    Unsupported {
        /// Where.
        address: String,
        /// What was asked.
        api: ApiKey,
    },
    /// The server answered with an error.
    #[error("{}", told(*.code, .message.as_deref()))]
    Server {
        /// Kafka's error.
        code: ErrorCode,
        /// What the server said about it.
        message: Option<String>,
    },
    /// The server's answer cannot be read.
    #[error("a malformed answer to {api}: {source}")]
    Malformed {
        /// What was asked.
        api: ApiKey,
        /// What is wrong.
        source: DecodeError,
    },
    /// The server's answer leaves out something that was asked for.
    #[error("the answer to {api} says nothing of {missing}")]
    Incomplete {
        /// What was asked.
        api: ApiKey,
        /// What is not there.
        missing: String,
    },
    /// The server's answer says what cannot be.
    #[error("the answer to {api} cannot be true: {what}")]
    Impossible {
        /// What was asked.
        api: ApiKey,
        /// What it says.
        what: String,
    },
    /// The request cannot be written in the version that the server knows.
    #[error("the request cannot be sent to this server: {0}")]
    Encode(#[from] EncodeError),
    /// A batch of ours cannot be built.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// What was read of a partition is damaged, or in no form that is known. A consumer reads it again with the next poll,
    /// unless a seek takes it past.
    #[error("{partition} cannot be read at offset {offset}: {source}")]
    Unreadable {
        /// The partition.
        partition: TopicPartition,
        /// The first offset that could not be read.
        offset: Offset,
        /// The offset after the batch, if its header tells.
        next: Option<Offset>,
        /// What is wrong.
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
        /// How long we tried.
        after: Duration,
        /// How often its batch was sent.
        attempts: u32,
        /// The server that it was sent to last, or that leads the partition where it was never sent; none if nobody does.
        server: Option<String>,
        /// What stood in the way last; none where nobody has said anything.
        last: Option<Arc<ClientError>>,
    },
    /// A record could not even be put into the buffer within `max.block.ms`.
    #[error("not taken within {after:?}: {what}{}", cause(.last.as_ref()))]
    Blocked {
        /// How long we waited.
        after: Duration,
        /// What was waited for.
        what: String,
        /// What has stood in the way of other records since one was delivered last; none if nothing has.
        last: Option<Arc<ClientError>>,
    },
    /// A record that no request, or no buffer, may hold.
    #[error("a record of up to {bytes} bytes is longer than {option}, {limit}")]
    RecordTooLarge {
        /// What the record takes at most.
        bytes: usize,
        /// The option that it is too long for: `max.request.size` or `buffer.memory`.
        option: &'static str,
        /// What that allows.
        limit: usize,
    },
    /// There is no such topic, or it has fewer partitions.
    #[error("there is no partition {0}")]
    UnknownPartition(TopicPartition),
    /// There is no offset to begin with, and none may be chosen.
    #[error("{partition} has no position to read from: {reason}")]
    NoPosition {
        /// The partition.
        partition: TopicPartition,
        /// Why not.
        reason: String,
    },
    /// The client has been closed.
    #[error("the client is closed")]
    Closed,
}

fn told(code: ErrorCode, message: Option<&str>) -> String {
    match message {
        None => code.to_string(),
        // A group of another protocol has this code as well, and only the server's words tell which of the two it is:
        // more than one, for the name of what failed is no more than that.
        Some(text) if code == ErrorCode::GROUP_ID_NOT_FOUND && text.contains(' ') => {
            format!("{} ({}): {text}", code.name(), code.0)
        }
        Some(text) => format!("{code}: {text}"),
    }
}

/// How often a batch was sent, and to whom.
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
    /// An error code, as a result.
    pub fn check(code: i16, message: Option<&str>) -> Result<(), Self> {
        match ErrorCode(code) {
            ErrorCode::NONE => Ok(()),
            code => Err(Self::Server { code, message: message.map(str::to_owned) }),
        }
    }

    /// What the caller should do.
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

    /// The server's error code, if it is one.
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
    fn what_was_not_delivered_tells_what_was_tried() {
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
