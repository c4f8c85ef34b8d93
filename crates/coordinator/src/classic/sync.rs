//! SyncGroup: the leader brings the assignment, and each member fetches its part.
//!
//! Owns the moment at which a group becomes stable: its record, with every member's subscription and assignment, is
//! part of the same step as the replies.

use std::collections::BTreeMap;

use riverrun_protocol::{ErrorCode, SyncGroupRequest, SyncGroupResponse};

use super::member::{Member, MemberId, Parked};
use super::{ClassicGroup, State, StepBuilder};
use crate::memory::Shortage;
use crate::step::{GroupResponse, RequestContext};

/// A SyncGroup response with only an error.
pub(crate) fn sync_error(error: ErrorCode) -> GroupResponse {
    GroupResponse::SyncGroup(SyncGroupResponse { error_code: error.0, ..SyncGroupResponse::default() })
}

impl ClassicGroup {
    /// Handles a SyncGroup.
    pub(crate) fn sync(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &SyncGroupRequest<'_>,
    ) {
        if let Err(error) = self.validate_sync(request) {
            builder.step.push_reply(context.token, sync_error(error));
            return;
        }
        let member_id = &*request.member_id;
        match self.state {
            State::Empty | State::PreparingRebalance => {
                builder.step.push_reply(context.token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
            }
            State::CompletingRebalance => {
                self.park_sync(builder, member_id, Parked::of(context));
                self.end_sync(member_id);
                if self.is_leader(member_id) {
                    self.take_assignment(builder, request);
                }
            }
            State::Stable => {
                self.end_sync(member_id);
                let assignment = self.members.get(member_id).map(|member| member.assignment.clone());
                builder.step.push_reply(context.token, self.synced(assignment.unwrap_or_default()));
            }
        }
    }

    /// Checks member, generation and (KIP-559) that both sides mean the same protocol.
    fn validate_sync(&self, request: &SyncGroupRequest<'_>) -> Result<(), ErrorCode> {
        self.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let differs =
            |asked: Option<&str>, ours: Option<&str>| matches!((asked, ours), (Some(a), Some(b)) if a != b);
        if differs(request.protocol_type.as_deref(), self.protocol_type.as_deref())
            || differs(request.protocol_name.as_deref(), self.protocol.as_deref())
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        Ok(())
    }

    /// Parks a member's sync. If another one is parked already, its client has given up on it: that one is answered
    /// to start over.
    fn park_sync(&mut self, builder: &mut StepBuilder<'_>, member_id: &str, parked: Parked) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        if let Some(old) = member.awaiting_sync.replace(parked) {
            builder.step.push_reply(old.token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
        }
    }

    /// Removes this member from those that owe a sync; once none does, the deadline for syncs is removed.
    fn end_sync(&mut self, member_id: &str) {
        self.pending_sync.remove(member_id);
        if self.pending_sync.is_empty() {
            self.sync_deadline = None;
        }
    }

    /// Takes the leader's assignment: keeps it, writes it, and answers all parked syncs. A group whose record would
    /// not fit into a batch starts over, as in Kafka, and the error tells the leader why.
    fn take_assignment(&mut self, builder: &mut StepBuilder<'_>, request: &SyncGroupRequest<'_>) {
        let mut assigned: BTreeMap<&str, &[u8]> =
            request.assignments.iter().map(|a| (&*a.member_id, &*a.assignment)).collect();
        assigned.retain(|id, _| self.members.contains_key(*id));
        let assigned_bytes = assigned.values().map(|assignment| assignment.len()).sum();
        let after_bytes = self.memory_bytes() - self.assignments_bytes + assigned_bytes;
        if let Err(shortage) = builder.check_room(after_bytes) {
            return self.refuse_assignment(builder, shortage);
        }
        for (id, member) in &mut self.members {
            member.assignment = assigned.remove(&**id).unwrap_or_default().to_vec();
        }
        self.assignments_bytes = assigned_bytes;
        self.enter(builder, State::Stable);
        let record = self.to_record();
        if record.value.as_ref().is_some_and(|value| value.len() > builder.config.group_metadata_max_bytes) {
            self.clear_assignments();
            self.answer_syncs(builder, ErrorCode::UNKNOWN_SERVER_ERROR);
            return self.prepare_rebalance(builder);
        }
        self.set_persisted();
        builder.step.records.push(record);
        self.answer_syncs(builder, ErrorCode::NONE);
    }

    /// Refuses an assignment that there is no memory for. The group starts over, after the pause that members make
    /// before they look for a coordinator that is not available.
    fn refuse_assignment(&mut self, builder: &mut StepBuilder<'_>, shortage: Shortage) {
        let error = match shortage {
            Shortage::ForNow => ErrorCode::COORDINATOR_NOT_AVAILABLE,
            Shortage::Forever => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        self.answer_syncs(builder, error);
        self.prepare_rebalance(builder);
    }

    /// Answers every parked sync, with the assignment or with an error, and starts those members' sessions: they were
    /// excused while parked.
    pub(super) fn answer_syncs(&mut self, builder: &mut StepBuilder<'_>, error: ErrorCode) {
        let waiting = |(id, member): (&MemberId, &mut Member)| {
            member.awaiting_sync.take().map(|parked| (id.clone(), parked, member.assignment.clone()))
        };
        let waiting: Vec<_> = self.members.iter_mut().filter_map(waiting).collect();
        for (id, parked, assignment) in waiting {
            let reply = if error == ErrorCode::NONE { self.synced(assignment) } else { sync_error(error) };
            builder.step.push_reply(parked.token, reply);
            self.extend_session(builder, &id);
        }
    }

    /// The answer with an assignment.
    fn synced(&self, assignment: Vec<u8>) -> GroupResponse {
        GroupResponse::SyncGroup(SyncGroupResponse {
            error_code: ErrorCode::NONE.0,
            protocol_type: self.protocol_type.clone().map(Into::into),
            protocol_name: self.protocol.clone().map(Into::into),
            assignment: assignment.into(),
            ..SyncGroupResponse::default()
        })
    }
}
