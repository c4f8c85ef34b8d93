//! The plan of a run, in one form for all kinds of files.
//!
//! Owns the form in which producers, consumers, topics and rates reach the runner and its workers, which know no file
//! formats. A plan is complete: nothing is left to choose, and random numbers come from its seed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use riverrun_measure::pacing::Rate;
use riverrun_types::{DurabilityLevel, ParseDurabilityError};
use serde::{Deserialize, Serialize, Serializer};

use crate::keys::{KeyDistribution, Keys};
use crate::payload::Payloads;
use crate::properties::Properties;
use crate::random::SeededRandom;
use crate::trogdor::{Generator, GeneratorSpec};

/// Longest measurement of a run that ends with a number of records.
pub(crate) const UNTIL_DONE: Duration = Duration::from_hours(24 * 30);

/// Most partitions assigned to all consumers together, and most topics and partitions that they name: each consumer
/// keeps the names of its own.
pub(crate) const PLACES_MAX: u64 = 1_000_000;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its title.
    pub name: String,
    /// The topics to create for it.
    pub topics: Vec<TopicPlan>,
    /// The producers.
    pub producers: Vec<ProducerPlan>,
    /// The consumers.
    pub consumers: Vec<ConsumerPlan>,
    /// Records and client settings.
    pub load: LoadPlan,
    /// Rate over all producers.
    pub rate: TargetRate,
    /// Time of the load before the measurement.
    pub warmup: Duration,
    /// Time of the measurement.
    pub test: Duration,
    /// The run ends when this many records were sent (read, if nobody sends), if that is before its time.
    pub messages: Option<u64>,
    /// Records that are written before consumers begin to read.
    pub backlog: Option<Backlog>,
    /// The failure that acked records are to survive; `None` for the server's default.
    pub durability: Option<Durability>,
    /// How long the server's disk is to be full within the measurement.
    pub disk_full: Option<Duration>,
    /// How the plan was shrunk; `None` if it was not.
    pub shrunk: Option<Shrunk>,
    /// Settings of the files that have no effect, for people.
    pub notes: Vec<String>,
}

/// Times of a plan after it was shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shrunk {
    /// Time of the measurement now.
    pub test_s: f64,
    /// Time of the warm-up now.
    pub warmup_s: f64,
    /// Whether one of the times would have been too short, and is longer than the scale asks for.
    pub floor_applied: bool,
}

/// Replicas of the topic that asks for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Replicas of each partition.
    pub count: i16,
    /// `min.insync.replicas`: how many must have a record before an ack with `acks=all`; `None` if the topics do not
    /// set it.
    pub min_in_sync: Option<i16>,
}

/// One replica, and no minimum.
impl Default for Replicas {
    fn default() -> Self {
        Self { count: 1, min_in_sync: None }
    }
}

/// Config of a topic: how many replicas must have a record before an ack with `acks=all`.
const MIN_IN_SYNC: &str = "min.insync.replicas";

impl Plan {
    /// Replication factor of the topic that asks for most.
    pub fn replication(&self) -> i16 {
        self.topics.iter().map(|topic| topic.replication).max().unwrap_or(1)
    }

    /// The replication factor and the highest `min.insync.replicas`.
    pub fn replicas(&self) -> Replicas {
        let min_in_sync = self.topics.iter().filter_map(TopicPlan::min_in_sync).max();
        Replicas { count: self.replication(), min_in_sync }
    }

    /// Sets the replication factor of every topic, and lowers `min.insync.replicas` to it.
    pub(crate) fn replicate(&mut self, replication: i16) {
        for topic in &mut self.topics {
            topic.replication = replication;
            if topic.min_in_sync().is_some_and(|least| least > replication) {
                topic.configs.set(MIN_IN_SYNC, replication.to_string());
            }
        }
    }

