//! Heartbeat, LeaveGroup, and commits as signs of life.
//!
//! Owns how a member's session is kept, and how a member ends it.

use riverrun_protocol::leave_group_request::MemberIdentity;
use riverrun_protocol::leave_group_response::MemberResponse;
use riverrun_protocol::{ErrorCode, HeartbeatRequest, LeaveGroupRequest, LeaveGroupResponse};

use super::{ClassicGroup, State, StepBuilder};
use crate::time::Moment;

/// From this version on a request may name several members, and the response has a result for each.
const BATCH_VERSION: i16 = 3;

/// The members that a LeaveGroup names: old versions name one.
fn leaving(request: &LeaveGroupRequest<'_>, api_version: i16) -> Vec<MemberIdentity<'static>> {
    if api_version >= BATCH_VERSION {
        request
            .members
            .iter()
            .map(|member| MemberIdentity {
                member_id: member.member_id.to_string().into(),
                group_instance_id: member.group_instance_id.as_deref().map(|id| id.to_owned().into()),
                ..MemberIdentity::default()
            })
            .collect()
    } else {
        vec![MemberIdentity { member_id: request.member_id.to_string().into(), ..MemberIdentity::default() }]
    }
}

/// Builds a LeaveGroup response from the results for the members. Old versions have the one member's error at the
/// top.
pub(crate) fn leave_response(
    request: &LeaveGroupRequest<'_>,
    api_version: i16,
    mut leave: impl FnMut(&MemberIdentity<'_>) -> ErrorCode,
) -> LeaveGroupResponse<'static> {
    let mut response = LeaveGroupResponse::default();
    for member in leaving(request, api_version) {
        let error = leave(&member);
        if api_version < BATCH_VERSION {
            response.error_code = error.0;
        } else {
            response.members.push(MemberResponse {
                error_code: error.0,
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
            });
        }
    }
    response
}

impl ClassicGroup {
    /// Handles a heartbeat and returns its result. A rebalance is reported as an error, and keeps the session.
    pub(crate) fn heartbeat(
        &mut self,
        builder: &StepBuilder<'_>,
        request: &HeartbeatRequest<'_>,
    ) -> ErrorCode {
        if let Err(error) = self.validate_member(&request.member_id, request.group_instance_id.as_deref()) {
            return error;
        }
        if request.generation_id != self.generation {
            return ErrorCode::ILLEGAL_GENERATION;
        }
        self.extend_session(builder, &request.member_id);
        match self.state {
            State::Empty => ErrorCode::UNKNOWN_MEMBER_ID,
            State::PreparingRebalance => ErrorCode::REBALANCE_IN_PROGRESS,
            State::CompletingRebalance | State::Stable => ErrorCode::NONE,
        }
    }

    /// Takes an accepted commit as a heartbeat, unless the group is completing a rebalance.
    pub(crate) fn note_commit(&mut self, builder: &StepBuilder<'_>, member_id: &str) {
        if matches!(self.state, State::Stable | State::PreparingRebalance) {
            self.extend_session(builder, member_id);
        }
    }

    /// Begins the member's session anew.
    pub(super) fn extend_session(&mut self, builder: &StepBuilder<'_>, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.expires_at = Some(builder.after(member.terms.session_timeout_ms.into()));
        }
    }

    /// When the member's session ends, unless it is excused.
    pub(crate) fn session_end(&self, member_id: &str) -> Option<Moment> {
        self.members.get(member_id)?.expires_at
    }

    /// Handles a LeaveGroup: all named members go, then the rest rebalances once.
    pub(crate) fn leave(
        &mut self,
        builder: &mut StepBuilder<'_>,
        request: &LeaveGroupRequest<'_>,
        api_version: i16,
    ) -> LeaveGroupResponse<'static> {
        let mut somebody_left = false;
        let response = leave_response(request, api_version, |member| {
            let error = self.leave_one(builder, member);
            somebody_left |= error == ErrorCode::NONE;
            error
        });
        if somebody_left && !self.is_empty() {
            self.rebalance_or_complete_join(builder);
        }
        response
    }

    /// Removes one member. An admin removes static members by instance id alone.
    fn leave_one(&mut self, builder: &mut StepBuilder<'_>, leaving: &MemberIdentity<'_>) -> ErrorCode {
        let instance_id = leaving.group_instance_id.as_deref();
        let member_id = if leaving.member_id.is_empty() {
            match instance_id.and_then(|id| self.static_members.get(id)) {
                Some(member_id) => member_id.clone(),
                None => return ErrorCode::UNKNOWN_MEMBER_ID,
            }
        } else {
            leaving.member_id.as_ref().into()
        };
        if !self.pending.contains_key(&member_id)
            && let Err(error) = self.validate_member(&member_id, instance_id)
        {
            return error;
        }
        self.remove(builder, &member_id, ErrorCode::UNKNOWN_MEMBER_ID);
        ErrorCode::NONE
    }
}
