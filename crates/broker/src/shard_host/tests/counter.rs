//! The host with a machine that has nothing to do with groups: it counts, and forgets the count when it is old.

use std::convert::Infallible;
use std::sync::mpsc::{SyncSender, sync_channel};

use futures_util::FutureExt as _;
use riverrun_coordinator::{Moment, ReplyToken};
use riverrun_env::sim::SimEnv;
use riverrun_log::config::LogConfig;
use riverrun_log::{Leaves, LogStore, StoreOptions};
use riverrun_types::{DurabilityLevel, LeaderEpoch, PartitionId, TopicId};
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::rest::REST;
use super::super::*;
use super::*;
use crate::partitions::{Partition, Partitions, Placement};

/// Long enough for everything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// For so long a count is remembered.
const REMEMBERED_MS: i64 = 60_000;
const KEY: &[u8] = b"count";
const SHARDS: usize = 2;

/// A count, and those who wait until it is forgotten.
#[derive(Debug, Default)]
struct Counter {
    count: u64,
    forgotten_at: Option<Moment>,
    waiting: Vec<ReplyToken>,
}

impl Counter {
    /// Adds to the count; answers `token` with it.
    fn add(&mut self, now: Now, token: ReplyToken, more: u64) -> Step<u64> {
        self.count += more;
        self.forgotten_at = Some(Moment(now.moment.0 + REMEMBERED_MS));
        Step { replies: vec![Reply { token, body: self.count }], ..self.recorded() }
    }

    /// Answers `token` once the count is forgotten.
    fn wait(&mut self, token: ReplyToken) -> Step<u64> {
        self.waiting.push(token);
        Step::default()
    }

    fn recorded(&self) -> Step<u64> {
        let value = Some(self.count.to_be_bytes().to_vec());
        Step::of_records(vec![ShardRecord { key: KEY.to_vec(), value }])
    }
}

impl StateMachine for Counter {
    type World = Topic;
    type Response = u64;
    type ReplayError = &'static str;
    type Lent = Infallible;

    fn new(_: &Topic) -> Self {
        Self::default()
    }

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), &'static str> {
        let value = value.and_then(|value| value.try_into().ok()).filter(|_| key == KEY);
        self.count = u64::from_be_bytes(value.ok_or("no count")?);
        Ok(())
    }

    fn is_want_of_room(_: &&'static str) -> bool {
        false
    }

    fn on_loaded(&mut self, _: &Topic, _: Now) -> Vec<ShardRecord> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.forgotten_at
    }

    fn expire(&mut self, _: &Topic, _: usize, now: Now) -> Step<u64> {
        if self.forgotten_at.take_if(|at| *at <= now.moment).is_none() {
            return Step::default();
        }
        self.count = 0;
        let replies = self.waiting.drain(..).map(|token| Reply { token, body: 0 }).collect();
        Step { replies, ..self.recorded() }
    }
}

/// A topic on a simulated disk.
#[derive(Debug)]
struct Topic {
    logs: Arc<LogStore>,
    partitions: Partitions,
    level: DurabilityLevel,
}

impl ShardTopic for Topic {
    fn partition_count(&self) -> Option<usize> {
        Some(SHARDS)
    }

    fn open(&self, index: usize) -> Result<Arc<Partition>, ErrorCode> {
        let id = PartitionId { topic: TopicId([1; 16]), index: i32::try_from(index).expect("few") };
        let config = Arc::new(LogConfig { durability: self.level, ..LogConfig::default() });
        self.partitions
            .open(&Placement { id, dir: 0, config, epoch: LeaderEpoch(1) })
            .map_err(|error| crate::error::log_error(&error))
    }
}