    /// How often each record is read, if every topic has the same readers.
    pub fn readers(&self, catch_up: bool) -> usize {
        let Some(topic) = self.topics.first() else { return 0 };
        let reads = |consumer: &&ConsumerPlan| consumer.catch_up == catch_up && consumer.reads(&topic.name);
        let mut groups: Vec<_> =
            self.consumers.iter().filter(reads).map(|consumer| consumer.subscription.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.len()
    }

    /// Members of each group, if all have as many.
    pub fn members(&self) -> usize {
        let Some(first) = self.consumers.first() else { return 0 };
        self.consumers.iter().filter(|consumer| consumer.subscription == first.subscription).count()
    }

    /// Whether the records sent are read back.
    pub(crate) fn reads_back(&self) -> bool {
        !self.producers.is_empty() && !self.consumers.is_empty()
    }

    /// The topics that the producers send to.
    pub(crate) fn sent_to(&self) -> HashSet<&str> {
        self.producers.iter().flat_map(|producer| &producer.topics).map(String::as_str).collect()
    }

    /// Topics that consumers read whole and that the run does not create: only the server knows how many partitions
    /// they have.
    pub(crate) fn found_topics(&self) -> BTreeSet<&str> {
        let mut topics = BTreeSet::new();
        for consumer in &self.consumers {
            topics.extend(consumer.source.whole_topics());
        }
        for topic in &self.topics {
            topics.remove(topic.name.as_str());
        }
        topics
    }

    /// The topics that the consumers read, and the fewest partitions that each must have for that.
    pub fn read_topics(&self) -> BTreeMap<&str, usize> {
        let mut topics = BTreeMap::new();
        for (topic, partitions) in self.consumers.iter().flat_map(|consumer| consumer.source.topics()) {
            let least = topics.entry(topic).or_insert(partitions);
            *least = partitions.max(*least);
        }
        topics
    }

    /// The topic whose durability the server is asked for, on behalf of all: the first one created, or else the first
    /// one read.
    pub fn asked_topic(&self) -> Option<&str> {
        let made = self.topics.first().map(|topic| topic.name.as_str());
        made.or_else(|| self.read_topics().into_keys().next())
    }

    /// Partitions assigned to all consumers together, given each topic's number of partitions. Members of a group share
    /// theirs.
    pub(crate) fn assigned(&self, partitions_of: impl Fn(&str) -> u64) -> u64 {
        let (mut groups, mut assigned) = (HashSet::new(), 0);
        for consumer in &self.consumers {
            let source = &consumer.source;
            let is_member = matches!(source, Source::Group(_));
            if !is_member || groups.insert(consumer.subscription.as_str()) {
                assigned +=
                    source.whole_topics().map(&partitions_of).sum::<u64>() + source.named_partitions();
            }
        }
        assigned
    }
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPlan {
    /// Its name.
    pub name: String,
    /// Partitions.
    pub partitions: u32,
    /// Replicas of each.
    pub replication: i16,
    /// Its configs, without those that [`Plan::durability`] adds.
    pub configs: Properties,
}

impl TopicPlan {
    fn min_in_sync(&self) -> Option<i16> {
        self.configs.get(MIN_IN_SYNC)?.trim().parse().ok()
    }
}

/// A producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerPlan {
    /// Topics that it sends to, in turn.
    pub topics: Vec<String>,
    /// Partitions of each topic, if the producer goes through them in turn itself, without a partitioner.
    pub partitions_in_turn: Option<Vec<u32>>,
}

/// A consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsumerPlan {
    /// The group that it is a member of, or its name if it reads by itself.
    pub subscription: String,
    /// The topics or partitions that it reads.
    pub source: Source,
    /// Whether it begins to read when the backlog is written, beside the others, and is counted apart.
    pub catch_up: bool,
    /// Most records per second.
    pub rate: Option<Rate>,
}

impl ConsumerPlan {
    fn reads(&self, name: &str) -> bool {
        match &self.source {
            Source::Group(topics) => topics.iter().any(|topic| topic == name),
            Source::Partitions(partitions) => partitions.iter().any(|(topic, _)| topic == name),
        }
    }
}

/// The topics or partitions that a consumer reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Its share of these topics, as a member of its group.
    Group(Vec<String>),
    /// These partitions, from their beginning; without an index, all partitions of the topic.
    Partitions(Vec<(String, Option<i32>)>),
}

