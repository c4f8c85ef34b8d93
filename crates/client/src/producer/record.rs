//! A record to send, and its place on the server.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_records::Header;
use riverrun_types::{Offset, TimestampMs};

use crate::error::ClientError;

/// Most bytes of a record besides its key, value and headers: lengths, deltas, attributes.
const RECORD_OVERHEAD_BYTES: usize = 40;
/// Most bytes of a header besides its key and value.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// A record to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerRecord {
    /// The topic.
    pub topic: String,
    /// The partition; `None` to leave it to the partitioner.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Bytes>,
    /// The value; `None` is a tombstone in a compacted topic.
    pub value: Option<Bytes>,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// When it happened; `None` for now.
    pub timestamp: Option<TimestampMs>,
}

impl ProducerRecord {
    /// A record with a value and nothing else.
    pub fn new(topic: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), value: Some(value.into()), ..Self::default() }
    }

    /// The record with this key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Its headers, as a batch takes them.
    pub(super) fn header_refs(&self) -> Vec<Header<'_>> {
        self.headers
            .iter()
            .map(|(name, value)| Header { key: name.as_bytes(), value: value.as_deref() })
            .collect()
    }

    /// The record, borrowed.
    pub(super) fn borrow<'a>(&'a self, headers: &'a [Header<'a>]) -> RecordRef<'a> {
        RecordRef {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers,
            timestamp: self.timestamp,
        }
    }
}

/// A record to send whose bytes are borrowed: they are copied once, into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; `None` to leave it to the partitioner.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// Headers, in order; names may repeat.
    pub headers: &'a [Header<'a>],
    /// When it happened; `None` for now.
    pub timestamp: Option<TimestampMs>,
}

impl<'a> RecordRef<'a> {
    /// A record with a value and nothing else.
    pub fn new(topic: &'a str, value: &'a [u8]) -> Self {
        Self { topic, partition: None, key: None, value: Some(value), headers: &[], timestamp: None }
    }

    /// The record with this key.
    #[must_use]
    pub fn with_key(self, key: &'a [u8]) -> Self {
        Self { key: Some(key), ..self }
    }

    /// The record for this partition.
    #[must_use]
    pub fn with_partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// Refuses invalid partitions and timestamps. On the wire, a timestamp below 0 means none.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        match self.timestamp {
            Some(TimestampMs(time)) if time < 0 => {
                Err(ClientError::Invalid(format!("a record's timestamp {time} is below 0")))
            }
            _ => Ok(()),
        }
    }

    /// Most bytes in a batch.
    pub fn size_bound_bytes(&self) -> usize {
        let field = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let header = |header: &Header<'_>| header.key.len() + field(header.value) + HEADER_OVERHEAD_BYTES;
        let headers: usize = self.headers.iter().map(header).sum();
        RECORD_OVERHEAD_BYTES + field(self.key) + field(self.value) + headers
    }
}

/// The place of a delivered record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Its offset; -1 if the server does not send it: with acks=0, and for a batch that it recognised as a duplicate
    /// from long before.
    pub offset: Offset,
    /// Its timestamp as the server stores it.
    pub timestamp: TimestampMs,
}
