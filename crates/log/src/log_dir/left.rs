//! Appends that go to no journal and that nobody who serves clients is to wait for: the dir's own writer writes them.
//!
//! A write to the page cache takes microseconds, until the disk does not answer: then it takes for ever, and so does each
//! that comes after it. What is left counts in the write cache until it is written, which bounds it.

use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::LogDir;
use crate::partition_log::PartitionLog;
use crate::write_cache::Alarm;

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
    partitions: Mutex<Vec<Weak<PartitionLog>>>,
    alarm: Alarm,
}

impl LogDir {
    /// Somebody calls [`Self::write_left`] again and again from now on.
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
    pub(crate) fn leave(&self, log: Weak<PartitionLog>) {
        self.left.partitions.lock().push(log);
        self.left.alarm.raise();
    }

    /// Waits until something is left, but not longer than `timeout`, and writes it, partition by partition.
    pub(crate) fn write_left(&self, timeout: Duration) {
        self.left.alarm.wait(timeout);
        let partitions = std::mem::take(&mut *self.left.partitions.lock());
        for log in partitions.iter().filter_map(Weak::upgrade) {
            if let Err(error) = log.write_staged() {
                // Who waits for it is told as well, and says so.
                tracing::debug!(partition = %log.id(), %error, "appends that were left are lost");
            }
        }
    }

    /// Ends a wait for something to be left.
    pub(crate) fn wake_writer(&self) {
        self.left.alarm.raise();
    }
}
