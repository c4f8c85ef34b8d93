//! Random requests, time and restarts against one shard: nothing panics, the invariants hold after every step, every
//! request is answered exactly once, and the log replayed is the shard.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use riverrun_protocol::offsets_topic::GroupMetadataValue;
use riverrun_protocol::offsets_topic::group_metadata_value::MemberMetadata;
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerGroupHeartbeatRequest, ConsumerProtocolSubscription, OffsetCommitRequest, OffsetDeleteRequest,
    consumer_protocol,
};
use riverrun_types::TopicId;

use super::*;
use crate::classic::check_invariants;
use crate::consumer::tests::memory::check_memory;
use crate::offsets::GroupOffsets;
use crate::pattern::PatternTopics;
use crate::step::ReplyToken;
use crate::topics::TopicMetadata;

const TOPICS: [&str; 2] = ["t", "u"];
const GROUPS: [&str; 2] = ["g", "h"];

/// Both topics, two partitions each.
struct TwoTopics;

impl TopicMetadata for TwoTopics {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        TOPICS.iter().zip(1..).find(|(topic, _)| **topic == name).map(|(_, id)| TopicId([id; 16]))
    }

    fn topic_name(&self, id: TopicId) -> Option<&str> {
        TOPICS.into_iter().find(|name| self.topic_id(name) == Some(id))
    }

    fn partition_count(&self, id: TopicId) -> Option<i32> {
        self.topic_name(id).map(|_| 2)
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

/// The sender of a request: the index of one of the ids that were seen, or none.
#[derive(Clone, Copy, Debug)]
struct Who {
    group: usize,
    member: Option<usize>,
    instance: Option<u8>,
    /// Relative to the group's generation.
    generation: i32,
    api_version: i16,
}

#[derive(Clone, Debug)]
enum Op {
    Join {
        who: Who,
        protocols: Vec<u8>,
        is_connect: bool,
        session_timeout_ms: i32,
        rebalance_timeout_ms: i32,
    },
    Sync {
        who: Who,
    },
    Heartbeat {
        who: Who,
    },
    Leave {
        who: Who,
    },
    Commit {
        who: Who,
        partition: i32,
        offset: i64,
        retention_ms: i64,
    },
    DeleteOffset {
        group: usize,
        partition: i32,
    },
    DeleteGroup {
        group: usize,
    },
    DeleteTopic {
        topic: usize,
    },
    Consumer {
        group: usize,
        member: u8,
        epoch: i32,
    },
    /// A static member joins as if its process had just started.
    Start {
        group: usize,
        instance: u8,
    },
    /// Every member does what it should until the group is stable, if nothing else happens.
    Stabilize {
        group: usize,
    },
    Advance {
        ms: i64,
    },
    Reload,
}

fn who(versions: std::ops::RangeInclusive<i16>) -> impl Strategy<Value = Who> {
    let member = prop_oneof![1 => Just(None), 4 => (0_usize..8).prop_map(Some)];
    let instance = prop_oneof![3 => Just(None), 1 => (0_u8..2).prop_map(Some)];
    let generation = prop_oneof![8 => Just(0), 1 => -2..=2];
    let group = prop_oneof![4 => Just(0), 1 => Just(1)];
    (group, member, instance, generation, versions).prop_map(
        |(group, member, instance, generation, api_version)| Who {
            group,
            member,
            instance,
            generation,
            api_version,
        },
    )
}

fn join() -> impl Strategy<Value = Op> {
    let protocols = prop_oneof![3 => Just(vec![0]), 2 => proptest::collection::vec(0_u8..3, 0..3)];
    let timeouts =
        (prop_oneof![Just(6_000), Just(20_000), Just(1)], prop_oneof![Just(0), Just(5_000), Just(30_000)]);
    (who(0..=9), protocols, proptest::bool::weighted(0.1), timeouts).prop_map(
        |(who, protocols, is_connect, (session_timeout_ms, rebalance_timeout_ms))| Op::Join {
            who,
            protocols,
            is_connect,
            session_timeout_ms,
            rebalance_timeout_ms,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let retention = prop_oneof![4 => Just(-1_i64), 1 => Just(3_000)];
    prop_oneof![
        8 => join(),
        8 => who(0..=5).prop_map(|who| Op::Sync { who }),
        3 => who(0..=4).prop_map(|who| Op::Heartbeat { who }),
        2 => who(0..=5).prop_map(|who| Op::Leave { who }),
        3 => (who(2..=9), -1_i32..3, any::<i64>(), retention).prop_map(|(who, partition, offset, retention_ms)| {
            Op::Commit { who, partition, offset, retention_ms }
        }),
        1 => (0..GROUPS.len(), 0_i32..2).prop_map(|(group, partition)| Op::DeleteOffset { group, partition }),
        1 => (0..GROUPS.len()).prop_map(|group| Op::DeleteGroup { group }),
        1 => (0..TOPICS.len()).prop_map(|topic| Op::DeleteTopic { topic }),
        1 => (0..GROUPS.len(), 0_u8..2, -1_i32..2).prop_map(|(group, member, epoch)| {
            Op::Consumer { group, member, epoch }
        }),
        3 => (0..GROUPS.len(), 0_u8..2).prop_map(|(group, instance)| Op::Start { group, instance }),
        5 => (0..GROUPS.len()).prop_map(|group| Op::Stabilize { group }),
        6 => prop_oneof![Just(1_i64), Just(3_000), Just(6_000), Just(40_000)].prop_map(|ms| Op::Advance { ms }),
        1 => Just(Op::Reload),
    ]
}

/// A shard, its log, and its clients' side.
struct World {
    memory: Arc<GroupMemory>,
    shard: Shard,
    log: Vec<OffsetsRecord>,
    now: i64,
    requests: u64,
    /// Requests without an answer.
    waiting: BTreeSet<ReplyToken>,
    /// Every member id that a client was given, by group.
    seen: BTreeMap<usize, Vec<String>>,
    /// The group of each request.
    asked: BTreeMap<ReplyToken, usize>,
}

fn config() -> GroupConfig {
    GroupConfig {
        max_size: 4,
        groups_max: 2,
        group_offsets_max: 3,
        offsets_retention_ms: 20_000,
        offsets_retention_check_interval_ms: 5_000,
        group_metadata_max_bytes: 900,
        ..GroupConfig::default()
    }
}

fn subscription(topic: &'static str) -> Vec<u8> {
    let subscription = ConsumerProtocolSubscription { topics: vec![topic.into()], ..Default::default() };
    consumer_protocol::encode_subscription(&subscription, 3).unwrap()
}

/// One of three protocols, by index. The index also decides the topic of its subscription.
fn protocol(at: u8) -> JoinGroupRequestProtocol<'static> {
    JoinGroupRequestProtocol {
        name: ["range", "sticky", "other"][usize::from(at)].into(),
        metadata: subscription(TOPICS[usize::from(at) % 2]).into(),
    }
}

impl World {
    fn new(memory_max_bytes: usize) -> Self {
        let memory = GroupMemory::new(memory_max_bytes);
        let mut shard = Shard::new(config(), Arc::clone(&memory));
        let step = shard.on_loaded(Now::simulated(0));
        assert_eq!(step, Step::default());
        Self {
            memory,
            shard,
            log: Vec::new(),
            now: 0,
            requests: 0,
            waiting: BTreeSet::new(),
            seen: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// The id of `who`.
    fn member_id(&self, who: Who) -> String {
        let ids = self.seen.get(&who.group);
        who.member.and_then(|at| ids?.get(at % ids?.len().max(1)).cloned()).unwrap_or_default()
    }

    fn generation(&self, who: Who) -> i32 {
        let current = match self.shard.groups.get(GROUPS[who.group]).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => group.generation(),
            _ => 0,
        };
        current + who.generation
    }

    fn instance_id(who: Who) -> Option<String> {
        who.instance.map(|instance| format!("instance-{instance}"))
    }

    /// Sends a request.
    fn send(
        &mut self,
        group: usize,
        api_version: i16,
        send: impl FnOnce(&mut Shard, &RequestContext<'_>) -> Step,
    ) {
        self.requests += 1;
        let token = ReplyToken(self.requests);
        self.waiting.insert(token);
        self.asked.insert(token, group);
        let mut random = [0; 16];
        random[8..].copy_from_slice(&self.requests.to_be_bytes());
        let now = Now::simulated(self.now);
        let context = RequestContext { now, token, client_id: "c", client_host: "/h", api_version, random };
        let step = send(&mut self.shard, &context);
        self.took(step);
    }

    /// Takes a step: its records to the log, its replies to the waiting clients.
    fn took(&mut self, step: Step) {
        self.log.extend(step.records);
        for reply in step.replies {
            assert!(self.waiting.remove(&reply.token), "an answer to no waiting request: {reply:?}");
            if let GroupResponse::JoinGroup(response) = &reply.body
                && !response.member_id.is_empty()
            {
                let ids = self.seen.entry(self.asked[&reply.token]).or_default();
                if !ids.iter().any(|id| *id == response.member_id) {
                    ids.insert(0, response.member_id.to_string());
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        for (group_id, entry) in &self.shard.groups {
            match &entry.group {
                Group::Simple => assert!(!entry.offsets.is_empty() || entry.lingers, "{group_id} is nothing"),
                Group::Classic(group) => {
                    check_invariants(group);
                    assert!(!group.is_vanishing(), "{group_id} is nothing");
                }
                Group::Consumer(group) => check_memory(group),
            }
            assert_eq!(entry.offsets.iter().count(), entry.offsets.len());
            let offsets =
                entry.offsets.iter().fold(GroupOffsets::default(), |mut again, (topic, index, offset)| {
                    again.insert(topic, index, offset.clone());
                    again
                });
            assert_eq!(offsets.memory_bytes(), entry.offsets.memory_bytes(), "offsets are counted wrongly");
            assert_eq!(entry.charge.bytes, entry.memory_bytes(group_id), "{group_id} is charged wrongly");
            let deadline = entry.group.next_deadline();
            assert!(
                deadline.is_none() || entry.scheduled.is_some_and(|at| Some(at) <= deadline),
                "{group_id} sleeps"
            );
        }
        let scheduled =
            self.shard.groups.iter().filter_map(|(id, entry)| Some((entry.scheduled?, id.clone())));
        let charged: usize = self.shard.groups.values().map(|entry| entry.charge.bytes).sum();
        assert_eq!((self.shard.share.held_bytes(), self.memory.held_bytes()), (charged, charged));
        assert_eq!(self.shard.timers, scheduled.collect::<BTreeSet<_>>());
        assert!(self.shard.groups.len() <= config().groups_max);
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Join { who, protocols, is_connect, session_timeout_ms, rebalance_timeout_ms } => {
                let request = JoinGroupRequest {
                    group_id: GROUPS[who.group].into(),
                    session_timeout_ms,
                    rebalance_timeout_ms,
                    member_id: self.member_id(who).into(),
                    group_instance_id: Self::instance_id(who).map(Into::into),
                    protocol_type: if is_connect { "connect" } else { "consumer" }.into(),
                    protocols: protocols.into_iter().map(protocol).collect(),
                    reason: None,
                };
                self.send(who.group, who.api_version, |shard, context| {
                    shard.join_group(context, &request, &TwoTopics)
                });
            }
            Op::Sync { who } => {
                self.sync(who.group, self.member_id(who), Self::instance_id(who), self.generation(who));
            }
            Op::Heartbeat { who } => {
                let request = HeartbeatRequest {
                    group_id: GROUPS[who.group].into(),
                    generation_id: self.generation(who),
                    member_id: self.member_id(who).into(),
                    group_instance_id: Self::instance_id(who).map(Into::into),
                };
                self.send(who.group, who.api_version, |shard, context| {
                    shard.heartbeat(context, &request, &TwoTopics, true)
                });
            }
            Op::Leave { who } => {
                let member = MemberIdentity {
                    member_id: self.member_id(who).into(),
                    group_instance_id: Self::instance_id(who).map(Into::into),
                    reason: None,
                };
                let request = LeaveGroupRequest {
                    group_id: GROUPS[who.group].into(),
                    member_id: member.member_id.clone(),
                    members: vec![member],
                };
                self.send(who.group, who.api_version, |shard, context| {
                    shard.leave_group(context, &request, &TwoTopics)
                });
            }
            Op::Commit { who, partition, offset, retention_ms } => {
                self.commit(who, partition, offset, retention_ms);
            }
            Op::DeleteOffset { group, partition } => self.delete_offset(group, partition),
            Op::DeleteGroup { group } => {
                let (_, records) = self.shard.delete_group(GROUPS[group]);
                self.took(Step { records, replies: Vec::new() });
            }
            Op::DeleteTopic { topic } => {
                let name = TOPICS[topic];
                let id = TwoTopics.topic_id(name).unwrap();
                let step = self.shard.on_topics_deleted(&[(name, id)], None).step;
                self.took(step);
            }
            Op::Consumer { group, member, epoch } => self.consumer(group, member, epoch),
            Op::Start { group, instance } => {
                self.join(group, String::new(), Some(format!("instance-{instance}")));
            }
            Op::Stabilize { group } => self.stabilize(group),
            Op::Advance { ms } => self.advance(ms),
            Op::Reload => self.reload(),
        }
    }

    fn delete_offset(&mut self, group: usize, partition: i32) {
        let partitions = vec![OffsetDeleteRequestPartition { partition_index: partition }];
        let topics = vec![OffsetDeleteRequestTopic { name: "t".into(), partitions }];
        let request = OffsetDeleteRequest { group_id: GROUPS[group].into(), topics };
        self.send(group, 0, |shard, context| shard.offset_delete(context, &request, &TwoTopics));
    }

    fn consumer(&mut self, group: usize, member: u8, epoch: i32) {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUPS[group].into(),
            member_id: format!("consumer-{member}").into(),
            member_epoch: epoch,
            rebalance_timeout_ms: 10_000,
            subscribed_topic_names: Some(vec!["t".into()]),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        let send = |shard: &mut Shard, context: &RequestContext<'_>| {
            shard.consumer_group_heartbeat(context, &request, &TwoTopics)
        };
        self.send(group, 1, send);
    }

    fn sync(&mut self, group: usize, member_id: String, instance_id: Option<String>, generation_id: i32) {
        let ids = self.seen.get(&group).cloned().unwrap_or_default();
        let assignment = |id: String| SyncGroupRequestAssignment {
            assignment: id.as_bytes().to_vec().into(),
            member_id: id.into(),
        };
        let request = SyncGroupRequest {
            group_id: GROUPS[group].into(),
            generation_id,
            member_id: member_id.into(),
            group_instance_id: instance_id.map(Into::into),
            assignments: ids.into_iter().take(5).map(assignment).collect(),
            ..Default::default()
        };
        self.send(group, 5, |shard, context| shard.sync_group(context, &request, &TwoTopics));
    }

    fn join(&mut self, group: usize, member_id: String, instance_id: Option<String>) {
        let request = JoinGroupRequest {
            group_id: GROUPS[group].into(),
            session_timeout_ms: 20_000,
            rebalance_timeout_ms: 10_000,
            member_id: member_id.into(),
            group_instance_id: instance_id.map(Into::into),
            protocol_type: "consumer".into(),
            protocols: vec![protocol(0)],
            reason: None,
        };
        self.send(group, 9, |shard, context| shard.join_group(context, &request, &TwoTopics));
    }

    fn stabilize(&mut self, group: usize) {
        let who = Who { group, member: None, instance: None, generation: 0, api_version: 9 };
        for (member_id, instance_id) in self.members(group) {
            self.join(group, member_id, instance_id);
        }
        self.advance(3_001);
        for (member_id, instance_id) in self.members(group) {
            self.sync(group, member_id, instance_id, self.generation(who));
        }
    }

    /// The members that the group has, with their instance ids.
    fn members(&self, group: usize) -> Vec<(String, Option<String>)> {
        match self.shard.groups.get(GROUPS[group]).map(|entry| &entry.group) {
            Some(Group::Classic(group)) => {
                group.members().map(|(id, member)| (id.to_string(), member.instance_id.clone())).collect()
            }
            _ => Vec::new(),
        }
    }

    fn commit(&mut self, who: Who, partition: i32, offset: i64, retention_ms: i64) {
        let partition = OffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: offset,
            committed_metadata: Some("note".into()),
            ..Default::default()
        };
        let topic = |name: &'static str| OffsetCommitRequestTopic {
            name: name.into(),
            partitions: vec![partition.clone()],
            ..Default::default()
        };
        let is_member = who.member.is_some();
        let request = OffsetCommitRequest {
            group_id: GROUPS[who.group].into(),
            generation_id_or_member_epoch: if is_member { self.generation(who) } else { -1 },
            member_id: self.member_id(who).into(),
            group_instance_id: Self::instance_id(who).map(Into::into),
            retention_time_ms: retention_ms,
            topics: TOPICS.into_iter().map(topic).collect(),
        };
        let send = |shard: &mut Shard, context: &RequestContext<'_>| {
            shard.offset_commit(context, &request, &TwoTopics)
        };
        self.send(who.group, who.api_version, send);
    }

    fn advance(&mut self, ms: i64) {
        let until = self.now + ms;
        while let Some(at) = self.shard.next_deadline()
            && at.0 <= until
        {
            self.now = self.now.max(at.0);
            let step = self.shard.expire(Now::simulated(self.now), &TwoTopics);
            self.took(step);
            assert!(self.shard.next_deadline().is_none_or(|at| at.0 > self.now), "the same deadline again");
        }
        self.now = until;
    }

    /// Restarts the server: the host answers the waiting clients.
    fn reload(&mut self) {
        self.waiting.clear();
        self.shard = Shard::new(config(), Arc::clone(&self.memory));
        assert!(self.memory.held_bytes() == 0, "the last shard has given its memory back");
        self.shard = replayed(self.log.iter(), &self.memory);
        let step = self.shard.on_loaded(Now::simulated(self.now));
        self.took(step);
    }
}

fn replayed<'a>(records: impl IntoIterator<Item = &'a OffsetsRecord>, memory: &Arc<GroupMemory>) -> Shard {
    let mut shard = Shard::new(config(), Arc::clone(memory));
    for record in records {
        shard.replay(&record.key, record.value.as_deref()).unwrap();
    }
    shard
}

/// The log after compaction, once its tombstones are gone.
fn compacted(log: &[OffsetsRecord]) -> Vec<&OffsetsRecord> {
    let last: BTreeMap<&[u8], usize> =
        log.iter().enumerate().map(|(at, record)| (&*record.key, at)).collect();
    let kept =
        log.iter().enumerate().filter(|(at, record)| last[&*record.key] == *at && record.value.is_some());
    kept.map(|(_, record)| record).collect()
}

/// Stable groups of `lived` are in `replayed` exactly as they were, and no deleted group came back.
fn assert_same(lived: &Shard, replayed: &Shard) {
    let offsets = |shard: &Shard| -> Vec<String> {
        shard.committed_offsets().map(|offset| format!("{offset:?}")).collect()
    };
    assert_eq!(offsets(lived), offsets(replayed));
    for (group_id, entry) in &lived.groups {
        assert_same_size(group_id, entry, replayed);
        let Group::Classic(group) = &entry.group else { continue };
        if !(group.is_stable() || group.is_empty() && group.is_persisted()) {
            continue;
        }
        match replayed.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Classic(other)) => {
                assert_eq!(other.to_record(), group.to_record());
                for topic in TOPICS {
                    assert_eq!(other.is_subscribed_to(topic), group.is_subscribed_to(topic), "{topic}");
                }
            }
            other => panic!("{group_id} was replayed as {other:?}"),
        }
    }
    assert!(replayed.groups.keys().all(|group_id| lived.groups.contains_key(group_id)), "a group came back");
}

