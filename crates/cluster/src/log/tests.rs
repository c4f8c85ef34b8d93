//! Tests of the stored half of a quorum: `openraft`'s own suite, and power cuts at every step.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage as _};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, RaftLogReader as _, StorageError};
use openraft_rt::{AsyncRuntime, Oneshot as _};
use parking_lot::Mutex;
use riverrun_env::sim::{SimNode, World};
use riverrun_env::{FileSystem as _, NodeEnv, OpenMode};

use super::writer::encode;
use super::*;
use crate::machine::{Machine, StateMachine, Unreadable};
use crate::planted::{Planted, plant};
use crate::runtime::{InNode, Runtime};
use crate::types::{Command, VoterId};

static LARGE: [u8; 100_000] = [7; 100_000];
const DIRECTORY: &str = "/quorum";

/// A machine that counts.
#[derive(Default)]
struct Counter(u64);

impl Machine for Counter {
    fn apply(&mut self, _index: u64, _command: &[u8]) -> Result<Bytes, Unreadable> {
        self.0 += 1;
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), String> {
        self.0 = u64::from_le_bytes(snapshot.try_into().map_err(|_| "it is not eight bytes".to_owned())?);
        Ok(())
    }
}

/// Runs something on a node, and lets the world go on until it is done.
fn on<T: Send + 'static>(
    world: &World,
    env: &NodeEnv,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let result = Arc::new(Mutex::new(None));
    let told = Arc::clone(&result);
    env.tasks.spawn("test", Box::pin(InNode::new(env, async move { *told.lock() = Some(future.await) })));
    assert!(world.run_until(Duration::from_mins(10), || result.lock().is_some()), "it does not end");
    result.lock().take().expect("it has ended")
}

fn open(node: &SimNode) -> Result<Opened, StoreError> {
    LogStore::open(&node.env().env, Path::new(DIRECTORY))
}

fn entry(term: u64, index: u64, command: &'static str) -> Entry {
    let log_id = LogId::new_term_index(term, index);
    Entry { log_id, payload: EntryPayload::Normal(Command(Bytes::from_static(command.as_bytes()))) }
}

async fn append(store: &mut LogStore, entries: Vec<Entry>) -> io::Result<()> {
    let (sender, receiver) = <Runtime as AsyncRuntime>::Oneshot::channel();
    store.append(entries, IOFlushed::signal(sender)).await?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("nobody answers")))
}

/// Builds stores for `openraft`'s suite, each on a machine of its own.
struct Builder;

impl StoreBuilder<Types, LogStore, StateMachine<Counter>, World> for Builder {
    async fn build(&self) -> Result<(World, LogStore, StateMachine<Counter>), StorageError<Types>> {
        // The workers of a node in a world of its own would not be stepped by the suite, so these are threads.
        let world = World::new(1);
        let sim = riverrun_env::sim::SimEnv::new(1);
        let opened = LogStore::open(&sim.env(), Path::new(DIRECTORY)).expect("it opens");
        let machine = StateMachine::new(Counter::default(), opened.store.clone(), opened.snapshot)
            .expect("no snapshot");
        Ok((world, opened.store, machine))
    }
}

#[test]
fn openraft_finds_its_storage_as_it_should_be() {
    Runtime::run(async { Suite::test_all(Builder).await }).expect("the suite passes");
}

#[test]
fn votes_and_entries_are_there_after_a_power_cut() {
    for seed in 0..30 {
        let world = World::new(seed);
        let node = world.node("a");
        let mut store = open(&node).expect("it opens").store;
        let vote = Vote::new(3, VoterId { node: 1, life: 2 });
        on(&world, &node.env(), async move {
            append(&mut store, vec![entry(1, 0, "a"), entry(1, 1, "b"), entry(1, 2, "c")]).await?;
            store.truncate_after(Some(LogId::new_term_index(1, 1))).await?;
            append(&mut store, vec![entry(2, 2, "d")]).await?;
            store.save_vote(&vote).await
        })
        .expect("all is taken");
        node.cut_power();
        let mut store = open(&node).expect("it opens").store;
        let (entries, read) = on(&world, &node.env(), async move {
            (store.try_get_log_entries(..).await.expect("read"), store.read_vote().await.expect("read"))
        });
        assert_eq!(entries, [entry(1, 0, "a"), entry(1, 1, "b"), entry(2, 2, "d")], "seed {seed}");
        assert_eq!(read, Some(vote), "seed {seed}");
    }
}

