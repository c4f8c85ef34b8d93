//! A shard with its log, which crashes on command, and the answers that clients have not fetched yet.

use std::collections::BTreeMap;

use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_protocol::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode, OffsetCommitRequest,
};

use crate::consumer::member::{Member, MemberId};
use crate::group::Group;
use crate::time::Now;
use crate::{
    GroupConfig, GroupMemory, GroupResponse, OffsetsRecord, ProtocolChange, ReplyToken, RequestContext,
    Shard, Step,
};

use super::super::world::{GROUP, Topics};

pub(super) const TOPIC: &str = "t";
pub(super) const PARTITIONS: i32 = 6;

/// When the server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// Between two requests.
    Now,
    /// In the next request, before its records are in the log.
    BeforeWrite,
    /// In the next request, when its records are in the log and no reply was sent.
    AfterWrite,
}

/// The committer.
#[derive(Clone, Debug)]
pub(super) struct Committer {
    pub(super) member_id: String,
    pub(super) instance_id: Option<String>,
    pub(super) epoch: i32,
}

/// A server.
///
/// Invariants: the log has the records of each step whose replies were sent.
pub(super) struct Server {
    shard: Shard,
    topics: Topics,
    log: Vec<OffsetsRecord>,
    pub(super) now_ms: i64,
    requests: u64,
    answers: BTreeMap<ReplyToken, GroupResponse>,
    next_crash: Option<Crash>,
    /// Counts the starts: requests of an earlier life are never answered.
    pub(super) life: u32,
}

fn config() -> GroupConfig {
    GroupConfig { consumer_assignment_interval_ms: 0, ..GroupConfig::default() }
}

impl Server {
    pub(super) fn new() -> Self {
        let mut topics = Topics::default();
        topics.put(TOPIC, PARTITIONS);
        let mut shard = Shard::new(config(), GroupMemory::unbounded());
        assert_eq!(shard.on_loaded(Now::simulated(0)), Step::default());
        Self {
            shard,
            topics,
            log: Vec::new(),
            now_ms: 0,
            requests: 0,
            answers: BTreeMap::new(),
            next_crash: None,
            life: 0,
        }
    }

    pub(super) fn crash(&mut self, crash: Crash) {
        if crash == Crash::Now { self.restart() } else { self.next_crash = Some(crash) }
    }

    fn restart(&mut self) {
        self.life += 1;
        self.answers.clear();
        self.shard = Shard::new(config(), GroupMemory::unbounded());
        for record in &self.log {
            self.shard.replay(&record.key, record.value.as_deref()).expect("a record of our own");
        }
        let step = self.shard.on_loaded(Now::simulated(self.now_ms));
        self.log.extend(step.records);
    }

    /// Writes a step's records and sends its replies, as far as the server lives.
    fn take(&mut self, step: Step) {
        let crash = self.next_crash.take();
        if crash != Some(Crash::BeforeWrite) {
            self.log.extend(step.records);
        }
        if crash.is_some() {
            return self.restart();
        }
        self.answers.extend(step.replies.into_iter().map(|reply| (reply.token, reply.body)));
    }

    /// Sends a request; its answer is there at once or comes later.
    pub(super) fn ask(
        &mut self,
        api_version: i16,
        send: impl FnOnce(&mut Shard, &RequestContext<'_>, &Topics) -> Step,
    ) -> ReplyToken {
        self.requests += 1;
        let token = ReplyToken(self.requests);
        let mut random = [0; 16];
        random[8..].copy_from_slice(&self.requests.to_be_bytes());
        let now = Now::simulated(self.now_ms);
        let context = RequestContext { now, token, client_id: "c", client_host: "/h", api_version, random };
        let step = send(&mut self.shard, &context, &self.topics);
        self.take(step);
        token
    }

    /// The answer to a request, if it has come.
    pub(super) fn answer(&mut self, token: ReplyToken) -> Option<GroupResponse> {
        self.answers.remove(&token)
    }

    /// `None` if the server has crashed.
    pub(super) fn consumer_heartbeat(
        &mut self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
    ) -> Option<ConsumerGroupHeartbeatResponse<'static>> {
        let token =
            self.ask(1, |shard, context, topics| shard.consumer_group_heartbeat(context, request, topics));
        match self.answer(token)? {
            GroupResponse::ConsumerGroupHeartbeat(response) => Some(response),
            other => panic!("a heartbeat was answered with {other:?}"),
        }
    }

    /// The group's changes of protocol since the last call, with their reasons.
    pub(super) fn protocol_changes(&mut self) -> Vec<[&'static str; 3]> {
        let told = |change: ProtocolChange| [change.from, change.to, change.why];
        self.shard.take_protocol_changes().into_iter().map(told).collect()
    }

    /// Commits an offset; `None` if the server has crashed.
    pub(super) fn commit(&mut self, who: &Committer, partition: i32, offset: i64) -> Option<ErrorCode> {
        let partition = OffsetCommitRequestPartition {
            partition_index: partition,
            committed_offset: offset,
            ..OffsetCommitRequestPartition::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![partition],
            ..OffsetCommitRequestTopic::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUP.into(),
            generation_id_or_member_epoch: who.epoch,
            member_id: who.member_id.clone().into(),
            group_instance_id: who.instance_id.clone().map(Into::into),
            topics: vec![topic],
            ..OffsetCommitRequest::default()
        };
        let token = self.ask(9, |shard, context, topics| shard.offset_commit(context, &request, topics));
        match self.answer(token)? {
            GroupResponse::OffsetCommit(response) => {
                Some(ErrorCode(response.topics[0].partitions[0].error_code))
            }
            other => panic!("a commit was answered with {other:?}"),
        }
    }

    /// The committed offsets, by partition.
    pub(super) fn committed(&self) -> BTreeMap<i32, i64> {
        self.shard.committed_offsets().map(|(_, _, partition, offset)| (partition, offset.offset.0)).collect()
    }

    /// The group as text, for debugging a failure.
    pub(super) fn describe(&self) -> String {
        match self.shard.groups.get(GROUP).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) => {
                let progress = |(id, member): (&MemberId, &Member)| {
                    format!("{id}: {:?}, shall have {:?}", member.progress, group.targets.get(id))
                };
                group.members.iter().map(progress).collect::<Vec<_>>().join("\n")
            }
            other => format!("{other:?}"),
        }
    }

    pub(super) fn is_consumer_group(&self) -> bool {
        matches!(self.shard.groups.get(GROUP).map(|entry| &entry.group), Some(Group::Consumer(_)))
    }

    /// Lets time pass, handling each deadline as it comes.
    pub(super) fn advance(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        while let Some(at) = self.shard.next_deadline().filter(|at| at.0 <= until_ms) {
            self.now_ms = self.now_ms.max(at.0);
            let step = self.shard.expire(Now::simulated(self.now_ms), &self.topics);
            self.take(step);
        }
        self.now_ms = until_ms;
    }
}
