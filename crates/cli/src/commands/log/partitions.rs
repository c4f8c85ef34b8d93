//! Finding partitions' directories below a path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use riverrun_types::{PartitionId, TopicId};

use crate::exit::{Exit, Failure};

/// Directories between a data directory and its partitions: `logs`, the topic's, the partition's.
const DEPTH_MAX: usize = 3;

/// A partition's directory, `<topic id>/<index>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionDir {
    pub(super) path: PathBuf,
    pub(super) id: PartitionId,
}

/// The partitions at or below `path`, which may be a partition's directory, a topic's, a log dir, or a data
/// directory. In the order of their paths.
pub(super) fn find(path: &Path) -> Result<Vec<PartitionDir>, Failure> {
    let failed = |error: &io::Error| Failure::io(path.display(), error);
    // The topic's id is in the name of the directory above, which a relative path may not show.
    let root = fs::canonicalize(path).map_err(|error| failed(&error))?;
    let mut found = Vec::new();
    collect(&root, DEPTH_MAX, &mut found).map_err(|error| failed(&error))?;
    found.sort_by_key(|partition| (partition.id.topic, partition.id.index));
    if found.is_empty() {
        let text = format!("{}: no partition is here", path.display());
        return Err(Failure::new(Exit::NotFound, text).advise(
            "a data directory, a log dir, a topic's directory (named by its id) or a partition's in it",
        ));
    }
    Ok(found)
}

fn collect(dir: &Path, depth: usize, found: &mut Vec<PartitionDir>) -> io::Result<()> {
    if let Some(id) = partition_id(dir) {
        found.push(PartitionDir { path: dir.to_path_buf(), id });
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Not followed: a link could lead round in a circle.
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
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
        dir
    }

    #[test]
    fn partitions_are_found_from_every_level() {
        let dir = data_dir();
        let topic = format!("logs/{TOPIC_DIR}");
        for (below, count) in [("", 2), ("logs", 2), (&topic, 2), (&format!("{topic}/1"), 1)] {
            let found = find(&dir.path().join(below)).expect(below);
            assert_eq!(found.len(), count, "{below:?}");
            assert!(found.iter().all(|partition| partition.id.topic == TOPIC));
            assert_eq!(found.last().expect("one").id.index, 1);
        }
    }

    #[test]
    fn a_path_without_partitions_is_told_what_to_give() {
        let dir = data_dir();
        let failure = find(&dir.path().join("meta")).expect_err("no partition");
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(failure.to_string().contains("a data directory"), "{failure}");
        assert_eq!(find(Path::new("/no/such/path")).expect_err("missing").exit, Exit::NotFound);
    }
}
