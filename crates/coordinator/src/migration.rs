//! Groups that change their protocol while they have members (KIP-848), and those that have members of both protocols
//! meanwhile.
//!
//! Owns when a group changes. A classic group of consumers becomes a KIP-848 group with the first heartbeat that
//! joins it. A KIP-848 group becomes a classic one when its last member of the consumer protocol leaves, or starts
//! again as a classic member. A change is one step: the records of both kinds of group are in the log together or not
//! at all, so a change that would take more than a batch is not made. Offsets are not affected. The host is told of
//! each change, and its reason.
//!
//! Guarantees that a request which is refused changes no group.

use std::sync::Arc;

use riverrun_protocol::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ErrorCode, HeartbeatRequest,
    JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
};

use crate::classic::{ClassicGroup, Parked, StepBuilder, join_error, sync_error};
use crate::config::MigrationPolicy;
use crate::consumer::{ConsumerGroup, Given, Recorder, Refusal};
use crate::group::{Group, GroupEntry};
use crate::shard::Shard;
use crate::step::{GroupResponse, OffsetsRecord, RequestContext, Step};
use crate::time::Now;
use crate::topics::TopicMetadata;

/// A group's change to the other protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolChange {
    /// Its id.
    pub group_id: Arc<str>,
    /// The protocol that it spoke, as `ListGroups` names it.
    pub from: &'static str,
    /// The protocol that it speaks.
    pub to: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// Reasons of a [`ProtocolChange`].
pub(crate) const JOINED: &str = "a member of the consumer protocol has joined";
pub(crate) const LAST_GONE: &str = "its last member of the consumer protocol has left, or was removed";
pub(crate) const LAST_IS_CLASSIC: &str =
    "its last member of the consumer protocol has started again as a classic one";
pub(crate) const TAKEN_OVER: &str = "it was empty, and a member of the other protocol has come";

/// Upper bound of a record's bytes in a batch beside its key and value.
const RECORD_OVERHEAD_BYTES: usize = 32;

impl Shard {
    /// Whether this is a KIP-848 group with members.
    pub(crate) fn is_live_consumer_group(&self, group_id: &str) -> bool {
        self.groups
            .get(group_id)
            .is_some_and(|entry| matches!(entry.group, Group::Consumer(_)) && !entry.group.is_empty())
    }

    /// Whether this is a classic group with members.
    pub(crate) fn is_live_classic_group(&self, group_id: &str) -> bool {
        self.groups
            .get(group_id)
            .is_some_and(|entry| matches!(entry.group, Group::Classic(_)) && !entry.group.is_empty())
    }

    /// Serves a heartbeat that joins a live classic group, which thereby becomes a KIP-848 group. Parked requests of
    /// its members are answered with a rebalance.
    pub(crate) fn upgrade(
        &mut self,
        context: &RequestContext<'_>,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
        step: &mut Step,
    ) -> Result<ConsumerGroupHeartbeatResponse<'static>, Refusal> {
        let group_id = &*request.group_id;
        let Some(entry) = self.groups.get_mut(group_id) else { return Err(Refusal::no_such_group(group_id)) };
        let room = entry.room(&self.share);
        let mut records = entry.group.tombstones(group_id);
        let Group::Classic(classic) = &mut entry.group else { return Err(Refusal::no_such_group(group_id)) };
        let config = &*self.config.of_group(group_id);
        let given = Given { now: context.now, topics, config, room };
        let no_upgrade = |why| Refusal::no_upgrade(group_id, why);
        classic.check_upgrade(&self.config).map_err(no_upgrade)?;

