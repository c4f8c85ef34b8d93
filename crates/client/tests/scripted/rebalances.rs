//! Assignments, claims and commits of a member while its group or its subscription changes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use riverrun_client::{
    Assignor, ClientError, CommittedOffset, Consumer, ConsumerOptions, ErrorCode, GroupProtocol,
    RebalanceListener, Revocation, StartAt,
};
use riverrun_protocol::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use riverrun_protocol::consumer_protocol::decode_subscription;
use riverrun_protocol::join_group_response::JoinGroupResponseMember;
use riverrun_protocol::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use riverrun_protocol::{
    ApiKey, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, MetadataRequest, OffsetCommitRequest, SyncGroupRequest,
    SyncGroupResponse,
};
use riverrun_types::Offset;

use crate::commits::refused;
use crate::consumer::{
    END, Told, committed, nothing_committed, options, partition, records, server, tell, wait_for,
};
use crate::groups::{classic_group, group_server, joined, server_side_group};
use crate::patterns::versions;
use crate::server::{Call, Reply, ScriptedServer, TOPIC_ID};

/// A member of a classic group that has read both partitions of `t` to their end.
async fn member_with(
    server: &ScriptedServer,
    topics: &[&str],
    change: impl FnOnce(&mut ConsumerOptions),
) -> Consumer {
    let mut options = ConsumerOptions {
        group: Some("g".to_owned()),
        assignors: vec![Assignor::CooperativeSticky],
        heartbeat_interval: Duration::from_millis(10),
        auto_commit_interval: Some(Duration::from_hours(1)),
        ..options(server)
    };
    change(&mut options);
    if options.group_protocol == GroupProtocol::Consumer {
        // There the server decides.
        let usual = ConsumerOptions::new(server.options());
        (options.assignors, options.heartbeat_interval) = (usual.assignors, usual.heartbeat_interval);
    }
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(topics).await.unwrap();
    let at_end = |consumer: &Consumer, index| consumer.position(&partition(index)) == Some(Offset(END));
    wait_for(&mut consumer, "both are read", |consumer| at_end(consumer, 0) && at_end(consumer, 1)).await;
    consumer
}

async fn cooperative_member(server: &ScriptedServer, topics: &[&str]) -> Consumer {
    member_with(server, topics, |_| {}).await
}

fn joins(told: &Told) -> usize {
    told.lock().unwrap().iter().filter(|what| what.starts_with("join")).count()
}

/// Waits until it happens, without polling.
async fn unpolled(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !happened() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A classic group that assigns both partitions of `t` once, and then nothing.
fn nothing_more(call: &Call<'_>, told: &Told) -> Option<Reply> {
    match call.key {
        ApiKey::SyncGroup if call.nth > 0 => Some(call.answer(&SyncGroupResponse::default())),
        _ => classic_group(call, told, &Arc::default()),
    }
}

/// Other members may be assigned it in the generation that the join leads to.
#[tokio::test]
async fn cooperative_member_gives_up_unsubscribed_topics_first() {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let server = server(move |call| nothing_more(call, &heard)).await;
    let mut consumer = cooperative_member(&server, &["t", "u"]).await;
    consumer.subscribe(&["u"]).await.unwrap();
    wait_for(&mut consumer, "it joins again", |_| joins(&told) == 2).await;
    assert!(consumer.assignment().is_empty());
    let expected = ["join owning 0", "commit 0 14", "commit 1 14", "join owning 0"];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[tokio::test]
async fn lost_member_commits_nothing_while_unsubscribing() {
    let (told, lost) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, is_lost) = (Arc::clone(&told), Arc::clone(&lost));
    let server = server(move |call| {
        if call.key == ApiKey::Heartbeat && std::mem::take(&mut *is_lost.lock().unwrap()) {
            let error_code = ErrorCode::UNKNOWN_MEMBER_ID.0;
            return Some(call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }));
        }
        nothing_more(call, &heard)
    })
    .await;
    let mut consumer = cooperative_member(&server, &["t", "u"]).await;
    consumer.subscribe(&["u"]).await.unwrap();
    // By then it waits for the consumer, which is not polled.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(joins(&told), 1);
    *lost.lock().unwrap() = true;
    unpolled("it joins again", || joins(&told) == 2).await;
    wait_for(&mut consumer, "it has lost all", |consumer| consumer.assignment().is_empty()).await;
    consumer.commit().await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["join owning 0", "join owning 0"]);
}

