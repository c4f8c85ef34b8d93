//! Random numbers for choices of which only the distribution matters.

/// xorshift64* (Marsaglia 2003, Vigna 2016).
///
/// Invariants: the state is not zero.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Similar seeds would give similar first numbers.
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is at least 1. The bias is below `bound` / 2^64.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound.max(1));
        (wide >> 64) as u64
    }

    /// One of `items`, if there are any.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let at = usize::try_from(self.below(items.len() as u64)).ok()?;
        items.get(at).copied()
    }
}