impl Source {
    /// Number of topics or partitions that it names.
    pub(crate) fn places(&self) -> u64 {
        match self {
            Self::Group(topics) => topics.len() as u64,
            Self::Partitions(partitions) => partitions.len() as u64,
        }
    }

    /// The topics that it names, each with the number of partitions needed for the named ones to exist.
    fn topics(&self) -> impl Iterator<Item = (&str, usize)> {
        let (topics, partitions) = self.parts();
        let least = |index: Option<i32>| {
            index.and_then(|index| usize::try_from(index).ok()).map_or(1, |index| index + 1)
        };
        let named = partitions.iter().map(move |(topic, index)| (topic.as_str(), least(*index)));
        topics.iter().map(|topic| (topic.as_str(), 1)).chain(named)
    }

    /// Topics that are shared with a group, and partitions that are not.
    fn parts(&self) -> (&[String], &[(String, Option<i32>)]) {
        match self {
            Self::Group(topics) => (topics, &[]),
            Self::Partitions(partitions) => (&[], partitions),
        }
    }

    /// The topics that it names without a partition.
    fn whole_topics(&self) -> impl Iterator<Item = &str> {
        let (topics, partitions) = self.parts();
        let whole = partitions.iter().filter(|(_, index)| index.is_none()).map(|(topic, _)| topic);
        topics.iter().chain(whole).map(String::as_str)
    }

    fn named_partitions(&self) -> u64 {
        match self {
            Self::Group(_) => 0,
            Self::Partitions(partitions) => {
                partitions.iter().filter(|(_, index)| index.is_some()).count() as u64
            }
        }
    }
}

/// Records and settings, the same for all producers, and the part of them that consumers need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Settings of producers, by Kafka's names.
    pub producer_settings: Properties,
    /// Settings of consumers.
    pub consumer_settings: Properties,
    /// Whether consumers commit each poll's records, in the background, whatever their settings say about commits.
    pub commits_each_poll: bool,
    /// Keys.
    pub keys: KeyPlan,
    /// Values.
    pub values: ValuePlan,
    /// About the bytes of a value, for rates and for the size of a backlog.
    pub value_bytes: usize,
    /// Most unacked records of one producer; `None` for no bound besides its buffer.
    pub in_flight: Option<u32>,
    /// The place of a record's due time.
    pub stamp: Stamp,
    /// Seed of everything that is random.
    pub seed: u64,
}

/// The place where a consumer finds a record's due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stamp {
    /// In the first eight bytes of the value, in nanoseconds. Values too short for it: in the record's timestamp.
    Value,
    /// In the first eight bytes of the value, in Trogdor's form: milliseconds, little-endian.
    TrogdorValue,
    /// Nowhere: no consumer needs it.
    None,
}

/// The generation of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KeyPlan {
    /// As in `riverrun perf`.
    Distribution {
        /// The distribution.
        #[serde(with = "by_name")]
        distribution: KeyDistribution,
        /// Number of different keys.
        range: u64,
    },
    /// As in Trogdor.
    Generator(GeneratorSpec),
}

impl KeyPlan {
    /// No key at all.
    pub const NONE: Self = Self::Distribution { distribution: KeyDistribution::None, range: 1 };
}

