//! Owns how many replicas and leaders each broker has, and each of its log dirs: what placement goes by.

use std::collections::BTreeMap;

use riverrun_types::NodeId;

use super::partition::{DirSlot, Partition};

/// The load of one broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) leaders: i64,
    pub(crate) replicas: i64,
    /// Replicas by log dir; those that have none are not among them.
    dirs: BTreeMap<DirSlot, i64>,
}

impl Load {
    pub(crate) fn in_dir(&self, dir: DirSlot) -> i64 {
        self.dirs.get(&dir).copied().unwrap_or(0)
    }

    pub(crate) fn add_replica(&mut self, dir: DirSlot, count: i64) {
        self.replicas += count;
        if dir != DirSlot::NONE {
            *self.dirs.entry(dir).or_default() += count;
        }
    }
}

/// The loads of all brokers that have a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loads(BTreeMap<NodeId, Load>);

impl Loads {
    pub(crate) fn of(&self, node: NodeId) -> Load {
        self.0.get(&node).cloned().unwrap_or_default()
    }

    /// Counts so many partitions like this one; fewer, if negative.
    pub(crate) fn add(&mut self, partition: &Partition, count: i64) {
        for replica in &*partition.replicas {
            self.0.entry(replica.node).or_default().add_replica(replica.dir, count);
        }
        if let Some(leader) = partition.leader() {
            self.0.entry(leader).or_default().leaders += count;
        }
    }
}
