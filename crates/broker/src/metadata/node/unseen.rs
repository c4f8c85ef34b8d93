//! Directories that the metadata names and that `riverrun log verify` was not shown: they lie elsewhere, or are gone.
//!
//! Log dirs and journals are known by their ids, so that a data directory that was moved or copied as it is lacks nothing.
//! A directory is gone only if a start would miss it: a log dir without partitions is made anew, and so is a journal in
//! which everything was settled at the last stop. Reads, and changes nothing.

use std::path::{Path, PathBuf};

use riverrun_env::Env;

use super::absent_dirs::{Missing, missing, partitions_in};
use super::journals;
use super::log_dirs::{check_unowned, read_identity};
use super::{LogDir, NodeImage};
use crate::metadata::store;
use crate::metadata::verify::MetadataFinding;

/// The kind of a directory that the metadata names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    /// A directory of records.
    LogDir,
    /// A journal's directory.
    Journal,
}

/// The place of a directory that was not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// At the path that the metadata names.
    Elsewhere,
    /// It is not there, and a start misses it: the outcome of that start.
    Gone(String),
    /// The system does not tell, for this reason.
    Unknown(String),
}

/// A directory that the metadata names and that was not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnseenDir {
    /// Its path at the last start.
    pub path: PathBuf,
    /// Its kind.
    pub kind: NamedKind,
    /// Its place now.
    pub place: Whereabouts,
}

/// The log dirs and journals that the metadata in `dir` names and that are none of these. Metadata that cannot be read
/// names none; [`crate::metadata::verify_metadata`] has its flaws.
pub fn unseen_dirs(env: &Env, dir: &Path, log_dirs: &[PathBuf], journals: &[PathBuf]) -> Vec<UnseenDir> {
    let image = store::verify(env, dir).ok().and_then(|verified| verified.image);
    let mut unseen = image.map(|image| unseen_log_dirs(env, &image.node, log_dirs)).unwrap_or_default();
    unseen.extend(journals::unseen(env, dir, journals));
    unseen
}

/// The finding for metadata that should lie in `dir` and does not, beside these log dirs.
pub fn verify_lost_metadata(env: &Env, dir: &Path, log_dirs: &[PathBuf]) -> MetadataFinding {
    let what = match check_unowned(env, log_dirs, dir) {
        Err(error) => format!("it is missing: a start is refused: {error}"),
        Ok(()) => {
            "it is missing: a start makes a new cluster, and knows nothing of what lies beside it".to_owned()
        }
    };
    MetadataFinding::damage(dir.to_owned(), 0, what)
}

/// Whether the directory is one of `seen`, under any name.
pub(crate) fn is_among(env: &Env, dir: &Path, seen: &[PathBuf]) -> bool {
    let identity = |path: &Path| env.fs.stat(path).ok().map(|stat| stat.identity);
    let here = identity(dir);
    here.is_some() && seen.iter().any(|other| identity(other) == here)
}

fn unseen_log_dirs(env: &Env, node: &NodeImage, seen: &[PathBuf]) -> Vec<UnseenDir> {
    let id_at = |path: &PathBuf| Some(read_identity(env, path).ok()??.ok()?.dir);
    let ids: Vec<String> = seen.iter().filter_map(id_at).collect();
    let whereabouts = |(index, dir): (usize, &LogDir)| {
        if ids.contains(&dir.id) {
            return None;
        }
        let place = whereabouts(env, node, index, is_among(env, &dir.path, seen))?;
        Some(UnseenDir { path: dir.path.clone(), kind: NamedKind::LogDir, place })
    };
    node.log_dirs().iter().enumerate().filter_map(whereabouts).collect()
}

/// The place of the log dir of this index. `None`: no start misses it; or it `is_seen`, and the findings of the directory
/// say all.
fn whereabouts(env: &Env, node: &NodeImage, index: usize, is_seen: bool) -> Option<Whereabouts> {
    let dir = &node.log_dirs()[index];
    let partitions = partitions_in(node, index);
    let is_missed = partitions > 0;
    if let Ok(Some(Ok(found))) = read_identity(env, &dir.path) {
        if found.dir == dir.id {
            return Some(Whereabouts::Elsewhere);
        }
        let reason = Missing::Gone("another log dir lies in its place").reason(partitions);
        return is_missed.then(|| gone(node, &reason));
    }
    match missing(env, &dir.path) {
        Some(Missing::Forbidden(why)) => Some(Whereabouts::Unknown(why)),
        Some(gone_dir) => is_missed.then(|| gone(node, &gone_dir.reason(partitions))),
        None => (!is_seen).then_some(Whereabouts::Elsewhere),
    }
}

