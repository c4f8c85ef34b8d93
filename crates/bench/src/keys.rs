//! The choice of record keys.
//!
//! `range` and `random` are those of Kafka's tool (KIP-1299): the key is a number below the range, as decimal digits.
//! `sequential` and `mixed` are ours: no key comes twice, or every other record has none.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

use crate::random::SeededRandom;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyDistribution {
    /// No record has a key.
    #[default]
    None,
    /// The record's number modulo the range.
    Range,
    /// Any number below the range, all equally likely.
    Random,
    /// The record's number: no key comes twice.
    Sequential,
    /// Every other record has a random key, the others none.
    Mixed,
}

impl KeyDistribution {
    /// All distributions, in the order of the documentation.
    pub const ALL: [Self; 5] = [Self::None, Self::Range, Self::Random, Self::Sequential, Self::Mixed];

    /// Its name on a command line and in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Range => "range",
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::Mixed => "mixed",
        }
    }

    /// Whether keys are numbers below a range, which must be given.
    pub fn needs_range(self) -> bool {
        matches!(self, Self::Range | Self::Random | Self::Mixed)
    }
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No distribution of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key distribution is none, range, random, sequential or mixed")]
pub struct ParseKeyDistributionError;

impl FromStr for KeyDistribution {
    type Err = ParseKeyDistributionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|one| one.name().eq_ignore_ascii_case(text))
            .ok_or(ParseKeyDistributionError)
    }
}

/// A source of keys.
#[derive(Clone, Debug)]
pub struct Keys {
    distribution: KeyDistribution,
    range: u64,
    random: SeededRandom,
    /// Whether the last record of a mixture had a key. Record numbers cannot decide it: a sender may have only every
    /// other number.
    keyed: bool,
}

impl Keys {
    /// Keys of this distribution, below `range` if it uses one; a range of 0 counts as 1.
    pub fn new(distribution: KeyDistribution, range: u64, seed: u64) -> Self {
        Self { distribution, range: range.max(1), random: SeededRandom::new(seed), keyed: false }
    }

    /// Keys for another sender, with other random numbers.
    #[must_use]
    pub fn another(&mut self) -> Self {
        Self { random: self.random.split(), ..*self }
    }

    /// The key of the record with this number.
    pub fn next(&mut self, number: u64) -> Option<Bytes> {
        self.keyed = !self.keyed;
        let key = match self.distribution {
            KeyDistribution::None => return None,
            KeyDistribution::Mixed if !self.keyed => return None,
            KeyDistribution::Range => number % self.range,
            KeyDistribution::Random | KeyDistribution::Mixed => self.random.below(self.range),
            KeyDistribution::Sequential => number,
        };
        Some(Bytes::from(key.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn keys(distribution: KeyDistribution, range: u64, count: u64) -> Vec<Option<String>> {
        let mut keys = Keys::new(distribution, range, 11);
        let text = |key: Bytes| String::from_utf8(key.to_vec()).unwrap();
        (0..count).map(|number| keys.next(number).map(text)).collect()
    }

    fn some(keys: &[&str]) -> Vec<Option<String>> {
        keys.iter().map(|key| Some((*key).to_owned())).collect()
    }

    #[test]
    fn keys_are_decimal_digits_as_the_distribution_says() {
        assert_eq!(keys(KeyDistribution::None, 3, 3), [None, None, None]);
        assert_eq!(keys(KeyDistribution::Range, 3, 5), some(&["0", "1", "2", "0", "1"]));
        assert_eq!(keys(KeyDistribution::Sequential, 3, 5), some(&["0", "1", "2", "3", "4"]));
    }

    #[test]
    fn random_keys_are_all_below_the_range_and_reach_it() {
        let found: HashSet<_> = keys(KeyDistribution::Random, 10, 500).into_iter().flatten().collect();
        assert_eq!(found, (0..10).map(|key| key.to_string()).collect());
    }

    #[test]
    fn every_other_mixed_record_has_a_key() {
        let found = keys(KeyDistribution::Mixed, 1000, 100);
        assert!(found.iter().enumerate().all(|(at, key)| key.is_some() == (at % 2 == 0)));
        assert!(found.iter().flatten().collect::<HashSet<_>>().len() > 30, "random, not one by one");
    }

    #[test]
    fn sender_of_every_other_number_mixes_keys_too() {
        let mut keys = Keys::new(KeyDistribution::Mixed, 1000, 11);
        let keyed: Vec<_> = (0..6).map(|number| keys.next(2 * number).is_some()).collect();
        assert_eq!(keyed, [true, false, true, false, true, false]);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for one in KeyDistribution::ALL {
            assert_eq!(one.to_string().to_uppercase().parse(), Ok(one));
        }
        assert_eq!("zipf".parse::<KeyDistribution>(), Err(ParseKeyDistributionError));
    }
}