/// As another member it would have to wait until the group removes the old one (KAFKA-13419).
#[tokio::test]
async fn member_of_another_generation_rejoins_with_its_id() {
    for (code, comes_back_as) in [(ErrorCode::ILLEGAL_GENERATION, "me"), (ErrorCode::UNKNOWN_MEMBER_ID, "")] {
        // While it is stable, while it gives something up before it joins, and while it gets its assignment.
        for (topic, sync) in [("t", false), ("u", false), ("u", true)] {
            let (members, due) = (Told::default(), Arc::new(Mutex::new(false)));
            let (joined, is_due) = (Arc::clone(&members), Arc::clone(&due));
            let server = server(move |call| {
                let error_code = code.0;
                match call.key {
                    ApiKey::JoinGroup => {
                        tell(&joined, call.decode::<JoinGroupRequest<'_>>().member_id.to_string());
                        nothing_more(call, &Told::default())
                    }
                    ApiKey::Heartbeat if !sync && std::mem::take(&mut *is_due.lock().unwrap()) => {
                        Some(call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }))
                    }
                    ApiKey::SyncGroup if sync && std::mem::take(&mut *is_due.lock().unwrap()) => {
                        Some(call.answer(&SyncGroupResponse { error_code, ..SyncGroupResponse::default() }))
                    }
                    _ => nothing_more(call, &Told::default()),
                }
            })
            .await;
            let mut consumer = cooperative_member(&server, &["t"]).await;
            *due.lock().unwrap() = true;
            consumer.subscribe(&[topic]).await.unwrap();
            let joins = if sync { 3 } else { 2 };
            let has_joined = || members.lock().unwrap().len() >= joins;
            if sync {
                // It gives up partitions before.
                wait_for(&mut consumer, "it joins again", |_| has_joined()).await;
            } else {
                // It waits for the consumer if it has something to give up.
                unpolled("it joins again", has_joined).await;
            }
            assert_eq!(members.lock().unwrap()[joins - 1], comes_back_as, "{code}, {topic}, {sync}");
        }
    }
}

/// A group that keeps the assignment of a static member does not know its new subscription after its return.
#[tokio::test]
async fn unsubscribed_assignment_is_neither_read_nor_kept() {
    for assignor in [Assignor::Range, Assignor::CooperativeSticky] {
        let told = Told::default();
        let heard = Arc::clone(&told);
        let server = server(move |call| nothing_more(call, &heard)).await;
        let mut consumer = Consumer::new(ConsumerOptions {
            group: Some("g".to_owned()),
            assignors: vec![assignor],
            heartbeat_interval: Duration::from_millis(10),
            ..options(&server)
        })
        .await
        .unwrap();
        consumer.subscribe(&["u"]).await.unwrap();
        wait_for(&mut consumer, "it joins again", |_| joins(&told) == 2).await;
        consumer.poll(Duration::from_millis(100)).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["join owning 0", "join owning 0"], "{assignor:?}");
        assert_eq!(consumer.metrics().rebalances, 0, "{assignor:?}");
    }
}

/// A rebalancing group's record of its one member, which the group lets rejoin while its membership is unstable.
#[derive(Default)]
struct Rebalancing {
    unsettled: bool,
    generation: i32,
    /// The generation of the claims in each join.
    claims: Vec<i32>,
    refusals: usize,
}

impl Rebalancing {
    fn answer(&mut self, call: &Call<'_>, told: &Told) -> Option<Reply> {
        match call.key {
            ApiKey::JoinGroup => {
                let request = call.decode::<JoinGroupRequest<'_>>();
                let subscription = decode_subscription(&request.protocols[0].metadata).unwrap();
                self.claims.push(subscription.generation_id);
                self.generation = i32::try_from(call.nth).unwrap();
                Some(joined(call, told, 0))
            }
            ApiKey::SyncGroup if self.unsettled => {
                let error_code = ErrorCode::REBALANCE_IN_PROGRESS.0;
                Some(call.answer(&SyncGroupResponse { error_code, ..SyncGroupResponse::default() }))
            }
            ApiKey::OffsetCommit => {
                let request = call.decode::<OffsetCommitRequest<'_>>();
                let is_current = request.generation_id_or_member_epoch == self.generation;
                let code = match (is_current, self.unsettled) {
                    (true, false) => return Some(committed(call, told)),
                    (true, true) => ErrorCode::REBALANCE_IN_PROGRESS,
                    (false, _) => ErrorCode::ILLEGAL_GENERATION,
                };
                self.refusals += 1;
                self.unsettled &= self.refusals < 5;
                Some(refused(call, code))
            }
            ApiKey::Heartbeat if self.unsettled => {
                let error_code = ErrorCode::REBALANCE_IN_PROGRESS.0;
                Some(call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }))
            }
            _ => classic_group(call, told, &Arc::default()),
        }
    }
}

