//! The crate's error: a record of `__consumer_offsets` that cannot be replayed. Request errors travel in responses.

use riverrun_protocol::DecodeError;
use riverrun_types::ErrorKind;
use thiserror::Error;

/// Why a record could not be replayed. The shard is unchanged.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The key is not one of Kafka's coordinator keys, cut or garbled.
    #[error("the key of a group record does not decode: {0}")]
    Key(#[source] DecodeError),
    /// The value does not decode in the version that it names.
    #[error("the value of a {record} record does not decode: {source}")]
    Value {
        /// Kind of the record.
        record: &'static str,
        /// The decoder's error.
        source: DecodeError,
    },
    /// The value was written by a newer version than this one reads.
    #[error("a {record} record has version {version}, which is newer than this server reads")]
    NewerVersion {
        /// Kind of the record.
        record: &'static str,
        /// The version in the value.
        version: i16,
    },
    /// The record contradicts what was replayed before it.
    #[error("a {record} record of group {group:?} contradicts the records before it: {detail}")]
    Contradiction {
        /// Kind of the record.
        record: &'static str,
        /// The group.
        group: String,
        /// The contradiction.
        detail: &'static str,
    },
    /// The bounds of groups leave no room for the record's content.
    #[error("there is no room for the content of a group record")]
    NoRoom,
}

impl ReplayError {
    /// The right reaction: a log that does not replay needs an operator.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::GiveUp
    }
}
