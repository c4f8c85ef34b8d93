//! A partition by its topic's name, as clients name it.

use std::fmt;
use std::sync::Arc;

/// A partition of a named topic. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Partition index, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// This partition of this topic.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Groups partitions by topic, as requests name them.
pub(crate) fn by_topic<'a, T>(
    partitions: impl IntoIterator<Item = (&'a TopicPartition, T)>,
) -> std::collections::BTreeMap<&'a str, Vec<(i32, T)>> {
    let mut topics = std::collections::BTreeMap::<&str, Vec<(i32, T)>>::new();
    for (partition, what) in partitions {
        topics.entry(&partition.topic).or_default().push((partition.partition, what));
    }
    topics
}
