//! Topics that lie in our log dirs and that the metadata does not know, and partitions of topics that it does know.
//!
//! A topic or a partition is known before it has files, and a topic until they are gone. So the metadata was lost: cut
//! after a kill, or replaced by a copy that is older than they are. A server that went on would let clients make the same
//! topics anew, put partitions that are added again into other log dirs than their records, and delete files that belong
//! to no topic that it knows. So a start is refused until the owner accepts the loss. Then
//!
//! - directories of topics are renamed, because the names of the topics are lost;
//! - partitions are taken back into their topics where they lie: topic, number and log dir are all that there was to know.
//!
//! Partitions cost a listing of each topic's directory. So a start looks for them only once the owner has accepted the
//! loss, or if no log dir has a mark: a mark has the number of added partitions, and metadata that has counted fewer is
//! refused for that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_env::Env;
use riverrun_types::limits::TOPIC_PARTITIONS_MAX;
use riverrun_types::{PartitionId, TopicId};

use super::log_dirs::{is_ours, topic_of_directory};
use crate::metadata::cluster::Topic;
use crate::metadata::draft::PARTITIONS_MAX;
use crate::metadata::error::{MetadataError, first_few};
use crate::metadata::image::Image;
use crate::metadata::records::Record;

/// Prefix of a topic's directory once its owner has given it up.
const LOST_PREFIX: &str = "lost-";

/// Directories in the log dirs that the metadata does not know.
#[derive(Debug, Default)]
pub(crate) struct UnknownTopics {
    /// Directories of topics.
    topics: Vec<PathBuf>,
    /// Directories of partitions that known topics do not have: `<log dir>/<topic>/<partition>`.
    partitions: Vec<(PartitionId, PathBuf)>,
    /// Directories of topics that were given up, at this start or an earlier one.
    aside: Vec<PathBuf>,
    /// Log dirs, or directories in them, that could not be read.
    unread: Vec<PathBuf>,
    /// The log dirs in which to look.
    asked: Vec<PathBuf>,
}

impl UnknownTopics {
    /// Looks into the log dirs that are this server's, for topics and partitions.
    pub(crate) fn find(env: &Env, image: &Image, configured: &[PathBuf]) -> Self {
        let (mut found, known) = Self::find_topics(env, image, configured);
        for (topic, path) in known {
            found.take_partitions(env, topic, &path);
        }
        found.partitions.sort_unstable();
        found
    }

