//! Owns a change in the making: decisions are made one after the other, each on the outcome of those before, and their records are
//! agreed upon together.
//!
//! Pure: an image, what happened, and ids from the caller in; records out. Decisions about brokers are in `brokers`,
//! those about partitions that exist in `partitions`, and those that clients ask of topics in `topics`.

use std::collections::BTreeMap;

use riverrun_types::{DurabilityLevel, LeaderEpoch, NodeId, PartitionId, TopicId};
use thiserror::Error;

use super::image::{Configs, Image, Topic};
use super::partition::{Partition, Replica};
use super::records::{Change, ChangeCommand, Changed, Record};

/// The meaning of topics' configs, of which the controller knows none by name.
pub trait Policy: Send + Sync {
    /// The durability level of a topic that sets these configs.
    fn level(&self, configs: &Configs) -> DurabilityLevel;

    /// How many replicas have to be in sync for an ack of a partition with so many, 1 at least (`min.insync.replicas`).
    fn min_insync(&self, configs: &Configs, replicas: usize) -> usize;
}

/// Why a decision changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No broker of this id has registered.
    #[error("broker {} has not registered", .0.0)]
    UnknownBroker(NodeId),
    /// Another life of the broker has registered since, or none has.
    #[error("broker {} speaks of incarnation {told}, and {current} is registered", .node.0)]
    StaleIncarnation {
        /// The broker.
        node: NodeId,
        /// The incarnation that it named.
        told: u64,
        /// The one that is registered.
        current: u64,
    },
    /// A broker of this id, with another data directory, is alive.
    #[error("broker id {} is in use by another node: give this one another node.id", .0.0)]
    DuplicateBroker(NodeId),
    /// The broker does not know the level of a feature that is in use.
    #[error("feature {feature} is at level {level}, which the broker's program does not know")]
    FeatureNotSupported {
        /// The feature.
        feature: String,
        /// Its level.
        level: u16,
    },
    /// The broker is not fenced: it is part of what the cluster does.
    #[error("broker {} is in use: stop it first", .0.0)]
    BrokerInUse(NodeId),
    /// Replicas are on the broker.
    #[error("broker {} has {replicas} replicas: move them first", .node.0)]
    BrokerHasReplicas {
        /// The broker.
        node: NodeId,
        /// Its replicas.
        replicas: u64,
    },
    /// There is no such topic.
    #[error("there is no such topic")]
    UnknownTopic,
    /// There is no such partition.
    #[error("there is no such partition")]
    UnknownPartition,
    /// A topic of this name, or of this id, is there.
    #[error("topic {0} exists")]
    TopicExists(String),
    /// A broker asks as a leader of a partition that another one leads, or none.
    #[error("the broker does not lead the partition")]
    NotLeader,
    /// A leader speaks of an epoch that is over, or has not begun.
    #[error("the leader's epoch is another one")]
    StaleLeaderEpoch,
    /// The partition has changed since the leader asked.
    #[error("the partition has changed meanwhile")]
    StaleVersion,
    /// The change of the in-sync set names a replica that may not be in it. The partition's version has moved.
    #[error("a replica may not be in sync")]
    Ineligible,
    /// The partition is led, or nobody of those who may lead it is there.
    #[error("no other replica is to lead")]
    NoElection,
    /// A reassignment is not under way, or not at its end.
    #[error("no reassignment can end")]
    NoReassignment,
    /// A leader that acks by itself has to resign first.
    #[error("the leader has to resign first")]
    LeaderMustResign,
    /// A list of replicas is none: empty, too long, with a broker twice or one that has not registered.
    #[error("the list of replicas is invalid: {0}")]
    InvalidReplicas(String),
    /// It changes more than one command can carry.
    #[error("the change is too large: ask for less at once")]
    TooLarge,
    /// A number of partitions is none.
    #[error("the number of partitions is invalid: {0}")]
    InvalidPartitions(String),
    /// There are fewer brokers that take replicas.
    #[error("replication factor {asked} is larger than the {there} brokers that take replicas")]
    NotEnoughBrokers {
        /// The replication factor.
        asked: usize,
        /// Brokers that are not fenced and have a log dir that takes partitions.
        there: usize,
    },
}

/// The part of a topic's configs that decisions about one of its partitions go by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) level: DurabilityLevel,
    pub(super) minimum: usize,
}

/// A change in the making.
///
/// Invariants: `image` is the image that the draft began with after the records so far and the changes of `touched`, whose
/// versions and epochs are at most one above those before.
pub struct Draft<'a> {
    base: u64,
    pub(super) image: Image,
    pub(super) policy: &'a dyn Policy,
    records: Vec<Record>,
    /// The partitions that have changed, as they were before, or as they were made.
    touched: BTreeMap<PartitionId, Partition>,
}

