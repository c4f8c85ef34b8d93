//! A group that is loaded from its records equals the one that lived.

use std::collections::BTreeMap;

use crate::consumer::ConsumerGroup;
use crate::group::Group;
use crate::{GroupConfig, GroupMemory, Now, OffsetsRecord, Shard};

use super::memory::check_memory;
use super::world::{Client, GROUP, World};

/// The state of a group that is in the log, without soft state.
fn hard_state(group: &ConsumerGroup) -> String {
    format!(
        "{} {} {} {} {:#?} {:?} {:?} {:?} {:?} {:?} {:?} {} {}",
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.assigned_at.map_or(0, |at| at.wall.0),
        group.members,
        group.static_members,
        group.targets,
        group.patterns,
        group.holders,
        group.topic_sets,
        group.pattern_users,
        group.subscription_bytes,
        group.memory_bytes,
    )
}

fn load<'a>(records: impl IntoIterator<Item = &'a OffsetsRecord>, now_ms: i64) -> Shard {
    let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
    for record in records {
        shard.replay(&record.key, record.value.as_deref()).unwrap();
    }
    assert!(shard.on_loaded(Now::simulated(now_ms)).records.is_empty());
    shard
}

fn state_of(shard: &Shard) -> Option<String> {
    match shard.groups.get(GROUP).map(|entry| &entry.group) {
        Some(Group::Consumer(group)) => Some(hard_state(group)),
        _ => None,
    }
}

/// The last record of each key, in the order of the log, tombstones left out.
fn compacted(log: &[OffsetsRecord]) -> Vec<&OffsetsRecord> {
    let last: BTreeMap<&[u8], usize> = (0..).zip(log).map(|(index, record)| (&*record.key, index)).collect();
    let is_last = |(index, record): &(usize, &OffsetsRecord)| last.get(&*record.key) == Some(index);
    (0..).zip(log).filter(is_last).map(|(_, record)| record).filter(|record| record.value.is_some()).collect()
}

/// Loads the world's log, as it was written and compacted, and compares.
pub(super) fn assert_replays(world: &World) {
    let lived = world.group().map(hard_state);
    world.group().into_iter().for_each(check_memory);
    assert_eq!(state_of(&load(&world.log, world.now_ms)), lived);
    assert_eq!(state_of(&load(compacted(&world.log), world.now_ms)), lived);
}

#[test]
fn members_of_a_loaded_group_go_on_where_they_were() {
    let mut world = World::new(GroupConfig::default());
    world.topics.put("t", 4);
    let mut client = Client::new("a", &["t"]);
    client.heartbeat(&mut world, false);
    client.reconcile();
    world.shard = load(&world.log, world.now_ms);
    let (epoch, written) = (client.epoch, world.log.len());
    client.heartbeat(&mut world, false);
    assert_eq!((client.epoch, world.log.len()), (epoch, written));
}

#[test]
fn a_loaded_group_forgets_members_that_stay_silent() {
    let mut world = World::new(GroupConfig::default());
    world.topics.put("t", 4);
    Client::new("a", &["t"]).heartbeat(&mut world, false);
    world.now_ms = 1_000_000;
    world.shard = load(&world.log, world.now_ms);
    world.advance(44_999);
    assert!(!world.group().unwrap().is_empty());
    world.advance(1);
    assert!(world.group().unwrap().is_empty());
    assert_replays(&world);
}

#[test]
fn a_deleted_group_is_gone_after_a_load() {
    let mut world = World::new(GroupConfig::default());
    world.topics.put("t", 4);
    let mut client = Client::new("a", &["t"]);
    client.pattern = Some("t.*".to_owned());
    client.heartbeat(&mut world, false);
    client.leave(&mut world);
    let (result, mut records) = world.shard.delete_group(GROUP);
    assert_eq!(result.error_code, 0);
    world.log.append(&mut records);
    assert_eq!(load(&world.log, 0).group_count(), 0);
    assert!(compacted(&world.log).is_empty(), "a deleted group leaves nothing behind in the log");
}

#[test]
fn a_record_that_is_cut_is_an_error_and_changes_nothing() {
    let mut world = World::new(GroupConfig::default());
    world.topics.put("t", 4);
    Client::new("a", &["t"]).heartbeat(&mut world, false);
    for record in &world.log {
        let value = record.value.as_deref().unwrap();
        for len in 0..value.len() {
            let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
            assert!(shard.replay(&record.key, Some(&value[..len])).is_err());
            assert_eq!(shard.group_count(), 0);
        }
    }
}
