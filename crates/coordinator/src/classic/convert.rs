//! The classic side of a group that changes its protocol while it has members.
//!
//! Owns whether the group may become a KIP-848 group, the answers to its waiting members then, and its first state
//! after it has been one.

use std::sync::Arc;

use riverrun_protocol::ErrorCode;

use super::join::join_error;
use super::sync::sync_error;
use super::{ClassicGroup, Member, MemberId, State, StepBuilder};
use crate::GroupConfig;
use crate::time::{Now, Stamp};

impl ClassicGroup {
    /// Checks whether the group may become a KIP-848 group; the error says why not.
    pub(crate) fn check_upgrade(&self, config: &GroupConfig) -> Result<(), &'static str> {
        if !config.consumer_migration_policy.allows_upgrade() {
            Err("group.consumer.migration.policy does not let it change")
        } else if !self.is_of_consumers() {
            Err("they are no consumers")
        } else if self.members.len() > config.consumer_max_size {
            Err("they are more than a group of the consumer protocol may have")
        } else {
            Ok(())
        }
    }

    /// Answers every waiting member that there is a rebalance, because the group becomes another: they join again.
    pub(crate) fn turn_away(&mut self, builder: &mut StepBuilder<'_>) {
        for (id, member) in &mut self.members {
            if let Some(parked) = member.awaiting_join.take() {
                let reply = join_error(parked, id, ErrorCode::REBALANCE_IN_PROGRESS);
                builder.step.push_reply(parked.token, reply);
            }
            if let Some(parked) = member.awaiting_sync.take() {
                builder.step.push_reply(parked.token, sync_error(ErrorCode::REBALANCE_IN_PROGRESS));
            }
        }
        self.awaiting_join = 0;
    }

    /// A stable group of these consumers, whose sessions begin now; `None` if they have no protocol in common. If it
    /// has members, the caller is about to write a record of it.
    pub(crate) fn of_members(
        group_id: Arc<str>,
        generation: i32,
        members: Vec<(MemberId, Member)>,
        now: Now,
    ) -> Option<Self> {
        let mut group = Self::new(group_id, Some(Stamp::now(now)));
        if members.is_empty() {
            return Some(group);
        }
        for (id, member) in members {
            group.insert(id, member);
        }
        group.state = State::Stable;
        group.previous = State::Stable;
        group.generation = generation;
        group.protocol_type = Some(riverrun_protocol::consumer_protocol::PROTOCOL_TYPE.to_owned());
        group.protocol = Some(group.select_protocol()?);
        group.subscribed = group.compute_subscribed();
        group.persisted = true;
        group.restart_sessions(now.moment);
        Some(group)
    }
}
