//! The cluster's half of the image: topics, configs, producer ids, and the origins of leader epochs.
//!
//! Pure. Knows no log dir: where partitions lie is the [node's half](super::node).

mod topic;

use std::sync::Arc;

use riverrun_types::{LeaderEpoch, ShardedMap, TopicId};

pub(crate) use self::topic::Topic;
use crate::config::{GroupOverrides, TopicOverrides};
use crate::topic_names::collision_key;

/// The configs that a consumer group sets for itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupConfigs {
    /// The group's id. Whether there is a group of this id does not matter.
    pub(crate) group_id: Arc<str>,
    /// The configs by name, one at least.
    pub(crate) configs: GroupOverrides,
}

/// The cluster's half of the metadata, at one moment.
///
/// Invariants: the three topic maps hold the same topics (the third only those whose name has `.` or `_`);
/// `partition_count` is the sum over the topics that are not mounted; no partition has an origin beyond `starts`.
#[derive(Clone, Debug)]
pub(crate) struct ClusterImage {
    id: Arc<str>,
    /// How often the node that leads the partitions has started.
    starts: i32,
    /// Changes made before this start may be lost; 0: none.
    lost_before: i32,
    producer_ids_end: i64,
    added_partitions: i64,
    partition_count: u64,
    topics_generation: u64,
    by_name: ShardedMap<Arc<str>, Arc<Topic>>,
    by_id: ShardedMap<TopicId, Arc<Topic>>,
    by_collision_key: ShardedMap<Arc<str>, Arc<str>>,
    /// Groups that set configs for themselves, by id.
    group_configs: ShardedMap<Arc<str>, Arc<GroupConfigs>>,
}