#[tokio::test]
async fn commit_waits_for_the_end_of_a_rebalance() {
    let (told, state) = (Told::default(), Arc::new(Mutex::new(Rebalancing::default())));
    let (heard, group) = (Arc::clone(&told), Arc::clone(&state));
    let server = server(move |call| group.lock().unwrap().answer(call, &heard)).await;
    let mut consumer = cooperative_member(&server, &["t"]).await;
    state.lock().unwrap().unsettled = true;
    unpolled("it joins again", || state.lock().unwrap().claims.len() > 3).await;
    consumer.commit().await.unwrap();
    let commits: Vec<_> =
        told.lock().unwrap().iter().filter(|what| what.starts_with("commit")).cloned().collect();
    assert_eq!(commits, ["commit 0 14", "commit 1 14"]);
    let claims = state.lock().unwrap().claims.clone();
    assert_eq!(claims[0], -1);
    assert!(claims[1..].iter().all(|claim| *claim == 0), "it was assigned nothing since: {claims:?}");
}

#[tokio::test]
async fn closing_during_a_revocation_commits_before_leaving() {
    let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, rebalance) = (Arc::clone(&told), Arc::clone(&ready));
    let server = server(move |call| classic_group(call, &heard, &rebalance)).await;
    let consumer = member_with(&server, &["t"], |options| options.assignors = vec![Assignor::Range]).await;
    *ready.lock().unwrap() = true;
    unpolled("it hears of the rebalance", || !*ready.lock().unwrap()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    consumer.close().await.unwrap();
    let mut told = told.lock().unwrap().clone();
    told.retain(|what| !what.starts_with("join"));
    assert_eq!(told, ["commit 0 14", "commit 1 14", "leave"]);
}

/// The next reader would repeat records that the application was told are committed.
#[tokio::test]
async fn revoked_partitions_are_committed_manually_first() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
        let (heard, rebalance) = (Arc::clone(&told), Arc::clone(&ready));
        let server = group_server(group_protocol, heard, rebalance).await;
        let mut consumer = member_with(&server, &["t"], |options| {
            options.assignors = vec![Assignor::Range];
            options.group_protocol = group_protocol;
            options.auto_commit = false;
        })
        .await;
        *ready.lock().unwrap() = true;
        unpolled("it hears of the rebalance", || !*ready.lock().unwrap()).await;
        // By then it waits for the consumer.
        tokio::time::sleep(Duration::from_millis(100)).await;
        consumer.commit().await.unwrap();
        let (joined, given_up) = match group_protocol {
            GroupProtocol::Classic => (&["join owning 0"][..], "join owning 0"),
            GroupProtocol::Consumer => (&["epoch 0 owns []", "epoch 1 owns [0, 1]"][..], "epoch 1 owns [0]"),
        };
        let expected = [joined, &["commit 0 14", "commit 1 14", given_up]].concat();
        wait_for(&mut consumer, "it is given up", |_| told.lock().unwrap().len() >= expected.len()).await;
        assert_eq!(told.lock().unwrap()[..expected.len()], *expected, "{group_protocol:?}");
    }
}

