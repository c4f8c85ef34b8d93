//! Requests that wait, perhaps for long: the memory that they hold meanwhile, and how long other requests wait for it.

use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::fetch_request::{FetchPartition, ForgottenTopic};
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ApiVersionsRequest, ErrorCode, FetchRequest, JoinGroupRequest, JoinGroupResponse, Request,
    SyncGroupRequest,
};

use crate::alone;
use crate::support::{
    Client, assert_serves, create_topic, fetch_request, find_coordinator, only, request_bytes, server_with,
};

/// The least memory for requests that a server may be given.
const LITTLE: (&str, &str) = ("queued.max.request.bytes", "1048576");
/// Longer than any request takes that is not held up.
const AT_ONCE: Duration = Duration::from_secs(8);

/// A fetch that waits as long as it may for more than there will be.
fn patient(topic: &str) -> FetchRequest<'_> {
    FetchRequest {
        max_wait_ms: i32::MAX,
        min_bytes: i32::MAX,
        max_bytes: i32::MAX,
        ..fetch_request(topic, 0, 0)
    }
}

#[track_caller]
fn assert_answers_at_once(server: &Server) {
    for _ in 0..10 {
        let mut honest = Client::new(server);
        honest.set_timeout(AT_ONCE);
        let since = Instant::now();
        assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
        assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
    }
}

#[test]
fn fetches_that_wait_do_not_keep_the_memory_of_their_requests() {
    let _alone = alone();
    let server = server_with(&[LITTLE]);
    // As many as three connections may have, so that none of them waits for memory itself.
    let mut rude: Vec<_> = (0..3).map(|_| Client::new(&server)).collect();
    create_topic(&mut rude[0], "t", 1, &[]);
    // As long as a request may be without being large; the padding is not needed while it waits.
    let padding = "x".repeat(30_000);
    let forgotten = ForgottenTopic { topic: padding.as_str().into(), ..Default::default() };
    let padded = FetchRequest { forgotten_topics_data: vec![forgotten.clone(), forgotten], ..patient("t") };
    for client in &mut rude {
        (0..12).for_each(|_| _ = client.send(&padded, 12));
    }
    assert_answers_at_once(&server);
    let quiet = rude.iter_mut().all(|client| client.is_quiet_for(Duration::from_millis(1_500)));
    assert!(quiet, "they wait, since nobody else needs their memory");
}

/// Versions of `JoinGroup` and `SyncGroup` that take unknown fields, as all later ones do.
const JOIN: i16 = 6;
const SYNC: i16 = 4;
/// Bytes of such a field: a request with it is not large yet.
const UNKNOWN_BYTES: usize = 60_000;

/// A request with an unknown field at its end.
fn with_unknown_field<'q, R: Request<'q>>(request: &R, version: i16) -> Vec<u8> {
    let mut frame = request_bytes(request, version);
    assert_eq!(frame.pop(), Some(0), "no such field yet");
    // One field, with the number 100.
    frame.extend([1, 100]);
    let mut bytes = UNKNOWN_BYTES;
    while bytes > 0x7f {
        frame.push(u8::try_from(bytes & 0x7f).expect("seven bits") | 0x80);
        bytes >>= 7;
    }
    frame.push(u8::try_from(bytes).expect("seven bits"));
    frame.resize(frame.len() + UNKNOWN_BYTES, 0);
    let length = i32::try_from(frame.len() - 4).expect("short").to_be_bytes();
    frame[..4].copy_from_slice(&length);
    frame
}

/// A join of a member that keeps its group waiting as long as it may.
fn join(member_id: &str, instance: Option<&str>) -> JoinGroupRequest<'static> {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 600_000,
        rebalance_timeout_ms: i32::MAX,
        member_id: member_id.to_owned().into(),
        group_instance_id: instance.map(|instance| instance.to_owned().into()),
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    }
}

fn joined(client: &mut Client) -> JoinGroupResponse<'static> {
    let (_, joined) = client.receive::<JoinGroupRequest<'_>>(JOIN);
    assert_eq!(ErrorCode(joined.error_code), ErrorCode::NONE);
    joined
}

fn sync(joined: &JoinGroupResponse<'static>, instance: &str) -> SyncGroupRequest<'static> {
    SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: Some(instance.to_owned().into()),
        ..Default::default()
    }
}

