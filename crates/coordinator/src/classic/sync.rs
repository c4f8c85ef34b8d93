//! SyncGroup: the leader brings the assignment, everyone fetches its part.
//!
//! Owns the moment a group becomes stable: its record, with every member's subscription and assignment, is part of
//! the same step as the replies.

use std::collections::BTreeMap;

use riverrun_protocol::{ErrorCode, SyncGroupRequest, SyncGroupResponse};

use super::member::{Member, MemberId, Parked};
use super::{ClassicGroup, State, Turn};
use crate::memory::Shortage;
use crate::step::{GroupResponse, RequestContext};

/// A SyncGroup response that only says no.
pub(crate) fn sync_error(error: ErrorCode) -> GroupResponse {
    GroupResponse::SyncGroup(SyncGroupResponse { error_code: error.0, ..SyncGroupResponse::default() })
}

impl ClassicGroup {
    /// Handles a SyncGroup.
    pub(crate) fn sync(
        &mut self,
        turn: &mut Turn<'_>,
        context: &RequestContext<'_>,
        request: &SyncGroupRequest<'_>,
    ) {
        if let Err(error) = self.validate_sync(request) {
            turn.step.push_reply(context.token, sync_error(error));
            return;
        }
        let member_id = &*request.member_id;
        match self.state {
            State::Empty | State::PreparingRebalance => {
                turn.step.push_reply(context.token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
            }
            State::CompletingRebalance => {
                self.park_sync(turn, member_id, Parked::of(context));
                self.settle_sync(member_id);
                if self.is_leader(member_id) {
                    self.take_assignment(turn, request);
                }
            }
            State::Stable => {
                self.settle_sync(member_id);
                let assignment = self.members.get(member_id).map(|member| member.assignment.clone());
                turn.step.push_reply(context.token, self.synced(assignment.unwrap_or_default()));
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

    /// Parks a member's sync. If it had one parked already, that one was given up: it is told to start over.
    fn park_sync(&mut self, turn: &mut Turn<'_>, member_id: &str, parked: Parked) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        if let Some(old) = member.awaiting_sync.replace(parked) {
            turn.step.push_reply(old.token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
        }
    }

    /// This member no longer owes a sync; once nobody does, nobody can be late.
    fn settle_sync(&mut self, member_id: &str) {
        self.pending_sync.remove(member_id);
        if self.pending_sync.is_empty() {
            self.sync_deadline = None;
        }
    }

    /// The leader has assigned: keep it, write it, tell everyone who waits. A group whose record would not fit into
    /// a batch starts over, as in Kafka, and the error tells the leader why.
    fn take_assignment(&mut self, turn: &mut Turn<'_>, request: &SyncGroupRequest<'_>) {
        let mut assigned: BTreeMap<&str, &[u8]> =
            request.assignments.iter().map(|a| (&*a.member_id, &*a.assignment)).collect();
        assigned.retain(|id, _| self.members.contains_key(*id));
        let assigned_bytes = assigned.values().map(|assignment| assignment.len()).sum();
        let after_bytes = self.memory_bytes() - self.assignments_bytes + assigned_bytes;
        if let Err(shortage) = turn.check_room(after_bytes) {
            return self.refuse_assignment(turn, shortage);
        }
        for (id, member) in &mut self.members {
            member.assignment = assigned.remove(&**id).unwrap_or_default().to_vec();
        }
        self.assignments_bytes = assigned_bytes;
        self.enter(turn, State::Stable);
        let record = self.to_record();
        if record.value.as_ref().is_some_and(|value| value.len() > turn.config.group_metadata_max_bytes) {
            self.clear_assignments();
            self.answer_syncs(turn, ErrorCode::UNKNOWN_SERVER_ERROR);
            return self.prepare_rebalance(turn);
        }
        self.mark_persisted();
        turn.step.records.push(record);
        self.answer_syncs(turn, ErrorCode::NONE);
    }

    /// There is no memory for the assignment: the group starts over, after the pause that members make before they look
    /// for a coordinator that is not available.
    fn refuse_assignment(&mut self, turn: &mut Turn<'_>, shortage: Shortage) {
        let error = match shortage {
            Shortage::ForNow => ErrorCode::COORDINATOR_NOT_AVAILABLE,
            Shortage::Forever => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        self.answer_syncs(turn, error);
        self.prepare_rebalance(turn);
    }

    /// Answers every parked sync, with the assignment or with an error, and starts those members' sessions: while
    /// they were parked, they were excused.
    pub(super) fn answer_syncs(&mut self, turn: &mut Turn<'_>, error: ErrorCode) {
        let waiting = |(id, member): (&MemberId, &mut Member)| {
            member.awaiting_sync.take().map(|parked| (id.clone(), parked, member.assignment.clone()))
        };
        let waiting: Vec<_> = self.members.iter_mut().filter_map(waiting).collect();
        for (id, parked, assignment) in waiting {
            let reply = if error == ErrorCode::NONE { self.synced(assignment) } else { sync_error(error) };
            turn.step.push_reply(parked.token, reply);
            self.extend_session(turn, &id);
        }
    }

    /// The answer that carries an assignment.
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
