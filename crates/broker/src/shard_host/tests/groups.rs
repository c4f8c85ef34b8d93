//! The host's promises to groups when the disk fails: nobody is told of what is not in the log.

mod clocks;
mod sent;
mod trouble;

use std::net::SocketAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use parking_lot::Mutex;
use riverrun_coordinator::{GroupResponse, RequestContext as GroupContext, Shard, Step as GroupStep};
use riverrun_env::sim::SimEnv;
use riverrun_log::Leaves;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, DeleteTopicsRequest,
    DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, ListGroupsRequest, OffsetCommitRequest,
    encode_request,
};
use riverrun_types::TopicId;
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::held::HELD_STEPS_MAX;
use super::super::rest::REST;
use super::super::*;
use crate::aside::{self, Aside};
use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::context::{ConnectionInfo, RequestContext};
use crate::flow::budget::MemoryBudget;
use crate::flow::source::Source;
use crate::handlers;
use crate::handlers::router::Router;
use crate::net::dispatch::{Dispatch as _, Staged};
use crate::response::Outcome;
use crate::start::open_broker;

/// Long enough for everything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// After this time requests whose records wait for the disk are answered, where a test has them wait.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// The system's text for a full disk.
const NO_SPACE: &str = "no storage space";

/// A server without sockets, and what keeps its timer going. Its time passes about as fast as ours.
async fn start(sim: &SimEnv) -> (Arc<Broker>, watch::Sender<bool>) {
    start_at(sim, "1").await
}

/// As [`start`], with group offsets at this level.
async fn start_at(sim: &SimEnv, level: &str) -> (Arc<Broker>, watch::Sender<bool>) {
    start_with(sim, ("offsets.topic.durability", level)).await
}

/// As [`start`], with this option.
async fn start_with(sim: &SimEnv, option: (&str, &str)) -> (Arc<Broker>, watch::Sender<bool>) {
    start_shards(sim, "1", option).await
}

/// As [`start_with`], with so many shards.
async fn start_shards(
    sim: &SimEnv,
    shards: &str,
    option: (&str, &str),
) -> (Arc<Broker>, watch::Sender<bool>) {
    let config = BrokerConfig::from_pairs([
        ("data.dir", "/data"),
        ("offsets.topic.num.partitions", shards),
        ("group.initial.rebalance.delay.ms", "0"),
        option,
    ]);
    let broker = open_broker(sim.env(), config.expect("valid")).expect("opens");
    broker.catalog.offsets_topic(Source::SOME).await.expect("made");
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(broker.groups.run_timer(stopping));
    let clock = Arc::clone(&sim.clock);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            clock.advance(Duration::from_millis(1));
        }
    });
    (broker, stop)
}

async fn create_topic(broker: &Arc<Broker>) {
    let refused = broker
        .catalog
        .create_missing_topics(Source::SOME, vec!["t".to_owned()], |_| ())
        .await
        .expect("durable");
    assert!(refused.is_empty(), "{refused:?}");
}

fn topic_id(broker: &Broker) -> TopicId {
    broker.catalog.cluster().topic("t").expect("made").id
}

fn context() -> RequestContext {
    context_of(1)
}

/// The context of a request from the source 127.0.0.`last`.
fn context_of(last: u8) -> RequestContext {
    let peer = SocketAddr::from(([127, 0, 0, last], 1));
    let connection = ConnectionInfo::new(last.into(), peer, Arc::from("PLAINTEXT"));
    RequestContext { connection: Arc::new(connection), client_id: Arc::from("test") }
}

async fn commit(broker: &Arc<Broker>, committed_offset: i64) -> ErrorCode {
    commit_of(broker, "simple", committed_offset).await
}

