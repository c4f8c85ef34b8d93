//! A batch to one partition, the next to another (KIP-480).

use super::random::Random;
use super::{Choice, TopicPartitioner, TopicView, partition_of_key};
use crate::producer::record::RecordRef;

/// Records without a key go to one partition until its batch is done, however small, and then to another that has a
/// leader. A partition with a slow leader thus gets more records, because its batches grow; [`UniformSticky`] does
/// not have that flaw.
///
/// [`UniformSticky`]: super::UniformSticky
#[derive(Debug)]
pub struct Sticky {
    random: Random,
    chosen: Option<i32>,
    /// Whether a record has gone to `chosen` since it was chosen.
    used: bool,
    ignore_keys: bool,
}

impl Sticky {
    /// Begins with a partition that follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), chosen: None, used: false, ignore_keys: false }
    }

    /// Whether records with a key are spread as if they had none.
    #[must_use]
    pub fn ignore_keys(mut self, ignore: bool) -> Self {
        self.ignore_keys = ignore;
        self
    }

    fn next(&mut self, topic: &dyn TopicView) -> i32 {
        let previous = self.chosen;
        let available = topic.available();
        let partition = match (available, previous) {
            ([], _) => random_of_all(&mut self.random, topic),
            ([only], _) => *only,
            // Not the same again, if there is another.
            (_, Some(previous)) if available.binary_search(&previous).is_ok() => {
                let at = self.random.below(available.len() as u64 - 1);
                let chosen = available[usize::try_from(at).unwrap_or_default()];
                if chosen >= previous { successor(available, chosen) } else { chosen }
            }
            _ => self.random.pick(available).unwrap_or_default(),
        };
        (self.chosen, self.used) = (Some(partition), false);
        partition
    }
}

/// The one after `partition` in a list that it is not the last of.
fn successor(sorted: &[i32], partition: i32) -> i32 {
    let after = sorted.partition_point(|other| *other <= partition);
    sorted.get(after).copied().unwrap_or(partition)
}

/// One of all partitions, while none has a leader.
pub(super) fn random_of_all(random: &mut Random, topic: &dyn TopicView) -> i32 {
    let count = u64::try_from(topic.partition_count()).unwrap_or(1);
    i32::try_from(random.below(count)).unwrap_or_default()
}

impl TopicPartitioner for Sticky {
    fn choose(&mut self, record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        match record.key {
            Some(key) if !self.ignore_keys => Choice::Fixed(partition_of_key(key, topic.partition_count())),
            _ => Choice::Sticky(self.chosen.unwrap_or_else(|| self.next(topic))),
        }
    }

    fn on_new_batch(&mut self, partition: i32, _: usize, topic: &dyn TopicView) -> i32 {
        // A partition that has just been chosen has had no batch yet.
        if self.used { self.next(topic) } else { partition }
    }

    fn appended(&mut self, _: i32, _: usize) {
        self.used = true;
    }
}
