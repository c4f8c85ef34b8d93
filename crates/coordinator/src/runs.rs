//! Partitions of one topic, each with a value, as runs of neighbours with the same value.
//!
//! Owns the compact form of the partitions of each member. Assignors mostly give neighbours away together, so a
//! member that reads ten thousand partitions of a topic takes no more memory than one that reads a single one. The
//! memory is proportional to the runs.
//!
//! Guarantees that no two runs could be one, so equal contents are equal maps however they were made; each operation
//! on one partition takes time logarithmic in the number of runs.

use std::collections::BTreeMap;
use std::iter::FusedIterator;

/// Partition indexes of one topic, each with a value.
///
/// Invariants: `runs` maps the first index of each run to the rest of it; runs do not overlap, and those that touch
/// differ in their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMap<V> {
    runs: BTreeMap<i32, Rest<V>>,
}

/// Partition indexes of one topic.
pub type Indexes = RunMap<()>;

/// A run beside its first index.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rest<V> {
    last: i32,
    value: V,
}

impl<V> Default for RunMap<V> {
    fn default() -> Self {
        Self { runs: BTreeMap::new() }
    }
}

impl<V> RunMap<V> {
    /// Whether it has no index.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Number of indexes.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(&first, rest)| width(first, rest.last)).sum()
    }

    /// Number of runs.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The value at this index.
    pub fn get(&self, index: i32) -> Option<&V> {
        let (_, rest) = self.run_up_to(index)?;
        (index <= rest.last).then_some(&rest.value)
    }

    /// Whether this index is in it.
    pub fn contains(&self, index: i32) -> bool {
        self.get(index).is_some()
    }

    /// The indexes with their values, in ascending order.
    pub fn iter(&self) -> impl FusedIterator<Item = (i32, &V)> {
        self.runs.iter().flat_map(|(&first, rest)| (first..=rest.last).map(move |index| (index, &rest.value)))
    }

    /// The indexes, in ascending order.
    pub fn indexes(&self) -> impl FusedIterator<Item = i32> {
        self.iter().map(|(index, _)| index)
    }

    /// The last run that begins at this index or before it.
    fn run_up_to(&self, index: i32) -> Option<(i32, &Rest<V>)> {
        self.runs.range(..=index).next_back().map(|(&first, rest)| (first, rest))
    }
}

impl<V: Clone + PartialEq> RunMap<V> {
    /// Sets the value of the index.
    pub fn insert(&mut self, index: i32, value: V) {
        match self.get(index) {
            Some(known) if *known == value => return,
            Some(_) => self.remove(index),
            None => {}
        }
        let last = self.last_if_joined_to(index, &value);
        match self.runs.range_mut(..index).next_back() {
            Some((_, before)) if before.last.checked_add(1) == Some(index) && before.value == value => {
                before.last = last;
            }
            _ => {
                self.runs.insert(index, Rest { last, value });
            }
        }
    }

    /// Removes the index.
    pub fn remove(&mut self, index: i32) {
        let Some((&first, rest)) = self.runs.range_mut(..=index).next_back() else { return };
        let last = rest.last;
        if last < index {
            return;
        }
        let value = rest.value.clone();
        if first == index {
            self.runs.remove(&first);
        } else {
            rest.last = index - 1;
        }
        if index < last {
            self.runs.insert(index + 1, Rest { last, value });
        }
    }

    /// Removes the run that begins right behind the index, if it has this value; returns the end of the joined run.
    fn last_if_joined_to(&mut self, index: i32, value: &V) -> i32 {
        let joins = |next: &i32| self.runs.get(next).is_some_and(|rest| rest.value == *value);
        let next = index.checked_add(1).filter(joins);
        next.and_then(|next| self.runs.remove(&next)).map_or(index, |rest| rest.last)
    }
}

impl<V: Clone + PartialEq> Extend<(i32, V)> for RunMap<V> {
    fn extend<T: IntoIterator<Item = (i32, V)>>(&mut self, entries: T) {
        entries.into_iter().for_each(|(index, value)| self.insert(index, value));
    }
}

impl<V: Clone + PartialEq> FromIterator<(i32, V)> for RunMap<V> {
    fn from_iter<T: IntoIterator<Item = (i32, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl Extend<i32> for Indexes {
    fn extend<T: IntoIterator<Item = i32>>(&mut self, indexes: T) {
        self.extend(indexes.into_iter().map(|index| (index, ())));
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<T: IntoIterator<Item = i32>>(indexes: T) -> Self {
        indexes.into_iter().map(|index| (index, ())).collect()
    }
}

impl<const N: usize> From<[i32; N]> for Indexes {
    fn from(indexes: [i32; N]) -> Self {
        indexes.into_iter().collect()
    }
}

/// Number of indexes of a run. It fits, because no run is longer than the range of indexes.
fn width(first: i32, last: i32) -> usize {
    usize::try_from(i64::from(last) - i64::from(first) + 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Indexes, RunMap};

    /// Checks that the runs are as few as they can be.
    fn assert_merged(map: &RunMap<u8>) {
        let runs: Vec<_> = map.runs.iter().collect();
        for (first, rest) in &runs {
            assert!(**first <= rest.last);
        }
        for pair in runs.windows(2) {
            let ((_, left), (&first, right)) = (pair[0], pair[1]);
            assert!(left.last < first);
            assert!(left.last + 1 < first || left.value != right.value, "two runs could be one");
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_of_single_indexes_holds(
            steps in prop::collection::vec((0_i32..24, prop::option::of(0_u8..3)), 0..80),
        ) {
            let (mut runs, mut model) = (RunMap::default(), BTreeMap::new());
            for (index, value) in steps {
                if let Some(value) = value {
                    runs.insert(index, value);
                    model.insert(index, value);
                } else {
                    runs.remove(index);
                    model.remove(&index);
                }
                assert_merged(&runs);
                prop_assert_eq!(runs.get(index), model.get(&index));
            }
            prop_assert_eq!(runs.len(), model.len());
            prop_assert_eq!(runs.is_empty(), model.is_empty());
            prop_assert!(runs.iter().eq(model.iter().map(|(&index, value)| (index, value))));
            prop_assert_eq!(&model.into_iter().rev().collect::<RunMap<u8>>(), &runs, "the order does not matter");
        }
    }

    #[test]
    fn neighbours_are_one_run_up_to_the_bounds_of_an_index() {
        let mut indexes = Indexes::from([i32::MAX, i32::MIN, i32::MAX - 1, i32::MIN + 1]);
        assert_eq!((indexes.run_count(), indexes.len()), (2, 4));
        indexes.remove(i32::MAX);
        indexes.remove(i32::MIN);
        assert!(indexes.indexes().eq([i32::MIN + 1, i32::MAX - 1]));
        let large: Indexes = (0..100_000).collect();
        assert_eq!((large.run_count(), large.len()), (1, 100_000));
    }
}
