//! The bounds of one group.

use riverrun_protocol::ErrorCode;

use crate::GroupConfig;

use super::replay::assert_replays;
use super::world::{Client, World};

/// Lets members join until one is refused; returns how many joined, and the last one's error.
fn fill(world: &mut World, client: impl Fn(usize) -> Client) -> (usize, ErrorCode) {
    (0..10_000)
        .map(|index| (index, client(index).heartbeat(world, false)))
        .find(|(_, error)| *error != ErrorCode::NONE)
        .expect("a group without bound")
}

#[test]
fn patterns_of_a_group_are_bounded_but_may_be_shared() {
    let mut world = World::new(GroupConfig::default());
    let with_pattern = |index: usize, pattern: String| {
        let mut client = Client::new(&format!("m{index}"), &[]);
        client.pattern = Some(pattern);
        client
    };
    let refused = fill(&mut world, |index| with_pattern(index, format!("topic-{index}")));
    assert_eq!(refused, (128, ErrorCode::GROUP_MAX_SIZE_REACHED));
    let mut sharing = with_pattern(999, "topic-7".to_owned());
    assert_eq!(sharing.heartbeat(&mut world, false), ErrorCode::NONE);
    assert_replays(&world);
}

#[test]
fn subscriptions_of_a_group_are_bounded_together() {
    let mut world = World::new(GroupConfig { group_metadata_max_bytes: 100, ..GroupConfig::default() });
    let topic = "t".repeat(100 - "client".len() - "/127.0.0.1".len());
    let refused = fill(&mut world, |index| Client::new(&format!("m{index}"), &[&topic]));
    assert_eq!(refused, (64, ErrorCode::GROUP_MAX_SIZE_REACHED));
    let mut larger = Client::new("m0", &[&topic, "u"]);
    assert_eq!(larger.heartbeat(&mut world, false), ErrorCode::INVALID_REQUEST);
    let mut smaller = Client::new("m0", &["u"]);
    assert_eq!(smaller.heartbeat(&mut world, false), ErrorCode::NONE);
}

#[test]
fn the_last_member_that_leaves_takes_along_all_that_was_counted() {
    let mut world = World::new(GroupConfig::default());
    let mut clients: Vec<Client> =
        (0..5).map(|index| Client::new(&format!("m{index}"), &["t", "u"])).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.pattern = (index % 2 == 0).then(|| "v.*".to_owned());
        client.heartbeat(&mut world, false);
    }
    let group = world.group().unwrap();
    assert_eq!(group.topic_sets.len(), 1, "equal subscriptions share their names");
    for client in &mut clients {
        client.leave(&mut world);
    }
    let group = world.group().unwrap();
    assert_eq!(group.subscription_bytes, 0);
    assert!(group.topic_sets.is_empty() && group.pattern_users.is_empty() && group.patterns.is_empty());
    assert!(group.targets.is_empty() && group.holders.topic_count() == 0 && group.next_deadline().is_none());
}

#[test]
fn a_static_member_takes_its_place_back_in_a_full_group() {
    let mut world = World::new(GroupConfig { consumer_max_size: 1, ..GroupConfig::default() });
    let with_instance = |id: &str, instance_id: &str| {
        let mut client = Client::new(id, &["t"]);
        client.instance_id = Some(instance_id.to_owned());
        client
    };
    let mut first = with_instance("m0", "i");
    assert_eq!(first.heartbeat(&mut world, false), ErrorCode::NONE);
    first.leave(&mut world);
    assert_eq!(with_instance("m1", "j").heartbeat(&mut world, false), ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(with_instance("m2", "i").heartbeat(&mut world, false), ErrorCode::NONE);
    assert_replays(&world);
}
