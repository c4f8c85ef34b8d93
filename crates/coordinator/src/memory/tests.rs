//! Which groups and sources are admitted, by the memory taken and by the asking source.

use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, JoinGroupRequest, OffsetCommitRequest};
use riverrun_types::TopicId;

use super::*;
use crate::pattern::PatternTopics;
use crate::{GroupConfig, GroupResponse, Now, ReplyToken, RequestContext, Shard, Step, TopicMetadata};

fn source(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn a_group_grows_to_a_quarter_of_what_there_is_and_no_further() {
    let memory = GroupMemory::new(16_000_000);
    let (mut share, mut charge) = (Share::new(Arc::clone(&memory)), Charge::default());
    share.change(&mut charge, 2_000_000);
    let check = |share: &Share, charged_bytes, part_bytes| {
        Room::new(share, Charge { bytes: charged_bytes, source: None }, charged_bytes).check(part_bytes)
    };
    assert_eq!(check(&share, 0, 3_000_000), Ok(()));
    assert_eq!(check(&share, 0, 3_000_001), Err(Shortage::ForNow));
    assert_eq!(check(&share, 2_000_000, 3_500_000), Ok(()));
    let refused = check(&share, 2_000_000, 3_500_001);
    assert_eq!(refused, Err(Shortage::Forever), "three quarters of the common part are for others");
    share.change(&mut charge, 16_000_000);
    assert_eq!(check(&share, 16_000_000, 16_000_000), Ok(()), "a group that does not grow is not refused");
    assert_eq!(check(&share, 16_000_000, 16_000_001), Err(Shortage::Forever));
    assert_eq!(memory.refusals(), 3);
}

#[test]
fn the_reserve_takes_groups_that_are_little() {
    let memory = GroupMemory::new(800);
    let (mut share, mut charge) = (Share::new(Arc::clone(&memory)), Charge::default());
    share.change(&mut charge, 700);
    let check = |share: &Share, bytes| Room::new(share, Charge::default(), 0).check(bytes);
    assert_eq!((check(&share, 100), check(&share, 101)), (Ok(()), Err(Shortage::ForNow)));
    share.change(&mut charge, 750);
    assert_eq!((check(&share, 50), check(&share, 51)), (Ok(()), Err(Shortage::ForNow)));
}

/// Makes groups of this size for a source until one is refused; returns their number.
fn fill(share: &mut Share, last: u8, size_bytes: usize) -> usize {
    share.set_asker(Some(source(last)));
    let mut count = 0;
    while Room::new(share, Charge::default(), 0).check(size_bytes).is_ok() {
        share.change(&mut Charge::default(), size_bytes);
        count += 1;
    }
    count
}

#[test]
fn a_source_makes_groups_grow_to_what_it_leaves_free() {
    let memory = GroupMemory::new(16_000_000);
    let mut share = Share::new(Arc::clone(&memory));
    let counts: Vec<_> = (1..=4).map(|last| fill(&mut share, last, 100_000)).collect();
    assert_eq!(counts, [35, 26, 19, 15]);
    assert_eq!(memory.largest_sources(2), [(source(1), 3_500_000), (source(2), 2_600_000)]);
    drop(share);
    assert_eq!((memory.held_bytes(), memory.largest_sources(9)), (0, Vec::new()));
}

#[test]
fn small_groups_of_a_source_leave_a_part_to_others() {
    let memory = GroupMemory::new(16_000_000);
    let mut share = Share::new(Arc::clone(&memory));
    assert_eq!(fill(&mut share, 1, 100_000), 35);
    assert_eq!(fill(&mut share, 1, 10_000), 350, "it may have many clients");
    assert_eq!((fill(&mut share, 2, 100_000), fill(&mut share, 2, 10_000)), (17, 180));
}

#[test]
fn sources_that_take_all_they_can_leave_the_reserve_to_others() {
    let memory = GroupMemory::new(256 << 20);
    let mut share = Share::new(Arc::clone(&memory));
    for last in 1..=40 {
        for size_bytes in [1 << 20, 200_000, SMALL_GROUP_BYTES, 2_000] {
            fill(&mut share, last, size_bytes);
        }
    }
    let left_bytes = memory.max_bytes() - memory.held_bytes();
    assert!(left_bytes > 20 << 20, "{left_bytes} bytes are left");
    assert_eq!(fill(&mut share, 41, SMALL_GROUP_BYTES), 16, "a newcomer has the reserve's little amount");
    for last in 42..=250 {
        fill(&mut share, last, SMALL_GROUP_BYTES);
    }
    assert!(memory.held_bytes() <= memory.max_bytes(), "the bound holds as a whole");
    assert!(memory.max_bytes() - memory.held_bytes() < SMALL_GROUP_BYTES, "and there is no more");
}

#[test]
fn group_is_charged_to_the_source_that_made_it_grow_last() {
    let memory = GroupMemory::new(1_200_000);
    let (mut share, mut charge) = (Share::new(Arc::clone(&memory)), Charge::default());
    share.change(&mut charge, 100_000);
    assert_eq!(memory.largest_sources(9), [], "it was loaded");
    share.set_asker(Some(source(1)));
    share.change(&mut charge, 90_000);
    assert_eq!(charge.source, None, "it did not grow");
    share.change(&mut charge, 110_000);
    assert_eq!(memory.largest_sources(9), [(source(1), 110_000)]);
    share.set_asker(Some(source(2)));
    assert!(Room::new(&share, charge, 110_000).check(262_500).is_ok(), "it would be a quarter");
    assert!(Room::new(&share, charge, 110_000).check(262_501).is_err());
    share.change(&mut charge, 120_000);
    let part = share.part(charge);
    assert_eq!(memory.largest_sources(9), [(source(2), 120_000)]);
    share.absorb(part);
    share.set_asker(None);
    share.change(&mut charge, 0);
    assert_eq!((memory.held_bytes(), memory.largest_sources(9)), (0, Vec::new()));
}

#[test]
fn shard_gives_its_memory_back_when_dropped() {
    let memory = GroupMemory::new(100);
    let (mut first, mut second) = (Share::new(Arc::clone(&memory)), Share::new(Arc::clone(&memory)));
    first.change(&mut Charge::default(), 40);
    let mut charge = Charge::default();
    second.change(&mut charge, 30);
    second.change(&mut charge, 10);
    assert_eq!(memory.held_bytes(), 50);
    drop(first);
    assert_eq!(memory.held_bytes(), 10);
}

/// The topic `t` of ten partitions, and `large` with every partition that a test commits.
struct TwoTopics;

impl TopicMetadata for TwoTopics {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        ["t", "large"].into_iter().zip(1..).find(|(topic, _)| *topic == name).map(|(_, id)| TopicId([id; 16]))
    }

    fn topic_name(&self, id: TopicId) -> Option<&str> {
        ["t", "large"].into_iter().find(|name| self.topic_id(name) == Some(id))
    }

    fn partition_count(&self, id: TopicId) -> Option<i32> {
        Some(if id == TopicId([1; 16]) { 10 } else { i32::MAX })
    }

    fn topics_of_pattern(&self, _pattern: &str) -> PatternTopics {
        PatternTopics::Pending
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        1
    }
}

