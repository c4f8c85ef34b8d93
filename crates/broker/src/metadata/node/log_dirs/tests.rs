use std::sync::Arc;

use riverrun_env::OpenMode;
use riverrun_env::sim::SimEnv;

use super::*;
use crate::config::TopicOverrides;
use crate::cordon::Cordon;
use crate::metadata::testing::options;
use crate::metadata::{Draft, NewTopic, Store, StoreOptions, TopicError, verify_identity};

/// A server that has used `/a` and `/b`, with one partition in each.
fn used() -> Env {
    let env = SimEnv::new(1).env();
    let store = Store::open(&env, &options(&["/a", "/b"])).expect("opens");
    let new = NewTopic { name: "t".into(), partition_count: 2, configs: TopicOverrides::new() };
    let topic = store.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    let hex = format!("{:032x}", u128::from_be_bytes(topic.id.0));
    let name = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    for (id, dir) in store.node().placed(topic.id) {
        let path = Path::new(["/a", "/b"][dir]).join(&name).join(id.index.to_string());
        env.fs.create_dir_all(&path).expect("made");
    }
    env
}

fn open(env: &Env, dirs: &[&str]) -> Result<Vec<PathBuf>, String> {
    let store = Store::open(env, &options(dirs)).map_err(|error| error.to_string())?;
    Ok(store.image().node.log_dirs().iter().map(|dir| dir.path.clone()).collect())
}

#[test]
fn a_log_dir_is_recognised_wherever_it_is_and_in_any_order() {
    let env = used();
    assert_eq!(open(&env, &["/b", "/a"]), Ok(vec!["/a".into(), "/b".into()]));
    env.fs.rename("/b".as_ref(), "/elsewhere".as_ref()).expect("moved");
    assert_eq!(open(&env, &["/elsewhere", "/a"]), Ok(vec!["/a".into(), "/elsewhere".into()]));
    assert_eq!(
        open(&env, &["/a", "/elsewhere", "/c"]),
        Ok(vec!["/a".into(), "/elsewhere".into(), "/c".into()])
    );
}

#[test]
fn cordon_survives_a_restart_and_stays_with_its_directory() {
    let env = used();
    let open = |dirs: &[&str]| {
        let store = Store::open(&env, &options(dirs)).expect("opens");
        store.cordon_by_default(Cordon::All);
        store
    };
    let cordoned = |store: &Store| [0, 1].map(|dir| store.image().node.is_cordoned(dir));
    let grow = |store: &Store, total| {
        let grown = store.change(|draft| draft.grow_topic("t", total)).expect("changed");
        grown.map(|topic| store.node().placement(topic.id).last().copied())
    };
    let store = open(&["/a", "/b"]);
    assert_eq!(cordoned(&store), [true, true], "as the configuration says");
    assert_eq!(grow(&store, 3), Err(TopicError::NoLogDir));
    store.change(|draft| draft.set_cordon(Some(Cordon::Dirs(vec![0])))).expect("changed");
    assert_eq!(grow(&store, 3), Ok(Some(1)));
    drop(store);
    env.fs.rename("/a".as_ref(), "/c".as_ref()).expect("moved");
    let store = open(&["/b", "/c"]);
    assert_eq!(cordoned(&store), [true, false]);
    assert_eq!(store.image().node.holding_cordon().names(&store.image().node.log_dir_paths()), ["/c"]);
    assert_eq!(grow(&store, 4), Ok(Some(1)));
    store.close().expect("closed");
    drop(store);
    let store = open(&["/b", "/c"]);
    assert_eq!(cordoned(&store), [true, false], "a snapshot has it");
    store.change(|draft| draft.set_cordon(None)).expect("changed");
    drop(store);
    assert_eq!(cordoned(&open(&["/b", "/c"])), [true, true], "the configuration's word again");
}

#[test]
fn leaving_out_a_needed_log_dir_is_refused_with_the_reason() {
    let env = used();
    let refused = |part: &str| {
        let error = open(&env, &["/a"]).expect_err("left out");
        assert!(error.contains("/b") && error.contains(part), "{error}");
    };
    refused("1 partitions are in it, of t: name it again");
    let store = Store::open(&env, &options(&["/a", "/b"])).expect("opens");
    let id = store.image().cluster.topic("t").expect("there").id;
    store.change(|draft| draft.delete_topic(id).is_ok()).expect("changed");
    drop(store);
    refused("files of 1 deleted topics may be in it");
    let store = Store::open(&env, &options(&["/a", "/b"])).expect("opens");
    store.change(|draft| draft.forget_topics(&[id])).expect("changed");
    drop(store);
    remove_topics(&env, "/a");
    refused("topics that the metadata does not know");
    let [topic] = &topics(&env, "/b")[..] else { panic!("one topic") };
    let aside = topic.with_file_name(format!("lost-{}", topic.file_name().expect("a name").display()));
    env.fs.rename(topic, &aside).expect("renamed");
    refused("or that were set aside");
    env.fs.remove_dir_all(&aside).expect("removed");
    let accept = Path::new("/meta/accept-metadata-loss");
    env.fs.open(accept, OpenMode::CreateNew).expect("made");
    refused("what the metadata has lost may be in it");
    env.fs.remove_file(accept).expect("removed");
    assert_eq!(open(&env, &["/a"]), Ok(vec!["/a".into()]));
}

