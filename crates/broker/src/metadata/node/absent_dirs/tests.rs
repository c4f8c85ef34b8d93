use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode};

use super::*;
use crate::config::TopicOverrides;
use crate::cordon::Cordon;
use crate::metadata::testing::options;
use crate::metadata::{NewTopic, Store, verify_metadata};

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
fn emptied_log_dir_is_away_until_its_loss_is_accepted() {
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
    accept_loss(&sim, "/a");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
    assert!(is_there(&sim, "/a/directory.id") && !is_there(&sim, "/a/accept-loss"));
    empty(&sim, "/a");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec!["/a".into()]), "another loss is another matter");
}

/// Unmounts `/b`, whose content is at `/lost` then, and leaves an empty mount point.
fn unmount(sim: &SimEnv) {
    sim.fs.rename("/b".as_ref(), "/lost".as_ref()).expect("moved");
    sim.fs.create_dir_all("/b".as_ref()).and_then(|()| sim.fs.sync_dir("/".as_ref())).expect("made");
}

/// Mounts `/lost` at `/b` again, over anything made there meanwhile.
fn mount(sim: &SimEnv) {
    sim.fs.rename("/b".as_ref(), "/below".as_ref()).expect("hidden");
    sim.fs.rename("/lost".as_ref(), "/b".as_ref()).expect("moved back");
}

fn accept_loss(sim: &SimEnv, dir: &str) {
    sim.fs.open(&Path::new(dir).join("accept-loss"), OpenMode::CreateNew).expect("made");
    sim.fs.sync_dir(dir.as_ref()).expect("synced");
}

fn identity(sim: &SimEnv, dir: &str) -> String {
    read_identity(&sim.env(), dir.as_ref()).expect("readable").expect("there").expect("whole").dir
}

#[test]
fn given_up_log_dir_that_is_back_is_refused_until_cleared() {
    let sim = used(&["/a", "/b"]);
    let id_before = identity(&sim, "/b");
    unmount(&sim);
    accept_loss(&sim, "/b");
    let store = open(&sim, &["/a", "/b"]).expect("begins anew");
    assert_ne!(identity(&sim, "/b"), id_before);
    // A topic that is gone by the time that the disk is back.
    let gone = "3f2a9c1e-0b7d-4e55-8c3a-5d1f6e7a8b90/0";
    sim.fs.create_dir_all(&Path::new("/lost").join(gone)).expect("made");
    drop(store);
    mount(&sim);
    let refused = |dirs: &[&str], at: &str| {
        let error = away(&sim, dirs).expect_err("given up");
        let told = format!("log dir {at}: its records were given up at start 2,");
        assert!(error.starts_with(&told) && error.contains("Unmount it or move it away"), "{error}");
    };
    refused(&["/a", "/b"], "/b");
    let accept = Path::new("/meta/accept-metadata-loss");
    sim.fs.open(accept, OpenMode::CreateNew).expect("made");
    refused(&["/a", "/b"], "/b");
    sim.fs.remove_file(accept).expect("removed");
    assert!(is_there(&sim, &format!("/b/{gone}")), "nothing in it is renamed");
    let dirs = ["/a", "/b"].map(PathBuf::from);
    let found = verify_metadata(&sim.env(), "/meta".as_ref(), &dirs).expect("readable");
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert!(finding.path.ends_with("b/directory.id") && finding.what.contains("given up"), "{finding:?}");
    unmount(&sim);
    sim.fs.remove_dir("/b".as_ref()).expect("empty");
    sim.fs.rename("/below".as_ref(), "/b".as_ref()).expect("seen again");
    for stops in [false, true] {
        let store = open(&sim, &["/a", "/b"]).expect("the one that is used since");
        if stops {
            store.close().expect("closed");
        }
        drop(store);
        refused(&["/a", "/b", "/lost"], "/lost");
    }
    empty(&sim, "/lost");
    assert_eq!(away(&sim, &["/a", "/b", "/lost"]), Ok(vec![]));
}