impl<'a> Draft<'a> {
    /// A draft of nothing, on an image.
    pub fn new(image: &Image, policy: &'a dyn Policy) -> Self {
        let (records, touched) = (Vec::new(), BTreeMap::new());
        Self { base: image.version(), image: image.clone(), policy, records, touched }
    }

    /// The image after the decisions so far. Incarnations that are given in this draft are 0 in it.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.touched.is_empty()
    }

    pub(crate) fn into_command(mut self) -> ChangeCommand {
        let mut changes: BTreeMap<TopicId, Vec<Changed>> = BTreeMap::new();
        for (id, before) in &self.touched {
            let Some(after) = self.image.partition(*id) else { continue };
            let change = Change::between(before, after);
            let changes = changes.entry(id.topic).or_default();
            let follows = |run: &&mut Changed| {
                i64::from(run.first) + i64::from(run.count) == i64::from(id.index) && run.change == change
            };
            match changes.last_mut().filter(follows) {
                Some(run) => run.count += 1,
                None => changes.push(Changed { first: id.index, count: 1, change }),
            }
        }
        self.records
            .extend(changes.into_iter().map(|(id, changes)| Record::PartitionsChanged { id, changes }));
        ChangeCommand { base: self.base, records: self.records }
    }

    /// Adds a record that fits.
    pub(super) fn record(&mut self, record: Record) {
        self.image.apply(0, record.clone()).expect("a draft checks what it records");
        self.records.push(record);
    }

    /// Forgets the changes of a topic's partitions: it is deleted.
    pub(super) fn forget(&mut self, topic: TopicId) {
        self.touched.retain(|id, _| id.topic != topic);
    }

    pub(super) fn rules(&self, topic: &Topic, partition: &Partition) -> Rules {
        let minimum = self.policy.min_insync(&topic.configs, partition.replicas.len());
        Rules { level: self.policy.level(&topic.configs), minimum: minimum.max(1) }
    }

    /// Changes a partition that exists.
    pub(super) fn change(
        &mut self,
        id: PartitionId,
        change: impl FnMut(&mut Partition, Rules, &dyn Fn(&Replica) -> bool),
    ) {
        self.change_some(id.topic, &[id.index], change);
    }

    /// Changes every partition that is meant.
    pub(super) fn change_where(
        &mut self,
        is_meant: impl Fn(&Partition) -> bool,
        mut change: impl FnMut(&mut Partition, Rules, &dyn Fn(&Replica) -> bool),
    ) {
        let meant = |topic: &Topic| {
            let meant = (0..).zip(topic.partitions()).filter(|(_, partition)| is_meant(partition));
            meant.map(|(index, _)| index).collect::<Vec<i32>>()
        };
        let topics = self.image.topics().map(|topic| (topic.id, meant(topic)));
        let topics: Vec<_> = topics.filter(|(_, indexes)| !indexes.is_empty()).collect();
        for (topic, indexes) in topics {
            self.change_some(topic, &indexes, &mut change);
        }
    }

    /// Changes partitions of a topic that exist.
    pub(super) fn change_some(
        &mut self,
        topic: TopicId,
        indexes: &[i32],
        mut change: impl FnMut(&mut Partition, Rules, &dyn Fn(&Replica) -> bool),
    ) {
        let brokers = self.image.shared_brokers();
        let may_lead = |replica: &Replica| {
            brokers.get(&replica.node).is_some_and(|broker| broker.may_lead_in(replica.dir))
        };
        let Some(configs) = self.image.topic(topic).map(|topic| topic.configs.clone()) else { return };
        let level = self.policy.level(&configs);
        let (policy, touched) = (self.policy, &mut self.touched);
        self.image.edit(topic, indexes, |index, partition| {
            let before = touched.entry(PartitionId { topic, index }).or_insert_with(|| partition.clone());
            let replicas = partition.replicas.len();
            let minimum = policy.min_insync(&configs, replicas).max(1);
            change(partition, Rules { level, minimum }, &may_lead);
            if partition.replicas.len() != replicas {
                // With fewer replicas fewer may be enough.
                let minimum = policy.min_insync(&configs, partition.replicas.len()).max(1);
                partition.set_isr(partition.roles.isr, minimum);
            }
            partition.version = before.version.saturating_add(1);
            if partition.leader_epoch != before.leader_epoch {
                partition.leader_epoch = LeaderEpoch(before.leader_epoch.0.saturating_add(1));
            }
        });
    }
}
