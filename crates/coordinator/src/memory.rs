//! The memory of all groups of a server together: how much each group and source takes, and which may take more.
//!
//! Owns the one bound that no number of groups, members and offsets gets around. The memory of a group is an estimate
//! that is updated with each change, in constant time, and is rather too high than too low: the length of each text
//! and, for each thing, the worst case of the structures that hold it.
//!
//! Seven eighths of the memory are the *common* part. A group may grow as long as it is no larger than a third of the
//! rest of that part. So a large group ends at a quarter of it, many large ones leave room in which groups of
//! ordinary size go on, and a group that does not grow is never refused. A load takes everything that is in the log,
//! whatever its size.
//!
//! The same holds for a *source*, into which the host turns a client's address. All groups that it was the last to
//! make grow may together be no larger than a third of the rest. So one source ends at a quarter of the common part
//! however many groups it makes, and each further one at a quarter of the rest: eight of them leave a tenth. Small
//! groups may go on beyond that, until their source has as much as is left, because many clients share an address.
//! The log does not name the source of a group: loaded groups are charged to no source until one makes them grow.
//!
//! Many sources can use up the common part. The last eighth is the *reserve*, for sources with little in all; a
//! source that has used up the common part is not one of those. The reserve holds 128 times that little amount, so
//! that many sources have to take part before a newcomer is refused.
//!
//! Guarantees that the memory of members and offsets is given back when they go, and that of a shard when it is
//! dropped. Requests that are served at the same moment may exceed the bound by their own content.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use riverrun_protocol::ErrorCode;

/// A group up to this size is small: some members, or the offsets of a hundred partitions.
const SMALL_GROUP_BYTES: usize = 16 * 1024;
/// Divisor: a group that is not small, and all groups of its source together, may be at most this part of the bytes
/// left.
const LEFT_FACTOR: usize = 3;

/// Divisor: the reserve is this part of the memory.
const RESERVE_PART: usize = 8;
/// Divisor: a source with no more than this part of the memory has little. That is 256 KiB of 256 MiB: sixteen small
/// groups, or a large one with the offsets of a thousand partitions.
const LITTLE_PART: usize = 1_024;

/// Bytes by the source that they are charged to.
type BySource = BTreeMap<IpAddr, usize>;

/// The memory that the shards of one server take together, and its bound. The numbers order nothing else: each is
/// read by itself.
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

    /// Bytes that all groups take.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Number of requests refused for lack of memory.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// The `count` sources that take most, and the bytes of each.
    pub fn largest_sources(&self, count: usize) -> Vec<(IpAddr, usize)> {
        let mut sources: Vec<_> =
            self.by_source.lock().iter().map(|(source, bytes)| (*source, *bytes)).collect();
        sources.sort_unstable_by_key(|(source, bytes)| (std::cmp::Reverse(*bytes), *source));
        sources.truncate(count);
        sources
    }

    /// Bytes of the groups that this source made grow.
    fn held_by(&self, source: IpAddr) -> usize {
        self.by_source.lock().get(&source).copied().unwrap_or_default()
    }

    /// Checks whether a group may grow by `growth_bytes` to `size_bytes`, with which its source has
    /// `of_source_bytes`.
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

    /// Bytes outside the reserve.
    fn common_bytes(&self) -> usize {
        self.max_bytes - self.max_bytes / RESERVE_PART
    }

    /// Upper bound in bytes of a source, and of a group, that may use the reserve; at least a small group, if that
    /// fits.
    pub fn little_bytes(&self) -> usize {
        (self.max_bytes / LITTLE_PART).max(SMALL_GROUP_BYTES).min(self.max_bytes / RESERVE_PART)
    }
}

/// Why a group may not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Other groups, or its source's other groups, have taken the memory: it may work later.
    ForNow,
    /// It would be too large even if it were alone.
    Forever,
}

impl Shortage {
    /// The code for the client. After a temporary shortage it is one after which clients of every library wait and
    /// try again, without looking for another coordinator; otherwise it is `forever`.
    pub(crate) fn code(self, forever: ErrorCode) -> ErrorCode {
        match self {
            Self::ForNow => ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
            Self::Forever => forever,
        }
    }
}

