//! How durable a topic is now, as metrics and `DescribeConfigs` show it: the level that is wanted, the one that is
//! reached, and how far what is synced lags behind what is appended.

use std::sync::Arc;

use riverrun_types::{DurabilityLevel, PartitionId};

use crate::broker::Broker;
use crate::metadata::Topic;
use crate::partitions::Partition;

/// A topic's durability at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durability {
    /// What its options ask for.
    pub(crate) wanted: DurabilityLevel,
    /// What an acked record survives now. A change of level is reached partition by partition; while one of them is not
    /// there yet, this is the level that it still has.
    pub(crate) reached: DurabilityLevel,
    /// Records of all partitions that are appended and not synced yet.
    pub(crate) unsynced_records: i64,
}

impl Partition {
    /// Records that are appended and not synced yet.
    pub(crate) fn unsynced_records(&self) -> i64 {
        self.log.unsynced_records()
    }
}

impl Broker {
    /// The level that a topic's options ask for.
    pub(crate) fn level_wanted(&self, topic: &Topic) -> DurabilityLevel {
        self.config.topic_options(&topic.name, &topic.configs).level()
    }

    /// How durable a topic is now. A partition that is not in use has reached what is wanted, and lags behind nothing.
    pub(crate) fn durability(&self, topic: &Topic) -> Durability {
        let wanted = self.level_wanted(topic);
        let live: Vec<Arc<Partition>> = (0..topic.partition_count())
            .filter_map(|index| self.partitions.get(PartitionId { topic: topic.id, index }))
            .collect();
        let levels = live.iter().map(|partition| partition.level());
        let reached = levels.into_iter().find(|level| *level != wanted).unwrap_or(wanted);
        let unsynced_records = live.iter().map(|partition| partition.unsynced_records()).sum();
        Durability { wanted, reached, unsynced_records }
    }
}
