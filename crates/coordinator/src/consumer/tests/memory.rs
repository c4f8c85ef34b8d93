//! A group's memory is known at any time, and growth beyond the bound is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::ErrorCode;

use crate::assignors::Indexes;
use crate::consumer::member::partition_count;
use crate::consumer::{ConsumerGroup, size};
use crate::memory::{Charge, Share};
use crate::{GroupConfig, GroupMemory};

use super::replay::assert_replays;
use super::world::{Client, World};

/// Checks the group's counts against its content.
pub(crate) fn check_memory(group: &ConsumerGroup) {
    let members = group.members.iter().map(|(id, member)| {
        size::member_bytes(id, &member.subscription) + size::progress_bytes(&member.progress)
    });
    let sets = group.topic_sets.keys().map(|topics| size::set_bytes(topics));
    let users = group.pattern_users.keys().map(|pattern| size::pattern_bytes(pattern));
    let patterns = group.patterns.values().map(size::resolved_bytes);
    let targets = group.targets.values().map(size::target_bytes);
    let counted: usize = members.chain(sets).chain(users).chain(patterns).chain(targets).sum();
    assert_eq!(group.memory_bytes, counted, "the group's size is counted wrongly");
    let targets: usize = group.targets.values().map(partition_count).sum();
    let held: usize = group.members.values().map(|member| member.progress.partition_count()).sum();
    assert_eq!(group.partitions, targets + held, "the group's partitions are counted wrongly");
}

fn config() -> GroupConfig {
    GroupConfig { consumer_assignment_interval_ms: 0, ..GroupConfig::default() }
}

/// A world whose groups have this much memory.
fn world(max_bytes: usize) -> (World, Arc<GroupMemory>) {
    let mut world = World::new(config());
    let memory = world.limit_memory(max_bytes);
    (world, memory)
}

/// Names of topics whose assignment takes more than a quarter of a megabyte.
fn many_names() -> BTreeSet<String> {
    (0..400).map(|index| format!("t-{index}")).collect()
}

#[test]
fn a_member_is_refused_what_would_be_assigned_to_it() {
    let (mut world, memory) = world(1_000_000);
    world.topics.put("small", 10);
    let many = many_names();
    for name in &many {
        world.topics.put(name, 1);
    }
    let (mut a, mut b) = (Client::new("a", &["small"]), Client::new("b", &[]));
    b.subscribe(many, None);
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE);
    let refused = b.heartbeat(&mut world, false);
    assert_eq!(refused, ErrorCode::GROUP_MAX_SIZE_REACHED, "more than a quarter of it will never do");
    a.reconcile();
    assert_eq!(a.heartbeat(&mut world, false), ErrorCode::NONE);
    assert_eq!(a.owned.values().map(Indexes::len).sum::<usize>(), 10);
    assert_eq!((world.group().unwrap().members.len(), memory.refusals()), (1, 1));
}

#[test]
fn group_without_memory_keeps_its_assignment() {
    let (mut world, memory) = world(1_000_000);
    world.topics.put("t-0", 10);
    let mut client = Client::new("a", &[]);
    client.subscribe(many_names(), None);
    client.heartbeat(&mut world, false);
    client.reconcile();
    for name in many_names().iter().skip(1) {
        world.topics.put(name, 1);
    }
    for _ in 0..3 {
        world.now_ms += 1_000;
        assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    }
    assert_eq!(client.owned.values().map(Indexes::len).sum::<usize>(), 10);
    assert_eq!(world.group().unwrap().state_name(), "Assigning");
    assert_eq!(memory.refusals(), 3);
    assert_replays(&world);
}

#[test]
fn pattern_without_memory_keeps_its_topics() {
    let (mut world, memory) = world(1_000_000);
    let mut others = Share::new(memory);
    others.change(&mut Charge::default(), 900_000);
    world.topics.put("t-0", 1);
    let mut client = Client::new("a", &[]);
    client.pattern = Some("t-.*".to_owned());
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    for index in 1..2_000 {
        world.topics.put(&format!("t-{index}"), 1);
    }
    world.now_ms += 20_000;
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    let named = |world: &World| world.group().unwrap().patterns["t-.*"].topics.len();
    assert_eq!(named(&world), 1);
    drop(others);
    world.now_ms += 20_000;
    assert_eq!(client.heartbeat(&mut world, false), ErrorCode::NONE);
    assert_eq!(named(&world), 2_000, "it is tried again");
}

#[test]
fn group_memory_is_given_back_when_its_last_member_leaves() {
    let (mut world, memory) = world(100_000_000);
    world.topics.put("t", 1_000);
    let mut client = Client::new("a", &["t"]);
    client.pattern = Some("t.*".to_owned());
    client.heartbeat(&mut world, false);
    let group = world.group().unwrap();
    check_memory(group);
    assert_eq!((group.holders.topic_count(), group.targets.len()), (1, 1));
    let bytes = group.memory_bytes();
    assert!((2_000..10_000).contains(&bytes), "{bytes} bytes: neighbours take as much as one partition");
    client.leave(&mut world);
    assert!(memory.held_bytes() < 2_000, "{}", memory.held_bytes());
    let group = world.group().unwrap();
    assert_eq!(group.memory_bytes(), 0);
    assert_eq!(group.holders.topic_count(), 0);
}