    /// Looks into the log dirs that are this server's, for topics alone. Answers the directories of known ones, too.
    pub(crate) fn find_topics<'a>(
        env: &Env,
        image: &'a Image,
        configured: &[PathBuf],
    ) -> (Self, Vec<(&'a Topic, PathBuf)>) {
        let mut found = Self { asked: configured.to_vec(), ..Self::default() };
        let mut known = Vec::new();
        for log_dir in configured.iter().filter(|path| is_ours(env, image, path)) {
            for name in found.directories_in(env, log_dir) {
                let path = log_dir.join(&name);
                match topic_of_directory(&name) {
                    Some(id) if image.node.doomed().contains_key(&id) => {}
                    Some(id) => match image.cluster.topic_by_id(id) {
                        Some(topic) => known.push((topic.as_ref(), path)),
                        None => found.topics.push(path),
                    },
                    None if is_lost_topic(&name) => found.aside.push(path),
                    None => {}
                }
            }
        }
        found.topics.sort_unstable();
        (found, known)
    }

    /// Names of the directories in `path`; none if it is missing or cannot be read.
    fn directories_in(&mut self, env: &Env, path: &Path) -> Vec<String> {
        match env.fs.read_dir(path) {
            Ok(entries) => {
                let directories = entries.into_iter().filter(|entry| entry.is_dir);
                directories.filter_map(|entry| entry.name.into_string().ok()).collect()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(_) => {
                self.unread.push(path.to_owned());
                Vec::new()
            }
        }
    }

    fn take_partitions(&mut self, env: &Env, topic: &Topic, path: &Path) {
        for name in self.directories_in(env, path) {
            let beyond = partition_of_directory(&name).filter(|index| *index >= topic.partition_count());
            let id = |index| PartitionId { topic: topic.id, index };
            self.partitions.extend(beyond.map(|index| (id(index), path.join(&name))));
        }
    }

    /// Fails if there is anything that is not set aside.
    pub(crate) fn check(&self, meta: &Path) -> Result<(), MetadataError> {
        let count = self.topics.len() + self.partitions.len();
        if count == 0 {
            return Ok(());
        }
        let shown = first_few(self.topics().chain(self.partitions()).map(|path| path.display()));
        Err(MetadataError::UnknownTopics { meta: meta.to_owned(), count, shown })
    }

    /// Renames the directories of all unknown topics, durably: their owner has accepted the loss.
    pub(crate) fn set_aside(&mut self, env: &Env) -> Result<(), MetadataError> {
        for path in std::mem::take(&mut self.topics) {
            let (dir, name) = (path.parent().unwrap_or(&path), path.file_name().unwrap_or_default());
            let aside = dir.join(format!("{LOST_PREFIX}{}", name.to_string_lossy()));
            env.fs.rename(&path, &aside).map_err(MetadataError::io("rename", &path))?;
            env.fs.sync_dir(dir).map_err(MetadataError::io("sync the directory", dir))?;
            tracing::error!(path = %aside.display(), "a topic that the metadata has lost is set aside");
            self.aside.push(aside);
        }
        Ok(())
    }

    /// Answers the records that give topics back the partitions that have directories, and those with lower numbers: their
    /// owner has accepted the loss. `image` has all log dirs, where they are now. Fails if the place of one of them is unclear,
    /// or if they are more than a server takes.
    pub(crate) fn take_back(&self, image: &Image) -> Result<Vec<Record>, MetadataError> {
        let mut topics: BTreeMap<TopicId, FoundPartitions<'_>> = BTreeMap::new();
        for (id, path) in &self.partitions {
            let dir = log_dir_of(image, path).ok_or_else(|| not_taken_back(path, "it lies in no log dir"))?;
            let found = topics.entry(id.topic).or_default();
            if let Some((_, other)) = found.insert(id.index, (dir, path.as_path())) {
                let reason =
                    format!("it lies in {}, too: move the copy away, or the older one", other.display());
                return Err(not_taken_back(path, reason));
            }
        }
        let mut total = image.cluster.partition_count();
        let mut records = Vec::with_capacity(topics.len());
        for (id, found) in topics {
            let Some(topic) = image.cluster.topic_by_id(id) else { continue };
            let dirs = dirs_from(topic.partition_count(), &found, self.not_seen(image))?;
            total += dirs.len() as u64;
            if let Some((_, path)) = found.values().next_back().filter(|_| total > PARTITIONS_MAX) {
                let reason = format!("the server would have more than {PARTITIONS_MAX} partitions");
                return Err(not_taken_back(path, reason));
            }
            let (first, count) = (topic.partition_count(), dirs.len());
            tracing::warn!(topic = %topic.name, first, count, "partitions that the metadata has lost are taken back");
            // It is not known when they came to be. Epochs that count all starts are above every one that they were led in.
            records.push(Record::PartitionsAdded { id, dirs, starts: 0 });
        }
        Ok(records)
    }

    /// A directory that could not be read, or one of these log dirs that [`Self::find`] did not look into.
    fn not_seen<'a>(&'a self, image: &'a Image) -> Option<&'a Path> {
        let mut log_dirs = image.node.log_dirs().iter().map(|dir| &dir.path);
        let not_asked = log_dirs.find(|path| !self.asked.contains(path));
        self.unread.first().or(not_asked).map(PathBuf::as_path)
    }

    /// The directories of topics that are not set aside.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &PathBuf> {
        self.topics.iter()
    }

    /// The directories of partitions.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &PathBuf> {
        self.partitions.iter().map(|(_, path)| path)
    }

    /// The directories of topics that are set aside.
    pub(crate) fn aside(&self) -> &[PathBuf] {
        &self.aside
    }

    /// Whether there are, or may be, records of topics that the metadata does not know.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.unread.is_empty() || !self.topics.is_empty() || !self.aside.is_empty()
    }
}

/// Partitions of one topic, by number: the log dir of each, and its directory.
type FoundPartitions<'a> = BTreeMap<i32, (u16, &'a Path)>;

/// Log dirs of a topic's partitions from `first`, which it lacks, to the last one that was found. A partition without files
/// goes where the next one lies. Fails if it may have some in `not_seen`, which was not looked into.
fn dirs_from(
    first: i32,
    found: &FoundPartitions<'_>,
    not_seen: Option<&Path>,
) -> Result<Vec<u16>, MetadataError> {
    let mut dirs = Vec::new();
    for (index, (dir, path)) in found {
        let upto = usize::try_from(index - first).expect("none below the first was taken") + 1;
        if let Some(not_seen) = not_seen.filter(|_| upto > dirs.len() + 1) {
            let what = "cannot be read, and may hold a partition before it";
            return Err(not_taken_back(path, format!("{} {what}", not_seen.display())));
        }
        dirs.resize(upto, *dir);
    }
    Ok(dirs)
}

fn not_taken_back(path: &Path, reason: impl Into<String>) -> MetadataError {
    MetadataError::NotTakenBack { path: path.to_owned(), reason: reason.into() }
}

/// The log dir that a partition's directory lies in.
fn log_dir_of(image: &Image, partition: &Path) -> Option<u16> {
    let path = partition.ancestors().nth(2)?;
    image.node.log_dirs().iter().position(|dir| dir.path == path).and_then(|index| u16::try_from(index).ok())
}

/// Whether this is the name of a topic's directory that was set aside.
pub(crate) fn is_lost_topic(name: &str) -> bool {
    name.strip_prefix(LOST_PREFIX).and_then(topic_of_directory).is_some()
}

/// The log names a partition's directory by its number in decimal digits.
fn partition_of_directory(name: &str) -> Option<i32> {
    let index: i32 = name.parse().ok()?;
    let is_partition = (0..TOPIC_PARTITIONS_MAX).contains(&index) && index.to_string() == name;
    is_partition.then_some(index)
}

#[cfg(test)]
mod tests;
