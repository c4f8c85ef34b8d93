//! JoinGroup: which clients may join, under which member id, and whether that starts a rebalance.
//!
//! Owns the admission rules: KIP-394 (a dynamic member first gets an id and joins again with it), KIP-345 (a static
//! member takes over its predecessor's place), the bounds on members, ids and metadata.

use riverrun_protocol::join_group_response::JoinGroupResponseMember;
use riverrun_protocol::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Str};

use super::member::{
    FIRST_MEMBER_BYTES, Member, MemberId, PENDING_BYTES, Parked, Protocol, Terms, kept_client_id,
    member_bytes, new_member_id, protocols_bytes, requested_bytes,
};
use super::{ClassicGroup, PROTOCOL_COPIES, State, StepBuilder};
use crate::step::{GroupResponse, RequestContext};

/// From this version on a dynamic member joins with an id that it was given (KIP-394).
pub(crate) const MEMBER_ID_REQUIRED_VERSION: i16 = 4;
/// From this version on the leader can be told to leave the assignment as it is (KIP-814).
const SKIP_ASSIGNMENT_VERSION: i16 = 9;
/// Before this version the protocol's name may not be null.
const NULLABLE_PROTOCOL_VERSION: i16 = 7;
/// How long a new member's first join may stay parked: it cannot heartbeat yet, and its connection may be gone.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1_000;
/// Members may offer several protocols but the record holds one, so memory may take this many times the record.
const PROTOCOLS_PER_MEMBER: usize = 8;

/// A JoinGroup response with only an error.
pub(crate) fn join_refusal(
    api_version: i16,
    member_id: &str,
    error: ErrorCode,
) -> JoinGroupResponse<'static> {
    JoinGroupResponse {
        error_code: error.0,
        member_id: member_id.to_owned().into(),
        protocol_name: protocol_name(api_version, None),
        ..JoinGroupResponse::default()
    }
}

/// As [`join_refusal`], as the reply to a parked or current request.
pub(crate) fn join_error(parked: Parked, member_id: &str, error: ErrorCode) -> GroupResponse {
    GroupResponse::JoinGroup(join_refusal(parked.api_version, member_id, error))
}

/// The protocol's name as the version of the request can carry it.
fn protocol_name(api_version: i16, name: Option<&str>) -> Option<Str<'static>> {
    match name {
        None if api_version < NULLABLE_PROTOCOL_VERSION => Some("".into()),
        name => name.map(|name| name.to_owned().into()),
    }
}

impl ClassicGroup {
    /// Handles a JoinGroup whose session timeout and group id are valid.
    pub(crate) fn join(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
    ) {
        if let Err((member_id, error)) = self.try_join(builder, context, request) {
            let parked = Parked::of(context);
            builder.step.push_reply(context.token, join_error(parked, &member_id, error));
        }
    }

