//! Members of groups, classic and KIP-848: what they commit, give up and report, and when.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{
    Assignor, ClientError, ClusterOptions, CommittedOffset, Consumer, ConsumerOptions, ErrorCode,
    GroupProtocol, Trouble,
};
use riverrun_protocol::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use riverrun_protocol::consumer_protocol::{decode_assignment, decode_subscription, encode_assignment};
use riverrun_protocol::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use riverrun_protocol::join_group_response::JoinGroupResponseMember;
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ConsumerProtocolAssignment,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, MetadataRequest,
    SyncGroupRequest, SyncGroupResponse,
};
use riverrun_types::{Offset, TopicId};

use crate::consumer::{
    END, POLL, Told, committed, member_options, nothing_committed, options, partition, records, server, tell,
    wait_for,
};
use crate::patterns::versions;
use crate::server::{Call, Reply, ScriptedServer, TOPIC_ID};

/// The answer to a member that joins and is not the leader. The group chooses the assignor at this index of the
/// offered ones.
pub(crate) fn joined(call: &Call<'_>, told: &Told, taken: usize) -> Reply {
    let request = call.decode::<JoinGroupRequest<'_>>();
    let subscription = decode_subscription(&request.protocols[taken].metadata).unwrap();
    let rack = subscription.rack_id.map_or_else(String::new, |rack| format!(" in {rack}"));
    tell(told, format!("join owning {}{rack}", subscription.owned_partitions.len()));
    call.answer(&JoinGroupResponse {
        generation_id: i32::try_from(call.nth).unwrap(),
        protocol_name: Some(request.protocols[taken].name.clone()),
        leader: "another".into(),
        member_id: "me".into(),
        ..JoinGroupResponse::default()
    })
}

/// A classic group that assigns its member both partitions, then rebalances once and assigns it only the first.
pub(crate) fn classic_group(call: &Call<'_>, told: &Told, ready: &Arc<Mutex<bool>>) -> Option<Reply> {
    let reply = match call.key {
        ApiKey::JoinGroup => joined(call, told, 0),
        ApiKey::SyncGroup => {
            let partitions = if call.nth == 0 { vec![0, 1] } else { vec![0] };
            let assigned = AssignedTopic { topic: "t".into(), partitions };
            let assignment =
                ConsumerProtocolAssignment { assigned_partitions: vec![assigned], user_data: None };
            let assignment = encode_assignment(&assignment, 0).unwrap();
            call.answer(&SyncGroupResponse { assignment: assignment.into(), ..SyncGroupResponse::default() })
        }
        ApiKey::Heartbeat => {
            let rebalance = std::mem::take(&mut *ready.lock().unwrap());
            let code = if rebalance { ErrorCode::REBALANCE_IN_PROGRESS } else { ErrorCode::NONE };
            call.answer(&HeartbeatResponse { error_code: code.0, ..HeartbeatResponse::default() })
        }
        ApiKey::LeaveGroup => {
            tell(told, "leave");
            call.answer(&LeaveGroupResponse::default())
        }
        ApiKey::OffsetCommit => committed(call, told),
        ApiKey::OffsetFetch => nothing_committed(call),
        _ => return None,
    };
    Some(reply)
}

