//! Entries aside for a log dir that failed, if dirs lie elsewhere at the next start: at each other's places, or with a
//! new dir at the place of an old one. They are released when they are durable in the dir that they belong to, whatever
//! lies at its old place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::FileSystem;
use riverrun_env::sim::SimEnv;
use riverrun_log::{LogError, LogStore, PartitionLog, Place};
use riverrun_types::{LeaderEpoch, PartitionId, TopicId};

use crate::machine::Machine;
use crate::pair::{DIRS, Pair, synced, values_of};

/// States of one moment that are checked.
const STATES: usize = 4;
/// More than the operations of a life.
const STOPS_MAX: u64 = 100;

/// A machine after a power cut: one dir's records are under a checkpoint, and those of the other, which had failed
/// before, are nowhere but aside. The dirs begin with two and six records.
fn with_aside(failed: usize) -> SimEnv {
    let pair = Pair::new(Machine::with_journal());
    let well = 1 - failed;
    (0..2).for_each(|number| _ = pair.append(well, &format!("well {number}")).unwrap());
    (0..6).for_each(|number| _ = pair.append(failed, &format!("aside {number}")).unwrap());
    pair.sim.fs.kill_device(Some(DIRS[failed].as_ref())).unwrap();
    pair.store.look_at_devices();
    pair.go_round(well);
    let _one_dir_has_failed = pair.store.checkpoint();
    assert!(pair.store.dir_failure(failed).is_some() && pair.store.has_aside());
    pair.sim.fs.crash();
    let Pair { sim, store, .. } = pair;
    drop(store);
    sim.fs.kill_device(None).unwrap();
    sim
}

/// Moves a dir elsewhere, for good.
fn move_dir(sim: &SimEnv, from: &str, to: &str) {
    sim.fs.rename(from.as_ref(), to.as_ref()).unwrap();
    sim.fs.sync_dir(Path::new("/")).unwrap();
}

fn partition(dir: usize) -> PartitionId {
    PartitionId { topic: TopicId([7; 16]), index: i32::try_from(dir).unwrap() }
}

/// Starts with the dirs at these paths, the partition of each in the one with its number.
fn start(sim: &SimEnv, paths: &[&str]) -> Result<LogStore, LogError> {
    let paths: Vec<_> = paths.iter().map(PathBuf::from).collect();
    let store = LogStore::open(&sim.env(), &paths, Machine::with_journal())?;
    let place = |id: PartitionId| Place::In(usize::try_from(id.index).unwrap(), synced());
    let report = store.recover(|_| LeaderEpoch(5), place)?;
    assert!(report.offline.is_empty(), "{:?}", report.offline);
    Ok(store)
}

fn log(store: &LogStore, dir: usize) -> Arc<PartitionLog> {
    store.partition(partition(dir), dir, synced(), LeaderEpoch(5)).unwrap()
}

fn aside() -> Vec<String> {
    (0..6).map(|number| format!("aside {number}")).collect()
}

/// Asserts that a start finds all entries aside for a dir, and that they are nowhere else once a checkpoint covers
/// them.
fn check(sim: &SimEnv, paths: &[&str], dir: usize, what: &str) {
    let store = start(sim, paths).unwrap();
    assert_eq!(values_of(&log(&store, dir)), aside(), "{what}");
    store.checkpoint().unwrap();
    assert!(!store.has_aside(), "{what}");
    sim.fs.crash();
    drop(store);
    let store = start(sim, paths).unwrap();
    assert_eq!(values_of(&log(&store, dir)), aside(), "{what}, under a checkpoint");
}

#[test]
fn power_cut_after_an_exchange_of_dirs_loses_no_entries_aside() {
    for failed in 0..2 {
        let before = with_aside(failed);
        move_dir(&before, DIRS[0], "/away");
        move_dir(&before, DIRS[1], DIRS[0]);
        move_dir(&before, "/away", DIRS[1]);
        let exchanged = [DIRS[1], DIRS[0]];
        let (mut is_whole, mut stop) = (false, 0);
        while !is_whole && stop < STOPS_MAX {
            // All is synced: there is one.
            let sim = before.crash_states(1).next().unwrap();
            let store = start(&sim, &exchanged).unwrap();
            sim.fs.stop_after(stop);
            is_whole = store.checkpoint().is_ok();
            for (index, state) in sim.crash_states(STATES).enumerate() {
                check(&state, &exchanged, failed, &format!("dir {failed}, stop {stop}, state {index}"));
            }
            stop += 1;
        }
        assert!(is_whole && stop > 10, "{stop}");
    }
}

#[test]
fn new_dir_at_an_old_ones_place_leaves_its_entries_aside() {
    let sim = with_aside(0);
    move_dir(&sim, DIRS[0], "/moved");
    let paths = ["/moved", DIRS[1], DIRS[0]];
    let store = start(&sim, &paths).unwrap();
    sim.fs.kill_device(Some("/moved".as_ref())).unwrap();
    assert!(store.checkpoint().is_err());
    assert!(store.dir_failure(0).is_some() && store.dir_failure(2).is_none());
    sim.fs.crash();
    drop(store);
    sim.fs.kill_device(None).unwrap();
    check(&sim, &paths, 0, "the moved dir has failed once more");
}