    /// Joins; the error has the refusal and the member id that goes with it.
    pub(crate) fn try_join(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
    ) -> Result<(), (String, ErrorCode)> {
        let member_id = &*request.member_id;
        if !self.has_room_for(request, builder) {
            self.remove(builder, member_id, ErrorCode::GROUP_MAX_SIZE_REACHED);
            self.maybe_complete_join(builder);
            return Err((String::new(), ErrorCode::GROUP_MAX_SIZE_REACHED));
        }
        self.check_memory(context, request, builder).map_err(|error| (member_id.to_owned(), error))?;
        if !self.supports(&request.protocol_type, request.protocols.iter().map(|p| &*p.name)) {
            return Err((member_id.to_owned(), ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
        }
        if member_id.is_empty() {
            self.join_unknown(builder, context, request);
            Ok(())
        } else if self.pending.contains_key(member_id) && request.group_instance_id.is_none() {
            self.add_and_rebalance(builder, context, request, &member_id.into());
            Ok(())
        } else {
            self.validate_member(member_id, request.group_instance_id.as_deref())
                .map_err(|error| (member_id.to_owned(), error))?;
            self.rejoin(builder, context, request);
            Ok(())
        }
    }

    /// Whether the group may grow by this member. While members rejoin, only those that have are counted, so that
    /// after the bound was lowered the last to come back are refused. A static member that starts again takes its own
    /// place.
    fn has_room_for(&self, request: &JoinGroupRequest<'_>, builder: &StepBuilder<'_>) -> bool {
        let member = self.place_of(request);
        match self.state {
            State::Empty => true,
            State::PreparingRebalance => {
                member.is_some_and(|m| m.awaiting_join.is_some())
                    || self.awaiting_join < builder.config.max_size
            }
            State::CompletingRebalance | State::Stable => {
                member.is_some() || self.members.len() < builder.config.max_size
            }
        }
    }

    /// Whether the group may keep this member's metadata: by its own bound, and by that of all groups.
    fn check_memory(
        &self,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        builder: &StepBuilder<'_>,
    ) -> Result<(), ErrorCode> {
        let known = self.place_of(request);
        let replaced_bytes = known.map_or(0, |member| protocols_bytes(&member.terms.protocols));
        let added_bytes = requested_bytes(&request.protocols);
        let limit = builder.config.group_metadata_max_bytes.saturating_mul(PROTOCOLS_PER_MEMBER);
        if self.protocols_bytes - replaced_bytes + added_bytes > limit {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        let first_bytes = if self.members.is_empty() { FIRST_MEMBER_BYTES } else { 0 };
        let newcomer_bytes = if known.is_some() { 0 } else { first_bytes + newcomer_bytes(context, request) };
        let after_bytes = self.memory_bytes() + newcomer_bytes + PROTOCOL_COPIES * added_bytes
            - PROTOCOL_COPIES * replaced_bytes;
        builder.check_room(after_bytes).map_err(|shortage| shortage.code(ErrorCode::GROUP_MAX_SIZE_REACHED))
    }

    /// The member that sends the request, or whose place it asks for.
    fn place_of(&self, request: &JoinGroupRequest<'_>) -> Option<&Member> {
        let by_instance = || self.static_members.get(request.group_instance_id.as_deref()?);
        self.members.get(&*request.member_id).or_else(|| self.members.get(by_instance()?))
    }

    /// Handles a client without a member id: a static one gets its place, a dynamic one an id.
    fn join_unknown(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
    ) {
        let instance_id = request.group_instance_id.as_deref();
        let new_id = new_member_id(context, instance_id);
        let predecessor = instance_id.and_then(|instance_id| self.static_members.get(instance_id).cloned());
        if let Some(old_id) = predecessor {
            self.replace_static(builder, context, request, &old_id, &new_id);
        } else if instance_id.is_none() && context.api_version >= MEMBER_ID_REQUIRED_VERSION {
            self.hand_out_id(builder, context, request, new_id);
        } else {
            self.add_and_rebalance(builder, context, request, &new_id);
        }
    }

    /// Gives out a member id and waits for it to come back. As many ids may be out as members may be in the group; if
    /// there are too many, the one that would expire first is dropped.
    fn hand_out_id(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        new_id: MemberId,
    ) {
        if self.pending.len() >= builder.config.max_size {
            let oldest = self.pending.iter().min_by_key(|(_, expires_at)| **expires_at);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.forget_pending(&id);
            }
        }
        let reply = join_error(Parked::of(context), &new_id, ErrorCode::MEMBER_ID_REQUIRED);
        builder.step.push_reply(context.token, reply);
        self.pending_bytes += PENDING_BYTES + new_id.len();
        self.pending.insert(new_id, builder.after(request.session_timeout_ms.into()));
    }

    /// Forgets an id that was given out: it has come back, or is not waited for any more.
    pub(super) fn forget_pending(&mut self, member_id: &str) {
        if self.pending.remove(member_id).is_some() {
            self.pending_bytes -= PENDING_BYTES + member_id.len();
        }
    }

    /// Adds a new member.
    fn add_and_rebalance(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        member_id: &MemberId,
    ) {
        if self.state == State::PreparingRebalance && self.previous == State::Empty {
            self.new_member_added = true;
        }
        self.forget_pending(member_id);
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.to_string());
        }
        let member = Member {
            instance_id: request.group_instance_id.as_deref().map(str::to_owned),
            client_id: kept_client_id(context).to_owned(),
            client_host: context.client_host.to_owned(),
            terms: Terms::of(request, context.api_version),
            assignment: Vec::new(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: true,
            expires_at: Some(builder.after(NEW_MEMBER_JOIN_TIMEOUT_MS)),
        };
        self.insert(member_id.clone(), member);
        self.park_join(builder, member_id, Parked::of(context));
        self.rebalance_or_complete_join(builder);
    }

    /// Handles the join of a known member, which has one of three reasons: a rebalance is on, its metadata has
    /// changed, or it missed the reply.
    fn rejoin(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
    ) {
        let member_id = &MemberId::from(&*request.member_id);
        let unchanged = self.members.get(member_id).is_some_and(|m| m.matches(&request.protocols));
        let current_is_enough = match self.state {
            State::Empty | State::PreparingRebalance => false,
            State::CompletingRebalance => unchanged,
            // The leader rejoins for a new assignment for reasons that the members' metadata does not show, such as
            // partitions that were added.
            State::Stable => unchanged && !self.is_leader(member_id),
        };
        if current_is_enough {
            let reply = self.joined(member_id, Parked::of(context), false);
            builder.step.push_reply(context.token, reply);
            return;
        }
        self.set_terms(member_id, Terms::of(request, context.api_version));
        self.park_join(builder, member_id, Parked::of(context));
        self.rebalance_or_complete_join(builder);
    }

    /// Puts a static member back under its instance id. The old member id is fenced, and everything else stays. As
    /// long as the group's protocol stays, too, the other members notice nothing, with one exception: the old process
    /// was about to rejoin to give partitions to others, which the new one does not know of.
    fn replace_static(
        &mut self,
        builder: &mut StepBuilder<'_>,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        old_id: &str,
        new_id: &MemberId,
    ) {
        let old_leader = self.leader.clone();
        let owed_rejoin = self.members.get(old_id).is_some_and(|member| self.owes_rejoin(member));
        self.rename_static(builder, old_id, new_id);
        self.set_terms(new_id, Terms::of(request, context.api_version));
        self.extend_session(builder, new_id);
        let unaffected =
            self.state == State::Stable && !owed_rejoin && self.protocol == self.select_protocol();
        if !unaffected {
            self.park_join(builder, new_id, Parked::of(context));
            return self.rebalance_or_complete_join(builder);
        }
        let record = self.to_record();
        self.set_persisted();
        builder.step.records.push(record);
        let reply = self.replaced(new_id, Parked::of(context), old_leader.as_deref());
        builder.step.push_reply(context.token, reply);
    }

    /// Whether this is a consumer that gives up the partitions which its leader has left out of its assignment, and
    /// then rejoins so that another member may have them (KIP-429).
    fn owes_rejoin(&self, member: &Member) -> bool {
        self.is_of_consumers() && member.gives_up(self.protocol())
    }

    /// The answer to a static member that took over its place in a stable group. An old client that was the leader is
    /// told its old id, so that it does not assign anew.
    fn replaced(&self, new_id: &str, parked: Parked, old_leader: Option<&str>) -> GroupResponse {
        if parked.api_version >= SKIP_ASSIGNMENT_VERSION {
            return self.joined(new_id, parked, self.is_leader(new_id));
        }
        let mut response = self.join_response(new_id, parked);
        response.leader = old_leader.unwrap_or_default().to_owned().into();
        response.members = Vec::new();
        GroupResponse::JoinGroup(response)
    }

    /// The answer to a member of the current generation.
    pub(super) fn joined(&self, member_id: &str, parked: Parked, skip_assignment: bool) -> GroupResponse {
        let mut response = self.join_response(member_id, parked);
        response.skip_assignment = skip_assignment;
        GroupResponse::JoinGroup(response)
    }

    /// The current generation for one member; the leader gets the list of all members.
    fn join_response(&self, member_id: &str, parked: Parked) -> JoinGroupResponse<'static> {
        JoinGroupResponse {
            error_code: ErrorCode::NONE.0,
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone().map(Into::into),
            protocol_name: protocol_name(parked.api_version, self.protocol.as_deref()),
            leader: self.leader.as_deref().unwrap_or_default().to_owned().into(),
            member_id: member_id.to_owned().into(),
            members: if self.is_leader(member_id) { self.response_members() } else { Vec::new() },
            ..JoinGroupResponse::default()
        }
    }

