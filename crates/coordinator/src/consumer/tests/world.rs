//! A shard with topics, a clock and a log, and clients that behave as the Java consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_protocol::consumer_group_heartbeat_request::TopicPartitions;
use riverrun_protocol::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode};
use riverrun_types::TopicId;

use crate::assignors::{Assignment, Indexes};
use crate::consumer::ConsumerGroup;
use crate::group::Group;
use crate::pattern::{PatternTopics, TopicPattern};
use crate::time::Now;
use crate::{
    GroupConfig, GroupMemory, GroupResponse, OffsetsRecord, ReplyToken, RequestContext, Shard, Step,
    TopicMetadata,
};

pub(super) const GROUP: &str = "g";
pub(super) const REBALANCE_TIMEOUT_MS: i32 = 60_000;

/// Topics by name: id and partition count.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_name: BTreeMap<String, (TopicId, i32)>,
    generation: u64,
}

impl Topics {
    /// Makes a topic, under an id that no topic had before, or gives it more partitions.
    pub(super) fn put(&mut self, name: &str, partitions: i32) {
        self.generation += 1;
        let mut id = [0; 16];
        id[8..].copy_from_slice(&self.generation.to_be_bytes());
        let topic = self.by_name.entry(name.to_owned()).or_insert((TopicId(id), partitions));
        topic.1 = topic.1.max(partitions);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.generation += 1;
        self.by_name.remove(name);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, TopicId, i32)> {
        self.by_name.iter().map(|(name, (id, partitions))| (name, *id, *partitions))
    }
}

impl TopicMetadata for Topics {
    fn topic_id(&self, name: &str) -> Option<TopicId> {
        self.by_name.get(name).map(|(id, _)| *id)
    }

    fn topic_name(&self, id: TopicId) -> Option<&str> {
        self.by_name.iter().find(|(_, topic)| topic.0 == id).map(|(name, _)| name.as_str())
    }

    fn partition_count(&self, id: TopicId) -> Option<i32> {
        self.by_name.values().find(|topic| topic.0 == id).map(|topic| topic.1)
    }

    fn topics_of_pattern(&self, pattern: &str) -> PatternTopics {
        let compiled = match TopicPattern::compile(pattern) {
            Ok(compiled) => compiled,
            Err(error) => return PatternTopics::Invalid(error.to_string()),
        };
        let mut workspace = compiled.workspace();
        let names = self.by_name.keys().filter(|name| compiled.matches(name, &mut workspace));
        PatternTopics::Known(Arc::new(names.cloned().collect()))
    }

    fn partition_racks(&self, _id: TopicId, _partition: i32) -> Vec<&str> {
        Vec::new()
    }

    fn generation(&self) -> u64 {
        self.generation
    }
}

/// A shard, and everything around it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) shard: Shard,
    pub(super) topics: Topics,
    pub(super) log: Vec<OffsetsRecord>,
    pub(super) now_ms: i64,
}

impl World {
    pub(super) fn new(config: GroupConfig) -> Self {
        let mut shard = Shard::new(config, GroupMemory::unbounded());
        assert_eq!(shard.on_loaded(Now::simulated(0)), Step::default());
        Self { shard, topics: Topics::default(), log: Vec::new(), now_ms: 0 }
    }

    /// Loads the log into a shard with this much memory, and returns the shard.
    pub(super) fn limit_memory(&mut self, max_bytes: usize) -> Arc<GroupMemory> {
        let memory = GroupMemory::new(max_bytes);
        self.shard = Shard::new(self.shard.config.clone(), Arc::clone(&memory));
        for record in &self.log {
            self.shard.replay(&record.key, record.value.as_deref()).unwrap();
        }
        assert_eq!(self.shard.on_loaded(Now::simulated(self.now_ms)), Step::default());
        memory
    }

    pub(super) fn send(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
    ) -> ConsumerGroupHeartbeatResponse<'static> {
        let step = self.shard.consumer_group_heartbeat(&self.context(), request, &self.topics);
        self.answer(step)
    }

    /// Sends a heartbeat to a shard that may record nothing.
    pub(super) fn send_where_full(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
    ) -> ConsumerGroupHeartbeatResponse<'static> {
        let step = self.shard.consumer_group_sign_of_life(&self.context(), request);
        self.answer(step)
    }

    pub(super) fn context(&self) -> RequestContext<'static> {
        RequestContext {
            now: Now::simulated(self.now_ms),
            token: ReplyToken(1),
            client_id: "client",
            client_host: "/127.0.0.1",
            api_version: 1,
            random: [7; 16],
        }
    }

    /// Writes the records of a heartbeat; returns its response.
    fn answer(&mut self, mut step: Step) -> ConsumerGroupHeartbeatResponse<'static> {
        self.log.append(&mut step.records);
        assert_eq!(step.replies.len(), 1);
        match step.replies.remove(0).body {
            GroupResponse::ConsumerGroupHeartbeat(response) => response,
            other => panic!("a heartbeat was answered with {other:?}"),
        }
    }

    /// Lets time pass, handling each deadline as it comes.
    pub(super) fn advance(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        while let Some(at) = self.shard.next_deadline().filter(|at| at.0 <= until_ms) {
            self.now_ms = self.now_ms.max(at.0);
            let mut step = self.shard.expire(Now::simulated(self.now_ms), &self.topics);
            self.log.append(&mut step.records);
        }
        self.now_ms = until_ms;
    }

    pub(super) fn group(&self) -> Option<&ConsumerGroup> {
        match self.shard.groups.get(GROUP).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) => Some(group),
            _ => None,
        }
    }
}

