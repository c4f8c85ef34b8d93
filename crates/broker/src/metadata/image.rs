//! The image: everything the metadata says at one moment, immutable and cheap to copy for the next moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_types::{LeaderEpoch, NodeId, TopicId};

use super::records::{Head, Record};
use super::shards::ShardedMap;
use crate::config::{GroupOverrides, TopicOverrides};
use crate::cordon::Cordon;
use crate::topic_names::collision_key;

/// A topic at one moment.
///
/// Invariants: it has one partition at least; partition indexes are 0 and up without a gap. A mounted one has no configs.
/// Of another one each partition has an origin, and no two neighbouring runs of `origins` have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its identity, which names its directories.
    pub(crate) id: TopicId,
    /// The configs that it sets for itself, by name.
    pub(crate) configs: Arc<TopicOverrides>,
    /// Whether it is a queue of this machine. It has one partition then, which lies in no log dir, and is not in the
    /// metadata log: the server's configuration says that it is there.
    pub(crate) is_mounted: bool,
    dirs: Arc<[u16]>,
    origins: Arc<[OriginRun]>,
}

/// A run of partitions that have the same origin: how often their node had started when they came to be. A partition's
/// leader epoch counts the starts since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OriginRun {
    /// Index of the first of them; they reach up to that of the next run.
    first: usize,
    starts: i32,
}

impl Topic {
    /// How many partitions it has.
    pub(crate) fn partition_count(&self) -> i32 {
        if self.is_mounted { 1 } else { i32::try_from(self.dirs.len()).unwrap_or(i32::MAX) }
    }

    /// Whether clients may change it: its records, its configs, how many partitions it has, or that it is there. A queue is
    /// changed where it lies.
    pub(crate) fn is_changeable(&self) -> bool {
        !self.is_mounted
    }

    /// Whether it has a partition of this index.
    pub(crate) fn has_partition(&self, index: i32) -> bool {
        (0..self.partition_count()).contains(&index)
    }

    /// Index of the log dir that holds a partition; `None` if there is no such partition.
    pub(crate) fn log_dir(&self, partition: i32) -> Option<usize> {
        let index = usize::try_from(partition).ok()?;
        self.dirs.get(index).map(|dir| usize::from(*dir))
    }

    /// Log dirs of all partitions, in the order of the partitions.
    pub(crate) fn log_dirs(&self) -> impl Iterator<Item = usize> {
        self.dirs.iter().map(|dir| usize::from(*dir))
    }

    /// How often the node had started when a partition came to be; `None` if there is no such partition in a log dir.
    fn origin(&self, partition: i32) -> Option<i32> {
        let index = usize::try_from(partition).ok().filter(|index| *index < self.dirs.len())?;
        let after = self.origins.partition_point(|run| run.first <= index);
        after.checked_sub(1).map(|run| self.origins[run].starts)
    }

    /// Adds partitions that came to be at one count of starts.
    fn grow(&mut self, dirs: &[u16], starts: i32) {
        let first = self.dirs.len();
        self.dirs = self.dirs.iter().chain(dirs).copied().collect();
        if self.origins.last().is_none_or(|run| run.starts != starts) {
            self.origins = self.origins.iter().copied().chain([OriginRun { first, starts }]).collect();
        }
    }

    /// Records that make this topic.
    fn to_records(&self) -> impl Iterator<Item = Record> {
        let ends = self.origins.iter().skip(1).map(|run| run.first).chain([self.dirs.len()]);
        self.origins.iter().zip(ends).map(|(run, end)| {
            let (id, dirs, starts) = (self.id, self.dirs[run.first..end].to_vec(), run.starts);
            if run.first > 0 {
                return Record::PartitionsAdded { id, dirs, starts };
            }
            let configs = TopicOverrides::clone(&self.configs);
            Record::TopicCreated { id, name: self.name.to_string(), dirs, configs, starts }
        })
    }
}

