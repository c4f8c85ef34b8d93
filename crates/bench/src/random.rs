//! Random numbers that a seed repeats: for payloads, keys and choices.
//!
//! `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Good enough for load,
//! and nothing here is a secret.

/// A sequence of numbers that is determined by its seed.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A sequence that cannot be repeated. Without the system's randomness it is that of seed 0, which does a load no
    /// harm.
    pub fn unseeded() -> Self {
        Self::new(getrandom::u64().unwrap_or(0))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must be above 0. The bias of this method is below `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A sequence of its own, seeded by the next 64 bits.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Fills `bytes` with capital letters, A to Z, all equally likely.
    pub fn fill_letters(&mut self, bytes: &mut [u8]) {
        const LETTERS: u64 = 26;
        /// 26 to this power fits into 64 bits with room to spare, so the bias among letters is negligible.
        const LETTERS_PER_DRAW: usize = 10;
        for letters in bytes.chunks_mut(LETTERS_PER_DRAW) {
            let mut rest = self.next_u64();
            for letter in letters {
                *letter = b'A' + (rest % LETTERS).to_le_bytes()[0];
                rest /= LETTERS;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The reference implementation's first numbers for seed 1234567.
        let mut random = SeededRandom::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn letters_are_all_used_and_none_is_preferred() {
        let mut letters = vec![0; 260_000];
        SeededRandom::new(3).fill_letters(&mut letters);
        for letter in b'A'..=b'Z' {
            let count = letters.iter().map(|byte| usize::from(*byte == letter)).sum::<usize>();
            // Ten standard deviations around 10,000.
            assert!((9_000..11_000).contains(&count), "{} comes {count} times", char::from(letter));
        }
        assert!(letters.iter().all(u8::is_ascii_uppercase));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = SeededRandom::new(9);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[usize::try_from(random.below(7)).unwrap()] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(1), 0);
    }
}
