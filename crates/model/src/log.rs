//! Owns the small values that a state is built of: sets of nodes, records, logs and epoch caches. All of them are plain bytes of
//! a fixed size, because a search holds and compares millions of them.

use std::fmt;

/// Nodes of a model. Three is the smallest number with a majority that survives a loss.
pub(crate) const NODES: usize = 3;
/// Partitions of a model.
pub(crate) const PARTITIONS: usize = 2;
/// Records of a log.
pub(crate) const LOG_MAX: usize = 4;
/// The highest leader epoch.
pub(crate) const EPOCH_MAX: usize = 6;

/// A node's number, from 0.
pub type Node = u8;
/// A leader epoch; the first leader of a partition has 1.
pub type Epoch = u8;

/// A set of nodes, of those that a model has: 0, 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Set(u8);

impl Set {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The set of these nodes.
    pub fn of(nodes: &[Node]) -> Self {
        nodes.iter().copied().collect()
    }

    /// Whether a node is one of them.
    pub fn has(self, node: Node) -> bool {
        self.0 & (1 << node) != 0
    }

    pub(crate) fn with(self, node: Node) -> Self {
        Self(self.0 | 1 << node)
    }

    pub(crate) fn without(self, node: Node) -> Self {
        Self(self.0 & !(1 << node))
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many it has.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes, ascending.
    pub fn iter(self) -> impl Iterator<Item = Node> {
        nodes().filter(move |node| self.has(*node))
    }
}

impl FromIterator<Node> for Set {
    fn from_iter<I: IntoIterator<Item = Node>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (count, node) in self.iter().enumerate() {
            write!(f, "{}{node}", if count == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

/// All nodes.
pub(crate) fn nodes() -> impl Iterator<Item = Node> {
    0..NODES as Node
}

/// A record as a replica has it: its leader's epoch, and a value that no other record of the partition has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) epoch: Epoch,
    pub(crate) value: u8,
}

/// A replica's records, from offset 0.
///
/// Invariants: entries from `len` on are zero, so that equal logs are equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Log {
    len: u8,
    entries: [Entry; LOG_MAX],
}

impl Log {
    pub(crate) fn len(&self) -> u8 {
        self.len
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..usize::from(self.len)]
    }

    pub(crate) fn last(&self) -> Option<Entry> {
        self.entries().last().copied()
    }

    pub(crate) fn has_room(&self) -> bool {
        usize::from(self.len) < LOG_MAX
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries[usize::from(self.len)] = entry;
        self.len += 1;
    }

    /// The records below `len`.
    pub(crate) fn cut(&self, len: u8) -> Self {
        let mut log = Self::default();
        for entry in self.entries().iter().take(usize::from(len)) {
            log.push(*entry);
        }
        log
    }

    /// These records, and from their end on the other log's.
    pub(crate) fn extended(&self, other: &Self) -> Self {
        let mut log = *self;
        for entry in other.entries().iter().skip(usize::from(self.len)) {
            log.push(*entry);
        }
        log
    }

    /// How many records the two have in common from the beginning.
    pub(crate) fn common(&self, other: &Self) -> u8 {
        self.entries().iter().zip(other.entries()).take_while(|(a, b)| a == b).count() as u8
    }

    pub(crate) fn starts_with(&self, other: &Self) -> bool {
        self.common(other) == other.len
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (count, entry) in self.entries().iter().enumerate() {
            write!(f, "{}e{}:{}", if count == 0 { "" } else { " " }, entry.epoch, entry.value)?;
        }
        f.write_str("]")
    }
}

/// The start offset of each leader epoch that a replica knows of, with or without records (KIP-101).
///
/// Invariants: start offsets do not fall from one epoch to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Epochs([u8; EPOCH_MAX + 1]);

const UNKNOWN: u8 = u8::MAX;

impl Default for Epochs {
    fn default() -> Self {
        Self([UNKNOWN; EPOCH_MAX + 1])
    }
}

impl Epochs {
    pub(crate) fn note(&mut self, epoch: Epoch, start: u8) {
        self.0[usize::from(epoch)] = start;
    }

    pub(crate) fn start_of(&self, epoch: Epoch) -> Option<u8> {
        let start = self.0[usize::from(epoch)];
        (start != UNKNOWN).then_some(start)
    }

    /// The highest epoch known; 0 if there is none.
    pub(crate) fn last(&self) -> Epoch {
        (0..self.0.len()).rev().find(|epoch| self.0[*epoch] != UNKNOWN).unwrap_or(0) as Epoch
    }

    /// The epochs known, from the highest down.
    pub(crate) fn descending(&self) -> impl Iterator<Item = Epoch> {
        (0..self.0.len() as Epoch).rev().filter(|epoch| self.start_of(*epoch).is_some())
    }

    /// The end offset of an epoch: the start of the next one that is known, or the log's end.
    pub(crate) fn end_of(&self, epoch: Epoch, log_end: u8) -> u8 {
        (usize::from(epoch) + 1..self.0.len())
            .find_map(|next| self.start_of(next as Epoch))
            .unwrap_or(log_end)
    }

    /// The epochs that begin at or below `end`.
    pub(crate) fn up_to(&self, end: u8) -> Self {
        Self(self.0.map(|start| if start <= end { start } else { UNKNOWN }))
    }

    /// The epochs that begin below `end`.
    pub(crate) fn below(&self, end: u8) -> Self {
        Self(self.0.map(|start| if start < end { start } else { UNKNOWN }))
    }

    /// These epochs, with the other's where both know one.
    pub(crate) fn overlaid_by(&self, other: &Self) -> Self {
        let mut merged = *self;
        for epoch in other.descending() {
            merged.0[usize::from(epoch)] = other.0[usize::from(epoch)];
        }
        merged
    }
}