fn topics(env: &Env, log_dir: &str) -> Vec<PathBuf> {
    let entries = env.fs.read_dir(log_dir.as_ref()).expect("readable");
    let directories = entries.iter().filter(|entry| entry.is_dir);
    directories.map(|entry| Path::new(log_dir).join(&entry.name)).collect()
}

fn remove_topics(env: &Env, log_dir: &str) {
    for path in topics(env, log_dir) {
        env.fs.remove_dir_all(&path).expect("removed");
    }
}

#[test]
fn leaving_out_an_empty_log_dir_keeps_the_others_as_they_are() {
    let env = used();
    let open_with = |dirs: &[&str]| Store::open(&env, &options(dirs)).expect("opens");
    let new = |name: &str, partition_count| NewTopic {
        name: name.into(),
        partition_count,
        configs: TopicOverrides::new(),
    };
    let store = open_with(&["/a", "/b", "/empty", "/c"]);
    let change = |draft: &mut Draft<'_>| {
        draft.set_cordon(Some(Cordon::Dirs(vec![2])));
        draft.create_topic(new("u", 1)).expect("made");
        let gone = draft.create_topic(new("gone", 4)).expect("made");
        draft.delete_topic(gone.id).expect("deleted");
        draft.set_cordon(Some(Cordon::Dirs(vec![3, 2])));
    };
    store.change(change).expect("changed");
    drop(store);
    let dirs_of = |store: &Store, name: &str| {
        store.node().placement(store.cluster().topic(name).expect("there").id).to_vec()
    };
    for closes in [false, false, true, false] {
        let store = open_with(&["/c", "/a", "/b"]);
        let image = store.image();
        let dirs: Vec<_> =
            image.node.log_dirs().iter().map(|dir| (&*dir.path, dir.partition_count)).collect();
        assert_eq!(dirs, [("/a", 1), ("/b", 1), ("/c", 1)].map(|(path, count)| (Path::new(path), count)));
        assert_eq!((dirs_of(&store, "t"), dirs_of(&store, "u")), (vec![0, 1], vec![2]));
        assert_eq!(
            image.node.doomed().values().map(|dirs| dirs.to_vec()).collect::<Vec<_>>(),
            [[0, 1, 2, 0]]
        );
        assert_eq!(image.node.cordon(), Some(&Cordon::Dirs(vec![2])));
        if closes {
            store.close().expect("closed");
        }
    }
    let all = ["/a", "/b", "/empty", "/c"];
    assert_eq!(open(&env, &all), Ok(["/a", "/b", "/c", "/empty"].map(PathBuf::from).into()));
    assert_eq!(open(&env, &["/c", "/b", "/a"]), Ok(["/a", "/b", "/c"].map(PathBuf::from).into()));
}

#[test]
fn log_dirs_that_held_nothing_may_be_gone_and_all_be_replaced() {
    let env = SimEnv::new(1).env();
    assert!(open(&env, &["/a", "/b", "/c"]).is_ok());
    env.fs.remove_dir_all("/b".as_ref()).expect("removed");
    assert_eq!(open(&env, &["/c", "/a"]), Ok(vec!["/a".into(), "/c".into()]));
    assert_eq!(open(&env, &["/d"]), Ok(vec!["/d".into()]));
    // A log dir that the metadata has forgotten, and a copy of it.
    let identity = read_whole(&*env.fs, "/a/directory.id".as_ref(), 4096).expect("read");
    env.fs.create_dir_all("/copy".as_ref()).expect("made");
    atomic_replace(&*env.fs, "/copy/directory.id".as_ref(), &identity).expect("written");
    let error = open(&env, &["/d", "/a", "/copy"]).expect_err("a copy");
    assert!(error.contains("/copy") && error.contains("one is a copy"), "{error}");
}

