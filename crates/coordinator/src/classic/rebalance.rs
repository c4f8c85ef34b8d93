//! The group's way from state to state: preparing a rebalance, completing the join, choosing protocol and leader.
//!
//! Owns every change of `state`. A rebalance ends joining when all known members have rejoined or the rebalance
//! timeout has passed; the first rebalance of an empty group waits for more members instead (KIP-134).

use std::collections::BTreeMap;

use riverrun_protocol::ErrorCode;

use crate::time::Stamp;

use super::{ClassicGroup, JoinTimer, MemberId, State, StepBuilder};

impl ClassicGroup {
    /// Enters a state.
    pub(super) fn enter(&mut self, builder: &StepBuilder<'_>, state: State) {
        self.previous = self.state;
        self.state = state;
        self.state_since = Some(Stamp::now(builder.now));
    }

    /// Starts a rebalance if none is being prepared; otherwise ends the join phase if no member is missing.
    pub(super) fn rebalance_or_complete_join(&mut self, builder: &mut StepBuilder<'_>) {
        if self.state == State::PreparingRebalance {
            self.maybe_complete_join(builder);
        } else {
            self.prepare_rebalance(builder);
        }
    }

    /// Ends the join phase if all have joined. The first rebalance of an empty group waits for its timer.
    pub(super) fn maybe_complete_join(&mut self, builder: &mut StepBuilder<'_>) {
        if self.state == State::PreparingRebalance && self.previous != State::Empty && self.all_have_joined()
        {
            self.complete_join(builder);
        }
    }

    /// Whether no member is missing: every member waits, and no id that was given out is still to come.
    pub(super) fn all_have_joined(&self) -> bool {
        self.awaiting_join == self.members.len() && self.pending.is_empty()
    }

    /// Makes all members join again. Members that wait for the leader's assignment are told to rejoin, too.
    pub(crate) fn prepare_rebalance(&mut self, builder: &mut StepBuilder<'_>) {
        if self.state == State::CompletingRebalance {
            self.clear_assignments();
            self.answer_syncs(builder, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.pending_sync.clear();
        self.sync_deadline = None;
        let is_initial = self.is_empty();
        self.enter(builder, State::PreparingRebalance);
        if is_initial {
            let delay_ms = i64::from(builder.config.initial_rebalance_delay_ms);
            let remaining_ms = (self.rebalance_timeout_ms() - delay_ms).max(0);
            self.join_timer =
                Some(JoinTimer::Initial { at: builder.after(delay_ms), delay_ms, remaining_ms });
        } else if self.all_have_joined() {
            self.complete_join(builder);
        } else {
            self.join_timer = Some(JoinTimer::Rebalance { at: builder.after(self.rebalance_timeout_ms()) });
        }
    }

    /// Forgets the members' assignments.
    pub(super) fn clear_assignments(&mut self) {
        self.members.values_mut().for_each(|member| member.assignment = Vec::new());
        self.assignments_bytes = 0;
    }

    /// Ends the initial delay: waits once more if members came meanwhile and time is left; otherwise goes on.
    pub(super) fn end_initial_delay(
        &mut self,
        builder: &mut StepBuilder<'_>,
        delay_ms: i64,
        remaining_ms: i64,
    ) {
        if !self.new_member_added || remaining_ms == 0 {
            return self.complete_join(builder);
        }
        self.new_member_added = false;
        let next_ms = remaining_ms.min(builder.config.initial_rebalance_delay_ms.into());
        self.join_timer = Some(JoinTimer::Initial {
            at: builder.after(next_ms),
            delay_ms: next_ms,
            remaining_ms: (remaining_ms - delay_ms).max(0),
        });
    }

    /// Ends the join phase: dynamic members that did not rejoin are removed, static ones keep their place, and a new
    /// generation begins. If only static members are left and none rejoined, no member can lead: the group waits on
    /// until one does or their sessions end.
    pub(super) fn complete_join(&mut self, builder: &mut StepBuilder<'_>) {
        self.join_timer = None;
        self.new_member_added = false;
        self.remove_absent(builder);
        if self.elect_joined_leader() || self.members.is_empty() {
            self.begin_generation(builder);
        } else {
            self.join_timer = Some(JoinTimer::Rebalance { at: builder.after(self.rebalance_timeout_ms()) });
        }
    }

    /// Removes the dynamic members that have not rejoined.
    fn remove_absent(&mut self, builder: &mut StepBuilder<'_>) {
        let absent = |(id, member): (&MemberId, &super::Member)| {
            (member.awaiting_join.is_none() && member.instance_id.is_none()).then(|| id.clone())
        };
        let absent: Vec<MemberId> = self.members.iter().filter_map(absent).collect();
        for id in absent {
            self.remove(builder, &id, ErrorCode::UNKNOWN_MEMBER_ID);
        }
    }

    /// Makes sure that the leader is one of the members that have joined. Returns `false` if none has.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |id: &MemberId| self.members.get(id).is_some_and(|m| m.awaiting_join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let Some(id) = self.members.keys().find(|id| has_joined(id)).cloned() else { return false };
        self.leader = Some(id);
        true
    }

    /// Begins the next generation with the present members, or becomes an empty group.
    fn begin_generation(&mut self, builder: &mut StepBuilder<'_>) {
        // Kafka's counter would fail at its end; this one starts over, which no member can mistake for its own.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = self.select_protocol();
        self.subscribed = self.compute_subscribed();
        self.pending_sync.clear();
        if self.members.is_empty() {
            self.enter(builder, State::Empty);
            let record = self.to_record();
            self.set_persisted();
            builder.step.records.push(record);
            return;
        }
        self.enter(builder, State::CompletingRebalance);
        self.answer_joins(builder);
        self.pending_sync = self.members.keys().cloned().collect();
        self.sync_deadline = Some(builder.after(self.rebalance_timeout_ms()));
    }

    /// Answers all parked joins with the new generation.
    fn answer_joins(&mut self, builder: &mut StepBuilder<'_>) {
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            if let Some(parked) = self.members.get_mut(&id).and_then(|member| member.awaiting_join.take()) {
                self.awaiting_join -= 1;
                let reply = self.joined(&id, parked, false);
                builder.step.push_reply(parked.token, reply);
            }
            self.extend_session(builder, &id);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
        }
    }

    /// The protocol of the next generation. Each member votes for the first of its protocols that all support, and
    /// the one with most votes wins; between equals the first by name, so that the choice is always the same.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        let is_candidate = |name: &str| self.votes.get(name) == Some(&self.members.len());
        for member in self.members.values() {
            if let Some(choice) = member.terms.protocols.iter().find(|p| is_candidate(&p.name)) {
                *votes.entry(&choice.name).or_default() += 1;
            }
        }
        let winner = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0)));
        winner.map(|(name, _)| name.to_owned())
    }

    /// The longest rebalance timeout of a member.
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| i64::from(member.terms.rebalance_timeout_ms)).max().unwrap_or(0)
    }
}
