//! Each record to the next partition: all records, or those without a key.

use super::random::Random;
use super::{Choice, TopicPartitioner, TopicView, partition_of_key};
use crate::producer::record::RecordRef;

/// Uses the partitions that have a leader in rotation, or all of them while none has, as Kafka's
/// `RoundRobinPartitioner` does: every record goes to the next one, whatever its key.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    fn take_turn(&mut self, topic: &dyn TopicView) -> i32 {
        let at = self.next;
        self.next = self.next.wrapping_add(1);
        let available = topic.available();
        if available.is_empty() {
            let count = usize::try_from(topic.partition_count()).unwrap_or(1).max(1);
            return i32::try_from(at % count).unwrap_or_default();
        }
        available[at % available.len()]
    }
}

impl TopicPartitioner for RoundRobin {
    fn choose(&mut self, _: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        Choice::Fixed(self.take_turn(topic))
    }
}

/// Rotates as [`RoundRobin`] does for records without a key; records with one go to their key's partition and do not
/// advance the rotation. That was the default of Kafka's producer before it became sticky (KIP-480), so it is the
/// baseline for the sticky ones where records have keys.
#[derive(Debug)]
pub struct KeyedRoundRobin {
    turns: RoundRobin,
    ignore_keys: bool,
}

impl KeyedRoundRobin {
    /// Begins with a partition that follows from `seed`, so that not all producers begin with the same.
    pub fn new(seed: u64) -> Self {
        let begin = Random::new(seed).below(u64::from(u32::MAX));
        Self { turns: RoundRobin { next: usize::try_from(begin).unwrap_or_default() }, ignore_keys: false }
    }

    /// Whether records with a key rotate as if they had none.
    #[must_use]
    pub fn ignore_keys(mut self, ignore: bool) -> Self {
        self.ignore_keys = ignore;
        self
    }
}

impl TopicPartitioner for KeyedRoundRobin {
    fn choose(&mut self, record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        match record.key {
            Some(key) if !self.ignore_keys => Choice::Fixed(partition_of_key(key, topic.partition_count())),
            _ => Choice::Fixed(self.turns.take_turn(topic)),
        }
    }
}
