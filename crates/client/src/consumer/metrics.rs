//! Counts of a consumer's work.

/// Counts of a consumer since it was created, and its buffered bytes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerMetrics {
    /// Records that were returned, or passed to a function.
    pub records: u64,
    /// Answers to fetches, including empty and failed ones.
    pub fetches: u64,
    /// Fetches that failed as a whole.
    pub fetches_failed: u64,
    /// Bytes of fetched records, compressed where they were.
    pub fetched_bytes: u64,
    /// Bytes of memory buffered for later polls.
    pub buffered_bytes: usize,
    /// Bytes that the fetches in flight may return.
    pub asked_bytes: usize,
    /// Assigned partitions.
    pub partitions: usize,
    /// Successful commits.
    pub commits: u64,
    /// Commits that failed.
    pub commits_failed: u64,
    /// How often the group assigned or revoked partitions.
    pub rebalances: u64,
}