/// A consumer: its view of its membership, and the partitions that it reads.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) topics: BTreeSet<String>,
    pub(super) pattern: Option<String>,
    pub(super) assignor: Option<String>,
    pub(super) epoch: i32,
    /// The last assignment that the coordinator sent.
    pub(super) told: Assignment,
    /// The partitions that it reads.
    pub(super) owned: Assignment,
    /// Whether the next heartbeat has to have all fields, and the partitions that the last one reported.
    says_all: bool,
    reported: Option<Assignment>,
    pub(super) heard_at_ms: i64,
}

impl Client {
    pub(super) fn new(id: &str, topics: &[&str]) -> Self {
        Self {
            id: id.to_owned(),
            instance_id: None,
            topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
            pattern: None,
            assignor: None,
            epoch: 0,
            told: Assignment::new(),
            owned: Assignment::new(),
            says_all: true,
            reported: None,
            heard_at_ms: 0,
        }
    }

    /// The heartbeat that is due: all fields when it joins or is unsure, else only the changed ones.
    pub(super) fn request(&self) -> ConsumerGroupHeartbeatRequest<'static> {
        let owned = self.owned.iter().map(|(&topic_id, partitions)| TopicPartitions {
            topic_id,
            partitions: partitions.indexes().collect(),
        });
        let reports = self.says_all || self.reported.as_ref() != Some(&self.owned);
        let names = || self.topics.iter().cloned().map(Into::into).collect();
        ConsumerGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: self.id.clone().into(),
            member_epoch: self.epoch,
            instance_id: self.instance_id.clone().map(Into::into),
            rebalance_timeout_ms: if self.says_all { REBALANCE_TIMEOUT_MS } else { -1 },
            subscribed_topic_names: self.says_all.then(names),
            subscribed_topic_regex: self.says_all.then(|| self.pattern.clone().unwrap_or_default().into()),
            server_assignor: self.assignor.clone().filter(|_| self.says_all).map(Into::into),
            topic_partitions: reports.then(|| owned.collect()),
            ..ConsumerGroupHeartbeatRequest::default()
        }
    }

    /// Sends a heartbeat; its response may get lost on the way.
    pub(super) fn heartbeat(&mut self, world: &mut World, is_lost: bool) -> ErrorCode {
        let response = world.send(&self.request());
        self.hear(response, world.now_ms, is_lost)
    }

    /// Takes the answer to its heartbeat, unless that gets lost on the way.
    pub(super) fn hear(
        &mut self,
        response: ConsumerGroupHeartbeatResponse<'_>,
        now_ms: i64,
        is_lost: bool,
    ) -> ErrorCode {
        self.heard_at_ms = now_ms;
        if is_lost {
            self.forget_untaken();
            return ErrorCode::NONE;
        }
        let error = ErrorCode(response.error_code);
        match error {
            ErrorCode::NONE => self.accept(response),
            ErrorCode::FENCED_MEMBER_EPOCH | ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::GROUP_ID_NOT_FOUND => {
                self.start_over();
            }
            _ => self.says_all = true,
        }
        error
    }

    fn accept(&mut self, response: ConsumerGroupHeartbeatResponse<'_>) {
        self.reported = Some(self.owned.clone());
        self.epoch = response.member_epoch;
        self.says_all = false;
        if let Some(assignment) = response.assignment {
            let topics = assignment.topic_partitions.into_iter();
            self.told =
                topics.map(|topic| (topic.topic_id, topic.partitions.into_iter().collect())).collect();
        }
    }

    /// Gives up everything; the next heartbeat joins.
    pub(super) fn start_over(&mut self) {
        self.epoch = 0;
        self.told.clear();
        self.owned.clear();
        self.reported = None;
        self.says_all = true;
    }

    /// After a lost response the client sends all fields again, and takes no new partitions until it is told again:
    /// it has just reported that it does not read the ones that it was told to take, which may have been given to
    /// another member for that reason.
    fn forget_untaken(&mut self) {
        self.says_all = true;
        for (topic, partitions) in &mut self.told {
            let owned = self.owned.get(topic);
            *partitions = common(partitions, owned);
        }
        self.told.retain(|_, partitions| !partitions.is_empty());
    }

    /// Stops reading partitions that it was not told to read.
    pub(super) fn revoke(&mut self) {
        for (topic, partitions) in &mut self.owned {
            let told = self.told.get(topic);
            *partitions = common(partitions, told);
        }
        self.owned.retain(|_, partitions| !partitions.is_empty());
    }

    /// Follows its assignment: gives up first, then takes.
    pub(super) fn reconcile(&mut self) {
        self.revoke();
        self.owned.clone_from(&self.told);
    }

    /// Changes its subscription.
    pub(super) fn subscribe(&mut self, topics: BTreeSet<String>, pattern: Option<String>) {
        self.topics = topics;
        self.pattern = pattern;
        self.says_all = true;
    }

    /// The heartbeat with which it leaves, as a static member for a while.
    pub(super) fn farewell(&self) -> ConsumerGroupHeartbeatRequest<'static> {
        let member_epoch = if self.instance_id.is_some() { -2 } else { -1 };
        ConsumerGroupHeartbeatRequest { member_epoch, ..self.request() }
    }

    /// Leaves for good, or, as a static member, for a while.
    pub(super) fn leave(&mut self, world: &mut World) -> ErrorCode {
        let response = world.send(&self.farewell());
        self.start_over();
        ErrorCode(response.error_code)
    }
}

/// The partitions that are in both.
fn common(left: &Indexes, right: Option<&Indexes>) -> Indexes {
    left.indexes().filter(|index| right.is_some_and(|right| right.contains(*index))).collect()
}
