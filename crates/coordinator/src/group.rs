//! One group of a shard: its protocol, and its committed offsets, which outlive any protocol.
//!
//! Owns the common part of both kinds of group, so that offsets, admin requests and expiry use one type.

use riverrun_protocol::ErrorCode;
use riverrun_protocol::list_groups_response::ListedGroup;
use riverrun_types::TopicId;

use crate::GroupConfig;
use crate::classic::ClassicGroup;
use crate::consumer::ConsumerGroup;
use crate::memory::{Charge, Room, Share};
use crate::offsets::GroupOffsets;
use crate::records;
use crate::step::OffsetsRecord;
use crate::time::{Ages, Moment, Now, Stamp};

/// The kind of a group, beside its offsets.
#[derive(Debug)]
pub(crate) enum Group {
    /// Only offsets: committed by clients that use no membership, or left over from a group that is gone.
    Simple,
    /// A group of the classic protocol: JoinGroup, SyncGroup.
    Classic(Box<ClassicGroup>),
    /// A group of KIP-848: ConsumerGroupHeartbeat.
    Consumer(Box<ConsumerGroup>),
}

/// A group with all of its state in the shard.
///
/// Invariants:
/// - At the end of a step a `Simple` group holds at least one offset, or `lingers`.
/// - `scheduled` is at or before the group's next deadline, and stands in the shard's timers if it is set.
/// - At the end of a step `charge` is what the group takes of the memory.
#[derive(Debug)]
pub(crate) struct GroupEntry {
    /// The group.
    pub(crate) group: Group,
    /// Its committed offsets.
    pub(crate) offsets: GroupOffsets,
    /// When the shard handles its deadlines next.
    pub(crate) scheduled: Option<Moment>,
    /// The memory that is charged to it.
    pub(crate) charge: Charge,
    /// Whether it stays until the next sweep although nothing is left of it: its last offset was deleted.
    pub(crate) lingers: bool,
    /// Whether it had members at the end of the last step.
    pub(crate) had_members: bool,
}

/// Bytes of a group beside its members and offsets: its places in the shard's maps, and the state of either protocol.
const GROUP_BYTES: usize = 1_024;

impl GroupEntry {
    /// A group of this kind without offsets or timers.
    pub(crate) fn new(group: Group) -> Self {
        Self {
            group,
            offsets: GroupOffsets::default(),
            scheduled: None,
            charge: Charge::default(),
            lingers: false,
            had_members: false,
        }
    }

    /// Memory in bytes of an empty group of this id.
    pub(crate) fn empty_bytes(group_id: &str) -> usize {
        GROUP_BYTES + 2 * group_id.len()
    }

    /// Memory of the group of this id, in bytes.
    pub(crate) fn memory_bytes(&self, group_id: &str) -> usize {
        Self::empty_bytes(group_id) + self.group.memory_bytes() + self.offsets.memory_bytes()
    }

    /// The group as ListGroups shows it.
    pub(crate) fn listed(&self, group_id: &str) -> ListedGroup<'static> {
        ListedGroup {
            group_id: group_id.to_owned().into(),
            protocol_type: self.group.protocol_type().to_owned().into(),
            group_state: self.group.state_name().into(),
            group_type: self.group.type_name().into(),
        }
    }

    /// Room for the group's members to take more memory.
    pub(crate) fn room<'m>(&self, share: &'m Share) -> Room<'m> {
        Room::new(share, self.charge, self.group.memory_bytes())
    }
}

/// The sender of a commit, as in the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committer<'a> {
    /// Member id; empty if the client uses no membership.
    pub(crate) member_id: &'a str,
    /// `group.instance.id` of a static member.
    pub(crate) instance_id: Option<&'a str>,
    /// Generation of a classic member or epoch of a KIP-848 member; negative without membership.
    pub(crate) epoch: i32,
    /// Version of the request.
    pub(crate) api_version: i16,
}

impl Group {
    /// The kind's name in ListGroups, as Kafka writes it there.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Simple | Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }

    /// The protocol that it speaks, by the same name; `None` if it only has offsets.
    pub(crate) fn protocol(&self) -> Option<&'static str> {
        match self {
            Self::Simple => None,
            Self::Classic(_) | Self::Consumer(_) => Some(self.type_name()),
        }
    }

    /// The state's name in ListGroups and the describe requests.
    pub(crate) fn state_name(&self) -> &'static str {
        match self {
            Self::Simple => "Empty",
            Self::Classic(group) => group.state_name(),
            Self::Consumer(group) => group.state_name(),
        }
    }

    /// The protocol type in ListGroups.
    pub(crate) fn protocol_type(&self) -> &str {
        match self {
            Self::Simple => "",
            Self::Classic(group) => group.protocol_type().unwrap_or_default(),
            Self::Consumer(_) => "consumer",
        }
    }

    /// Whether it has no members: it may be deleted, or taken over by the other protocol.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Simple => true,
            Self::Classic(group) => group.is_empty(),
            Self::Consumer(group) => group.is_empty(),
        }
    }

    /// Whether members read this topic, so that its offsets neither expire nor may be deleted.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Self::Simple => false,
            Self::Classic(group) => group.is_subscribed_to(topic),
            Self::Consumer(group) => group.is_subscribed_to(topic),
        }
    }

    /// Time in milliseconds for which an offset committed at `committed` has been unused; `None` while the group
    /// keeps it.
    pub(crate) fn unused_ms(&self, committed: Stamp, ages: &Ages) -> Option<i64> {
        match self {
            Self::Simple => Some(ages.of(committed)),
            Self::Classic(group) => group.unused_ms(committed, ages),
            Self::Consumer(group) => Some(group.unused_ms(committed, ages)),
        }
    }

    /// The record of a group without members, if the clock was set since it wrote down its time.
    pub(crate) fn correct_time(&mut self, group_id: &str, now: Now) -> Option<OffsetsRecord> {
        match self {
            Self::Simple => None,
            Self::Classic(group) => group.correct_time(now),
            Self::Consumer(group) => group.correct_time(group_id, now),
        }
    }

    /// Number of sets of names that [`Self::is_subscribed_to`] may examine.
    pub(crate) fn names_sets(&self) -> usize {
        match self {
            Self::Simple => 0,
            Self::Classic(_) => 1,
            Self::Consumer(group) => group.names_sets(),
        }
    }

    /// Checks whether the committer may commit to this group at all.
    pub(crate) fn validate_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        match self {
            Self::Simple if committer.epoch < 0 => Ok(()),
            Self::Simple => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Self::Classic(group) => group.validate_commit(committer),
            Self::Consumer(group) => group.validate_commit(committer),
        }
    }

    /// Checks whether the committer, which `validate_commit` has let in, may commit this partition. A KIP-848 member
    /// of an older epoch may, for partitions that have been its own since.
    pub(crate) fn validate_partition_commit(
        &self,
        committer: &Committer<'_>,
        topic: TopicId,
        partition: i32,
    ) -> Result<(), ErrorCode> {
        match self {
            Self::Simple | Self::Classic(_) => Ok(()),
            Self::Consumer(group) => group.validate_partition_commit(committer, topic, partition),
        }
    }

    /// Checks whether this member may fetch the group's offsets. Classic clients send no member id.
    pub(crate) fn validate_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        match self {
            Self::Simple | Self::Classic(_) => Ok(()),
            Self::Consumer(group) => group.validate_fetch(member_id, epoch),
        }
    }

    /// Checks whether offsets of topics without subscribers may be deleted. A classic group of another protocol type,
    /// such as Connect's, does not reveal what it reads, so none of its offsets may be deleted while it lives.
    pub(crate) fn validate_offset_delete(&self) -> Result<(), ErrorCode> {
        match self {
            Self::Classic(group) if !group.is_empty() && !group.is_of_consumers() => {
                Err(ErrorCode::NON_EMPTY_GROUP)
            }
            _ => Ok(()),
        }
    }

    /// The records that delete the group; its offsets have their own.
    pub(crate) fn tombstones(&self, group_id: &str) -> Vec<OffsetsRecord> {
        match self {
            Self::Simple => Vec::new(),
            Self::Classic(group) if !group.is_persisted() => Vec::new(),
            Self::Classic(_) => vec![records::group_metadata_tombstone(group_id)],
            Self::Consumer(group) => group.tombstones(group_id),
        }
    }

    /// Starts a new session for every member after a load, during which heartbeats could not be received.
    pub(crate) fn restart_sessions(&mut self, now: Moment, config: &GroupConfig) {
        match self {
            Self::Simple => {}
            Self::Classic(group) => group.restart_sessions(now),
            Self::Consumer(group) => group.restart_sessions(now, config),
        }
    }

    /// Memory in bytes of its members and their state, in constant time.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Simple => 0,
            Self::Classic(group) => group.memory_bytes(),
            Self::Consumer(group) => group.memory_bytes(),
        }
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        match self {
            Self::Simple => None,
            Self::Classic(group) => group.next_deadline(),
            Self::Consumer(group) => group.next_deadline(),
        }
    }
}