fn topic(sim: &SimEnv, level: DurabilityLevel) -> Topic {
    let options = StoreOptions { journal_dirs: vec!["/journal".into()], ..StoreOptions::default() };
    let logs = LogStore::open(&sim.env(), &["/logs".into()], options).expect("opens");
    logs.recover(|_| LeaderEpoch(1), |_| riverrun_log::Place::Unknown).expect("recovered");
    let logs = Arc::new(logs);
    Topic { partitions: Partitions::new(Arc::clone(&logs)), logs, level }
}

type Host = Arc<ShardHost<Counter>>;

fn host(sim: &SimEnv, level: DurabilityLevel) -> Host {
    ShardHost::new(options(sim), topic(sim, level))
}

fn work(key: &str) -> Work<'_, impl Fn(&Counter) -> usize> {
    Work { asker: Asker::SERVER, key, cost: |_: &Counter| 0 }
}

async fn begin_add(host: &Host, key: &str, more: u64) -> Result<Begun<Counter>, ErrorCode> {
    let index = host.loaded(key).await?;
    host.begin(index, work(key), |counter, now, token| counter.add(now, token, more)).await
}

async fn add(host: &Host, key: &str, more: u64) -> Result<u64, ErrorCode> {
    begin_add(host, key, more).await?.reply().await
}

/// Has an addition begun by another thread, which must not wait for the disk.
async fn begin_add_elsewhere(host: &Host, more: u64) -> Begun<Counter> {
    let host = Arc::clone(host);
    let begun = tokio::spawn(async move { begin_add(&host, "a", more).await });
    timeout(PATIENCE, begun).await.expect("it waits for no disk").expect("ends").expect("taken")
}

/// Closes the logs, as when no client has used them for long.
fn close_logs(host: &Host) {
    let logs = &host.world.logs;
    logs.settle().expect("settled");
    logs.checkpoint().expect("made");
    for _ in 0..2 {
        logs.close_idle(0, Duration::ZERO);
    }
    assert_eq!(logs.open_log_count(), 0);
}

/// The disk of the logs answers nothing until this is dropped.
struct Hang<'a>(&'a SimEnv);

impl<'a> Hang<'a> {
    fn begin(sim: &'a SimEnv) -> Self {
        sim.fs.hang_device(Some("/logs".as_ref()));
        Self(sim)
    }
}

impl Drop for Hang<'_> {
    fn drop(&mut self) {
        self.0.fs.hang_device(None);
    }
}

/// Waits until something is so.
async fn until(is_so: impl Fn() -> bool) {
    let becomes_so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, becomes_so).await.expect("soon");
}

/// Looks at all shards as `/health` does, within the time for it.
async fn look(host: &Host) {
    let host = Arc::clone(host);
    let look = tokio::task::spawn_blocking(move || (host.failed_shard(), host.cut_shard()));
    assert_eq!(timeout(PATIENCE, look).await.expect("no lock is held").expect("ends"), (None, None));
}

async fn wait(host: &Host, key: &str) -> Begun<Counter> {
    let index = host.loaded(key).await.expect("loaded");
    let begun = host.begin(index, work(key), |counter, _, token| counter.wait(token));
    begun.await.expect("taken")
}

/// The disk stands still in its next sync, until what this returns is dropped.
fn standstill(sim: &SimEnv) -> SyncSender<()> {
    let (ends, ended) = sync_channel::<()>(1);
    sim.fs.during_next_sync(move || _ = ended.recv_timeout(6 * PATIENCE));
    ends
}

#[tokio::test]
async fn a_load_replays_what_was_added() {
    let sim = SimEnv::new(1);
    let before = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&before, "a", 3).await, Ok(3));
    assert_eq!(add(&before, "a", 4).await, Ok(7));
    let before = Arc::into_inner(before).expect("nobody else has it");
    let again = ShardHost::<Counter>::new(options(&sim), before.world);
    assert_eq!(add(&again, "a", 1).await, Ok(8));
    assert_ne!(shard_of("a", SHARDS), shard_of("b", SHARDS));
    assert_eq!(add(&again, "b", 1).await, Ok(1), "another shard");
}