/// The group would take it for a commit of a client that is not a member.
#[tokio::test]
async fn lost_member_commits_nothing_until_it_is_admitted() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Consumer] {
        let (told, lost) = (Told::default(), Arc::new(Mutex::new(false)));
        let (heard, is_lost) = (Arc::clone(&told), Arc::clone(&lost));
        let server = server(move |call| {
            let error_code = ErrorCode::UNKNOWN_MEMBER_ID.0;
            match (call.key, *is_lost.lock().unwrap()) {
                (ApiKey::Heartbeat, true) => {
                    Some(call.answer(&HeartbeatResponse { error_code, ..HeartbeatResponse::default() }))
                }
                (ApiKey::ConsumerGroupHeartbeat, true)
                    if call.decode::<ConsumerGroupHeartbeatRequest<'_>>().member_epoch > 0 =>
                {
                    Some(call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }))
                }
                (ApiKey::JoinGroup | ApiKey::ConsumerGroupHeartbeat, true) => Some(Reply::Silence),
                _ if group_protocol == GroupProtocol::Classic => classic_group(call, &heard, &Arc::default()),
                _ => server_side_group(call, &heard, &Arc::default()),
            }
        })
        .await;
        let mut consumer = member_with(&server, &["t"], |options| {
            options.group_protocol = group_protocol;
            options.auto_commit = false;
        })
        .await;
        *lost.lock().unwrap() = true;
        wait_for(&mut consumer, "it has lost all", |consumer| consumer.assignment().is_empty()).await;
        let offset = CommittedOffset { offset: Offset(END), leader_epoch: None, metadata: String::new() };
        let error = consumer.commit_offsets(&[(partition(0), offset)].into()).await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::REBALANCE_IN_PROGRESS), "{group_protocol:?}");
        let told = told.lock().unwrap();
        assert!(!told.iter().any(|what| what.starts_with("commit")), "{group_protocol:?}: {told:?}");
    }
}

/// Keeps offsets elsewhere, or not at all.
struct CommitsNothing;

impl RebalanceListener for CommitsNothing {
    fn revoked(&mut self, revocation: &mut Revocation) {
        revocation.commit.clear();
    }
}

