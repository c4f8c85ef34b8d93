use riverrun_env::OpenMode;
use riverrun_env::sim::{SimEnv, SimFileSystem};

use super::*;
use crate::metadata::store::ACCEPT_METADATA_LOSS_FILE;
use crate::metadata::testing::producer_id;
use crate::metadata::{Store, StoreOptions, verify_mark, verify_metadata};

/// Producer ids that one change of the metadata reserves.
const BLOCK: i64 = 1000;
const CLUSTER: &str = "c";
const NODE: i32 = 1;

fn options() -> StoreOptions {
    StoreOptions {
        dir: "/meta".into(),
        node_id: NODE,
        cluster_id: Some(CLUSTER.into()),
        log_dirs: vec!["/one".into(), "/two".into()],
    }
}

fn open(env: &Env) -> Store {
    Store::open(env, &options()).expect("opens")
}

#[track_caller]
fn refused(env: &Env, options: &StoreOptions) -> String {
    let error = Store::open(env, options).expect_err("it is older");
    assert!(matches!(error, MetadataError::Older { .. }), "{error}");
    error.to_string()
}

fn accept_loss(env: &Env) {
    env.fs.open(&options().dir.join(ACCEPT_METADATA_LOSS_FILE), OpenMode::CreateNew).expect("made");
}

fn take_id(store: &Store) -> i64 {
    producer_id(store).expect("an id")
}

/// Reserves one more block.
fn begin_block(store: &Store) {
    take_id(store);
}

fn put(env: &Env, path: &Path, bytes: &[u8]) {
    let file = env.fs.open(path, OpenMode::CreateOrOpen).expect("opens");
    file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).expect("written");
}

fn mark_path(dir: &str) -> PathBuf {
    Path::new(dir).join(MARK_FILE)
}

fn put_mark(env: &Env, dir: &str, starts: i32, producer_ids_end: i64) {
    let mark = Mark { cluster: CLUSTER.into(), node: NODE, starts, producer_ids_end, added_partitions: 0 };
    put(env, &mark_path(dir), &mark.to_bytes());
}

/// The progress in the mark of a log dir.
fn told(env: &Env, dir: &str) -> Progress {
    read_mark(env, dir.as_ref()).expect("readable").expect("there").progress()
}

/// Files with their content.
type Files = Vec<(PathBuf, Vec<u8>)>;

fn files_in(env: &Env, dir: &str) -> Files {
    let entries = env.fs.read_dir(dir.as_ref()).expect("readable").into_iter();
    let paths = entries.filter(|entry| !entry.is_dir).map(|entry| Path::new(dir).join(entry.name));
    paths.map(|path| (path.clone(), read_whole(&*env.fs, &path, 1 << 20).expect("readable"))).collect()
}

fn all_files(env: &Env) -> Files {
    ["/meta", "/one", "/two"].iter().flat_map(|dir| files_in(env, dir)).collect()
}

/// Replaces the metadata by a copy.
fn restore(env: &Env, copy: &Files) {
    env.fs.remove_dir_all("/meta".as_ref()).expect("removed");
    env.fs.create_dir_all("/meta".as_ref()).expect("made");
    for (path, bytes) in copy {
        put(env, path, bytes);
    }
}

#[test]
fn an_older_copy_of_the_metadata_is_refused_and_nothing_changes() {
    for stops_in_order in [true, false] {
        let env = SimEnv::new(1).env();
        let end = |store: Store| {
            if stops_in_order {
                store.close().expect("closed");
            }
        };
        end(open(&env));
        let copy = files_in(&env, "/meta");
        let store = open(&env);
        assert_eq!(take_id(&store), 0);
        end(store);
        restore(&env, &copy);
        let before = all_files(&env);
        for _ in 0..2 {
            let error = refused(&env, &options());
            let [has, told] = [(1, 0), (2, 1000)].map(|(start, ids)| {
                format!("start {start}, producer ids below {ids} and 0 added partitions")
            });
            let what = format!("/meta is older than what this server has done: it says {has}, and ");
            let mark = format!("/two/metadata-mark says {told}. Restore");
            assert!(error.contains(&what) && error.contains(&mark), "{error}");
            assert!(error.contains("make a file accept-metadata-loss in it"), "{error}");
            assert_eq!(all_files(&env), before);
        }
        let found = verify_metadata(&env, "/meta".as_ref(), &options().log_dirs).expect("readable");
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert!(finding.path == mark_path("/two") && !finding.is_torn_tail, "{finding:?}");
        assert!(finding.what.contains("the metadata is older than this mark"), "{finding:?}");
    }
}

