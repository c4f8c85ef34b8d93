//! The shell's promises when the disk fails: nobody is told of what is not in the log.

use std::net::SocketAddr;

use std::time::Duration;

use riverrun_env::sim::SimEnv;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::{JoinGroupRequest, OffsetCommitRequest};
use tokio::sync::watch;

use super::*;
use crate::context::{ConnectionInfo, Principal};
use crate::handlers;
use crate::start::open_broker;

/// Long enough for everything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let config = BrokerConfig::from_pairs([
        ("data.dir", "/data"),
        ("offsets.topic.num.partitions", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        option,
    ]);
    let broker = open_broker(sim.env(), config.expect("valid")).expect("opens");
    broker.offsets_topic().await.expect("made");
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(run_timer(Arc::clone(&broker), stopping));
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
    let refused = broker.create_missing_topics(vec!["t".to_owned()]).await.expect("durable");
    assert!(refused.is_empty(), "{refused:?}");
}

fn context() -> RequestContext {
    let connection = ConnectionInfo {
        id: 1,
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        listener: Arc::from("PLAINTEXT"),
        principal: Principal::anonymous(),
    };
    RequestContext { connection: Arc::new(connection), client_id: Arc::from("test") }
}

async fn commit(broker: &Arc<Broker>, committed_offset: i64) -> ErrorCode {
    let partition = OffsetCommitRequestPartition { committed_offset, ..Default::default() };
    let topics = vec![OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest { group_id: "simple".into(), topics, ..Default::default() };
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
    let join = |shard: &mut Shard, context: &GroupContext<'_>| shard.join_group(context, &request);
    match broker.groups.request(broker, &context, 3, "g", join).await {
        Ok(GroupResponse::JoinGroup(response)) => ErrorCode(response.error_code),
        Ok(other) => panic!("{other:?}"),
        Err(code) => code,
    }
}

async fn committed(broker: &Arc<Broker>) -> Vec<i64> {
    let offsets = broker.groups.read_all(broker, |shard| {
        shard.committed_offsets().map(|(.., committed)| committed.offset.0).collect::<Vec<_>>()
    });
    offsets.await.into_iter().flat_map(|shard| shard.expect("loads")).collect()
}

/// Waits until a request waits for its reply.
async fn until_one_waits(broker: &Arc<Broker>) {
    let waits = async {
        while broker.groups.parked.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it waits");
}

#[tokio::test]
async fn a_failed_append_answers_all_who_wait_and_takes_back_what_is_not_in_the_log() {
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
    assert!(broker.groups.parked.lock().is_empty());
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
    tokio::spawn(run_retries(Arc::clone(&broker), stop.subscribe()));
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    sim.fs.set_space(Some(0));
    assert_eq!(commit(&broker, 8).await, ErrorCode::NOT_COORDINATOR);
    assert_eq!(broker.groups.failed_shard(&*broker.env.clock), Some(0));
    sim.fs.set_space(None);
    let well = async {
        while broker.groups.failed_shard(&*broker.env.clock).is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, well).await.expect("loaded");
}

#[tokio::test]
async fn a_failed_sync_answers_all_who_wait_and_nothing_that_was_not_synced_is_told() {
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
    assert!(broker.groups.parked.lock().is_empty());
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
async fn a_commit_that_waits_for_the_disk_is_answered_after_its_timeout() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "50")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel::<()>(1);
    sim.fs.during_next_sync(move || {
        let _ = may_go_on.recv_timeout(PATIENCE);
    });
    let begun = std::time::Instant::now();
    assert_eq!(commit(&broker, 8).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    go_on.send(()).expect("the sync waits");
    assert_eq!(committed(&broker).await, [8], "it has become durable after all");
}

#[tokio::test]
async fn a_shard_that_failed_while_its_records_wait_for_the_disk_holds_up_no_request_and_no_deletion() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start_with(&sim, ("offsets.commit.timeout.ms", "50")).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel::<()>(1);
    sim.fs.during_next_sync(move || {
        let _ = may_go_on.recv_timeout(6 * PATIENCE);
    });
    assert_eq!(commit(&broker, 8).await, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let clock = &*broker.env.clock;
    let slot = &broker.groups.slots().expect("open")[0];
    slot.fail(&mut slot.state.lock(), clock, &"no space");
    for _ in 0..2 {
        sim.clock.advance(REST);
        let refused = timeout(PATIENCE, commit(&broker, 9)).await;
        assert_eq!(refused, Ok(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        sim.clock.advance(REST);
        let refused = timeout(PATIENCE, broker.groups.topics_deleted(&broker, &["t"])).await;
        assert_eq!(refused, Ok(Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)));
    }
    go_on.send(()).expect("the sync waits");
    sim.clock.advance(REST);
    assert_eq!(committed(&broker).await, [8], "it has become durable after all");
}

#[tokio::test]
async fn offsets_of_topics_that_are_gone_are_dropped_when_a_shard_is_loaded() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    let id = broker.metadata.image().topic("t").expect("made").id;
    // The topic is deleted, and the server killed before the groups have heard of it.
    let deleted = broker.change_metadata(move |draft| draft.delete_topic(id).map(|_| ())).await;
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
async fn a_request_that_its_client_gives_up_leaves_nothing_behind() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = start(&sim).await;
    assert_eq!(timeout(PATIENCE, join(&broker)).await, Ok(ErrorCode::NONE));
    for _ in 0..10 {
        let given_up = timeout(Duration::from_millis(5), join(&broker)).await;
        assert!(given_up.is_err(), "it waits for the first member");
    }
    assert!(broker.groups.parked.lock().is_empty());
}
