//! Classic members of a KIP-848 group: `JoinGroup`, `SyncGroup`, `Heartbeat`, `LeaveGroup`.
//!
//! Owns the classic protocol where the coordinator assigns. A join is answered at once and never makes a leader; its
//! generation is the member's epoch. A heartbeat reports a rebalance whenever a rejoin would take the member further:
//!
//! - there is a newer target,
//! - it has to give up partitions, or
//! - partitions that it waits for have become free.
//!
//! The member then has its rebalance timeout to rejoin, and again to sync.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::consumer_protocol::{self, PROTOCOL_TYPE};
use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, ErrorCode, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
    consumer_protocol_assignment,
};
use riverrun_types::PartitionId;
use riverrun_types::limits::NAME_BYTES_MAX;

use crate::assignors::Assignment;
use crate::classic::{
    MEMBER_ID_REQUIRED_VERSION, Protocol, Terms, kept_client_id, leave_response, new_member_id,
    requested_bytes,
};
use crate::step::RequestContext;
use crate::time::Moment;
use crate::{GroupConfig, TopicMetadata};

use super::ConsumerGroup;
use super::changes::Recorder;
use super::heartbeat::{Arrival, Given, Sender, after};
use super::member::{ClassicTerms, Member, MemberId, MemberState, Subscription};

impl ConsumerGroup {
    /// Serves a JoinGroup; the error has the refusal and the member id that goes with it.
    pub(crate) fn join_classic(
        &mut self,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        given: Given<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<JoinGroupResponse<'static>, (String, ErrorCode)> {
        let refused = |error| (request.member_id.to_string(), error);
        let said = self.check_join(request, given.config).map_err(refused)?;
        let new_id = new_member_id(context, request.group_instance_id.as_deref());
        let needs_id = request.member_id.is_empty() && request.group_instance_id.is_none();
        if needs_id && context.api_version >= MEMBER_ID_REQUIRED_VERSION {
            return Err((new_id.to_string(), ErrorCode::MEMBER_ID_REQUIRED));
        }
        let (id, sender) = self.admit_classic(request, new_id).map_err(refused)?;
        let before = self.place_of(&id, &sender);
        let reported = Some(owned(&said, given.topics));
        let subscription = classic_subscription(&before.subscription, &said, context, request);
        let arrival = Arrival { id, sender, before, subscription, reported };
        self.check_arrival(&arrival, given).map_err(|refusal| refused(refusal.code()))?;
        self.take_in(&arrival, given, recorder).map_err(|refusal| refused(refusal.code()))?;
        Ok(self.joined_classic(&arrival.id, given.now.moment))
    }