async fn commit_of(broker: &Arc<Broker>, group_id: &str, committed_offset: i64) -> ErrorCode {
    let partition = OffsetCommitRequestPartition { committed_offset, ..Default::default() };
    let topics = vec![OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest { group_id: group_id.into(), topics, ..Default::default() };
    let response = handlers::offset_commit::handle(broker, &context(), request, 9).await;
    ErrorCode(response.topics[0].partitions[0].error_code)
}

async fn join(broker: &Arc<Broker>) -> ErrorCode {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    let request = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    let context = context();
    let topics = broker.groups.topics();
    let join = |shard: &mut Shard, context: &GroupContext<'_>| shard.join_group(context, &request, &topics);
    match broker.groups.request(&context, 3, "g", |_| 0, join).await {
        Ok(GroupResponse::JoinGroup(response)) => ErrorCode(response.error_code),
        Ok(other) => panic!("{other:?}"),
        Err(code) => code,
    }
}

async fn try_committed(broker: &Arc<Broker>) -> Result<Vec<i64>, ErrorCode> {
    let offsets = broker.groups.read_all(|shard, _| {
        (shard.committed_offsets().map(|(.., committed)| committed.offset.0).collect(), None)
    });
    let shards: Result<Vec<_>, _> = offsets.await.into_iter().collect();
    shards.map(|shards| shards.concat())
}

async fn committed(broker: &Arc<Broker>) -> Vec<i64> {
    try_committed(broker).await.expect("loads")
}

/// The committed offsets, as soon as the disk has done its work.
async fn committed_at_last(sim: &SimEnv, broker: &Arc<Broker>) -> Vec<i64> {
    let tries = async {
        loop {
            sim.clock.advance(REST);
            if let Ok(offsets) = try_committed(broker).await {
                return offsets;
            }
            // A loop without a pause would have the clock pass the time after which offsets expire.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, tries).await.expect("loads")
}

/// The disk stands still from the next sync on, until this is dropped; and it is still slow then.
struct DiskStandsStill(#[expect(dead_code, reason = "dropping it ends the standstill")] SyncSender<()>);

impl DiskStandsStill {
    fn new(sim: &SimEnv) -> Self {
        let (ends, ended) = sync_channel::<()>(1);
        sim.fs.during_next_sync(move || {
            let _ = ended.recv_timeout(6 * PATIENCE);
            std::thread::sleep(2 * STUCK_AFTER);
        });
        Self(ends)
    }
}

/// Waits until a request waits for its reply.
async fn until_one_waits(broker: &Arc<Broker>) {
    let waits = async {
        while broker.groups.host.unanswered.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it waits");
}

#[tokio::test]
async fn a_failed_append_answers_all_requests_and_undoes_its_step() {
    let sim = SimEnv::new(1);
    // At this level an append is a write of the log's own.
    let (broker, _stop) = start_at(&sim, "4").await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE));
    // A second member waits for the first to come back.
    let other = Arc::clone(&broker);
    let waiting = tokio::spawn(async move { join(&other).await });
    until_one_waits(&broker).await;
    sim.fs.set_space(Some(0));
    assert_eq!(commit(&broker, 8).await, ErrorCode::NOT_COORDINATOR);
    let answered = timeout(PATIENCE, waiting).await.expect("answered").expect("ends");
    assert_eq!(answered, ErrorCode::NOT_COORDINATOR);
    assert!(broker.groups.host.unanswered.lock().is_empty());
    // Nobody reads the log again and again while it is in trouble.
    assert_eq!(commit(&broker, 9).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    sim.fs.set_space(None);
    sim.clock.advance(REST);
    assert_eq!(committed(&broker).await, [7], "what was acked, and nothing else");
    assert_eq!(commit(&broker, 10).await, ErrorCode::NONE);
    assert_eq!(committed(&broker).await, [10]);
}

#[tokio::test]
async fn a_shard_that_has_rested_is_loaded_again_though_nobody_asks() {
    let sim = SimEnv::new(1);
    let (broker, stop) = start_at(&sim, "4").await;
    tokio::spawn(broker.groups.run_retries(stop.subscribe()));
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    sim.fs.set_space(Some(0));
    assert_eq!(commit(&broker, 8).await, ErrorCode::NOT_COORDINATOR);
    let failed = broker.groups.failed_shard();
    assert!(failed.is_some_and(|(shard, why)| shard == 0 && why.contains(NO_SPACE)));
    sim.fs.set_space(None);
    let well = async {
        while broker.groups.failed_shard().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, well).await.expect("loaded");
}

#[tokio::test]
async fn a_shard_that_is_not_loaded_holds_up_no_deadline_of_another() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_shards(&sim, "2", ("group.initial.rebalance.delay.ms", "100")).await;
    // Nothing that was started has run yet.
    let slots = broker.groups.host.open_slots().expect("made");
    let _loading = slots[0].loading.try_lock().expect("nobody loads it");
    assert_eq!(shard_of("g", 2), 1);
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE), "when its delay is over");
    assert!(slots[0].state.lock().loaded().is_none());
}

#[tokio::test]
async fn a_failed_sync_answers_all_requests_and_undoes_their_steps() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE));
    let other = Arc::clone(&broker);
    let waiting = tokio::spawn(async move { join(&other).await });
    until_one_waits(&broker).await;
    sim.fs.fail_sync_after(0);
    assert_eq!(timeout(PATIENCE, commit(&broker, 8)).await, Ok(ErrorCode::NOT_COORDINATOR));
    let answered = timeout(PATIENCE, waiting).await.expect("answered").expect("ends");
    assert_eq!(answered, ErrorCode::NOT_COORDINATOR);
    assert!(broker.groups.host.unanswered.lock().is_empty());
    assert_eq!(commit(&broker, 9).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    sim.clock.advance(REST);
    assert_eq!(committed(&broker).await, [7], "what was acked, and nothing else");
    // The journal takes nothing more until a restart; what a power cut leaves has what was acked.
    assert_ne!(commit(&broker, 10).await, ErrorCode::NONE);
    // The same again: it rests for longer.
    sim.clock.advance(REST);
    assert_eq!(commit(&broker, 10).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    sim.clock.advance(REST);
    assert_eq!(commit(&broker, 10).await, ErrorCode::NOT_COORDINATOR);
    drop(broker);
    sim.fs.crash();
    let (broker, _stop) = start(&sim).await;
    let kept = committed(&broker).await;
    assert!([[7], [8], [10]].contains(&[kept[0]]), "{kept:?}");
    assert_eq!(commit(&broker, 11).await, ErrorCode::NONE);
    assert_eq!(committed(&broker).await, [11]);
}

#[tokio::test]
async fn a_commit_is_answered_after_its_timeout_when_the_disk_hangs() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "500")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let standstill = DiskStandsStill::new(&sim);
    let refused = timeout(PATIENCE, commit(&broker, 8)).await;
    assert_eq!(refused, Ok(ErrorCode::COORDINATOR_NOT_AVAILABLE));
    drop(standstill);
    assert_eq!(committed_at_last(&sim, &broker).await, [8], "it has become durable after all");
}

