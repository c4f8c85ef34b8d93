//! Records without a key: a batch's worth to one partition, then to another.

/// The partition that records without a key go to for now.
///
/// Invariants: `chosen` is one of the partitions of the last call, and `bytes` went to it since it was chosen.
#[derive(Debug)]
pub(crate) struct Sticky {
    random: u64,
    chosen: Option<i32>,
    bytes: usize,
}

impl Sticky {
    /// Starts at a partition that follows from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        // The generator below stays at zero once it is there.
        Self { random: seed | 1, chosen: None, bytes: 0 }
    }

    /// The partition for a record of `record_bytes`, out of `available`, which is sorted, or of all while none has a leader.
    pub(crate) fn choose(
        &mut self,
        available: &[i32],
        all: i32,
        record_bytes: usize,
        switch_bytes: usize,
    ) -> i32 {
        let full = self.bytes.saturating_add(record_bytes) > switch_bytes && self.bytes > 0;
        let usable = |partition: i32| {
            if available.is_empty() { partition < all } else { available.binary_search(&partition).is_ok() }
        };
        let partition = match self.chosen {
            Some(partition) if !full && usable(partition) => partition,
            previous => self.next(available, all, previous),
        };
        self.chosen = Some(partition);
        self.bytes += record_bytes;
        partition
    }

    fn next(&mut self, available: &[i32], all: i32, previous: Option<i32>) -> i32 {
        self.bytes = 0;
        let all: Vec<i32> = if available.is_empty() { (0..all.max(1)).collect() } else { Vec::new() };
        let choices = if available.is_empty() { &all } else { available };
        #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
        let index = self.random() as usize % choices.len();
        // Not the same again, where there is another.
        if Some(choices[index]) == previous { choices[(index + 1) % choices.len()] } else { choices[index] }
    }

    /// xorshift64 (Marsaglia 2003): spread is all that is asked of it.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_batch_s_worth_goes_to_one_partition_and_the_next_elsewhere() {
        let mut sticky = Sticky::new(7);
        let first = sticky.choose(&[0, 1, 2], 3, 40, 100);
        assert_eq!(sticky.choose(&[0, 1, 2], 3, 40, 100), first);
        assert_ne!(sticky.choose(&[0, 1, 2], 3, 40, 100), first);
    }

    #[test]
    fn every_partition_gets_its_share() {
        let mut sticky = Sticky::new(42);
        let mut counts = BTreeMap::<i32, u32>::new();
        for _ in 0..3_000 {
            *counts.entry(sticky.choose(&[0, 1, 2], 3, 10, 10)).or_default() += 1;
        }
        assert!((0..3).all(|partition| (800..1_200).contains(&counts[&partition])), "{counts:?}");
    }

    #[test]
    fn a_partition_that_lost_its_leader_is_left() {
        let mut sticky = Sticky::new(3);
        let first = sticky.choose(&[0, 1], 2, 1, 100);
        assert_eq!(sticky.choose(&[1 - first], 2, 1, 100), 1 - first);
    }

    #[test]
    fn without_any_leader_a_partition_is_chosen_all_the_same() {
        let mut sticky = Sticky::new(9);
        assert!((0..4).contains(&sticky.choose(&[], 4, 1, 100)));
    }
}
