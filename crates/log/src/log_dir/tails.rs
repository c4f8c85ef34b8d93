//! Which partitions have something for who settles: a tail, and those that have much.

use riverrun_types::PartitionId;

use super::LogDir;

/// What an entry has made of a log's tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grown {
    /// It is the first there.
    pub(crate) is_first: bool,
    /// There is as much as a run with it, and was not before.
    pub(crate) gets_large: bool,
}

impl LogDir {
    /// Notes that a partition has something to settle.
    pub(crate) fn note_tail(&self, partition: PartitionId) {
        self.tails.lock().push(partition);
    }

    /// The same of one to whose tail an entry has come.
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