#[tokio::test]
async fn a_failed_shard_with_undecided_records_holds_up_no_request() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "500")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let standstill = DiskStandsStill::new(&sim);
    assert_eq!(commit(&broker, 8).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let slot = &broker.groups.host.open_slots().expect("open")[0];
    let partition = Arc::clone(&slot.state.lock().loaded().expect("loaded").partition);
    slot.fail(&mut slot.state.lock(), &"no space");
    let waiting = partition.waiting_acks();
    let deleted = [("t", topic_id(&broker))];
    for _ in 0..2 {
        sim.clock.advance(REST);
        let refused = timeout(PATIENCE, commit(&broker, 9)).await;
        assert_eq!(refused, Ok(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        sim.clock.advance(REST);
        let refused = timeout(PATIENCE, broker.groups.topics_deleted(&deleted)).await;
        assert_eq!(refused, Ok(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)));
    }
    assert_eq!(partition.waiting_acks(), waiting, "a try leaves nothing behind");
    drop(standstill);
    assert_eq!(committed_at_last(&sim, &broker).await, [8], "it has become durable after all");
}

async fn heartbeat(broker: &Arc<Broker>) -> ErrorCode {
    let request = HeartbeatRequest { group_id: "g".into(), member_id: "m".into(), ..Default::default() };
    ErrorCode(handlers::heartbeat::handle(broker, &context(), request, 4).await.error_code)
}

#[tokio::test]
async fn requests_leave_nothing_behind_while_the_log_takes_nothing() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "500")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let standstill = DiskStandsStill::new(&sim);
    assert_eq!(commit(&broker, 8).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let slot = &broker.groups.host.open_slots().expect("open")[0];
    let partition = Arc::clone(&slot.state.lock().loaded().expect("loaded").partition);
    let waiting = partition.waiting_acks();
    for _ in 0..100 {
        let refused = timeout(STUCK_AFTER / 2, try_committed(&broker)).await;
        assert_eq!(refused, Ok(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)), "at once");
    }
    // These are members still, if they were before.
    let beats = join_all((0..100).map(|_| heartbeat(&broker))).await;
    assert_eq!(beats, vec![ErrorCode::COORDINATOR_NOT_AVAILABLE; 100]);
    assert_eq!(partition.waiting_acks(), waiting);

    fill(&broker).await;
    let waiting = partition.waiting_acks();
    let refused = timeout(STUCK_AFTER / 2, commit(&broker, 10)).await;
    assert_eq!(refused, Ok(ErrorCode::COORDINATOR_NOT_AVAILABLE), "at once");
    assert_eq!(heartbeat(&broker).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(partition.waiting_acks(), waiting);
    drop(standstill);
    assert_eq!(committed_at_last(&sim, &broker).await, [9], "what was taken has become durable");
}

