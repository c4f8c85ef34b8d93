//! Requests about groups and offsets: each version plays through what a client of that version does, in a group
//! of its own, and asks about a group that is not there.

use riverrun_protocol::consumer_group_heartbeat_request::TopicPartitions;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use riverrun_protocol::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest, DescribeGroupsRequest,
    ErrorCode, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};
use riverrun_types::TopicId;

use super::{NO_ID, NOWHERE, TOPIC, World, assert_code, assert_ok};
use crate::support::Client;

const COMMITTED: i64 = 2;

pub(super) fn find_coordinator(world: &mut World, version: i16) {
    let mut request = FindCoordinatorRequest::default();
    if version >= 4 {
        request.coordinator_keys = vec!["g".into(), "h".into()];
        let response = world.client.call(&request, version);
        assert_eq!(response.coordinators.len(), 2);
        for coordinator in &response.coordinators {
            assert_ok(coordinator.error_code);
            assert_eq!(format!("{}:{}", coordinator.host, coordinator.port), world.server.bootstrap());
        }
    } else {
        request.key = "g".into();
        let response = world.client.call(&request, version);
        assert_ok(response.error_code);
        assert_eq!(format!("{}:{}", response.host, response.port), world.server.bootstrap());
    }
    if version >= 1 {
        request.key_type = 1;
        let refused = world.client.call(&request, version);
        let code =
            refused.coordinators.first().map_or(refused.error_code, |coordinator| coordinator.error_code);
        assert_ne!(code, 0, "transactions have no coordinator");
    }
}

fn join_request<'a>(group: &'a str, member: &'a str, version: i16) -> JoinGroupRequest<'a> {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: b"subscription"[..].into() };
    let mut request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 30_000,
        member_id: member.into(),
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    if version >= 1 {
        request.rebalance_timeout_ms = 30_000;
    }
    request
}

/// Joins as a client of this version does: from version 4 on the member id is given before joining.
fn join_as(client: &mut Client, group: &str, version: i16) -> JoinGroupResponse<'static> {
    let first = client.call(&join_request(group, "", version), version);
    if version < 4 {
        return first;
    }
    assert_code(first.error_code, ErrorCode::MEMBER_ID_REQUIRED);
    client.call(&join_request(group, &first.member_id, version), version)
}

/// The only member of a group that is stable: its id and generation.
fn settled(world: &mut World, group: &str) -> (String, i32) {
    let joined = join_as(&mut world.client, group, 5);
    assert_ok(joined.error_code);
    let member = joined.member_id.to_string();
    let synced = world.client.call(&sync_request(group, &member, joined.generation_id, 3), 3);
    assert_ok(synced.error_code);
    (member, joined.generation_id)
}

fn sync_request<'a>(
    group: &'a str,
    member: &'a str,
    generation_id: i32,
    version: i16,
) -> SyncGroupRequest<'a> {
    let mine = SyncGroupRequestAssignment { member_id: member.into(), assignment: b"assignment"[..].into() };
    let (protocol_type, protocol_name) =
        if version >= 5 { (Some("consumer".into()), Some("range".into())) } else { (None, None) };
    SyncGroupRequest {
        group_id: group.into(),
        generation_id,
        member_id: member.into(),
        protocol_type,
        protocol_name,
        assignments: vec![mine],
        ..Default::default()
    }
}

pub(super) fn join(world: &mut World, version: i16) {
    let joined = join_as(&mut world.client, &format!("join-{version}"), version);
    assert_ok(joined.error_code);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
    let unknown = world.client.call(&join_request("g", "nobody", version), version);
    assert_code(unknown.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let unnamed = world.client.call(&join_request("", "", version), version);
    assert_code(unnamed.error_code, ErrorCode::INVALID_GROUP_ID);
}

pub(super) fn sync(world: &mut World, version: i16) {
    let group = format!("sync-{version}");
    let (member, generation) = settled(world, &group);
    let synced = world.client.call(&sync_request(&group, &member, generation, version), version);
    assert_ok(synced.error_code);
    assert_eq!(&*synced.assignment, b"assignment");
    let stale = world.client.call(&sync_request(&group, &member, generation + 1, version), version);
    assert_code(stale.error_code, ErrorCode::ILLEGAL_GENERATION);
    let unknown = world.client.call(&sync_request(NOWHERE, &member, generation, version), version);
    assert_code(unknown.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

pub(super) fn heartbeat(world: &mut World, version: i16) {
    let group = format!("heartbeat-{version}");
    let (member, generation_id) = settled(world, &group);
    for (group, code) in [(&*group, ErrorCode::NONE), (NOWHERE, ErrorCode::UNKNOWN_MEMBER_ID)] {
        let request = HeartbeatRequest {
            group_id: group.into(),
            generation_id,
            member_id: (&*member).into(),
            ..Default::default()
        };
        assert_code(world.client.call(&request, version).error_code, code);
    }
}

pub(super) fn leave(world: &mut World, version: i16) {
    let group = format!("leave-{version}");
    let (member, _) = settled(world, &group);
    for code in [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID] {
        let mut request = LeaveGroupRequest { group_id: (&*group).into(), ..Default::default() };
        if version >= 3 {
            request.members = vec![MemberIdentity { member_id: (&*member).into(), ..Default::default() }];
        } else {
            request.member_id = (&*member).into();
        }
        let response = world.client.call(&request, version);
        let found = response.members.first().map_or(response.error_code, |member| member.error_code);
        assert_code(found, code);
    }
}

fn commit_request<'a>(group: &'a str, topic: &'a str, id: TopicId, version: i16) -> OffsetCommitRequest<'a> {
    let partition = OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: COMMITTED,
        committed_metadata: Some("note".into()),
        ..Default::default()
    };
    let mut topic =
        OffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition], ..Default::default() };
    if version >= 10 {
        topic.name = "".into();
        topic.topic_id = id;
    }
    OffsetCommitRequest { group_id: group.into(), topics: vec![topic], ..Default::default() }
}