/// What a consumer group sets for itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GroupConfigs {
    /// The group's id. Whether there is a group of this id does not matter.
    pub(crate) group_id: Arc<str>,
    /// The configs by name, one at least.
    pub(crate) configs: GroupOverrides,
}

/// Log dirs at most of which is remembered that their records were given up.
const GIVEN_UP_DIRS_MAX: usize = 1024;

/// A directory of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogDir {
    /// Its identity, which also stands in the directory itself.
    pub(crate) id: String,
    /// Where it was found at the last start.
    pub(crate) path: PathBuf,
    /// How many partitions it holds.
    pub(crate) partition_count: u64,
}

/// Everything that the metadata says.
///
/// Invariants: the three topic maps hold the same topics (the third only those whose name has `.` or `_`); each
/// partition's log dir exists, and so does each that is cordoned; `partition_count` is the sum over the log dirs.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    cluster_id: Arc<str>,
    node_id: NodeId,
    starts: i32,
    /// Changes that were made before this start may be lost; 0: none are.
    lost_before: i32,
    producer_ids_end: i64,
    added_partitions: i64,
    topics_generation: u64,
    log_dirs: Vec<LogDir>,
    /// Ids of log dirs whose records were given up, and the start at which they were. The oldest ones go at the bound.
    given_up_dirs: Arc<BTreeMap<String, i32>>,
    /// What clients have said, and what holds where they have said nothing, which is not in the metadata log.
    cordon: Option<Cordon>,
    default_cordon: Cordon,
    by_name: ShardedMap<Arc<str>, Arc<Topic>>,
    by_id: ShardedMap<TopicId, Arc<Topic>>,
    by_collision_key: ShardedMap<Arc<str>, Arc<str>>,
    /// What consumer groups set for themselves, with their ids. One that sets nothing is not here.
    group_configs: ShardedMap<Arc<str>, Arc<GroupConfigs>>,
    /// Log dirs of the partitions of topics that were deleted and whose files may still be there.
    doomed: Arc<BTreeMap<TopicId, Arc<[u16]>>>,
}

impl Image {
    pub(crate) fn new(head: &Head) -> Self {
        Self {
            cluster_id: Arc::from(head.cluster_id.as_str()),
            node_id: NodeId(head.node_id),
            starts: 0,
            lost_before: 0,
            producer_ids_end: 0,
            added_partitions: 0,
            topics_generation: 0,
            log_dirs: Vec::new(),
            given_up_dirs: Arc::default(),
            cordon: None,
            default_cordon: Cordon::none(),
            by_name: ShardedMap::new(),
            by_id: ShardedMap::new(),
            by_collision_key: ShardedMap::new(),
            group_configs: ShardedMap::new(),
            doomed: Arc::default(),
        }
    }

    /// The cluster's id, as clients see it.
    pub(crate) fn cluster_id(&self) -> &Arc<str> {
        &self.cluster_id
    }

    /// This node.
    pub(crate) fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// How often this node has started.
    pub(crate) fn starts(&self) -> i32 {
        self.starts
    }

    /// The leader epoch of a partition of this topic: 0 when it came to be, and one more with each start since. Unknown if
    /// there is no such partition in a log dir.
    pub(crate) fn leader_epoch(&self, topic: &Topic, partition: i32) -> LeaderEpoch {
        let origin = topic.origin(partition);
        origin.map_or(LeaderEpoch::UNKNOWN, |origin| LeaderEpoch(self.starts - origin))
    }

    /// The origin of partitions that are added to this topic now. Where it was there before changes were lost, they may have
    /// been there, too: the journal may have records of them, whose epochs they have to be above.
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

    /// What the consumer group of this id sets for itself, if it sets something.
    pub(crate) fn group_configs(&self, group_id: &str) -> Option<&GroupOverrides> {
        self.group_configs.get(group_id).map(|group| &group.configs)
    }

    /// All groups that set something for themselves, in no useful order.
    pub(crate) fn configured_groups(&self) -> impl Iterator<Item = &Arc<GroupConfigs>> {
        self.group_configs.values()
    }