        let mut recorder = Recorder::new(group_id);
        let converted = ConsumerGroup::from_classic(classic, topics, &mut recorder);
        let mut group = converted.map_err(no_upgrade)?;
        group.restart_sessions(context.now.moment, config);
        room.check(group.memory_bytes()).map_err(Refusal::no_memory)?;
        let (response, mut changes) = group.heartbeat(context, request, given)?;
        records.append(&mut recorder.into_records());
        records.append(&mut changes);
        if batch_bytes(&records) > self.config.group_metadata_max_bytes {
            return Err(no_upgrade("the change would take more than a batch of records"));
        }
        let mut builder = StepBuilder::new(context.now, &self.config);
        classic.turn_away(&mut builder);
        step.append(builder.step);
        step.records.append(&mut records);
        let before = std::mem::replace(&mut entry.group, Group::Consumer(Box::new(group)));
        self.note_protocol(group_id, before.protocol(), JOINED);
        Ok(response)
    }

    /// Remembers the group's former protocol, for [`Shard::take_protocol_changes`], if it has another one now.
    pub(crate) fn note_protocol(&mut self, group_id: &str, from: Option<&'static str>, why: &'static str) {
        let (Some(from), Some(to)) = (from, self.protocol_of(group_id)) else { return };
        if let Some((group_id, _)) = self.groups.get_key_value(group_id).filter(|_| from != to) {
            self.protocol_changes.push(ProtocolChange { group_id: Arc::clone(group_id), from, to, why });
        }
    }

    /// The protocol that a group speaks; `None` if it speaks none.
    pub(crate) fn protocol_of(&self, group_id: &str) -> Option<&'static str> {
        self.groups.get(group_id)?.group.protocol()
    }

    /// The groups that have changed their protocol since the last call.
    pub fn take_protocol_changes(&mut self) -> Vec<ProtocolChange> {
        std::mem::take(&mut self.protocol_changes)
    }

    /// Turns a KIP-848 group in which only classic members are left into a classic one, if possible, and calls them
    /// to rejoin. Otherwise they are served as before. `step` has led to this, and the change becomes part of it.
    pub(crate) fn maybe_downgrade(
        &mut self,
        now: Now,
        group_id: &str,
        topics: &dyn TopicMetadata,
        step: &mut Step,
    ) {
        let Some((mut classic, mut records)) = self.downgraded(now, group_id, topics, None) else { return };
        if batch_bytes(&step.records) + batch_bytes(&records) > self.config.group_metadata_max_bytes {
            return;
        }
        let mut builder = StepBuilder::new(now, &self.config);
        classic.prepare_rebalance(&mut builder);
        step.records.append(&mut records);
        step.append(builder.step);
        self.become_classic(group_id, classic, LAST_GONE);
    }

    /// The classic group that a KIP-848 group becomes without `leaving`, its last member of the consumer protocol,
    /// with the records of the change; `None` if the group stays as it is.
    fn downgraded(
        &self,
        now: Now,
        group_id: &str,
        topics: &dyn TopicMetadata,
        leaving: Option<&str>,
    ) -> Option<(ClassicGroup, Vec<OffsetsRecord>)> {
        let (group_id, entry) = self.groups.get_key_value(group_id)?;
        let Group::Consumer(group) = &entry.group else { return None };
        let may_change = self.config.consumer_migration_policy.allows_downgrade();
        if !may_change || !group.is_all_classic_but(leaving) {
            return None;
        }
        let classic = group.to_classic(group_id.clone(), topics, now)?;
        if classic.members().count() > self.config.max_size {
            return None;
        }
        entry.room(&self.share).check(classic.memory_bytes()).ok()?;
        let mut records = entry.group.tombstones(group_id);
        if classic.is_persisted() {
            records.push(classic.to_record_of_rebalance());
        }
        (batch_bytes(&records) <= self.config.group_metadata_max_bytes).then_some((classic, records))
    }

    fn become_classic(&mut self, group_id: &str, classic: ClassicGroup, why: &'static str) {
        let Some(entry) = self.groups.get_mut(group_id) else { return };
        let before = std::mem::replace(&mut entry.group, Group::Classic(Box::new(classic)));
        self.note_protocol(group_id, before.protocol(), why);
    }

    /// Serves a JoinGroup to a live KIP-848 group. One that is refused leaves no records.
    pub(crate) fn join_consumer_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let group_id = &*request.group_id;
        let refused = |member_id: &str, error| join_error(Parked::of(context), member_id, error);
        if self.config.consumer_migration_policy == MigrationPolicy::Disabled {
            let error = ErrorCode::INCONSISTENT_GROUP_PROTOCOL;
            return Step::reply(context.token, refused(&request.member_id, error));
        }
        if let Some(step) = self.join_instead_of_last(context, request, topics) {
            self.finish(group_id);
            return step;
        }
        let Some(entry) = self.groups.get_mut(group_id) else { return Step::default() };
        let room = entry.room(&self.share);
        let Group::Consumer(group) = &mut entry.group else { return Step::default() };
        let config = &*self.config.of_group(group_id);
        let given = Given { now: context.now, topics, config, room };
        let mut recorder = Recorder::new(group_id);
        let (reply, records) = match group.join_classic(context, request, given, &mut recorder) {
            Ok(response) => (GroupResponse::JoinGroup(response), recorder.into_records()),
            Err((member_id, error)) => (refused(&member_id, error), Vec::new()),
        };
        self.finish(group_id);
        Step { records, ..Step::reply(context.token, reply) }
    }

    /// Handles the case that the group's last member of the consumer protocol is a static one that starts again as a
    /// classic member: the group becomes a classic one, which the member then joins. `None` in all other cases.
    fn join_instead_of_last(
        &mut self,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Option<Step> {
        let group_id = &*request.group_id;
        let instance_id = request.group_instance_id.as_deref().filter(|_| request.member_id.is_empty())?;
        let entry = self.groups.get(group_id)?;
        let Group::Consumer(group) = &entry.group else { return None };
        let last = group.consumer_with(instance_id)?;
        group.check_join(request, &self.config).ok()?;
        let (mut classic, mut records) = self.downgraded(context.now, group_id, topics, Some(last))?;
        let mut builder = StepBuilder::new(context.now, &self.config).within(entry.room(&self.share));
        if !classic.is_empty() {
            classic.prepare_rebalance(&mut builder);
        }
        if let Err((member_id, error)) = classic.try_join(&mut builder, context, request) {
            return Some(Step::reply(context.token, join_error(Parked::of(context), &member_id, error)));
        }
        records.append(&mut builder.step.records);
        let step = Step { records, ..builder.step };
        self.become_classic(group_id, classic, LAST_IS_CLASSIC);
        Some(step)
    }

    /// Serves a Heartbeat to a KIP-848 group.
    pub(crate) fn heartbeat_consumer_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &HeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
        may_record: bool,
    ) -> (ErrorCode, Vec<OffsetsRecord>) {
        let group_id = &*request.group_id;
        let unknown = (ErrorCode::UNKNOWN_MEMBER_ID, Vec::new());
        let Some(entry) = self.groups.get_mut(group_id) else { return unknown };
        let room = entry.room(&self.share);
        let Group::Consumer(group) = &mut entry.group else { return unknown };
        let config = &*self.config.of_group(group_id);
        let given = Given { now: context.now, topics, config, room };
        let mut recorder = Recorder::new(group_id);
        let error = group.heartbeat_classic(request, given, may_record.then_some(&mut recorder));
        self.finish(group_id);
        (error, recorder.into_records())
    }

    /// Serves a SyncGroup to a KIP-848 group.
    pub(crate) fn sync_consumer_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &SyncGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let served = match self.groups.get_mut(&*request.group_id) {
            Some(GroupEntry { group: Group::Consumer(group), .. }) => {
                group.sync_classic(request, topics, context.now.moment)
            }
            _ => Err(ErrorCode::UNKNOWN_MEMBER_ID),
        };
        self.finish(&request.group_id);
        Step::reply(context.token, served.map_or_else(sync_error, GroupResponse::SyncGroup))
    }

    /// Serves a LeaveGroup to a KIP-848 group: the response, and the resulting change of the group.
    pub(crate) fn leave_consumer_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &LeaveGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> (LeaveGroupResponse<'static>, Step) {
        let group_id = &*request.group_id;
        let mut recorder = Recorder::new(group_id);
        let response = match self.groups.get_mut(group_id) {
            Some(GroupEntry { group: Group::Consumer(group), .. }) => {
                group.leave_classic(request, context, &mut recorder)
            }
            _ => LeaveGroupResponse::default(),
        };
        let mut step = Step { records: recorder.into_records(), ..Step::default() };
        self.maybe_downgrade(context.now, group_id, topics, &mut step);
        (response, step)
    }
}

/// Upper bound of these records' bytes in a batch.
fn batch_bytes(records: &[OffsetsRecord]) -> usize {
    let size = |record: &OffsetsRecord| record.key.len() + record.value.as_ref().map_or(0, Vec::len);
    records.iter().map(|record| size(record) + RECORD_OVERHEAD_BYTES).sum()
}
