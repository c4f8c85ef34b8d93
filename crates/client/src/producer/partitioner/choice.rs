//! A partitioner by its name.

use std::sync::Arc;

use super::{KeyedRoundRobin, Partitioner, RoundRobin, Sticky, TopicPartitioner, UniformSticky};
use crate::options::OptionValue;
use crate::producer::options::ProducerOptions;

/// The partitioner of records that name no partition.
#[derive(Clone, Debug)]
pub enum PartitionerChoice {
    /// [`UniformSticky`].
    UniformSticky,
    /// [`Sticky`].
    Sticky,
    /// [`Sticky`] that ignores keys whatever `partitioner.ignore.keys` is, as `UniformStickyPartitioner` did, which
    /// Kafka 4 no longer has. [`UniformSticky`] is another one: the default of Kafka 4, which honours keys.
    StickyIgnoringKeys,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`KeyedRoundRobin`].
    KeyedRoundRobin,
    /// The application's own.
    Custom(Arc<dyn Partitioner>),
}

/// The class that ignored keys: it has no other name here.
const UNIFORM_STICKY_CLASS: &str = "org.apache.kafka.clients.producer.UniformStickyPartitioner";

/// The names: the first of each is its own, the others are those of Kafka's classes.
const NAMES: [(&str, PartitionerChoice); 9] = [
    ("uniform-sticky", PartitionerChoice::UniformSticky),
    ("", PartitionerChoice::UniformSticky),
    ("sticky", PartitionerChoice::Sticky),
    ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", PartitionerChoice::Sticky),
    (UNIFORM_STICKY_CLASS, PartitionerChoice::StickyIgnoringKeys),
    ("round-robin", PartitionerChoice::RoundRobin),
    ("roundrobin", PartitionerChoice::RoundRobin),
    ("org.apache.kafka.clients.producer.RoundRobinPartitioner", PartitionerChoice::RoundRobin),
    ("keyed-round-robin", PartitionerChoice::KeyedRoundRobin),
];

impl PartitionerChoice {
    /// The partitioner of one topic.
    pub(crate) fn for_topic(&self, options: &ProducerOptions, seed: u64) -> Box<dyn TopicPartitioner> {
        let ignore_keys = options.partitioner_ignore_keys;
        match self {
            Self::UniformSticky => {
                let adaptive = options.partitioner_adaptive;
                Box::new(
                    UniformSticky::new(options.batch_bytes, seed).adaptive(adaptive).ignore_keys(ignore_keys),
                )
            }
            Self::Sticky => Box::new(Sticky::new(seed).ignore_keys(ignore_keys)),
            Self::StickyIgnoringKeys => Box::new(Sticky::new(seed).ignore_keys(true)),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::KeyedRoundRobin => Box::new(KeyedRoundRobin::new(seed).ignore_keys(ignore_keys)),
            Self::Custom(partitioner) => partitioner.for_topic(seed),
        }
    }
}

impl OptionValue for PartitionerChoice {
    /// The name of a class is accepted without its package, too.
    fn from_text(text: &str) -> Option<Self> {
        let is_it =
            |name: &str| name == text || name.rsplit_once('.').is_some_and(|(_, class)| class == text);
        NAMES.into_iter().find(|(name, _)| is_it(name)).map(|(_, choice)| choice)
    }

    fn to_text(&self) -> String {
        match self {
            Self::UniformSticky => "uniform-sticky",
            Self::Sticky => "sticky",
            Self::StickyIgnoringKeys => UNIFORM_STICKY_CLASS,
            Self::RoundRobin => "round-robin",
            Self::KeyedRoundRobin => "keyed-round-robin",
            Self::Custom(_) => "custom",
        }
        .to_owned()
    }
}