/// The requests of a member that offers these assignors, of which the group chooses the one at this index.
async fn classic_member(assignors: Vec<Assignor>, taken: usize) -> Vec<String> {
    let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, rebalance) = (Arc::clone(&told), Arc::clone(&ready));
    let joins = if assignors == [Assignor::CooperativeSticky] { 3 } else { 2 };
    let server = server(move |call| match call.key {
        ApiKey::JoinGroup => Some(joined(call, &heard, taken)),
        _ => classic_group(call, &heard, &rebalance),
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        assignors,
        heartbeat_interval: Duration::from_millis(10),
        auto_commit_interval: Some(Duration::from_hours(1)),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let at_end = |consumer: &Consumer, index| consumer.position(&partition(index)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", |consumer| at_end(consumer, 0) && at_end(consumer, 1)).await;
    *ready.lock().unwrap() = true;
    wait_for(&mut consumer, "the second is gone", |consumer| {
        consumer.assignment() == [partition(0)] && at_end(consumer, 0)
    })
    .await;
    wait_for(&mut consumer, "it joins again", |_| {
        told.lock().unwrap().iter().filter(|what| what.starts_with("join")).count() >= joins
    })
    .await;
    consumer.close().await.unwrap();
    std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test]
async fn eager_member_commits_and_gives_all_up_before_joining() {
    let told = classic_member(vec![Assignor::Range], 0).await;
    let expected = ["join owning 0", "commit 0 14", "commit 1 14", "join owning 0", "commit 0 14", "leave"];
    assert_eq!(told, expected);
}

/// As with Kafka's consumers: a member does only what all its offered assignors support.
#[tokio::test]
async fn member_with_an_eager_assignor_is_always_eager() {
    let expected = ["join owning 0", "commit 0 14", "commit 1 14", "join owning 0", "commit 0 14", "leave"];
    let default = ConsumerOptions::new(ClusterOptions::new("a:1")).assignors;
    for taken in [0, 1] {
        assert_eq!(classic_member(default.clone(), taken).await, expected, "{taken}");
    }
}

/// The assignors that a member with this setting offers, and the member that it assigns both partitions to as the
/// leader, with the assignor at this index.
async fn offered(strategy: Option<&str>, taken: usize) -> (Vec<String>, Vec<String>) {
    let (offers, led) = (Told::default(), Told::default());
    let (heard, assigned) = (Arc::clone(&offers), Arc::clone(&led));
    let server = server(move |call| match call.key {
        ApiKey::JoinGroup => {
            let request = call.decode::<JoinGroupRequest<'_>>();
            request.protocols.iter().for_each(|protocol| tell(&heard, protocol.name.to_string()));
            let protocol = &request.protocols[taken];
            let metadata = protocol.metadata.clone();
            let member = JoinGroupResponseMember {
                member_id: "me".into(),
                metadata,
                ..JoinGroupResponseMember::default()
            };
            Some(call.answer(&JoinGroupResponse {
                protocol_name: Some(protocol.name.clone()),
                leader: "me".into(),
                member_id: "me".into(),
                members: vec![member],
                ..JoinGroupResponse::default()
            }))
        }
        ApiKey::SyncGroup => {
            let request = call.decode::<SyncGroupRequest<'_>>();
            let one = &request.assignments[0];
            let assignment = decode_assignment(&one.assignment).unwrap();
            tell(&assigned, format!("{} {:?}", one.member_id, assignment.assigned_partitions[0].partitions));
            let assignment = one.assignment.clone();
            Some(call.answer(&SyncGroupResponse { assignment, ..SyncGroupResponse::default() }))
        }
        _ => classic_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    if let Some(strategy) = strategy {
        options.set("partition.assignment.strategy", strategy).unwrap();
    }
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |consumer| consumer.assignment().len() == 2).await;
    let (offers, led) = (offers.lock().unwrap().clone(), led.lock().unwrap().clone());
    (offers, led)
}

#[tokio::test]
async fn member_offers_its_assignors_and_leads_with_the_chosen() {
    let all = vec!["me [0, 1]".to_owned()];
    for taken in [0, 1] {
        let (offers, led) = offered(None, taken).await;
        assert_eq!(offers, ["range", "cooperative-sticky"]);
        assert_eq!(led, all, "{taken}");
    }
    let (offers, led) = offered(Some("cooperative-sticky, roundrobin,range"), 1).await;
    assert_eq!(offers, ["cooperative-sticky", "roundrobin", "range"]);
    assert_eq!(led, all);
}

#[tokio::test]
async fn zero_commit_interval_commits_with_every_poll() {
    let told = Told::default();
    let (heard, ready) = (Arc::clone(&told), Arc::default());
    let server = server(move |call| classic_group(call, &heard, &ready)).await;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), ..options(&server) };
    options.set("auto.commit.interval.ms", "0").unwrap();
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "both are committed", |_| {
        let told = told.lock().unwrap();
        ["commit 0 14", "commit 1 14"].iter().all(|what| told.iter().any(|one| one == what))
    })
    .await;
}

/// An eager member would give everything up.
#[tokio::test]
async fn same_subscription_does_not_rejoin() {
    let (told, ready) = (Told::default(), Arc::default());
    let heard = Arc::clone(&told);
    let server = server(move |call| classic_group(call, &heard, &ready)).await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        auto_commit: false,
        heartbeat_interval: Duration::from_millis(10),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t", "u"]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |consumer| consumer.assignment().len() == 2).await;
    consumer.subscribe(&["u", "t"]).await.unwrap();
    let later = Instant::now() + Duration::from_millis(200);
    wait_for(&mut consumer, "some time goes by", |_| Instant::now() > later).await;
    assert_eq!(*told.lock().unwrap(), ["join owning 0"]);
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "it joins again", |_| told.lock().unwrap().len() == 2).await;
}

