//! Hashes the ids of partitions, which are many and looked up for each batch.
//!
//! The server draws the topics' ids and counts the partitions itself, so no client can choose ids that collide, and a
//! multiplication for each eight bytes does.

use std::hash::Hasher;

/// Odd, and without a pattern.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdHasher(u64);

impl IdHasher {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ FACTOR) * u128::from(FACTOR);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(size_of::<u64>()) {
            let mut word = [0; size_of::<u64>()];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_i32(&mut self, number: i32) {
        self.add(u64::from(number.cast_unsigned()));
    }

    /// Lengths, which are all the same.
    fn write_usize(&mut self, _number: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    use riverrun_types::{PartitionId, TopicId};

    use super::*;

    #[test]
    fn hashes_of_one_topic_and_of_first_partitions_are_spread() {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let id = |topic: u128, index| PartitionId { topic: TopicId(topic.to_be_bytes()), index };
        let ids: Vec<_> =
            (0..10_000).map(|index| id(7, index)).chain((8..10_008).map(|n| id(n, 0))).collect();
        // The bits that the table looks at: the lowest for the place, the highest for a first comparison.
        for part in [|hash: u64| hash & 0xffff, |hash: u64| hash >> 48] {
            let found: HashSet<u64> = ids.iter().map(|id| part(hasher.hash_one(id))).collect();
            // About the number of 65,536 places that 20,000 balls hit.
            assert!((16_500..18_500).contains(&found.len()), "{}", found.len());
        }
    }
}