/// It would take effect after other members have read on.
#[tokio::test]
async fn earlier_commit_ends_before_a_partition_is_given_up() {
    let (told, ready) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, rebalance) = (Arc::clone(&told), Arc::clone(&ready));
    let refusals = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&refusals);
    let server = server(move |call| {
        let mut refusals = counted.lock().unwrap();
        if call.key == ApiKey::OffsetCommit && is_of_12(call) && *refusals < 7 {
            *refusals += 1;
            return Some(refused(call, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
        }
        classic_group(call, &heard, &rebalance)
    })
    .await;
    let every_poll = |options: &mut ConsumerOptions| options.auto_commit_interval = Some(Duration::ZERO);
    let mut consumer = member_with(&server, &["t"], every_poll).await;
    consumer.set_listener(CommitsNothing);
    let is_told = |what: &str| told.lock().unwrap().iter().any(|one| one == what);
    wait_for(&mut consumer, "both are committed", |_| is_told("commit 0 14") && is_told("commit 1 14")).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    // The first may have come too early: no commit begins while another is in flight.
    while *refusals.lock().unwrap() == 0 {
        assert!(Instant::now() < deadline, "it is put off");
        consumer.seek(&partition(1), StartAt::Offset(Offset(12))).unwrap();
        consumer.poll(Duration::from_millis(5)).await.unwrap();
    }
    *ready.lock().unwrap() = true;
    wait_for(&mut consumer, "it joins without it", |_| joins(&told) == 3).await;
    let told = told.lock().unwrap();
    let late = told.iter().position(|what| what == "commit 1 12");
    let given_up = told.iter().rposition(|what| what.starts_with("join"));
    assert!(late.is_some() && late < given_up, "{told:?}");
}

/// Whether a commit is one of this offset.
fn is_of_12(call: &Call<'_>) -> bool {
    let request = call.decode::<OffsetCommitRequest<'_>>();
    let mut partitions = request.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.any(|one| one.committed_offset == 12)
}

/// A static leader that has returned assigns nothing, but no other member watches for new partitions (KIP-814).
#[tokio::test]
async fn returned_leader_watches_topics_without_assigning() {
    let (told, grown) = (Told::default(), Arc::new(Mutex::new(false)));
    let (heard, has_grown) = (Arc::clone(&told), Arc::clone(&grown));
    let server = server(move |call| match call.key {
        ApiKey::Metadata => {
            let mut metadata = call.metadata_of_epoch(0);
            let partitions = &mut metadata.topics[0].partitions;
            let third = MetadataResponsePartition { partition_index: 2, ..partitions[0].clone() };
            partitions.extend(has_grown.lock().unwrap().then_some(third));
            Some(call.answer(&metadata))
        }
        ApiKey::JoinGroup => {
            tell(&heard, "join");
            let request = call.decode::<JoinGroupRequest<'_>>();
            let member = JoinGroupResponseMember {
                member_id: "me".into(),
                metadata: request.protocols[0].metadata.clone(),
                ..JoinGroupResponseMember::default()
            };
            Some(call.answer(&JoinGroupResponse {
                protocol_name: Some(request.protocols[0].name.clone()),
                leader: "me".into(),
                member_id: "me".into(),
                skip_assignment: call.nth == 0,
                members: vec![member],
                ..JoinGroupResponse::default()
            }))
        }
        ApiKey::SyncGroup => {
            let request = call.decode::<SyncGroupRequest<'_>>();
            tell(&heard, format!("sync with {}", request.assignments.len()));
            classic_group(call, &heard, &Arc::default())
        }
        _ => classic_group(call, &heard, &Arc::default()),
    })
    .await;
    let mut consumer = member_with(&server, &["t"], |options| {
        options.instance_id = Some("i".to_owned());
        options.auto_commit = false;
        options.cluster.metadata_max_age = Duration::from_millis(100);
    })
    .await;
    assert_eq!(*told.lock().unwrap(), ["join", "sync with 0"]);
    *grown.lock().unwrap() = true;
    wait_for(&mut consumer, "it assigns", |_| told.lock().unwrap().len() >= 4).await;
    assert_eq!(told.lock().unwrap()[2..4], ["join", "sync with 1"]);
}

#[tokio::test]
async fn classic_member_sends_heartbeats_while_resolving_a_pattern() {
    let (beats, silent) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let (counted, is_silent) = (Arc::clone(&beats), Arc::clone(&silent));
    let server = server(move |call| match call.key {
        ApiKey::Metadata if *is_silent.lock().unwrap() => Some(Reply::Silence),
        _ => {
            *counted.lock().unwrap() += usize::from(call.key == ApiKey::Heartbeat);
            classic_group(call, &Told::default(), &Arc::default())
        }
    })
    .await;
    let patient = |options: &mut ConsumerOptions| options.cluster.request_timeout = Duration::from_hours(1);
    let mut consumer = member_with(&server, &["t"], patient).await;
    *silent.lock().unwrap() = true;
    consumer.subscribe_pattern("[tu]").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = *beats.lock().unwrap();
    unpolled("it lives", || *beats.lock().unwrap() >= before + 10).await;
}

/// The consumer takes none of the group's events meanwhile.
#[tokio::test]
async fn unpolled_member_sends_heartbeats_despite_assignments() {
    const GIVEN: usize = 20;
    let beats = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&beats);
    let server = server(move |call| match call.key {
        ApiKey::ConsumerGroupHeartbeat => {
            *counted.lock().unwrap() += 1;
            let partitions = (0..).take(GIVEN.min(call.nth + 1)).collect();
            let topic_partitions = vec![TopicPartitions { topic_id: TOPIC_ID, partitions }];
            Some(call.answer(&ConsumerGroupHeartbeatResponse {
                member_epoch: 1,
                heartbeat_interval_ms: 10,
                assignment: Some(Assignment { topic_partitions }),
                ..ConsumerGroupHeartbeatResponse::default()
            }))
        }
        ApiKey::OffsetFetch => Some(nothing_committed(call)),
        _ => None,
    })
    .await;
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        auto_commit: false,
        ..options(&server)
    })
    .await
    .unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    unpolled("it lives", || *beats.lock().unwrap() >= GIVEN * 2).await;
    wait_for(&mut consumer, "it has all", |consumer| consumer.assignment().len() == GIVEN).await;
}

/// Its join may not wait for the search, but then it is not a member yet.
#[tokio::test]
async fn kip848_member_sends_heartbeats_while_resolving_a_pattern() {
    let (beats, silent) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(false)));
    let (counted, is_silent) = (Arc::clone(&beats), Arc::clone(&silent));
    let server = server(move |call| match call.key {
        // A server that leaves patterns to its members.
        ApiKey::ApiVersions => Some(versions(call, 0)),
        ApiKey::Metadata if *is_silent.lock().unwrap() => Some(Reply::Silence),
        _ => {
            *counted.lock().unwrap() += usize::from(call.key == ApiKey::ConsumerGroupHeartbeat);
            server_side_group(call, &Told::default(), &Arc::default())
        }
    })
    .await;
    let patient = |options: &mut ConsumerOptions| {
        options.group_protocol = GroupProtocol::Consumer;
        options.cluster.request_timeout = Duration::from_hours(1);
    };
    let mut consumer = member_with(&server, &["t"], patient).await;
    *silent.lock().unwrap() = true;
    consumer.subscribe_pattern("[tu]").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = *beats.lock().unwrap();
    unpolled("it lives", || *beats.lock().unwrap() >= before + 10).await;
    assert_eq!(consumer.assignment(), [partition(0), partition(1)], "what it has is its own until then");
}

