//! A client of the classic protocol that behaves as the Java consumer: eager, or cooperative (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::sync_group_request::SyncGroupRequestAssignment;
use riverrun_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, ErrorCode, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, SyncGroupRequest, SyncGroupResponse, consumer_protocol,
    consumer_protocol_assignment, consumer_protocol_subscription,
};

use crate::{GroupResponse, ReplyToken};

use super::super::world::GROUP;
use super::server::{Committer, PARTITIONS, Server, TOPIC};

/// Version of its subscriptions and assignments.
const VERSION: i16 = 3;

/// A request in flight, and the life of the server in which it was sent.
type Waits = (ReplyToken, u32);

#[derive(Clone, Debug)]
enum State {
    /// It has to join.
    Out,
    Joining(Waits),
    /// It has to sync; a leader assigns.
    Joined(JoinGroupResponse<'static>),
    Syncing(Waits),
    Stable,
}

#[derive(Clone, Debug)]
pub(super) struct ClassicClient {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    is_cooperative: bool,
    generation: i32,
    state: State,
    /// The partitions that it reads.
    pub(super) owned: BTreeSet<i32>,
    pub(super) heard_at_ms: i64,
    /// The life of the server in which it got its member id, and the present one.
    joined_in: u32,
    life: u32,
}

impl ClassicClient {
    pub(super) fn new(instance_id: Option<String>, is_cooperative: bool, now_ms: i64) -> Self {
        Self {
            id: String::new(),
            instance_id,
            is_cooperative,
            generation: -1,
            state: State::Out,
            owned: BTreeSet::new(),
            heard_at_ms: now_ms,
            joined_in: 0,
            life: 0,
        }
    }

    pub(super) fn committer(&self) -> Committer {
        let (member_id, instance_id) = (self.id.clone(), self.instance_id.clone());
        Committer { member_id, instance_id, epoch: self.generation }
    }

    /// Whether it has got its assignment, and has not been told to rejoin.
    pub(super) fn is_stable(&self) -> bool {
        matches!(self.state, State::Stable)
    }

    /// The next thing that it does by itself, with its immediate effects. Without an answer it joins again.
    pub(super) fn step(&mut self, server: &mut Server, is_lost: bool) {
        self.heard_at_ms = server.now_ms;
        self.life = server.life;
        match &self.state {
            State::Out => self.join(server),
            State::Joined(response) => {
                let response = response.clone();
                self.sync(server, &response);
            }
            State::Stable => self.heartbeat(server, is_lost),
            State::Joining(_) | State::Syncing(_) => {}
        }
        if is_lost && matches!(self.state, State::Joining(_) | State::Syncing(_)) {
            self.state = State::Out;
        }
        self.look(server);
    }

    /// Looks for an answer.
    fn look(&mut self, server: &mut Server) {
        let (State::Joining((token, life)) | State::Syncing((token, life))) = self.state else { return };
        match server.answer(token) {
            Some(GroupResponse::JoinGroup(response)) => self.hear_join(response),
            Some(GroupResponse::SyncGroup(response)) => self.hear_sync(&response),
            Some(other) => panic!("{self:?} was answered with {other:?}"),
            // Its coordinator has gone: it looks for that again, and joins again.
            None if life != server.life => self.state = State::Out,
            None => {}
        }
    }

    fn join(&mut self, server: &mut Server) {
        let owned = self.owned.iter().copied().collect();
        let owned_partitions =
            consumer_protocol_subscription::TopicPartition { topic: TOPIC.into(), partitions: owned };
        let subscription = ConsumerProtocolSubscription {
            topics: vec![TOPIC.into()],
            owned_partitions: if self.owned.is_empty() { Vec::new() } else { vec![owned_partitions] },
            generation_id: self.generation,
            ..ConsumerProtocolSubscription::default()
        };
        let metadata = consumer_protocol::encode_subscription(&subscription, VERSION).expect("it is short");
        let name = if self.is_cooperative { "cooperative-sticky" } else { "range" };
        let request = JoinGroupRequest {
            group_id: GROUP.into(),
            session_timeout_ms: 45_000,
            rebalance_timeout_ms: 60_000,
            member_id: self.id.clone().into(),
            group_instance_id: self.instance_id.clone().map(Into::into),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol { name: name.into(), metadata: metadata.into() }],
            reason: None,
        };
        let life = server.life;
        let token = server.ask(9, |shard, context, topics| shard.join_group(context, &request, topics));
        self.state = State::Joining((token, life));
    }

    fn hear_join(&mut self, response: JoinGroupResponse<'static>) {
        match ErrorCode(response.error_code) {
            ErrorCode::NONE => {
                self.id = response.member_id.to_string();
                self.generation = response.generation_id;
                self.joined_in = self.life;
                self.state = State::Joined(response);
            }
            ErrorCode::MEMBER_ID_REQUIRED => {
                self.id = response.member_id.to_string();
                self.state = State::Out;
            }
            error => self.hear_error(error),
        }
    }

