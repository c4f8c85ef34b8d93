//! Finding what there is to check below a path: partitions, log dirs, the metadata directory, journals.
//!
//! Links to directories are followed, as a server follows them, and each directory is looked at once, however many
//! links lead to it. Paths that cannot be looked at are listed, and the rest is found all the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, TryLockError};
use std::io;
use std::path::{Component, Path, PathBuf};

use riverrun_env::{Env, OpenMode};
use riverrun_tools::exit::{Exit, Failure};
use riverrun_types::{PartitionId, TopicId};

/// Directories between a data directory and its partitions: `logs`, the topic's, the partition's.
const DEPTH_MAX: usize = 3;
/// Any of these makes a directory a log dir.
const LOG_DIR_FILES: [&str; 4] = ["checkpoint", "log-starts", "directory.id", "metadata-mark"];
/// Any of these makes a directory that of the metadata, as does a log whose snapshots are lost.
const METADATA_FILES: [&str; 4] = ["snapshot", "snapshot-copy", "journals", "journals-copy"];
const METADATA_LOG_PREFIX: &str = "log-";
const METADATA_LOG_DIGITS: usize = 20;
/// Ending of the files that make a directory a journal's.
const JOURNAL_SUFFIX: &str = ".journal";

/// Directories in a data directory.
const METADATA_DIR: &str = "meta";
const LOGS_DIR: &str = "logs";
const JOURNAL_DIR: &str = "journal";

/// In every directory that only one server may use.
const LOCK_FILE: &str = "lock";

/// A partition's directory, `<topic id>/<index>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartitionDir {
    pub(super) path: PathBuf,
    pub(super) id: PartitionId,
}

/// A directory, or a link, that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) path: PathBuf,
    pub(super) failure: Failure,
}

/// The files and partitions at or below a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// By log dir, topic and index.
    pub(super) partitions: Vec<PartitionDir>,
    pub(super) log_dirs: Vec<PathBuf>,
    pub(super) metadata: Vec<PathBuf>,
    pub(super) journals: Vec<PathBuf>,
    pub(super) unread: Vec<Unread>,
    /// Directories that are another partition's, whose path is beside.
    pub(super) shared: Vec<(PartitionDir, PathBuf)>,
    /// The expected place of a data directory's metadata, if there is none.
    pub(super) lost_metadata: Option<PathBuf>,
}

impl Found {
    /// Looks at `path`, which may be a data directory, a log dir, a topic's directory, a partition's, or that of the
    /// metadata or of a journal.
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let mut walk = Walk::default();
        let walked = absolute(path).and_then(|root| walk.all(&root));
        walked.map_err(|error| Failure::io(path.display(), &error))?;
        let mut found = walk.found;
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
        let lies_in = |root: PathBuf| found.lacks_metadata(&root).then(|| root.join(METADATA_DIR));
        found.lost_metadata = absolute(path).ok().and_then(lies_in);
        Ok(found)
    }

    /// Whether `root` is a data directory, by what lies in it, and there is no metadata anywhere.
    fn lacks_metadata(&self, root: &Path) -> bool {
        let logs = root.join(LOGS_DIR);
        let in_logs = |partition: &PartitionDir| partition.log_dir() == Some(&logs);
        let has_logs = self.log_dirs.contains(&logs) || self.partitions.iter().any(in_logs);
        let has_journal = self.journals.contains(&root.join(JOURNAL_DIR));
        let has_place = root.join(METADATA_DIR).is_dir();
        self.metadata.is_empty()
            && [has_logs, has_journal, has_place].into_iter().filter(|has| *has).count() > 1
    }

    /// The directories that hold a lock file of a server: log dirs, those of partitions included, metadata and journals.
    pub(super) fn lockable(&self) -> BTreeSet<&Path> {
        let of_partitions = self.partitions.iter().filter_map(PartitionDir::log_dir);
        let dirs = self.log_dirs.iter().chain(&self.metadata).chain(&self.journals);
        dirs.map(PathBuf::as_path).chain(of_partitions).collect()
    }
}

/// Whether a server, or a repair, has this directory in use. Nothing is made or written: the right to read is enough.
pub(super) fn is_in_use(env: &Env, dir: &Path) -> Result<bool, Failure> {
    let lock = dir.join(LOCK_FILE);
    is_locked(env, &lock).map_err(|error| Failure::io(lock.display(), &error))
}

