//! Seeded randomness: the same seed gives the same numbers for ever.

use parking_lot::Mutex;

use crate::Random;

/// A generator of the `SplitMix64` family (Steele, Lea, Flood 2014): one 64-bit counter, well mixed. It is far from
/// secret, which a simulation does not need.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1. The bias of the remainder is of no account here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}

/// Randomness of a simulated world.
#[derive(Debug)]
pub struct SimRandom {
    state: Mutex<SplitMix>,
}

impl SimRandom {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: Mutex::new(SplitMix::new(seed)) }
    }

    /// Another source that goes on with the same sequence.
    pub(super) fn fork(&self) -> Self {
        Self { state: Mutex::new(self.state.lock().clone()) }
    }
}

impl Random for SimRandom {
    fn fill(&self, buffer: &mut [u8]) {
        let mut state = self.state.lock();
        for chunk in buffer.chunks_mut(8) {
            let bytes = state.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let draw = |seed| {
            let random = SimRandom::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1)[0], draw(1)[1]);
    }
}
