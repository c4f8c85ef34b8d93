//! A map whose clones share everything unchanged: a change to one of 10,000 topics copies the image.
//!
//! Keys are spread over a fixed number of ordered maps behind reference counts. A clone copies the counts; a change
//! to a clone copies one shard of it, the first time. Deterministic: the same keys give the same shards anywhere.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::TopicId;

const SHARDS: usize = 256;

/// Says which shard a key belongs to.
pub trait ShardKey: Ord {
    /// A number that spreads keys evenly.
    fn spread(&self) -> usize;
}

impl ShardKey for str {
    /// The CRC's spread is even for names that people choose; names chosen to collide make changes slower, up to a
    /// copy of all topics, and nothing else.
    fn spread(&self) -> usize {
        crc32c::crc32c(self.as_bytes()) as usize
    }
}

impl ShardKey for Arc<str> {
    fn spread(&self) -> usize {
        str::spread(self)
    }
}

impl ShardKey for TopicId {
    fn spread(&self) -> usize {
        usize::from(self.0[15])
    }
}

/// The map.
///
/// Invariants: a key lies only in the shard that its spread names.
#[derive(Clone, Debug)]
pub struct ShardedMap<K, V> {
    shards: Vec<Arc<BTreeMap<K, V>>>,
}

impl<K: ShardKey + Clone, V: Clone> Default for ShardedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: ShardKey + Clone, V: Clone> ShardedMap<K, V> {
    /// A map without keys.
    pub fn new() -> Self {
        let empty = Arc::new(BTreeMap::new());
        Self { shards: vec![empty; SHARDS] }
    }

    /// The value of a key.
    pub fn get<Q: ShardKey + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.shards[key.spread() % SHARDS].get(key)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        Arc::make_mut(&mut self.shards[key.spread() % SHARDS]).insert(key, value);
    }

    /// Takes a key and its value out.
    pub fn remove<Q: ShardKey + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        Arc::make_mut(&mut self.shards[key.spread() % SHARDS]).remove(key)
    }

    /// Replaces the values for which `change` answers another. Shards without such a value stay shared.
    pub fn update(&mut self, change: impl Fn(&V) -> Option<V>) {
        for shard in &mut self.shards {
            let changed: Vec<(K, V)> =
                shard.iter().filter_map(|(key, value)| Some((key.clone(), change(value)?))).collect();
            if !changed.is_empty() {
                Arc::make_mut(shard).extend(changed);
            }
        }
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_empty())
    }

    /// All keys with their values, in no useful order: the same in maps that have the same keys.
    pub fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.shards.iter().flat_map(|shard| shard.iter())
    }

    /// All values, in no useful order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.shards.iter().flat_map(|shard| shard.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_to_a_clone_leaves_the_original_and_shares_the_rest() {
        let mut first: ShardedMap<Arc<str>, i32> = ShardedMap::new();
        for index in 0..1000 {
            first.insert(Arc::from(format!("topic-{index}")), index);
        }
        let mut second = first.clone();
        second.insert(Arc::from("topic-7"), -7);
        assert_eq!(second.remove("topic-8"), Some(8));
        assert_eq!((first.get("topic-7"), second.get("topic-7")), (Some(&7), Some(&-7)));
        assert_eq!((first.get("topic-8"), second.get("topic-8")), (Some(&8), None));
        assert_eq!((first.values().count(), second.values().count()), (1000, 999));
        assert_eq!((first.len(), second.len()), (1000, 999));
        let copied = first.shards.iter().zip(&second.shards).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert!(copied <= 2, "{copied} shards were copied");
    }

    #[test]
    fn an_update_copies_only_the_shards_that_it_changes() {
        let mut first: ShardedMap<TopicId, u8> = ShardedMap::new();
        for index in 0..10 {
            first.insert(TopicId([index; 16]), index);
        }
        let mut second = first.clone();
        second.update(|value| (*value > 7).then_some(value + 100));
        let mut values: Vec<_> = second.values().copied().collect();
        values.sort_unstable();
        assert_eq!(values, [0, 1, 2, 3, 4, 5, 6, 7, 108, 109]);
        let copied = first.shards.iter().zip(&second.shards).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(copied, 2);
    }

    #[test]
    fn values_are_all_there() {
        let mut map: ShardedMap<TopicId, u8> = ShardedMap::new();
        for index in 0..=255 {
            map.insert(TopicId([index; 16]), index);
        }
        assert_eq!(map.remove(&TopicId([9; 16])), Some(9));
        let mut values: Vec<_> = map.values().copied().collect();
        values.sort_unstable();
        assert_eq!(values, (0..=255).filter(|value| *value != 9).collect::<Vec<_>>());
    }
}