fn is_locked(env: &Env, lock: &Path) -> io::Result<bool> {
    let file = match env.fs.open(lock, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let Some(descriptor) = file.raw_fd() else { return Ok(false) };
    // One more descriptor of the same opening, which is what holds a lock.
    let file = fs::File::from(descriptor.try_clone_to_owned()?);
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
        Ok(()) => file.unlock().map(|()| false),
    }
}

/// A way through directories.
///
/// Invariants: the sets hold real paths, without links.
#[derive(Debug, Default)]
struct Walk {
    found: Found,
    /// Partitions' directories that were found.
    partitions: BTreeSet<PathBuf>,
    /// Directories whose kind is known.
    known: BTreeSet<PathBuf>,
    /// How deep was looked below directories. What lies below a topic's follows from its name, which a link may give it.
    depths: BTreeMap<(PathBuf, Option<TopicId>), usize>,
    /// Links to directories that are to be followed, and how deep.
    links: VecDeque<(PathBuf, usize)>,
}

impl Walk {
    /// Goes through `root` and what lies below, and then where links lead to: what can be reached without one is known
    /// by that path. Fails if the root cannot be read.
    fn all(&mut self, root: &Path) -> io::Result<()> {
        self.enter(root, DEPTH_MAX)?;
        while let Some((link, depth)) = self.links.pop_front() {
            if let Err(error) = self.enter(&link, depth) {
                self.skip(&link, "a link", &error);
            }
        }
        Ok(())
    }

    fn enter(&mut self, dir: &Path, depth: usize) -> io::Result<()> {
        let real = fs::canonicalize(dir)?;
        if let Some(partition) = PartitionDir::named(dir, &real) {
            // A server opens neither of two partitions that lie in one directory.
            if PartitionDir::named(&real, &real).is_some_and(|other| other.id != partition.id) {
                self.found.shared.push((partition, real));
            } else if self.partitions.insert(real) {
                self.found.partitions.push(partition);
            }
            return Ok(());
        }
        let key = (real, name_of(dir).and_then(topic_id));
        if self.depths.get(&key).is_some_and(|looked| *looked >= depth) {
            return Ok(());
        }
        let entries = Entries::of(dir)?;
        self.depths.insert(key.clone(), depth);
        if self.known.insert(key.0) {
            self.classify(dir, &entries);
        }
        if depth == 0 {
            return Ok(());
        }
        self.links.extend(entries.links.into_iter().map(|link| (link, depth - 1)));
        for directory in entries.directories {
            if let Err(error) = self.enter(&directory, depth - 1) {
                self.skip(&directory, "a directory", &error);
            }
        }
        Ok(())
    }

    /// Notes what the directory `dir` is, by the names in it, and what of it cannot be looked at.
    fn classify(&mut self, dir: &Path, entries: &Entries) {
        let has = |is_one: fn(&str) -> bool| entries.files.iter().any(|name| is_one(name));
        let found = &mut self.found;
        found.log_dirs.extend(has(is_log_dir_file).then(|| dir.to_path_buf()));
        found.metadata.extend(has(is_metadata_file).then(|| dir.to_path_buf()));
        found.journals.extend(has(|name| name.ends_with(JOURNAL_SUFFIX)).then(|| dir.to_path_buf()));
        for (link, error) in &entries.dead {
            self.skip(link, "a link", error);
        }
    }

    fn skip(&mut self, path: &Path, kind: &str, error: &io::Error) {
        let failure = Failure::io(format_args!("{}, {kind}", path.display()), error);
        self.found.unread.push(Unread { path: path.to_path_buf(), failure });
    }
}

/// A directory's entries, by name.
#[derive(Debug, Default)]
struct Entries {
    directories: Vec<PathBuf>,
    /// Links to directories.
    links: Vec<PathBuf>,
    /// Links that lead to nothing, or cannot be followed.
    dead: Vec<(PathBuf, io::Error)>,
    files: Vec<String>,
}

impl Entries {
    fn of(dir: &Path) -> io::Result<Self> {
        let mut entries = Self::default();
        for entry in fs::read_dir(dir)? {
            entries.take(&entry?)?;
        }
        entries.directories.sort();
        entries.links.sort();
        Ok(entries)
    }