#[test]
fn waiting_members_free_the_memory_of_their_requests() {
    let _alone = alone();
    let server = server_with(&[LITTLE]);
    let (mut leader, mut rude) = (Client::new(&server), Client::new(&server));
    find_coordinator(&mut leader, "g");
    leader.send(&join("", Some("leader")), JOIN);
    let leading = joined(&mut leader);
    let instances: Vec<String> = (0..40).map(|index| format!("member-{index}")).collect();
    for instance in &instances {
        rude.write(&with_unknown_field(&join("", Some(instance)), JOIN));
    }
    assert_answers_at_once(&server);
    assert!(rude.is_quiet_for(Duration::from_millis(100)), "they wait for the leader");

    leader.send(&join(&leading.member_id, Some("leader")), JOIN);
    let leading = joined(&mut leader);
    let members: Vec<_> = instances.iter().map(|_| joined(&mut rude)).collect();
    for (member, instance) in members.iter().zip(&instances) {
        rude.write(&with_unknown_field(&sync(member, instance), SYNC));
    }
    assert_answers_at_once(&server);
    assert!(rude.is_quiet_for(Duration::from_millis(100)), "they wait for the leader");

    let assignment = |member: &JoinGroupResponse<'static>| SyncGroupRequestAssignment {
        member_id: member.member_id.clone(),
        assignment: b"a"[..].into(),
    };
    let assignments = members.iter().map(assignment).collect();
    leader.send(&SyncGroupRequest { assignments, ..sync(&leading, "leader") }, SYNC);
    let (_, led) = leader.receive::<SyncGroupRequest<'_>>(SYNC);
    assert_eq!(ErrorCode(led.error_code), ErrorCode::NONE);
    for _ in &members {
        let (_, synced) = rude.receive::<SyncGroupRequest<'_>>(SYNC);
        assert_eq!((ErrorCode(synced.error_code), &*synced.assignment), (ErrorCode::NONE, &b"a"[..]));
    }
    assert_serves(&server);
}

#[test]
fn a_waiting_fetch_is_answered_when_others_need_its_memory() {
    let _alone = alone();
    let server = server_with(&[LITTLE]);
    let mut large = Client::new(&server);
    create_topic(&mut large, "t", 2_000, &[]);
    let mut request = patient("t");
    let topic = &mut request.topics[0];
    let first = topic.partitions[0].clone();
    topic.partitions = (0..2_000).map(|partition| FetchPartition { partition, ..first.clone() }).collect();
    let mut other = Client::new(&server);
    // A pass that opens many logs is answered before it has come to all of them.
    for _ in 0..40 {
        large.call(&FetchRequest { max_wait_ms: 0, ..request.clone() }, 12);
    }
    large.send(&request, 12);
    for _ in 0..3 {
        assert!(large.is_quiet_for(Duration::from_millis(500)), "it waits");
        // The memory that the waiting fetch holds is of no use to requests that need little.
        assert_answers_at_once(&server);
        other.send(&request, 12);
        let (_, answer) = large.receive::<FetchRequest<'_>>(12);
        assert_eq!((answer.error_code, answer.responses[0].partitions.len()), (0, 2_000));
        std::mem::swap(&mut large, &mut other);
    }
    assert_serves(&server);
}

#[test]
fn a_fetch_waits_for_half_of_its_connections_idle_time() {
    let _alone = alone();
    let server = server_with(&[("connections.max.idle.ms", "1500")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    for _ in 0..3 {
        let since = Instant::now();
        assert!(
            only(client.call(&patient("t"), 12))
                .records
                .is_none_or(|records| records.as_bytes().is_none_or(<[u8]>::is_empty))
        );
        assert!(since.elapsed() >= Duration::from_millis(750), "{:?}", since.elapsed());
    }
}

#[test]
fn a_connection_is_idle_also_while_it_waits_for_an_answer() {
    let _alone = alone();
    let options = [("connections.max.idle.ms", "1000"), ("group.initial.rebalance.delay.ms", "600000")];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    find_coordinator(&mut client, "g");
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    let join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 600_000,
        rebalance_timeout_ms: i32::MAX,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    client.send(&join, 3);
    client.expect_closed("a connection on which nothing happens");
}