#[tokio::test]
async fn cooperative_member_gives_up_only_revoked_partitions() {
    let told = classic_member(vec![Assignor::CooperativeSticky], 0).await;
    let expected = ["join owning 0", "join owning 1", "commit 1 14", "join owning 1", "commit 0 14", "leave"];
    assert_eq!(told, expected);
}

/// A server of a group of this protocol.
pub(crate) async fn group_server(
    group_protocol: GroupProtocol,
    told: Told,
    ready: Arc<Mutex<bool>>,
) -> ScriptedServer {
    server(move |call| match group_protocol {
        GroupProtocol::Classic => classic_group(call, &told, &ready),
        GroupProtocol::Consumer => server_side_group(call, &told, &ready),
    })
    .await
}

/// The requests of a consumer that is polled, then not, then again.
async fn silent_member(group_protocol: GroupProtocol) -> Vec<String> {
    let (told, ready) = (Told::default(), Arc::default());
    let heard = Arc::clone(&told);
    let server = group_server(group_protocol, heard, ready).await;
    let mut consumer = Consumer::new(ConsumerOptions {
        rebalance_timeout: Duration::from_millis(300),
        auto_commit: false,
        ..member_options(&server, group_protocol)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let at_end = |consumer: &Consumer| consumer.position(&partition(1)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", at_end).await;
    let has_left = || told.lock().unwrap().iter().any(|what| what == "leave");
    // A poll that finds nothing counts, too.
    consumer.poll(Duration::from_millis(600)).await.unwrap();
    assert!(!has_left());
    let deadline = Instant::now() + Duration::from_mins(1);
    while !has_left() {
        assert!(Instant::now() < deadline, "it leaves");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    wait_for(&mut consumer, "it is a member again", |consumer| !consumer.assignment().is_empty()).await;
    wait_for(&mut consumer, "the group knows", |_| told.lock().unwrap().last().unwrap() != "leave").await;
    std::mem::take(&mut *told.lock().unwrap())
}

/// Its task alone would keep it a member for ever, with partitions that are not read.
#[tokio::test]
async fn unpolled_member_leaves_until_the_next_poll() {
    let classic = ["join owning 0", "leave", "join owning 0"];
    assert_eq!(silent_member(GroupProtocol::Classic).await, classic);
    let told = silent_member(GroupProtocol::Consumer).await;
    let expected = ["epoch 0 owns []", "epoch 1 owns [0, 1]", "leave", "epoch 0 owns []"];
    assert_eq!(told[..4], expected);
}

/// The group's session timeout is shorter than a request may take.
#[tokio::test]
async fn member_sends_heartbeats_while_listing_topics() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let (told, beats, silent) = (Told::default(), Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
        let (ready, counted, is_silent) = (Arc::default(), Arc::clone(&beats), Arc::clone(&silent));
        let server = server(move |call| match call.key {
            // A server that leaves patterns to its members.
            ApiKey::ApiVersions => Some(versions(call, 0)),
            ApiKey::Metadata if *is_silent.lock().unwrap() => Some(Reply::Silence),
            ApiKey::Heartbeat | ApiKey::ConsumerGroupHeartbeat => {
                *counted.lock().unwrap() += 1;
                classic_group(call, &told, &ready).or_else(|| server_side_group(call, &told, &ready))
            }
            _ => classic_group(call, &told, &ready),
        })
        .await;
        let mut options = member_options(&server, group_protocol);
        options.cluster.metadata_max_age = Duration::from_millis(100);
        options.cluster.request_timeout = Duration::from_mins(1);
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.subscribe_pattern("t").await.unwrap();
        wait_for(&mut consumer, "it is a member", |consumer| !consumer.assignment().is_empty()).await;
        *silent.lock().unwrap() = true;
        // By then the search is in progress.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let before = *beats.lock().unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        while *beats.lock().unwrap() < before + 10 {
            assert!(Instant::now() < deadline, "{group_protocol:?}: it is silent");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn time_without_polls_is_no_trouble() {
    let told = Told::default();
    let (heard, ready) = (Arc::clone(&told), Arc::default());
    let server = server(move |call| match call.key {
        ApiKey::Heartbeat => Some(Reply::Silence),
        ApiKey::JoinGroup if call.nth > 0 => Some(call.answer(&JoinGroupResponse {
            error_code: ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0,
            protocol_name: Some("".into()),
            ..JoinGroupResponse::default()
        })),
        _ => classic_group(call, &heard, &ready),
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        heartbeat_interval: Duration::from_millis(10),
        rebalance_timeout: Duration::from_millis(300),
        auto_commit: false,
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |consumer| !consumer.assignment().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(told.lock().unwrap().iter().any(|what| what == "leave"), "{told:?}");
    wait_for(&mut consumer, "it cannot join", |consumer| consumer.trouble().is_some()).await;
    let trouble = consumer.trouble().unwrap();
    assert!(trouble.lasts() < Duration::from_secs(2), "{trouble:?}");
}

#[tokio::test]
async fn lost_member_commits_nothing_under_its_new_id() {
    let (told, lost) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, gives_up) = (Arc::clone(&told), Arc::clone(&lost));
    let server = server(move |call| {
        if call.key == ApiKey::Heartbeat && std::mem::take(&mut *gives_up.lock().unwrap()) {
            let error_code = ErrorCode::UNKNOWN_MEMBER_ID.0;
            return Some(call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }));
        }
        classic_group(call, &heard, &gives_up)
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        heartbeat_interval: Duration::from_millis(10),
        auto_commit: false,
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let at_end = |consumer: &Consumer, index| consumer.position(&partition(index)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", |consumer| at_end(consumer, 0) && at_end(consumer, 1)).await;
    *lost.lock().unwrap() = true;
    // The application is busy meanwhile, and does not poll.
    let deadline = Instant::now() + Duration::from_mins(1);
    while told.lock().unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "it joins again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Explicit offsets belong to that membership, too, until the consumer is polled.
    let offset = CommittedOffset { offset: Offset(END), leader_epoch: None, metadata: String::new() };
    let error = consumer.commit_offsets(&[(partition(0), offset)].into()).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UNKNOWN_MEMBER_ID));
    let error = consumer.commit().await.unwrap_err();
    assert_eq!(
        error.code(),
        Some(ErrorCode::UNKNOWN_MEMBER_ID),
        "nor is it told that its positions are safe"
    );
    consumer.commit().await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["join owning 0", "join owning 0"]);
}

#[tokio::test]
async fn member_lost_during_a_revocation_is_lost_once() {
    let (told, stage) = (Told::default(), Arc::new(Mutex::new(0)));
    let (heard, staged) = (Arc::clone(&told), Arc::clone(&stage));
    let never = Arc::default();
    let server = server(move |call| {
        let mut stage = staged.lock().unwrap();
        let code = match (call.key, *stage) {
            (ApiKey::Heartbeat, 1) => ErrorCode::REBALANCE_IN_PROGRESS,
            (ApiKey::Heartbeat, 2) => ErrorCode::UNKNOWN_MEMBER_ID,
            _ => return classic_group(call, &heard, &never),
        };
        *stage += 1;
        Some(call.answer(&HeartbeatResponse { error_code: code.0, ..HeartbeatResponse::default() }))
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        assignors: vec![Assignor::CooperativeSticky],
        heartbeat_interval: Duration::from_millis(10),
        auto_commit: false,
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let at_end = |consumer: &Consumer, index| consumer.position(&partition(index)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", |consumer| at_end(consumer, 0) && at_end(consumer, 1)).await;
    *stage.lock().unwrap() = 1;
    // Without a poll, the consumer does not give up what the group waits for.
    let deadline = Instant::now() + Duration::from_mins(1);
    while told.lock().unwrap().len() < 3 {
        assert!(Instant::now() < deadline, "it joins again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    wait_for(&mut consumer, "it has what it gets", |consumer| {
        consumer.assignment() == [partition(0)] && at_end(consumer, 0)
    })
    .await;
    assert_eq!(*told.lock().unwrap(), ["join owning 0", "join owning 1", "join owning 0"]);
    assert_eq!(consumer.metrics().rebalances, 3, "assigned, lost and assigned");
}

/// A KIP-848 group that assigns both partitions, and revokes the second when it is ready.
pub(crate) fn server_side_group(call: &Call<'_>, told: &Told, ready: &Arc<Mutex<bool>>) -> Option<Reply> {
    let reply = match call.key {
        ApiKey::ConsumerGroupHeartbeat => {
            let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
            if let Some(rack) = &request.rack_id {
                tell(told, format!("in {rack}"));
            }
            if let Some(owned) = &request.topic_partitions {
                let owned: Vec<i32> = owned.iter().flat_map(|topic| topic.partitions.clone()).collect();
                tell(told, format!("epoch {} owns {owned:?}", request.member_epoch));
            } else if request.member_epoch < 0 {
                tell(told, "leave");
            }
            let fewer = std::mem::take(&mut *ready.lock().unwrap());
            let partitions = if fewer { vec![0] } else { vec![0, 1] };
            let assignment =
                Assignment { topic_partitions: vec![TopicPartitions { topic_id: TOPIC_ID, partitions }] };
            call.answer(&ConsumerGroupHeartbeatResponse {
                member_id: Some(request.member_id.clone()),
                member_epoch: if request.member_epoch < 0 { -1 } else { 1 },
                heartbeat_interval_ms: 10,
                assignment: (fewer || request.member_epoch == 0).then_some(assignment),
                ..ConsumerGroupHeartbeatResponse::default()
            })
        }
        ApiKey::OffsetCommit => committed(call, told),
        ApiKey::OffsetFetch => nothing_committed(call),
        _ => return None,
    };
    Some(reply)
}

#[tokio::test]
async fn a_group_hears_of_its_member_s_rack_once() {
    for (group_protocol, expected) in
        [(GroupProtocol::Classic, "join owning 0 in r"), (GroupProtocol::Consumer, "in r")]
    {
        let (told, ready) = (Told::default(), Arc::default());
        let heard = Arc::clone(&told);
        let server = group_server(group_protocol, heard, ready).await;
        let member = member_options(&server, group_protocol);
        let mut consumer =
            Consumer::new(ConsumerOptions { rack: Some("r".to_owned()), ..member }).await.unwrap();
        consumer.subscribe(&["t".to_owned()]).await.unwrap();
        wait_for(&mut consumer, "partitions", |consumer| !consumer.assignment().is_empty()).await;
        let told = told.lock().unwrap().clone();
        assert_eq!(told.iter().filter(|one| *one == expected).count(), 1, "{told:?}");
    }
}

#[tokio::test]
async fn kip848_member_commits_before_it_reports_a_revocation() {
    let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, fewer) = (Arc::clone(&told), Arc::clone(&ready));
    let server = server(move |call| server_side_group(call, &heard, &fewer)).await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        auto_commit_interval: Some(Duration::from_hours(1)),
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let at_end = |consumer: &Consumer, index| consumer.position(&partition(index)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", |consumer| at_end(consumer, 0) && at_end(consumer, 1)).await;
    *ready.lock().unwrap() = true;
    wait_for(&mut consumer, "the second is reported", |_| {
        told.lock().unwrap().iter().any(|what| what == "epoch 1 owns [0]")
    })
    .await;
    assert_eq!(consumer.assignment(), [partition(0)]);
    consumer.close().await.unwrap();
    let expected =
        ["epoch 0 owns []", "epoch 1 owns [0, 1]", "commit 1 14", "epoch 1 owns [0]", "commit 0 14", "leave"];
    assert_eq!(*told.lock().unwrap(), expected);
}

/// Polls until the group has received so many more heartbeats of the member.
async fn heard_again(consumer: &mut Consumer, beats: &Mutex<usize>, what: &str) {
    let before = *beats.lock().unwrap();
    wait_for(consumer, what, |_| *beats.lock().unwrap() >= before + 10).await;
}

/// A KIP-848 consumer whose requests may take longer than any test.
async fn patient_consumer(server: &ScriptedServer) -> Consumer {
    let mut options = ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        // A commit would find out that the server leaves an answer out.
        auto_commit: false,
        ..options(server)
    };
    options.cluster.request_timeout = Duration::from_hours(1);
    Consumer::new(options).await.unwrap()
}

#[tokio::test]
async fn member_sends_heartbeats_while_requesting_topic_names() {
    let (told, ready) = (Told::default(), Arc::default());
    let beats = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&beats);
    let server = server(move |call| {
        if call.key == ApiKey::Metadata {
            let topics = call.decode::<MetadataRequest<'_>>().topics;
            return topics.is_none_or(|topics| !topics.is_empty()).then_some(Reply::Silence);
        }
        *counted.lock().unwrap() += usize::from(call.key == ApiKey::ConsumerGroupHeartbeat);
        server_side_group(call, &told, &ready)
    })
    .await;
    let mut consumer = patient_consumer(&server).await;
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    heard_again(&mut consumer, &beats, "it lives").await;
    assert!(consumer.assignment().is_empty(), "its name is unknown");
}

#[tokio::test]
async fn revocation_does_not_wait_for_names_of_new_topics() {
    let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, is_ready) = (Arc::clone(&told), Arc::clone(&ready));
    let mut moved = false;
    let server = server(move |call| match call.key {
        ApiKey::Metadata if moved => Some(Reply::Silence),
        ApiKey::ConsumerGroupHeartbeat if std::mem::take(&mut *is_ready.lock().unwrap()) => {
            moved = true;
            let of = |topic_id, partitions| TopicPartitions { topic_id, partitions };
            let topic_partitions = vec![of(TOPIC_ID, vec![0]), of(TopicId([8; 16]), vec![0])];
            Some(call.answer(&ConsumerGroupHeartbeatResponse {
                member_epoch: 1,
                heartbeat_interval_ms: 10,
                assignment: Some(Assignment { topic_partitions }),
                ..ConsumerGroupHeartbeatResponse::default()
            }))
        }
        _ => server_side_group(call, &heard, &Arc::default()),
    })
    .await;
    let mut consumer = patient_consumer(&server).await;
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "both are read", |consumer| consumer.assignment().len() == 2).await;
    *ready.lock().unwrap() = true;
    wait_for(&mut consumer, "the second is reported", |_| {
        told.lock().unwrap().iter().any(|what| what == "epoch 1 owns [0]")
    })
    .await;
}

#[tokio::test]
async fn a_topic_that_has_no_name_yet_is_read_when_it_has_one() {
    let (told, ready) = (Told::default(), Arc::default());
    let looks = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&looks);
    let server = server(move |call| match call.key {
        ApiKey::Metadata
            if !call.decode::<MetadataRequest<'_>>().topics.is_some_and(|topics| topics.is_empty()) =>
        {
            *counted.lock().unwrap() += 1;
            let mut metadata = call.metadata_of_epoch(0);
            if *counted.lock().unwrap() < 4 {
                metadata.topics[0].topic_id = TopicId([8; 16]);
            }
            Some(call.answer(&metadata))
        }
        _ => server_side_group(call, &told, &ready),
    })
    .await;
    let mut consumer = patient_consumer(&server).await;
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "both are read", |consumer| consumer.assignment().len() == 2).await;
    assert!(*looks.lock().unwrap() >= 4);
}

#[tokio::test]
async fn the_name_of_a_topic_that_is_new_is_asked_for_at_once() {
    const OTHER_ID: TopicId = TopicId([8; 16]);
    let server = server(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let asked = call.decode::<MetadataRequest<'_>>().topics.unwrap_or_default();
            let is_asked = |name: &str| asked.iter().any(|topic| topic.name.as_deref() == Some(name));
            let mut other = metadata.topics[0].clone();
            (other.name, other.topic_id) = (Some("u".into()), OTHER_ID);
            metadata.topics.push(other);
            metadata.topics.retain(|topic| topic.name.as_deref().is_some_and(is_asked));
            Some(call.answer(&metadata))
        }
        ApiKey::ConsumerGroupHeartbeat => {
            let subscribed = call.decode::<ConsumerGroupHeartbeatRequest<'_>>().subscribed_topic_names;
            let ids = |names: usize| [TOPIC_ID, OTHER_ID].into_iter().take(names);
            let of = |topic_id| TopicPartitions { topic_id, partitions: vec![0] };
            let assigned = |names: usize| Assignment { topic_partitions: ids(names).map(of).collect() };
            Some(call.answer(&ConsumerGroupHeartbeatResponse {
                member_epoch: 1,
                heartbeat_interval_ms: 3_600_000,
                assignment: subscribed.map(|names| assigned(names.len())),
                ..ConsumerGroupHeartbeatResponse::default()
            }))
        }
        ApiKey::OffsetFetch => Some(nothing_committed(call)),
        // The server has records of the first topic only.
        ApiKey::Fetch => Some(Reply::Silence),
        _ => None,
    })
    .await;
    let mut consumer = patient_consumer(&server).await;
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "the first is read", |consumer| consumer.assignment().len() == 1).await;
    consumer.subscribe(&["t".to_owned(), "u".to_owned()]).await.unwrap();
    wait_for(&mut consumer, "both are read", |consumer| consumer.assignment().len() == 2).await;
}

