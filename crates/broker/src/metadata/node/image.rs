//! The node's half of the image: its log dirs, the partitions in each, and which of them take no new partitions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_types::{NodeId, PartitionId, ShardedMap, TopicId};

use crate::cordon::Cordon;

/// Upper bound of log dirs that were given up and are remembered.
pub(crate) const GIVEN_UP_DIRS_MAX: usize = 1024;

/// A directory of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogDir {
    /// Its identity, which also stands in the directory itself.
    pub(crate) id: String,
    /// Its path at the last start.
    pub(crate) path: PathBuf,
    /// How many partitions it holds.
    pub(crate) partition_count: u64,
}

/// The node's half of the metadata, at one moment.
///
/// Invariants: each index in `placements`, `doomed` and the cordons is that of a log dir; no topic is both placed and
/// doomed; a log dir's `partition_count` is how often `placements` name it.
#[derive(Clone, Debug)]
pub(crate) struct NodeImage {
    id: NodeId,
    log_dirs: Vec<LogDir>,
    /// Ids of log dirs that were given up, and the start of each loss. At [`GIVEN_UP_DIRS_MAX`] the oldest goes.
    given_up_dirs: Arc<BTreeMap<String, i32>>,
    /// The clients' cordon, if they have set one.
    cordon: Option<Cordon>,
    /// The configuration's cordon, which is not in the metadata log.
    default_cordon: Cordon,
    /// The log dir of each partition of each topic.
    placements: ShardedMap<TopicId, Arc<[u16]>>,
    /// Log dirs of the partitions of deleted topics whose files may still be there.
    doomed: Arc<BTreeMap<TopicId, Arc<[u16]>>>,
}