fn gone(node: &NodeImage, reason: &str) -> Whereabouts {
    let outcome = if node.log_dirs().len() > 1 {
        "a start has its partitions offline, or is refused if no other log dir is there"
    } else {
        "a start is refused"
    };
    Whereabouts::Gone(format!("{outcome}: {reason}"))
}

#[cfg(test)]
mod tests {
    use riverrun_env::FileSystem as _;
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::config::TopicOverrides;
    use crate::metadata::testing::options;
    use crate::metadata::{NewTopic, Store};

    const META: &str = "/meta";

    /// A server that has used these log dirs, with so many partitions.
    fn used(dirs: &[&str], partition_count: i32) -> SimEnv {
        used_by(1, dirs, partition_count)
    }

    /// The same for a server whose ids follow from `seed`.
    fn used_by(seed: u64, dirs: &[&str], partition_count: i32) -> SimEnv {
        let sim = SimEnv::new(seed);
        let store = Store::open(&sim.env(), &options(dirs)).expect("opens");
        let new = NewTopic { name: "t".into(), partition_count, configs: TopicOverrides::new() };
        store.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        sim
    }

    fn unseen(sim: &SimEnv, log_dirs: &[&str]) -> Vec<(String, Whereabouts)> {
        let seen: Vec<_> = log_dirs.iter().map(PathBuf::from).collect();
        let found = unseen_dirs(&sim.env(), META.as_ref(), &seen, &[]);
        found.into_iter().map(|dir| (dir.path.to_string_lossy().into_owned(), dir.place)).collect()
    }

    #[test]
    fn log_dirs_not_shown_are_named_unless_they_were_moved() {
        let sim = used(&["/a", "/b"], 2);
        assert_eq!(unseen(&sim, &["/a", "/b"]), []);
        assert_eq!(unseen(&sim, &["/a"]), [("/b".to_owned(), Whereabouts::Elsewhere)]);
        sim.fs.rename("/b".as_ref(), "/c".as_ref()).expect("moved");
        assert_eq!(unseen(&sim, &["/a", "/c"]), []);
    }

    #[test]
    fn gone_log_dir_is_missed_only_if_partitions_lay_in_it() {
        for (partitions, is_missed) in [(2, true), (1, false)] {
            let sim = used(&["/a", "/b"], partitions);
            for emptied in [true, false] {
                sim.fs.remove_dir_all("/b".as_ref()).expect("removed");
                if emptied {
                    sim.fs.create_dir_all("/b".as_ref()).expect("made");
                }
                let found = unseen(&sim, &["/a"]);
                assert_eq!(found.len(), usize::from(is_missed), "{found:?}");
                for (path, place) in found {
                    let Whereabouts::Gone(reason) = place else { panic!("{place:?}") };
                    let what = if emptied { "it is empty" } else { "it is missing" };
                    assert!(path == "/b" && reason.contains(what) && reason.contains("mounted?"), "{reason}");
                }
            }
        }
    }

    #[test]
    fn a_log_dir_in_the_place_of_another_is_not_taken_for_it() {
        let sim = used(&["/a"], 1);
        let other = used_by(2, &["/x"], 1);
        let [id, identity] = ["/a/directory.id", "/x/directory.id"];
        let bytes = riverrun_env::read_whole(&*other.fs, identity.as_ref(), 4096).expect("readable");
        riverrun_env::atomic_replace(&*sim.fs, id.as_ref(), &bytes).expect("written");
        let [(_, Whereabouts::Gone(reason))] = &unseen(&sim, &["/a"])[..] else { panic!("not gone") };
        assert!(
            reason.contains("another log dir lies in its place") && reason.contains("refused"),
            "{reason}"
        );
    }
}
