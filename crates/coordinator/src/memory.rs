//! The memory of all groups of a server together: who holds how much of it, and who may take more.
//!
//! Owns the one bound that no number of groups, members and offsets gets around. What a group takes is an estimate that
//! is kept up to date with each change, in constant time, and rather too high than too low: text as long as it is, and
//! for each thing what the structures that hold it need at worst.
//!
//! Seven eighths of it are the *common* part. A group may grow as long as it is no larger than a third of what is left of
//! that. So a large group ends at a quarter of it, many large ones leave a piece in which those of an ordinary size go on, and
//! a group that does not grow is never refused. What the log holds is loaded whatever it takes.
//!
//! The same holds for a *source*, whom the shell takes a client's address to stand for: all groups that it was the last to
//! make grow may together be no larger than a third of what is left. So one source ends at a quarter of the common part
//! however many groups it makes, and each further one at a quarter of the rest: eight of them leave a tenth. Groups that stay
//! small may go on beyond that, until a source holds as much as is left: many clients share an address. Who made a group grow
//! is not in the log: what is loaded counts for nobody until somebody makes it grow.
//!
//! Shared often enough, the common part is as good as gone. The last eighth is the *reserve*: it takes whoever holds little
//! in all, which whoever has used up the common part does not. As much as little is goes 128 times into it, so that many
//! sources have to take part before a newcomer is refused.
//!
//! Guarantees that what a group takes is given back when its members leave and its offsets go, and all of a shard when it
//! is dropped. It may be exceeded by what the requests bring that are handled at the same moment.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use riverrun_protocol::ErrorCode;

/// A group up to this size is small: some members, or the offsets of a hundred partitions.
const SMALL_GROUP_BYTES: usize = 16 * 1024;
/// A group that is not small, and all groups of its source together, may be one part in so many of the bytes that are left.
const LEFT_FACTOR: usize = 3;

/// The reserve is this part of the memory.
const RESERVE_PART: usize = 8;
/// A source that holds no more than this part of the memory holds little: 256 KiB of 256 MiB, which are sixteen small groups,
/// or a large one with the offsets of a thousand partitions.
const LITTLE_PART: usize = 1_024;

/// Bytes by the source that they count for.
type BySource = BTreeMap<IpAddr, usize>;

/// What the shards of one server hold together, and may hold. The numbers order nothing else: each is read by itself.
///
/// Invariants: `by_source` is the sum over the shares of the shards, and has no zeros.
#[derive(Debug)]
pub struct GroupMemory {
    max_bytes: usize,
    held_bytes: AtomicUsize,
    by_source: Mutex<BySource>,
    refusals: AtomicU64,
}

impl GroupMemory {
    /// Memory of which nothing is taken yet.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_bytes,
            held_bytes: AtomicUsize::new(0),
            by_source: Mutex::default(),
            refusals: AtomicU64::new(0),
        })
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

    /// The sources that hold most, so many at most, and what each holds.
    pub fn largest_sources(&self, count: usize) -> Vec<(IpAddr, usize)> {
        let mut sources: Vec<_> =
            self.by_source.lock().iter().map(|(source, bytes)| (*source, *bytes)).collect();
        sources.sort_unstable_by_key(|(source, bytes)| (std::cmp::Reverse(*bytes), *source));
        sources.truncate(count);
        sources
    }

    /// What the groups that this source made grow take.
    fn held_by(&self, source: IpAddr) -> usize {
        self.by_source.lock().get(&source).copied().unwrap_or_default()
    }

    /// Whether a group may grow by `growth_bytes` to `size_bytes`, with which its source holds `of_source_bytes`.
    fn admit(&self, size_bytes: usize, of_source_bytes: usize, growth_bytes: usize) -> Result<(), Shortage> {
        let held_bytes = self.held_bytes().saturating_add(growth_bytes);
        let largest_bytes = size_bytes.max(of_source_bytes);
        let is_little = largest_bytes <= self.little_bytes() && held_bytes <= self.max_bytes;
        let left_bytes = self.common_bytes().saturating_sub(held_bytes);
        let factor = if size_bytes <= SMALL_GROUP_BYTES { 1 } else { LEFT_FACTOR };
        if is_little || largest_bytes.saturating_mul(factor) <= left_bytes {
            return Ok(());
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        Err(if size_bytes.saturating_mul(LEFT_FACTOR + 1) > self.common_bytes() {
            Shortage::Forever
        } else {
            Shortage::ForNow
        })
    }

    /// What is not in the reserve.
    fn common_bytes(&self) -> usize {
        self.max_bytes - self.max_bytes / RESERVE_PART
    }

    /// What a source may hold, and a group, to be let into the reserve: a small group in any case, if it has room.
    pub fn little_bytes(&self) -> usize {
        (self.max_bytes / LITTLE_PART).max(SMALL_GROUP_BYTES).min(self.max_bytes / RESERVE_PART)
    }
}

