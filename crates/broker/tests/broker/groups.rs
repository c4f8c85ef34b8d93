//! Groups as their members see them over sockets: rebalances that wait for others, time-outs that nobody asks
//! about, both protocols side by side, and bounds.

use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::consumer_group_heartbeat_request::TopicPartitions;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestTopic;
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, DescribeGroupsRequest, ErrorCode,
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, ListGroupsRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest, SyncGroupResponse, consumer_protocol, consumer_protocol_assignment,
};

use crate::admin_port::get;
use crate::support::{
    Client, PATIENCE, assert_serves, create_topic, find_coordinator, server, server_with, topic_id,
};

/// A server with a topic of four partitions and a place for groups.
fn with_topic(options: &[(&str, &str)]) -> (Server, Client) {
    let server = server_with(options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 4, &[]);
    find_coordinator(&mut client, "g");
    (server, client)
}

/// A join of version 3, in which a newcomer is a member at once.
fn join_request<'a>(group: &'a str, member: &'a str, session_timeout_ms: i32) -> JoinGroupRequest<'a> {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"m"[..].into() };
    JoinGroupRequest {
        group_id: group.into(),
        member_id: member.into(),
        session_timeout_ms,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    }
}

fn join(client: &mut Client, group: &str, member: &str) -> JoinGroupResponse<'static> {
    let joined = client.call(&join_request(group, member, 10_000), 3);
    assert_eq!(ErrorCode(joined.error_code), ErrorCode::NONE);
    joined
}

fn sync(
    group: &str,
    joined: &JoinGroupResponse<'_>,
    assignments: &[(&str, &'static [u8])],
) -> SyncGroupRequest<'static> {
    let assignment = |(member, bytes): &(&str, &'static [u8])| SyncGroupRequestAssignment {
        member_id: (*member).to_owned().into(),
        assignment: (*bytes).into(),
    };
    SyncGroupRequest {
        group_id: group.to_owned().into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.to_string().into(),
        assignments: assignments.iter().map(assignment).collect(),
        ..Default::default()
    }
}

fn heartbeat(client: &mut Client, group: &str, member: &str, generation_id: i32) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: group.into(),
        member_id: member.into(),
        generation_id,
        ..Default::default()
    };
    ErrorCode(client.call(&request, 3).error_code)
}

#[test]
fn describing_a_group_without_a_name_is_refused() {
    let (_server, mut client) = with_topic(&[]);
    let request = ConsumerGroupDescribeRequest { group_ids: vec!["".into()], ..Default::default() };
    let code = client.call(&request, 0).groups[0].error_code;
    assert_eq!(ErrorCode(code), ErrorCode::INVALID_GROUP_ID);
}

#[test]
fn a_start_with_less_memory_keeps_all_that_was_committed() {
    let data = tempfile::tempdir().expect("a directory");
    let data = data.path().to_str().expect("text");
    let options = [("data.dir", data), ("admin.listen", "127.0.0.1:0")];
    let (server, mut client) = with_topic(&options);
    // All of them together take more than the least memory that there can be.
    for group in 0..1_500 {
        let partition = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
        let topics = vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![partition],
            ..Default::default()
        }];
        let group_id = format!("group-{group}").into();
        let request =
            OffsetCommitRequest { group_id, generation_id_or_member_epoch: -1, topics, ..Default::default() };
        let committed = client.call(&request, 7);
        assert_eq!(ErrorCode(committed.topics[0].partitions[0].error_code), ErrorCode::NONE);
    }
    server.stop().expect("a clean stop");
    let server = server_with(&[&options[..], &[("groups.memory.max.bytes", "1048576")]].concat());
    let mut client = Client::new(&server);
    find_coordinator(&mut client, "g");
    for group in 0..1_500 {
        let topics = vec![OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![0] }];
        let group_id = format!("group-{group}").into();
        let request = OffsetFetchRequest { group_id, topics: Some(topics), ..Default::default() };
        let fetched = client.call(&request, 7);
        assert_eq!(fetched.topics[0].partitions[0].committed_offset, 7, "{group}: {fetched:?}");
    }
    let (_, body) = get(server.admin_address().expect("an admin port"), "/health");
    assert!(!body.contains("left out"), "{body}");
}

