//! Partitions of records, and the evenness of their distribution.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ProducerOptions;

const BATCH_BYTES: usize = 16_384;

/// A topic with the properties that a test needs.
struct Topic {
    available: Vec<i32>,
    waiting: Vec<usize>,
    slow: BTreeSet<i32>,
}

impl Topic {
    fn of(count: i32) -> Self {
        let waiting = vec![0; usize::try_from(count).unwrap()];
        Self { available: (0..count).collect(), waiting, slow: BTreeSet::new() }
    }
}

impl TopicView for Topic {
    fn partition_count(&self) -> i32 {
        i32::try_from(self.waiting.len()).unwrap()
    }

    fn available(&self) -> &[i32] {
        &self.available
    }

    fn waiting_batches(&self, partition: i32) -> usize {
        self.waiting[usize::try_from(partition).unwrap()]
    }

    fn is_slow(&self, partition: i32) -> bool {
        self.slow.contains(&partition)
    }
}

/// Sends records of these sizes through batches of `BATCH_BYTES`, as the accumulator does. Returns partition and
/// bytes of each batch. `sent_early` tells whether a batch was sent before the record of this number.
fn batches(
    partitioner: &mut dyn TopicPartitioner,
    topic: &Topic,
    sizes: &[usize],
    sent_early: impl Fn(usize) -> bool,
) -> Vec<(i32, usize)> {
    let mut done = Vec::new();
    let mut open = BTreeMap::<i32, usize>::new();
    for (number, &bytes) in sizes.iter().enumerate() {
        if sent_early(number) {
            done.extend(std::mem::take(&mut open));
        }
        let needs = |open: &BTreeMap<i32, usize>, partition| {
            open.get(&partition).is_none_or(|held| held + bytes > BATCH_BYTES)
        };
        let mut partition = match partitioner.choose(&RecordRef::new("t", b""), topic) {
            Choice::Sticky(partition) => partition,
            Choice::Fixed(partition) => panic!("{partition} is not sticky"),
        };
        if needs(&open, partition) {
            partition = partitioner.on_new_batch(partition, bytes, topic);
        }
        if needs(&open, partition)
            && let Some(full) = open.remove(&partition)
        {
            done.push((partition, full));
        }
        *open.entry(partition).or_default() += bytes;
        partitioner.appended(partition, bytes);
    }
    done.extend(open);
    done
}

fn bytes_of(batches: &[(i32, usize)]) -> BTreeMap<i32, u64> {
    let mut bytes = BTreeMap::new();
    for (partition, size) in batches {
        *bytes.entry(*partition).or_default() += *size as u64;
    }
    bytes
}

/// Pearson's statistic of counts against their shares.
fn chi_square(counts: &[f64], shares: &[f64]) -> f64 {
    let (total, all): (f64, f64) = (counts.iter().sum(), shares.iter().sum());
    let term = |(count, share): (&f64, &f64)| {
        let expected = total * share / all;
        (count - expected).powi(2) / expected
    };
    counts.iter().zip(shares).map(term).sum()
}

/// Stints of each partition, from the bytes that it got. A stint is about a batch.
fn stints(bytes: &BTreeMap<i32, u64>, count: i32) -> Vec<f64> {
    (0..count)
        .map(|partition| bytes.get(&partition).copied().unwrap_or_default() as f64 / BATCH_BYTES as f64)
        .collect()
}

/// The value that the statistic of 9 partitions exceeds once in a thousand times (8 degrees of freedom).
const LIMIT_9: f64 = 26.12;
/// The same of 4 partitions.
const LIMIT_4: f64 = 16.27;

#[test]
fn uniform_sticky_spreads_bytes_evenly_over_time() {
    let sizes: Vec<usize> = (0..200_000).map(|at| 100 + at * 7919 % 1900).collect();
    let topic = Topic::of(9);
    for (seed, early_every) in [(1, 1_000_000), (2, 1_000_000), (3, 40), (4, 7), (5, 1)] {
        for adaptive in [true, false] {
            let mut partitioner = UniformSticky::new(BATCH_BYTES, seed).adaptive(adaptive);
            let done = batches(&mut partitioner, &topic, &sizes, |number| number % early_every == 0);
            let statistic = chi_square(&stints(&bytes_of(&done), 9), &[1.0; 9]);
            assert!(statistic < LIMIT_9, "seed {seed}, adaptive {adaptive}: {statistic}");
        }
    }
}

