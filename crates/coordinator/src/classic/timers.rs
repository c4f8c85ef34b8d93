//! Deadlines of a classic group: sessions end, the join phase ends, members that owe a sync are late.
//!
//! Owns the deadlines of a group. They are handled in the order of their times.

use riverrun_protocol::ErrorCode;

use crate::shard::DUES_PER_GROUP;
use crate::time::Moment;

use super::{ClassicGroup, JoinTimer, MemberId, State, StepBuilder};

/// A deadline.
enum Due {
    Session(MemberId),
    Pending(MemberId),
    Join(JoinTimer),
    Sync,
}

impl ClassicGroup {
    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let sessions = self.members.values().filter_map(|member| member.expires_at);
        let pending = self.pending.values().copied();
        let join = self.join_timer.map(JoinTimer::at);
        sessions.chain(pending).chain(join).chain(self.sync_deadline).min()
    }

    /// Handles the deadlines that have passed, the earliest first, at most as many as one step allows per group.
    pub(crate) fn expire(&mut self, builder: &mut StepBuilder<'_>) {
        for _ in 0..DUES_PER_GROUP {
            let Some(due) = self.first_due(builder.now.moment) else { return };
            match due {
                Due::Session(id) => self.end_session(builder, &id),
                Due::Pending(id) => {
                    self.forget_pending(&id);
                    self.complete_join_if_none_is_missing(builder);
                }
                Due::Join(JoinTimer::Initial { delay_ms, remaining_ms, .. }) => {
                    self.end_initial_delay(builder, delay_ms, remaining_ms);
                }
                Due::Join(JoinTimer::Rebalance { .. }) => self.complete_join(builder),
                Due::Sync => self.remove_late_syncers(builder),
            }
        }
    }

    /// The earliest deadline that has passed; between equals, joins before syncs before sessions.
    fn first_due(&self, now: Moment) -> Option<Due> {
        let join = self.join_timer.map(|timer| (timer.at(), 0));
        let sync = self.sync_deadline.map(|at| (at, 1));
        let pending = self.pending.iter().min_by_key(|(_, at)| **at);
        let session =
            self.members.iter().filter_map(|(id, m)| Some((id, m.expires_at?))).min_by_key(|(_, at)| *at);
        let earliest = [join, sync, pending.map(|(_, at)| (*at, 2)), session.map(|(_, at)| (at, 3))];
        let (at, kind) = earliest.into_iter().flatten().min()?;
        if at > now {
            return None;
        }
        Some(match kind {
            0 => Due::Join(self.join_timer?),
            1 => Due::Sync,
            2 => Due::Pending(pending?.0.clone()),
            _ => Due::Session(session?.0.clone()),
        })
    }

    /// Ends a silent member's session. A member that waits in a rebalance is excused; any other is removed.
    fn end_session(&mut self, builder: &mut StepBuilder<'_>, member_id: &str) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.expires_at = None;
        if member.is_excused() {
            return;
        }
        self.remove(builder, member_id, ErrorCode::UNKNOWN_MEMBER_ID);
        match self.state {
            State::Stable | State::CompletingRebalance => self.prepare_rebalance(builder),
            State::Empty | State::PreparingRebalance => self.complete_join_if_none_is_missing(builder),
        }
    }

    /// Ends the join phase if no member is missing after one was removed. Unlike an ordinary join this may end the
    /// initial delay: when the last member is lost, the group is empty at once.
    fn complete_join_if_none_is_missing(&mut self, builder: &mut StepBuilder<'_>) {
        if self.state == State::PreparingRebalance && self.all_have_joined() {
            self.complete_join(builder);
        }
    }

    /// Removes the members that have not synced within the rebalance timeout since the generation began.
    fn remove_late_syncers(&mut self, builder: &mut StepBuilder<'_>) {
        self.sync_deadline = None;
        let late = std::mem::take(&mut self.pending_sync);
        if late.is_empty() {
            return;
        }
        for id in &late {
            self.remove(builder, id, ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.prepare_rebalance(builder);
    }

    /// Starts every member's session anew, after a load.
    pub(crate) fn restart_sessions(&mut self, now: Moment) {
        for member in self.members.values_mut() {
            let session_timeout_ms = i64::from(member.terms.session_timeout_ms);
            member.expires_at = Some(now.after(session_timeout_ms));
        }
    }

    /// After a load, rebalances a group whose record asks for it, and one that is larger than its bound by now; the
    /// last members to rejoin are removed then.
    pub(crate) fn rebalance_after_load(&mut self, builder: &mut StepBuilder<'_>) {
        if std::mem::take(&mut self.must_rebalance) || self.members.len() > builder.config.max_size {
            self.prepare_rebalance(builder);
        }
    }
}