    fn sync(&mut self, server: &mut Server, joined: &JoinGroupResponse<'_>) {
        let is_leader = *joined.leader == self.id && !joined.skip_assignment;
        let assigned = if is_leader { assign(joined) } else { BTreeMap::new() };
        let assignment = |(member_id, partitions): (String, Vec<i32>)| SyncGroupRequestAssignment {
            member_id: member_id.into(),
            assignment: encode(partitions).into(),
        };
        let request = SyncGroupRequest {
            group_id: GROUP.into(),
            generation_id: self.generation,
            member_id: self.id.clone().into(),
            group_instance_id: self.instance_id.clone().map(Into::into),
            protocol_type: joined.protocol_type.as_deref().map(|name| name.to_owned().into()),
            protocol_name: joined.protocol_name.as_deref().map(|name| name.to_owned().into()),
            assignments: assigned.into_iter().map(assignment).collect(),
        };
        let life = server.life;
        let token = server.ask(5, |shard, context, topics| shard.sync_group(context, &request, topics));
        self.state = State::Syncing((token, life));
    }

    fn hear_sync(&mut self, response: &SyncGroupResponse<'_>) {
        let error = ErrorCode(response.error_code);
        if error != ErrorCode::NONE {
            return self.hear_error(error);
        }
        let assigned = decode(&response.assignment);
        // It gives up these partitions now, and rejoins so that other members may have them.
        let gives_up = !self.owned.is_subset(&assigned);
        self.owned = assigned;
        self.state = if gives_up && self.is_cooperative { State::Out } else { State::Stable };
    }

    fn heartbeat(&mut self, server: &mut Server, is_lost: bool) {
        let request = HeartbeatRequest {
            group_id: GROUP.into(),
            generation_id: self.generation,
            member_id: self.id.clone().into(),
            group_instance_id: self.instance_id.clone().map(Into::into),
        };
        let token = server.ask(4, |shard, context, topics| shard.heartbeat(context, &request, topics, true));
        match server.answer(token).filter(|_| !is_lost) {
            Some(GroupResponse::Heartbeat(response)) if response.error_code == 0 => {}
            Some(GroupResponse::Heartbeat(response)) => self.hear_error(ErrorCode(response.error_code)),
            Some(other) => panic!("a heartbeat was answered with {other:?}"),
            None => {}
        }
    }

    /// The Java client's reaction to each error that it may get; any other error would end it.
    fn hear_error(&mut self, error: ErrorCode) {
        match error {
            ErrorCode::REBALANCE_IN_PROGRESS => {
                if !self.is_cooperative {
                    self.owned.clear();
                }
            }
            ErrorCode::ILLEGAL_GENERATION | ErrorCode::UNKNOWN_MEMBER_ID => {
                self.owned.clear();
                self.generation = -1;
                if error == ErrorCode::UNKNOWN_MEMBER_ID {
                    self.id.clear();
                }
            }
            // A static member whose rebalance was not over when the server crashed: the log has the member that it took the
            // place of, here and on Kafka. Its process ends and starts again.
            ErrorCode::FENCED_INSTANCE_ID if self.joined_in != self.life => {
                self.owned.clear();
                self.generation = -1;
                self.id.clear();
            }
            other => panic!("{self:?} was told {other:?}"),
        }
        self.state = State::Out;
    }

    /// Ends in order: a dynamic member leaves, a static one sends nothing.
    pub(super) fn leave(&mut self, server: &mut Server) {
        if self.instance_id.is_some() || self.id.is_empty() {
            return;
        }
        let member = MemberIdentity { member_id: self.id.clone().into(), ..MemberIdentity::default() };
        let request = LeaveGroupRequest {
            group_id: GROUP.into(),
            members: vec![member],
            ..LeaveGroupRequest::default()
        };
        let token = server.ask(5, |shard, context, topics| shard.leave_group(context, &request, topics));
        drop(server.answer(token));
    }
}

/// A leader's assignment. A partition that another member still reads is given to no member until that one has given
/// it up.
fn assign(joined: &JoinGroupResponse<'_>) -> BTreeMap<String, Vec<i32>> {
    let mut reads: BTreeMap<i32, String> = BTreeMap::new();
    for member in &joined.members {
        let said = consumer_protocol::decode_subscription(&member.metadata).expect("a subscription");
        let owned = said.owned_partitions.iter().flat_map(|topic| topic.partitions.iter().copied());
        reads.extend(owned.map(|partition| (partition, member.member_id.to_string())));
    }
    let ids: BTreeSet<String> = joined.members.iter().map(|member| member.member_id.to_string()).collect();
    let mut assigned: BTreeMap<String, Vec<i32>> = ids.iter().map(|id| (id.clone(), Vec::new())).collect();
    for (partition, id) in (0..PARTITIONS).zip(ids.iter().cycle()) {
        if reads.get(&partition).is_none_or(|reader| reader == id) {
            assigned.entry(id.clone()).or_default().push(partition);
        }
    }
    assigned
}

fn encode(partitions: Vec<i32>) -> Vec<u8> {
    let topic = consumer_protocol_assignment::TopicPartition { topic: TOPIC.into(), partitions };
    let assignment = ConsumerProtocolAssignment { assigned_partitions: vec![topic], user_data: None };
    consumer_protocol::encode_assignment(&assignment, VERSION).expect("it is short")
}

fn decode(assignment: &[u8]) -> BTreeSet<i32> {
    if assignment.is_empty() {
        return BTreeSet::new();
    }
    let assigned = consumer_protocol::decode_assignment(assignment).expect("an assignment");
    assigned.assigned_partitions.iter().flat_map(|topic| topic.partitions.iter().copied()).collect()
}