/// A static member whose instance id the group says is in use, when it joins for the `nth` time after unanswered
/// joins, and whose leave request gets this code: its member epochs, and the final error.
async fn unreleased(nth: usize, released: ErrorCode) -> (Vec<i32>, Option<ErrorCode>) {
    let epochs = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&epochs);
    let server = server(move |call| {
        if call.key != ApiKey::ConsumerGroupHeartbeat {
            return server_side_group(call, &Told::default(), &Arc::default());
        }
        let epoch = call.decode::<ConsumerGroupHeartbeatRequest<'_>>().member_epoch;
        heard.lock().unwrap().push(epoch);
        let code = match epoch {
            -2 => released,
            _ if call.nth < nth => return Some(Reply::Silence),
            _ if call.nth == nth => ErrorCode::UNRELEASED_INSTANCE_ID,
            _ => return server_side_group(call, &Told::default(), &Arc::default()),
        };
        let error_code = code.0;
        Some(call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }))
    })
    .await;
    let mut options = ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        instance_id: Some("i".to_owned()),
        ..options(&server)
    };
    options.cluster.request_timeout = Duration::from_millis(500);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    let error = loop {
        match consumer.poll(Duration::from_millis(5)).await {
            Err(error) => break error.code(),
            Ok(_) if consumer.assignment().len() == 2 => break None,
            Ok(_) => {}
        }
    };
    let epochs = epochs.lock().unwrap().clone();
    (epochs, error)
}

/// The group has admitted it, and its answer was lost.
#[tokio::test]
async fn unanswered_static_join_releases_only_its_own_place() {
    for free in [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID, ErrorCode::GROUP_ID_NOT_FOUND] {
        let (epochs, error) = unreleased(1, free).await;
        assert_eq!((&epochs[..4], error), (&[0, 0, -2, 0][..], None), "{free:?}");
    }
    let refused = Some(ErrorCode::UNRELEASED_INSTANCE_ID);
    assert_eq!(unreleased(1, ErrorCode::FENCED_INSTANCE_ID).await, (vec![0, 0, -2], refused));
    assert_eq!(unreleased(0, ErrorCode::NONE).await, (vec![0], refused), "it has asked for the first time");
}

/// The group's answer to a member with this instance id, or to its leave; no member has it at first.
fn of_place(place: &mut Option<String>, request: &ConsumerGroupHeartbeatRequest<'_>) -> ErrorCode {
    match (request.member_epoch, place.as_deref()) {
        (0, Some(_)) => ErrorCode::UNRELEASED_INSTANCE_ID,
        (0, None) => {
            *place = Some(request.member_id.to_string());
            ErrorCode::NONE
        }
        (_, Some(holder)) if *holder == *request.member_id => {
            *place = place.take().filter(|_| request.member_epoch > 0);
            ErrorCode::NONE
        }
        (_, Some(_)) => ErrorCode::FENCED_INSTANCE_ID,
        (_, None) => ErrorCode::UNKNOWN_MEMBER_ID,
    }
}

/// It left because the application did not poll, and the leave request was lost.
#[tokio::test]
async fn static_member_takes_its_place_back_after_a_lost_leave() {
    let (goodbyes, mut place) = (Arc::new(Mutex::new(0)), None);
    let heard = Arc::clone(&goodbyes);
    let server = server(move |call| {
        if call.key != ApiKey::ConsumerGroupHeartbeat {
            return server_side_group(call, &Told::default(), &Arc::default());
        }
        let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
        let mut goodbyes = heard.lock().unwrap();
        *goodbyes += usize::from(request.member_epoch < 0);
        let error_code = if request.member_epoch < 0 && *goodbyes == 1 {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        } else {
            of_place(&mut place, &request)
        };
        if error_code == ErrorCode::NONE {
            return server_side_group(call, &Told::default(), &Arc::default());
        }
        let error_code = error_code.0;
        Some(call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }))
    })
    .await;
    let options = ConsumerOptions {
        group: Some("g".to_owned()),
        group_protocol: GroupProtocol::Consumer,
        instance_id: Some("i".to_owned()),
        rebalance_timeout: Duration::from_millis(300),
        ..options(&server)
    };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "it is a member", |consumer| consumer.assignment().len() == 2).await;
    unpolled("it leaves", || *goodbyes.lock().unwrap() == 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    wait_for(&mut consumer, "it says it again", |_| *goodbyes.lock().unwrap() == 2).await;
    wait_for(&mut consumer, "it is a member again", |consumer| consumer.assignment().len() == 2).await;
}

