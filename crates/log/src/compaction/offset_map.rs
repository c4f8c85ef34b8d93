//! The last offset of each key, in memory that is fixed before the first key is seen.
//!
//! Keys are not kept: a slot holds 128 bits of a keyed hash and the offset. Two keys with the same hash would be
//! taken for one; with a seed that nobody outside knows this is as unlikely as a random collision of 128 bits
//! (below 2^-80 for the largest map), and nobody can construct one. Open addressing with linear probing.

use std::hash::{DefaultHasher, Hasher};

use riverrun_types::Offset;

/// Bytes of one slot: hash and offset.
pub const SLOT_BYTES: usize = size_of::<Slot>();

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    offset: i64,
}

const EMPTY: Slot = Slot { hash: [0; 2], offset: -1 };

/// How large a map may become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffsetMapOptions {
    /// `log.cleaner.dedupe.buffer.size` per cleaning thread: bytes of all slots at most.
    pub buffer_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`: share of the slots that may be filled, above 0 and below 1.
    pub load_factor: f64,
    /// Keys that can come at most; the map is not made larger than they need.
    pub keys_max: u64,
    /// A number that nobody outside knows.
    pub seed: [u64; 2],
}

/// Key -> last offset.
///
/// Invariants: `len <= capacity < slots.len()`, so probing always meets an empty slot.
pub struct OffsetMap {
    slots: Vec<Slot>,
    len: usize,
    capacity: usize,
    seed: [u64; 2],
}

impl OffsetMap {
    /// An empty map.
    pub fn new(options: OffsetMapOptions) -> Self {
        let slots_max = (options.buffer_bytes / SLOT_BYTES).max(2);
        let load_factor = options.load_factor.clamp(0.1, 0.95);
        #[expect(clippy::cast_possible_truncation, reason = "a product of a length and a number below 1")]
        let filled = |slots: usize| ((slots as f64 * load_factor) as usize).clamp(1, slots - 1);
        // The load factor is at least a tenth, so ten slots for each key are always enough.
        let keys_max = usize::try_from(options.keys_max).unwrap_or(usize::MAX);
        let mut slots = keys_max.saturating_add(2).min(slots_max);
        while slots < slots_max && filled(slots) < keys_max {
            slots = slots.saturating_mul(2).min(slots_max);
        }
        Self { slots: vec![EMPTY; slots], len: 0, capacity: filled(slots), seed: options.seed }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Remembers that `key` occurs at `offset`; `false` if the map is full and the key is new, and then nothing
    /// changed. An offset below the known one changes nothing.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let index = self.find(hash);
        let is_new = self.slots[index].offset < 0;
        if is_new && self.len == self.capacity {
            return false;
        }
        self.len += usize::from(is_new);
        let known = self.slots[index].offset;
        self.slots[index] = Slot { hash, offset: known.max(offset.0) };
        true
    }

    /// The last offset that was put for `key`.
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots[self.find(self.hash(key))];
        (slot.offset >= 0).then_some(Offset(slot.offset))
    }

    /// Index of the slot that holds `hash`, or of the empty one where it would go.
    fn find(&self, hash: [u64; 2]) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the length")]
        let mut index = (hash[0] % self.slots.len() as u64) as usize;
        while self.slots[index].offset >= 0 && self.slots[index].hash != hash {
            index = (index + 1) % self.slots.len();
        }
        index
    }

    /// Two independent 64-bit hashes: the seed goes in first, so that it reaches every step after it.
    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [0, 1].map(|lane: u64| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.seed[0]);
            hasher.write_u64(self.seed[1] ^ lane);
            hasher.write(key);
            hasher.finish()
        })
    }
}

#[cfg(test)]
mod tests;