fn commit(world: &mut World, group: &str) {
    let response = world.client.call(&commit_request(group, TOPIC, world.topic_id, 9), 9);
    assert_ok(response.topics[0].partitions[0].error_code);
}

pub(super) fn offset_commit(world: &mut World, version: i16) {
    let group = format!("commit-{version}");
    let id = world.topic_id;
    let code_of = |world: &mut World, request: &OffsetCommitRequest<'_>| {
        world.client.call(request, version).topics[0].partitions[0].error_code
    };
    assert_ok(code_of(world, &commit_request(&group, TOPIC, id, version)));
    let unknown = match version {
        10.. => ErrorCode::UNKNOWN_TOPIC_ID,
        _ => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
    };
    assert_code(code_of(world, &commit_request(&group, NOWHERE, NO_ID, version)), unknown);
    let (member, generation) = settled(world, &group);
    let mut as_member = commit_request(&group, TOPIC, id, version);
    as_member.member_id = (&*member).into();
    as_member.generation_id_or_member_epoch = generation;
    assert_ok(code_of(world, &as_member));
    as_member.generation_id_or_member_epoch = generation + 7;
    assert_code(code_of(world, &as_member), ErrorCode::ILLEGAL_GENERATION);
    let mut of_nobody = commit_request(&group, TOPIC, id, version);
    of_nobody.group_id = NOWHERE.into();
    of_nobody.member_id = "nobody".into();
    of_nobody.generation_id_or_member_epoch = 3;
    assert_ne!(code_of(world, &of_nobody), 0);
}

pub(super) fn offset_fetch(world: &mut World, version: i16) {
    let group = format!("fetch-{version}");
    commit(world, &group);
    for (group, offset) in [(&*group, COMMITTED), (NOWHERE, -1)] {
        assert_eq!(fetched_by_name_or_id(world, group, version), offset, "{group} {version}");
    }
    if version >= 8 {
        let group =
            OffsetFetchRequestGroup { group_id: (&*group).into(), topics: None, ..Default::default() };
        let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
        let response = world.client.call(&request, version);
        assert_ok(response.groups[0].error_code);
        assert_eq!(response.groups[0].topics.len(), 1);
    } else if version >= 2 {
        let request = OffsetFetchRequest { group_id: (&*group).into(), topics: None, ..Default::default() };
        let response = world.client.call(&request, version);
        assert_ok(response.error_code);
        assert_eq!(response.topics.len(), 1);
    }
}

fn fetched_by_name_or_id(world: &mut World, group: &str, version: i16) -> i64 {
    if version < 8 {
        let topic = OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0, 1] };
        let request =
            OffsetFetchRequest { group_id: group.into(), topics: Some(vec![topic]), ..Default::default() };
        let response = world.client.call(&request, version);
        assert_ok(response.error_code);
        assert_eq!(response.topics[0].partitions[1].committed_offset, -1);
        return response.topics[0].partitions[0].committed_offset;
    }
    let mut topic = OffsetFetchRequestTopics { partition_indexes: vec![0, 1], ..Default::default() };
    if version >= 10 {
        topic.topic_id = world.topic_id;
    } else {
        topic.name = TOPIC.into();
    }
    let group =
        OffsetFetchRequestGroup { group_id: group.into(), topics: Some(vec![topic]), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], topics: Some(Vec::new()), ..Default::default() };
    let response = world.client.call(&request, version);
    assert_ok(response.groups[0].error_code);
    let found = &response.groups[0].topics[0];
    assert_eq!(found.topic_id, if version >= 10 { world.topic_id } else { TopicId::ZERO });
    found.partitions[0].committed_offset
}

