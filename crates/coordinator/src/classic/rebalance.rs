//! The group's way from state to state: preparing a rebalance, completing the join, choosing protocol and leader.
//!
//! Owns every change of `state`. A rebalance ends joining when all known members have rejoined or the rebalance
//! time-out has passed; the first rebalance of an empty group waits for more members instead (KIP-134).

use std::collections::BTreeMap;

use riverrun_protocol::ErrorCode;

use crate::time::Stamp;

use super::{ClassicGroup, JoinTimer, MemberId, State, Turn};

impl ClassicGroup {
    /// Enters a state.
    pub(super) fn enter(&mut self, turn: &Turn<'_>, state: State) {
        self.previous = self.state;
        self.state = state;
        self.state_since = Some(Stamp::now(turn.now));
    }

    /// Starts a rebalance if none is being prepared, else ends the join phase if nobody is missing any more.
    pub(super) fn rebalance_or_complete_join(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance {
            self.maybe_complete_join(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    /// Ends the join phase if all have joined. The first rebalance of an empty group waits for its timer.
    pub(super) fn maybe_complete_join(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::PreparingRebalance && self.previous != State::Empty && self.all_have_joined()
        {
            self.complete_join(turn);
        }
    }

    /// Whether nobody is missing: every member waits, and no id that was given out is still to come.
    pub(super) fn all_have_joined(&self) -> bool {
        self.awaiting_join == self.members.len() && self.pending.is_empty()
    }

    /// Calls everyone to join again. Whoever waits for the leader's assignment waits in vain.
    pub(crate) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::CompletingRebalance {
            self.clear_assignments();
            self.answer_syncs(turn, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.pending_sync.clear();
        self.sync_deadline = None;
        let is_initial = self.is_empty();
        self.enter(turn, State::PreparingRebalance);
        if is_initial {
            let delay_ms = i64::from(turn.config.initial_rebalance_delay_ms);
            let remaining_ms = (self.rebalance_timeout_ms() - delay_ms).max(0);
            self.join_timer = Some(JoinTimer::Initial { at: turn.after(delay_ms), delay_ms, remaining_ms });
        } else if self.all_have_joined() {
            self.complete_join(turn);
        } else {
            self.join_timer = Some(JoinTimer::Rebalance { at: turn.after(self.rebalance_timeout_ms()) });
        }
    }

    /// Forgets what members were assigned.
    pub(super) fn clear_assignments(&mut self) {
        self.members.values_mut().for_each(|member| member.assignment = Vec::new());
        self.assignments_bytes = 0;
    }

    /// The initial delay is over: wait once more if members came meanwhile and time is left, else go on.
    pub(super) fn end_initial_delay(&mut self, turn: &mut Turn<'_>, delay_ms: i64, remaining_ms: i64) {
        if !self.new_member_added || remaining_ms == 0 {
            return self.complete_join(turn);
        }
        self.new_member_added = false;
        let next_ms = remaining_ms.min(turn.config.initial_rebalance_delay_ms.into());
        self.join_timer = Some(JoinTimer::Initial {
            at: turn.after(next_ms),
            delay_ms: next_ms,
            remaining_ms: (remaining_ms - delay_ms).max(0),
        });
    }

    /// Ends the join phase: dynamic members that did not rejoin are out, static ones keep their place, and a new
    /// generation begins. If only static members are left and none rejoined, there is nobody to lead: wait on until
    /// one does or their sessions end.
    pub(super) fn complete_join(&mut self, turn: &mut Turn<'_>) {
        self.join_timer = None;
        self.new_member_added = false;
        self.remove_absent(turn);
        if self.elect_joined_leader() || self.members.is_empty() {
            self.begin_generation(turn);
        } else {
            self.join_timer = Some(JoinTimer::Rebalance { at: turn.after(self.rebalance_timeout_ms()) });
        }
    }

    /// Removes the dynamic members that have not rejoined.
    fn remove_absent(&mut self, turn: &mut Turn<'_>) {
        let absent = |(id, member): (&MemberId, &super::Member)| {
            (member.awaiting_join.is_none() && member.instance_id.is_none()).then(|| id.clone())
        };
        let absent: Vec<MemberId> = self.members.iter().filter_map(absent).collect();
        for id in absent {
            self.remove(turn, &id, ErrorCode::UNKNOWN_MEMBER_ID);
        }
    }

    /// Makes sure that the leader is one of those that have joined. False if nobody has.
    fn elect_joined_leader(&mut self) -> bool {
        let has_joined = |id: &MemberId| self.members.get(id).is_some_and(|m| m.awaiting_join.is_some());
        if self.leader.as_ref().is_some_and(has_joined) {
            return true;
        }
        let Some(id) = self.members.keys().find(|id| has_joined(id)).cloned() else { return false };
        self.leader = Some(id);
        true
    }

    /// Begins the next generation with the members there are, or rests as an empty group.
    fn begin_generation(&mut self, turn: &mut Turn<'_>) {
        // Kafka's counter would fail at its end; ours starts over, which no member can mistake for its own.
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol = self.select_protocol();
        self.subscribed = self.compute_subscribed();
        self.pending_sync.clear();
        if self.members.is_empty() {
            self.enter(turn, State::Empty);
            let record = self.to_record();
            self.mark_persisted();
            turn.step.records.push(record);
            return;
        }
        self.enter(turn, State::CompletingRebalance);
        self.answer_joins(turn);
        self.pending_sync = self.members.keys().cloned().collect();
        self.sync_deadline = Some(turn.after(self.rebalance_timeout_ms()));
    }

    /// Tells everyone who waits what the new generation is.
    fn answer_joins(&mut self, turn: &mut Turn<'_>) {
        let ids: Vec<MemberId> = self.members.keys().cloned().collect();
        for id in ids {
            if let Some(parked) = self.members.get_mut(&id).and_then(|member| member.awaiting_join.take()) {
                self.awaiting_join -= 1;
                let reply = self.joined(&id, parked, false);
                turn.step.push_reply(parked.token, reply);
            }
            self.extend_session(turn, &id);
            if let Some(member) = self.members.get_mut(&id) {
                member.is_new = false;
            }
        }
    }

    /// The protocol of the next generation: each member votes for the first of its own that all support, and the
    /// one with most votes wins; between equals the first by name, so that the choice is always the same.
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

    /// The longest rebalance time-out that a member asked for.
    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|member| i64::from(member.terms.rebalance_timeout_ms)).max().unwrap_or(0)
    }
}
