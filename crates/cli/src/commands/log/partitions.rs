//! Finding what there is to check below a path: partitions, log dirs, the metadata directory, journals.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_types::{PartitionId, TopicId};

use crate::exit::{Exit, Failure};

/// Directories between a data directory and its partitions: `logs`, the topic's, the partition's.
const DEPTH_MAX: usize = 3;
/// Any of these makes a directory a log dir.
const LOG_DIR_FILES: [&str; 4] = ["checkpoint", "log-starts", "directory.id", "metadata-mark"];
/// Either file makes a directory that of the metadata, as does a log whose snapshots are lost.
const METADATA_FILES: [&str; 2] = ["snapshot", "snapshot-copy"];
const METADATA_LOG_PREFIX: &str = "log-";
const METADATA_LOG_DIGITS: usize = 20;
/// Ending of the files that make a directory a journal's.
const JOURNAL_SUFFIX: &str = ".journal";

/// A partition's directory, `<topic id>/<index>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionDir {
    pub(super) path: PathBuf,
    pub(super) id: PartitionId,
}

/// What lies at or below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// By log dir, topic and index.
    pub(super) partitions: Vec<PartitionDir>,
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) metadata: Vec<PathBuf>,
    pub(super) journals: Vec<PathBuf>,
}

impl Found {
    /// Looks at `path`, which may be a data directory, a log dir, a topic's directory, a partition's, or that of the
    /// metadata or of a journal.
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let failed = |error: &io::Error| Failure::io(path.display(), error);
        // The topic's id is in the name of the directory above, which a relative path may not show.
        let root = fs::canonicalize(path).map_err(|error| failed(&error))?;
        let mut found = Self::default();
        found.collect(&root, DEPTH_MAX).map_err(|error| failed(&error))?;
        if found == Self::default() {
            let text = format!("{}: nothing of a server is here", path.display());
            return Err(Failure::new(Exit::NotFound, text).advise(
                "a data directory, a log dir, a topic's directory (named by its id) or a partition's in it",
            ));
        }
        found.partitions.sort_by(|a, b| {
            let log_dir = |partition: &PartitionDir| partition.log_dir().map(Path::to_path_buf);
            (log_dir(a), a.id).cmp(&(log_dir(b), b.id))
        });
        found.log_dirs.sort();
        Ok(found)
    }

    fn collect(&mut self, dir: &Path, depth: usize) -> io::Result<()> {
        if let Some(id) = partition_id(dir) {
            self.partitions.push(PartitionDir { path: dir.to_path_buf(), id });
            return Ok(());
        }
        let mut directories = Vec::new();
        let (mut is_log_dir, mut is_metadata, mut is_journal) = (false, false, false);
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            // Not followed: a link could lead round in a circle.
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if let Some(name) = name.to_str() {
                is_log_dir |= LOG_DIR_FILES.contains(&name);
                is_metadata |= METADATA_FILES.contains(&name) || is_metadata_log(name);
                is_journal |= name.ends_with(JOURNAL_SUFFIX);
            }
        }
        self.log_dirs.extend(is_log_dir.then(|| dir.to_path_buf()));
        self.metadata.extend(is_metadata.then(|| dir.to_path_buf()));
        self.journals.extend(is_journal.then(|| dir.to_path_buf()));
        for directory in directories.iter().filter(|_| depth > 0) {
            self.collect(directory, depth - 1)?;
        }
        Ok(())
    }
}

impl PartitionDir {
    /// The log dir that it lies in.
    pub(super) fn log_dir(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }
}

fn is_metadata_log(name: &str) -> bool {
    name.strip_prefix(METADATA_LOG_PREFIX).is_some_and(|digits| {
        digits.len() == METADATA_LOG_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The partition whose files lie in `dir`, as the names of the directory and of the one above say.
pub(super) fn partition_id(dir: &Path) -> Option<PartitionId> {
    let index = dir.file_name()?.to_str()?;
    let topic = topic_id(dir.parent()?.file_name()?.to_str()?)?;
    let is_canonical =
        index == "0" || (!index.starts_with('0') && index.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_canonical {
        return None;
    }
    Some(PartitionId { topic, index: index.parse().ok()? })
}

/// The id in the name of a topic's directory: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn topic_id(name: &str) -> Option<TopicId> {
    let groups = name.split('-').map(str::len);
    let is_hex = name.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    if !is_hex || !groups.eq([8, 4, 4, 4, 12]) {
        return None;
    }
    let id = u128::from_str_radix(&name.replace('-', ""), 16).ok()?;
    Some(TopicId(id.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: TopicId = TopicId([7; 16]);
    const TOPIC_DIR: &str = "07070707-0707-0707-0707-070707070707";

    fn data_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["0", "1", "01", "x", "-1", "99999999999"] {
            fs::create_dir_all(dir.path().join("logs").join(TOPIC_DIR).join(name)).expect("made");
        }
        fs::create_dir_all(dir.path().join("meta/0")).expect("made");
        fs::create_dir_all(dir.path().join("empty")).expect("made");
        fs::write(dir.path().join("meta/log-00000000000000000001"), "").expect("written");
        fs::write(dir.path().join("logs/checkpoint"), "").expect("written");
        dir
    }

    #[test]
    fn partitions_are_found_from_every_level() {
        let dir = data_dir();
        let topic = format!("logs/{TOPIC_DIR}");
        for (below, count) in [("", 2), ("logs", 2), (&topic, 2), (&format!("{topic}/1"), 1)] {
            let found = Found::at(&dir.path().join(below)).expect(below).partitions;
            assert_eq!(found.len(), count, "{below:?}");
            assert!(found.iter().all(|partition| partition.id.topic == TOPIC));
            assert_eq!(found.last().expect("one").id.index, 1);
            assert!(found[0].log_dir().expect("a log dir").ends_with("logs"));
        }
    }

    #[test]
    fn log_dirs_and_metadata_are_known_by_their_files() {
        let dir = data_dir();
        let found = Found::at(dir.path()).expect("found");
        assert!(found.log_dirs.len() == 1 && found.log_dirs[0].ends_with("logs"), "{found:?}");
        assert!(found.metadata.len() == 1 && found.metadata[0].ends_with("meta"), "{found:?}");
        let topic = Found::at(&dir.path().join("logs").join(TOPIC_DIR)).expect("found");
        assert!(topic.log_dirs.is_empty() && topic.metadata.is_empty(), "{topic:?}");
        assert_eq!(Found::at(&dir.path().join("meta")).expect("found").partitions, []);
    }

    #[test]
    fn a_path_without_files_of_ours_is_told_what_to_give() {
        let dir = data_dir();
        let failure = Found::at(&dir.path().join("empty")).expect_err("nothing");
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(failure.to_string().contains("a data directory"), "{failure}");
        assert_eq!(Found::at(Path::new("/no/such/path")).expect_err("missing").exit, Exit::NotFound);
    }
}