pub(super) fn offset_delete(world: &mut World, version: i16) {
    commit(world, "deleting");
    for (group, name, code) in [
        ("deleting", NOWHERE, Ok(())),
        ("deleting", TOPIC, Ok(())),
        (NOWHERE, TOPIC, Err(ErrorCode::GROUP_ID_NOT_FOUND)),
    ] {
        let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
        let topics = vec![OffsetDeleteRequestTopic { name: name.into(), partitions }];
        let response = world.client.call(&OffsetDeleteRequest { group_id: group.into(), topics }, version);
        assert_code(response.error_code, code.err().unwrap_or(ErrorCode::NONE));
    }
}

/// Operations on a group that Kafka lists without an authorizer: read, delete, describe, describe and alter configs.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

pub(super) fn describe(world: &mut World, version: i16) {
    let group = format!("describe-{version}");
    settled(world, &group);
    let request = DescribeGroupsRequest {
        groups: vec![(&*group).into(), NOWHERE.into()],
        include_authorized_operations: version >= 3,
    };
    let response = world.client.call(&request, version);
    assert_ok(response.groups[0].error_code);
    assert_eq!(response.groups[0].group_state, "Stable");
    assert_eq!(response.groups[0].members.len(), 1);
    let operations = if version >= 3 { GROUP_OPERATIONS } else { i32::MIN };
    assert_eq!(response.groups[0].authorized_operations, operations);
    let unknown = if version >= 6 { ErrorCode::GROUP_ID_NOT_FOUND } else { ErrorCode::NONE };
    assert_code(response.groups[1].error_code, unknown);
    assert_eq!(response.groups[1].group_state, "Dead");
}

pub(super) fn delete(world: &mut World, version: i16) {
    let (empty, live) = (format!("empty-{version}"), format!("live-{version}"));
    commit(world, &empty);
    settled(world, &live);
    let request =
        DeleteGroupsRequest { groups_names: vec![(&*empty).into(), (&*live).into(), NOWHERE.into()] };
    let response = world.client.call(&request, version);
    let codes: Vec<_> = response.results.iter().map(|group| ErrorCode(group.error_code)).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::NON_EMPTY_GROUP, ErrorCode::GROUP_ID_NOT_FOUND]);
}

fn consumer_join(group: &str, version: i16) -> ConsumerGroupHeartbeatRequest<'_> {
    ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: if version >= 1 { "a-member-of-my-own".into() } else { "".into() },
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec![TOPIC.into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    }
}

pub(super) fn consumer_heartbeat(world: &mut World, version: i16) {
    let group = format!("consumer-{version}");
    let joined = world.client.call(&consumer_join(&group, version), version);
    assert_ok(joined.error_code);
    let assigned = joined.assignment.expect("the only member gets all").topic_partitions;
    assert_eq!(assigned.len(), 1);
    assert_eq!((assigned[0].topic_id, assigned[0].partitions.len()), (world.topic_id, 2));
    let owned = TopicPartitions { topic_id: world.topic_id, partitions: vec![0, 1] };
    let mut next = ConsumerGroupHeartbeatRequest {
        group_id: (&*group).into(),
        member_id: joined.member_id.expect("given"),
        member_epoch: joined.member_epoch,
        topic_partitions: Some(vec![owned]),
        ..Default::default()
    };
    assert_ok(world.client.call(&next, version).error_code);
    next.member_epoch += 5;
    assert_code(world.client.call(&next, version).error_code, ErrorCode::FENCED_MEMBER_EPOCH);
    next.group_id = NOWHERE.into();
    assert_ne!(world.client.call(&next, version).error_code, 0);
}

pub(super) fn consumer_describe(world: &mut World, version: i16) {
    let group = format!("described-{version}");
    let joined = world.client.call(&consumer_join(&group, 1), 1);
    assert_ok(joined.error_code);
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec![(&*group).into(), NOWHERE.into()],
        include_authorized_operations: true,
    };
    let response = world.client.call(&request, version);
    assert_ok(response.groups[0].error_code);
    assert_eq!(response.groups[0].members.len(), 1);
    assert_code(response.groups[1].error_code, ErrorCode::GROUP_ID_NOT_FOUND);
    let mut operations = |request: ConsumerGroupDescribeRequest<'_>| {
        let groups = world.client.call(&request, version).groups.into_iter();
        groups.map(|group| group.authorized_operations).collect()
    };
    let asked: Vec<i32> = operations(request.clone());
    assert_eq!(asked, [GROUP_OPERATIONS, i32::MIN]);
    let not_asked: Vec<i32> =
        operations(ConsumerGroupDescribeRequest { include_authorized_operations: false, ..request });
    assert_eq!(not_asked, [i32::MIN; 2]);
}
