mod crash_states;
mod leader_epochs;

use std::path::Path;
use std::time::{Duration, Instant};

use riverrun_env::sim::SimEnv;
use riverrun_env::{FileSystem as _, OpenMode, read_whole};
use riverrun_types::{ErrorKind, LeaderEpoch};

use super::*;
use crate::config::TopicOverrides;
use crate::metadata::copies::copy_of;
use crate::metadata::producer_ids::PRODUCER_IDS_BLOCK;
use crate::metadata::testing::producer_id;
use crate::metadata::{MetadataFinding, NewTopic, verify_metadata};

fn options() -> StoreOptions {
    StoreOptions {
        dir: "/data/meta".into(),
        node_id: 1,
        cluster_id: None,
        log_dirs: vec!["/data/logs".into()],
    }
}

fn open(env: &Env) -> Store {
    Store::open(env, &options()).expect("opens")
}

fn create(store: &Store, name: &str, partition_count: i32) -> Result<(), MetadataError> {
    let new = NewTopic { name: name.into(), partition_count, configs: TopicOverrides::new() };
    store.change(|draft| draft.create_topic(new).expect("a new name")).map(|_| ())
}

fn names(store: &Store) -> Vec<String> {
    store.image().cluster.topics_sorted().iter().map(|topic| topic.name.to_string()).collect()
}

fn files(env: &Env) -> Vec<PathBuf> {
    let entries = env.fs.read_dir("/data/meta".as_ref()).expect("the directory");
    let mut paths: Vec<_> =
        entries.into_iter().map(|entry| PathBuf::from("/data/meta").join(entry.name)).collect();
    paths.retain(|path| !path.ends_with("lock"));
    paths.sort();
    paths
}

#[test]
fn everything_is_there_again_after_a_restart() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let first = open(&env);
    create(&first, "a", 3).expect("made");
    create(&first, "b", 1).expect("made");
    let gone = first.image().cluster.topic("b").expect("there").id;
    first.change(|draft| draft.delete_topic(gone).expect("deleted")).expect("changed");
    let before = first.image();
    drop(first);
    sim.fs.crash();
    let image = open(&env).image();
    assert_eq!(image.cluster.topics_sorted(), before.cluster.topics_sorted());
    assert_eq!(image.cluster.id(), before.cluster.id());
    assert_eq!(image.node.log_dirs(), before.node.log_dirs());
    for topic in image.cluster.topics() {
        assert_eq!(image.node.placement(topic.id), before.node.placement(topic.id));
    }
    assert_eq!((before.cluster.starts(), image.cluster.starts()), (1, 2));
}

#[test]
fn a_change_of_many_topics_costs_one_sync_of_each_log() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    let before = sim.fs.syncs();
    let made = store.change(|draft| {
        let new = |index| NewTopic {
            name: format!("t{index}"),
            partition_count: 1,
            configs: TopicOverrides::new(),
        };
        (0..1000).filter(|index| draft.create_topic(new(*index)).is_ok()).count()
    });
    assert_eq!((made.expect("changed"), sim.fs.syncs() - before), (1000, 2));
    store.change(|draft| draft.check_new_name("t1").is_err()).expect("nothing to write");
    let rehearsed = store.rehearse(|draft| {
        draft.start_node();
        draft.image().cluster.starts()
    });
    assert_eq!(rehearsed, 2);
    assert_eq!(sim.fs.syncs() - before, 2);
    assert_eq!(store.image().cluster.starts(), 1);
}

