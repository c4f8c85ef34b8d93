//! A record on its way to the server, and where it came to lie.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_records::Header;
use riverrun_types::{Offset, TimestampMs};

use crate::error::ClientError;

/// Bytes that a record takes beside its key, value and headers, at most: lengths, deltas, attributes.
const RECORD_OVERHEAD_BYTES: usize = 40;
/// Bytes that a header takes beside its key and value, at most.
const HEADER_OVERHEAD_BYTES: usize = 10;

/// A record to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerRecord {
    /// The topic.
    pub topic: String,
    /// The partition; none to leave it to the partitioner.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Bytes>,
    /// The value; none marks a deletion where a topic is compacted.
    pub value: Option<Bytes>,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// When it happened; none for now.
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

/// A record to send whose bytes the caller keeps: they are copied once, into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; none to leave it to the partitioner.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value; none marks a deletion where a topic is compacted.
    pub value: Option<&'a [u8]>,
    /// Headers, in order; names may repeat.
    pub headers: &'a [Header<'a>],
    /// When it happened; none for now.
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

    /// Refuses what no record may be. Times below 0 say on the wire that there is none.
    pub(super) fn check(&self) -> Result<(), ClientError> {
        match self.timestamp {
            Some(TimestampMs(time)) if time < 0 => {
                Err(ClientError::Invalid(format!("a record's timestamp is {time}, and is below 0")))
            }
            _ => Ok(()),
        }
    }

    /// Bytes in a batch at most.
    pub fn size_bound_bytes(&self) -> usize {
        let field = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let header = |header: &Header<'_>| header.key.len() + field(header.value) + HEADER_OVERHEAD_BYTES;
        let headers: usize = self.headers.iter().map(header).sum();
        RECORD_OVERHEAD_BYTES + field(self.key) + field(self.value) + headers
    }
}

/// Where a record came to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMetadata {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// Its offset; -1 where the server does not say: with acks=0, and for a batch that it recognised as one it
    /// had got long before.
    pub offset: Offset,
    /// Its timestamp as the server keeps it.
    pub timestamp: TimestampMs,
}