/// A heartbeat of a KIP-848 member that subscribes to this topic; its error, and its epoch then.
async fn beat(broker: &Arc<Broker>, member_epoch: i32, topic: &str) -> (ErrorCode, i32) {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: "consumers".into(),
        member_id: "m".into(),
        member_epoch,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![topic.to_owned().into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let response = handlers::consumer_group_heartbeat::handle(broker, &context(), request, 1).await;
    (ErrorCode(response.error_code), response.member_epoch)
}

/// Commits until no more changes of a shard may wait for the log.
async fn fill(broker: &Arc<Broker>) {
    let commits = join_all((0..HELD_STEPS_MAX).map(|_| commit(broker, 9))).await;
    assert_eq!(commits, vec![ErrorCode::COORDINATOR_NOT_AVAILABLE; HELD_STEPS_MAX]);
}

#[tokio::test]
async fn a_subscription_adds_nothing_while_the_log_takes_nothing() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "500")).await;
    create_topic(&broker).await;
    let (error, epoch) = beat(&broker, 0, "t").await;
    assert_eq!(error, ErrorCode::NONE);
    let standstill = DiskStandsStill::new(&sim);
    assert_eq!(commit(&broker, 8).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    fill(&broker).await;
    let slot = &broker.groups.host.open_slots().expect("open")[0];
    let partition = Arc::clone(&slot.state.lock().loaded().expect("loaded").partition);
    let waiting = partition.waiting_acks();
    let topics: Vec<String> = (0..100).map(|number| format!("other-{number}")).collect();
    let beats = join_all(topics.iter().map(|topic| beat(&broker, epoch, topic))).await;
    assert!(beats.iter().all(|(error, _)| *error == ErrorCode::COORDINATOR_NOT_AVAILABLE), "{beats:?}");
    assert_eq!(partition.waiting_acks(), waiting);
    drop(standstill);
    let durable = async {
        while try_committed(&broker).await != Ok(vec![9]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, durable).await.expect("the disk goes on");
    // A group is not assigned anew more often than once in this time.
    sim.clock.advance(Duration::from_secs(1));
    let (error, later) = beat(&broker, epoch, "other").await;
    assert_eq!((error, later), (ErrorCode::NONE, epoch + 1), "nothing of all that has counted");
}

/// Whether all but the last shard were refused, as those whose records wait for the disk.
async fn are_all_but_the_last_refused(broker: &Arc<Broker>) -> bool {
    let seen = broker.groups.read_all(|_, _| (vec![()], None)).await;
    let (last, others) = seen.split_last().expect("shards");
    *last == Ok(vec![()])
        && others.iter().all(|outcome| *outcome == Err(ErrorCode::COORDINATOR_NOT_AVAILABLE))
}

#[tokio::test]
async fn many_stuck_shards_hold_up_a_request_for_all_as_one_does() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_shards(&sim, "8", ("offsets.commit.timeout.ms", "500")).await;
    create_topic(&broker).await;
    broker.groups.host.load_all().await;
    let slots = broker.groups.host.open_slots().expect("open");
    let (well, stuck) = slots.split_last().expect("shards");
    let _standstill = DiskStandsStill::new(&sim);
    let group_in = |shard| (0..1_000).map(|n| format!("g{n}")).find(|group| shard_of(group, 8) == shard);
    let groups: Vec<String> = (0..stuck.len()).filter_map(group_in).collect();
    let refused = join_all(groups.iter().map(|group| commit_of(&broker, group, 1))).await;
    assert_eq!(refused, vec![ErrorCode::COORDINATOR_NOT_AVAILABLE; stuck.len()]);

    // The time from here on is that of the waits alone, however slow the machine is.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    assert!(are_all_but_the_last_refused(&broker).await);
    assert!(begun.elapsed() < 2 * STUCK_AFTER, "loaded: {:?}", begun.elapsed());
    for slot in slots {
        slot.fail(&mut slot.state.lock(), &"no space");
    }
    sim.clock.advance(REST);
    let begun = tokio::time::Instant::now();
    assert!(are_all_but_the_last_refused(&broker).await);
    assert!(begun.elapsed() < 2 * STUCK_AFTER, "failed: {:?}", begun.elapsed());

    well.fail(&mut well.state.lock(), &"other trouble");
    sim.clock.advance(4 * REST);
    let begun = tokio::time::Instant::now();
    broker.groups.host.load_rested().await;
    assert!(well.state.lock().loaded().is_some());
    assert!(begun.elapsed() < STUCK_AFTER, "nobody waits for them: {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_request_does_not_wait_while_others_have_all_shards_read() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let slot = &broker.groups.host.open_slots().expect("open")[0];
    *slot.state.lock() = SlotState::NotLoaded;
    let many = u32::try_from(READS_MAX).expect("few");
    let others = broker.groups.host.turns.acquire_many(many).await.expect("open");
    let short = Duration::from_millis(50);
    assert!(timeout(short, try_committed(&broker)).await.is_err());
    let deleted = [("u", TopicId([7; 16]))];
    assert!(timeout(short, broker.groups.topics_deleted(&deleted)).await.is_err());
    slot.fail(&mut slot.state.lock(), &"trouble");
    sim.clock.advance(REST);
    assert!(timeout(short, broker.groups.host.load_rested()).await.is_err());
    assert_eq!(timeout(PATIENCE, commit(&broker, 8)).await, Ok(ErrorCode::NONE));
    drop(others);
    assert_eq!(committed(&broker).await, [8]);
}

#[tokio::test]
async fn offsets_of_deleted_topics_are_dropped_when_a_shard_is_loaded() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let id = broker.catalog.cluster().topic("t").expect("made").id;
    // The topic is deleted, and the server killed before the groups have heard of it.
    let deleted = broker.catalog.propose(Source::SOME, move |draft| draft.delete_topic(id).map(|_| ())).await;
    deleted.expect("durable").expect("deleted");
    drop(broker);
    sim.fs.kill();
    let (broker, _stop) = start(&sim).await;
    assert_eq!(committed(&broker).await, Vec::<i64>::new());
    // They are out of the log, too: a topic that is made again under the name does not inherit them.
    create_topic(&broker).await;
    drop(broker);
    sim.fs.kill();
    let (broker, _stop) = start(&sim).await;
    assert_eq!(committed(&broker).await, Vec::<i64>::new());
}