/// Power goes while entries and votes are written, in the middle of a write or a sync, again and again. What was lost of what was
/// answered, if anything.
fn loss(seed: u64, planted: Planted) -> Option<String> {
    let _planting = plant(planted);
    let world = World::new(seed);
    let node = world.node("a");
    let (mut answered, mut voted) = (0, 0);
    for round in 1..6 {
        let store = match open(&node) {
            Ok(opened) => opened.store,
            Err(error) => return Some(error.to_string()),
        };
        let progress = Arc::new(Mutex::new((answered, voted)));
        node.sim().fs.stop_after(seed * 7 % 29 + round);
        let env = node.env();
        env.tasks.spawn("test", Box::pin(InNode::new(&env, write_on(store, round, Arc::clone(&progress)))));
        world.run_for(Duration::from_millis(1));
        node.cut_power();
        (answered, voted) = *progress.lock();
        let mut store = match open(&node) {
            Ok(opened) => opened.store,
            Err(error) => return Some(error.to_string()),
        };
        let (entries, vote) = on(&world, &node.env(), async move {
            (store.try_get_log_entries(..).await.expect("read"), store.read_vote().await.expect("read"))
        });
        if (entries.len() as u64) < answered
            || entries.iter().enumerate().any(|(at, entry)| entry.log_id.index != at as u64)
        {
            return Some(format!("{} entries of {answered}", entries.len()));
        }
        if vote.map_or(0, |vote| vote.leader_id.term) < voted {
            return Some(format!("vote {vote:?}, and {voted} was answered"));
        }
        node.kill();
    }
    None
}

/// Writes entries and votes in turns until one fails, and notes what was answered: the end of the log, and the term of the vote.
async fn write_on(mut store: LogStore, round: u64, answered: Arc<Mutex<(u64, u64)>>) {
    let first = store.get_log_state().await.expect("read").last_log_id.map_or(0, |id| id.index + 1);
    for index in first.. {
        if append(&mut store, vec![entry(round, index, "x")]).await.is_err() {
            return;
        }
        answered.lock().0 = index + 1;
        let term = round * 1_000 + index;
        if store.save_vote(&Vote::new(term, VoterId::default())).await.is_err() {
            return;
        }
        answered.lock().1 = term;
    }
}

