//! What a producer can be told.

use std::time::Duration;

use riverrun_records::Compression;
use riverrun_types::Acks;

use crate::cluster::ClusterOptions;
use crate::error::ClientError;

/// How a producer sends.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The servers.
    pub cluster: ClusterOptions,
    /// Who must have a record before it counts as delivered.
    pub acks: Acks,
    /// Whether the server recognises what it has got already, so that retries neither repeat nor reorder records.
    /// Needs [`Acks::All`].
    pub idempotent: bool,
    /// How batches are compressed.
    pub compression: Compression,
    /// The codec's level; none for its default.
    pub compression_level: Option<i32>,
    /// How long a batch waits for more records.
    pub linger: Duration,
    /// Bytes of a batch, before compression, at which it is sent without waiting. A longer record goes alone.
    pub batch_bytes: usize,
    /// Bytes of records that are not delivered yet at most; sending waits above that.
    pub buffer_bytes: usize,
    /// Bytes of one request's records, and so of one record, at most.
    pub request_bytes_max: usize,
    /// How long a record is tried for. A request that is under way at that time is still waited for.
    pub delivery_timeout: Duration,
}

impl ProducerOptions {
    /// Defaults: every record acknowledged by all, once and in order.
    pub fn new(cluster: ClusterOptions) -> Self {
        Self {
            cluster,
            acks: Acks::All,
            idempotent: true,
            compression: Compression::None,
            compression_level: None,
            linger: Duration::from_millis(5),
            batch_bytes: 128 * 1024,
            buffer_bytes: 32 * 1024 * 1024,
            request_bytes_max: 1024 * 1024,
            delivery_timeout: Duration::from_mins(2),
        }
    }

    pub(super) fn check(&self) -> Result<(), ClientError> {
        let invalid = |text: &str| Err(ClientError::Invalid(text.to_owned()));
        if self.idempotent && self.acks != Acks::All {
            return invalid("an idempotent producer needs acks=all");
        }
        if let Some(level) = self.compression_level {
            self.compression.check_level(level)?;
        }
        if self.batch_bytes == 0 || self.request_bytes_max == 0 {
            return invalid("batch_bytes and request_bytes_max are at least 1");
        }
        if self.buffer_bytes < self.request_bytes_max || u32::try_from(self.buffer_bytes).is_err() {
            return invalid("buffer_bytes lies between request_bytes_max and 4 GiB");
        }
        if self.cluster.in_flight_max == 0 {
            return invalid("in_flight_max is at least 1");
        }
        Ok(())
    }

    /// `acks` as the wire has it.
    pub(super) fn wire_acks(&self) -> i16 {
        match self.acks {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}