#[test]
fn copy_of_the_same_run_is_refused_after_more_producer_ids() {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    let without_ids = files_in(&env, "/meta");
    begin_block(&store);
    let with_ids = files_in(&env, "/meta");
    drop(store);
    restore(&env, &without_ids);
    let error = refused(&env, &options());
    assert!(error.contains("start 1, producer ids below 0 and 0 added partitions, and"), "{error}");
    restore(&env, &with_ids);
    assert_eq!(take_id(&open(&env)), BLOCK, "it lacks nothing that counts");
}

#[test]
fn accepted_loss_lets_starts_and_ids_go_on_above_every_mark() {
    let env = SimEnv::new(1).env();
    drop(open(&env));
    put_mark(&env, "/one", 70_000, 0);
    put_mark(&env, "/two", 50, 1 << 50);
    assert!(refused(&env, &options()).contains("/one/metadata-mark"), "the one that is furthest is named");
    accept_loss(&env);
    let store = open(&env);
    let (start, id) = (store.image().cluster.starts(), take_id(&store));
    assert!(start > 70_000 && id >= 1 << 50, "start {start}, id {id}");
    assert_eq!(["/one", "/two"].map(|dir| told(&env, dir)), [Progress::of(&store.cluster()); 2]);
    drop(store);
    assert_eq!(open(&env).image().cluster.starts(), start + 1, "for this once");
}

#[test]
fn a_mark_of_numbers_that_no_server_reaches_is_damaged() {
    let starts = [i32::MAX, STARTS_MAX + 1, -1, i32::MIN].map(|starts| (starts, 0));
    let ids = [i64::MAX, COUNT_MAX + 1, -1, i64::MIN].map(|end| (0, end));
    for (starts, producer_ids_end) in starts.into_iter().chain(ids) {
        let env = SimEnv::new(1).env();
        drop(open(&env));
        put_mark(&env, "/one", starts, producer_ids_end);
        let found = verify_mark(&env, "/one".as_ref()).expect("readable");
        assert!(found.len() == 1 && found[0].what.contains("no server comes as far"), "{found:?}");
        let store = open(&env);
        assert_eq!((store.image().cluster.starts(), take_id(&store)), (2, 0));
        assert_eq!(told(&env, "/one"), Progress::of(&store.cluster()));
    }
}

#[test]
fn numbers_have_room_above_the_largest_possible_mark() {
    let env = SimEnv::new(1).env();
    drop(open(&env));
    let mut last = Progress { starts: STARTS_MAX, producer_ids_end: COUNT_MAX, added_partitions: 0 };
    for _ in 0..3 {
        put_mark(&env, "/one", STARTS_MAX, COUNT_MAX);
        accept_loss(&env);
        let store = open(&env);
        let (start, id) = (store.image().cluster.starts(), take_id(&store));
        assert!(start > last.starts && id >= last.producer_ids_end, "start {start}, id {id}");
        last = Progress::of(&store.cluster());
    }
    assert!(take_id(&open(&env)) >= last.producer_ids_end, "its own marks hold up nobody");
}

