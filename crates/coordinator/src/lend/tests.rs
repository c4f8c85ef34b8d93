use std::collections::BTreeSet;

use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::{ErrorCode, JoinGroupRequest, ListGroupsRequest, OffsetCommitRequest};

use super::*;
use crate::pattern::PatternTopics;
use crate::step::{GroupResponse, ReplyToken, RequestContext, Step};
use crate::{Committed, GroupConfig, GroupMemory};

const TOPIC: TopicId = TopicId([1; 16]);

/// One topic of many partitions.
struct OneTopic;

impl TopicMetadata for OneTopic {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        (name == "t").then_some(TOPIC)
    }

    fn topic_name(&self, _id: TopicId) -> Option<&str> {
        Some("t")
    }

    fn partition_count(&self, _id: TopicId) -> Option<i32> {
        Some(10_000)
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

/// Topics of one name, each with this many partitions, and the known topics of any pattern.
struct Grown {
    partitions: i32,
    named: PatternTopics,
    generation: u64,
}

impl TopicMetadata for Grown {
    fn topic_id(&self, _name: &str) -> Option<TopicId> {
        Some(TOPIC)
    }

    fn topic_name(&self, _id: TopicId) -> Option<&str> {
        None
    }

    fn partition_count(&self, _id: TopicId) -> Option<i32> {
        Some(self.partitions)
    }

    fn topics_of_pattern(&self, _pattern: &str) -> PatternTopics {
        self.named.clone()
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

fn context(api_version: i16) -> RequestContext<'static> {
    let now = Now::simulated(1_000);
    RequestContext { now, token: ReplyToken(1), client_id: "", client_host: "", api_version, random: [1; 16] }
}

fn shard_with(config: GroupConfig) -> Shard {
    let mut shard = Shard::new(config, GroupMemory::new(1 << 30));
    assert_eq!(shard.on_loaded(Now::simulated(0)), Step::default());
    shard
}

fn commit(shard: &mut Shard, group_id: &str, partitions: i32) -> ErrorCode {
    let partition = |partition_index| OffsetCommitRequestPartition { partition_index, ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: group_id.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: (0..partitions).map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let step = shard.offset_commit(&context(9), &request, &OneTopic);
    let GroupResponse::OffsetCommit(response) = &step.replies[0].body else { panic!("{step:?}") };
    ErrorCode(response.topics[0].partitions[0].error_code)
}

/// Joins as a member of its own, with this much metadata.
fn join(shard: &mut Shard, group_id: &str, number: u8, metadata_bytes: usize) -> Step {
    let metadata = vec![0; metadata_bytes];
    let request = JoinGroupRequest {
        group_id: group_id.into(),
        session_timeout_ms: 6_000,
        rebalance_timeout_ms: 6_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata: metadata.into() }],
        ..Default::default()
    };
    let context = RequestContext { random: [number; 16], ..context(3) };
    shard.join_group(&context, &request, &OneTopic)
}

fn listed(shard: &Shard) -> Vec<String> {
    let (groups, rest) = shard.list_groups(&ListGroupsRequest::default(), None);
    assert_eq!(rest, None);
    let mut ids: Vec<String> = groups.into_iter().map(|group| group.group_id.to_string()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_group_that_is_lent_comes_back_with_all_that_was_done() {
    let mut shard = shard_with(GroupConfig::default());
    let _waits = join(&mut shard, "g", 1, 1);
    assert_eq!(commit(&mut shard, "h", 1), ErrorCode::NONE);
    let before = (shard.next_deadline(), shard.share.held_bytes());
    let mut lent = shard.lend("g").expect("it is there");
    assert!(shard.is_lent("g") && shard.lend("g").is_none());
    assert_eq!((shard.group_count(), listed(&shard)), (2, vec!["g".to_owned(), "h".to_owned()]));
    assert_eq!(commit(&mut shard, "h", 2), ErrorCode::NONE, "the others go on");
    let _waits = join(lent.shard(), "g", 2, 1);
    let held = shard.share.held_bytes() + lent.shard().share.held_bytes();
    assert!(held > before.1 && shard.share.memory().held_bytes() == held, "it is charged as before");
    shard.take_back(lent);
    assert!(!shard.is_lent("g"));
    assert_eq!((shard.next_deadline(), shard.share.held_bytes()), (before.0, held));
    assert_eq!(shard.describe_group("g", 5).members.len(), 2);
}

#[test]
fn unknown_group_is_lent_within_the_bound_of_groups() {
    let mut shard = shard_with(GroupConfig { groups_max: 2, ..GroupConfig::default() });
    assert_eq!(commit(&mut shard, "g", 1), ErrorCode::NONE);
    let mut second = shard.lend("h").expect("there is room");
    let mut third = shard.lend("i").expect("lent, though there is no room");
    assert_eq!(commit(third.shard(), "i", 1), ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(commit(&mut shard, "j", 1), ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(commit(second.shard(), "h", 1), ErrorCode::NONE);
    shard.take_back(third);
    shard.take_back(second);
    assert_eq!(listed(&shard), ["g", "h"]);
}

#[test]
fn a_group_that_is_lost_gives_its_memory_back() {
    let mut shard = shard_with(GroupConfig::default());
    assert_eq!(commit(&mut shard, "g", 10), ErrorCode::NONE);
    let lent = shard.lend("g");
    let held = shard.share.memory().held_bytes();
    drop(lent);
    assert!(held > 0 && shard.share.memory().held_bytes() == 0);
}

#[test]
fn topics_that_are_deleted_while_a_group_is_lent_are_told_it() {
    let mut shard = shard_with(GroupConfig::default());
    assert_eq!(commit(&mut shard, "g", 1), ErrorCode::NONE);
    let mut lent = shard.lend("g").expect("it is there");
    let deletion = shard.on_topics_deleted(&[("t", TOPIC)], None);
    assert!(deletion.step.records.is_empty() && deletion.goes_on_behind.is_none());
    let deleted = shard.take_deleted(&lent);
    assert_eq!(deleted, [("t".to_owned(), TOPIC)]);
    assert_eq!(lent.shard().on_topics_deleted_in("g", &[("t", TOPIC)]).records.len(), 1);
    assert!(shard.take_deleted(&lent).is_empty());
    shard.take_back(lent);
    assert_eq!(shard.group_count(), 0);
}

#[test]
fn all_groups_are_looked_at_in_slices() {
    let mut shard = shard_with(GroupConfig::default());
    let ids: Vec<String> = (0..5_000).map(|number| format!("g{number:04}")).collect();
    for group_id in &ids {
        assert_eq!(commit(&mut shard, group_id, 1), ErrorCode::NONE);
    }
    assert_eq!(commit(&mut shard, "large", 10_000), ErrorCode::NONE);
    let (mut seen, mut behind, mut slices) = (Vec::new(), None, 0);
    loop {
        let (groups, rest) = shard.list_groups(&ListGroupsRequest::default(), behind.as_deref());
        seen.extend(groups.into_iter().map(|group| group.group_id.to_string()));
        (behind, slices) = (rest, slices + 1);
        if behind.is_none() {
            break;
        }
    }
    assert!(slices > 3 && seen[..5_000] == ids && seen[5_000..] == ["large"], "{slices} slices");
    let (mut tombstones, mut at_length, mut slices) = (0, Vec::new(), 0);
    loop {
        let deletion = shard.on_topics_deleted(&[("t", TOPIC)], behind.as_deref());
        assert!(deletion.step.records.len() < 1_000);
        tombstones += deletion.step.records.len();
        at_length.extend(deletion.at_length);
        (behind, slices) = (deletion.goes_on_behind, slices + 1);
        if behind.is_none() {
            break;
        }
    }
    assert_eq!((tombstones, at_length.as_slice()), (5_000, ["large".into()].as_slice()));
    assert!(slices > 3, "{slices} slices");
}

#[test]
fn long_deadlines_are_left_to_the_lender() {
    let mut shard = shard_with(GroupConfig::default());
    let _waits = join(&mut shard, "g", 1, STEP_COST_MAX);
    let due = Now::simulated(60_000_000);
    assert_eq!(shard.expire(due, &OneTopic), Step::default());
    let group_id = shard.due_at_length(due).expect("it is due");
    assert_eq!(shard.due_at_length(due), None, "it is told once");
    let mut lent = shard.lend(&group_id).expect("it is there");
    assert_eq!(
        lent.shard().expire_lent(due, &group_id, &OneTopic).replies.len(),
        1,
        "the member is answered"
    );
    shard.take_back(lent);
}

#[test]
fn a_heartbeat_costs_what_it_may_lead_to() {
    let mut shard = shard_with(GroupConfig::default());
    let mut request = ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    assert!(shard.cost_of_heartbeat(&request, &OneTopic) > STEP_COST_MAX, "10,000 partitions are assigned");
    let step = shard.consumer_group_heartbeat(&context(1), &request, &OneTopic);
    assert!(step.records.len() > 2);
    let other = ConsumerGroupHeartbeatRequest { member_id: "n".into(), ..request.clone() };
    assert!(shard.cost_of_heartbeat(&other, &OneTopic) > STEP_COST_MAX);
    request.subscribed_topic_names = None;
    request.topic_partitions = None;
    request.member_epoch = 1;
    assert!(shard.cost_of_heartbeat(&request, &OneTopic) > STEP_COST_MAX, "it holds 10,000");
    request.member_id = "nobody".into();
    assert_eq!(shard.cost_of_heartbeat(&request, &OneTopic), 0);
}

/// A heartbeat that joins, by names or by a pattern.
fn joining(names: &[&'static str], pattern: Option<&'static str>) -> ConsumerGroupHeartbeatRequest<'static> {
    ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: "m".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(names.iter().map(|&name| name.into()).collect()),
        subscribed_topic_regex: pattern.map(Into::into),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    }
}

#[test]
fn a_pattern_costs_what_it_names() {
    let shard = shard_with(GroupConfig::default());
    let cost = |named| {
        let topics = Grown { partitions: 1, named, generation: 1 };
        shard.cost_of_heartbeat(&joining(&[], Some("t.*")), &topics)
    };
    let names = |count: usize| -> BTreeSet<String> { (0..count).map(|index| format!("t{index}")).collect() };
    let known = |count| cost(PatternTopics::Known(names(count).into()));
    assert!(known(100) < STEP_COST_MAX);
    assert!(known(5_000) > STEP_COST_MAX);
    assert!(known(50_000) > 5 * known(5_000), "topics beyond a step count, too");
    assert!(cost(PatternTopics::Pending) > STEP_COST_MAX, "it may be much");
    assert_eq!(cost(PatternTopics::Invalid(String::new())), 0);
}

#[test]
fn topics_that_have_grown_cost_what_they_are_now() {
    let mut shard = shard_with(GroupConfig::default());
    let topics = |partitions, generation| Grown { partitions, named: PatternTopics::Pending, generation };
    let joins = joining(&["t"], None);
    assert!(!shard.consumer_group_heartbeat(&context(1), &joins, &topics(1, 1)).records.is_empty());
    let stays = ConsumerGroupHeartbeatRequest {
        member_epoch: 1,
        subscribed_topic_names: None,
        topic_partitions: None,
        ..joins
    };
    assert!(shard.cost_of_heartbeat(&stays, &topics(1, 1)) < STEP_COST_MAX);
    assert!(shard.cost_of_heartbeat(&stays, &topics(10_000, 2)) > STEP_COST_MAX);
    assert!(shard.cost_of_sign_of_life("g", "m", &topics(10_000, 2)) > STEP_COST_MAX);
    assert!(shard.cost_of_join("g", 1) > STEP_COST_MAX, "it names topics, too");
}

#[test]
fn a_group_that_becomes_another_costs_what_its_members_read() {
    let mut shard = shard_with(GroupConfig::default());
    let heartbeat = joining(&[], None);
    assert_eq!(shard.cost_of_heartbeat(&heartbeat, &OneTopic), 0);
    let _waits = join(&mut shard, "g", 1, 10);
    assert!(shard.cost_of_join("g", 10) < STEP_COST_MAX);
    assert!(shard.cost_of_heartbeat(&heartbeat, &OneTopic) > STEP_COST_MAX);
}

/// Groups and partitions of the offsets in a slice, and the groups that it reports as lent.
type Seen = (Vec<(String, i32)>, Vec<String>);

/// The content of all slices.
fn slices(shard: &Shard) -> Vec<Seen> {
    let mut slices = Vec::new();
    let mut place = None;
    loop {
        let slice = shard.committed_slice(place.as_ref());
        let of_group = |committed: Committed| {
            let group_id = committed.group_id.to_string();
            committed.offsets.into_iter().map(move |(partition, _)| (group_id.clone(), partition))
        };
        let shown = slice.committed.into_iter().flat_map(of_group).collect();
        slices.push((shown, slice.lent.iter().map(ToString::to_string).collect()));
        place = slice.next;
        if place.is_none() {
            return slices;
        }
    }
}

#[test]
fn committed_offsets_are_shown_in_slices_each_once() {
    let mut shard = shard_with(GroupConfig::default());
    for (group_id, partitions) in [("a", 1), ("b", 2_500), ("c", 999), ("d", 3)] {
        assert_eq!(commit(&mut shard, group_id, partitions), ErrorCode::NONE);
    }
    let _waits = join(&mut shard, "e", 1, 1);
    let shown = slices(&shard);
    assert!(shown.len() >= 4 && shown.iter().all(|(offsets, _)| offsets.len() <= 1_000), "{}", shown.len());
    let all: Vec<_> = shown.into_iter().flat_map(|(offsets, _)| offsets).collect();
    let of = |group_id: &str, partitions| (0..partitions).map(|index| (group_id.to_owned(), index)).collect();
    let expected: [Vec<_>; 4] = [of("a", 1), of("b", 2_500), of("c", 999), of("d", 3)];
    assert_eq!(all, expected.concat());
}

#[test]
fn lent_group_is_named_where_committed_offsets_are_shown() {
    let mut shard = shard_with(GroupConfig::default());
    for (group_id, partitions) in [("a", 1), ("b", 2_500), ("c", 1)] {
        assert_eq!(commit(&mut shard, group_id, partitions), ErrorCode::NONE);
    }
    let first = shard.committed_slice(None);
    assert!(first.lent.is_empty());
    let lent = shard.lend("b").expect("it is there");
    let new = shard.lend("d").expect("there is room");
    let rest = shard.committed_slice(first.next.as_ref());
    assert_eq!((rest.lent, rest.next), (vec![Arc::from("b")], None), "only a part of it was shown");
    assert_eq!(rest.committed.iter().map(|of| &*of.group_id).collect::<Vec<_>>(), ["c"]);
    let named: Vec<_> = slices(&shard).into_iter().flat_map(|(_, lent)| lent).collect();
    assert_eq!(named, ["b"], "of a group that is not there yet there is nothing to show");
    shard.take_back(lent);
    shard.take_back(new);
    assert!(slices(&shard).iter().all(|(_, lent)| lent.is_empty()));
}
