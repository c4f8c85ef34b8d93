use riverrun_env::sim::SimEnv;
use riverrun_env::{OpenMode, read_whole};

use super::*;
use crate::config::TopicOverrides;
use crate::metadata::testing::partition_path;
use crate::metadata::{NewTopic, Store, StoreOptions, verify_metadata};

const META: &str = "/meta";
const LOG_DIRS: [&str; 3] = ["/a", "/b", "/c"];

fn open_with(env: &Env, log_dirs: &[&str]) -> Result<Store, MetadataError> {
    let log_dirs = log_dirs.iter().map(PathBuf::from).collect();
    Store::open(env, &StoreOptions { dir: META.into(), node_id: 1, cluster_id: None, log_dirs })
}

fn open(env: &Env) -> Result<Store, MetadataError> {
    open_with(env, &LOG_DIRS)
}

fn refused(env: &Env) -> String {
    open(env).expect_err("refused").to_string()
}

fn accept_loss(env: &Env) {
    let accept = Path::new(META).join("accept-metadata-loss");
    env.fs.open(&accept, OpenMode::CreateOrOpen).expect("made");
}

/// The files of the metadata with their content.
fn saved(env: &Env) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = env.fs.read_dir(META.as_ref()).expect("the directory");
    let paths = entries.iter().map(|entry| Path::new(META).join(&entry.name));
    let read = |path: PathBuf| (path.clone(), read_whole(&*env.fs, &path, 1 << 20).expect("readable"));
    paths.map(read).collect()
}

fn restore(env: &Env, saved: &BTreeMap<PathBuf, Vec<u8>>) {
    env.fs.remove_dir_all(META.as_ref()).expect("removed");
    env.fs.create_dir_all(META.as_ref()).expect("made");
    for (path, bytes) in saved {
        let file = env.fs.open(path, OpenMode::CreateNew).expect("made");
        file.write_all_at(bytes, 0).expect("written");
    }
}

/// As in data of an older program, which wrote no marks.
fn remove_marks(env: &Env) {
    for dir in LOG_DIRS {
        env.fs.remove_file(&Path::new(dir).join("metadata-mark")).expect("removed");
    }
}

/// The age of the metadata that was put back.
#[derive(Clone, Copy, Debug)]
enum Copied {
    /// It was copied before the last start, at which `/c` came into use.
    BeforeTheStart,
    /// It was copied after that.
    SinceTheStart,
}

/// A server whose topic had two partitions when its metadata was copied, and then got four more, of which partition 4 has no
/// files. The copy was put back. Answers the topic, and the directories of the partitions that it has lost.
fn with_older_metadata(env: &Env, copied: Copied) -> (TopicId, Vec<PathBuf>) {
    let store = open_with(env, &LOG_DIRS[..2]).expect("opens");
    let new = NewTopic { name: "t".into(), partition_count: 2, configs: TopicOverrides::new() };
    store.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    drop(store);
    let before = saved(env);
    let store = open(env).expect("opens");
    let older = if let Copied::BeforeTheStart = copied { before } else { saved(env) };
    let topic = store.change(|draft| draft.grow_topic("t", 6)).expect("changed").expect("grown");
    let node = store.node();
    drop(store);
    assert_eq!(node.placement(topic.id), [0, 1, 2, 0, 1, 2]);
    let path = |index: i32| {
        let dir = node.log_dir(PartitionId { topic: topic.id, index }).expect("there");
        partition_path(LOG_DIRS[dir], topic.id, &index.to_string())
    };
    for index in [0, 1, 2, 3, 5] {
        env.fs.create_dir_all(&path(index)).expect("made");
    }
    restore(env, &older);
    let mut lost = [2, 3, 5].map(path);
    lost.sort_unstable();
    (topic.id, lost.into())
}

#[test]
fn metadata_older_than_its_partitions_is_refused_unchanged() {
    let env = SimEnv::new(1).env();
    let (_, lost) = with_older_metadata(&env, Copied::SinceTheStart);
    let before = saved(&env);
    for _ in 0..2 {
        let error = refused(&env);
        let what = "says start 2, producer ids below 0 and 0 added partitions, and ";
        assert!(error.contains(what) && error.contains("and 4 added partitions. Restore"), "{error}");
        assert_eq!(saved(&env), before);
    }
    remove_marks(&env);
    let found = verify_metadata(&env, META.as_ref(), &LOG_DIRS.map(PathBuf::from)).expect("readable");
    let mut paths: Vec<_> = found.iter().map(|finding| finding.path.clone()).collect();
    paths.sort_unstable();
    assert!(paths == lost && found.iter().all(|finding| finding.what.contains("partition")), "{found:?}");
    for _ in 0..2 {
        let error = refused(&env);
        assert!(error.contains("partitions of 3 directories"), "{error}");
        assert!(lost.iter().all(|path| error.contains(path.to_str().expect("text"))), "{error}");
        assert!(error.contains("accept-metadata-loss") && error.contains("Restore"), "{error}");
        assert_eq!(saved(&env), before);
    }
}

