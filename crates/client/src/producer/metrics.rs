//! What a producer has done so far, in numbers.

/// Counts of a producer since it was made, and what its buffer holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerMetrics {
    /// Records that were delivered; with acks=0, that were sent.
    pub records_delivered: u64,
    /// Records that failed.
    pub records_failed: u64,
    /// Batches that were delivered or failed.
    pub batches: u64,
    /// Times that a batch was sent again.
    pub batches_retried: u64,
    /// Batches that were split because the server found them too large.
    pub batches_split: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes of the batches that were delivered or failed, as they were sent: compressed where they were.
    pub batch_bytes: u64,
    /// Bytes of `buffer.memory` that are free.
    pub buffer_free_bytes: usize,
    /// Batches without an outcome.
    pub batches_waiting: usize,
}