    pub(crate) fn configured_group_count(&self) -> usize {
        self.group_configs.len()
    }

    /// How many partitions there are.
    pub(crate) fn partition_count(&self) -> u64 {
        self.log_dirs.iter().map(|dir| dir.partition_count).sum()
    }

    /// Changes whenever a topic is made, deleted or gains partitions.
    pub(crate) fn topics_generation(&self) -> u64 {
        self.topics_generation
    }

    /// The log dirs; a partition names one by its index.
    pub(crate) fn log_dirs(&self) -> &[LogDir] {
        &self.log_dirs
    }

    /// The start at which the records of the log dir of this id were given up, if they were.
    pub(crate) fn given_up_at(&self, id: &str) -> Option<i32> {
        self.given_up_dirs.get(id).copied()
    }

    /// Paths of the log dirs, in the order of their indexes.
    pub(crate) fn log_dir_paths(&self) -> Vec<&Path> {
        self.log_dirs.iter().map(|dir| dir.path.as_path()).collect()
    }

    /// Whether the log dir of this index takes no new partitions by its owner's wish.
    pub(crate) fn is_cordoned(&self, log_dir: usize) -> bool {
        self.holding_cordon().covers(log_dir)
    }

    /// What clients have said of cordoned log dirs, if they have.
    pub(crate) fn cordon(&self) -> Option<&Cordon> {
        self.cordon.as_ref()
    }

    /// What holds: the clients' word, else the configuration's.
    pub(crate) fn holding_cordon(&self) -> &Cordon {
        self.cordon.as_ref().unwrap_or(&self.default_cordon)
    }

    /// What holds where clients have said nothing. Nothing of it goes into the log.
    pub(crate) fn cordon_by_default(&mut self, cordon: Cordon) {
        self.default_cordon = cordon;
    }

    /// Topics that were deleted and whose files may still be there, with the log dir of each partition.
    pub(crate) fn doomed(&self) -> &BTreeMap<TopicId, Arc<[u16]>> {
        &self.doomed
    }

    /// How many of these topics may still have files in the log dir of this index.
    pub(crate) fn doomed_in(&self, log_dir: u16) -> usize {
        self.doomed.values().filter(|dirs| dirs.contains(&log_dir)).count()
    }

    /// How many partitions were ever added to topics that were there.
    pub(crate) fn added_partitions(&self) -> i64 {
        self.added_partitions
    }

    /// Whether the log dir of this index has partitions, or may have files of deleted ones.
    pub(crate) fn is_needed(&self, log_dir: u16) -> bool {
        let dir = self.log_dirs.get(usize::from(log_dir));
        dir.is_some_and(|dir| dir.partition_count > 0) || self.doomed_in(log_dir) > 0
    }

    /// Every producer id that was given out is below this.
    pub(crate) fn producer_ids_end(&self) -> i64 {
        self.producer_ids_end
    }

    /// The topic whose name differs from `name` only in `.` and `_`, or not at all.
    pub(crate) fn colliding_topic(&self, name: &str) -> Option<&Arc<str>> {
        self.by_collision_key.get(&*collision_key(name)?)
    }

