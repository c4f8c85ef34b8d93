//! Which members may commit and fetch offsets of a group.

use riverrun_protocol::ErrorCode;
use riverrun_types::TopicId;

use crate::GroupConfig;
use crate::TopicMetadata as _;
use crate::consumer::ConsumerGroup;
use crate::group::Committer;

use super::world::{Client, World};

/// A group at epoch 2 in which `a` kept partitions 0 and 1 from epoch 1, and `b` was given 2 and 3.
fn group() -> (World, TopicId) {
    let mut world = World::new(GroupConfig { consumer_assignment_interval_ms: 0, ..GroupConfig::default() });
    world.topics.put("t", 4);
    let (mut a, mut b) = (Client::new("a", &["t"]), Client::new("b", &["t"]));
    for _ in 0..4 {
        a.heartbeat(&mut world, false);
        a.reconcile();
        b.heartbeat(&mut world, false);
        b.reconcile();
    }
    assert_eq!((a.epoch, b.epoch), (2, 2));
    let topic = world.topics.topic_id("t").unwrap();
    assert_eq!(a.owned[&topic], [0, 1].into());
    (world, topic)
}

fn committer(member_id: &str, epoch: i32, api_version: i16) -> Committer<'_> {
    Committer { member_id, instance_id: None, epoch, api_version }
}

fn commit(
    group: &ConsumerGroup,
    committer: &Committer<'_>,
    topic: TopicId,
    partition: i32,
) -> Result<(), ErrorCode> {
    group.validate_commit(committer)?;
    group.validate_partition_commit(committer, topic, partition)
}

#[test]
fn member_commits_at_older_epochs_for_its_partitions_then() {
    let (world, topic) = group();
    let group = world.group().unwrap();
    let stale = Err(ErrorCode::STALE_MEMBER_EPOCH);
    let cases = [
        ("a", 2, 0, Ok(())),
        ("a", 1, 0, Ok(())),
        ("a", 1, 2, stale),
        ("a", 0, 0, stale),
        ("a", 3, 0, stale),
        ("b", 2, 2, Ok(())),
        ("b", 1, 2, stale),
        ("c", 2, 0, Err(ErrorCode::UNKNOWN_MEMBER_ID)),
        ("", -1, 0, Err(ErrorCode::UNKNOWN_MEMBER_ID)),
    ];
    for (member, epoch, partition, expected) in cases {
        let committer = committer(member, epoch, 9);
        assert_eq!(commit(group, &committer, topic, partition), expected, "{committer:?} {partition}");
    }
}

#[test]
fn a_member_that_commits_in_a_version_without_epochs_is_told_so() {
    let (world, topic) = group();
    let old = committer("a", 2, 8);
    assert_eq!(commit(world.group().unwrap(), &old, topic, 0), Err(ErrorCode::UNSUPPORTED_VERSION));
}

#[test]
fn an_empty_group_takes_commits_without_membership() {
    let topic = TopicId([1; 16]);
    let group = ConsumerGroup::default();
    assert_eq!(commit(&group, &committer("", -1, 8), topic, 0), Ok(()));
    assert_eq!(commit(&group, &committer("", 1, 9), topic, 0), Err(ErrorCode::UNKNOWN_MEMBER_ID));
}

#[test]
fn offsets_are_fetched_by_anybody_or_by_a_member_at_its_epoch() {
    let (world, _) = group();
    let group = world.group().unwrap();
    assert_eq!(group.validate_fetch(None, -1), Ok(()));
    assert_eq!(group.validate_fetch(Some("a"), 2), Ok(()));
    assert_eq!(group.validate_fetch(Some("a"), 1), Err(ErrorCode::STALE_MEMBER_EPOCH));
    assert_eq!(group.validate_fetch(Some("c"), 2), Err(ErrorCode::UNKNOWN_MEMBER_ID));
    assert_eq!(group.validate_fetch(None, 2), Err(ErrorCode::UNKNOWN_MEMBER_ID));
}