    /// Reads and checks the subscription of a classic member. As in Kafka, a full group refuses before it examines
    /// anything else.
    pub(crate) fn check_join<'r>(
        &self,
        request: &'r JoinGroupRequest<'_>,
        config: &GroupConfig,
    ) -> Result<ConsumerProtocolSubscription<'r>, ErrorCode> {
        let instance_id = request.group_instance_id.as_deref();
        let is_known = self.members.contains_key(&*request.member_id)
            || instance_id.is_some_and(|id| self.static_members.contains_key(id));
        if !is_known && self.members.len() >= config.consumer_max_size {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        if request.member_id.len() > NAME_BYTES_MAX {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        if requested_bytes(&request.protocols) > config.group_metadata_max_bytes {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        let first = request.protocols.first().ok_or(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)?;
        if *request.protocol_type != *PROTOCOL_TYPE || !self.supports_classic(request) {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        // All protocols of a consumer have the same metadata, but for fields that only assignors read.
        let said = consumer_protocol::decode_subscription(&first.metadata);
        said.map_err(|_| ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
    }

    /// Whether all classic members support one of the protocols, so that the group may become a classic one again.
    fn supports_classic(&self, request: &JoinGroupRequest<'_>) -> bool {
        let votes = |name: &str| self.classic_votes.get(name).copied().unwrap_or_default();
        request.protocols.iter().any(|protocol| votes(&protocol.name) == self.classic_members)
    }

    /// Decides which member joins. A dynamic member is the one that its id names: ids that were given out are not
    /// remembered here.
    fn admit_classic(
        &self,
        request: &JoinGroupRequest<'_>,
        new_id: MemberId,
    ) -> Result<(MemberId, Sender), ErrorCode> {
        let asked = &*request.member_id;
        let Some(instance_id) = request.group_instance_id.as_deref() else {
            let id = if asked.is_empty() { new_id } else { asked.into() };
            let sender = if self.members.contains_key(&id) { Sender::Member } else { Sender::New };
            return Ok((id, sender));
        };
        if !asked.is_empty() {
            let member = self.static_member(instance_id, asked).map_err(|refusal| refusal.code())?;
            return Ok((member.0, Sender::Member));
        }
        let predecessor = self.static_members.get(instance_id);
        Ok((new_id, predecessor.map_or(Sender::New, |id| Sender::Successor(Arc::clone(id)))))
    }

    /// The answer to a member that has joined; from now on it owes a sync.
    fn joined_classic(&mut self, id: &MemberId, now: Moment) -> JoinGroupResponse<'static> {
        let Some(member) = self.members.get(id) else { return JoinGroupResponse::default() };
        let response = JoinGroupResponse {
            generation_id: member.progress.epoch,
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: first_protocol(member).map(|protocol| protocol.name.clone().into()),
            member_id: id.to_string().into(),
            ..JoinGroupResponse::default()
        };
        let sync_by = after(now, member.subscription.rebalance_timeout_ms);
        self.extend_classic_session(id, now);
        self.timers.set_revocation(id, Some(sync_by));
        response
    }

    /// Serves a Heartbeat and returns its result. Like every other heartbeat it moves the group on, if records may be
    /// written. Its client would end at the error that a target is more than a record holds: the next join has that.
    pub(crate) fn heartbeat_classic(
        &mut self,
        request: &HeartbeatRequest<'_>,
        given: Given<'_>,
        recorder: Option<&mut Recorder<'_>>,
    ) -> ErrorCode {
        let instance_id = request.group_instance_id.as_deref();
        let id = match self.classic_member(&request.member_id, instance_id, request.generation_id) {
            Ok(id) => id,
            Err(error) => return error,
        };
        self.extend_classic_session(&id, given.now.moment);
        if let Some(recorder) = recorder {
            let _put_off = self.move_on(false, given, recorder);
        }
        let must_rejoin = self.members.get(&id).is_some_and(|member| self.must_rejoin(&id, member));
        if must_rejoin { self.call_to_rejoin(&id, given.now.moment) } else { ErrorCode::NONE }
    }

    /// Serves a SyncGroup: the member's assignment.
    pub(crate) fn sync_classic(
        &mut self,
        request: &SyncGroupRequest<'_>,
        topics: &dyn TopicMetadata,
        now: Moment,
    ) -> Result<SyncGroupResponse<'static>, ErrorCode> {
        let instance_id = request.group_instance_id.as_deref();
        let id = self.classic_member(&request.member_id, instance_id, request.generation_id)?;
        let member = self.members.get(&id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let first = first_protocol(member).ok_or(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)?;
        let differs = |asked: Option<&str>, ours: &str| asked.is_some_and(|asked| asked != ours);
        if differs(request.protocol_type.as_deref(), PROTOCOL_TYPE)
            || differs(request.protocol_name.as_deref(), &first.name)
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        // A member that gives up partitions has rejoined for this target, and rejoins when it has given them up.
        let is_behind = member.progress.epoch < self.assignment_epoch;
        if is_behind && member.progress.state != MemberState::UnrevokedPartitions {
            return Err(self.call_to_rejoin(&id, now));
        }
        let assigned = member.progress.assigned.iter();
        let assigned: Assignment =
            assigned.map(|(topic, epochs)| (*topic, epochs.indexes().collect())).collect();
        let response = SyncGroupResponse {
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(first.name.clone().into()),
            assignment: encode_assigned(&assigned, first, topics).into(),
            ..SyncGroupResponse::default()
        };
        self.timers.set_revocation(&id, None);
        self.extend_classic_session(&id, now);
        Ok(response)
    }

    /// Serves a LeaveGroup: all named members are removed at once. An admin names static members by their instance
    /// ids alone, of either protocol.
    pub(crate) fn leave_classic(
        &mut self,
        request: &LeaveGroupRequest<'_>,
        context: &RequestContext<'_>,
        recorder: &mut Recorder<'_>,
    ) -> LeaveGroupResponse<'static> {
        let mut leaving = BTreeSet::new();
        let response = leave_response(request, context.api_version, |member| match self.leaving(member) {
            Ok(id) => {
                leaving.insert(id);
                ErrorCode::NONE
            }
            Err(error) => error,
        });
        if !leaving.is_empty() {
            self.fence(&Vec::from_iter(leaving), context.now, recorder);
        }
        response
    }

    fn leaving(&self, identity: &MemberIdentity<'_>) -> Result<MemberId, ErrorCode> {
        let member = match identity.group_instance_id.as_deref() {
            None => self.member(&identity.member_id),
            Some(instance_id) if identity.member_id.is_empty() => {
                let holder = self.static_members.get(instance_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
                return Ok(Arc::clone(holder));
            }
            Some(instance_id) => self.static_member(instance_id, &identity.member_id),
        };
        member.map(|(id, _)| id).map_err(|refusal| refusal.code())
    }

    /// The classic member that sends a request of this generation.
    fn classic_member(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<MemberId, ErrorCode> {
        let found = match instance_id {
            Some(instance_id) => self.static_member(instance_id, member_id),
            None => self.member(member_id),
        };
        let (id, progress) = found.map_err(|refusal| refusal.code())?;
        if !self.members.get(&id).is_some_and(Member::is_classic) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        if progress.epoch == generation { Ok(id) } else { Err(ErrorCode::ILLEGAL_GENERATION) }
    }

    /// Whether a rejoin would take the member further.
    fn must_rejoin(&self, id: &MemberId, member: &Member) -> bool {
        let progress = &member.progress;
        progress.epoch < self.assignment_epoch
            || match progress.state {
                MemberState::Stable => false,
                MemberState::UnrevokedPartitions => true,
                MemberState::UnreleasedPartitions => !self.waits_for_others(id, member),
            }
    }

    /// Whether other members hold some of the member's target.
    fn waits_for_others(&self, id: &MemberId, member: &Member) -> bool {
        let is_missing = |partition: PartitionId| {
            member.progress.partition_epoch(partition).is_none()
                && self.holders.get(partition).is_some_and(|holder| holder != id)
        };
        self.targets
            .get(id)
            .into_iter()
            .flatten()
            .any(|(&topic, indexes)| indexes.indexes().any(|index| is_missing(PartitionId { topic, index })))
    }

    /// Reports a rebalance to the member. From the first time on it has its rebalance timeout to rejoin.
    fn call_to_rejoin(&mut self, id: &MemberId, now: Moment) -> ErrorCode {
        if let Some(member) = self.members.get(id) {
            self.timers.start_revocation(id, after(now, member.subscription.rebalance_timeout_ms));
        }
        ErrorCode::REBALANCE_IN_PROGRESS
    }

    fn extend_classic_session(&mut self, id: &MemberId, now: Moment) {
        if let Some(member) = self.members.get(id) {
            self.timers.set_session(id, after(now, member.session_timeout_ms(0)));
        }
    }
}

/// The protocol that is sent to the member, and in whose version its assignment is written.
fn first_protocol(member: &Member) -> Option<&Protocol> {
    member.subscription.classic.as_ref()?.protocols.first()
}

/// The partitions that the member claims still to read. A topic that is gone by now has no readers.
fn owned(said: &ConsumerProtocolSubscription<'_>, topics: &dyn TopicMetadata) -> Assignment {
    let mut owned = Assignment::new();
    for topic in said.owned_partitions.iter().filter(|topic| !topic.partitions.is_empty()) {
        if let Some(id) = topics.topic_id(&topic.topic) {
            owned.entry(id).or_default().extend(topic.partitions.iter().copied());
        }
    }
    owned
}

/// The member's subscription. Fields that a classic member cannot send stay, except for a pattern: its topic names
/// are everything that it reads.
fn classic_subscription(
    before: &Subscription,
    said: &ConsumerProtocolSubscription<'_>,
    context: &RequestContext<'_>,
    request: &JoinGroupRequest<'_>,
) -> Subscription {
    let terms = Terms::of(request, context.api_version);
    let rack_id = said.rack_id.as_deref().filter(|rack_id| !rack_id.is_empty());
    let instance_id = request.group_instance_id.as_deref();
    Subscription {
        instance_id: instance_id.map(str::to_owned).or_else(|| before.instance_id.clone()),
        rack_id: rack_id.map(str::to_owned).or_else(|| before.rack_id.clone()),
        client_id: kept_client_id(context).to_owned(),
        client_host: context.client_host.to_owned(),
        topics: Arc::new(said.topics.iter().map(ToString::to_string).collect()),
        pattern: None,
        rebalance_timeout_ms: terms.rebalance_timeout_ms,
        server_assignor: before.server_assignor.clone(),
        classic: Some(ClassicTerms {
            session_timeout_ms: terms.session_timeout_ms,
            protocols: terms.protocols,
        }),
    }
}

/// The partitions in the format of a consumer that sends its metadata in this protocol. Deleted topics have no name.
pub(super) fn encode_assigned(
    assigned: &Assignment,
    protocol: &Protocol,
    topics: &dyn TopicMetadata,
) -> Vec<u8> {
    let version = protocol.metadata.first_chunk().map_or(0, |bytes| i16::from_be_bytes(*bytes));
    let assigned_partitions = assigned.iter().filter_map(|(&id, indexes)| {
        let topic = topics.topic_name(id)?.to_owned().into();
        let partitions = indexes.indexes().collect();
        Some(consumer_protocol_assignment::TopicPartition { topic, partitions })
    });
    let assignment =
        ConsumerProtocolAssignment { assigned_partitions: assigned_partitions.collect(), user_data: None };
    let version = version.clamp(0, consumer_protocol::VERSION_MAX);
    // A topic's name fits its 16-bit length; no other part of it has a bound.
    consumer_protocol::encode_assignment(&assignment, version).unwrap_or_default()
}
