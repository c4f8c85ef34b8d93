//! DescribeGroups, ListGroups, DeleteGroups.
//!
//! Owns how groups look to an admin. A request may name groups of several shards: the host asks each shard for its
//! own groups and puts the answers together.

use std::ops::Bound;
use std::sync::Arc;

use riverrun_protocol::delete_groups_response::DeletableGroupResult;
use riverrun_protocol::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use riverrun_protocol::list_groups_response::ListedGroup;
use riverrun_protocol::{ErrorCode, ListGroupsRequest};

use crate::classic::{ClassicGroup, Member, MemberId};
use crate::group::Group;
use crate::lend::STEP_COST_MAX;
use crate::records;
use crate::shard::Shard;
use crate::step::OffsetsRecord;

/// From this version on an unknown group is an error; in earlier versions it is described as a dead one (KIP-1043).
const GROUP_ID_NOT_FOUND_VERSION: i16 = 6;

/// The cost of listing one group, in the unit of [`STEP_COST_MAX`].
const LISTED_COST: usize = 512;
/// Divisor: the part of a group's memory that determining its state costs.
const LISTED_SHARE: usize = 64;

impl Shard {
    /// Describes a classic group. A KIP-848 group has a request of its own and does not exist for this one.
    pub fn describe_group(&self, group_id: &str, api_version: i16) -> DescribedGroup<'static> {
        let mut described =
            DescribedGroup { group_id: group_id.to_owned().into(), ..DescribedGroup::default() };
        match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Simple) => described.group_state = Group::Simple.state_name().into(),
            Some(Group::Classic(group)) => describe_classic(group, &mut described),
            other => {
                described.group_state = "Dead".into();
                if api_version >= GROUP_ID_NOT_FOUND_VERSION {
                    let message = match other {
                        None => format!("there is no group {group_id:?}"),
                        Some(_) => format!("the group {group_id:?} uses the consumer protocol"),
                    };
                    described.error_code = ErrorCode::GROUP_ID_NOT_FOUND.0;
                    described.error_message = Some(message.into());
                }
            }
        }
        described
    }

    /// Lists the groups behind this one that pass the request's filters, as far as one slice goes. If there are more,
    /// returns the id of the last one examined. Names in the filters are compared without case; an empty filter lets
    /// everything pass.
    pub fn list_groups(
        &self,
        request: &ListGroupsRequest<'_>,
        behind: Option<&str>,
    ) -> (Vec<ListedGroup<'static>>, Option<Arc<str>>) {
        let is_of = |filter: &[riverrun_protocol::Str<'_>], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let passes = |listed: &ListedGroup<'_>| {
            is_of(&request.states_filter, &listed.group_state)
                && is_of(&request.types_filter, &listed.group_type)
        };
        let mut listed = Vec::new();
        if behind.is_none() {
            let lent = self.lent_groups.values().filter_map(|entry| entry.listed.clone());
            listed.extend(lent.filter(passes));
        }
        let (mut cost, mut last) = (0, None);
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for (group_id, entry) in self.groups.range::<str, _>((from, Bound::Unbounded)) {
            if cost >= STEP_COST_MAX {
                return (listed, last);
            }
            // The state of a group may depend on each member, which costs little beside the memory of one.
            cost += LISTED_COST + entry.group.memory_bytes() / LISTED_SHARE;
            listed.extend(Some(entry.listed(group_id)).filter(passes));
            last = Some(Arc::clone(group_id));
        }
        (listed, None)
    }

    /// Deletes a group with its offsets, if it has no members. The records are tombstones for all its records in the
    /// log.
    pub fn delete_group(&mut self, group_id: &str) -> (DeletableGroupResult<'static>, Vec<OffsetsRecord>) {
        let mut tombstones = Vec::new();
        let error = match self.groups.get(group_id) {
            None => ErrorCode::GROUP_ID_NOT_FOUND,
            Some(entry) if !entry.group.is_empty() => ErrorCode::NON_EMPTY_GROUP,
            Some(entry) => {
                let offsets = entry.offsets.iter();
                tombstones.extend(
                    offsets.map(|(topic, index, _)| records::offset_tombstone(group_id, topic, index)),
                );
                tombstones.append(&mut entry.group.tombstones(group_id));
                self.forget(group_id);
                ErrorCode::NONE
            }
        };
        let result = DeletableGroupResult { group_id: group_id.to_owned().into(), error_code: error.0 };
        (result, tombstones)
    }
}

/// Fills in a classic group. Metadata and assignments are shown once the group is stable.
fn describe_classic(group: &ClassicGroup, described: &mut DescribedGroup<'static>) {
    described.group_state = group.state_name().into();
    described.protocol_type = group.protocol_type().unwrap_or_default().to_owned().into();
    let protocol = group.is_stable().then(|| group.protocol());
    described.protocol_data = protocol.unwrap_or_default().to_owned().into();
    described.members = group.members().map(|(id, member)| describe_member(id, member, protocol)).collect();
}

/// One member of a classic group.
fn describe_member(id: &MemberId, member: &Member, protocol: Option<&str>) -> DescribedGroupMember<'static> {
    let mut described = DescribedGroupMember {
        member_id: id.to_string().into(),
        group_instance_id: member.instance_id.clone().map(Into::into),
        client_id: member.client_id.clone().into(),
        client_host: member.client_host.clone().into(),
        ..DescribedGroupMember::default()
    };
    if let Some(protocol) = protocol {
        described.member_metadata = member.metadata(protocol).to_vec().into();
        described.member_assignment = member.assignment.clone().into();
    }
    described
}