#[test]
fn sticky_is_even_while_leaders_are_equally_fast() {
    let sizes = vec![500; 200_000];
    for seed in 1..5 {
        let done = batches(&mut Sticky::new(seed), &Topic::of(9), &sizes, |number| number % 1000 == 0);
        let statistic = chi_square(&stints(&bytes_of(&done), 9), &[1.0; 9]);
        assert!(statistic < LIMIT_9, "seed {seed}: {statistic}");
        assert!(
            done.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() < 250,
            "it moves with every batch"
        );
    }
}

#[test]
fn choice_is_weighted_by_queue_length() {
    let topic = Topic { waiting: vec![0, 3, 1, 2], ..Topic::of(4) };
    for seed in 1..5 {
        let mut partitioner = UniformSticky::new(BATCH_BYTES, seed);
        let done = batches(&mut partitioner, &topic, &vec![BATCH_BYTES; 10_000], |_| false);
        let statistic = chi_square(&stints(&bytes_of(&done), 4), &[4.0, 1.0, 3.0, 2.0]);
        assert!(statistic < LIMIT_4, "seed {seed}: {statistic}");
    }
    let mut unmoved = UniformSticky::new(BATCH_BYTES, 1).adaptive(false);
    let done = batches(&mut unmoved, &topic, &vec![BATCH_BYTES; 10_000], |_| false);
    assert!(chi_square(&stints(&bytes_of(&done), 4), &[1.0; 4]) < LIMIT_4);
}

#[test]
fn partitions_of_slow_leaders_are_avoided_unless_all_are_slow() {
    let sizes = vec![BATCH_BYTES; 1000];
    let some = Topic { slow: [0, 2].into(), ..Topic::of(4) };
    let done = batches(&mut UniformSticky::new(BATCH_BYTES, 1), &some, &sizes, |_| false);
    assert_eq!(bytes_of(&done).into_keys().collect::<Vec<_>>(), [1, 3]);
    let all = Topic { slow: (0..4).collect(), ..Topic::of(4) };
    let done = batches(&mut UniformSticky::new(BATCH_BYTES, 1), &all, &sizes, |_| false);
    assert_eq!(bytes_of(&done).len(), 4);
}

#[test]
fn a_topic_of_many_partitions_gets_all_of_them_used() {
    let done = batches(
        &mut UniformSticky::new(BATCH_BYTES, 9),
        &Topic::of(1000),
        &vec![BATCH_BYTES; 30_000],
        |_| false,
    );
    assert_eq!(bytes_of(&done).len(), 1000);
}

#[test]
fn leaderless_partitions_get_nothing_while_others_lead() {
    let sizes = vec![BATCH_BYTES; 300];
    let partitioners: [Box<dyn TopicPartitioner>; 2] =
        [Box::new(Sticky::new(3)), Box::new(UniformSticky::new(BATCH_BYTES, 3))];
    for mut partitioner in partitioners {
        let topic = Topic { available: vec![1, 3], ..Topic::of(5) };
        let done = batches(&mut *partitioner, &topic, &sizes, |_| false);
        assert_eq!(bytes_of(&done).into_keys().collect::<Vec<_>>(), [1, 3]);
        let none = Topic { available: Vec::new(), ..Topic::of(5) };
        let done = batches(&mut *partitioner, &none, &sizes, |_| false);
        assert!(done.iter().all(|(partition, _)| (0..5).contains(partition)));
    }
}

#[test]
fn round_robin_takes_turns() {
    let (mut rotation, record) = (RoundRobin::default(), RecordRef::new("t", b"").with_key(b"k"));
    let topic = Topic { available: vec![0, 2, 3], ..Topic::of(4) };
    let chosen: Vec<Choice> = (0..6).map(|_| rotation.choose(&record, &topic)).collect();
    assert_eq!(chosen, [0, 2, 3, 0, 2, 3].map(Choice::Fixed));
    let none = Topic { available: Vec::new(), ..Topic::of(4) };
    assert_eq!(rotation.choose(&record, &none), Choice::Fixed(2));
}