#[tokio::test]
async fn a_commit_to_a_topic_made_anew_survives_the_older_deletion() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 5).await, ErrorCode::NONE);
    let old = topic_id(&broker);
    let deleted =
        broker.catalog.propose(Source::SOME, move |draft| draft.delete_topic(old).map(|_| ())).await;
    deleted.expect("durable").expect("deleted");
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    assert_eq!(broker.groups.topics_deleted(&[("t", old)]).await, Ok(()));
    assert_eq!(committed(&broker).await, [7]);
}

/// Deletes the topic by the request for it.
async fn delete_topic(broker: &Arc<Broker>) -> ErrorCode {
    let request = DeleteTopicsRequest { topic_names: vec!["t".into()], ..Default::default() };
    let response = handlers::delete_topics::handle(broker, &context(), request, 5).await;
    ErrorCode(response.responses[0].error_code)
}

#[tokio::test]
async fn offsets_of_a_topic_go_though_the_client_that_deletes_it_left() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let still = DiskStandsStill::new(&sim);
    assert!(timeout(STUCK_AFTER, delete_topic(&broker)).await.is_err());
    drop(still);
    let gone = async {
        while !committed_at_last(&sim, &broker).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, gone).await.is_ok(), "they stay");
    assert!(broker.catalog.cluster().topic("t").is_none());
}