#[test]
fn a_log_dir_of_another_server_is_refused() {
    let env = used();
    let other = StoreOptions { dir: "/other-meta".into(), ..options(&["/a"]) };
    let error = Store::open(&env, &other).expect_err("foreign").to_string();
    assert!(error.contains("/a: it belongs to cluster"), "{error}");
    let third = StoreOptions { dir: "/other-meta".into(), ..options(&["/c"]) };
    drop(Store::open(&env, &third).expect("a server of its own"));
    let error = Store::open(&env, &StoreOptions { log_dirs: options(&["/c", "/a"]).log_dirs, ..third });
    let error = error.expect_err("foreign").to_string();
    assert!(error.contains("/a belongs to cluster"), "{error}");
}

#[test]
fn records_without_an_owner_are_refused() {
    let env = SimEnv::new(1).env();
    env.fs.create_dir_all("/a/3f2a9c1e-0b7d-4e55-8c3a-5d1f6e7a8b90/0".as_ref()).expect("made");
    env.fs.create_dir_all("/b/lost+found".as_ref()).expect("made");
    let error = open(&env, &["/a"]).expect_err("whose?");
    assert!(error.contains("holds records"), "{error}");
    assert!(open(&env, &["/b"]).is_ok());
}

#[test]
fn a_copy_of_a_log_dir_is_refused() {
    let env = used();
    let identity = read_whole(&*env.fs, "/a/directory.id".as_ref(), 4096).expect("read");
    env.fs.create_dir_all("/copy".as_ref()).expect("made");
    atomic_replace(&*env.fs, "/copy/directory.id".as_ref(), &identity).expect("written");
    let error = open(&env, &["/a", "/b", "/copy"]).expect_err("a copy");
    assert!(error.contains("/copy"), "{error}");
}

#[test]
fn damaged_or_lost_identity_is_rewritten_beside_its_records() {
    let identity = Path::new("/a/directory.id");
    let bytes = read_whole(&*used().fs, identity, 4096).expect("read");
    let flipped = (0..bytes.len()).map(|position| {
        let mut bytes = bytes.clone();
        bytes[position] ^= 1 << (position % 8);
        bytes
    });
    let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    for (number, damaged) in flipped.chain(cut).enumerate() {
        let env = used();
        let file = env.fs.open(identity, OpenMode::ReadWrite).expect("opens");
        file.set_len(0).and_then(|()| file.write_all_at(&damaged, 0)).expect("written");
        let found = verify_identity(&env, "/a".as_ref()).expect("readable");
        assert!(found.len() == 1 && found[0].path == identity, "damage {number}: {found:?}");
        assert!(open(&env, &["/a", "/b"]).is_ok(), "damage {number}");
        assert!(open(&env, &["/b", "/a"]).is_ok(), "damage {number}, the second time");
        assert_eq!(read_whole(&*env.fs, identity, 4096).expect("read"), bytes, "damage {number}");
    }
    let env = used();
    assert_eq!(verify_identity(&env, "/a".as_ref()).expect("readable"), []);
    env.fs.remove_file(identity).expect("removed");
    assert_eq!(open(&env, &["/b", "/a"]), Ok(vec!["/a".into(), "/b".into()]));
}

#[test]
fn a_damaged_identity_at_a_new_path_is_refused_with_the_way_out() {
    let env = used();
    env.fs.rename("/b".as_ref(), "/moved".as_ref()).expect("moved");
    env.fs.create_dir_all("/new".as_ref()).expect("made");
    for path in ["/moved/directory.id", "/new/directory.id"] {
        env.fs.open(path.as_ref(), OpenMode::CreateOrOpen).and_then(|file| file.set_len(3)).expect("cut");
    }
    let error = open(&env, &["/a", "/moved"]).expect_err("whose?");
    assert!(error.contains("/moved") && error.contains("the path that it had"), "{error}");
    let error = open(&env, &["/a", "/new"]).expect_err("whose?");
    assert!(error.contains("/new") && error.contains("remove directory.id"), "{error}");
    env.fs.remove_file("/new/directory.id".as_ref()).expect("removed");
    env.fs.rename("/moved".as_ref(), "/b".as_ref()).expect("moved back");
    assert!(open(&env, &["/a", "/b", "/new"]).is_ok());
}

#[test]
fn the_directories_of_the_log_are_recognised() {
    let env = SimEnv::new(1).env();
    let logs = riverrun_log::LogStore::open(&env, &["/a".into()], riverrun_log::StoreOptions::default())
        .expect("opens");
    assert!(!holds_topic_directories(&env, "/a".as_ref()).expect("readable"));
    let id = riverrun_types::PartitionId { topic: random_id(&*env.random), index: 0 };
    let log = logs.partition(id, 0, Arc::default(), riverrun_types::LeaderEpoch(1)).expect("a handle");
    env.fs.create_dir_all(&log.path()).expect("made");
    assert!(holds_topic_directories(&env, "/a".as_ref()).expect("readable"));
}