/// The memory that is charged to one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The bytes.
    pub(crate) bytes: usize,
    /// The source that was the last to make it grow, if known.
    pub(crate) source: Option<IpAddr>,
}

/// The memory that one shard takes. Given back when it is dropped.
///
/// Invariants: `by_source` is the sum over the shard's groups, and has no zeros.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<GroupMemory>,
    held_bytes: usize,
    by_source: BySource,
    /// The source for which the shard works at the moment.
    asker: Option<IpAddr>,
}

impl Share {
    /// An empty share.
    pub(crate) fn new(memory: Arc<GroupMemory>) -> Self {
        Self { memory, held_bytes: 0, by_source: BySource::new(), asker: None }
    }

    /// The memory that it is a share of.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    /// From now on the shard works for this source; returns the former one.
    pub(crate) fn set_asker(&mut self, asker: Option<IpAddr>) -> Option<IpAddr> {
        std::mem::replace(&mut self.asker, asker)
    }

    /// Splits off a part, for a group that leaves the shard for a while.
    pub(crate) fn part(&mut self, charge: Charge) -> Self {
        let mut part = Self::new(Arc::clone(&self.memory));
        part.held_bytes = charge.bytes;
        self.held_bytes -= charge.bytes;
        if let Some(source) = charge.source {
            put(&mut part.by_source, source, charge.bytes);
            take(&mut self.by_source, source, charge.bytes);
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

    /// Bytes that the shard takes.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The group takes `bytes` now. If that is more than before, it is charged to the asking source.
    pub(crate) fn change(&mut self, charge: &mut Charge, bytes: usize) {
        let before = *charge;
        let source = if bytes > before.bytes { self.asker.or(before.source) } else { before.source };
        *charge = Charge { bytes, source };
        self.held_bytes = self.held_bytes - before.bytes + bytes;
        if bytes >= before.bytes {
            self.memory.held_bytes.fetch_add(bytes - before.bytes, Ordering::Relaxed);
        } else {
            self.memory.held_bytes.fetch_sub(before.bytes - bytes, Ordering::Relaxed);
        }
        if before == *charge || before.source.or(source).is_none() {
            return;
        }
        let mut of_all = self.memory.by_source.lock();
        for by_source in [&mut *of_all, &mut self.by_source] {
            // Added first, so that an existing entry is not removed and made anew.
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
    if let Some(taken) = by_source.get_mut(&source) {
        *taken -= bytes;
        if *taken == 0 {
            by_source.remove(&source);
        }
    }
}

/// The memory by which one group may grow, while a request is applied to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room<'a> {
    memory: &'a GroupMemory,
    /// The asking source.
    asker: Option<IpAddr>,
    /// The charge of the group with its offsets.
    charge: Charge,
    /// Bytes of the growing part at the time of that charge.
    part_bytes: usize,
}

impl<'a> Room<'a> {
    /// Room for a group with this charge, of which `part_bytes` belong to the part that may grow.
    pub(crate) fn new(share: &'a Share, charge: Charge, part_bytes: usize) -> Self {
        Self { memory: &share.memory, asker: share.asker, charge, part_bytes }
    }

    /// Checks whether the part may have this size. A part that does not grow always may.
    pub(crate) fn check(self, part_bytes: usize) -> Result<(), Shortage> {
        let growth_bytes = part_bytes.saturating_sub(self.part_bytes);
        if growth_bytes == 0 {
            return Ok(());
        }
        let size_bytes = self.charge.bytes.saturating_add(growth_bytes);
        self.memory.admit(size_bytes, self.of_source(size_bytes), growth_bytes)
    }

    /// Bytes that would be charged to the asking source if the group took `size_bytes`.
    fn of_source(self, size_bytes: usize) -> usize {
        let Some(asker) = self.asker else { return 0 };
        let its_own = if self.charge.source == Some(asker) { self.charge.bytes } else { 0 };
        self.memory.held_by(asker).saturating_sub(its_own).saturating_add(size_bytes)
    }
}

#[cfg(test)]
mod tests;
