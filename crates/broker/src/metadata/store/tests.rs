mod crash_states;

use std::time::{Duration, Instant};

use riverrun_env::sim::SimEnv;
use riverrun_env::{OpenMode, read_whole};
use riverrun_types::{ErrorKind, LeaderEpoch};

use super::*;
use crate::config::TopicOverrides;
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
    store.image().topics_sorted().iter().map(|topic| topic.name.to_string()).collect()
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
    let gone = first.image().topic("b").expect("there").id;
    first.change(|draft| draft.delete_topic(gone).expect("deleted")).expect("changed");
    let before = first.image();
    drop(first);
    sim.fs.crash();
    let image = open(&env).image();
    assert_eq!(image.topics_sorted(), before.topics_sorted());
    assert_eq!(image.cluster_id(), before.cluster_id());
    assert_eq!(image.log_dirs(), before.log_dirs());
    assert_eq!((before.leader_epoch(), image.leader_epoch()), (LeaderEpoch(1), LeaderEpoch(2)));
}

#[test]
fn producer_ids_are_never_given_out_twice() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let mut last = -1;
    for _ in 0..3 {
        let store = open(&env);
        for _ in 0..=PRODUCER_IDS_BLOCK {
            let ProducerId(id) = store.allocate_producer_id().expect("an id");
            assert!(id > last, "{id} after {last}");
            last = id;
        }
        drop(store);
        sim.fs.crash();
    }
}

#[test]
fn a_change_of_many_topics_costs_one_sync() {
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
    assert_eq!((made.expect("changed"), sim.fs.syncs() - before), (1000, 1));
    store.change(|draft| draft.check_new_name("t1").is_err()).expect("nothing to write");
    let rehearsed = store.rehearse(|draft| {
        draft.start_node();
        draft.image().leader_epoch()
    });
    assert_eq!(rehearsed, LeaderEpoch(2));
    assert_eq!(sim.fs.syncs() - before, 1);
    assert_eq!(store.image().leader_epoch(), LeaderEpoch(1));
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
    for other in [
        StoreOptions { node_id: 2, ..options() },
        StoreOptions { cluster_id: Some("somewhere-else".into()), ..options() },
    ] {
        let error = Store::open(&env, &other).expect_err("foreign");
        assert!(matches!(error, MetadataError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("/data/meta"), "{error}");
    }
    let own = open(&env).image().cluster_id().to_string();
    assert!(Store::open(&env, &StoreOptions { cluster_id: Some(own), ..options() }).is_ok());
}

/// The state of a store in the middle of its life: a snapshot with topics and a log with more.
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

/// What verification finds in the directory.
fn findings(env: &Env) -> Vec<MetadataFinding> {
    verify_metadata(env, &options().dir).expect("readable")
}

fn put(env: &Env, path: &Path, bytes: &[u8]) {
    let file = env.fs.open(path, OpenMode::ReadWrite).expect("opens");
    file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).expect("written");
}

#[test]
fn every_flipped_byte_of_every_file_is_found() {
    let env = lived_in(&SimEnv::new(1));
    assert_eq!(findings(&env), []);
    for path in files(&env) {
        let bytes = read_whole(&*env.fs, &path, 1 << 20).expect("readable");
        for position in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << (position % 8);
            put(&env, &path, &flipped);
            let found = findings(&env);
            let is_named = found.len() == 1 && found[0].path == path && found[0].position <= position as u64;
            assert!(is_named && !found[0].is_torn_tail, "byte {position} of {}: {found:?}", path.display());
            let result = Store::open(&env, &options());
            assert!(result.is_err(), "byte {position} of {} went unseen", path.display());
        }
        put(&env, &path, &bytes);
    }
    assert_eq!(names(&open(&env)).len(), 3);
}

#[test]
fn a_file_cut_anywhere_is_found_or_holds_what_was_answered_before() {
    let pristine = lived_in(&SimEnv::new(1));
    let all = ["in-the-snapshot", "in-the-log", "last"];
    for path in files(&pristine) {
        let is_log = !path.ends_with("snapshot");
        let bytes = read_whole(&*pristine.fs, &path, 1 << 20).expect("readable");
        for len in 0..bytes.len() {
            let env = lived_in(&SimEnv::new(1));
            put(&env, &path, &bytes[..len]);
            let found = findings(&env);
            let Ok(store) = Store::open(&env, &options()) else {
                assert!(found.iter().all(|finding| finding.path == path && !finding.is_torn_tail));
                assert_eq!(found.len(), 1, "{} cut at {len}", path.display());
                continue;
            };
            assert!(is_log, "a snapshot is whole or useless: cut at {len}");
            let ends_with_a_frame = bytes[..len].ends_with(b"\n");
            assert_eq!(found.is_empty(), ends_with_a_frame, "cut at {len}: {found:?}");
            assert!(found.iter().all(|finding| finding.is_torn_tail), "cut at {len}: {found:?}");
            let there: Vec<_> = names(&store);
            let mut expected: Vec<_> = all[..there.len()].to_vec();
            expected.sort_unstable();
            assert_eq!(there, expected, "cut at {len}: the changes before, in their order");
        }
    }
}

#[test]
fn a_missing_emptied_or_swapped_file_is_found() {
    let count = files(&lived_in(&SimEnv::new(1))).len();
    assert_eq!(count, 2, "snapshot and log");
    for index in 0..count {
        let damage: [fn(&Env, &Path, &Path); 3] = [
            |env, path, _| env.fs.remove_file(path).expect("removed"),
            |env, path, _| {
                env.fs.open(path, OpenMode::ReadWrite).and_then(|file| file.set_len(0)).expect("cut");
            },
            |env, path, other| {
                let bytes = read_whole(&*env.fs, other, 1 << 20).expect("read");
                let file = env.fs.open(path, OpenMode::ReadWrite).expect("opens");
                file.set_len(0).and_then(|()| file.write_all_at(&bytes, 0)).expect("written");
            },
        ];
        for (kind, damage) in damage.iter().enumerate() {
            let env = lived_in(&SimEnv::new(1));
            let paths = files(&env);
            damage(&env, &paths[index], &paths[1 - index]);
            let result = Store::open(&env, &options());
            assert!(result.is_err(), "damage {kind} of {} went unseen", paths[index].display());
        }
    }
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
fn what_was_answered_survives_a_power_cut_at_every_operation() {
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
fn a_snapshot_that_finds_no_descriptor_or_space_leaves_the_generation_in_use() {
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

#[test]
fn a_snapshot_whose_sync_failed_lets_nothing_change_until_a_restart() {
    // The new log, its directory, the snapshot, its directory.
    for sync in 0..4 {
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
    assert_eq!(files(&env).len(), 2, "the old log is gone");
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
    assert_eq!(store.image().partition_count(), 20_000);
    // The bounds leave room for a slow machine; a quadratic cost would be far beyond.
    assert!(made < Duration::from_mins(1), "{made:?} for 1,002 synced requests");
    assert!(loaded < Duration::from_secs(2), "{loaded:?} to load 20,000 partitions");
}
