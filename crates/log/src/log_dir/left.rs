//! Appends that go to no journal and are written by the dir's own writer, so that no thread that serves clients waits
//! for them.
//!
//! A write to the page cache takes microseconds, until the disk does not answer: then it takes for ever, and so does
//! each later one. Left appends count in the write cache, which bounds them, until they are written.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Alarm;
use riverrun_types::PartitionId;

use super::LogDir;

/// The conditions on which [`leave_staged`](crate::PartitionLog::leave_staged) leaves appends of a log dir to its
/// writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Leaves {
    /// The dir has no writer.
    Never,
    /// While a write takes long. The threads that are in one by then wait for it.
    WhileSlow,
    /// No other thread ever waits for the disk.
    Always,
}

/// The partitions with left appends.
#[derive(Debug, Default)]
pub(super) struct LeftWrites {
    /// The value of a [`Leaves`].
    leaves: AtomicU8,
    partitions: Mutex<Vec<PartitionId>>,
    alarm: Alarm,
}

impl LogDir {
    /// A writer calls [`Self::take_left`] again and again from now on, and writes the staged batches of the partitions
    /// that it returns.
    pub(crate) fn set_leaves(&self, leaves: Leaves) {
        self.left.leaves.store(leaves as u8, Ordering::Relaxed);
    }

    /// Whether appends may be left, so that they count in the write cache.
    pub(crate) fn may_leave(&self) -> bool {
        self.left.leaves.load(Ordering::Relaxed) != Leaves::Never as u8
    }

    /// Whether an append is left now.
    pub(crate) fn leaves_now(&self) -> bool {
        let leaves = self.left.leaves.load(Ordering::Relaxed);
        leaves == Leaves::Always as u8 || (leaves == Leaves::WhileSlow as u8 && self.is_slow())
    }

    /// Leaves the staged batches of a partition.
    pub(crate) fn leave(&self, partition: PartitionId) {
        self.left.partitions.lock().push(partition);
        self.left.alarm.raise();
    }

    /// Waits until something is left, but not longer than `timeout`. Returns its partitions.
    pub(crate) fn take_left(&self, timeout: Duration) -> Vec<PartitionId> {
        self.left.alarm.wait(timeout);
        std::mem::take(&mut *self.left.partitions.lock())
    }

    /// Ends a wait for something to be left.
    pub(crate) fn wake_writer(&self) {
        self.left.alarm.raise();
    }
}