mod by_name {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    use crate::keys::KeyDistribution;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        distribution: &KeyDistribution,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(distribution.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<KeyDistribution, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The generation of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ValuePlan {
    /// Random letters.
    Letters {
        /// Letters of a value.
        bytes: usize,
    },
    /// The same bytes each time, as base64.
    Fixed {
        /// The bytes.
        base64: String,
    },
    /// One of a pool of values, each in part random and else zeros.
    PartlyRandom {
        /// Bytes of a value.
        bytes: usize,
        /// The share that is random.
        random_ratio: f64,
        /// Values in the pool.
        pool_size: u32,
    },
    /// As in Trogdor.
    Generator(GeneratorSpec),
}

/// A source of keys.
#[derive(Debug)]
pub(crate) enum KeySource {
    Distribution(Keys),
    Generator(Generator),
}

impl KeySource {
    pub(crate) fn new(plan: &KeyPlan, seed: u64) -> Self {
        match plan {
            KeyPlan::Distribution { distribution, range } => {
                Self::Distribution(Keys::new(*distribution, *range, seed))
            }
            KeyPlan::Generator(spec) => Self::Generator(Generator::new(spec, seed)),
        }
    }

    /// The source for another sender.
    pub(crate) fn another(&mut self) -> Self {
        match self {
            Self::Distribution(keys) => Self::Distribution(keys.another()),
            Self::Generator(generator) => Self::Generator(generator.another()),
        }
    }

    pub(crate) fn next(&mut self, number: u64) -> Option<Bytes> {
        match self {
            Self::Distribution(keys) => keys.next(number),
            Self::Generator(generator) => generator.next(number),
        }
    }
}

/// A source of values.
#[derive(Debug)]
pub(crate) enum ValueSource {
    Payloads(Payloads),
    Generator {
        generator: Generator,
        /// The last value.
        value: Option<Bytes>,
    },
}

impl ValueSource {
    pub(crate) fn new(plan: &ValuePlan, seed: u64) -> Self {
        match plan {
            ValuePlan::Letters { bytes } => Self::Payloads(Payloads::random(*bytes, seed)),
            ValuePlan::Fixed { base64 } => Self::Payloads(choice(vec![decode(base64)], seed)),
            ValuePlan::PartlyRandom { bytes, random_ratio, pool_size } => {
                Self::Payloads(choice(partly_random(*bytes, *random_ratio, *pool_size, seed), seed))
            }
            ValuePlan::Generator(spec) => {
                Self::Generator { generator: Generator::new(spec, seed), value: None }
            }
        }
    }

    /// The source for another sender; a pool of values is shared.
    pub(crate) fn another(&mut self) -> Self {
        match self {
            Self::Payloads(payloads) => Self::Payloads(payloads.another()),
            Self::Generator { generator, .. } => {
                Self::Generator { generator: generator.another(), value: None }
            }
        }
    }

    pub(crate) fn next(&mut self, number: u64) -> Option<&[u8]> {
        match self {
            Self::Payloads(payloads) => Some(payloads.next(number)),
            Self::Generator { generator, value } => {
                *value = generator.next(number);
                value.as_deref()
            }
        }
    }
}

fn choice(values: Vec<Bytes>, seed: u64) -> Payloads {
    Payloads::choice(values, seed).expect("there is at least one value")
}

/// Bytes of a plan. Invalid base64, which only a faulty peer of the worker could send, becomes empty.
fn decode(base64: &str) -> Bytes {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default().into()
}

/// Most memory of the values of a pool.
const POOL_BYTES_MAX: usize = 256 * 1024 * 1024;

#[expect(clippy::cast_possible_truncation, reason = "a share of a length is no longer than it")]
fn partly_random(bytes: usize, random_ratio: f64, pool_size: u32, seed: u64) -> Vec<Bytes> {
    let random_bytes = ((bytes as f64 * random_ratio.clamp(0.0, 1.0)).round() as usize).min(bytes);
    let count = (pool_size.max(1) as usize).min((POOL_BYTES_MAX / bytes.max(1)).max(1));
    let mut random = SeededRandom::new(seed);
    let value = |_| {
        let mut value = vec![0; bytes];
        for part in value[..random_bytes].chunks_mut(size_of::<u64>()) {
            part.copy_from_slice(&random.next_u64().to_le_bytes()[..part.len()]);
        }
        value.into()
    };
    (0..count).map(value).collect()
}

/// Messages a second over all producers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetRate {
    /// This rate.
    Fixed(Rate),
    /// The highest rate that lasts: searched for while the load runs.
    Search,
    /// As fast as possible.
    Unpaced,
}

/// Records that are written before consumers begin to read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backlog {
    /// Bytes of values, over all groups that will read them.
    pub bytes: u64,
    /// The share of it that must be read before the run may end.
    pub drain_ratio: f64,
    /// Whether producers stop when the backlog is written.
    pub read_alone: bool,
}

/// The failure that acked records are to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: each ack waits for a sync.
    Sync,
    /// A crash of the process.
    Async,
    /// One of our server's levels, some of which differ only with several servers.
    Level(DurabilityLevel),
}

