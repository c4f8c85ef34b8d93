//! The image: everything the metadata says at one moment, in two halves, each immutable and cheap to copy for the next
//! moment.
//!
//! The halves lie in one log and one snapshot, because some changes are of both: a topic is made in the cluster, and its
//! partitions are placed on this node.

use std::sync::Arc;

use riverrun_types::NodeId;

use super::cluster::{ClusterImage, Topic};
use super::node::NodeImage;
use super::records::{Head, Record};
use crate::config::TopicOverrides;

/// Everything that the metadata says.
///
/// Invariants: the topics that are placed on the node are those of the cluster that are not mounted, with as many
/// partitions. A copy shares both halves, and a change copies those that it changes.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The half that clients see, the same from every node.
    pub(crate) cluster: Arc<ClusterImage>,
    /// The half that concerns this node alone.
    pub(crate) node: Arc<NodeImage>,
}

impl Image {
    pub(crate) fn new(head: &Head) -> Self {
        Self {
            cluster: Arc::new(ClusterImage::new(&head.cluster_id)),
            node: Arc::new(NodeImage::new(NodeId(head.node_id))),
        }
    }

    /// The cluster's half, for a change.
    pub(crate) fn cluster_mut(&mut self) -> &mut ClusterImage {
        Arc::make_mut(&mut self.cluster)
    }

    /// The node's half, for a change.
    pub(crate) fn node_mut(&mut self) -> &mut NodeImage {
        Arc::make_mut(&mut self.node)
    }

    /// Applies one more record, or answers why it does not fit; the image cannot be used any more then.
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::NodeStarted { starts } => self.cluster_mut().start(starts)?,
            Record::ChangesLost { before } => self.cluster_mut().lose_changes(before),
            Record::LogDirAdded { id, path } => self.node_mut().add_log_dir(id, &path)?,
            Record::LogDirMoved { index, path } => self.node_mut().move_log_dir(index, &path)?,
            Record::LogDirReplaced { index, id } => {
                let start = self.cluster.starts();
                self.node_mut().replace_log_dir(index, id, start)?;
            }
            Record::LogDirGivenUp { id, start } => self.node_mut().give_up(id, start),
            Record::LogDirRemoved { index } => self.node_mut().remove_log_dir(index)?,
            Record::LogDirsCordoned { cordon } => self.node_mut().set_cordon(cordon)?,
            Record::TopicCreated { id, name, dirs, configs, starts } => {
                self.cluster_mut().create_topic(id, &name, dirs.len(), configs, starts)?;
                self.node_mut().place(id, &dirs)?;
            }
            Record::TopicDeleted { id } => {
                self.cluster_mut().remove_topic(id)?;
                self.node_mut().doom_placed(id);
            }
            Record::TopicDoomed { id, dirs } => self.node_mut().doom(id, dirs)?,
            Record::TopicDiscarded { id } => self.node_mut().forget_doomed(id),
            Record::PartitionsAdded { id, dirs, starts } => {
                self.cluster_mut().add_partitions(id, dirs.len(), starts)?;
                self.node_mut().place(id, &dirs)?;
            }
            Record::AddedPartitionsCounted { count } => self.cluster_mut().count_added_partitions(count),
            Record::TopicConfigsSet { id, configs } => self.cluster_mut().set_topic_configs(id, configs)?,
            Record::GroupConfigsSet { group, configs } => {
                self.cluster_mut().set_group_configs(&group, configs);
            }
            Record::ProducerIdsReserved { end } => self.cluster_mut().reserve_producer_ids(end),
        }
        Ok(())
    }

    /// Records that make this image from an empty one.
    pub(crate) fn to_records(&self) -> impl Iterator<Item = Record> {
        let (cluster, node) = (&*self.cluster, &*self.node);
        let dirs = node.log_dirs().iter().map(|dir| Record::LogDirAdded {
            id: dir.id.clone(),
            path: dir.path.to_string_lossy().into_owned(),
        });
        let given_up = node.given_up_dirs().iter();
        let given_up = given_up.map(|(id, start)| Record::LogDirGivenUp { id: id.clone(), start: *start });
        let dirs = dirs.chain(given_up);
        let cordon = node.cordon().cloned().map(|cordon| Record::LogDirsCordoned { cordon: Some(cordon) });
        let topics = cluster.topics().flat_map(|topic| topic_records(topic, node.placement(topic.id)));
        let (starts, before) = (cluster.starts(), cluster.lost_before());
        let started = (starts > 0).then_some(Record::NodeStarted { starts });
        let lost = (before > 0).then_some(Record::ChangesLost { before });
        let producers = Record::ProducerIdsReserved { end: cluster.producer_ids_end() };
        let added = Record::AddedPartitionsCounted { count: cluster.added_partitions() };
        let doomed =
            node.doomed().iter().map(|(id, dirs)| Record::TopicDoomed { id: *id, dirs: dirs.to_vec() });
        let groups = cluster.configured_groups().map(|group| Record::GroupConfigsSet {
            group: group.group_id.to_string(),
            configs: group.configs.clone(),
        });
        let first = started.into_iter().chain(lost).chain([producers]);
        // The count comes after the topics: it includes the partitions that their records count on the way.
        let topics = topics.chain([added]);
        first.chain(dirs).chain(cordon).chain(topics).chain(doomed).chain(groups)
    }
}

/// Records that make a topic whose partitions lie in these log dirs.
fn topic_records(topic: &Topic, dirs: &[u16]) -> impl Iterator<Item = Record> {
    topic.runs().map(move |(run, starts)| {
        let (id, is_first, dirs) = (topic.id, run.start == 0, dirs[run].to_vec());
        if !is_first {
            return Record::PartitionsAdded { id, dirs, starts };
        }
        let configs = TopicOverrides::clone(&topic.configs);
        Record::TopicCreated { id, name: topic.name.to_string(), dirs, configs, starts }
    })
}

#[cfg(test)]
mod tests {
    use riverrun_types::TopicId;

    use super::*;
    use crate::metadata::node::GIVEN_UP_DIRS_MAX;
    use crate::metadata::testing::image;

    #[test]
    fn epochs_of_an_older_programs_partitions_count_all_starts() {
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
        let topic = image.cluster.topic("t").expect("there");
        let epochs = [0, 1, 2, 3].map(|index| image.cluster.leader_epoch(topic, index).0);
        assert_eq!(epochs, [8, 8, 0, -1]);
        assert_eq!(image.cluster.origin_of_more(topic), 8);
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
    fn oldest_of_too_many_given_up_log_dirs_are_forgotten() {
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
            let at = at.map(|id| image.node.given_up_at(id));
            assert_eq!(at, [None, None, Some(3), Some(max + 1), Some(max + 2)]);
        }
        image.apply(Record::TopicDiscarded { id: topic }).expect("fits");
        image.apply(replaced(0, -1)).expect("fits");
        assert_eq!(image.node.given_up_at(&format!("new-{}", max + 2)), None, "it held nothing");
        image.apply(replaced(1, 0)).expect_err("there is no such log dir");
    }
}
