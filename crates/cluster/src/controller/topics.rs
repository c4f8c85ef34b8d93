//! Owns the decisions about topics, configs and producer ids: made, grown, deleted, set, given out.

use std::collections::BTreeMap;
use std::sync::Arc;

use riverrun_types::{NodeId, TopicId};

use super::draft::{Draft, Refusal};
use super::image::{Configs, PARTITIONS_MAX, Topic};
use super::partition::{Partition, Replica, ReplicaSet};
use super::placement::Placer;
use super::records::{Record, Run};
#[cfg(test)]
use crate::planted::{Planted, is_planted};

/// Partitions that are to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPartitions {
    /// So many, on brokers that the controller chooses.
    Placed {
        /// How many.
        count: usize,
        /// Replicas of each.
        replicas: usize,
    },
    /// One for each list of brokers, the preferred leader first.
    Assigned(Vec<Vec<NodeId>>),
}

impl NewPartitions {
    /// The number of replicas of each; `None` if they have not the same.
    fn replicas(&self) -> Option<usize> {
        match self {
            Self::Placed { replicas, .. } => Some(*replicas),
            Self::Assigned(lists) => {
                let first = lists.first()?.len();
                lists.iter().all(|list| list.len() == first).then_some(first)
            }
        }
    }
}

/// Configs that are to be set, and those that are to be unset.
pub type ConfigChanges = BTreeMap<String, Option<String>>;

fn changed(configs: &Configs, changes: &ConfigChanges) -> Configs {
    let mut configs = configs.clone();
    for (name, value) in changes {
        match value {
            Some(value) => configs.insert(name.clone(), value.clone()),
            None => configs.remove(name),
        };
    }
    configs
}

/// A topic that is to be made. Name and configs are checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// Its identity, which no topic has.
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// The configs that it sets for itself.
    pub configs: Configs,
    /// Its partitions.
    pub partitions: NewPartitions,
}

