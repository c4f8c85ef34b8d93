use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};

use super::*;
use crate::config::TopicOverrides;
use crate::metadata::testing::options;
use crate::metadata::{NewTopic, Store};

fn open(sim: &SimEnv, dirs: &[&str]) -> Result<Store, String> {
    Store::open(&sim.env(), &options(dirs)).map_err(|error| error.to_string())
}

/// A server that has used these log dirs, with one partition in each.
fn used(dirs: &[&str]) -> SimEnv {
    let sim = SimEnv::new(1);
    let store = open(&sim, dirs).expect("opens");
    let partition_count = i32::try_from(dirs.len()).expect("few");
    let new = NewTopic { name: "t".into(), partition_count, configs: TopicOverrides::new() };
    store.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    sim
}

/// The log dirs that are away at a start, or why it is refused.
fn away(sim: &SimEnv, dirs: &[&str]) -> Result<Vec<PathBuf>, String> {
    open(sim, dirs).map(|store| store.absent_dirs().keys().cloned().collect())
}

fn empty(sim: &SimEnv, dir: &str) {
    sim.fs.remove_dir_all(dir.as_ref()).and_then(|()| sim.fs.create_dir_all(dir.as_ref())).expect("emptied");
}

fn is_there(sim: &SimEnv, path: &str) -> bool {
    sim.fs.exists(path.as_ref()).expect("readable")
}

#[test]
fn an_emptied_log_dir_is_away_and_left_alone_until_its_owner_accepts_the_loss() {
    let sim = used(&["/a", "/b"]);
    empty(&sim, "/a");
    for round in 0..2 {
        let store = open(&sim, &["/a", "/b"]).expect("the other one is there");
        let [(path, reason)] = &store.absent_dirs().iter().collect::<Vec<_>>()[..] else {
            panic!("{store:?}")
        };
        assert!(
            path.ends_with("a") && reason.starts_with("it is empty, but 1 partitions lie in it"),
            "{reason}"
        );
        assert!(store.may_lack_topics(), "nobody knows what lies in it");
        drop(store);
        assert_eq!(sim.fs.read_dir("/a".as_ref()).expect("readable").len(), 0, "start {round}");
    }
    sim.fs.open("/a/accept-loss".as_ref(), OpenMode::CreateNew).expect("made");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
    assert!(is_there(&sim, "/a/directory.id"));
}

#[test]
fn a_log_dir_that_is_missing_is_away_and_not_made_anew() {
    let sim = used(&["/a/logs", "/b"]);
    sim.fs.rename("/a".as_ref(), "/elsewhere".as_ref()).expect("moved");
    for above in [false, true] {
        if above {
            sim.fs.create_dir_all("/a".as_ref()).expect("made");
        }
        assert_eq!(away(&sim, &["/a/logs", "/b"]), Ok(vec!["/a/logs".into()]));
        assert!(!is_there(&sim, "/a/logs"));
    }
    sim.fs.remove_dir("/a".as_ref()).expect("removed");
    sim.fs.rename("/elsewhere".as_ref(), "/a".as_ref()).expect("moved back");
    assert_eq!(away(&sim, &["/a/logs", "/b"]), Ok(vec![]));
}

#[test]
fn a_log_dir_that_the_server_may_not_look_into_is_away() {
    let sim = used(&["/a", "/b"]);
    sim.fs.forbid(Some("/a".as_ref())).expect("there");
    let store = open(&sim, &["/a", "/b"]).expect("the other one is there");
    let reason = store.absent_dirs().values().next().expect("one").clone();
    assert!(reason.contains("may not look into it (/a/directory.id: "), "{reason}");
    drop(store);
    sim.fs.forbid(None).expect("none");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
}

#[test]
fn without_any_log_dir_the_start_is_refused_with_the_ways_out() {
    let sim = used(&["/a", "/b"]);
    for dir in ["/a", "/b"] {
        sim.fs.remove_dir_all(dir.as_ref()).expect("removed");
    }
    let error = away(&sim, &["/b", "/a"]).expect_err("nothing is left");
    assert!(error.contains("Is its disk mounted?") && error.contains("accept-loss"), "{error}");
    assert!(!is_there(&sim, "/a") && !is_there(&sim, "/b"));
    assert_eq!(away(&sim, &["/a", "/b", "/new"]), Ok(vec!["/a".into(), "/b".into()]));
    let alone = used(&["/a"]);
    empty(&alone, "/a");
    let error = away(&alone, &["/a"]).expect_err("nothing is left");
    assert!(error.contains("log dir /a: it is empty, but 1 partitions lie in it"), "{error}");
}

#[test]
fn a_log_dir_without_partitions_is_made_anew_unless_files_of_deleted_topics_may_be_there() {
    let sim = SimEnv::new(1);
    drop(open(&sim, &["/a", "/b"]).expect("opens"));
    sim.fs.remove_dir_all("/a".as_ref()).expect("removed");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
    assert!(is_there(&sim, "/a/directory.id"));

    let sim = used(&["/a", "/b"]);
    let store = open(&sim, &["/a", "/b"]).expect("opens");
    let topic = store.image().topic("t").expect("there").id;
    store.change(|draft| draft.delete_topic(topic).is_ok()).expect("deleted");
    drop(store);
    empty(&sim, "/a");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec!["/a".into()]));
    let store = open(&sim, &["/a", "/b"]).expect("opens");
    store.change(|draft| draft.forget_topics(&[topic])).expect("forgotten");
    drop(store);
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
}

#[test]
fn a_log_dir_that_was_moved_is_not_away_and_its_old_path_not_taken_for_it() {
    let sim = used(&["/a", "/b"]);
    sim.fs.rename("/b".as_ref(), "/c".as_ref()).expect("moved");
    sim.fs.create_dir_all("/b".as_ref()).expect("made");
    let error = away(&sim, &["/a", "/b", "/c"]).expect_err("two for one");
    assert!(error.contains("/b") && error.contains("start without this one first"), "{error}");
    assert_eq!(away(&sim, &["/a", "/c"]), Ok(vec![]));
    assert_eq!(away(&sim, &["/a", "/b", "/c"]), Ok(vec![]));
}