#[test]
fn a_start_that_gives_up_a_log_dir_may_be_cut_short_anywhere() {
    let dirs = ["/a", "/b"];
    let prepared = || {
        let sim = used(&dirs);
        unmount(&sim);
        accept_loss(&sim, "/b");
        sim
    };
    let lost = identity(&prepared(), "/lost");
    let (mut stop, mut refused, mut between) = (0, 0, 0);
    loop {
        let sim = prepared();
        sim.fs.stop_after(stop);
        let is_answered = open(&sim, &dirs).is_ok();
        for (index, state) in sim.crash_states(50).enumerate() {
            let case = format!("stop {stop}, state {index}");
            let back = state.crash_states(1).next().expect("the disk itself");
            let store = open(&state, &dirs).unwrap_or_else(|error| panic!("{case}: {error}"));
            let used = store.image().node.log_dirs()[1].id.clone();
            assert!(store.absent_dirs().is_empty() && store.image().node.log_dirs().len() == 2, "{case}");
            assert!(used == identity(&state, "/b") && used != lost, "{case}");
            assert!(store.image().node.given_up_at(&lost).is_some(), "{case}");
            assert!(!is_there(&state, "/b/accept-loss"), "{case}");
            drop(store);
            // The disk is found just then.
            mount(&back);
            match open(&back, &dirs) {
                Ok(store) => {
                    assert!(!is_answered, "{case}: nobody is told of what was acked since");
                    assert_eq!(store.image().node.log_dirs()[1].id, lost, "{case}");
                    between += usize::from(is_there(&back, "/below/directory.id"));
                }
                Err(error) => {
                    assert!(error.contains("given up"), "{case}: {error}");
                    refused += 1;
                }
            }
        }
        if is_answered {
            break;
        }
        stop += 1;
    }
    assert!(
        stop > 10 && refused > 0 && between > 0,
        "{stop} operations, {refused} refused, {between} in between"
    );
}

#[test]
fn directory_in_place_of_a_log_dir_without_records_replaces_it() {
    let sim = SimEnv::new(1);
    let open_all = || open(&sim, &["/a", "/b"]).expect("opens");
    let store = open_all();
    store.change(|draft| draft.set_cordon(Some(Cordon::Dirs(vec![0])))).expect("changed");
    drop(store);
    let ids =
        |store: &Store| store.image().node.log_dirs().iter().map(|dir| dir.id.clone()).collect::<Vec<_>>();
    unmount(&sim);
    let other = ids(&open_all());
    mount(&sim);
    let store = open_all();
    assert!(ids(&store)[0] == other[0] && ids(&store)[1] != other[1], "nothing was in either");
    assert_eq!(store.image().node.given_up_at(&other[1]), None);
    assert!(store.image().node.is_cordoned(0) && !store.image().node.is_cordoned(1));
    drop(store);
    sim.fs.rename("/b".as_ref(), "/lost".as_ref()).expect("moved");
    sim.fs.rename("/below".as_ref(), "/b".as_ref()).expect("seen again");
    let store = open_all();
    let new = NewTopic { name: "t".into(), partition_count: 1, configs: TopicOverrides::new() };
    store.change(|draft| draft.create_topic(new)).expect("changed").expect("made");
    drop(store);
    mount(&sim);
    let refused = || away(&sim, &["/a", "/b"]).expect_err("it has partitions");
    let error = refused();
    assert!(error.contains("/b: another directory lies in its place, but 1 partitions are in it"), "{error}");
    assert!(error.contains("accept-loss"), "{error}");
    accept_loss(&sim, "/b");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]), "as the message says");
    sim.fs.rename("/b".as_ref(), "/lost".as_ref()).expect("moved");
    sim.fs.rename("/below".as_ref(), "/b".as_ref()).expect("seen again");
    let error = refused();
    assert!(error.contains("/b: its records were given up at start 5"), "{error}");
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
fn log_dir_without_partitions_or_doomed_files_is_made_anew() {
    let sim = SimEnv::new(1);
    drop(open(&sim, &["/a", "/b"]).expect("opens"));
    sim.fs.remove_dir_all("/a".as_ref()).expect("removed");
    assert_eq!(away(&sim, &["/a", "/b"]), Ok(vec![]));
    assert!(is_there(&sim, "/a/directory.id"));

    let sim = used(&["/a", "/b"]);
    let store = open(&sim, &["/a", "/b"]).expect("opens");
    let topic = store.image().cluster.topic("t").expect("there").id;
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
fn moved_log_dir_is_not_away_nor_mistaken_for_its_old_path() {
    let sim = used(&["/a", "/b"]);
    sim.fs.rename("/b".as_ref(), "/c".as_ref()).expect("moved");
    sim.fs.create_dir_all("/b".as_ref()).expect("made");
    let error = away(&sim, &["/a", "/b", "/c"]).expect_err("two for one");
    assert!(error.contains("/b") && error.contains("start without this one first"), "{error}");
    assert_eq!(away(&sim, &["/a", "/c"]), Ok(vec![]));
    assert_eq!(away(&sim, &["/a", "/b", "/c"]), Ok(vec![]));
}