impl Durability {
    /// Our server's level.
    pub fn level(self) -> DurabilityLevel {
        match self {
            Self::Sync => DurabilityLevel::SyncSync,
            Self::Async => DurabilityLevel::AsyncAsync,
            Self::Level(level) => level,
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("sync"),
            Self::Async => f.write_str("async"),
            Self::Level(level) => level.fmt(f),
        }
    }
}

impl FromStr for Durability {
    type Err = ParseDurabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sync" => Ok(Self::Sync),
            "async" => Ok(Self::Async),
            level => level.parse().map(Self::Level),
        }
    }
}

impl Serialize for Durability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partly_random_values_have_the_given_random_share() {
        let values = partly_random(1000, 0.25, 3, 7);
        assert_eq!(values.len(), 3);
        assert_ne!(values[0], values[1]);
        for value in &values {
            assert_eq!(value.len(), 1000);
            assert!(value[250..].iter().all(|byte| *byte == 0));
            assert!(value[..250].iter().filter(|byte| **byte != 0).count() > 200);
        }
        assert_eq!(partly_random(100, 1.0, 0, 7).len(), 1, "a pool of none is one of one");
        assert!(partly_random(POOL_BYTES_MAX, 0.0, 9, 7).len() == 1, "a pool has its bound");
    }

    #[test]
    fn plan_for_workers_survives_its_encoding() {
        let plan = LoadPlan {
            producer_settings: Properties::parse("acks=all"),
            consumer_settings: Properties::default(),
            commits_each_poll: true,
            keys: KeyPlan::Distribution { distribution: KeyDistribution::Mixed, range: 9 },
            values: ValuePlan::Letters { bytes: 5 },
            value_bytes: 5,
            in_flight: Some(1),
            stamp: Stamp::Value,
            seed: 3,
        };
        let text = serde_json::to_string(&plan).expect("plain data");
        assert_eq!(serde_json::from_str::<LoadPlan>(&text).expect("our own"), plan);
    }

    #[test]
    fn readers_are_counted_by_group() {
        let member = |subscription: &str, catch_up| ConsumerPlan {
            subscription: subscription.to_owned(),
            source: Source::Group(vec!["t".to_owned()]),
            catch_up,
            rate: None,
        };
        let topic =
            TopicPlan { name: "t".to_owned(), partitions: 1, replication: 2, configs: Properties::default() };
        let plan = Plan {
            name: String::new(),
            topics: vec![topic],
            producers: Vec::new(),
            consumers: vec![member("a", false), member("b", false), member("a", false), member("c", true)],
            load: LoadPlan {
                producer_settings: Properties::default(),
                consumer_settings: Properties::default(),
                commits_each_poll: false,
                keys: KeyPlan::NONE,
                values: ValuePlan::Letters { bytes: 1 },
                value_bytes: 1,
                in_flight: None,
                stamp: Stamp::None,
                seed: 0,
            },
            rate: TargetRate::Unpaced,
            warmup: Duration::ZERO,
            test: Duration::ZERO,
            messages: None,
            backlog: None,
            disk_full: None,
            durability: None,
            shrunk: None,
            notes: Vec::new(),
        };
        assert_eq!((plan.readers(false), plan.readers(true), plan.replication()), (2, 1, 2));
        assert_eq!(plan.members(), 2);
        // Once for each group, each of which has created it.
        assert_eq!((plan.assigned(|_| 7), plan.found_topics()), (21, BTreeSet::new()));
        let (whole, named) = (("u".to_owned(), None), ("t".to_owned(), Some(3)));
        let alone = ConsumerPlan { source: Source::Partitions(vec![whole, named]), ..member("a", false) };
        let plan = Plan { consumers: vec![alone.clone(), alone], ..plan };
        let partitions_of = |topic: &str| if topic == "u" { 7 } else { 100 };
        assert_eq!(
            plan.assigned(partitions_of),
            16,
            "a whole topic for each of them, and one partition of another"
        );
        assert_eq!(plan.found_topics(), BTreeSet::from(["u"]));
        assert_eq!(plan.read_topics(), BTreeMap::from([("t", 4), ("u", 1)]), "partition 3 is the fourth");
    }
}