#[tokio::test]
async fn a_topic_made_anew_inherits_no_offsets_from_a_resting_shard() {
    for is_killed in [false, true] {
        let sim = SimEnv::new(1);
        let (mut broker, _stop) = start_at(&sim, "4").await;
        create_topic(&broker).await;
        assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
        sim.fs.set_space(Some(0));
        assert_eq!(commit(&broker, 8).await, ErrorCode::NOT_COORDINATOR);
        sim.fs.set_space(None);
        assert_eq!(delete_topic(&broker).await, ErrorCode::NONE);
        create_topic(&broker).await;
        let _later;
        if is_killed {
            drop(broker);
            sim.fs.kill();
            (broker, _later) = start_at(&sim, "4").await;
        }
        sim.clock.advance(REST);
        assert_eq!(committed(&broker).await, Vec::<i64>::new());
        assert_eq!(commit(&broker, 9).await, ErrorCode::NONE);
        assert_eq!(committed(&broker).await, [9]);
    }
}

#[tokio::test]
async fn a_request_that_its_client_gives_up_leaves_nothing_behind() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE));
    for _ in 0..10 {
        let given_up = timeout(Duration::from_millis(5), join(&broker)).await;
        assert!(given_up.is_err(), "it waits for the first member");
    }
    assert!(broker.groups.host.unanswered.lock().is_empty());
}

