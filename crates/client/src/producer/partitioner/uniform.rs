//! The same number of bytes to every partition, a batch's worth at a time (KIP-794).

use super::random::Random;
use super::sticky::random_of_all;
use super::{Choice, TopicPartitioner, TopicView, partition_of_key};
use crate::producer::record::RecordRef;

/// The weights are recomputed after this many choices for each partition's share: so the cost of reading a topic of
/// many partitions is spread over as many choices.
const PARTITIONS_PER_LOOK: usize = 64;

/// Records without a key go to one partition for `batch_bytes`, and then to one that is chosen at random; but never
/// before a batch is done, full or sent, so that no batch is left half filled.
///
/// Adaptive: partitions with longer queues are chosen less often, and those whose leader takes nothing not at all.
///
/// Invariants: `bytes` went to `chosen` since it was chosen; `weights` are running sums for the partitions in
/// `candidates`, and strictly rise.
#[derive(Debug)]
pub struct UniformSticky {
    batch_bytes: usize,
    adaptive: bool,
    ignore_keys: bool,
    random: Random,
    chosen: Option<i32>,
    bytes: usize,
    candidates: Vec<i32>,
    weights: Vec<u64>,
    /// Choices left before the weights are recomputed.
    looks_left: usize,
}

impl UniformSticky {
    /// Switches after `batch_bytes`. Choices follow from `seed`.
    pub fn new(batch_bytes: usize, seed: u64) -> Self {
        Self {
            batch_bytes,
            adaptive: true,
            ignore_keys: false,
            random: Random::new(seed),
            chosen: None,
            bytes: 0,
            candidates: Vec::new(),
            weights: Vec::new(),
            looks_left: 0,
        }
    }

    /// Whether queues and slow leaders affect the choice.
    #[must_use]
    pub fn adaptive(mut self, adaptive: bool) -> Self {
        self.adaptive = adaptive;
        self
    }

    /// Whether records with a key are spread as if they had none.
    #[must_use]
    pub fn ignore_keys(mut self, ignore: bool) -> Self {
        self.ignore_keys = ignore;
        self
    }

    fn next(&mut self, topic: &dyn TopicView) -> i32 {
        let partition = if topic.available().is_empty() {
            random_of_all(&mut self.random, topic)
        } else if self.adaptive {
            self.next_by_weight(topic)
        } else {
            self.random.pick(topic.available()).unwrap_or_default()
        };
        (self.chosen, self.bytes) = (Some(partition), 0);
        partition
    }

    fn next_by_weight(&mut self, topic: &dyn TopicView) -> i32 {
        if self.looks_left == 0 {
            self.look(topic);
        }
        self.looks_left -= 1;
        let total = self.weights.last().copied().unwrap_or_default();
        let at = self.random.below(total);
        let place = self.weights.partition_point(|sum| *sum <= at);
        self.candidates.get(place).copied().unwrap_or_default()
    }

    /// Weighs the partitions: the longest queue weighs 1, each shorter one more by the difference in length.
    fn look(&mut self, topic: &dyn TopicView) {
        let available = topic.available();
        self.looks_left = 1 + available.len() / PARTITIONS_PER_LOOK;
        self.candidates.clear();
        self.candidates.extend(available.iter().filter(|partition| !topic.is_slow(**partition)));
        if self.candidates.is_empty() {
            self.candidates.extend_from_slice(available);
        }
        let longest = self.candidates.iter().map(|one| topic.waiting_batches(*one)).max().unwrap_or_default();
        let mut sum = 0;
        self.weights.clear();
        self.weights.extend(self.candidates.iter().map(|one| {
            sum += (longest + 1 - topic.waiting_batches(*one)) as u64;
            sum
        }));
    }
}

impl TopicPartitioner for UniformSticky {
    fn choose(&mut self, record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        match record.key {
            Some(key) if !self.ignore_keys => Choice::Fixed(partition_of_key(key, topic.partition_count())),
            _ => Choice::Sticky(self.chosen.unwrap_or_else(|| self.next(topic))),
        }
    }

    fn on_new_batch(&mut self, partition: i32, record_bytes: usize, topic: &dyn TopicView) -> i32 {
        let done = self.bytes > 0 && self.bytes + record_bytes > self.batch_bytes;
        // A partition that has lost its leader takes nothing for now.
        let lost = !topic.available().is_empty() && topic.available().binary_search(&partition).is_err();
        if done || lost { self.next(topic) } else { partition }
    }

    fn appended(&mut self, _: i32, record_bytes: usize) {
        self.bytes += record_bytes;
    }
}
