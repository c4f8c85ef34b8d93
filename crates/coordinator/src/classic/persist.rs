//! A classic group as a record of `__consumer_offsets`, and back.
//!
//! Owns the part of a group that survives a restart: the generation, the chosen protocol, and each member with its
//! assignment and its subscription in that protocol. The state of a rebalance in progress is lost with the process;
//! clients join again.

use std::sync::Arc;

use riverrun_protocol::offsets_topic::GroupMetadataValue;
use riverrun_protocol::offsets_topic::group_metadata_value::MemberMetadata;
use riverrun_types::TimestampMs;

use super::member::{Member, MemberId, Protocol, Terms};
use super::{ClassicGroup, State};
use crate::records;
use crate::step::OffsetsRecord;
use crate::time::Stamp;

impl ClassicGroup {
    /// The group's record as of now.
    pub(crate) fn to_record(&self) -> OffsetsRecord {
        self.record_led_by(self.leader.as_deref())
    }

    /// The record of a group whose members are to rejoin. It names no leader, by which a load recognises that the
    /// members' assignments are incomplete.
    pub(crate) fn to_record_of_rebalance(&self) -> OffsetsRecord {
        self.record_led_by(None)
    }

    fn record_led_by(&self, leader: Option<&str>) -> OffsetsRecord {
        let value = GroupMetadataValue {
            protocol_type: self.protocol_type.as_deref().unwrap_or_default().into(),
            generation: self.generation,
            protocol: self.protocol.as_deref().map(Into::into),
            leader: leader.map(Into::into),
            current_state_timestamp: self.state_since.map_or(TimestampMs::NONE, |since| since.wall).0,
            members: self.members.iter().map(|(id, member)| self.member_metadata(id, member)).collect(),
        };
        records::group_metadata(&self.group_id, &value)
    }

    /// The log has a record of the group, or is about to.
    pub(super) fn set_persisted(&mut self) {
        self.persisted = true;
    }

    /// One member as in the group's record.
    fn member_metadata<'m>(&'m self, id: &'m MemberId, member: &'m Member) -> MemberMetadata<'m> {
        MemberMetadata {
            member_id: (&**id).into(),
            group_instance_id: member.instance_id.as_deref().map(Into::into),
            client_id: member.client_id.as_str().into(),
            client_host: member.client_host.as_str().into(),
            rebalance_timeout: member.terms.rebalance_timeout_ms,
            session_timeout: member.terms.session_timeout_ms,
            subscription: member.metadata(self.protocol()).into(),
            assignment: member.assignment.as_slice().into(),
        }
    }

    /// The group that a record describes: stable, or empty without members. Its sessions begin when the load ends.
    pub(crate) fn from_record(group_id: Arc<str>, value: &GroupMetadataValue<'_>) -> Self {
        let since = (value.current_state_timestamp >= 0)
            .then(|| Stamp::recorded(TimestampMs(value.current_state_timestamp)));
        let mut group = Self::new(group_id, since);
        group.state = if value.members.is_empty() { State::Empty } else { State::Stable };
        group.previous = group.state;
        group.generation = value.generation;
        group.protocol_type = (!value.protocol_type.is_empty()).then(|| value.protocol_type.to_string());
        group.protocol = value.protocol.as_deref().map(str::to_owned);
        group.persisted = true;
        for member in &value.members {
            group.restore_member(member, value.protocol.as_deref());
        }
        let leader = value.leader.as_deref().filter(|leader| group.members.contains_key(*leader));
        if let Some(leader) = leader {
            group.leader = Some(leader.into());
        }
        group.must_rebalance = value.leader.is_none() && !value.members.is_empty();
        group.subscribed = group.compute_subscribed();
        group
    }

    /// Adds a member from its record. It supports at least the chosen protocol; the others are known when it joins
    /// again.
    fn restore_member(&mut self, recorded: &MemberMetadata<'_>, protocol: Option<&str>) {
        let rebalance_timeout_ms = match recorded.rebalance_timeout {
            ..0 => recorded.session_timeout,
            given => given,
        };
        let protocols =
            protocol.map(|name| Protocol { name: name.to_owned(), metadata: recorded.subscription.to_vec() });
        let member = Member {
            instance_id: recorded.group_instance_id.as_deref().map(str::to_owned),
            client_id: recorded.client_id.to_string(),
            client_host: recorded.client_host.to_string(),
            terms: Terms {
                rebalance_timeout_ms,
                session_timeout_ms: recorded.session_timeout,
                protocols: protocols.into_iter().collect(),
            },
            assignment: recorded.assignment.to_vec(),
            awaiting_join: None,
            awaiting_sync: None,
            is_new: false,
            expires_at: None,
        };
        let member_id: MemberId = recorded.member_id.as_ref().into();
        let is_known = self.members.contains_key(&member_id)
            || member.instance_id.as_ref().is_some_and(|id| self.static_members.contains_key(id));
        if !is_known {
            self.insert(member_id, member);
        }
    }
}