#[test]
fn unusable_mark_does_not_refuse_a_start_and_is_written_anew() {
    let env = SimEnv::new(1).env();
    drop(open(&env));
    let path = mark_path("/one");
    let bytes = read_whole(&*env.fs, &path, MARK_BYTES_MAX).expect("there");
    let flipped = (0..bytes.len()).map(|position| {
        let mut bytes = bytes.clone();
        bytes[position] ^= 1 << (position % 8);
        bytes
    });
    let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    let longer = [1, 5000].map(|len| [bytes.clone(), vec![b'x'; len]].concat());
    let starts_anew = |what: &str| {
        let store = open(&env);
        assert_eq!(told(&env, "/one"), Progress::of(&store.cluster()), "{what}");
        assert_eq!(verify_mark(&env, "/one".as_ref()).expect("readable"), [], "{what}");
    };
    for (number, damaged) in flipped.chain(cut).chain(longer).enumerate() {
        put(&env, &path, &damaged);
        let found = verify_mark(&env, "/one".as_ref()).expect("readable");
        assert!(found.len() == 1 && found[0].path == path, "damage {number}: {found:?}");
        starts_anew(&format!("damage {number}"));
    }
    env.fs.remove_file(&path).expect("removed");
    assert_eq!(verify_mark(&env, "/one".as_ref()).expect("readable"), [], "an older build wrote none");
    starts_anew("missing");
    for (cluster, node) in [("another", NODE), (CLUSTER, NODE + 1)] {
        let far = 10_000;
        let mark = Mark {
            cluster: cluster.into(),
            node,
            starts: 10_000,
            producer_ids_end: far,
            added_partitions: far,
        };
        put(&env, &path, &mark.to_bytes());
        starts_anew(&format!("of cluster {cluster}, node {node}"));
    }
}

#[test]
fn one_mark_is_enough_wherever_its_log_dir_lies_now() {
    let env = SimEnv::new(1).env();
    drop(open(&env));
    let copy = files_in(&env, "/meta");
    drop(open(&env));
    env.fs.remove_file(&mark_path("/one")).expect("removed");
    env.fs.rename("/two".as_ref(), "/moved".as_ref()).expect("moved");
    restore(&env, &copy);
    let dirs = ["/moved", "/one", "/new"];
    let moved = StoreOptions { log_dirs: dirs.map(PathBuf::from).to_vec(), ..options() };
    assert!(refused(&env, &moved).contains("/moved/metadata-mark says start 2"));
    accept_loss(&env);
    let store = Store::open(&env, &moved).expect("opens");
    assert_eq!(dirs.map(|dir| told(&env, dir)), [Progress::of(&store.cluster()); 3]);
}

#[test]
fn dead_log_dir_hides_no_other_mark_and_refuses_no_start() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    drop(open(&env));
    let older = files_in(&env, "/meta");
    drop(open(&env));
    let newest = files_in(&env, "/meta");
    sim.fs.kill_device(Some("/one".as_ref())).expect("there");
    restore(&env, &older);
    assert!(refused(&env, &options()).contains("/two/metadata-mark says start 2"));
    restore(&env, &newest);
    let store = open(&env);
    begin_block(&store);
    assert_eq!(told(&env, "/two"), Progress::of(&store.cluster()));
    drop(store);
    sim.fs.kill_device(None).expect("it is back");
    let store = open(&env);
    assert_eq!(told(&env, "/one"), Progress::of(&store.cluster()));
}

#[test]
fn mark_without_room_is_written_later_and_holds_up_no_ids() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let store = open(&env);
    let next_block = || {
        begin_block(&store);
        ["/one", "/two"].map(|dir| told(&env, dir) == Progress::of(&store.cluster()))
    };
    assert_eq!(next_block(), [true, true]);
    sim.fs.fill_device(Some("/one".as_ref()));
    assert_eq!((next_block(), next_block()), ([false, true], [false, true]));
    sim.fs.fill_device(None);
    assert_eq!(next_block(), [true, true]);
    sim.fs.refuse_renames(true);
    assert_eq!(next_block(), [false, false]);
    sim.fs.refuse_renames(false);
    assert_eq!(next_block(), [true, true]);
}

#[test]
fn mark_that_the_disk_refused_waits_for_a_restart() {
    for fail_after in [SimFileSystem::fail_write_after, SimFileSystem::fail_sync_after] {
        let sim = SimEnv::new(1);
        let env = sim.env();
        let store = open(&env);
        let mut operations = Vec::new();
        let mut next_block = || {
            let before = sim.fs.operations();
            begin_block(&store);
            operations.push(sim.fs.operations() - before);
        };
        next_block();
        let early = told(&env, "/one");
        // After the metadata log and its copy.
        fail_after(&sim.fs, 2);
        next_block();
        next_block();
        next_block();
        assert_eq!((told(&env, "/one"), told(&env, "/two")), (early, Progress::of(&store.cluster())));
        let [all, _, one, one_again] = operations[..] else { panic!("{operations:?}") };
        assert!(one < all && one == one_again, "{operations:?}");
        drop(store);
        let store = open(&env);
        assert_eq!(told(&env, "/one"), Progress::of(&store.cluster()));
    }
}