    /// All members with their metadata in the chosen protocol.
    fn response_members(&self) -> Vec<JoinGroupResponseMember<'static>> {
        let member = |(id, member): (&MemberId, &Member)| JoinGroupResponseMember {
            member_id: id.to_string().into(),
            group_instance_id: member.instance_id.clone().map(Into::into),
            metadata: member.metadata(self.protocol()).to_vec().into(),
        };
        self.members.iter().map(member).collect()
    }

    /// Whether this member is the leader.
    pub(super) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Adds a member to the maps and counts. The id and the instance id are new.
    pub(super) fn insert(&mut self, member_id: MemberId, member: Member) {
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), member_id.clone());
        }
        self.count_protocols(&member.terms.protocols);
        self.members_bytes += member.size_bytes(&member_id);
        self.assignments_bytes += member.assignment.len();
        if self.leader.is_none() {
            self.leader = Some(member_id.clone());
        }
        self.members.insert(member_id, member);
    }

    /// Removes a member, or an id that was given out. Its parked requests are answered with `error`; if it was the
    /// leader, another member becomes the leader.
    pub(super) fn remove(&mut self, builder: &mut StepBuilder<'_>, member_id: &str, error: ErrorCode) {
        self.forget_pending(member_id);
        self.pending_sync.remove(member_id);
        let Some(member) = self.members.remove(member_id) else { return };
        self.discount_protocols(&member.terms.protocols);
        self.members_bytes -= member.size_bytes(member_id);
        self.assignments_bytes -= member.assignment.len();
        if let Some(instance_id) = &member.instance_id {
            self.static_members.remove(instance_id);
        }
        if let Some(parked) = member.awaiting_join {
            self.awaiting_join -= 1;
            builder.step.push_reply(parked.token, join_error(parked, "", error));
        }
        if let Some(parked) = member.awaiting_sync {
            builder.step.push_reply(parked.token, super::sync::sync_error(error));
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
    }

    /// Gives a static member's place to a new member id and fences the parked requests of the old one.
    fn rename_static(&mut self, builder: &mut StepBuilder<'_>, old_id: &str, new_id: &MemberId) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        if let Some(parked) = member.awaiting_join.take() {
            self.awaiting_join -= 1;
            builder.step.push_reply(parked.token, join_error(parked, old_id, ErrorCode::FENCED_INSTANCE_ID));
        }
        if let Some(parked) = member.awaiting_sync.take() {
            builder.step.push_reply(parked.token, super::sync::sync_error(ErrorCode::FENCED_INSTANCE_ID));
        }
        if self.pending_sync.remove(old_id) {
            self.pending_sync.insert(new_id.clone());
        }
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), new_id.clone());
        }
        member.is_new = false;
        self.members_bytes = self.members_bytes - member.size_bytes(old_id) + member.size_bytes(new_id);
        self.members.insert(new_id.clone(), member);
    }

    /// Replaces the terms of a member.
    fn set_terms(&mut self, member_id: &MemberId, terms: Terms) {
        let Some(mut member) = self.members.remove(member_id) else { return };
        self.discount_protocols(&member.terms.protocols);
        self.count_protocols(&terms.protocols);
        member.terms = terms;
        self.members.insert(member_id.clone(), member);
    }

    /// Parks a member's join. If another one is parked already, its client has given up on it: that one is answered
    /// to try again.
    fn park_join(&mut self, builder: &mut StepBuilder<'_>, member_id: &str, parked: Parked) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        match member.awaiting_join.replace(parked) {
            None => self.awaiting_join += 1,
            Some(old) => {
                let reply = join_error(old, member_id, ErrorCode::REBALANCE_IN_PROGRESS);
                builder.step.push_reply(old.token, reply);
            }
        }
    }

    /// Adds one member's protocols to the counts.
    fn count_protocols(&mut self, protocols: &[Protocol]) {
        self.protocols_bytes += protocols_bytes(protocols);
        for name in distinct_names(protocols) {
            *self.votes.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Removes one member's protocols from the counts.
    fn discount_protocols(&mut self, protocols: &[Protocol]) {
        self.protocols_bytes -= protocols_bytes(protocols);
        for name in distinct_names(protocols) {
            if let Some(count) = self.votes.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.votes.remove(name);
                }
            }
        }
    }
}

/// Memory in bytes of a new member, beside its protocols. The id that it is given may be this long.
fn newcomer_bytes(context: &RequestContext<'_>, request: &JoinGroupRequest<'_>) -> usize {
    const UUID_BYTES: usize = 37;
    let instance_id = request.group_instance_id.as_deref();
    let client_id = kept_client_id(context);
    let prefix_bytes = instance_id.map_or(client_id.len(), str::len);
    let id_bytes = request.member_id.len().max(prefix_bytes + UUID_BYTES);
    member_bytes("", instance_id, client_id, context.client_host) + id_bytes + request.protocol_type.len()
}

/// The distinct names, so that a member that lists a protocol twice supports it once.
pub(crate) fn distinct_names(protocols: &[Protocol]) -> std::collections::BTreeSet<&str> {
    protocols.iter().map(|protocol| protocol.name.as_str()).collect()
}