/// Sends a source's request to a shard; returns the answer.
fn send(
    shard: &mut Shard,
    last: u8,
    api_version: i16,
    handle: impl FnOnce(&mut Shard, &RequestContext<'_>) -> Step,
) -> GroupResponse {
    let context = RequestContext {
        now: Now::simulated(0),
        token: ReplyToken(1),
        client_id: "c",
        client_host: "/h",
        api_version,
        random: [7; 16],
    };
    let mut step = shard.on_behalf_of(source(last), |shard| handle(shard, &context));
    step.replies.pop().expect("answered at once").body
}

/// Commits this many partitions without a membership; returns the last one's error, if it was refused.
fn commit(shard: &mut Shard, last: u8, group: &str, partitions: i32) -> ErrorCode {
    let partition = |partition_index| OffsetCommitRequestPartition { partition_index, ..Default::default() };
    let partitions = (0..partitions).map(partition).collect();
    let topics = vec![OffsetCommitRequestTopic { name: "large".into(), partitions, ..Default::default() }];
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..Default::default()
    };
    let of_last = |response: riverrun_protocol::OffsetCommitResponse<'_>| {
        ErrorCode(response.topics[0].partitions.last().expect("one").error_code)
    };
    match send(shard, last, 9, |shard, context| shard.offset_commit(context, &request, &TwoTopics)) {
        GroupResponse::OffsetCommit(response) => of_last(response),
        other => panic!("{other:?}"),
    }
}

/// A member of the classic protocol joins.
fn join(shard: &mut Shard, last: u8, group: &str) -> ErrorCode {
    let request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: b"t"[..].into() }],
        ..Default::default()
    };
    match send(shard, last, 9, |shard, context| shard.join_group(context, &request, &TwoTopics)) {
        GroupResponse::JoinGroup(response) => ErrorCode(response.error_code),
        other => panic!("{other:?}"),
    }
}

/// A member of the consumer protocol joins.
fn join_consumer(shard: &mut Shard, last: u8, group: &str) -> ErrorCode {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: group.into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let join = |shard: &mut Shard, context: &RequestContext<'_>| {
        shard.consumer_group_heartbeat(context, &request, &TwoTopics)
    };
    match send(shard, last, 1, join) {
        GroupResponse::ConsumerGroupHeartbeat(response) => ErrorCode(response.error_code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_newcomer_is_let_in_where_many_have_taken_all_they_can() {
    let memory = GroupMemory::new(32 << 20);
    let mut shard = Shard::new(GroupConfig::default(), Arc::clone(&memory));
    let _ = shard.on_loaded(Now::simulated(0));
    for last in 1..=40 {
        for partitions in [1_000, 50, 1] {
            let mut number = 0;
            while commit(&mut shard, last, &format!("{last}-{partitions}-{number}"), partitions)
                == ErrorCode::NONE
            {
                number += 1;
            }
        }
    }
    assert!(memory.held_bytes() > memory.max_bytes() / 8 * 7, "all that there is for all is taken");
    assert_eq!(commit(&mut shard, 1, "more", 1), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert_eq!(commit(&mut shard, 41, "simple", 30), ErrorCode::NONE);
    assert_eq!(join(&mut shard, 41, "classic"), ErrorCode::MEMBER_ID_REQUIRED);
    assert_eq!(join_consumer(&mut shard, 41, "consumer"), ErrorCode::NONE);
    assert_eq!(commit(&mut shard, 41, "large", 1_000), ErrorCode::COORDINATOR_LOAD_IN_PROGRESS);
    assert!(memory.held_bytes() <= memory.max_bytes(), "{} bytes are charge", memory.held_bytes());
}
