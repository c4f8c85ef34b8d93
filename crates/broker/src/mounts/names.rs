//! The names under which queues were ever mounted, in `<data>/meta/mounted-topics`: one on a line.
//!
//! A topic that is not mounted any more is not deleted: the configuration may name it again. So offsets that groups have
//! committed for it stay, as long as `offsets.retention.minutes` lets them. The file tells such a topic from one that was
//! deleted while the server died.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use riverrun_env::{Env, atomic_replace, is_device_error, read_whole};

use crate::config::Mount;
use crate::metadata::MetadataError;
use crate::topic_names::check_name;

const FILE: &str = "mounted-topics";
/// Longer than any file that the server writes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Names that are remembered besides those that are mounted now.
const NAMES_MAX: usize = 1000;

/// Reads the names in the metadata directory `dir`, and adds those of `mounts`. They are durable when it returns.
pub(super) fn remember(env: &Env, dir: &Path, mounts: &[Mount]) -> Result<BTreeSet<String>, MetadataError> {
    let path = dir.join(FILE);
    let known = match read_whole(&*env.fs, &path, FILE_BYTES_MAX) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
        Err(error) if is_device_error(&error) => {
            tracing::error!(path = %path.display(), %error, "which queues were mounted is forgotten");
            BTreeSet::new()
        }
        Err(error) => return Err(MetadataError::io("read", path)(error)),
    };
    let now: BTreeSet<String> = mounts.iter().map(|mount| mount.topic.clone()).collect();
    if now.is_subset(&known) {
        return Ok(known);
    }
    let before = known.difference(&now).take(NAMES_MAX).cloned();
    let names: BTreeSet<String> = before.chain(now.iter().cloned()).collect();
    let text: String = names.iter().flat_map(|name| [name, "\n"]).collect();
    let written = atomic_replace(&*env.fs, &path, text.as_bytes()).map_err(io::Error::other);
    written.map_err(MetadataError::io("write", path))?;
    Ok(names)
}

/// Lines that are not valid names are skipped.
fn parse(bytes: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().filter(|line| check_name(line).is_ok()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;

    use super::*;

    #[test]
    fn a_name_is_remembered_when_it_is_not_mounted_any_more() {
        let sim = SimEnv::new(1);
        let dir = Path::new("/meta");
        sim.fs.create_dir_all(dir).expect("made");
        let mount = |topic: &str| Mount {
            topic: topic.to_owned(),
            dir: "/queue".into(),
            writable: false,
            synced_only: false,
            retention: riverrun_queue::Retention::default(),
        };
        let names = |mounts: &[Mount]| -> Vec<String> {
            remember(&sim.env(), dir, mounts).expect("remembered").into_iter().collect()
        };
        assert!(names(&[]).is_empty());
        assert_eq!(names(&[mount("a"), mount("b")]), ["a", "b"]);
        assert_eq!(names(&[mount("c")]), ["a", "b", "c"]);
        assert_eq!(names(&[]), ["a", "b", "c"]);
        sim.fs.break_sectors(&dir.join(FILE), 0..1).expect("a file");
        assert!(names(&[]).is_empty(), "the disk has forgotten them");
        assert_eq!(names(&[mount("c")]), ["c"]);
        assert_eq!(names(&[]), ["c"]);
    }
}