#[test]
fn lost_partitions_are_taken_back_on_request_where_they_lie() {
    for copied in [Copied::BeforeTheStart, Copied::SinceTheStart] {
        let env = SimEnv::new(1).env();
        let (id, lost) = with_older_metadata(&env, copied);
        accept_loss(&env);
        for round in 0..2 {
            let store = open(&env).expect("opens");
            // Partition 4 has no files anywhere.
            assert_eq!(store.node().placement(id), [0, 1, 2, 0, 2, 2], "{copied:?}, {round}");
            assert!(!store.may_lack_topics() && store.set_aside().is_empty(), "{copied:?}, {round}");
            assert!(lost.iter().all(|path| env.fs.exists(path).expect("known")), "{copied:?}, {round}");
        }
    }
}

#[test]
fn entries_that_are_no_partitions_are_left_alone() {
    let env = SimEnv::new(1).env();
    let (id, lost) = with_older_metadata(&env, Copied::SinceTheStart);
    remove_marks(&env);
    for path in lost {
        env.fs.remove_dir_all(&path).expect("removed");
    }
    for name in ["01", "+3", "-3", "3.bak", "100000", "99999999999"] {
        env.fs.create_dir_all(&partition_path("/a", id, name)).expect("made");
    }
    env.fs.open(&partition_path("/a", id, "3"), OpenMode::CreateNew).expect("a file of that name");
    assert!(open(&env).is_ok());
}

#[test]
fn partitions_of_a_doomed_topic_are_not_taken_for_lost() {
    let env = SimEnv::new(1).env();
    let (id, _) = with_older_metadata(&env, Copied::SinceTheStart);
    accept_loss(&env);
    let store = open(&env).expect("opens");
    store.change(|draft| draft.delete_topic(id).expect("there")).expect("changed");
    drop(store);
    assert!(!open(&env).expect("opens").may_lack_topics());
}

#[test]
fn a_partition_that_lies_in_two_log_dirs_is_not_taken_back() {
    let env = SimEnv::new(1).env();
    let (id, _) = with_older_metadata(&env, Copied::SinceTheStart);
    let (one, other) = (partition_path("/a", id, "5"), partition_path("/c", id, "5"));
    env.fs.create_dir_all(&one).expect("made");
    accept_loss(&env);
    let error = refused(&env);
    assert!([&one, &other].iter().all(|path| error.contains(path.to_str().expect("text"))), "{error}");
    env.fs.remove_dir_all(&one).expect("removed");
    assert!(open(&env).is_ok());
}

#[test]
fn partition_is_not_made_anew_while_a_log_dir_is_unreadable() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    with_older_metadata(&env, Copied::SinceTheStart);
    accept_loss(&env);
    sim.fs.kill_device(Some("/b".as_ref())).expect("there");
    let error = refused(&env);
    assert!(error.contains("/b cannot be read"), "partition 4 was there: {error}");
    sim.fs.kill_device(None).expect("well");
    assert!(open(&env).is_ok());
}

#[test]
fn a_partition_may_lie_in_a_log_dir_that_nobody_looked_into() {
    let env = SimEnv::new(1).env();
    let store = open(&env).expect("opens");
    let new = NewTopic { name: "t".into(), partition_count: 2, configs: TopicOverrides::new() };
    let id = store.change(|draft| draft.create_topic(new)).expect("changed").expect("made").id;
    env.fs.create_dir_all(&partition_path("/a", id, "3")).expect("made");
    let taken_back = |log_dirs: &[&str]| {
        let log_dirs: Vec<_> = log_dirs.iter().map(PathBuf::from).collect();
        UnknownTopics::find(&env, &store.image(), &log_dirs).take_back(&store.image())
    };
    let error = taken_back(&["/a", "/c"]).expect_err("partition 2 may be there").to_string();
    assert!(error.contains("/b cannot be read"), "{error}");
    let all = taken_back(&["/a", "/b", "/c", "/new"]).expect("everything was seen");
    assert_eq!(all, [Record::PartitionsAdded { id, dirs: vec![0, 0], starts: 0 }]);
}
