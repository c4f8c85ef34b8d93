//! Heartbeats where nothing may be recorded.

use std::collections::BTreeSet;

use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ErrorCode};

use crate::GroupConfig;
use crate::consumer::member::MemberState;

use super::replay::assert_replays;
use super::world::{Client, World};

/// A group with one member, and that member.
fn joined() -> (World, Client) {
    let mut world = World::new(GroupConfig::default());
    world.topics.put("t", 4);
    world.topics.put("u", 4);
    let mut client = Client::new("a", &["t"]);
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    client.reconcile();
    (world, client)
}

/// Sends the client's heartbeats with this epoch for twice its session timeout; returns whether it is still a member.
fn stays(world: &mut World, client: &Client, member_epoch: i32) -> bool {
    let half_session_ms = i64::from(GroupConfig::default().consumer_session_timeout_ms) / 2;
    let written = world.log.len();
    for _ in 0..4 {
        world.advance(half_session_ms);
        let response =
            world.send_where_full(&ConsumerGroupHeartbeatRequest { member_epoch, ..client.request() });
        assert_eq!(ErrorCode(response.error_code), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    }
    let stays = world.group().is_some_and(|group| group.members.contains_key("a"));
    assert!(!stays || world.log.len() == written, "something was recorded");
    assert_replays(world);
    stays
}

#[test]
fn member_stays_and_its_repeated_fields_count() {
    let (mut world, mut client) = joined();
    client.subscribe(BTreeSet::from(["u".to_owned()]), None);
    let epoch = client.epoch;
    assert!(stays(&mut world, &client, epoch));
    for _ in 0..3 {
        assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
        client.reconcile();
    }
    let read: Vec<_> = client.owned.keys().copied().collect();
    let u: Vec<_> = world.topics.iter().filter(|(name, ..)| *name == "u").map(|(_, id, _)| id).collect();
    assert_eq!(read, u);
}

#[test]
fn given_up_partitions_wait_until_they_can_be_recorded() {
    let (mut world, mut client) = joined();
    client.subscribe(BTreeSet::from(["u".to_owned()]), None);
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    let state = world.group().expect("a group").members["a"].progress.state;
    assert_eq!(state, MemberState::UnrevokedPartitions);
    client.revoke();
    let epoch = client.epoch;
    assert!(stays(&mut world, &client, epoch), "longer than a rebalance may take");
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
}

#[test]
fn only_a_member_that_stays_keeps_its_session() {
    for epoch in [-1, 0, 7] {
        let (mut world, client) = joined();
        assert!(!stays(&mut world, &client, epoch), "{epoch}");
    }
    let (mut world, mut client) = joined();
    let epoch = client.epoch;
    client.id = "b".to_owned();
    assert!(!stays(&mut world, &client, epoch), "another");
}
