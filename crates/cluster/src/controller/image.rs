//! Owns what the cluster agrees upon at one moment: its brokers, topics, partitions, configs, features and counters.
//!
//! An image is immutable for its readers: a copy shares everything that a change does not touch. A partition takes 40 bytes, and
//! partitions of a topic share equal lists of replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_types::{NodeId, PartitionId, ShardedMap, TopicId};

use super::load::Loads;
use super::partition::Partition;
use super::records::{Changed, LogDir, Record, Registration, Run};
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// Configs by name.
pub type Configs = BTreeMap<String, String>;

/// Upper bound of the partitions of all topics together.
pub const PARTITIONS_MAX: u64 = 1_000_000;

/// Partitions that are copied together when one of them changes.
const CHUNK: usize = 64;

/// A broker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The broker's account of itself, from its registration.
    pub registration: Registration,
    /// The index in the quorum's log at which it registered: each life of its process has another one (Kafka's broker epoch).
    pub incarnation: u64,
    /// Whether it may do nothing but follow: it has not caught up since it registered, or its session has ended.
    pub is_fenced: bool,
    /// Whether it is about to stop, and leads nothing any more.
    pub is_stopping: bool,
    /// The index at which it registered, was fenced or unfenced, or began to stop, whatever came last. A fenced broker has caught up
    /// when it knows that.
    pub changed_at: u64,
}

impl Broker {
    /// Whether it may lead a partition in this log dir.
    pub(crate) fn may_lead_in(&self, dir: super::DirSlot) -> bool {
        let is_online = || self.registration.dirs.get(usize::from(dir.0)).is_some_and(LogDir::is_online);
        #[cfg(test)]
        if is_planted(Planted::FencedElected) {
            return is_online();
        }
        !self.is_fenced && !self.is_stopping && is_online()
    }
}

/// A topic.
///
/// Invariant: it has one partition at least; the chunks but the last one are full.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// The configs that it sets for itself.
    pub configs: Arc<Configs>,
    chunks: Vec<Arc<Vec<Partition>>>,
}

impl Topic {
    fn new(id: TopicId, name: Arc<str>, configs: Arc<Configs>) -> Self {
        Self { id, name, configs, chunks: Vec::new() }
    }

    /// How many partitions it has.
    pub fn partition_count(&self) -> usize {
        let last = self.chunks.last().map_or(0, |last| last.len());
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    /// The partition of an index.
    pub fn partition(&self, index: i32) -> Option<&Partition> {
        let index = usize::try_from(index).ok()?;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// All partitions, in the order of their indexes.
    pub fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    fn push(&mut self, partition: Partition) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => Arc::make_mut(last).push(partition),
            None => self.chunks.push(Arc::new(vec![partition])),
        }
    }

    fn partition_mut(&mut self, index: usize) -> Option<&mut Partition> {
        Arc::make_mut(self.chunks.get_mut(index / CHUNK)?).get_mut(index % CHUNK)
    }

    /// Its partitions as runs of equal ones.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for partition in self.partitions() {
            match runs.last_mut().filter(|run| run.partition == *partition) {
                Some(run) => run.count += 1,
                None => runs.push(Run { count: 1, partition: partition.clone() }),
            }
        }
        runs
    }
}

/// The state that the cluster agrees upon.
///
/// Invariants: the two topic maps hold the same topics; `loads` counts their replicas; every replica's broker has registered at
/// some time.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The index in the quorum's log of the change that made it; 0: none has.
    version: u64,
    brokers: Arc<BTreeMap<NodeId, Arc<Broker>>>,
    by_id: ShardedMap<TopicId, Arc<Topic>>,
    by_name: ShardedMap<Arc<str>, TopicId>,
    groups: ShardedMap<Arc<str>, Arc<Configs>>,
    loads: Loads,
    partition_count: u64,
    producer_ids_end: i64,
    /// Levels of features that are in use, and the index at which one changed last.
    features: Arc<BTreeMap<String, u16>>,
    features_epoch: u64,
}

impl Image {
    /// The index in the quorum's log of the change that made it; 0 if there was none.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A broker that has registered.
    pub fn broker(&self, node: NodeId) -> Option<&Broker> {
        self.brokers.get(&node).map(|broker| &**broker)
    }

    /// All brokers, by id.
    pub fn brokers(&self) -> impl Iterator<Item = (NodeId, &Broker)> {
        self.brokers.iter().map(|(node, broker)| (*node, &**broker))
    }

    /// The topic of an id.
    pub fn topic(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// The topic of a name.
    pub fn topic_named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topic(*self.by_name.get(name)?)
    }