impl ClusterImage {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            starts: 0,
            lost_before: 0,
            producer_ids_end: 0,
            added_partitions: 0,
            partition_count: 0,
            topics_generation: 0,
            by_name: ShardedMap::new(),
            by_id: ShardedMap::new(),
            by_collision_key: ShardedMap::new(),
            group_configs: ShardedMap::new(),
        }
    }

    /// The cluster's id, as clients see it.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// How often the node has started.
    pub(crate) fn starts(&self) -> i32 {
        self.starts
    }

    /// Changes made before this start may be lost; 0: none.
    pub(super) fn lost_before(&self) -> i32 {
        self.lost_before
    }

    /// The leader epoch of a partition of this topic: 0 when it came to be, and one more with each start since. Unknown for
    /// a partition that lies in no log dir.
    pub(crate) fn leader_epoch(&self, topic: &Topic, partition: i32) -> LeaderEpoch {
        let origin = topic.origin(partition);
        origin.map_or(LeaderEpoch::UNKNOWN, |origin| LeaderEpoch(self.starts - origin))
    }

    /// The origin of partitions that are added to this topic now. A topic that is older than a loss of changes may have had
    /// them before: the journal may have records of them, and the new epochs have to be above the epochs of these.
    pub(super) fn origin_of_more(&self, topic: &Topic) -> i32 {
        let may_have_been_there = topic.origin(0).is_some_and(|origin| origin < self.lost_before);
        if may_have_been_there { 0 } else { self.starts }
    }

    /// The topic of a name.
    pub(crate) fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic of an id.
    pub(crate) fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, in no useful order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// All topics, by name.
    pub(crate) fn topics_sorted(&self) -> Vec<&Arc<Topic>> {
        let mut topics: Vec<_> = self.topics().collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    /// The configs that the consumer group of this id sets for itself, if any.
    pub(crate) fn group_configs(&self, group_id: &str) -> Option<&GroupOverrides> {
        self.group_configs.get(group_id).map(|group| &group.configs)
    }

    /// All groups that set configs for themselves, in no useful order.
    pub(crate) fn configured_groups(&self) -> impl Iterator<Item = &Arc<GroupConfigs>> {
        self.group_configs.values()
    }

    pub(crate) fn configured_group_count(&self) -> usize {
        self.group_configs.len()
    }

    /// How many partitions there are. Mounted topics do not count.
    pub(crate) fn partition_count(&self) -> u64 {
        self.partition_count
    }

    /// Changes whenever a topic is made, deleted or gains partitions.
    pub(crate) fn topics_generation(&self) -> u64 {
        self.topics_generation
    }

    /// How many partitions were ever added to existing topics.
    pub(crate) fn added_partitions(&self) -> i64 {
        self.added_partitions
    }

    /// Every producer id that was given out is below this.
    pub(crate) fn producer_ids_end(&self) -> i64 {
        self.producer_ids_end
    }

    /// The topic whose name differs from `name` only in `.` and `_`, or not at all.
    pub(crate) fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        self.by_collision_key.get(&*collision_key(name)?)
    }

    /// Counts the `starts`-th start of the node.
    pub(super) fn start(&mut self, starts: i32) -> Result<(), String> {
        if starts <= self.starts {
            return Err(format!("start {starts} comes after start {}", self.starts));
        }
        self.starts = starts;
        Ok(())
    }

    pub(super) fn lose_changes(&mut self, before: i32) {
        self.lost_before = self.lost_before.max(before);
    }

    pub(super) fn reserve_producer_ids(&mut self, end: i64) {
        self.producer_ids_end = self.producer_ids_end.max(end);
    }

    pub(super) fn count_added_partitions(&mut self, count: i64) {
        self.added_partitions = self.added_partitions.max(count);
    }

    pub(super) fn add_topic(&mut self, topic: Topic) -> Result<(), String> {
        let (name, id) = (&topic.name, topic.id);
        if topic.partition_count() == 0 || self.topic(name).is_some() || self.topic_by_id(id).is_some() {
            return Err(format!("topic {name} has no partitions or is made twice"));
        }
        if let Some(key) = collision_key(name) {
            self.by_collision_key.insert(Arc::from(&*key), Arc::clone(name));
        }
        self.topics_generation += 1;
        self.partition_count += topic.stored_partitions();
        self.put_topic(topic);
        Ok(())
    }

    pub(super) fn create_topic(
        &mut self,
        id: TopicId,
        name: &str,
        partitions: usize,
        configs: TopicOverrides,
        starts: i32,
    ) -> Result<(), String> {
        self.check_origin(starts)?;
        self.add_topic(Topic::new(id, name, partitions, configs, starts))
    }

    /// Adds a queue of this machine, whose name and id no topic has. The metadata log does not know it.
    pub(super) fn mount(&mut self, name: &str, id: TopicId) {
        self.add_topic(Topic::mounted(id, name)).expect("the store has checked name and id");
    }

    pub(super) fn remove_topic(&mut self, id: TopicId) -> Result<(), String> {
        let topic = self.by_id.remove(&id).ok_or_else(|| format!("there is no topic {id}"))?;
        self.by_name.remove(&topic.name);
        if let Some(key) = collision_key(&topic.name) {
            self.by_collision_key.remove(&*key);
        }
        self.topics_generation += 1;
        self.partition_count -= topic.stored_partitions();
        Ok(())
    }

    pub(super) fn add_partitions(&mut self, id: TopicId, more: usize, starts: i32) -> Result<(), String> {
        self.check_origin(starts)?;
        self.replace_topic(id, |topic| topic.grow(more, starts))?;
        self.topics_generation += 1;
        self.partition_count += more as u64;
        self.added_partitions = self.added_partitions.saturating_add_unsigned(more as u64);
        Ok(())
    }

    pub(super) fn set_topic_configs(&mut self, id: TopicId, configs: TopicOverrides) -> Result<(), String> {
        self.replace_topic(id, |topic| topic.configs = Arc::new(configs))
    }

    pub(super) fn set_group_configs(&mut self, group_id: &str, configs: GroupOverrides) {
        if configs.is_empty() {
            self.group_configs.remove(group_id);
        } else {
            let group_id: Arc<str> = group_id.into();
            let group = GroupConfigs { group_id: Arc::clone(&group_id), configs };
            self.group_configs.insert(group_id, Arc::new(group));
        }
    }

    fn put_topic(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        self.by_id.insert(topic.id, Arc::clone(&topic));
        self.by_name.insert(Arc::clone(&topic.name), topic);
    }

    fn replace_topic(&mut self, id: TopicId, change: impl FnOnce(&mut Topic)) -> Result<(), String> {
        let mut topic = Topic::clone(self.topic_by_id(id).ok_or_else(|| format!("there is no topic {id}"))?);
        change(&mut topic);
        self.put_topic(topic);
        Ok(())
    }

    fn check_origin(&self, starts: i32) -> Result<(), String> {
        if !(0..=self.starts).contains(&starts) {
            return Err(format!("partitions came to be at start {starts}, and there were {}", self.starts));
        }
        Ok(())
    }
}
