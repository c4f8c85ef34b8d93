//! The memory of all groups of a server together: who holds how much of it, and who may take more.
//!
//! Owns the one bound that no number of groups, members and offsets gets around. What a group takes is an estimate that
//! is kept up to date with each change, in constant time, and rather too high than too low: text as long as it is, and
//! for each thing what the structures that hold it need at worst.
//!
//! A group may grow as long as it is no larger than what is left. So a large group ends at half of the memory, many
//! large ones leave a piece in which those of an ordinary size go on, and a group that does not grow is never refused.
//! What the log holds is loaded whatever it takes.
//!
//! Guarantees that what a group takes is given back when its members leave and its offsets go, and all of a shard when it
//! is dropped. It may be exceeded by what the requests bring that are handled at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use riverrun_protocol::ErrorCode;

/// What the shards of one server hold together, and may hold. The numbers order nothing else: each is read by itself.
#[derive(Debug)]
pub struct GroupMemory {
    max_bytes: usize,
    held_bytes: AtomicUsize,
    refusals: AtomicU64,
}

impl GroupMemory {
    /// Memory of which nothing is taken yet.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { max_bytes, held_bytes: AtomicUsize::new(0), refusals: AtomicU64::new(0) })
    }

    /// Memory without a bound, for a shard that stands alone.
    pub fn unbounded() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// Bytes that all groups may take.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether there is room for nothing more.
    pub(crate) fn is_full(&self) -> bool {
        self.held_bytes() >= self.max_bytes
    }

    /// Bytes that all groups take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// How often somebody was refused for want of memory.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Whether a group may grow by `growth_bytes` to `size_bytes`.
    fn admit(&self, size_bytes: usize, growth_bytes: usize) -> Result<(), Shortage> {
        let held_bytes = self.held_bytes().saturating_add(growth_bytes);
        if held_bytes.saturating_add(size_bytes) <= self.max_bytes {
            return Ok(());
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Err(if size_bytes.saturating_mul(2) > self.max_bytes { Shortage::Forever } else { Shortage::ForNow })
    }
}

/// Why a group may not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Others have taken what there is: it may work later.
    ForNow,
    /// It would be too large if it were alone.
    Forever,
}

impl Shortage {
    /// The code for the client, which comes back later after the one that is not `forever`: it is what clients of every
    /// library wait and try again after, without looking for another coordinator.
    pub(crate) fn code(self, forever: ErrorCode) -> ErrorCode {
        match self {
            Self::ForNow => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            Self::Forever => forever,
        }
    }
}

/// The part of the memory that one shard holds. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<GroupMemory>,
    held_bytes: usize,
}

impl Share {
    /// A share of nothing yet.
    pub(crate) fn new(memory: Arc<GroupMemory>) -> Self {
        Self { memory, held_bytes: 0 }
    }

    /// What it is a share of.
    pub(crate) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    /// A part of it, for a group that leaves the shard for a while.
    pub(crate) fn part(&mut self, bytes: usize) -> Self {
        self.held_bytes -= bytes;
        Self { memory: Arc::clone(&self.memory), held_bytes: bytes }
    }

    /// Takes another share over.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.held_bytes += std::mem::take(&mut other.held_bytes);
    }

    /// What the shard holds.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A group that took `before` bytes takes `after` now.
    pub(crate) fn change(&mut self, before: usize, after: usize) {
        self.held_bytes = self.held_bytes - before + after;
        if after >= before {
            self.memory.held_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.memory.held_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.held_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}

/// What one group may grow by, while a request is applied to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    memory: &'a GroupMemory,
    /// What it is charged for, with its offsets.
    charged_bytes: usize,
    /// What the part of it that is asked about took when it was charged.
    part_bytes: usize,
}

impl<'a> Room<'a> {
    /// Room for a group that is charged for so much, of which so much belongs to the part that may grow.
    pub(crate) fn new(memory: &'a GroupMemory, charged_bytes: usize, part_bytes: usize) -> Self {
        Self { memory, charged_bytes, part_bytes }
    }

    /// Whether the part may have this size. One that does not grow always may.
    pub(crate) fn check(self, part_bytes: usize) -> Result<(), Shortage> {
        match part_bytes.saturating_sub(self.part_bytes) {
            0 => Ok(()),
            growth_bytes => self.memory.admit(self.charged_bytes.saturating_add(growth_bytes), growth_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_grows_to_what_is_left_and_no_further() {
        let memory = GroupMemory::new(100);
        let mut share = Share::new(Arc::clone(&memory));
        share.change(0, 40);
        let room = |charged_bytes| Room::new(&memory, charged_bytes, charged_bytes);
        assert_eq!(room(0).check(30), Ok(()));
        assert_eq!(room(0).check(31), Err(Shortage::ForNow));
        assert_eq!(room(40).check(50), Ok(()));
        assert_eq!(room(40).check(51), Err(Shortage::Forever), "half of all is for others");
        share.change(40, 100);
        assert_eq!(room(100).check(100), Ok(()), "who does not grow is not refused");
        assert_eq!(room(100).check(101), Err(Shortage::Forever));
        assert_eq!(memory.refusals(), 3);
    }

    #[test]
    fn what_a_shard_held_is_given_back_with_it() {
        let memory = GroupMemory::new(100);
        let (mut first, mut second) = (Share::new(Arc::clone(&memory)), Share::new(Arc::clone(&memory)));
        first.change(0, 40);
        second.change(0, 30);
        second.change(30, 10);
        assert_eq!(memory.held_bytes(), 50);
        drop(first);
        assert_eq!(memory.held_bytes(), 10);
    }
}
