//! Groups that take more than there is for all of them.

use riverrun_broker::Server;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ErrorCode, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest, SyncGroupRequest,
};

use crate::support::{Client, assert_serves, create_topic, find_coordinator, server_with};
use crate::{MIB, alone, assert_grown_less_than, resident_bytes};

/// A join of version 3, in which a newcomer is a member at once.
fn join(client: &mut Client, group: &str, metadata: &[u8]) -> JoinGroupResponse<'static> {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: metadata.into() };
    let request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    client.call(&request, 3)
}

/// The life of a member of an ordinary group of this name.
fn live(client: &mut Client, group: &str) {
    let joined = join(client, group, b"m");
    assert_eq!(ErrorCode(joined.error_code), ErrorCode::NONE, "{group}");
    let member_id = joined.member_id.clone();
    let assignment =
        SyncGroupRequestAssignment { member_id: member_id.clone(), assignment: b"all"[..].into() };
    let sync = SyncGroupRequest {
        group_id: group.into(),
        generation_id: joined.generation_id,
        member_id: member_id.clone(),
        assignments: vec![assignment],
        ..Default::default()
    };
    assert_eq!(ErrorCode(client.call(&sync, 2).error_code), ErrorCode::NONE, "{group}");
    let heartbeat = HeartbeatRequest {
        group_id: group.into(),
        generation_id: joined.generation_id,
        member_id: member_id.clone(),
        ..Default::default()
    };
    assert_eq!(ErrorCode(client.call(&heartbeat, 3).error_code), ErrorCode::NONE, "{group}");
    let partition = OffsetCommitRequestPartition { committed_offset: 7, ..Default::default() };
    let topic =
        OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
    let commit = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: joined.generation_id,
        member_id,
        topics: vec![topic],
        ..Default::default()
    };
    let committed = client.call(&commit, 7);
    assert_eq!(ErrorCode(committed.topics[0].partitions[0].error_code), ErrorCode::NONE, "{group}");
}

fn server_with_groups(options: &[(&str, &str)]) -> (Server, Client) {
    let server = server_with(&[&[("group.initial.rebalance.delay.ms", "0")], options].concat());
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    find_coordinator(&mut client, "ordinary");
    (server, client)
}

#[test]
fn many_large_members_are_refused_and_ordinary_groups_go_on() {
    let _alone = alone();
    let (server, mut ordinary) = server_with_groups(&[("groups.memory.max.bytes", "134217728")]);
    live(&mut ordinary, "ordinary");
    // The frames, the responses and the allocator's own reserves have been as large as they will be.
    let mut rude = Client::new(&server);
    let metadata = vec![b'x'; 7 * MIB / 2];
    assert_eq!(ErrorCode(join(&mut rude, "large-0", &metadata).error_code), ErrorCode::NONE);
    let before = resident_bytes();
    let codes: Vec<ErrorCode> = (1..60)
        .map(|index| ErrorCode(join(&mut rude, &format!("large-{index}"), &metadata).error_code))
        .collect();
    let refused = codes.iter().filter(|code| **code == ErrorCode::COORDINATOR_LOAD_IN_PROGRESS).count();
    let taken = codes.iter().filter(|code| **code == ErrorCode::NONE).count();
    assert!(refused + taken == codes.len() && (1..=5).contains(&taken), "{codes:?}");
    assert_grown_less_than(64 * MIB, before);
    live(&mut ordinary, "ordinary-too");
    assert_serves(&server);
}

#[test]
fn offsets_with_long_metadata_are_refused_beyond_groups_memory() {
    let _alone = alone();
    let options = [("groups.memory.max.bytes", "8388608"), ("offset.metadata.max.bytes", "20000")];
    let (server, mut client) = server_with_groups(&options);
    let before = resident_bytes();
    let note = "n".repeat(20_000);
    let mut refused = 0;
    for index in 0..1_500 {
        let partition = OffsetCommitRequestPartition {
            committed_offset: 7,
            committed_metadata: Some(note.as_str().into()),
            ..Default::default()
        };
        let topic =
            OffsetCommitRequestTopic { name: "t".into(), partitions: vec![partition], ..Default::default() };
        let group_id = format!("notes-{index}").into();
        let commit = OffsetCommitRequest {
            group_id,
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let committed = client.call(&commit, 7);
        match ErrorCode(committed.topics[0].partitions[0].error_code) {
            ErrorCode::NONE => assert_eq!(refused, 0, "one more after others were refused"),
            code => {
                assert_eq!(code, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
                refused += 1;
            }
        }
    }
    // All of it is from one source, which ends at a quarter.
    assert!((1_350..1_450).contains(&refused), "{refused}");
    assert_grown_less_than(24 * MIB, before);
    live(&mut client, "ordinary");
    assert_serves(&server);
}