#[test]
fn answered_writes_survive_power_cuts_at_any_operation() {
    let lost: Vec<_> = (0..200).filter_map(|seed| Some((seed, loss(seed, Planted::None)?))).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn votes_and_entries_that_are_not_synced_are_found() {
    for planted in [Planted::VoteNotSynced, Planted::EntriesNotSynced] {
        let found = (0..200).find_map(|seed| loss(seed, planted));
        assert!(found.is_some(), "{planted:?}");
    }
}

#[test]
fn a_full_disk_is_waited_for_and_nothing_fails() {
    let world = World::new(1);
    let node = world.node("a");
    let mut store = open(&node).expect("it opens").store;
    node.sim().fs.set_space(Some(0));
    let result = Arc::new(Mutex::new(None));
    let told = Arc::clone(&result);
    let env = node.env();
    let task =
        InNode::new(
            &env,
            async move { *told.lock() = Some(append(&mut store, vec![entry(1, 0, "a")]).await) },
        );
    env.tasks.spawn("test", Box::pin(task));
    world.run_for(Duration::from_mins(1));
    assert!(result.lock().is_none(), "it waits for room");
    node.sim().fs.set_space(None);
    world.run_for(Duration::from_mins(1));
    assert!(matches!(*result.lock(), Some(Ok(()))), "it goes on");
}

/// The snapshot that is found after a newer one was stored, and then one that was begun before it.
fn snapshot_after_an_older_one(planted: Planted) -> Option<Bytes> {
    let _planting = plant(planted);
    let world = World::new(1);
    let node = world.node("a");
    let store = open(&node).expect("it opens").store;
    on(&world, &node.env(), async move {
        store.save_snapshot(Some(7), Bytes::from_static(b"newer")).await.expect("stored");
        store.save_snapshot(Some(3), Bytes::from_static(b"older")).await.expect("answered");
    });
    node.cut_power();
    open(&node).expect("it opens").snapshot
}

#[test]
fn an_older_snapshot_does_not_replace_a_newer_one() {
    let found = [Planted::None, Planted::OlderSnapshotStored].map(snapshot_after_an_older_one);
    assert_eq!(found, [Some(Bytes::from_static(b"newer")), Some(Bytes::from_static(b"older"))]);
}

#[test]
fn a_power_cut_while_a_log_is_made_leaves_none_or_a_whole_one() {
    for seed in 0..40 {
        let world = World::new(seed);
        let node = world.node("a");
        for operations in 0..8 {
            node.sim().fs.stop_after(operations);
            // It fails, or the machine stops later.
            let _ = open(&node);
            node.cut_power();
        }
        assert!(open(&node).is_ok(), "seed {seed}");
    }
}

/// Entries that a start finds after a failed sync, and those that the next one finds after a power cut.
fn entries_after_a_failed_sync(planted: Planted) -> [Vec<Entry>; 2] {
    let _planting = plant(planted);
    let world = World::new(1);
    let node = world.node("a");
    let mut store = open(&node).expect("it opens").store;
    node.sim().fs.fail_sync_after(0);
    on(&world, &node.env(), async move { append(&mut store, vec![entry(1, 0, "a")]).await })
        .expect_err("it is not durable");
    node.kill();
    let before = open(&node).expect("it opens").store.entries();
    node.cut_power();
    [before, open(&node).expect("it opens").store.entries()]
}

#[test]
fn a_start_builds_on_nothing_that_the_page_cache_has_alone() {
    assert_eq!(entries_after_a_failed_sync(Planted::None), [vec![entry(1, 0, "a")], vec![entry(1, 0, "a")]]);
    let [before, after] = entries_after_a_failed_sync(Planted::CachedTailBelieved);
    assert_ne!(before, after);
}

/// Bytes of a log, counted from its end, of which a flipped bit does not refuse the start after a kill.
fn unnoticed_flips(planted: Planted) -> Vec<usize> {
    let _planting = plant(planted);
    let world = World::new(1);
    let node = world.node("a");
    let mut store = open(&node).expect("it opens").store;
    on(&world, &node.env(), async move { append(&mut store, vec![entry(1, 0, "a")]).await }).expect("taken");
    world.run_for(Duration::from_millis(1));
    node.kill();
    let path = Path::new("/quorum/quorum.log");
    let log = read_whole(&*node.sim().fs, path, 1 << 20).expect("read");
    let is_unnoticed = |at: &usize| {
        let other = World::new(1).node("a");
        other.sim().fs.create_dir_all(Path::new(DIRECTORY)).expect("made");
        let mut flipped = log.clone();
        flipped[*at] ^= 1 << (at % 8);
        let file = other.sim().fs.open(path, OpenMode::CreateNew).expect("made");
        file.write_all_at(&flipped, 0).expect("written");
        !matches!(open(&other), Err(StoreError::Damaged { .. }))
    };
    (0..log.len()).filter(is_unnoticed).map(|at| log.len() - at).collect()
}

#[test]
fn a_flipped_bit_of_the_last_entry_is_noticed_after_a_kill() {
    let of_the_mark: Vec<_> = (1..=24).rev().collect();
    assert_eq!(unnoticed_flips(Planted::None), of_the_mark);
    assert!(unnoticed_flips(Planted::NoMark).len() > 24);
}

#[test]
fn a_failed_sync_ends_the_log_and_answers_nothing_as_durable() {
    let world = World::new(1);
    let node = world.node("a");
    let mut store = open(&node).expect("it opens").store;
    node.sim().fs.fail_sync_after(0);
    let (first, second) = on(&world, &node.env(), async move {
        (append(&mut store, vec![entry(1, 0, "a")]).await, append(&mut store, vec![entry(1, 1, "b")]).await)
    });
    assert!(first.is_err() && second.is_err());
}

#[test]
fn a_log_that_is_mostly_purged_becomes_short_and_stays_whole() {
    let world = World::new(1);
    let node = world.node("a");
    let mut store = open(&node).expect("it opens").store;
    on(&world, &node.env(), async move {
        for index in 0..60 {
            let log_id = LogId::new_term_index(1, index);
            let payload = EntryPayload::Normal(Command(Bytes::from_static(&LARGE)));
            append(&mut store, vec![Entry { log_id, payload }]).await.expect("taken");
            if index == 50 {
                store.purge(LogId::new_term_index(1, 48)).await.expect("taken");
            }
        }
    });
    let len = node.sim().fs.stat(Path::new("/quorum/quorum.log")).expect("it is there").len;
    assert!(len < 2_000_000, "{len}");
    node.cut_power();
    let mut store = open(&node).expect("it opens").store;
    let (state, entries) = on(&world, &node.env(), async move {
        (store.get_log_state().await.expect("read"), store.try_get_log_entries(..).await.expect("read"))
    });
    assert_eq!(state.last_purged_log_id, Some(LogId::new_term_index(1, 48)));
    assert_eq!(
        entries.iter().map(|entry| entry.log_id.index).collect::<Vec<_>>(),
        (49..60).collect::<Vec<_>>()
    );
}

#[test]
fn each_flipped_bit_of_synced_records_refuses_the_start() {
    let mut content = LogContent::default();
    for record in [
        Record::Vote(Vote::new(2, VoterId { node: 1, life: 1 })),
        Record::Entry(entry(1, 0, "one")),
        Record::Entry(entry(2, 1, "two")),
        Record::Committed(LogId::new_term_index(2, 1)),
    ] {
        content.apply(record).expect("in order");
    }
    let (bytes, _) = encode(&content);
    for at in 0..bytes.len() {
        let world = World::new(1);
        let node = world.node("a");
        let fs = &node.sim().fs;
        fs.create_dir_all(Path::new(DIRECTORY)).expect("made");
        let file = fs.open(Path::new("/quorum/quorum.log"), OpenMode::CreateNew).expect("made");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        file.write_all_at(&flipped, 0).expect("written");
        let opened = open(&node);
        // Only of the last frame nothing behind it says that it was synced; the first ones say it for all.
        assert!(matches!(opened, Err(StoreError::Damaged { .. })), "byte {at}");
    }
}