#[tokio::test]
async fn full_heartbeat_does_not_wait_for_a_topic_check() {
    let (told, ready) = (Told::default(), Arc::default());
    let (beats, silent) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let (counted, is_silent) = (Arc::clone(&beats), Arc::clone(&silent));
    let mut refused = false;
    let server = server(move |call| match call.key {
        // A server that leaves patterns to its members.
        ApiKey::ApiVersions => Some(versions(call, 0)),
        ApiKey::Metadata if *is_silent.lock().unwrap() => Some(Reply::Silence),
        ApiKey::ConsumerGroupHeartbeat
            if *is_silent.lock().unwrap() && !std::mem::replace(&mut refused, true) =>
        {
            let error_code = ErrorCode::COORDINATOR_LOAD_IN_PROGRESS.0;
            Some(call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }))
        }
        _ => {
            *counted.lock().unwrap() += usize::from(call.key == ApiKey::ConsumerGroupHeartbeat);
            server_side_group(call, &told, &ready)
        }
    })
    .await;
    let mut consumer = patient_consumer(&server).await;
    consumer.subscribe_pattern("t").await.unwrap();
    wait_for(&mut consumer, "it is a member", |consumer| !consumer.assignment().is_empty()).await;
    *silent.lock().unwrap() = true;
    heard_again(&mut consumer, &beats, "it lives").await;
}