/// Two starts, and an id in the second one. Answers copies of the metadata from before the second start and from before
/// the id, and how many operations came after the first start.
fn whole_life() -> ([Files; 2], u64) {
    let sim = SimEnv::new(1);
    let env = sim.env();
    drop(open(&env));
    let (of_first, before) = (files_in(&env, "/meta"), sim.fs.operations());
    let store = open(&env);
    let of_second = files_in(&env, "/meta");
    take_id(&store);
    ([of_first, of_second], sim.fs.operations() - before)
}

/// The same on a machine that stops so many operations after the first start. Answers whether the second start and the id
/// came before that.
fn life_until(sim: &SimEnv, operations: u64) -> [bool; 2] {
    let env = sim.env();
    drop(open(&env));
    sim.fs.stop_after(operations);
    let is_alive = || env.fs.exists("/".as_ref()).is_ok();
    let Ok(store) = Store::open(&env, &options()) else { return [false; 2] };
    let is_open = is_alive();
    [is_open, producer_id(&store).is_ok() && is_alive()]
}

#[test]
fn metadata_passes_after_any_power_cut_and_older_ones_fail() {
    let (copies, operations) = whole_life();
    let mut counted = [0; 2];
    // The machine counts as stopped with the last operation that it carries out.
    for stop in 0..=operations + 1 {
        let sim = SimEnv::new(1);
        let has_come = life_until(&sim, stop);
        for (index, state) in sim.crash_states(20).enumerate() {
            let again = || state.crash_states(1).next().expect("the disk itself").env();
            let case = format!("stop {stop}, state {index}");
            Store::open(&again(), &options()).unwrap_or_else(|error| panic!("{case}: {error}"));
            for (what, (copy, has_come)) in ["start", "id"].iter().zip(copies.iter().zip(has_come)) {
                let env = again();
                restore(&env, copy);
                let opened = Store::open(&env, &options());
                let is_refused = matches!(opened, Err(MetadataError::Older { .. }));
                assert!(is_refused || !has_come, "{case}: the {what} is forgotten");
            }
        }
        has_come.iter().zip(&mut counted).for_each(|(has_come, count)| *count += u64::from(*has_come));
    }
    let [starts, ids] = counted;
    assert!(
        operations > starts && starts > ids && ids > 0,
        "{starts} starts, {ids} ids, {operations} operations"
    );
}

#[test]
fn log_dir_that_was_taken_away_gets_no_mark_in_its_place() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let store = open(&env);
    let dir = &options().log_dirs[0];
    env.fs.rename(dir, "/away".as_ref()).expect("renamed");
    env.fs.create_dir(dir).expect("made");
    begin_block(&store);
    assert!(env.fs.read_dir(dir).expect("there").is_empty());
    env.fs.remove_dir(dir).expect("empty");
    env.fs.rename("/away".as_ref(), dir).expect("renamed");
    let before = told(&env, dir.to_str().expect("text")).producer_ids_end;
    begin_block(&store);
    assert!(told(&env, dir.to_str().expect("text")).producer_ids_end > before, "it is back");
}

#[test]
fn a_disk_that_does_not_answer_holds_up_no_ids_and_is_told_of() {
    let sim = SimEnv::new(1);
    let env = sim.env();
    let store = open(&env);
    begin_block(&store);
    assert_eq!(store.unanswered_mark(), None);
    // As if its disk had not answered an earlier attempt yet.
    let late = &store.marks().0[1];
    *late.attempt.lock() = Attempt { is_running: true, is_late: false };
    let begun = std::time::Instant::now();
    begin_block(&store);
    begin_block(&store);
    assert!(begun.elapsed() < 3 * PATIENCE, "it is waited for once: {:?}", begun.elapsed());
    assert_eq!(store.unanswered_mark(), Some(mark_path("/two").as_path()));
    let told = |dir: &str| read_mark(&env, Path::new(dir)).expect("whole").expect("there").producer_ids_end;
    assert!(told("/one") > told("/two"), "the other log dir remembers");
    late.end_attempt();
    begin_block(&store);
    assert_eq!(store.unanswered_mark(), None);
    assert_eq!(told("/one"), told("/two"));
}