/// Why a group may not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Others, or its source's other groups, have taken what there is: it may work later.
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

/// What of the memory counts for one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// So much.
    pub(crate) bytes: usize,
    /// The source that was the last to make it grow, if that is known.
    pub(crate) source: Option<IpAddr>,
}

/// The part of the memory that one shard holds. Given back when it is dropped.
///
/// Invariants: `by_source` is the sum over the shard's groups, and has no zeros.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<GroupMemory>,
    held_bytes: usize,
    by_source: BySource,
    /// For whom the shard works at the moment.
    asker: Option<IpAddr>,
}

impl Share {
    /// A share of nothing yet.
    pub(crate) fn new(memory: Arc<GroupMemory>) -> Self {
        Self { memory, held_bytes: 0, by_source: BySource::new(), asker: None }
    }

    /// What it is a share of.
    pub(crate) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    /// From now on the shard works for this source; answers for whom it did before.
    pub(crate) fn set_asker(&mut self, asker: Option<IpAddr>) -> Option<IpAddr> {
        std::mem::replace(&mut self.asker, asker)
    }

    /// A part of it, for a group that leaves the shard for a while.
    pub(crate) fn part(&mut self, held: Held) -> Self {
        let mut part = Self::new(Arc::clone(&self.memory));
        part.held_bytes = held.bytes;
        self.held_bytes -= held.bytes;
        if let Some(source) = held.source {
            put(&mut part.by_source, source, held.bytes);
            take(&mut self.by_source, source, held.bytes);
        }
        part
    }

    /// Takes another share over.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        self.held_bytes += std::mem::take(&mut other.held_bytes);
        for (source, bytes) in std::mem::take(&mut other.by_source) {
            put(&mut self.by_source, source, bytes);
        }
    }

    /// What the shard holds.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A group takes `bytes` now. If that is more than it took before, it counts for whoever asks.
    pub(crate) fn change(&mut self, held: &mut Held, bytes: usize) {
        let before = *held;
        let source = if bytes > before.bytes { self.asker.or(before.source) } else { before.source };
        *held = Held { bytes, source };
        self.held_bytes = self.held_bytes - before.bytes + bytes;
        if bytes >= before.bytes {
            self.memory.held_bytes.fetch_add(bytes - before.bytes, Ordering::Relaxed);
        } else {
            self.memory.held_bytes.fetch_sub(before.bytes - bytes, Ordering::Relaxed);
        }
        if before == *held || before.source.or(source).is_none() {
            return;
        }
        let mut of_all = self.memory.by_source.lock();
        for by_source in [&mut *of_all, &mut self.by_source] {
            // Added first, so that an entry that goes on is not made anew.
            if let Some(source) = source {
                put(by_source, source, bytes);
            }
            if let Some(source) = before.source {
                take(by_source, source, before.bytes);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.held_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
        if !self.by_source.is_empty() {
            let mut of_all = self.memory.by_source.lock();
            for (source, bytes) in &self.by_source {
                take(&mut of_all, *source, *bytes);
            }
        }
    }
}

fn put(by_source: &mut BySource, source: IpAddr, bytes: usize) {
    if bytes > 0 {
        *by_source.entry(source).or_default() += bytes;
    }
}

fn take(by_source: &mut BySource, source: IpAddr, bytes: usize) {
    if let Some(held) = by_source.get_mut(&source) {
        *held -= bytes;
        if *held == 0 {
            by_source.remove(&source);
        }
    }
}

/// What one group may grow by, while a request is applied to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    memory: &'a GroupMemory,
    /// Who asks.
    asker: Option<IpAddr>,
    /// What the group is charged for, with its offsets, and whom it counts for.
    held: Held,
    /// What the part of it that is asked about took when it was charged.
    part_bytes: usize,
}

impl<'a> Room<'a> {
    /// Room for a group that is charged for so much, of which so much belongs to the part that may grow.
    pub(crate) fn new(share: &'a Share, held: Held, part_bytes: usize) -> Self {
        Self { memory: &share.memory, asker: share.asker, held, part_bytes }
    }

    /// Whether the part may have this size. One that does not grow always may.
    pub(crate) fn check(self, part_bytes: usize) -> Result<(), Shortage> {
        let growth_bytes = part_bytes.saturating_sub(self.part_bytes);
        if growth_bytes == 0 {
            return Ok(());
        }
        let size_bytes = self.held.bytes.saturating_add(growth_bytes);
        self.memory.admit(size_bytes, self.of_source(size_bytes), growth_bytes)
    }

    /// What would count for who asks once the group takes so much.
    fn of_source(self, size_bytes: usize) -> usize {
        let Some(asker) = self.asker else { return 0 };
        let its_own = if self.held.source == Some(asker) { self.held.bytes } else { 0 };
        self.memory.held_by(asker).saturating_sub(its_own).saturating_add(size_bytes)
    }
}

#[cfg(test)]
mod tests;