/// Has a step on this group go on until it is told to end; it has begun when this is over.
async fn begin_long_step(
    broker: &Arc<Broker>,
    group_id: &'static str,
) -> (SyncSender<()>, tokio::task::JoinHandle<Result<(), ErrorCode>>) {
    let (end, ends) = sync_channel(1);
    let (begin, has_begun) = oneshot::channel();
    let broker = Arc::clone(broker);
    let long = tokio::spawn(async move {
        let step = move |_: &mut Shard, _| {
            begin.send(()).expect("it is waited for");
            ends.recv_timeout(PATIENCE).expect("it is told to end");
            ((), GroupStep::default())
        };
        broker.groups.change(&context(), group_id, |_| usize::MAX, step).await
    });
    timeout(PATIENCE, has_begun).await.expect("soon").expect("it begins");
    (end, long)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_with_many_requests_holds_up_a_member_for_one_step() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let (end, long) = begin_long_step(&broker, "g").await;
    let order = Mutex::new(Vec::new());
    let step_of = |last: u8| {
        let (broker, order) = (&broker, &order);
        let mut step = Box::pin(async move {
            let step = |_: &mut Shard, _| (order.lock().push(last), GroupStep::default());
            broker.groups.change(&context_of(last), "g", |_| usize::MAX, step).await
        });
        assert!((&mut step).now_or_never().is_none(), "the group is out");
        step
    };
    let mut steps: Vec<_> = (0..50).map(|_| step_of(2)).collect();
    steps.push(step_of(3));
    end.send(()).expect("it waits");
    let outcomes = timeout(PATIENCE, join_all(steps)).await.expect("soon");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(order.lock()[..3], [2, 3, 2]);
    assert_eq!(long.await.expect("ends"), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_of_a_connection_do_not_pass_each_other_in_a_line() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let (end, long) = begin_long_step(&broker, "g").await;
    let step = |_: &mut Shard, _| ((), GroupStep::default());
    let sender = context_of(3);
    let mut other = Box::pin(broker.groups.change(&sender, "g", |_| usize::MAX, step));
    assert!((&mut other).now_or_never().is_none(), "the group is out");
    let mut first = Box::pin(commit_of(&broker, "g", 100));
    assert!((&mut first).now_or_never().is_none(), "it is behind the other one");
    end.send(()).expect("it waits for this");
    assert_eq!(timeout(PATIENCE, long).await.expect("soon").expect("it ends"), Ok(()));
    let mut second = Box::pin(commit_of(&broker, "g", 200));
    assert!(
        (&mut second).now_or_never().is_none(),
        "the group is back, and the other one has not taken its turn"
    );
    let (other, first, second) =
        timeout(PATIENCE, async { tokio::join!(other, first, second) }).await.expect("soon");
    assert_eq!((other, first, second), (Ok(()), ErrorCode::NONE, ErrorCode::NONE));
    assert_eq!(committed(&broker).await, [200]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_takes_long_keeps_no_other_group_waiting() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let (end, long) = begin_long_step(&broker, "g").await;
    for offset in 0..10 {
        let other = timeout(PATIENCE / 10, commit_of(&broker, "other", offset)).await;
        assert_eq!(other, Ok(ErrorCode::NONE));
    }
    let listed =
        broker.groups.read_all(|shard, behind| shard.list_groups(&ListGroupsRequest::default(), behind));
    let listed = listed.await.remove(0).expect("loaded");
    assert_eq!(listed.len(), 2, "it is listed all the same");
    let mut same = Box::pin(commit_of(&broker, "g", 2));
    assert!(timeout(Duration::from_millis(50), &mut same).await.is_err(), "it waits for its group");
    end.send(()).expect("it waits for this");
    assert_eq!(timeout(PATIENCE, long).await.expect("soon").expect("it ends"), Ok(()));
    assert_eq!(timeout(PATIENCE, same).await, Ok(ErrorCode::NONE));
    assert_eq!(committed(&broker).await, [2, 9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_does_not_come_back_to_a_shard_that_was_loaded_anew() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit_of(&broker, "g", 1).await, ErrorCode::NONE);
    let (end, long) = begin_long_step(&broker, "g").await;
    let slot = &broker.groups.host.open_slots().expect("made")[0];
    slot.fail(&mut slot.state.lock(), &"trouble");
    sim.clock.advance(REST);
    assert_eq!(commit_of(&broker, "g", 2).await, ErrorCode::NONE, "the new shard has it");
    end.send(()).expect("it waits for this");
    let outcome = timeout(PATIENCE, long).await.expect("soon").expect("it ends");
    assert_eq!(outcome, Err(ErrorCode::NOT_COORDINATOR));
    assert_eq!(committed(&broker).await, [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_nobody_waited_for_is_met_by_the_next_append() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_at(&sim, "4").await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 1).await, ErrorCode::NONE);
    broker.logs.set_leaves(0, Leaves::Always);
    let record = ShardRecord { key: vec![1], value: None };
    let step = |_: &mut Shard, _| Step::of_records(vec![record]);
    assert_eq!(broker.groups.host.step(0, None, step), Ok(()), "it is left");
    sim.fs.fill_device(Some("/data".as_ref()));
    broker.logs.write_left(0, Duration::ZERO);
    sim.fs.fill_device(None);
    broker.logs.set_leaves(0, Leaves::Never);
    assert_eq!(commit(&broker, 2).await, ErrorCode::NOT_COORDINATOR, "the shard is ahead of its log");
    sim.clock.advance(REST);
    assert_eq!(commit(&broker, 3).await, ErrorCode::NONE);
}