#[tokio::test]
async fn a_reply_waits_until_its_records_are_durable() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    let ends = standstill(&sim);
    let mut first = Box::pin(add(&host, "a", 1));
    let mut second = Box::pin(add(&host, "a", 1));
    let short = Duration::from_millis(50);
    assert!(timeout(short, &mut first).await.is_err() && (&mut second).now_or_never().is_none());
    // The steps have run all the same, and none who looks is told of them.
    let slot = &host.open_slots().expect("open")[shard_of("a", SHARDS)];
    assert_eq!(slot.state.lock().loaded().expect("loaded").machine.count, 3);
    let mut look = Box::pin(host.read(slot.index, work("a"), |counter| counter.count));
    assert!(timeout(short, &mut look).await.is_err());
    drop(ends);
    assert_eq!(timeout(PATIENCE, first).await, Ok(Ok(2)));
    assert_eq!(timeout(PATIENCE, second).await, Ok(Ok(3)));
    assert_eq!(timeout(PATIENCE, look).await, Ok(Ok(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_wait_in_order_for_a_closed_log_whose_disk_hangs() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    close_logs(&host);
    let hang = Hang::begin(&sim);
    let first = begin_add_elsewhere(&host, 1).await;
    let second = begin_add_elsewhere(&host, 10).await;
    let mut read = Box::pin(host.read(shard_of("a", SHARDS), work("a"), |counter| counter.count));
    look(&host).await;
    assert!(timeout(Duration::from_millis(50), &mut read).await.is_err(), "what it has seen is not durable");
    drop(hang);
    assert_eq!(timeout(PATIENCE, read).await, Ok(Ok(12)));
    assert_eq!(timeout(PATIENCE, first.reply()).await, Ok(Ok(2)));
    assert_eq!(timeout(PATIENCE, second.reply()).await, Ok(Ok(12)));
    let slot = &host.open_slots().expect("open")[shard_of("a", SHARDS)];
    *slot.state.lock() = SlotState::NotLoaded;
    assert_eq!(add(&host, "a", 0).await, Ok(12), "the log has them all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_log_cannot_be_opened_is_loaded_anew() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    close_logs(&host);
    sim.fs.exhaust_descriptors(true);
    assert_eq!(add(&host, "a", 1).await, Err(ErrorCode::NOT_COORDINATOR));
    assert!(host.failed_shard().is_some());
    sim.fs.exhaust_descriptors(false);
    sim.clock.advance(REST);
    assert_eq!(add(&host, "a", 3).await, Ok(4), "what was acked, and no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_outlives_the_failed_opening_for_an_earlier_load() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    close_logs(&host);
    let hang = Hang::begin(&sim);
    let _begun = begin_add_elsewhere(&host, 1).await;
    let slot = Arc::clone(&host.open_slots().expect("open")[shard_of("a", SHARDS)]);
    until(|| host.world.logs.dir_work(0).is_some()).await;
    {
        // As if it had been discarded and loaded meanwhile.
        let mut state = slot.state.lock();
        slot.unappended.clear();
        state.loaded_mut().expect("loaded").load += 1;
    }
    sim.fs.exhaust_descriptors(true);
    drop(hang);
    until(|| !slot.unappended.is_served()).await;
    assert_eq!(host.failed_shard(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_is_loaded_anew_after_a_panic_of_its_thread() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    close_logs(&host);
    sim.fs.during_next_read(|| panic!("planted"));
    let answer = timeout(PATIENCE, add(&host, "a", 1)).await;
    assert_eq!(answer, Ok(Err(ErrorCode::NOT_COORDINATOR)));
    assert!(host.failed_shard().is_some());
    sim.clock.advance(REST);
    assert_eq!(timeout(PATIENCE, add(&host, "a", 3)).await, Ok(Ok(4)), "what was acked, and no more");
    close_logs(&host);
    assert_eq!(timeout(PATIENCE, add(&host, "a", 1)).await, Ok(Ok(5)), "another thread serves it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_at_an_async_level_waits_for_no_disk() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncAsync);
    assert_eq!(add(&host, "a", 1).await, Ok(1));
    host.world.logs.set_leaves(0, Leaves::WhileSlow);
    let hang = Hang::begin(&sim);
    let begun = begin_add_elsewhere(&host, 1).await;
    look(&host).await;
    drop(hang);
    host.world.logs.write_left(0, Duration::ZERO);
    assert_eq!(timeout(PATIENCE, begun.reply()).await, Ok(Ok(2)));
}

#[tokio::test]
async fn a_failed_append_answers_all_who_wait_and_reloads_the_shard() {
    let sim = SimEnv::new(1);
    // An append of this level is a write of the log's own.
    let host = host(&sim, DurabilityLevel::AsyncAsync);
    assert_eq!(add(&host, "a", 5).await, Ok(5));
    let waits = wait(&host, "a").await;
    sim.fs.set_space(Some(0));
    assert_eq!(add(&host, "a", 1).await, Err(ErrorCode::NOT_COORDINATOR));
    assert_eq!(timeout(PATIENCE, waits.reply()).await, Ok(Err(ErrorCode::NOT_COORDINATOR)));
    assert!(host.failed_shard().is_some_and(|(shard, _)| shard == shard_of("a", SHARDS)));
    assert_eq!(add(&host, "a", 1).await, Err(ErrorCode::COORDINATOR_NOT_AVAILABLE), "it rests");
    sim.fs.set_space(None);
    sim.clock.advance(REST);
    assert_eq!(add(&host, "a", 1).await, Ok(6), "what was acked, and no more");
    assert_eq!(host.failed_shard(), None);
}

#[tokio::test]
async fn a_deadline_is_served_and_answers_who_waits_for_it() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    let (stop, stopping) = watch::channel(false);
    let timer = tokio::spawn(Arc::clone(&host).run_timer(stopping));
    assert_eq!(add(&host, "a", 5).await, Ok(5));
    let mut forgotten = Box::pin(wait(&host, "a").await.reply());
    assert!(timeout(Duration::from_millis(50), &mut forgotten).await.is_err(), "it is not due");
    sim.clock.advance(Duration::from_millis(REMEMBERED_MS.unsigned_abs()));
    assert_eq!(timeout(PATIENCE, forgotten).await, Ok(Ok(0)));
    assert_eq!(add(&host, "a", 2).await, Ok(2));
    stop.send(true).expect("heard");
    timeout(PATIENCE, timer).await.expect("soon").expect("it ends");
}

#[tokio::test]
async fn a_part_that_is_lost_answers_all_who_wait_at_its_shard() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    let waits = wait(&host, "a").await;
    // A counter lends nothing: to the host its part is lost.
    let costly = Work { asker: Asker::SERVER, key: "a", cost: |_: &Counter| usize::MAX };
    let lost = host.begin(shard_of("a", SHARDS), costly, |counter, now, token| counter.add(now, token, 1));
    assert_eq!(lost.await.err(), Some(ErrorCode::NOT_COORDINATOR));
    assert_eq!(timeout(PATIENCE, waits.reply()).await, Ok(Err(ErrorCode::NOT_COORDINATOR)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_goes_on_without_the_request_that_began_it() {
    let sim = SimEnv::new(1);
    let host = host(&sim, DurabilityLevel::AsyncSync);
    sim.fs.hang_device(Some("/logs".as_ref()));
    let given_up = timeout(Duration::from_millis(50), host.loaded("a")).await;
    assert!(given_up.is_err(), "the disk does not answer");
    sim.fs.hang_device(None);
    let slot = Arc::clone(&host.open_slots().expect("open")[shard_of("a", SHARDS)]);
    // Nobody else has asked for it.
    until(|| slot.is_loaded() == Ok(true)).await;
}