impl NodeImage {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            log_dirs: Vec::new(),
            given_up_dirs: Arc::default(),
            cordon: None,
            default_cordon: Cordon::none(),
            placements: ShardedMap::new(),
            doomed: Arc::default(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    /// The log dirs; a partition names one by its index.
    pub(crate) fn log_dirs(&self) -> &[LogDir] {
        &self.log_dirs
    }

    /// Paths of the log dirs, in the order of their indexes.
    pub(crate) fn log_dir_paths(&self) -> Vec<&Path> {
        self.log_dirs.iter().map(|dir| dir.path.as_path()).collect()
    }

    /// Ids of log dirs that were given up, and the start of each loss.
    pub(crate) fn given_up_dirs(&self) -> &BTreeMap<String, i32> {
        &self.given_up_dirs
    }

    /// The start at which the log dir of this id was given up, if it was.
    pub(crate) fn given_up_at(&self, id: &str) -> Option<i32> {
        self.given_up_dirs.get(id).copied()
    }

    /// The log dirs of a topic's partitions, in the order of the partitions; empty for a topic without files here.
    pub(crate) fn placement(&self, topic: TopicId) -> &[u16] {
        self.placements.get(&topic).map_or(&[], |dirs| &**dirs)
    }

    /// The partitions of a topic, each with its log dir.
    pub(crate) fn placed(&self, topic: TopicId) -> impl Iterator<Item = (PartitionId, usize)> {
        let dirs = (0..).zip(self.placement(topic));
        dirs.map(move |(index, dir)| (PartitionId { topic, index }, usize::from(*dir)))
    }

    /// Index of the log dir that holds a partition; `None` if there is no such partition here.
    pub(crate) fn log_dir(&self, id: PartitionId) -> Option<usize> {
        let index = usize::try_from(id.index).ok()?;
        self.placement(id.topic).get(index).map(|dir| usize::from(*dir))
    }

    /// Whether the log dir of this index takes no new partitions by its owner's wish.
    pub(crate) fn is_cordoned(&self, log_dir: usize) -> bool {
        self.holding_cordon().covers(log_dir)
    }

    /// The clients' cordon, if they have set one.
    pub(crate) fn cordon(&self) -> Option<&Cordon> {
        self.cordon.as_ref()
    }

    /// The cordon that holds: the clients', else the configuration's.
    pub(crate) fn holding_cordon(&self) -> &Cordon {
        self.cordon.as_ref().unwrap_or(&self.default_cordon)
    }

    /// Sets the configuration's cordon, which holds while clients have set none. The metadata log does not get it.
    pub(crate) fn cordon_by_default(&mut self, cordon: Cordon) {
        self.default_cordon = cordon;
    }

    /// Deleted topics whose files may still be there, with the log dir of each partition.
    pub(crate) fn doomed(&self) -> &BTreeMap<TopicId, Arc<[u16]>> {
        &self.doomed
    }

    /// How many deleted topics may still have files in the log dir of this index.
    pub(crate) fn doomed_in(&self, log_dir: u16) -> usize {
        self.doomed.values().filter(|dirs| dirs.contains(&log_dir)).count()
    }

    /// Whether the log dir of this index has partitions, or may have files of deleted ones.
    pub(crate) fn is_needed(&self, log_dir: u16) -> bool {
        let dir = self.log_dirs.get(usize::from(log_dir));
        dir.is_some_and(|dir| dir.partition_count > 0) || self.doomed_in(log_dir) > 0
    }

    pub(crate) fn add_log_dir(&mut self, id: String, path: &str) -> Result<(), String> {
        if self.log_dirs.len() > usize::from(u16::MAX) {
            return Err("there are more log dirs than a partition can name".to_owned());
        }
        self.log_dirs.push(LogDir { id, path: path.into(), partition_count: 0 });
        Ok(())
    }

    pub(crate) fn move_log_dir(&mut self, index: u16, path: &str) -> Result<(), String> {
        let dir = self.log_dirs.get_mut(usize::from(index)).ok_or("an unknown log dir moved")?;
        dir.path = path.into();
        Ok(())
    }

    /// Puts another directory in the place of a log dir, at this start.
    pub(crate) fn replace_log_dir(&mut self, index: u16, id: String, start: i32) -> Result<(), String> {
        let had_records = self.is_needed(index);
        let dir = self.log_dirs.get_mut(usize::from(index)).ok_or("an unknown log dir was replaced")?;
        let before = std::mem::replace(&mut dir.id, id);
        if had_records {
            self.give_up(before, start);
        }
        Ok(())
    }

    pub(crate) fn give_up(&mut self, id: String, start: i32) {
        let dirs = Arc::make_mut(&mut self.given_up_dirs);
        dirs.insert(id, start);
        if dirs.len() > GIVEN_UP_DIRS_MAX {
            let oldest = dirs.iter().min_by_key(|(_, start)| **start).map(|(id, _)| id.clone());
            oldest.map(|id| dirs.remove(&id));
        }
    }

    /// Removes a log dir. Those behind it get the index before their own, in everything that names them by it.
    pub(crate) fn remove_log_dir(&mut self, index: u16) -> Result<(), String> {
        if usize::from(index) >= self.log_dirs.len() {
            return Err("an unknown log dir was removed".to_owned());
        }
        if self.is_needed(index) {
            return Err("a log dir was removed that was needed".to_owned());
        }
        self.log_dirs.remove(usize::from(index));
        let follow =
            |dirs: &[u16]| -> Arc<[u16]> { dirs.iter().map(|dir| dir - u16::from(*dir > index)).collect() };
        self.placements.update(|dirs| dirs.iter().any(|dir| *dir > index).then(|| follow(dirs)));
        for dirs in Arc::make_mut(&mut self.doomed).values_mut() {
            *dirs = follow(dirs);
        }
        let cordons = self.cordon.iter_mut().chain([&mut self.default_cordon]);
        cordons.for_each(|cordon| cordon.follow_removal(index));
        Ok(())
    }

    pub(crate) fn set_cordon(&mut self, cordon: Option<Cordon>) -> Result<(), String> {
        if let Some(Cordon::Dirs(dirs)) = &cordon {
            self.check_dirs(dirs)?;
        }
        self.cordon = cordon;
        Ok(())
    }

    /// Places a topic's next partitions.
    pub(crate) fn place(&mut self, topic: TopicId, dirs: &[u16]) -> Result<(), String> {
        self.check_dirs(dirs)?;
        for dir in dirs {
            self.log_dirs[usize::from(*dir)].partition_count += 1;
        }
        let placement = self.placement(topic).iter().chain(dirs).copied().collect();
        self.placements.insert(topic, placement);
        Ok(())
    }

    /// Dooms a topic that was deleted: its files may still be there.
    pub(crate) fn doom_placed(&mut self, topic: TopicId) {
        let Some(dirs) = self.placements.remove(&topic) else { return };
        for dir in &*dirs {
            self.log_dirs[usize::from(*dir)].partition_count -= 1;
        }
        Arc::make_mut(&mut self.doomed).insert(topic, dirs);
    }

    /// Dooms a topic that was deleted and may still have files in these log dirs.
    pub(crate) fn doom(&mut self, topic: TopicId, dirs: Vec<u16>) -> Result<(), String> {
        self.check_dirs(&dirs)?;
        Arc::make_mut(&mut self.doomed).insert(topic, dirs.into());
        Ok(())
    }

    /// Forgets a doomed topic whose files are gone.
    pub(crate) fn forget_doomed(&mut self, topic: TopicId) {
        Arc::make_mut(&mut self.doomed).remove(&topic);
    }

    fn check_dirs(&self, dirs: &[u16]) -> Result<(), String> {
        if dirs.iter().any(|dir| usize::from(*dir) >= self.log_dirs.len()) {
            return Err("an unknown log dir is named".to_owned());
        }
        Ok(())
    }
}