    /// All topics, in no useful order.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_id.values()
    }

    /// A partition.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.topic(id.topic)?.partition(id.index)
    }

    /// How many partitions all topics have together.
    pub fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// The configs that a consumer group sets for itself, one at least.
    pub fn group_configs(&self, group: &str) -> Option<&Configs> {
        self.groups.get(group).map(|configs| &**configs)
    }

    /// How many groups set configs for themselves.
    pub fn configured_groups(&self) -> usize {
        self.groups.len()
    }

    /// Every producer id that was given out is below this.
    pub fn producer_ids_end(&self) -> i64 {
        self.producer_ids_end
    }

    /// Levels of the features that are in use, by name, and the index at which one changed last.
    pub fn features(&self) -> (&BTreeMap<String, u16>, u64) {
        (&self.features, self.features_epoch)
    }

    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The brokers, to look at while partitions are changed.
    pub(crate) fn shared_brokers(&self) -> Arc<BTreeMap<NodeId, Arc<Broker>>> {
        Arc::clone(&self.brokers)
    }

    /// The image after a change that the quorum's log has at `index`. The error says which record does not fit.
    pub(crate) fn after(&self, index: u64, records: Vec<Record>) -> Result<Self, String> {
        let mut next = self.clone();
        for record in records {
            next.apply(index, record)?;
        }
        next.version = index;
        Ok(next)
    }

    /// Applies a record that the quorum's log has at `index`. After an error the image cannot be used any more.
    pub(crate) fn apply(&mut self, index: u64, record: Record) -> Result<(), String> {
        match record {
            Record::BrokerRegistered(registration) => {
                let broker = Broker {
                    registration,
                    incarnation: index,
                    is_fenced: true,
                    is_stopping: false,
                    changed_at: index,
                };
                self.put_broker(broker);
            }
            Record::BrokerChanged { node, is_fenced, is_stopping } => {
                let broker = self.broker_mut(node)?;
                (broker.is_fenced, broker.is_stopping) = (is_fenced, is_stopping);
                broker.changed_at = index;
            }
            Record::BrokerDirsChanged { node, dirs } => self.broker_mut(node)?.registration.dirs = dirs,
            Record::BrokerUnregistered { node } => {
                Arc::make_mut(&mut self.brokers).remove(&node).ok_or_else(|| unknown_broker(node))?;
            }
            Record::BrokerRestored { registration, incarnation, is_fenced, is_stopping, changed_at } => {
                let broker = Broker { registration, incarnation, is_fenced, is_stopping, changed_at };
                self.put_broker(broker);
            }
            Record::TopicCreated { id, name, configs, runs } => {
                self.create_topic(id, &name, configs, runs)?;
            }
            Record::PartitionsAdded { id, runs } => self.add_partitions(id, runs)?,
            Record::PartitionsChanged { id, changes } => self.change_partitions(id, &changes)?,
            Record::TopicDeleted { id } => self.delete_topic(id)?,
            Record::TopicConfigsSet { id, configs } => {
                let topic = self.topic(id).ok_or_else(|| format!("there is no topic {id}"))?;
                let mut topic = Topic::clone(topic);
                topic.configs = Arc::new(configs);
                self.by_id.insert(id, Arc::new(topic));
            }
            Record::GroupConfigsSet { group, configs } if configs.is_empty() => {
                self.groups.remove(&*group);
            }
            Record::GroupConfigsSet { group, configs } => self.groups.insert(group.into(), Arc::new(configs)),
            Record::ProducerIdsReserved { end } => self.producer_ids_end = self.producer_ids_end.max(end),
            Record::FeatureSet { name, level } => {
                let features = Arc::make_mut(&mut self.features);
                if level == 0 {
                    features.remove(&name)
                } else {
                    features.insert(name, level)
                };
                self.features_epoch = index;
            }
            Record::VersionsRestored { version, features_epoch } => {
                (self.version, self.features_epoch) = (version, features_epoch);
            }
        }
        Ok(())
    }

    fn broker_mut(&mut self, node: NodeId) -> Result<&mut Broker, String> {
        let broker = Arc::make_mut(&mut self.brokers).get_mut(&node).ok_or_else(|| unknown_broker(node))?;
        Ok(Arc::make_mut(broker))
    }

    fn put_broker(&mut self, broker: Broker) {
        Arc::make_mut(&mut self.brokers).insert(broker.registration.node, Arc::new(broker));
    }

    fn create_topic(
        &mut self,
        id: TopicId,
        name: &str,
        configs: Configs,
        runs: Vec<Run>,
    ) -> Result<(), String> {
        if self.topic(id).is_some() || self.by_name.get(name).is_some() {
            return Err(format!("topic {name} is made twice"));
        }
        let name: Arc<str> = name.into();
        let mut topic = Topic::new(id, Arc::clone(&name), Arc::new(configs));
        self.push_runs(&mut topic, runs)?;
        self.by_name.insert(name, id);
        self.by_id.insert(id, Arc::new(topic));
        Ok(())
    }

    fn add_partitions(&mut self, id: TopicId, runs: Vec<Run>) -> Result<(), String> {
        let topic = self.topic(id).ok_or_else(|| format!("there is no topic {id}"))?;
        let mut topic = Topic::clone(topic);
        self.push_runs(&mut topic, runs)?;
        self.by_id.insert(id, Arc::new(topic));
        Ok(())
    }

    fn push_runs(&mut self, topic: &mut Topic, runs: Vec<Run>) -> Result<(), String> {
        for run in runs {
            run.partition.check()?;
            if self.partition_count + u64::from(run.count) > PARTITIONS_MAX {
                return Err(format!("there are more than {PARTITIONS_MAX} partitions"));
            }
            self.loads.add(&run.partition, i64::from(run.count));
            self.partition_count += u64::from(run.count);
            for _ in 0..run.count {
                topic.push(run.partition.clone());
            }
        }
        if topic.chunks.is_empty() {
            return Err(format!("topic {} has no partitions", topic.name));
        }
        Ok(())
    }

    fn change_partitions(&mut self, id: TopicId, changes: &[Changed]) -> Result<(), String> {
        // The topic leaves the map meanwhile, so that nobody shares it and its chunks are copied once.
        let mut topic = self.by_id.remove(&id).ok_or_else(|| format!("there is no topic {id}"))?;
        let own = Arc::make_mut(&mut topic);
        for Changed { first, count, change } in changes {
            for step in 0..*count {
                let index = usize::try_from(i64::from(*first) + i64::from(step)).unwrap_or(usize::MAX);
                let partition = own.partition_mut(index);
                let partition = partition.ok_or_else(|| format!("topic {id} has no partition {index}"))?;
                self.loads.add(partition, -1);
                change.apply_to(partition);
                partition.check()?;
                self.loads.add(partition, 1);
            }
        }
        self.by_id.insert(id, topic);
        Ok(())
    }

    /// Changes partitions of a topic in place, for a draft. Those that do not exist are passed over.
    pub(crate) fn edit(&mut self, id: TopicId, indexes: &[i32], mut change: impl FnMut(i32, &mut Partition)) {
        let Some(mut topic) = self.by_id.remove(&id) else { return };
        let changed = Arc::make_mut(&mut topic);
        for index in indexes {
            let place = usize::try_from(*index).unwrap_or(usize::MAX);
            if let Some(partition) = changed.partition_mut(place) {
                self.loads.add(partition, -1);
                change(*index, partition);
                self.loads.add(partition, 1);
            }
        }
        self.by_id.insert(id, topic);
    }

    fn delete_topic(&mut self, id: TopicId) -> Result<(), String> {
        let topic = self.by_id.remove(&id).ok_or_else(|| format!("there is no topic {id}"))?;
        self.by_name.remove(&*topic.name);
        for partition in topic.partitions() {
            self.loads.add(partition, -1);
        }
        self.partition_count -= topic.partition_count() as u64;
        Ok(())
    }

    /// Records that make this image from an empty one. Equal images give equal records.
    pub(crate) fn to_records(&self) -> impl Iterator<Item = Record> {
        let brokers = self.brokers.values().map(|broker| Record::BrokerRestored {
            registration: broker.registration.clone(),
            incarnation: broker.incarnation,
            #[cfg(not(test))]
            is_fenced: broker.is_fenced,
            #[cfg(test)]
            is_fenced: broker.is_fenced && !is_planted(Planted::SnapshotUnfences),
            is_stopping: broker.is_stopping,
            changed_at: broker.changed_at,
        });
        let topics = self.by_id.values().map(|topic| Record::TopicCreated {
            id: topic.id,
            name: topic.name.to_string(),
            #[cfg(not(test))]
            configs: Configs::clone(&topic.configs),
            #[cfg(test)]
            configs: if is_planted(Planted::SnapshotLacksConfigs) {
                Configs::new()
            } else {
                Configs::clone(&topic.configs)
            },
            runs: topic.runs(),
        });
        let groups = self.groups.entries().map(|(group, configs)| Record::GroupConfigsSet {
            group: group.to_string(),
            configs: Configs::clone(configs),
        });
        let features = self.features.iter();
        let features = features.map(|(name, level)| Record::FeatureSet { name: name.clone(), level: *level });
        let ids = Record::ProducerIdsReserved { end: self.producer_ids_end };
        let (version, features_epoch) = (self.version, self.features_epoch);
        #[cfg(test)]
        let version = if is_planted(Planted::SnapshotLacksVersion) { 0 } else { version };
        let versions = Record::VersionsRestored { version, features_epoch };
        brokers.chain(topics).chain(groups).chain(features).chain([ids, versions])
    }
}

fn unknown_broker(node: NodeId) -> String {
    format!("broker {} is unknown", node.0)
}