/// The joining member would stay until its session times out, with partitions that are not read.
#[tokio::test]
async fn leave_during_a_join_follows_the_join() {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let server = server(move |call| {
        (call.key == ApiKey::ConsumerGroupHeartbeat).then(|| {
            let epoch = call.decode::<ConsumerGroupHeartbeatRequest<'_>>().member_epoch;
            tell(&heard, format!("epoch {epoch}"));
            // Requests behind it on this connection wait for it.
            Reply::Stall
        })
    })
    .await;
    let group_protocol = GroupProtocol::Consumer;
    let mut options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    options.cluster.request_timeout = Duration::from_millis(500);
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    unpolled("it joins", || !told.lock().unwrap().is_empty()).await;
    let error = consumer.close().await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    assert_eq!(*told.lock().unwrap(), ["epoch 0"]);
}

/// The task that joins runs on another thread, and searches the topics that match.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_join_follows_a_leave() {
    const TOPICS: usize = 20_000;
    for pause_ms in [0, 10, 20, 40, 80, 160] {
        let (told, listed) = (Told::default(), Arc::new(Mutex::new(false)));
        let (heard, is_listed) = (Arc::clone(&told), Arc::clone(&listed));
        let server = server(move |call| match call.key {
            // A server that leaves patterns to its members.
            ApiKey::ApiVersions => Some(versions(call, 0)),
            ApiKey::Metadata if call.decode::<MetadataRequest<'_>>().topics.is_none() => {
                let mut metadata = call.metadata_of_epoch(0);
                let first = metadata.topics[0].clone();
                let topic = |number| MetadataResponseTopic {
                    name: Some(format!("{number:0>200}").into()),
                    ..first.clone()
                };
                metadata.topics.extend((0..TOPICS).map(topic));
                *is_listed.lock().unwrap() = true;
                Some(call.answer(&metadata))
            }
            ApiKey::ConsumerGroupHeartbeat => {
                let epoch = call.decode::<ConsumerGroupHeartbeatRequest<'_>>().member_epoch;
                tell(&heard, format!("epoch {epoch}"));
                server_side_group(call, &Told::default(), &Arc::default())
            }
            _ => None,
        })
        .await;
        let group_protocol = GroupProtocol::Consumer;
        let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
        let mut consumer = Consumer::new(options).await.unwrap();
        consumer.subscribe_pattern("[a-z]").await.unwrap();
        unpolled("it looks for topics", || *listed.lock().unwrap()).await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        consumer.close().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(told.lock().unwrap().last().unwrap(), "epoch -1", "{told:?}");
    }
}

/// It has no membership to leave.
#[tokio::test]
async fn refused_member_can_subscribe_again() {
    let server = server(move |call| match call.key {
        ApiKey::ConsumerGroupHeartbeat => {
            let request = call.decode::<ConsumerGroupHeartbeatRequest<'_>>();
            let error_code = match (call.nth, request.member_epoch) {
                (0, _) => ErrorCode::GROUP_MAX_SIZE_REACHED.0,
                (_, -1) => ErrorCode::UNKNOWN_MEMBER_ID.0,
                _ => return server_side_group(call, &Told::default(), &Arc::default()),
            };
            Some(call.answer(&ConsumerGroupHeartbeatResponse { error_code, ..Default::default() }))
        }
        _ => server_side_group(call, &Told::default(), &Arc::default()),
    })
    .await;
    let group_protocol = GroupProtocol::Consumer;
    let options = ConsumerOptions { group: Some("g".to_owned()), group_protocol, ..options(&server) };
    let mut consumer = Consumer::new(options).await.unwrap();
    consumer.subscribe(&["t"]).await.unwrap();
    let error = records(&mut consumer).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::GROUP_MAX_SIZE_REACHED));
    consumer.subscribe(&["t"]).await.unwrap();
    wait_for(&mut consumer, "both are read", |consumer| consumer.assignment().len() == 2).await;
    consumer.close().await.unwrap();
}