/// The trouble of a member that the group refuses with this code, or does not answer.
async fn trouble_of(group_protocol: GroupProtocol, code: Option<ErrorCode>) -> Trouble {
    let server = server(move |call| {
        let code = match (call.key, code) {
            (ApiKey::JoinGroup | ApiKey::ConsumerGroupHeartbeat, Some(code)) => code.0,
            (ApiKey::JoinGroup | ApiKey::ConsumerGroupHeartbeat, None) => return Some(Reply::Silence),
            _ => return None,
        };
        Some(match call.key {
            ApiKey::JoinGroup => call.answer(&JoinGroupResponse {
                error_code: code,
                protocol_name: Some("".into()),
                ..JoinGroupResponse::default()
            }),
            _ => call.answer(&ConsumerGroupHeartbeatResponse { error_code: code, ..Default::default() }),
        })
    })
    .await;
    let mut options = options(&server);
    options.cluster.request_timeout = Duration::from_millis(200);
    let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    assert!(consumer.trouble().is_none());
    let begun = Instant::now();
    loop {
        assert!(consumer.poll(POLL).await.unwrap().is_empty());
        match consumer.trouble() {
            Some(trouble) if trouble.lasts() >= Duration::from_millis(150) => return trouble,
            _ => assert!(begun.elapsed() < Duration::from_mins(1), "no trouble in time"),
        }
    }
}

#[tokio::test]
async fn trouble_shows_why_a_member_cannot_join() {
    for protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let trouble = trouble_of(protocol, Some(ErrorCode::COORDINATOR_NOT_AVAILABLE)).await;
        assert_eq!(trouble.error.code(), Some(ErrorCode::COORDINATOR_NOT_AVAILABLE), "{protocol:?}");
    }
    let trouble = trouble_of(GroupProtocol::Consumer, None).await;
    assert!(matches!(trouble.error, ClientError::Timeout { .. }), "{}", trouble.error);
}

#[tokio::test]
async fn membership_that_cannot_be_had_is_reported() {
    let server = server(|call| {
        (call.key == ApiKey::JoinGroup).then(|| {
            call.answer(&JoinGroupResponse {
                error_code: ErrorCode::GROUP_AUTHORIZATION_FAILED.0,
                protocol_name: Some("".into()),
                ..JoinGroupResponse::default()
            })
        })
    })
    .await;
    let mut consumer =
        Consumer::new(ConsumerOptions { group: Some("g".to_owned()), ..options(&server) }).await.unwrap();
    consumer.subscribe(&["t".to_owned()]).await.unwrap();
    let error = records(&mut consumer).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::GROUP_AUTHORIZATION_FAILED));
}
