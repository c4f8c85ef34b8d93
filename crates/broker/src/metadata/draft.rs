//! A change in the making: requests are checked one after the other against the changes of those before, and the records
//! of all are then made durable together.
//!
//! Pure besides the random topic ids. Dropping a draft undoes it, which is how a request that only asks for
//! validation is served.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_env::Random;
use riverrun_types::TopicId;
use riverrun_types::limits::TOPIC_PARTITIONS_MAX;

use super::cluster::Topic;
use super::error::TopicError;
use super::image::Image;
use super::node::marks::Progress;
use super::node::placement::place;
use super::records::Record;
use crate::config::{GroupOverrides, TopicOverrides};
use crate::cordon::Cordon;
use crate::topic_names::{check_name, internal_like, is_internal, is_reserved};

/// Upper bound of partitions of all topics together.
pub(crate) const PARTITIONS_MAX: u64 = 1_000_000;

/// Upper bound of consumer groups with configs of their own, whether or not these exist: as many as one shard of groups
/// holds.
pub(crate) const CONFIGURED_GROUPS_MAX: usize = 10_000;

/// Upper bound of node starts that lost metadata may have counted.
const LOST_STARTS_MAX: i32 = 1000;
/// Upper bound of producer ids that lost metadata may have reserved.
const LOST_PRODUCER_IDS_MAX: i64 = 1 << 32;

/// A topic to be made. Its configs have been checked.
#[derive(Clone, Debug)]
pub(crate) struct NewTopic {
    pub(crate) name: String,
    pub(crate) partition_count: i32,
    /// The configs that it sets for itself.
    pub(crate) configs: TopicOverrides,
}

/// An image under change.
///
/// Invariants: `image` is the image that the draft began with after exactly `records`.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    image: Image,
    records: Vec<Record>,
    random: RandomSource<'a>,
    /// Log dirs that take no new partitions, besides those that are cordoned.
    closed_dirs: BTreeSet<usize>,
}

struct RandomSource<'a>(&'a dyn Random);

impl std::fmt::Debug for RandomSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random")
    }
}

impl<'a> Draft<'a> {
    pub(crate) fn new(image: &Image, random: &'a dyn Random) -> Self {
        let closed_dirs = BTreeSet::new();
        Self { image: image.clone(), records: Vec::new(), random: RandomSource(random), closed_dirs }
    }

    /// Puts no new partition into these log dirs from here on.
    pub(crate) fn avoid(&mut self, closed_dirs: BTreeSet<usize>) {
        self.closed_dirs = closed_dirs;
    }

    /// The image after the records so far.
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn into_parts(self) -> (Image, Vec<Record>) {
        (self.image, self.records)
    }

    pub(crate) fn create_topic(&mut self, new: NewTopic) -> Result<Arc<Topic>, TopicError> {
        self.check_new_name(&new.name)?;
        let dirs = self.place_partitions(new.partition_count, TOPIC_PARTITIONS_MAX)?;
        let (id, starts) = (self.random_topic_id(), self.image.cluster.starts());
        self.record(Record::TopicCreated { id, name: new.name, dirs, configs: new.configs, starts });
        Ok(self.topic_of(id))
    }

    /// Whether a topic of this name could be made.
    pub(crate) fn check_new_name(&self, name: &str) -> Result<(), TopicError> {
        check_name(name).map_err(TopicError::InvalidName)?;
        if self.image.cluster.topic(name).is_some() {
            return Err(TopicError::Exists(name.to_owned()));
        }
        if is_reserved(name) {
            return Err(TopicError::Reserved);
        }
        if is_internal(name) {
            // An older server may have let a client make a topic of a name like it. Groups need this one all the same.
            return Ok(());
        }
        let other =
            internal_like(name).map(Arc::from).or_else(|| self.image.cluster.colliding_topic(name).cloned());
        match other {
            Some(other) => Err(TopicError::Collides { name: name.to_owned(), other }),
            None => Ok(()),
        }
    }

    /// Deletes a topic and answers what it was. It is doomed until [`Self::forget_topics`], so that no crash leaves files
    /// that the metadata does not know.
    pub(crate) fn delete_topic(&mut self, id: TopicId) -> Result<Arc<Topic>, TopicError> {
        let topic = Arc::clone(changeable(self.image.cluster.topic_by_id(id))?);
        self.record(Record::TopicDeleted { id });
        Ok(topic)
    }

    /// Records that the files of deleted topics are gone.
    pub(crate) fn forget_topics(&mut self, discarded: &[TopicId]) {
        for id in discarded {
            if self.image.node.doomed().contains_key(id) {
                self.record(Record::TopicDiscarded { id: *id });
            }
        }
    }

    /// Raises a topic's partitions to `total`.
    pub(crate) fn grow_topic(&mut self, name: &str, total: i32) -> Result<Arc<Topic>, TopicError> {
        let topic = changeable(self.image.cluster.topic(name))?;
        let (id, current, starts) =
            (topic.id, topic.partition_count(), self.image.cluster.origin_of_more(topic));
        if total <= current {
            return Err(TopicError::InvalidPartitions(format!(
                "Topic currently has {current} partitions, and {total} would not be more."
            )));
        }
        let dirs = self.place_partitions(total - current, TOPIC_PARTITIONS_MAX - current)?;
        self.record(Record::PartitionsAdded { id, dirs, starts });
        Ok(self.topic_of(id))
    }

