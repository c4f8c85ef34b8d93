//! Requests about a group from outside: its description, the right to commit, its deadlines, its end.

use std::sync::Arc;

use riverrun_protocol::ErrorCode;
use riverrun_protocol::consumer_group_describe_response::{
    Assignment as DescribedAssignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use riverrun_types::{PartitionId, TopicId};

use crate::group::Committer;
use crate::lend::{cost_of_partitions, cost_of_pattern, cost_of_topics};
use crate::runs::RunMap;
use crate::shard::DUES_PER_GROUP;
use crate::step::OffsetsRecord;
use crate::time::{Ages, Moment, Now, Stamp};
use crate::{GroupConfig, TopicMetadata};

use super::ConsumerGroup;
use super::changes::{Change, Recorder};
use super::heartbeat::after;
use super::member::{Member, MemberId, MemberState, partition_count};

/// The first version of `OffsetCommit` whose generation may be a member epoch.
const COMMIT_VERSION_MIN: i16 = 9;

/// `MemberType` of a member of the classic protocol in `ConsumerGroupDescribe`.
const CLASSIC_MEMBER_TYPE: i8 = 0;
/// `MemberType` of a member of the consumer protocol.
const CONSUMER_MEMBER_TYPE: i8 = 1;

impl ConsumerGroup {
    /// The state's name in `ListGroups` and `ConsumerGroupDescribe`.
    pub(crate) fn state_name(&self) -> &'static str {
        let is_reconciled = |member: &Member| {
            member.progress.state == MemberState::Stable && member.progress.epoch == self.assignment_epoch
        };
        if self.members.is_empty() {
            "Empty"
        } else if self.group_epoch > self.assignment_epoch {
            "Assigning"
        } else if self.members.values().all(is_reconciled) {
            "Stable"
        } else {
            "Reconciling"
        }
    }

    /// Whether the next heartbeat, of any member, moves the group on: to other topics, or to another target.
    pub(crate) fn moves_on(&self, topics: &dyn TopicMetadata) -> bool {
        self.assignment_epoch < self.group_epoch
            || self.hashed_generation != Some(topics.generation())
            || self.patterns.len() < self.pattern_users.len()
    }

    /// The cost of examining one member's current and target partitions.
    pub(crate) fn cost_of_member(&self, member_id: &str) -> usize {
        let held = self.members.get(member_id).map_or(0, |member| member.progress.partition_count());
        let target = self.targets.get(member_id).map_or(0, partition_count);
        cost_of_partitions(held + target)
    }

    /// The cost of examining all members' current and target partitions, beyond their memory.
    pub(crate) fn cost_of_members(&self) -> usize {
        cost_of_partitions(self.partitions)
    }

    /// The cost of assigning the topics that the group reads now.
    pub(crate) fn cost_of_target(&self, topics: &dyn TopicMetadata) -> usize {
        let named = self.topic_sets.keys().map(|set| cost_of_topics(set.iter().map(String::as_str), topics));
        let by_pattern = self.pattern_users.keys().map(|pattern| cost_of_pattern(pattern, topics));
        named.chain(by_pattern).fold(0, usize::saturating_add)
    }

    /// Whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The group as `ConsumerGroupDescribe` shows it. Topics that were deleted meanwhile have no name and are left
    /// out.
    pub(crate) fn describe(
        &self,
        group_id: &str,
        topics: &dyn TopicMetadata,
        config: &GroupConfig,
    ) -> DescribedGroup<'static> {
        let members = self.members.iter().map(|(id, member)| self.describe_member(id, member, topics));
        DescribedGroup {
            group_id: group_id.to_owned().into(),
            group_state: self.state_name().into(),
            group_epoch: self.group_epoch,
            assignment_epoch: self.assignment_epoch,
            assignor_name: self.assignor(config).name().into(),
            members: members.collect(),
            ..DescribedGroup::default()
        }
    }

    fn describe_member(
        &self,
        id: &MemberId,
        member: &Member,
        topics: &dyn TopicMetadata,
    ) -> DescribedMember<'static> {
        let Member { subscription, progress } = member;
        let owned = |text: &Option<String>| text.clone().map(Into::into);
        let target = self.targets.get(id).into_iter().flatten();
        DescribedMember {
            member_id: id.to_string().into(),
            instance_id: owned(&subscription.instance_id),
            rack_id: owned(&subscription.rack_id),
            member_epoch: progress.epoch,
            client_id: subscription.client_id.clone().into(),
            client_host: subscription.client_host.clone().into(),
            subscribed_topic_names: subscription.topics.iter().map(|topic| topic.clone().into()).collect(),
            subscribed_topic_regex: owned(&subscription.pattern),
            assignment: describe_assignment(&progress.assigned, topics),
            target_assignment: describe_assignment(target, topics),
            member_type: if member.is_classic() { CLASSIC_MEMBER_TYPE } else { CONSUMER_MEMBER_TYPE },
        }
    }

    /// Checks whether the committer may commit to this group at all. Without membership only an empty group takes
    /// commits.
    pub(crate) fn validate_commit(&self, committer: &Committer<'_>) -> Result<(), ErrorCode> {
        if committer.epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(committer.member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if committer.api_version < COMMIT_VERSION_MIN && !member.is_classic() {
            return Err(ErrorCode::UNSUPPORTED_VERSION);
        }
        if committer.epoch > member.progress.epoch { Err(member.wrong_epoch()) } else { Ok(()) }
    }

    /// Checks whether the committer, which `validate_commit` has let in, may commit this partition. A member of an
    /// older epoch may, for partitions that have been its own since.
    pub(crate) fn validate_partition_commit(
        &self,
        committer: &Committer<'_>,
        topic: TopicId,
        partition: i32,
    ) -> Result<(), ErrorCode> {
        let Some(member) = self.members.get(committer.member_id) else { return Ok(()) };
        if committer.epoch == member.progress.epoch {
            return Ok(());
        }
        let given_at = member.progress.partition_epoch(PartitionId { topic, index: partition });
        match given_at {
            Some(given_at) if given_at <= committer.epoch => Ok(()),
            _ => Err(member.wrong_epoch()),
        }
    }

    /// Checks whether this member may fetch the group's offsets. A request without a member id may.
    pub(crate) fn validate_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        let Some(member_id) = member_id else {
            return if epoch < 0 { Ok(()) } else { Err(ErrorCode::UNKNOWN_MEMBER_ID) };
        };
        let member = self.members.get(member_id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if member.progress.epoch == epoch { Ok(()) } else { Err(member.wrong_epoch()) }
    }

    /// The records that delete the group and everything in it, the group itself last.
    pub(crate) fn tombstones(&self, group_id: &str) -> Vec<OffsetsRecord> {
        let mut recorder = Recorder::new(group_id);
        let ids = || self.members.keys().map(Arc::clone);
        ids().for_each(|id| recorder.record(&Change::Progress(id, None)));
        ids().for_each(|id| recorder.record(&Change::Target(id, None)));
        recorder.record_target_epoch_deleted();
        ids().for_each(|id| recorder.record(&Change::Member(id, None)));
        self.patterns.keys().for_each(|pattern| recorder.record(&Change::Pattern(pattern.clone(), None)));
        recorder.record(&Change::Deleted);
        recorder.into_records()
    }

    /// Starts a new session for every member, and new time for the members that must give up partitions. Classic
    /// members get that time when they are told again.
    pub(crate) fn restart_sessions(&mut self, now: Moment, config: &GroupConfig) {
        for (id, member) in &self.members {
            let timeout_ms = member.session_timeout_ms(config.consumer_session_timeout_ms);
            self.timers.set_session(id, after(now, timeout_ms));
            if member.progress.state == MemberState::UnrevokedPartitions && !member.is_classic() {
                let deadline = after(now, member.subscription.rebalance_timeout_ms);
                self.timers.set_revocation(id, Some(deadline));
            }
        }
    }

    /// The next deadline of a member.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Time in milliseconds for which an offset committed at `committed`, whose topic no member reads, has been
    /// unused: since its commit, but not before the group became empty. Kafka does not know that time for a group of
    /// this protocol.
    pub(crate) fn unused_ms(&self, committed: Stamp, ages: &Ages) -> i64 {
        let emptied = self.assigned_at.filter(|_| self.members.is_empty());
        emptied.map_or(i64::MAX, |at| ages.of(at)).min(ages.of(committed))
    }

    /// Number of sets of names that [`Self::is_subscribed_to`] may examine.
    pub(crate) fn names_sets(&self) -> usize {
        self.topic_sets.len() + self.patterns.len()
    }

    /// Removes members that were silent for their session, or did not give up partitions in time: at most as many as
    /// one step allows per group.
    pub(crate) fn expire(&mut self, group_id: &str, now: Now) -> Vec<OffsetsRecord> {
        let mut recorder = Recorder::new(group_id);
        for _ in 0..DUES_PER_GROUP {
            let Some(id) = self.timers.overdue(now.moment) else { break };
            self.fence(&[id], now, &mut recorder);
        }
        recorder.into_records()
    }
}

fn describe_assignment<'a, V: 'a>(
    assigned: impl IntoIterator<Item = (&'a TopicId, &'a RunMap<V>)>,
    topics: &dyn TopicMetadata,
) -> DescribedAssignment<'static> {
    let topic_partitions = assigned.into_iter().filter_map(|(&topic_id, partitions)| {
        let topic_name = topics.topic_name(topic_id)?.to_owned().into();
        Some(TopicPartitions { topic_id, topic_name, partitions: partitions.indexes().collect() })
    });
    DescribedAssignment { topic_partitions: topic_partitions.collect() }
}
