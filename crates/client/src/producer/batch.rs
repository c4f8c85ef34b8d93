//! One batch, from its first record to its outcome.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_records::{
    BatchBuilder, BatchError, BatchOptions, Compression, Header, ProducerStamp, patch_producer,
};
use riverrun_types::TimestampMs;
use tokio::time::Instant;

use super::delivery::{BatchPlace, Delivery, Outcome};
use super::record::ProducerRecord;
use crate::error::ClientError;

/// Room that a batch's buffer has at first.
const CAPACITY_BYTES: usize = 8 * 1024;

/// A partition of the producer's: the topic by its place in the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub(super) topic: usize,
    pub(super) partition: i32,
}

/// What every batch of a producer has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchShape {
    pub(super) compression: Compression,
    pub(super) level: Option<i32>,
    /// Bytes at which a batch is full.
    pub(super) full_bytes: usize,
}

#[derive(Debug)]
enum Body {
    Open(Box<BatchBuilder>),
    Sealed { bytes: Bytes, stamp: ProducerStamp },
}

/// A batch of records for one partition.
///
/// Invariants: `stamp` is set from the first attempt until the producer id changes; once sealed, records are
/// neither added nor compressed again. A batch that is dropped without an outcome tells its records so.
#[derive(Debug)]
pub(super) struct Batch {
    /// Rises with the time of creation, over all partitions.
    pub(super) id: u64,
    pub(super) key: QueueKey,
    pub(super) created: Instant,
    /// Bytes of the producer's buffer that its records hold.
    pub(super) reserved_bytes: usize,
    outcome: Arc<Outcome>,
    pub(super) stamp: Option<ProducerStamp>,
    pub(super) attempts: u32,
    pub(super) last_error: Option<ClientError>,
    shape: BatchShape,
    record_count: i32,
    body: Body,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.outcome.set(Err(ClientError::Closed));
    }
}

impl Batch {
    pub(super) fn new(id: u64, key: QueueKey, outcome: Arc<Outcome>, shape: BatchShape) -> Self {
        let options =
            BatchOptions { compression: shape.compression, level: shape.level, ..BatchOptions::default() };
        let builder = BatchBuilder::with_capacity(options, CAPACITY_BYTES.min(shape.full_bytes));
        Self {
            id,
            key,
            created: Instant::now(),
            reserved_bytes: 0,
            outcome,
            stamp: None,
            attempts: 0,
            last_error: None,
            shape,
            record_count: 0,
            body: Body::Open(Box::new(builder)),
        }
    }

    /// Whether a record of at most `record_bytes` still belongs in here.
    pub(super) fn has_room(&self, record_bytes: usize) -> bool {
        match &self.body {
            Body::Open(builder) => builder.size_bytes() + record_bytes <= self.shape.full_bytes,
            Body::Sealed { .. } => false,
        }
    }

    /// Whether nothing is worth waiting for.
    pub(super) fn is_full(&self) -> bool {
        match &self.body {
            Body::Open(builder) => builder.size_bytes() >= self.shape.full_bytes,
            Body::Sealed { .. } => true,
        }
    }

    /// Bytes that it takes in a request, at most.
    pub(super) fn size_bytes(&self) -> usize {
        match &self.body {
            Body::Open(builder) => builder.size_bytes(),
            Body::Sealed { bytes, .. } => bytes.len(),
        }
    }

    pub(super) fn record_count(&self) -> i32 {
        self.record_count
    }

    /// Encodes a record into the batch. Only while it is open.
    pub(super) fn append(
        &mut self,
        record: &ProducerRecord,
        timestamp: TimestampMs,
        reserved_bytes: usize,
    ) -> Result<Delivery, ClientError> {
        let Body::Open(builder) = &mut self.body else { return Err(ClientError::Closed) };
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let headers: Vec<Header<'_>> = record
            .headers
            .iter()
            .map(|(name, value)| Header { key: name.as_bytes(), value: value.as_deref() })
            .collect();
        let index = builder.append(timestamp, key, value, &headers)?;
        self.record_count += 1;
        self.reserved_bytes += reserved_bytes;
        Ok(self.outcome.delivery(index, timestamp))
    }

    /// Tells the records what became of them.
    pub(super) fn finish(self, result: Result<BatchPlace, ClientError>) {
        self.outcome.set(result);
    }

    /// The batch as it goes over the wire, with its stamp. Compresses at the first call; after a change of the
    /// stamp only the header is written again.
    pub(super) fn seal(&mut self) -> Result<Bytes, BatchError> {
        let stamp = self.stamp.unwrap_or(ProducerStamp::NONE);
        if let Body::Sealed { bytes, stamp: old } = &mut self.body {
            if *old != stamp {
                let mut patched = bytes.to_vec();
                patch_producer(&mut patched, stamp);
                (*bytes, *old) = (patched.into(), stamp);
            }
            return Ok(bytes.clone());
        }
        let empty = Body::Sealed { bytes: Bytes::new(), stamp };
        let Body::Open(mut builder) = std::mem::replace(&mut self.body, empty) else {
            return Err(BatchError::CompressFailed(self.shape.compression));
        };
        builder.set_producer(stamp);
        let built: Bytes = builder.build()?.into();
        self.body = Body::Sealed { bytes: built.clone(), stamp };
        Ok(built)
    }
}

#[cfg(test)]
mod tests {
    use riverrun_records::UnverifiedBatch;
    use riverrun_types::{ProducerEpoch, ProducerId};

    use super::*;

    const SHAPE: BatchShape = BatchShape { compression: Compression::Lz4, level: None, full_bytes: 1000 };

    #[test]
    fn a_new_stamp_is_written_into_a_sealed_batch() {
        let key = QueueKey { topic: 0, partition: 0 };
        let mut batch = Batch::new(1, key, Outcome::new("t".into(), 0), SHAPE);
        batch.append(&ProducerRecord::new("t", "v"), TimestampMs(1), 10).unwrap();
        for (id, base_sequence) in [(5, 50), (6, 0)] {
            let stamp = ProducerStamp { id: ProducerId(id), epoch: ProducerEpoch(0), base_sequence };
            batch.stamp = Some(stamp);
            let bytes = batch.seal().unwrap();
            let verified = UnverifiedBatch::only(&bytes).unwrap().verify().unwrap();
            assert_eq!(verified.producer_id(), stamp.id);
            assert_eq!(verified.base_sequence(), stamp.base_sequence);
        }
        assert!(!batch.has_room(1));
    }
}
