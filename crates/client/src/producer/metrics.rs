//! Counts of a producer's work.

/// Number, sum and maximum of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of values.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest of them.
    pub max: u64,
}

impl Tally {
    /// Adds a value.
    pub(super) fn add(&mut self, value: u64) {
        self.merge(&Self { count: 1, sum: value, max: value });
    }

    /// Adds the values of another tally.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// Counts of a producer since it was created, and the state of its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerMetrics {
    /// Records that were delivered; with acks=0, that were sent.
    pub records_delivered: u64,
    /// Records that failed.
    pub records_failed: u64,
    /// Records that were sent, each attempt counted.
    pub records_sent: u64,
    /// Records that were queued again for a retry.
    pub records_retried: u64,
    /// Batches that were delivered or failed.
    pub batches: u64,
    /// Times that a batch was sent again.
    pub batches_retried: u64,
    /// Batches that were split because the server found them too large.
    pub batches_split: u64,
    /// Produce requests that were sent.
    pub requests: u64,
    /// Bytes of the batches that were delivered or failed, as they were sent: compressed where they were.
    pub batch_bytes: u64,
    /// Bytes of each sent batch, compressed where it was, each attempt counted.
    pub sent_batch_bytes: Tally,
    /// Microseconds from the first record of each batch to its first attempt.
    pub queued_us: Tally,
    /// Microseconds from each answered produce request to its answer.
    pub latency_us: Tally,
    /// Produce requests in flight.
    pub requests_in_flight: usize,
    /// Bytes of `buffer.memory`.
    pub buffer_bytes: usize,
    /// Bytes of `buffer.memory` that are free.
    pub buffer_free_bytes: usize,
    /// Senders that wait for room in the buffer.
    pub senders_waiting: usize,
    /// Microseconds for which senders have waited for room in the buffer, all of them together.
    pub buffer_wait_us: u64,
    /// Batches without an outcome.
    pub batches_waiting: usize,
    /// Connections that came up.
    pub connections: u64,
    /// Requests of every kind that were written.
    pub all_requests: u64,
    /// Bytes of these requests.
    pub sent_bytes: u64,
    /// Answers of every kind that were read.
    pub answers: u64,
    /// Bytes of these answers.
    pub received_bytes: u64,
}
