//! The partitions that the settler has to settle, and those of them with a large tail.

use riverrun_types::PartitionId;

use super::LogDir;

/// The effect of an entry on a log's tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grown {
    /// The tail was empty before.
    pub(crate) is_first: bool,
    /// The tail is as large as a run now, and was not before.
    pub(crate) gets_large: bool,
}

impl LogDir {
    /// Notes that a partition has something to settle.
    pub(crate) fn note_tail(&self, partition: PartitionId) {
        self.tails.lock().push(partition);
    }

    /// Notes that an entry has come to a partition's tail.
    pub(crate) fn note_grown(&self, grown: Grown, partition: PartitionId) {
        if grown.is_first {
            self.note_tail(partition);
        }
        if grown.gets_large {
            self.note_large(partition);
        }
    }

    /// Notes that a partition has much to settle.
    pub(crate) fn note_large(&self, partition: PartitionId) {
        let mut large = self.large.lock();
        if !large.contains(&partition) {
            large.push_back(partition);
        }
    }

    /// The partitions that have a tail, in the order of their ids.
    pub(crate) fn take_tails(&self) -> Vec<PartitionId> {
        let mut noted = std::mem::take(&mut *self.tails.lock());
        noted.sort_unstable();
        noted.dedup();
        noted
    }

    /// The partition with much that was noted first.
    pub(crate) fn take_large(&self) -> Option<PartitionId> {
        self.large.lock().pop_front()
    }
}
