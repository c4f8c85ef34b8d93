//! A group's own options hold for it from the next heartbeat on, and for no other group.

use std::sync::Arc;

use parking_lot::Mutex;

use super::world::{Client, GROUP, World};
use crate::time::Now;
use crate::{GroupConfig, GroupMemory, OwnConfig, OwnConfigs, Shard, Step};

/// The own options of the tests' group.
#[derive(Debug, Default)]
struct Own(Mutex<OwnConfig>);

impl OwnConfigs for Own {
    fn of(&self, group_id: &str) -> OwnConfig {
        if group_id == GROUP { *self.0.lock() } else { OwnConfig::default() }
    }
}

fn world() -> (World, Arc<Own>) {
    let own = Arc::new(Own::default());
    let config = GroupConfig {
        consumer_session_timeout_ms: 10_000,
        consumer_heartbeat_interval_ms: 1_000,
        consumer_assignment_interval_ms: 0,
        own: Some(Arc::clone(&own) as _),
        ..GroupConfig::default()
    };
    let mut world = World::new(config);
    world.topics.put("t", 2);
    (world, own)
}

/// The interval that is sent to a member.
fn told_interval_ms(client: &mut Client, world: &mut World) -> i32 {
    let response = world.send(&client.request());
    let interval_ms = response.heartbeat_interval_ms;
    client.hear(response, world.now_ms, false);
    interval_ms
}

#[test]
fn a_live_group_goes_by_what_it_sets_from_the_next_heartbeat_on() {
    let (mut world, own) = world();
    let mut client = Client::new("a", &["t"]);
    assert_eq!(told_interval_ms(&mut client, &mut world), 1_000);
    *own.0.lock() = OwnConfig {
        consumer_session_timeout_ms: Some(20_000),
        consumer_heartbeat_interval_ms: Some(2_000),
        consumer_assignment_interval_ms: None,
    };
    assert_eq!(told_interval_ms(&mut client, &mut world), 2_000);
    world.advance(19_999);
    assert_eq!(world.group().map(|group| group.members.len()), Some(1));
    assert_eq!(told_interval_ms(&mut client, &mut world), 2_000);
    *own.0.lock() = OwnConfig::default();
    assert_eq!(told_interval_ms(&mut client, &mut world), 1_000);
    world.advance(10_000);
    assert!(world.group().is_none_or(|group| group.members.is_empty()), "the server's session holds again");
}

#[test]
fn members_have_the_session_that_their_group_sets_after_a_load() {
    let (mut world, own) = world();
    assert_eq!(told_interval_ms(&mut Client::new("a", &["t"]), &mut world), 1_000);
    own.0.lock().consumer_session_timeout_ms = Some(20_000);
    world.shard = Shard::new(world.shard.config.clone(), GroupMemory::unbounded());
    for record in &world.log {
        world.shard.replay(&record.key, record.value.as_deref()).unwrap();
    }
    assert_eq!(world.shard.on_loaded(Now::simulated(0)), Step::default());
    world.advance(19_999);
    assert_eq!(world.group().map(|group| group.members.len()), Some(1));
    world.advance(1);
    assert!(world.group().is_none_or(|group| group.members.is_empty()));
}

#[test]
fn a_group_waits_with_assignments_for_as_long_as_it_sets() {
    let (mut world, own) = world();
    own.0.lock().consumer_assignment_interval_ms = Some(3_000);
    let mut clients = ["a", "b"].map(|id| Client::new(id, &["t"]));
    for client in &mut clients {
        told_interval_ms(client, &mut world);
    }
    let epochs = |world: &World| {
        let group = world.group().expect("it is there");
        (group.group_epoch, group.assignment_epoch)
    };
    assert_eq!(epochs(&world), (2, 1));
    world.advance(3_000);
    told_interval_ms(&mut clients[0], &mut world);
    assert_eq!(epochs(&world), (2, 2));
}