    fn take(&mut self, entry: &fs::DirEntry) -> io::Result<()> {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            self.directories.push(path);
            return Ok(());
        }
        if kind.is_symlink() {
            match fs::metadata(&path) {
                Ok(target) if target.is_dir() => {
                    self.links.push(path);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => {
                    self.dead.push((path, error));
                    return Ok(());
                }
            }
        }
        self.files.extend(entry.file_name().to_str().map(str::to_owned));
        Ok(())
    }
}

impl PartitionDir {
    /// The partition whose files lie at `path`, if that is the directory of one.
    pub(super) fn at(path: &Path) -> io::Result<Option<Self>> {
        let dir = absolute(path)?;
        let real = fs::canonicalize(&dir)?;
        Ok(Self::named(&dir, &real))
    }

    /// The partition in the directory `dir`, whose path without links is `real`: by the names by which it was reached,
    /// else by its own.
    fn named(dir: &Path, real: &Path) -> Option<Self> {
        [dir, real]
            .into_iter()
            .find_map(|path| Some(Self { path: path.to_path_buf(), id: partition_id(path)? }))
    }

    /// The error of a partition whose directory is another one's, at `real`.
    pub(super) fn shared_with(real: &Path) -> String {
        format!("the directory is a link to that of another partition, {}", real.display())
    }

    /// The log dir that it lies in.
    pub(super) fn log_dir(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }
}

/// The path from the root, by the names that were given: a link may be what names a topic or a partition. Names that
/// lead upwards depend on what links lead to.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    if path.components().any(|part| part == Component::ParentDir) {
        fs::canonicalize(path)
    } else {
        std::path::absolute(path)
    }
}

fn name_of(dir: &Path) -> Option<&str> {
    dir.file_name()?.to_str()
}

fn is_log_dir_file(name: &str) -> bool {
    LOG_DIR_FILES.contains(&name)
}

fn is_metadata_file(name: &str) -> bool {
    METADATA_FILES.contains(&name) || is_metadata_log(name)
}