#[test]
fn members_wait_for_each_other_and_get_the_leaders_assignment() {
    let (server, mut leader) = with_topic(&[]);
    let first = join(&mut leader, "g", "");
    leader.call(&sync("g", &first, &[(&first.member_id, b"all")]), 2);
    // The second member's join waits until the first has heard of it and joined again.
    let mut follower = Client::new(&server);
    follower.send(&join_request("g", "", 10_000), 3);
    assert!(follower.is_quiet_for(Duration::from_millis(100)), "the rebalance is not over");
    let heard = heartbeat(&mut leader, "g", &first.member_id, first.generation_id);
    assert_eq!(heard, ErrorCode::REBALANCE_IN_PROGRESS);
    let led = join(&mut leader, "g", &first.member_id);
    let (_, second) = follower.receive::<JoinGroupRequest<'_>>(3);
    assert_eq!((led.generation_id, led.members.len()), (first.generation_id + 1, 2));
    assert_eq!((second.generation_id, second.members.len()), (led.generation_id, 0));
    assert_eq!(second.leader, led.member_id);
    // The follower's sync waits for the leader's.
    follower.send(&sync("g", &second, &[]), 2);
    assert!(follower.is_quiet_for(Duration::from_millis(100)), "nothing is assigned yet");
    let shares: [(&str, &'static [u8]); 2] = [(&led.member_id, b"one"), (&second.member_id, b"two")];
    assert_eq!(&*leader.call(&sync("g", &led, &shares), 2).assignment, b"one");
    assert_eq!(&*follower.receive::<SyncGroupRequest<'_>>(2).1.assignment, b"two");
    assert_eq!(heartbeat(&mut leader, "g", &led.member_id, led.generation_id), ErrorCode::NONE);
}

#[test]
fn a_member_that_is_silent_is_dropped_in_its_time() {
    let (server, mut quiet) = with_topic(&[("group.min.session.timeout.ms", "100")]);
    let joined = quiet.call(&join_request("g", "", 300), 3);
    quiet.call(&sync("g", &joined, &[(&joined.member_id, b"all")]), 2);
    let mut observer = Client::new(&server);
    let members = |observer: &mut Client| {
        let request = DescribeGroupsRequest { groups: vec!["g".into()], ..Default::default() };
        observer.call(&request, 3).groups[0].members.len()
    };
    assert_eq!(members(&mut observer), 1);
    let since = Instant::now();
    while members(&mut observer) > 0 {
        assert!(since.elapsed() < PATIENCE, "the member stays for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let late = heartbeat(&mut quiet, "g", &joined.member_id, joined.generation_id);
    assert_eq!(late, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_rebalance_goes_on_without_the_member_whose_client_is_gone() {
    let (server, mut gone) = with_topic(&[("group.min.session.timeout.ms", "100")]);
    let first = gone.call(&join_request("g", "", 500), 3);
    gone.call(&sync("g", &first, &[(&first.member_id, b"all")]), 2);
    drop(gone);
    let mut next = Client::new(&server);
    let joined = join(&mut next, "g", "");
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 1);
}

#[test]
fn a_group_takes_no_more_members_than_its_bound() {
    let (server, mut first) = with_topic(&[("group.max.size", "2")]);
    join(&mut first, "g", "");
    // While it rebalances, a group counts the members that wait: a member from before may not come back.
    let mut waiting: Vec<Client> = (0..2).map(|_| Client::new(&server)).collect();
    for client in &mut waiting {
        client.send(&join_request("g", "", 10_000), 3);
        assert!(client.is_quiet_for(Duration::from_millis(100)), "it is in, and waits for the first");
    }
    let refused = Client::new(&server).call(&join_request("g", "", 10_000), 3);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::GROUP_MAX_SIZE_REACHED);
}

fn consumer(
    member: &str,
    epoch: i32,
    owned: Option<Vec<TopicPartitions>>,
) -> ConsumerGroupHeartbeatRequest<'_> {
    let is_new = epoch == 0;
    ConsumerGroupHeartbeatRequest {
        group_id: "modern".into(),
        member_id: member.into(),
        member_epoch: epoch,
        rebalance_timeout_ms: if is_new { 10_000 } else { -1 },
        subscribed_topic_names: is_new.then(|| vec!["t".into()]),
        topic_partitions: if is_new { Some(Vec::new()) } else { owned },
        ..Default::default()
    }
}

fn assigned(response: &ConsumerGroupHeartbeatResponse<'_>) -> Option<Vec<i32>> {
    let assignment = response.assignment.as_ref()?;
    Some(assignment.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect())
}

#[test]
fn members_of_the_consumer_protocol_share_the_partitions() {
    let (server, mut one) = with_topic(&[("group.consumer.assignment.interval.ms", "0")]);
    let id = topic_id(&mut one, "t");
    let owning =
        |partitions: &[i32]| Some(vec![TopicPartitions { topic_id: id, partitions: partitions.to_vec() }]);
    let mut two = Client::new(&server);
    let first = one.call(&consumer("member-one", 0, None), 1);
    assert_eq!(assigned(&first), Some(vec![0, 1, 2, 3]));
    let mut second = two.call(&consumer("member-two", 0, None), 1);
    assert_eq!(ErrorCode(second.error_code), ErrorCode::NONE);
    // The first member gives up its revoked partitions, and only then does the second get them.
    let told = one.call(&consumer("member-one", first.member_epoch, owning(&[0, 1, 2, 3])), 1);
    let kept = assigned(&told).expect("a smaller assignment");
    assert_eq!(kept.len(), 2);
    assert_eq!(assigned(&second).unwrap_or_default(), Vec::<i32>::new());
    let done = one.call(&consumer("member-one", told.member_epoch, owning(&kept)), 1);
    assert_eq!(ErrorCode(done.error_code), ErrorCode::NONE);
    let until = Instant::now() + PATIENCE;
    while assigned(&second).unwrap_or_default().is_empty() {
        assert!(Instant::now() < until, "the second member never gets its share");
        second = two.call(&consumer("member-two", second.member_epoch, owning(&[])), 1);
        assert_eq!(ErrorCode(second.error_code), ErrorCode::NONE);
    }
    let mut all = [kept, assigned(&second).expect("its share")].concat();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
}

#[test]
fn a_joining_member_is_told_to_try_again_after_a_pause() {
    let (server, mut client) = with_topic(&[("groups.memory.max.bytes", "3145728")]);
    let metadata = vec![b'm'; 100_000];
    for group in ["large-0", "large-1"] {
        let mut request = join_request(group, "", 10_000);
        request.protocols[0].metadata = (&metadata[..]).into();
        client.send(&request, 3);
    }
    let mut joining = consumer("member-one", 0, None);
    joining.subscribed_topic_names = Some((0..15).map(|index| format!("{index:0>30000}").into()).collect());
    let mut other = Client::new(&server);
    let until = Instant::now() + PATIENCE;
    // The first one leaves too little by itself.
    while other.call(&ListGroupsRequest::default(), 4).groups.is_empty() {
        assert!(Instant::now() < until, "nobody joins");
    }
    let begun = Instant::now();
    let refused = other.call(&joining, 1);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert!(refused.error_message.is_some_and(|message| message.contains("memory")));
    assert!((1_000..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let small = other.call(&consumer("member-two", 0, None), 1);
    assert_eq!(ErrorCode(small.error_code), ErrorCode::NONE);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn clients_of_one_protocol_do_not_break_a_group_of_the_other() {
    let (_server, mut client) = with_topic(&[("group.consumer.migration.policy", "disabled")]);
    let modern = client.call(&consumer("member-one", 0, None), 1);
    let refused = client.call(&join_request("modern", "", 10_000), 3);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    let well = client.call(&consumer("member-one", modern.member_epoch, Some(Vec::new())), 1);
    assert_eq!(ErrorCode(well.error_code), ErrorCode::NONE);
    let classic = join(&mut client, "classic", "");
    client.call(&sync("classic", &classic, &[(&classic.member_id, b"all")]), 2);
    let mut stranger = consumer("member-two", 0, None);
    stranger.group_id = "classic".into();
    assert_ne!(client.call(&stranger, 1).error_code, 0);
    let still = heartbeat(&mut client, "classic", &classic.member_id, classic.generation_id);
    assert_eq!(still, ErrorCode::NONE);
}

/// Joins a classic group with the consumer protocol's metadata: a subscription to `t`.
fn subscribed<'a>(group: &'a str, member: &'a str) -> JoinGroupRequest<'a> {
    let subscription = ConsumerProtocolSubscription { topics: vec!["t".into()], ..Default::default() };
    let metadata = consumer_protocol::encode_subscription(&subscription, 1).expect("encodes");
    let mut request = join_request(group, member, 10_000);
    request.protocols[0].metadata = metadata.into();
    request
}

fn partitions_of(synced: &SyncGroupResponse<'_>) -> Vec<i32> {
    assert_eq!(ErrorCode(synced.error_code), ErrorCode::NONE);
    let assignment = consumer_protocol::decode_assignment(&synced.assignment).expect("an assignment");
    assignment.assigned_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect()
}

#[test]
fn a_group_changes_its_protocol_and_back_over_restarts() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [
        ("data.dir", directory.path().to_str().expect("text")),
        ("group.consumer.assignment.interval.ms", "0"),
    ];
    let (server, mut client) = with_topic(&options);
    let joined = client.call(&subscribed("modern", ""), 3);
    let all = consumer_protocol::encode_assignment(&four_partitions(), 1).expect("encodes");
    let mut request = sync("modern", &joined, &[(&joined.member_id, b"")]);
    request.assignments[0].assignment = all.into();
    assert_eq!(partitions_of(&client.call(&request, 2)), [0, 1, 2, 3]);

    // The first member of the consumer protocol, for whom the other gives up its half.
    let modern = client.call(&consumer("member-one", 0, None), 1);
    assert_eq!(ErrorCode(modern.error_code), ErrorCode::NONE);
    drop(server);
    let server = server_with(&options);
    let mut client = Client::new(&server);
    let heard = heartbeat(&mut client, "modern", &joined.member_id, joined.generation_id);
    assert_eq!(heard, ErrorCode::REBALANCE_IN_PROGRESS);
    let rejoined = client.call(&subscribed("modern", &joined.member_id), 3);
    assert_eq!(rejoined.generation_id, modern.member_epoch);
    assert_eq!(partitions_of(&client.call(&sync("modern", &rejoined, &[]), 2)).len(), 2);
    let modern = client.call(&consumer("member-one", modern.member_epoch, Some(Vec::new())), 1);
    assert_eq!(assigned(&modern).expect("its half").len(), 2);

    // The last member of the consumer protocol.
    assert_eq!(client.call(&consumer("member-one", -1, None), 1).error_code, 0);
    drop(server);
    let server = server_with(&options);
    let mut client = Client::new(&server);
    let heard = heartbeat(&mut client, "modern", &rejoined.member_id, rejoined.generation_id);
    assert_eq!(heard, ErrorCode::REBALANCE_IN_PROGRESS);
    let led = client.call(&subscribed("modern", &joined.member_id), 3);
    assert_eq!((&led.leader, led.members.len()), (&led.member_id, 1), "it is a classic group");
}

fn four_partitions() -> ConsumerProtocolAssignment<'static> {
    let partitions =
        consumer_protocol_assignment::TopicPartition { topic: "t".into(), partitions: vec![0, 1, 2, 3] };
    ConsumerProtocolAssignment { assigned_partitions: vec![partitions], user_data: None }
}

#[test]
fn members_and_generations_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [("data.dir", directory.path().to_str().expect("text"))];
    let (server, mut client) = with_topic(&options);
    let joined = join(&mut client, "g", "");
    client.call(&sync("g", &joined, &[(&joined.member_id, b"all")]), 2);
    let modern = client.call(&consumer("member-one", 0, None), 1);
    drop(server);
    let server = server_with(&options);
    let mut client = Client::new(&server);
    let alive = heartbeat(&mut client, "g", &joined.member_id, joined.generation_id);
    assert_eq!(alive, ErrorCode::NONE);
    let again = client.call(&consumer("member-one", modern.member_epoch, None), 1);
    assert_eq!(ErrorCode(again.error_code), ErrorCode::NONE);
}

#[test]
fn many_groups_at_once_are_served() {
    let (server, _client) = with_topic(&[]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Client::new(server);
                for index in 0..50 {
                    let group = format!("group-{thread}-{index}");
                    let joined = join(&mut client, &group, "");
                    let share: [(&str, &'static [u8]); 1] = [(&joined.member_id, b"all")];
                    let synced = client.call(&sync(&group, &joined, &share), 2);
                    assert_eq!(&*synced.assignment, b"all");
                    let code = commit(&mut client, &group, &joined);
                    assert_eq!(code, ErrorCode::NONE, "{group}");
                }
            });
        }
    });
    assert_serves(&server);
}

fn commit(client: &mut Client, group: &str, joined: &JoinGroupResponse<'_>) -> ErrorCode {
    let partition = OffsetCommitRequestPartition { committed_offset: 0, ..Default::default() };
    let topics = vec![OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest {
        group_id: group.into(),
        member_id: joined.member_id.to_string().into(),
        generation_id_or_member_epoch: joined.generation_id,
        topics,
        ..Default::default()
    };
    ErrorCode(client.call(&request, 7).topics[0].partitions[0].error_code)
}

#[test]
fn a_group_request_before_find_coordinator_is_refused() {
    let server = server();
    let mut client = Client::new(&server);
    let refused = client.call(&join_request("g", "", 10_000), 3);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::NOT_COORDINATOR);
    find_coordinator(&mut client, "g");
    join(&mut client, "g", "");
}