#[test]
fn keyed_round_robin_rotates_only_keyless_records() {
    let topic = Topic { available: vec![0, 2, 3], ..Topic::of(4) };
    let (plain, keyed) = (RecordRef::new("t", b""), RecordRef::new("t", b"").with_key(b"21"));
    let of_key = Choice::Fixed(partition_of_key(b"21", 4));
    let mut rotation = KeyedRoundRobin::new(5);
    let mut chosen = Vec::new();
    for _ in 0..6 {
        assert_eq!(rotation.choose(&keyed, &topic), of_key);
        chosen.push(rotation.choose(&plain, &topic));
    }
    let begin = [0, 2, 3].iter().position(|one| chosen[0] == Choice::Fixed(*one)).unwrap();
    let expected: Vec<_> = [0, 2, 3].into_iter().cycle().skip(begin).take(6).map(Choice::Fixed).collect();
    assert_eq!(chosen, expected);
    let begins: BTreeSet<i32> = (0..50)
        .filter_map(|seed| match KeyedRoundRobin::new(seed).choose(&plain, &topic) {
            Choice::Fixed(partition) => Some(partition),
            Choice::Sticky(_) => None,
        })
        .collect();
    assert_eq!(begins, [0, 2, 3].into(), "producers begin in different places");
    let mut all = KeyedRoundRobin::new(5).ignore_keys(true);
    assert_eq!((0..6).map(|_| all.choose(&keyed, &topic)).collect::<Vec<_>>(), expected);
}

#[test]
fn a_key_decides_unless_keys_are_ignored() {
    let (topic, record) = (Topic::of(7), RecordRef::new("t", b"").with_key(b"21"));
    let keyed = Choice::Fixed(partition_of_key(b"21", 7));
    assert_eq!(UniformSticky::new(1, 1).choose(&record, &topic), keyed);
    assert_eq!(Sticky::new(1).choose(&record, &topic), keyed);
    assert!(matches!(UniformSticky::new(1, 1).ignore_keys(true).choose(&record, &topic), Choice::Sticky(_)));
    assert!(matches!(Sticky::new(1).ignore_keys(true).choose(&record, &topic), Choice::Sticky(_)));
}

/// Whether a record with a key goes to its key's partition.
#[test]
fn each_name_treats_keys_as_kafkas_class_does() {
    let (topic, record) = (Topic::of(7), RecordRef::new("t", b"").with_key(b"21"));
    let (keyed, first) = (Choice::Fixed(partition_of_key(b"21", 7)), Choice::Fixed(0));
    for (name, honours) in [
        ("", true),
        ("uniform-sticky", true),
        ("sticky", true),
        ("keyed-round-robin", true),
        ("round-robin", false),
        ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", true),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", false),
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", false),
        ("DefaultPartitioner", true),
        ("UniformStickyPartitioner", false),
        ("RoundRobinPartitioner", false),
    ] {
        let options = ProducerOptions::from_properties([("partitioner.class", name)]).unwrap();
        let chosen = options.partitioner.for_topic(&options, 1).choose(&record, &topic);
        assert_eq!(chosen == keyed, honours, "{name}: {chosen:?}");
        assert!(honours || chosen == first || matches!(chosen, Choice::Sticky(_)), "{name}: {chosen:?}");
        let text = options.get("partitioner.class").unwrap();
        let again = ProducerOptions::from_properties([("partitioner.class", text.as_str())]).unwrap();
        assert_eq!(again.get("partitioner.class"), Some(text), "{name}");
    }
}

proptest! {
    /// For all sizes: no batch is left before it is done, and no partition gets more than two batches' bytes at once.
    #[test]
    fn a_batch_is_left_only_when_it_is_done(
        sizes in prop::collection::vec(1_usize..4000, 1..400),
        early_every in 1_usize..50,
        seed: u64,
    ) {
        for sticky in [false, true] {
            let mut partitioner: Box<dyn TopicPartitioner> =
                if sticky { Box::new(Sticky::new(seed)) } else { Box::new(UniformSticky::new(BATCH_BYTES, seed)) };
            let early = |number: usize| number.is_multiple_of(early_every) && number.is_multiple_of(3);
            let done = batches(&mut *partitioner, &Topic::of(5), &sizes, early);
            let largest = sizes.iter().max().copied().unwrap_or_default();
            let early_ends = (0..sizes.len()).filter(|number| early(*number)).count();
            // Each early end leaves at most one batch that is not full, and so does the end of all.
            let short = done.iter().filter(|(_, bytes)| bytes + largest <= BATCH_BYTES).count();
            prop_assert!(short <= early_ends + 1, "{short} short batches, {early_ends} sent early: {done:?}");
        }
    }
}
