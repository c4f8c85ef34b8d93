//! What a consumer has done so far, in numbers.

/// Counts of a consumer since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerMetrics {
    /// Records that were returned or shown.
    pub records: u64,
    /// Answers to fetches, those that brought nothing and those that failed among them.
    pub fetches: u64,
    /// Fetches that failed as a whole.
    pub fetches_failed: u64,
    /// Bytes of records, as they were fetched: compressed where they were.
    pub fetched_bytes: u64,
    /// Bytes of memory that is held for polls to come.
    pub held_bytes: usize,
    /// Bytes that the fetches under way may bring.
    pub asked_bytes: usize,
    /// Partitions that are read.
    pub partitions: usize,
    /// Commits that went well.
    pub commits: u64,
    /// Commits that failed.
    pub commits_failed: u64,
    /// How often the group gave or took partitions.
    pub rebalances: u64,
}