#[test]
fn a_log_dir_that_hangs_with_its_mark_holds_up_no_other_change() {
    let sim = SimEnv::new(1);
    sim.fs.create_dir_all("/data/logs".as_ref()).expect("made");
    let store = Arc::new(open(&sim.env()));
    create(&store, "t", 1).expect("made");
    let mark = || sim.fs.read_dir("/data/logs".as_ref()).expect("there").len();
    assert_eq!(mark(), 2, "the identity and the mark");
    let syncs = sim.fs.syncs();
    let (fs, other) = (sim.fs.clone(), Arc::clone(&store));
    let meanwhile = move || {
        assert_eq!(
            fs.syncs() - syncs,
            2,
            "the metadata's log and its copy are synced: it is the mark's turn"
        );
        assert_eq!(other.image().cluster.topic("t").expect("there").partition_count(), 2);
        // If the change held the metadata, this would wait for itself.
        assert!(other.writer.try_lock().is_some());
        create(&other, "other", 1).expect("made");
    };
    let between = sim.fs.clone();
    sim.fs.during_next_sync(move || {
        let last = between.clone();
        between.during_next_sync(move || last.during_next_sync(meanwhile));
    });
    store.change(|draft| draft.grow_topic("t", 2).expect("grown")).expect("changed");
    assert_eq!(names(&store), ["other", "t"]);
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let env = SimEnv::new(1).env();
    let _first = open(&env);
    let error = Store::open(&env, &options()).expect_err("in use");
    assert!(matches!(error, MetadataError::InUse(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Retry);
}

#[test]
fn a_directory_of_another_node_or_cluster_is_refused() {
    let env = SimEnv::new(1).env();
    drop(open(&env));
    let other_node = StoreOptions { node_id: 2, ..options() };
    let error = Store::open(&env, &other_node).expect_err("another node's").to_string();
    assert!(error.contains("/data/meta belongs to node 1") && error.contains("set node.id=1"), "{error}");
    let other_cluster = StoreOptions { cluster_id: Some("somewhere-else".into()), ..options() };
    let error = Store::open(&env, &other_cluster).expect_err("foreign");
    assert!(matches!(error, MetadataError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("/data/meta"), "{error}");
    let own = open(&env).image().cluster.id().to_string();
    assert!(Store::open(&env, &StoreOptions { cluster_id: Some(own), ..options() }).is_ok());
}

/// A store in the middle of its life: a snapshot with topics, and a log with more.
fn lived_in(sim: &SimEnv) -> Env {
    let env = sim.env();
    let store = open(&env);
    create(&store, "in-the-snapshot", 2).expect("made");
    let mut writer = store.writer.lock();
    store.snapshot(&mut writer, &store.image());
    drop(writer);
    create(&store, "in-the-log", 2).expect("made");
    create(&store, "last", 2).expect("made");
    drop(store);
    env
}

/// The findings of a verification of the directory.
fn findings(env: &Env) -> Vec<MetadataFinding> {
    verify_metadata(env, &options().dir, &options().log_dirs).expect("readable")
}

fn put(env: &Env, path: &Path, bytes: &[u8]) {
    let file = env.fs.open(path, OpenMode::ReadWrite).expect("opens");
    file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).expect("written");
}

/// The log and its copy.
fn logs_of(env: &Env) -> Vec<PathBuf> {
    files(env).into_iter().filter(|path| path.to_string_lossy().contains("log-")).collect()
}

const ALL: [&str; 3] = ["in-the-log", "in-the-snapshot", "last"];

#[test]
fn flipped_byte_of_a_file_is_found_and_the_other_file_is_used() {
    let env = lived_in(&SimEnv::new(1));
    assert_eq!(findings(&env), []);
    for path in files(&env) {
        let bytes = read_whole(&*env.fs, &path, 1 << 20).expect("readable");
        for position in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position % 8);
            let env = lived_in(&SimEnv::new(1));
            put(&env, &path, &flipped);
            let found = findings(&env);
            let is_named = found.len() == 1 && found[0].path == path && found[0].position <= position as u64;
            assert!(is_named && !found[0].is_torn_tail, "byte {position} of {}: {found:?}", path.display());
            match Store::open(&env, &options()) {
                Ok(store) => {
                    assert_eq!(names(&store), ALL, "byte {position} of {}", path.display());
                    assert!(!store.may_lack_topics(), "byte {position} of {}", path.display());
                    assert_eq!(findings(&env), [], "both are written anew");
                }
                // A flipped version is that of a newer program, whose file no copy stands in for.
                Err(error) => assert!(error.to_string().contains("newer program"), "{error}"),
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_loses_nothing() {
    let pristine = lived_in(&SimEnv::new(1));
    for path in files(&pristine) {
        let bytes = read_whole(&*pristine.fs, &path, 1 << 20).expect("readable");
        let last_frame =
            bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("frames") + 1;
        for len in 0..bytes.len() {
            let env = lived_in(&SimEnv::new(1));
            put(&env, &path, &bytes[..len]);
            let found = findings(&env);
            assert!(found.len() == 1 && found[0].path == path, "{} cut at {len}: {found:?}", path.display());
            // A crash between the two leaves one without the last change, or with the beginning of it.
            let is_torn_tail = path.to_string_lossy().contains("log-") && len >= last_frame;
            assert_eq!(found[0].is_torn_tail, is_torn_tail, "{} cut at {len}: {found:?}", path.display());
            let store = Store::open(&env, &options()).expect("the other one");
            assert_eq!(names(&store), ALL, "{} cut at {len}", path.display());
            assert!(!store.may_lack_topics(), "{} cut at {len}", path.display());
            assert_eq!(findings(&env), [], "both are written anew");
        }
    }
}

#[test]
fn a_producer_id_does_not_come_twice_where_the_log_is_cut() {
    let used = || {
        let env = SimEnv::new(1).env();
        let store = open(&env);
        create(&store, "a", 1).expect("made");
        let id = producer_id(&store).expect("an id");
        assert_eq!(id, 0);
        env
    };
    for log in logs_of(&used()) {
        let len = read_whole(&*used().fs, &log, 1 << 20).expect("readable").len();
        for len in 0..len {
            let env = used();
            let file = env.fs.open(&log, OpenMode::ReadWrite).expect("opens");
            file.set_len(len as u64).expect("cut");
            let id = producer_id(&open(&env)).expect("an id");
            assert_eq!(id, PRODUCER_IDS_BLOCK, "{} cut at {len}", log.display());
        }
    }
}

/// One log is damaged in some place, the other one cut in another.
#[test]
fn changes_that_neither_log_has_are_missed() {
    let pristine = lived_in(&SimEnv::new(1));
    let [log, copy] = &logs_of(&pristine)[..] else { panic!("two logs") };
    let bytes = read_whole(&*pristine.fs, log, 1 << 20).expect("readable");
    let first_line = 1 + bytes.iter().position(|byte| *byte == b'\n').expect("lines");
    let ends: Vec<_> = (1..bytes.len()).filter(|len| bytes[len - 1] == b'\n').collect();
    for position in (first_line..bytes.len()).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1;
        for len in ends.iter().flat_map(|end| [*end, end + 20]) {
            let env = lived_in(&SimEnv::new(1));
            put(&env, log, &flipped);
            put(&env, copy, &bytes[..len]);
            match Store::open(&env, &options()) {
                Ok(store) => assert_eq!(names(&store), ALL, "byte {position}, cut at {len}"),
                Err(error) => {
                    let error = error.to_string();
                    let is_told =
                        error.contains(ACCEPT_METADATA_LOSS_FILE) || error.contains("newer program");
                    assert!(is_told, "byte {position}, cut at {len}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_log_of_an_older_program_has_no_copy() {
    let env = lived_in(&SimEnv::new(1));
    env.fs.remove_file(&logs_of(&env)[1]).expect("removed");
    assert_eq!(findings(&env), []);
    assert_eq!(names(&open(&env)), ALL);
    assert_eq!(logs_of(&env).len(), 2);
}

#[test]
fn after_a_stop_in_order_no_cut_goes_unseen() {
    let stopped = || {
        let env = lived_in(&SimEnv::new(1));
        open(&env).close().expect("closed");
        env
    };
    let env = stopped();
    assert_eq!(files(&env), ["/data/meta/snapshot", "/data/meta/snapshot-copy"].map(PathBuf::from));
    assert_eq!(findings(&env), []);
    let [snapshot, copy] = [&files(&env)[0], &files(&env)[1]];
    let bytes = read_whole(&*env.fs, snapshot, 1 << 20).expect("readable");
    for len in 0..bytes.len() {
        let env = stopped();
        put(&env, snapshot, &bytes[..len]);
        assert_eq!(names(&open(&env)), ALL, "cut at {len}");
        let env = stopped();
        put(&env, snapshot, &bytes[..len]);
        put(&env, copy, &bytes[..len]);
        assert_eq!(findings(&env).len(), 2, "cut at {len}");
        let error = Store::open(&env, &options()).expect_err("half of it").to_string();
        assert!(error.contains("/data/meta/snapshot") && error.contains("Restore /data/meta"), "{error}");
    }
    assert_eq!(names(&open(&env)), ALL);
}

#[test]
fn nothing_changes_after_a_stop_in_order() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    create(&store, "before", 1).expect("made");
    store.close().expect("closed");
    let error = create(&store, "after", 1).expect_err("closed");
    assert!(matches!(error, MetadataError::Stopping), "{error}");
    drop(store);
    sim.fs.crash();
    let store = open(&sim.env());
    assert_eq!(names(&store), ["before"]);
    assert_eq!(store.image().cluster.starts(), 2);
    assert!(!store.may_lack_topics());
}

#[test]
fn unreadable_log_is_given_up_once_on_request_and_copied() {
    let env = lived_in(&SimEnv::new(1));
    let logs = logs_of(&env);
    let mut bytes = read_whole(&*env.fs, &logs[0], 1 << 20).expect("readable");
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    for log in &logs {
        put(&env, log, &bytes);
    }
    let accept = options().dir.join(ACCEPT_METADATA_LOSS_FILE);
    env.fs.open(&accept, OpenMode::CreateNew).expect("made");
    let store = open(&env);
    assert_eq!(names(&store), ["in-the-log", "in-the-snapshot"]);
    assert!(store.may_lack_topics());
    let start = store.image().cluster.starts();
    let id = producer_id(&store).expect("an id");
    assert!(start > 1000 && id > 1_000_000, "start {start}, producer id {id}: none comes twice");
    assert!(!env.fs.exists(&accept).expect("known"), "for this once");
    for log in logs {
        let kept = options().dir.join(format!("damaged-{}", log.file_name().expect("a name").display()));
        assert_eq!(read_whole(&*env.fs, &kept, 1 << 20).expect("kept"), bytes);
    }
    drop(store);
    assert_eq!(findings(&env), []);
    assert!(!open(&env).may_lack_topics());
}

#[test]
fn missing_or_wrong_file_is_found_and_the_other_one_is_used() {
    let count = files(&lived_in(&SimEnv::new(1))).len();
    assert_eq!(count, 4, "snapshot, log, and a copy of each");
    for index in 0..count {
        let damage: [fn(&Env, &Path, &Path); 3] = [
            |env, path, _| env.fs.remove_file(path).expect("removed"),
            |env, path, _| put(env, path, b""),
            |env, path, other| put(env, path, &read_whole(&*env.fs, other, 1 << 20).expect("read")),
        ];
        for (kind, damage) in damage.iter().enumerate() {
            let env = lived_in(&SimEnv::new(1));
            let paths = files(&env);
            let (path, other) = (&paths[index], &paths[(index + 2) % count]);
            damage(&env, path, other);
            let is_missing_copy = kind == 0 && path.to_string_lossy().ends_with("-copy");
            assert_eq!(findings(&env).len(), usize::from(!is_missing_copy), "{kind} of {}", path.display());
            assert_eq!(names(&open(&env)), ALL, "damage {kind} of {}", path.display());
        }
    }
}

#[test]
fn old_snapshots_are_found_if_changes_have_followed() {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    store.close().expect("closed");
    drop(store);
    let snapshot = PathBuf::from("/data/meta/snapshot");
    let old = read_whole(&*env.fs, &snapshot, 1 << 20).expect("read");
    drop(open(&env));
    put(&env, &snapshot, &old);
    put(&env, &copy_of(&snapshot), &old);
    assert_eq!(findings(&env).len(), 2, "a log without its snapshot, and a mark of more than there is");
    let error = Store::open(&env, &options()).expect_err("old").to_string();
    assert!(error.contains("snapshot that it follows is missing"), "{error}");
}

#[test]
fn an_old_copy_of_the_snapshot_is_found() {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    let snapshot = PathBuf::from("/data/meta/snapshot");
    let old = read_whole(&*env.fs, &snapshot, 1 << 20).expect("read");
    let mut writer = store.writer.lock();
    store.snapshot(&mut writer, &store.image());
    drop(writer);
    drop(store);
    let file = env.fs.open(&snapshot, OpenMode::ReadWrite).expect("opens");
    file.set_len(0).and_then(|()| file.write_all_at(&old, 0)).expect("written");
    assert!(Store::open(&env, &options()).is_err());
}

/// Makes directories of a topic and its partition 0, and answers the topic's.
fn make_directories(env: &Env, store: &Store, name: &str) -> PathBuf {
    let id = store.image().cluster.topic(name).expect("there").id;
    let hex = format!("{:032x}", u128::from_be_bytes(id.0));
    let name = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    let path = options().log_dirs[0].join(name);
    env.fs.create_dir_all(&path.join("0")).expect("made");
    path
}

/// A store that was killed, both of whose logs have lost their last frame since; and the directory of the lost topic.
fn cut_after_a_kill() -> (Env, PathBuf) {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    create(&store, "kept", 1).expect("made");
    make_directories(&env, &store, "kept");
    let logs = logs_of(&env);
    let bytes = read_whole(&*env.fs, &logs[0], 1 << 20).expect("readable");
    create(&store, "lost", 1).expect("made");
    let lost = make_directories(&env, &store, "lost");
    drop(store);
    for log in &logs {
        put(&env, log, &bytes);
    }
    (env, lost)
}

#[test]
fn metadata_that_lacks_a_topic_with_files_is_refused_unchanged() {
    let (env, lost) = cut_after_a_kill();
    let before = files(&env);
    let found = findings(&env);
    assert!(found.len() == 1 && found[0].path == lost && !found[0].is_torn_tail, "{found:?}");
    for _ in 0..2 {
        let error = Store::open(&env, &options()).expect_err("half of it").to_string();
        assert!(error.contains(lost.to_str().expect("text")), "{error}");
        assert!(error.contains(ACCEPT_METADATA_LOSS_FILE) && error.contains("Restore"), "{error}");
        assert_eq!(files(&env), before);
    }
}

#[test]
fn lost_topics_are_set_aside_on_request_until_cleared_away() {
    let (env, lost) = cut_after_a_kill();
    env.fs.open(&options().dir.join(ACCEPT_METADATA_LOSS_FILE), OpenMode::CreateNew).expect("made");
    let aside = lost.with_file_name(format!("lost-{}", lost.file_name().expect("a name").display()));
    for _ in 0..2 {
        let store = open(&env);
        assert_eq!((names(&store), store.set_aside()), (vec!["kept".to_owned()], &[aside.clone()][..]));
        assert!(store.may_lack_topics());
        assert!(env.fs.exists(&aside.join("0")).expect("known"), "nothing of it is deleted");
    }
    env.fs.remove_dir_all(&aside).expect("cleared away");
    assert!(!open(&env).may_lack_topics());
}

#[test]
fn topic_whose_removal_was_cut_short_is_not_taken_for_lost() {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    create(&store, "gone", 1).expect("made");
    make_directories(&env, &store, "gone");
    let id = store.image().cluster.topic("gone").expect("there").id;
    store.change(|draft| draft.delete_topic(id).expect("deleted")).expect("changed");
    drop(store);
    assert!(!open(&env).may_lack_topics());
}

#[test]
fn log_dirs_of_a_cluster_are_not_taken_over_by_a_new_one() {
    let env = lived_in(&SimEnv::new(1));
    env.fs.remove_dir_all(&options().dir).expect("removed");
    let error = Store::open(&env, &options()).expect_err("its metadata is gone").to_string();
    assert!(error.contains("there is no metadata in /data/meta: restore"), "{error}");
    assert_eq!(files(&env), Vec::<PathBuf>::new(), "nothing was made");
}

#[test]
fn a_store_of_a_newer_format_is_refused_by_name() {
    let env = lived_in(&SimEnv::new(1));
    let snapshot = PathBuf::from("/data/meta/snapshot");
    let text = String::from_utf8(read_whole(&*env.fs, &snapshot, 1 << 20).expect("read")).expect("text");
    let file = env.fs.open(&snapshot, OpenMode::ReadWrite).expect("opens");
    file.write_all_at(text.replacen("format 1", "format 2", 1).as_bytes(), 0).expect("written");
    let error = Store::open(&env, &options()).expect_err("newer").to_string();
    assert!(error.contains("version 2") && error.contains("/data/meta/snapshot"), "{error}");
}

#[test]
fn answered_changes_survive_a_power_cut_at_any_operation() {
    let plan = |sim: &SimEnv| -> Vec<String> {
        let mut answered = Vec::new();
        let Ok(store) = Store::open(&sim.env(), &options()) else { return answered };
        for index in 0..4 {
            let name = format!("t{index}");
            if create(&store, &name, 1).is_ok() {
                answered.push(name);
            }
            if index == 1 {
                let mut writer = store.writer.lock();
                if writer.poison.is_none() {
                    store.snapshot(&mut writer, &store.image());
                }
            }
        }
        answered
    };
    let whole = SimEnv::new(0);
    assert_eq!(plan(&whole).len(), 4);
    for stop in 0..whole.fs.operations() {
        for seed in 0..8 {
            let sim = SimEnv::new(seed);
            sim.fs.stop_after(stop);
            let answered = plan(&sim);
            sim.fs.crash();
            let store = Store::open(&sim.env(), &options())
                .unwrap_or_else(|error| panic!("stop {stop}, seed {seed}: {error}"));
            let found = names(&store);
            assert!(
                found.starts_with(&answered),
                "stop {stop}, seed {seed}: {found:?} lacks some of {answered:?}"
            );
            create(&store, "after", 1).expect("the store goes on");
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_changes_until_a_restart() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    create(&store, "before", 1).expect("made");
    sim.fs.fail_sync_after(0);
    assert_eq!(create(&store, "failed", 1).expect_err("not synced").kind(), ErrorKind::GiveUp);
    assert_eq!(names(&store), ["before"]);
    let error = create(&store, "later", 1).expect_err("poisoned");
    assert!(matches!(error, MetadataError::Poisoned(_)), "{error}");
    drop(store);
    sim.fs.crash();
    let found = names(&open(&sim.env()));
    assert!(found == ["before"] || found == ["before", "failed"], "{found:?}");
}

#[test]
fn a_full_disk_refuses_the_change_and_recovers() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    sim.fs.set_space(Some(20));
    let error = create(&store, "too-much", 1).expect_err("full");
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    sim.fs.set_space(None);
    create(&store, "fits", 1).expect("made");
    drop(store);
    assert_eq!(names(&open(&sim.env())), ["fits"]);
}

#[test]
fn snapshot_in_a_shortage_leaves_the_generation_in_use() {
    let shortages: [fn(&SimEnv, bool); 2] = [
        |sim, is_short| sim.fs.exhaust_descriptors(is_short),
        |sim, is_short| sim.fs.set_space(is_short.then_some(10)),
    ];
    for (number, set) in shortages.iter().enumerate() {
        let sim = SimEnv::new(1);
        let store = open(&sim.env());
        create(&store, "before", 1).expect("made");
        set(&sim, true);
        store.snapshot(&mut store.writer.lock(), &store.image());
        set(&sim, false);
        create(&store, "after", 1).unwrap_or_else(|error| panic!("shortage {number}: {error}"));
        store.snapshot(&mut store.writer.lock(), &store.image());
        create(&store, "later", 1).expect("made");
        drop(store);
        sim.fs.crash();
        assert_eq!(names(&open(&sim.env())), ["after", "before", "later"], "shortage {number}");
    }
}

/// A store whose copy of the snapshot is of an earlier generation: there was no space for its name.
fn with_an_old_copy(sim: &SimEnv) -> Store {
    let store = open(&sim.env());
    create(&store, "before", 1).expect("made");
    sim.fs.refuse_renames_after(1);
    store.snapshot(&mut store.writer.lock(), &store.image());
    store
}

#[test]
fn old_copy_of_the_snapshot_is_reported_until_it_is_written() {
    let sim = SimEnv::new(1);
    let store = with_an_old_copy(&sim);
    create(&store, "after", 1).expect("only the copy is old");
    let told = store.copy_trouble().expect("it is old");
    assert!(told.contains("/data/meta/snapshot-copy"), "{told}");
    store.write_copy();
    assert!(store.copy_trouble().is_some(), "there is no room yet");
    sim.fs.refuse_renames(false);
    store.write_copy();
    assert_eq!(store.copy_trouble(), None);
    drop(store);
    sim.fs.crash();
    let [snapshot, copy] = ["snapshot", "snapshot-copy"].map(|name| options().dir.join(name));
    let read = |path: &Path| read_whole(&*sim.fs, path, 1 << 20).expect("readable");
    assert_eq!(read(&copy), read(&snapshot));
    put(&sim.env(), &snapshot, b"damaged");
    assert_eq!(names(&open(&sim.env())), ["after", "before"], "the copy stands in for it");
}

#[test]
fn the_next_snapshot_makes_good_for_a_copy_that_found_no_room() {
    let sim = SimEnv::new(1);
    let store = with_an_old_copy(&sim);
    sim.fs.refuse_renames(false);
    store.snapshot(&mut store.writer.lock(), &store.image());
    assert_eq!(store.copy_trouble(), None);
    let before = sim.fs.operations();
    store.write_copy();
    assert_eq!(sim.fs.operations(), before, "nothing is left to do");
}

#[test]
fn failed_sync_of_a_copy_lets_nothing_change_until_a_restart() {
    let sim = SimEnv::new(1);
    let store = with_an_old_copy(&sim);
    sim.fs.refuse_renames(false);
    sim.fs.fail_sync_after(0);
    store.write_copy();
    let error = create(&store, "later", 1).expect_err("poisoned");
    assert!(matches!(error, MetadataError::Poisoned(_)), "{error}");
    drop(store);
    sim.fs.crash();
    assert_eq!(names(&open(&sim.env())), ["before"]);
}

#[test]
fn copy_that_the_disk_refused_is_not_written_until_a_restart() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    create(&store, "before", 1).expect("made");
    // The new log, its copy, and the snapshot come first.
    sim.fs.fail_write_after(3);
    store.snapshot(&mut store.writer.lock(), &store.image());
    let before = sim.fs.operations();
    store.write_copy();
    assert_eq!(sim.fs.operations(), before);
    let told = store.copy_trouble().expect("it is old");
    assert!(told.contains("a restart tries again"), "{told}");
    drop(store);
    assert_eq!(open(&sim.env()).copy_trouble(), None);
}

#[test]
fn failed_snapshot_sync_lets_nothing_change_until_a_restart() {
    // The new log, its copy, their directory, the snapshot, its directory, the copy, the directory.
    for sync in 0..7 {
        let sim = SimEnv::new(1);
        let store = open(&sim.env());
        create(&store, "before", 1).expect("made");
        sim.fs.fail_sync_after(sync);
        store.snapshot(&mut store.writer.lock(), &store.image());
        let error = create(&store, "later", 1).expect_err("poisoned");
        assert!(matches!(error, MetadataError::Poisoned(_)), "sync {sync}: {error}");
        drop(store);
        sim.fs.crash();
        assert_eq!(names(&open(&sim.env())), ["before"], "sync {sync}");
    }
}

#[test]
fn a_disk_that_refuses_a_write_is_not_written_to_again() {
    let sim = SimEnv::new(1);
    let store = open(&sim.env());
    sim.fs.fail_write_after(0);
    assert_eq!(create(&store, "failed", 1).expect_err("not written").kind(), ErrorKind::GiveUp);
    let error = create(&store, "later", 1).expect_err("poisoned");
    assert!(matches!(error, MetadataError::Poisoned(_)), "{error}");
    drop(store);
    sim.fs.kill();
    assert!(names(&open(&sim.env())).is_empty(), "a part of a frame is a torn tail");
}

#[test]
fn a_log_that_has_grown_is_followed_by_a_snapshot() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let store = open(&env);
    let long = NewTopic { name: "wide".into(), partition_count: 100_000, configs: TopicOverrides::new() };
    for _ in 0..8 {
        store
            .change(|draft| {
                let id = draft.create_topic(long.clone()).expect("made").id;
                draft.delete_topic(id).expect("deleted");
            })
            .expect("changed");
    }
    let sizes = files(&env).iter().map(|path| read_whole(&*env.fs, path, 1 << 30).expect("read").len()).max();
    assert!(sizes.is_some_and(|size| size as u64 <= LOG_BYTES_MIN + 300_000), "{sizes:?}");
    assert_eq!(files(&env).len(), 4, "the old log is gone");
    create(&store, "small", 1).expect("made");
    drop(store);
    assert_eq!(names(&open(&env)), ["small"]);
}

#[test]
fn ten_thousand_topics_and_partitions_are_made_and_loaded_fast() {
    let dir = tempfile::tempdir().expect("a directory");
    let env = Env::real();
    let options = StoreOptions {
        dir: dir.path().join("meta"),
        node_id: 1,
        cluster_id: None,
        log_dirs: vec![dir.path().join("logs")],
    };
    let store = Store::open(&env, &options).expect("opens");
    let started = Instant::now();
    create(&store, "wide", 10_000).expect("made");
    for index in 0..1000 {
        create(&store, &format!("single-{index}"), 1).expect("made");
    }
    let new =
        |index| NewTopic { name: format!("t-{index}"), partition_count: 1, configs: TopicOverrides::new() };
    let many =
        store.change(|draft| (0..9000).filter(|index| draft.create_topic(new(*index)).is_ok()).count());
    assert_eq!(many.expect("changed"), 9000);
    let made = started.elapsed();
    drop(store);
    let started = Instant::now();
    let store = Store::open(&env, &options).expect("opens");
    let loaded = started.elapsed();
    assert_eq!(store.image().cluster.partition_count(), 20_000);
    // The bounds leave room for a slow machine; a quadratic cost would be far beyond.
    assert!(made < Duration::from_mins(1), "{made:?} for 1,002 synced requests");
    assert!(loaded < Duration::from_secs(5), "{loaded:?} to load 20,000 partitions");
}

#[test]
fn metadata_that_was_taken_away_takes_no_change_nor_is_remade() {
    let spoils: [fn(&SimEnv); 5] = [
        |sim| sim.fs.remove_dir_all("/data/meta".as_ref()).expect("removed"),
        |sim| sim.fs.rename("/data".as_ref(), "/away".as_ref()).expect("renamed"),
        |sim| {
            sim.fs.rename("/data/meta".as_ref(), "/away".as_ref()).expect("renamed");
            sim.fs.create_dir("/data/meta".as_ref()).expect("made");
        },
        |sim| {
            let logs = files(&sim.env()).into_iter().filter(|path| path.to_string_lossy().contains("log-"));
            logs.for_each(|path| sim.fs.remove_file(&path).expect("removed"));
        },
        |sim| sim.fs.remove_file("/data/meta/snapshot".as_ref()).expect("removed"),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        for is_looked_for in [true, false] {
            let sim = SimEnv::new(1);
            let store = open(&sim.env());
            create(&store, "a", 1).expect("made");
            store.check_in_place();
            assert_eq!(store.failure(), None);
            spoil(&sim);
            if is_looked_for {
                store.check_in_place();
                assert!(store.failure().is_some(), "{number}");
            }
            let error = create(&store, "b", 1).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::GiveUp);
            assert_eq!((names(&store), store.failure().is_some()), (vec!["a".to_owned()], true), "{number}");
            store.close().expect("nothing to do");
            if number < 3 {
                let found = sim.fs.read_dir("/data/meta".as_ref()).unwrap_or_default();
                assert!(found.is_empty(), "{number}: {found:?}");
            }
        }
    }
}
