//! Counters and histograms of a journal's work, which any thread may read meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::policy::SyncReason;

/// Buckets of a histogram. Bucket `n` counts times below `2^n` microseconds and, but for the first, of at least half
/// of that; the last bucket counts all longer times too.
pub const BUCKETS: usize = 24;

/// A histogram of times as it stood at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeHistogram {
    /// Times by bucket; see [`BUCKETS`].
    pub buckets: [u64; BUCKETS],
    /// Sum of all times in microseconds.
    pub sum_us: u64,
}

impl TimeHistogram {
    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Upper bound of a bucket in microseconds, exclusive; the last bucket has none.
    pub fn bound_us(bucket: usize) -> Option<u64> {
        (bucket + 1 < BUCKETS).then(|| 1 << bucket)
    }
}

/// Counters of a journal's work since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalMetrics {
    /// Groups that were written because the queue had run empty.
    pub groups_queue_empty: u64,
    /// Groups that were written because enough bytes had gathered.
    pub groups_bytes: u64,
    /// Groups that were written because the first entry had waited long enough.
    pub groups_wait: u64,
    /// Entries stored.
    pub entries: u64,
    /// Bytes of frames written, with headers and padding.
    pub bytes: u64,
    /// Bytes of padding among them.
    pub padding_bytes: u64,
    /// From an entry's submission to the start of its group's write.
    pub queueing: TimeHistogram,
    /// Copying a group and, unless one call both writes and syncs it, writing it.
    pub writing: TimeHistogram,
    /// A sync. Where one call writes and syncs a group, as with [`crate::SyncMethod::DirectDsync`], that call.
    pub syncing: TimeHistogram,
}

#[derive(Debug, Default)]
struct AtomicHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl AtomicHistogram {
    fn count(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        add(&self.buckets[bucket.min(BUCKETS - 1)], 1);
        add(&self.sum_us, us);
    }

    fn read(&self) -> TimeHistogram {
        TimeHistogram {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// Cheaper than an atomic addition, and enough because there is one writer.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The counters themselves. Only the journal's thread writes them; a reader may see one ahead of another.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    groups: [AtomicU64; 3],
    entries: AtomicU64,
    bytes: AtomicU64,
    padding_bytes: AtomicU64,
    queueing: AtomicHistogram,
    writing: AtomicHistogram,
    syncing: AtomicHistogram,
}

impl Counters {
    pub(crate) fn count_group(&self, reason: SyncReason) {
        self.groups[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_frame(&self, entries: usize, bytes: usize, padding_bytes: usize) {
        self.entries.fetch_add(entries as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.padding_bytes.fetch_add(padding_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn queued(&self, time: Duration) {
        self.queueing.count(time);
    }

    pub(crate) fn wrote(&self, time: Duration) {
        self.writing.count(time);
    }

    pub(crate) fn synced(&self, time: Duration) {
        self.syncing.count(time);
    }

    pub(crate) fn read(&self) -> JournalMetrics {
        let groups = |reason: SyncReason| self.groups[reason as usize].load(Ordering::Relaxed);
        JournalMetrics {
            groups_queue_empty: groups(SyncReason::QueueEmpty),
            groups_bytes: groups(SyncReason::GroupBytes),
            groups_wait: groups(SyncReason::GroupWait),
            entries: self.entries.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            padding_bytes: self.padding_bytes.load(Ordering::Relaxed),
            queueing: self.queueing.read(),
            writing: self.writing.read(),
            syncing: self.syncing.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_lies_between_the_bounds_of_its_bucket() {
        for us in [0, 1, 2, 3, 4, 1000, 1 << 21, (1 << 22) - 1] {
            let histogram = AtomicHistogram::default();
            histogram.count(Duration::from_micros(us));
            let read = histogram.read();
            let bucket = read.buckets.iter().position(|count| *count == 1).unwrap();
            assert!(us < TimeHistogram::bound_us(bucket).unwrap(), "{us}");
            assert!(bucket == 0 || us >= TimeHistogram::bound_us(bucket - 1).unwrap(), "{us}");
            assert_eq!((read.count(), read.sum_us), (1, us));
        }
    }

    #[test]
    fn the_last_bucket_takes_every_longer_time() {
        let histogram = AtomicHistogram::default();
        histogram.count(Duration::from_hours(1));
        assert_eq!(histogram.read().buckets[BUCKETS - 1], 1);
        assert_eq!(TimeHistogram::bound_us(BUCKETS - 1), None);
    }
}
