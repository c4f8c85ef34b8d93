//! Appends that go to no journal and that nobody who serves clients is to wait for: the dir's own writer writes them.
//!
//! A write to the page cache takes microseconds, until the disk does not answer: then it takes for ever, and so does each
//! that comes after it. What is left counts in the write cache until it is written, which bounds it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_env::Alarm;
use riverrun_types::PartitionId;

use super::LogDir;

/// When appends of a log dir are left to its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Leaves {
    /// There is none.
    Never,
    /// While a write takes long. Who is at it by then waits for it.
    WhileSlow,
    /// Nobody else ever waits for the disk.
    Always,
}

/// The partitions with such appends.
#[derive(Debug, Default)]
pub(super) struct LeftWrites {
    /// A [`Leaves`].
    leaves: AtomicU8,
    partitions: Mutex<Vec<PartitionId>>,
    alarm: Alarm,
}

impl LogDir {
    /// Somebody calls [`Self::take_left`] again and again from now on, and writes what it tells.
    pub(crate) fn set_leaves(&self, leaves: Leaves) {
        self.left.leaves.store(leaves as u8, Ordering::Relaxed);
    }

    /// Whether appends may be left, so that they count in the write cache.
    pub(crate) fn may_leave(&self) -> bool {
        self.left.leaves.load(Ordering::Relaxed) != Leaves::Never as u8
    }

    /// Whether an append of now is left.
    pub(crate) fn leaves_now(&self) -> bool {
        let leaves = self.left.leaves.load(Ordering::Relaxed);
        leaves == Leaves::Always as u8 || (leaves == Leaves::WhileSlow as u8 && self.is_slow())
    }

    /// Leaves what a partition has staged.
    pub(crate) fn leave(&self, partition: PartitionId) {
        self.left.partitions.lock().push(partition);
        self.left.alarm.raise();
    }

    /// Waits until something is left, but not longer than `timeout`. Returns of which partitions.
    pub(crate) fn take_left(&self, timeout: Duration) -> Vec<PartitionId> {
        self.left.alarm.wait(timeout);
        std::mem::take(&mut *self.left.partitions.lock())
    }

    /// Ends a wait for something to be left.
    pub(crate) fn wake_writer(&self) {
        self.left.alarm.raise();
    }
}
