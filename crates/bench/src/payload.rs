//! Sources of record values.
//!
//! Guarantees that taking a value costs next to nothing: random letters and files are made and read once, before the
//! measurement. Values of random letters do not repeat within any codec's window, so they compress as badly as random
//! letters should, to about 4.7 bits each.

use std::io;
use std::path::Path;

use bytes::Bytes;

use crate::random::SeededRandom;

/// Fewest letters in the pool; a batch is shorter, so no codec sees a letter twice.
const POOL_BYTES_MIN: usize = 4 * 1024 * 1024;
/// Fewest values that the pool holds.
const POOL_VALUES_MIN: usize = 4;

/// A source of values.
#[derive(Clone, Debug)]
pub struct Payloads {
    kind: Kind,
    random: SeededRandom,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Consecutive slices of one pool of letters.
    Letters { pool: Bytes, size: usize, next: usize },
    /// One of these, at random.
    Choice(Vec<Bytes>),
    /// The record's number in decimal digits; holds the last ones.
    Monotonic(String),
}

/// A payload file without a payload in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file has no payload")]
pub struct NoPayload;

impl Payloads {
    /// Values of `size` random letters, A to Z.
    pub fn random(size: usize, seed: u64) -> Self {
        let mut random = SeededRandom::new(seed);
        let mut pool = vec![0; POOL_BYTES_MIN.max(size.saturating_mul(POOL_VALUES_MIN))];
        random.fill_letters(&mut pool);
        Self { kind: Kind::Letters { pool: pool.into(), size, next: 0 }, random }
    }

    /// Values that are the record's number, as decimal digits.
    pub fn monotonic() -> Self {
        Self { kind: Kind::Monotonic(String::new()), random: SeededRandom::new(0) }
    }

    /// Values chosen from these at random.
    pub fn choice(values: Vec<Bytes>, seed: u64) -> Result<Self, NoPayload> {
        if values.is_empty() {
            return Err(NoPayload);
        }
        Ok(Self { kind: Kind::Choice(values), random: SeededRandom::new(seed) })
    }

    /// Values chosen from a file at random. `delimiter` separates them; empty ones at the end are dropped.
    pub fn from_file(path: &Path, delimiter: &str, seed: u64) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut values: Vec<_> =
            if delimiter.is_empty() { vec![text.as_str()] } else { text.split(delimiter).collect() };
        while values.pop_if(|value| value.is_empty()).is_some() {}
        let values = values.into_iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
        Self::choice(values, seed).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The same values in another order, for another sender; the letters themselves are shared.
    #[must_use]
    pub fn another(&mut self) -> Self {
        let mut other = Self { kind: self.kind.clone(), random: self.random.split() };
        if let Kind::Letters { pool, size, next } = &mut other.kind {
            let places = (pool.len() - *size) as u64 + 1;
            *next = usize::try_from(other.random.below(places)).unwrap_or(0);
        }
        other
    }

    /// The value of the record with this number.
    pub fn next(&mut self, number: u64) -> &[u8] {
        match &mut self.kind {
            Kind::Letters { pool, size, next } => {
                if *next + *size > pool.len() {
                    // Continues at a random place, so that long runs do not repeat the same sequence of values.
                    let places = (*size).min(pool.len() - *size) as u64 + 1;
                    *next = usize::try_from(self.random.below(places)).unwrap_or(0);
                }
                let begin = *next;
                *next += *size;
                &pool[begin..*next]
            }
            Kind::Choice(values) => {
                &values[usize::try_from(self.random.below(values.len() as u64)).unwrap_or(0)]
            }
            Kind::Monotonic(digits) => {
                *digits = number.to_string();
                digits.as_bytes()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn random_values_have_their_size_and_do_not_repeat() {
        for size in [1, 100, 5_000, 1_500_000] {
            let mut payloads = Payloads::random(size, 1);
            let values: Vec<_> = (0..20).map(|number| payloads.next(number).to_vec()).collect();
            assert!(values.iter().all(|value| value.len() == size), "{size}");
            assert!(values.iter().flatten().all(u8::is_ascii_uppercase));
            let apart: HashSet<_> = values[..3].iter().collect();
            assert!(size == 1 || apart.len() == 3, "{size}");
        }
        assert_eq!(Payloads::random(0, 1).next(0), b"");
    }

    #[test]
    fn letters_continue_at_another_place_after_their_end() {
        let mut payloads = Payloads::random(1_000_000, 7);
        let first: HashSet<_> = (0..4).map(|number| payloads.next(number).to_vec()).collect();
        let again: HashSet<_> = (4..8).map(|number| payloads.next(number).to_vec()).collect();
        assert!(first.is_disjoint(&again));
    }

    #[test]
    fn seed_repeats_values_but_not_for_another_sender() {
        let (mut one, mut same) = (Payloads::random(64, 5), Payloads::random(64, 5));
        assert_eq!(
            (0..9).map(|n| one.next(n).to_vec()).collect::<Vec<_>>(),
            (0..9).map(|n| same.next(n).to_vec()).collect::<Vec<_>>()
        );
        let mut other = one.another();
        assert_ne!(one.next(9), other.next(9));
    }

    #[test]
    fn monotonic_values_are_record_numbers() {
        let mut payloads = Payloads::monotonic();
        assert_eq!(payloads.next(0), b"0");
        assert_eq!(payloads.next(1234), b"1234");
    }

    #[test]
    fn file_is_split_at_the_delimiter_and_used_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("payloads");
        std::fs::write(&path, "one||two||three||||").unwrap();
        let mut payloads = Payloads::from_file(&path, "||", 2).unwrap();
        let seen: HashSet<_> = (0..200).map(|number| payloads.next(number).to_vec()).collect();
        assert_eq!(seen, ["one", "two", "three"].map(|value| value.as_bytes().to_vec()).into());
        std::fs::write(&path, "\n\n").unwrap();
        let error = Payloads::from_file(&path, "\n", 2).unwrap_err();
        assert_eq!(error.to_string(), NoPayload.to_string());
    }
}
