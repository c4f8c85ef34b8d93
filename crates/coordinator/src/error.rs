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
        /// Which record it is.
        record: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
    /// The value was written by a newer version than this one reads.
    #[error("a {record} record has version {version}, which is newer than this server reads")]
    NewerVersion {
        /// Which record it is.
        record: &'static str,
        /// The version it names.
        version: i16,
    },
    /// The record contradicts what was replayed before it.
    #[error("a {record} record of group {group:?} contradicts the records before it: {detail}")]
    Contradiction {
        /// Which record it is.
        record: &'static str,
        /// The group.
        group: String,
        /// What does not fit.
        detail: &'static str,
    },
    /// The bounds of groups leave no room for what it tells of.
    #[error("there is no room for what a group record tells of")]
    NoRoom,
}

impl ReplayError {
    /// What to do: a log that does not replay needs someone to look.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::GiveUp
    }
}