impl Draft<'_> {
    /// Makes a topic. Its partitions are led by the first of their replicas that is there.
    pub fn create_topic(&mut self, new: NewTopic) -> Result<(), Refusal> {
        let NewTopic { id, name, configs, partitions } = new;
        if self.image.topic(id).is_some() || self.image.topic_named(&name).is_some() {
            return Err(Refusal::TopicExists(name));
        }
        let runs = self.runs(&partitions)?;
        self.record(Record::TopicCreated { id, name, configs, runs });
        Ok(())
    }

    /// Adds partitions to a topic that has `from` of them. They have as many replicas as its first one.
    pub fn add_partitions(
        &mut self,
        id: TopicId,
        from: usize,
        partitions: &NewPartitions,
    ) -> Result<(), Refusal> {
        let topic = self.topic(id)?;
        if topic.partition_count() != from {
            let reason = format!("the topic has {} by now", topic.partition_count());
            return Err(Refusal::InvalidPartitions(reason));
        }
        let replicas = topic.partition(0).map_or(0, |first| first.target().len());
        if partitions.replicas() != Some(replicas) {
            let reason = format!("the other partitions have {replicas} replicas");
            return Err(Refusal::InvalidReplicas(reason));
        }
        let runs = self.runs(partitions)?;
        self.record(Record::PartitionsAdded { id, runs });
        Ok(())
    }

    /// The new partitions, equal ones behind each other as one run.
    fn runs(&self, partitions: &NewPartitions) -> Result<Vec<Run>, Refusal> {
        let count = match partitions {
            NewPartitions::Placed { count, .. } => *count,
            NewPartitions::Assigned(lists) => lists.len(),
        };
        if count == 0 {
            return Err(Refusal::InvalidPartitions("there is none".to_owned()));
        }
        if partitions.replicas().is_none() {
            let reason = "partitions of a topic have the same number of replicas".to_owned();
            return Err(Refusal::InvalidReplicas(reason));
        }
        if self.image.partition_count().saturating_add(count as u64) > PARTITIONS_MAX {
            let reason = format!("all topics have at most {PARTITIONS_MAX} together");
            return Err(Refusal::InvalidPartitions(reason));
        }
        let mut placer = Placer::new(&self.image);
        let mut runs: Vec<Run> = Vec::new();
        for index in 0..count {
            let replicas = match partitions {
                NewPartitions::Placed { replicas, .. } => placer.place(*replicas)?,
                NewPartitions::Assigned(lists) => placer.assign(&lists[index])?,
            };
            let partition = self.first_of(replicas)?;
            match runs.last_mut().filter(|run| run.partition == partition) {
                Some(run) => run.count += 1,
                None => runs.push(Run { count: 1, partition }),
            }
        }
        Ok(runs)
    }

    fn first_of(&self, replicas: Arc<[Replica]>) -> Result<Partition, Refusal> {
        let may_lead = |replica: &Replica| {
            self.image.broker(replica.node).is_some_and(|broker| broker.may_lead_in(replica.dir))
        };
        let isr: ReplicaSet = (0..replicas.len()).filter(|place| may_lead(&replicas[*place])).collect();
        if isr.is_empty() {
            return Err(Refusal::InvalidReplicas("none of its brokers is there".to_owned()));
        }
        Ok(Partition::new(replicas, isr))
    }

    /// Deletes a topic.
    pub fn delete_topic(&mut self, id: TopicId) -> Result<(), Refusal> {
        self.topic(id)?;
        #[cfg(test)]
        if is_planted(Planted::DeletionTakesAnother) {
            let others = self.image.topics().map(|topic| topic.id);
            let other = others.filter(|other| *other != id).min();
            if let Some(id) = other {
                self.record(Record::TopicDeleted { id });
            }
        }
        self.forget(id);
        self.record(Record::TopicDeleted { id });
        Ok(())
    }

    /// Changes configs that a topic sets for itself. They are checked already.
    ///
    /// Eligible replicas are so by the minimum and the level that held: with another minimum the in-sync set may be large enough, and
    /// at another level they may lack records that they had appended.
    pub fn change_topic_configs(&mut self, id: TopicId, changes: &ConfigChanges) -> Result<(), Refusal> {
        let topic = Arc::clone(self.topic(id)?);
        let configs = changed(&topic.configs, changes);
        if *topic.configs == configs {
            return Ok(());
        }
        let has_other_level = self.policy.level(&topic.configs) != self.policy.level(&configs);
        self.record(Record::TopicConfigsSet { id, configs });
        let has_eligible =
            |partition: &Partition| !partition.roles.elr.union(partition.roles.last_elr).is_empty();
        let meant = (0..).zip(topic.partitions()).filter(|(_, partition)| has_eligible(partition));
        let meant: Vec<i32> = meant.map(|(index, _)| index).collect();
        self.change_some(id, &meant, |partition, rules, _| {
            if has_other_level {
                for place in partition.roles.elr.iter() {
                    partition.exclude(place);
                }
            }
            partition.set_isr(partition.roles.isr, rules.minimum);
        });
        Ok(())
    }

    /// Changes configs that a consumer group sets for itself. They are checked already.
    pub fn change_group_configs(&mut self, group: &str, changes: &ConfigChanges) {
        let current = self.image.group_configs(group).cloned().unwrap_or_default();
        let configs = changed(&current, changes);
        if current != configs {
            self.record(Record::GroupConfigsSet { group: group.to_owned(), configs });
        }
    }

    /// Reserves producer ids, and answers the first of them.
    pub fn reserve_producer_ids(&mut self, count: u32) -> i64 {
        let first = self.image.producer_ids_end();
        #[cfg(test)]
        let count = if is_planted(Planted::ProducerIdsNotReserved) { 0 } else { count };
        self.record(Record::ProducerIdsReserved { end: first.saturating_add(i64::from(count)) });
        first
    }

    pub(super) fn topic(&self, id: TopicId) -> Result<&Arc<Topic>, Refusal> {
        self.image.topic(id).ok_or(Refusal::UnknownTopic)
    }
}