/// A replayed group takes the memory that it took when it lived. The record of a classic group has only the chosen
/// protocol, and no changes since the group was stable.
fn assert_same_size(group_id: &str, entry: &GroupEntry, replayed: &Shard) {
    let other = replayed.groups.get(group_id);
    match (&entry.group, other.map(|other| &other.group)) {
        (Group::Classic(group), Some(Group::Classic(other)))
            if group.is_stable() && group.members().all(|(_, member)| member.terms.protocols.len() == 1) =>
        {
            let pending_bytes = group.pending_bytes();
            assert_eq!(other.memory_bytes(), group.memory_bytes() - pending_bytes, "{group_id}");
        }
        (Group::Consumer(group), Some(Group::Consumer(other))) => {
            assert_eq!(other.memory_bytes(), group.memory_bytes(), "{group_id}");
        }
        _ => {}
    }
    let offsets_bytes = other.map_or(0, |other| other.offsets.memory_bytes());
    assert_eq!(offsets_bytes, entry.offsets.memory_bytes(), "{group_id}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases * 4, ..ProptestConfig::default() })]

    #[test]
    fn random_requests_keep_invariants_and_replay_equally(
        ops in proptest::collection::vec(op(), 1..120),
        memory_max_bytes in prop_oneof![3 => Just(usize::MAX), 1 => 2_000_usize..20_000],
    ) {
        let mut world = World::new(memory_max_bytes);
        for op in ops {
            world.run(op);
        }
        let unbounded = GroupMemory::unbounded();
        assert_same(&world.shard, &replayed(world.log.iter(), &unbounded));
        assert_same(&world.shard, &replayed(compacted(&world.log), &unbounded));
        world.advance(24 * 60 * 60 * 1_000);
        assert!(world.waiting.is_empty(), "never answered: {:?}", world.waiting);
        // A day after all members have left, nothing remains: neither in memory nor in the compacted log.
        assert_eq!((world.shard.group_count(), world.memory.held_bytes()), (0, 0));
        assert!(compacted(&world.log).is_empty(), "{:?}", compacted(&world.log));
    }
}

#[test]
fn garbage_in_the_log_is_refused_and_changes_nothing() {
    let mut shard = Shard::new(config(), GroupMemory::unbounded());
    let good = crate::records::group_metadata_tombstone("g").key;
    for key in [&b""[..], b"\x00", b"\x00\x01", b"\x00\x02\x00\x09g", b"\xff"] {
        assert!(shard.replay(key, Some(b"")).is_err(), "{key:?}");
    }
    for value in [&b""[..], b"\x00\x03", b"\x00\x63\x00", b"\xff\xff\xff\xff\xff"] {
        assert!(shard.replay(&good, Some(value)).is_err(), "{value:?}");
    }
    assert_eq!(shard.group_count(), 0);
    shard.replay(b"\x00\x0e\x00\x01g", Some(b"a record of a share group")).unwrap();
    assert_eq!(shard.group_count(), 0);
}

#[test]
fn many_sessions_that_end_together_end_in_slices() {
    let member = |number: i32| MemberMetadata {
        member_id: format!("m{number}").into(),
        session_timeout: 6_000,
        rebalance_timeout: 6_000,
        ..MemberMetadata::default()
    };
    let value = GroupMetadataValue {
        protocol_type: "consumer".into(),
        generation: 1,
        protocol: Some("range".into()),
        leader: Some("m0".into()),
        members: (0..200).map(member).collect(),
        ..GroupMetadataValue::default()
    };
    let record = crate::records::group_metadata("g", &value);
    let mut shard = Shard::new(GroupConfig::default(), GroupMemory::unbounded());
    shard.replay(&record.key, record.value.as_deref()).unwrap();
    assert_eq!(shard.on_loaded(Now::simulated(0)), Step::default());
    let now = Now::simulated(10_000);
    let mut steps = 0;
    while shard.next_deadline().is_some_and(|at| at <= now.moment) {
        let _ = shard.expire(now, &TwoTopics);
        steps += 1;
    }
    assert_eq!(shard.describe_group("g", 5).group_state, "Empty");
    assert!(steps > 200 / (GROUPS_PER_STEP * DUES_PER_GROUP), "{steps}");
}