    /// Replaces the configs that a topic sets for itself. The caller has checked them.
    pub(crate) fn set_topic_configs(
        &mut self,
        id: TopicId,
        configs: TopicOverrides,
    ) -> Result<(), TopicError> {
        let topic = changeable(self.image.cluster.topic_by_id(id))?;
        if *topic.configs != configs {
            self.record(Record::TopicConfigsSet { id, configs });
        }
        Ok(())
    }

    /// Replaces the configs that a consumer group sets for itself. The caller has checked them. Fails only if too many groups
    /// would have configs.
    pub(crate) fn set_group_configs(
        &mut self,
        group_id: &str,
        configs: GroupOverrides,
    ) -> Result<(), String> {
        let current = self.image.cluster.group_configs(group_id);
        if current.map_or(configs.is_empty(), |current| *current == configs) {
            return Ok(());
        }
        if current.is_none() && self.image.cluster.configured_group_count() >= CONFIGURED_GROUPS_MAX {
            return Err(format!("At most {CONFIGURED_GROUPS_MAX} groups set configs for themselves."));
        }
        self.record(Record::GroupConfigsSet { group: group_id.to_owned(), configs });
        Ok(())
    }

    /// Sets the clients' cordon; `None`: the configuration's holds. The dirs that it names exist.
    pub(crate) fn set_cordon(&mut self, cordon: Option<Cordon>) {
        if self.image.node.cordon() != cordon.as_ref() {
            self.record(Record::LogDirsCordoned { cordon });
        }
    }

    /// Reserves `count` producer ids and answers the first.
    pub(crate) fn reserve_producer_ids(&mut self, count: i64) -> i64 {
        let first = self.image.cluster.producer_ids_end();
        self.record(Record::ProducerIdsReserved { end: first + count });
        first
    }

    /// Counts one more start of this node.
    pub(crate) fn start_node(&mut self) {
        self.record(Record::NodeStarted { starts: self.image.cluster.starts() + 1 });
    }

    /// Steps over all starts and producer ids that lost changes may have recorded, beyond those of the image and of the
    /// metadata marks, `told`: neither may come twice.
    pub(crate) fn skip_what_is_lost(&mut self, told: Progress) {
        let Progress { starts, producer_ids_end, added_partitions } =
            Progress::of(&self.image.cluster).furthest(told);
        let starts = starts.saturating_add(LOST_STARTS_MAX);
        self.record(Record::NodeStarted { starts });
        self.record(Record::ChangesLost { before: starts });
        let end = producer_ids_end.saturating_add(LOST_PRODUCER_IDS_MAX);
        self.record(Record::ProducerIdsReserved { end });
        self.record(Record::AddedPartitionsCounted { count: added_partitions });
    }

    /// Adds a record that was made elsewhere and fits.
    pub(crate) fn record(&mut self, record: Record) {
        self.image.apply(record.clone()).expect("a draft checks what it records");
        self.records.push(record);
    }

    fn place_partitions(&self, count: i32, room: i32) -> Result<Vec<u16>, TopicError> {
        if count < 1 {
            let message = "Number of partitions was set to an invalid non-positive value.";
            return Err(TopicError::InvalidPartitions(message.to_owned()));
        }
        if count > room {
            let message = format!("A topic has at most {TOPIC_PARTITIONS_MAX} partitions.");
            return Err(TopicError::InvalidPartitions(message));
        }
        if self.image.cluster.partition_count() + u64::from(count.unsigned_abs()) > PARTITIONS_MAX {
            let message = format!("The server takes at most {PARTITIONS_MAX} partitions over all topics.");
            return Err(TopicError::TooManyPartitions(message));
        }
        let is_open = |index| !self.closed_dirs.contains(&index) && !self.image.node.is_cordoned(index);
        let dirs = self.image.node.log_dirs().iter().enumerate();
        let loads = dirs.map(|(index, dir)| is_open(index).then_some(dir.partition_count));
        let count = usize::try_from(count).expect("checked to be positive");
        place(&loads.collect::<Vec<_>>(), count).ok_or(TopicError::NoLogDir)
    }

    fn topic_of(&self, id: TopicId) -> Arc<Topic> {
        Arc::clone(self.image.cluster.topic_by_id(id).expect("recorded just before"))
    }

    fn random_topic_id(&self) -> TopicId {
        loop {
            let id = random_id(self.random.0);
            if self.image.cluster.topic_by_id(id).is_none() {
                return id;
            }
        }
    }
}

/// The topic that was found, if clients may change it: they may change nothing of a mounted one.
fn changeable(found: Option<&Arc<Topic>>) -> Result<&Arc<Topic>, TopicError> {
    let topic = found.ok_or(TopicError::Unknown)?;
    if topic.is_changeable() { Ok(topic) } else { Err(TopicError::Mounted(topic.name.to_string())) }
}

/// A random id in the form of a version 4 UUID. As Kafka's, its text never begins with `-`, which command lines would
/// take for an option.
pub(crate) fn random_id(random: &dyn Random) -> TopicId {
    loop {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = TopicId(bytes);
        if !id.to_string().starts_with('-') {
            return id;
        }
    }
}

#[cfg(test)]
mod tests;