fn is_metadata_log(name: &str) -> bool {
    name.strip_prefix(METADATA_LOG_PREFIX).is_some_and(|digits| {
        digits.len() == METADATA_LOG_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The partition whose files lie in `dir`, as the names of the directory and of the one above say.
fn partition_id(dir: &Path) -> Option<PartitionId> {
    let index = name_of(dir)?;
    let topic = topic_id(name_of(dir.parent()?)?)?;
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
    use std::os::unix::fs::symlink;

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
    fn links_are_followed_and_each_directory_is_found_once() {
        let (dir, elsewhere) = (data_dir(), tempfile::tempdir().expect("a directory"));
        let topic = dir.path().join("logs").join(TOPIC_DIR);
        // A partition's directory, a topic's and a log dir that lie on other disks; their own names tell nothing.
        fs::rename(topic.join("1"), elsewhere.path().join("moved")).expect("moved");
        symlink(elsewhere.path().join("moved"), topic.join("1")).expect("linked");
        fs::create_dir_all(elsewhere.path().join("topic/3")).expect("made");
        let other_topic = dir.path().join("logs/08080808-0808-0808-0808-080808080808");
        symlink(elsewhere.path().join("topic"), &other_topic).expect("linked");
        fs::create_dir_all(elsewhere.path().join("disk").join(TOPIC_DIR).join("2")).expect("made");
        fs::write(elsewhere.path().join("disk/directory.id"), "").expect("written");
        symlink(elsewhere.path().join("disk"), dir.path().join("logs2")).expect("linked");
        // Ways round, and to what is found without a link.
        symlink(dir.path(), dir.path().join("logs/round")).expect("linked");
        symlink(topic.join("0"), dir.path().join("again")).expect("linked");
        symlink(&topic, dir.path().join("a topic")).expect("linked");
        symlink(dir.path().join("logs"), dir.path().join("a log dir")).expect("linked");

        let found = Found::at(dir.path()).expect("found");
        let paths: Vec<_> = found.partitions.iter().map(|partition| partition.path.clone()).collect();
        let logs2 = dir.path().join("logs2");
        let expected =
            [topic.join("0"), topic.join("1"), other_topic.join("3"), logs2.join(TOPIC_DIR).join("2")];
        assert_eq!(paths, expected);
        let indexes: Vec<_> = found.partitions.iter().map(|partition| partition.id.index).collect();
        assert_eq!(indexes, [0, 1, 3, 2]);
        assert_eq!(found.log_dirs, [dir.path().join("logs"), logs2]);
        assert_eq!((found.metadata.len(), found.unread.len()), (1, 0), "{found:?}");

        for path in [topic.join("1"), other_topic.join("3")] {
            let partition = PartitionDir::at(&path).expect("readable").expect("a partition");
            assert_eq!(partition.path, path);
            assert_eq!(Found::at(&path).expect("found").partitions, [partition]);
        }
        let partition = PartitionDir::at(&dir.path().join("again")).expect("readable").expect("a partition");
        assert_eq!(partition.path, fs::canonicalize(topic.join("0")).expect("there"));
    }

    #[test]
    fn a_directory_is_found_by_link_though_it_was_passed_without() {
        let dir = data_dir();
        let topic = dir.path().join("logs").join(TOPIC_DIR);
        fs::create_dir_all(dir.path().join("disk/topic/3")).expect("made");
        fs::create_dir_all(dir.path().join("disk/four")).expect("made");
        symlink(dir.path().join("disk/four"), topic.join("4")).expect("linked");
        let other_topic = dir.path().join("logs/08080808-0808-0808-0808-080808080808");
        symlink(dir.path().join("disk/topic"), &other_topic).expect("linked");
        let found = Found::at(dir.path()).expect("found");
        let paths: Vec<_> = found.partitions.iter().map(|partition| partition.path.clone()).collect();
        assert_eq!(paths, [topic.join("0"), topic.join("1"), topic.join("4"), other_topic.join("3")]);
    }

    #[test]
    fn a_link_to_another_partitions_directory_is_no_partition() {
        let dir = data_dir();
        let topic = dir.path().join("logs").join(TOPIC_DIR);
        let other = dir.path().join("logs/08080808-0808-0808-0808-080808080808");
        fs::create_dir(&other).expect("made");
        symlink(topic.join("1"), other.join("0")).expect("linked");
        symlink(topic.join("0"), topic.join("2")).expect("linked");
        let found = Found::at(dir.path()).expect("found");
        let paths: Vec<_> = found.partitions.iter().map(|partition| partition.path.clone()).collect();
        assert_eq!(paths, [topic.join("0"), topic.join("1")]);
        let shared: Vec<_> = found.shared.iter().map(|(shared, real)| (&shared.path, real.clone())).collect();
        let real = |index: &str| fs::canonicalize(topic.join(index)).expect("there");
        assert_eq!(shared, [(&topic.join("2"), real("0")), (&other.join("0"), real("1"))]);
    }

    #[test]
    fn a_dead_link_is_listed_and_the_rest_is_found() {
        let dir = data_dir();
        let (dead, circle) = (dir.path().join("logs/dead"), dir.path().join("meta/circle"));
        symlink("/no/such/path", &dead).expect("linked");
        symlink(&circle, &circle).expect("linked");
        let found = Found::at(dir.path()).expect("found");
        assert_eq!(found.partitions.len(), 2);
        let unread: Vec<_> =
            found.unread.iter().map(|unread| (unread.path.clone(), unread.failure.exit)).collect();
        assert_eq!(unread, [(dead.clone(), Exit::NotFound), (circle, Exit::Failed)]);
        assert!(found.unread[0].failure.message().contains("logs/dead, a link: "), "{found:?}");
        // Alone, it is no reason to say that nothing is here.
        let alone = tempfile::tempdir().expect("a directory");
        symlink("/no/such/path", alone.path().join("logs")).expect("linked");
        assert_eq!(Found::at(alone.path()).expect("found").unread.len(), 1);
        assert_eq!(Found::at(&dead).expect_err("nothing").exit, Exit::NotFound);
    }

    #[test]
    fn a_path_without_server_files_fails_with_advice() {
        let dir = data_dir();
        let failure = Found::at(&dir.path().join("empty")).expect_err("nothing");
        assert_eq!(failure.exit, Exit::NotFound);
        assert!(failure.to_string().contains("a data directory"), "{failure}");
        assert_eq!(Found::at(Path::new("/no/such/path")).expect_err("missing").exit, Exit::NotFound);
    }
}