    /// The image after one more record, or why the record does not fit.
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), String> {
        if matches!(
            record,
            Record::TopicCreated { .. } | Record::TopicDeleted { .. } | Record::PartitionsAdded { .. }
        ) {
            self.topics_generation += 1;
        }
        match record {
            Record::NodeStarted { starts } if starts > self.starts => self.starts = starts,
            Record::NodeStarted { starts } => {
                return Err(format!("start {starts} comes after start {}", self.starts));
            }
            Record::ChangesLost { before } => self.lost_before = self.lost_before.max(before),
            Record::LogDirAdded { .. } if self.log_dirs.len() > usize::from(u16::MAX) => {
                return Err("there are more log dirs than a partition can name".to_owned());
            }
            Record::LogDirAdded { id, path } => {
                self.log_dirs.push(LogDir { id, path: path.into(), partition_count: 0 });
            }
            Record::LogDirMoved { index, path } => {
                let dir = self.log_dirs.get_mut(usize::from(index)).ok_or("an unknown log dir moved")?;
                dir.path = path.into();
            }
            Record::LogDirReplaced { index, id } => self.replace_log_dir(index, id)?,
            Record::LogDirGivenUp { id, start } => self.give_up(id, start),
            Record::LogDirRemoved { index } => self.remove_log_dir(index)?,
            Record::LogDirsCordoned { cordon } => self.set_cordon(cordon)?,
            Record::TopicCreated { id, name, dirs, configs, starts } => {
                self.add_topic(id, &name, &dirs, configs, starts)?;
            }
            Record::TopicDeleted { id } => self.remove_topic(id)?,
            Record::TopicDoomed { id, dirs } => self.doom(id, Arc::from(dirs))?,
            Record::TopicDiscarded { id } => _ = Arc::make_mut(&mut self.doomed).remove(&id),
            Record::PartitionsAdded { id, dirs, starts } => {
                self.added_partitions = self.added_partitions.saturating_add_unsigned(dirs.len() as u64);
                self.count_partitions(&dirs, starts)?;
                self.replace_topic(id, |topic| topic.grow(&dirs, starts))?;
            }
            Record::AddedPartitionsCounted { count } => {
                self.added_partitions = self.added_partitions.max(count);
            }
            Record::TopicConfigsSet { id, configs } => {
                self.replace_topic(id, |topic| topic.configs = Arc::new(configs))?;
            }
            Record::GroupConfigsSet { group, configs } => self.set_group_configs(&group, configs),
            Record::ProducerIdsReserved { end } => self.producer_ids_end = self.producer_ids_end.max(end),
        }
        Ok(())
    }

    fn add_topic(
        &mut self,
        id: TopicId,
        name: &str,
        dirs: &[u16],
        configs: TopicOverrides,
        starts: i32,
    ) -> Result<(), String> {
        if dirs.is_empty() || self.topic(name).is_some() || self.topic_by_id(id).is_some() {
            return Err(format!("topic {name} has no partitions or is made twice"));
        }
        self.count_partitions(dirs, starts)?;
        let (name, dirs, origins) =
            (Arc::from(name), Arc::from(dirs), Arc::from([OriginRun { first: 0, starts }]));
        self.put_named(Topic { name, id, configs: Arc::new(configs), is_mounted: false, dirs, origins });
        Ok(())
    }

    /// Adds a queue of this machine, whose name and id no topic has. Nothing of it goes into the log.
    pub(crate) fn mount(&mut self, name: &str, id: TopicId) {
        let (name, configs) = (Arc::from(name), Arc::default());
        self.topics_generation += 1;
        self.put_named(Topic {
            name,
            id,
            configs,
            is_mounted: true,
            dirs: Arc::from([]),
            origins: Arc::from([]),
        });
    }

    fn put_named(&mut self, topic: Topic) {
        if let Some(key) = collision_key(&topic.name) {
            self.by_collision_key.insert(Arc::from(&*key), Arc::clone(&topic.name));
        }
        self.put_topic(topic);
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

    fn set_group_configs(&mut self, group_id: &str, configs: GroupOverrides) {
        if configs.is_empty() {
            self.group_configs.remove(group_id);
        } else {
            let group_id: Arc<str> = group_id.into();
            let group = GroupConfigs { group_id: Arc::clone(&group_id), configs };
            self.group_configs.insert(group_id, Arc::new(group));
        }
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), String> {
        let topic = self.by_id.remove(&id).ok_or_else(|| format!("there is no topic {id}"))?;
        self.by_name.remove(&topic.name);
        if let Some(key) = collision_key(&topic.name) {
            self.by_collision_key.remove(&*key);
        }
        for dir in topic.log_dirs() {
            self.log_dirs[dir].partition_count -= 1;
        }
        self.doom(id, Arc::clone(&topic.dirs))
    }

    fn doom(&mut self, id: TopicId, dirs: Arc<[u16]>) -> Result<(), String> {
        self.check_dirs(&dirs)?;
        Arc::make_mut(&mut self.doomed).insert(id, dirs);
        Ok(())
    }

    fn replace_log_dir(&mut self, index: u16, id: String) -> Result<(), String> {
        let had_records = self.is_needed(index);
        let dir = self.log_dirs.get_mut(usize::from(index)).ok_or("an unknown log dir was replaced")?;
        let before = std::mem::replace(&mut dir.id, id);
        if had_records {
            self.give_up(before, self.starts);
        }
        Ok(())
    }

    fn give_up(&mut self, id: String, start: i32) {
        let dirs = Arc::make_mut(&mut self.given_up_dirs);
        dirs.insert(id, start);
        if dirs.len() > GIVEN_UP_DIRS_MAX {
            let oldest = dirs.iter().min_by_key(|(_, start)| **start).map(|(id, _)| id.clone());
            oldest.map(|id| dirs.remove(&id));
        }
    }

    /// Everything that names log dirs by their index goes with those behind the one that is removed.
    fn remove_log_dir(&mut self, index: u16) -> Result<(), String> {
        if usize::from(index) >= self.log_dirs.len() {
            return Err("an unknown log dir was removed".to_owned());
        }
        if self.is_needed(index) {
            return Err("a log dir was removed that was needed".to_owned());
        }
        self.log_dirs.remove(usize::from(index));
        let follow =
            |dirs: &[u16]| -> Arc<[u16]> { dirs.iter().map(|dir| dir - u16::from(*dir > index)).collect() };
        let is_behind = |topic: &&Arc<Topic>| topic.dirs.iter().any(|dir| *dir > index);
        let moved: Vec<TopicId> = self.topics().filter(is_behind).map(|topic| topic.id).collect();
        for id in moved {
            self.replace_topic(id, |topic| topic.dirs = follow(&topic.dirs))?;
        }
        for dirs in Arc::make_mut(&mut self.doomed).values_mut() {
            *dirs = follow(dirs);
        }
        let cordons = self.cordon.iter_mut().chain([&mut self.default_cordon]);
        cordons.for_each(|cordon| cordon.follow_removal(index));
        Ok(())
    }

    fn set_cordon(&mut self, cordon: Option<Cordon>) -> Result<(), String> {
        if let Some(Cordon::Dirs(dirs)) = &cordon {
            self.check_dirs(dirs)?;
        }
        self.cordon = cordon;
        Ok(())
    }

    fn check_dirs(&self, dirs: &[u16]) -> Result<(), String> {
        if dirs.iter().any(|dir| usize::from(*dir) >= self.log_dirs.len()) {
            return Err("an unknown log dir is named".to_owned());
        }
        Ok(())
    }

    fn count_partitions(&mut self, dirs: &[u16], starts: i32) -> Result<(), String> {
        self.check_dirs(dirs)?;
        if !(0..=self.starts).contains(&starts) {
            return Err(format!("partitions came to be at start {starts}, and there were {}", self.starts));
        }
        for dir in dirs {
            self.log_dirs[usize::from(*dir)].partition_count += 1;
        }
        Ok(())
    }

    /// Records that make this image from an empty one.
    pub(crate) fn to_records(&self) -> impl Iterator<Item = Record> {
        let dirs = self.log_dirs.iter().map(|dir| Record::LogDirAdded {
            id: dir.id.clone(),
            path: dir.path.to_string_lossy().into_owned(),
        });
        let given_up = self.given_up_dirs.iter();
        let given_up = given_up.map(|(id, start)| Record::LogDirGivenUp { id: id.clone(), start: *start });
        let dirs = dirs.chain(given_up);
        let cordon = self.cordon.clone().map(|cordon| Record::LogDirsCordoned { cordon: Some(cordon) });
        let topics = self.topics().flat_map(|topic| topic.to_records());
        let started = (self.starts > 0).then_some(Record::NodeStarted { starts: self.starts });
        let lost = (self.lost_before > 0).then_some(Record::ChangesLost { before: self.lost_before });
        let producers = Record::ProducerIdsReserved { end: self.producer_ids_end };
        let added = Record::AddedPartitionsCounted { count: self.added_partitions };
        let doomed =
            self.doomed.iter().map(|(id, dirs)| Record::TopicDoomed { id: *id, dirs: dirs.to_vec() });
        let groups = self.configured_groups().map(|group| Record::GroupConfigsSet {
            group: group.group_id.to_string(),
            configs: group.configs.clone(),
        });
        let first = started.into_iter().chain(lost).chain([producers]);
        // The count comes after the topics: it tells of the partitions that theirs tell of, too.
        let topics = topics.chain([added]);
        first.chain(dirs).chain(cordon).chain(topics).chain(doomed).chain(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::testing::image;

    #[test]
    fn partitions_of_an_older_program_are_led_in_epochs_that_count_all_starts() {
        let id = TopicId([1; 16]);
        let older = format!(
            r#"[{{"node_started":{{"epoch":7}}}},{{"topic_created":{{"id":"{id}","name":"t","dirs":[0],"configs":{{}}}}}},
            {{"partitions_added":{{"id":"{id}","dirs":[0]}}}}]"#
        );
        let mut image = image(1);
        let added = Record::PartitionsAdded { id, dirs: vec![0], starts: 8 };
        let records = serde_json::from_str::<Vec<Record>>(&older).expect("readable");
        for record in records.into_iter().chain([Record::NodeStarted { starts: 8 }, added]) {
            image.apply(record).expect("fits");
        }
        let topic = image.topic("t").expect("there");
        let epochs = [0, 1, 2, 3].map(|index| image.leader_epoch(topic, index).0);
        assert_eq!(epochs, [8, 8, 0, -1]);
        assert_eq!(image.origin_of_more(topic), 8);
    }

    #[test]
    fn no_partition_comes_to_be_before_or_after_all_starts() {
        for starts in [-1, 1] {
            let (id, name, dirs) = (TopicId([1; 16]), "t".to_owned(), vec![0]);
            let created = Record::TopicCreated { id, name, dirs, configs: TopicOverrides::new(), starts };
            image(1).apply(created).expect_err("there were none");
        }
    }

    #[test]
    fn the_oldest_of_too_many_log_dirs_that_were_given_up_are_forgotten() {
        let mut image = image(1);
        let topic = TopicId([1; 16]);
        image.apply(Record::TopicDoomed { id: topic, dirs: vec![0] }).expect("fits");
        let replaced = |index, id: i32| Record::LogDirReplaced { index, id: format!("new-{id}") };
        let max = i32::try_from(GIVEN_UP_DIRS_MAX).expect("few");
        for start in 1..=max + 2 {
            image.apply(Record::NodeStarted { starts: start }).expect("fits");
            image.apply(replaced(0, start)).expect("fits");
        }
        let mut again = Image::new(&Head {
            cluster_id: "c".into(),
            node_id: 1,
            generation: 0,
            frames: 0,
            is_last: false,
        });
        image.to_records().for_each(|record| again.apply(record).expect("fits"));
        for image in [&image, &again] {
            let at = ["0", "new-1", "new-2", &format!("new-{max}"), &format!("new-{}", max + 1)];
            let at = at.map(|id| image.given_up_at(id));
            assert_eq!(at, [None, None, Some(3), Some(max + 1), Some(max + 2)]);
        }
        image.apply(Record::TopicDiscarded { id: topic }).expect("fits");
        image.apply(replaced(0, -1)).expect("fits");
        assert_eq!(image.given_up_at(&format!("new-{}", max + 2)), None, "it held nothing");
        image.apply(replaced(1, 0)).expect_err("there is no such log dir");
    }
}
