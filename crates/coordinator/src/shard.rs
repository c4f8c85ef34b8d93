//! The groups of one partition of `__consumer_offsets`.
//!
//! Owns the map of groups, the bounds on their number and memory, and the timers; and it routes each request to the
//! group that it names. `classic`, `consumer`, `offsets` and `admin` decide the effect of a request.
//!
//! A shard begins empty; the host replays the partition's records into it, calls [`Shard::on_loaded`] and only then
//! passes requests to it. The host calls [`Shard::expire`] when [`Shard::next_deadline`] comes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use riverrun_protocol::{
    ErrorCode, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest,
};
use riverrun_types::limits;

use crate::GroupConfig;
use crate::GroupMemory;
use crate::classic::{ClassicGroup, Parked, StepBuilder, join_error, leave_response, sync_error};
use crate::group::{Group, GroupEntry};
use crate::lend::{LentGroups, STEP_COST_MAX};
use crate::memory::{Charge, Room, Share};
use crate::migration::{ProtocolChange, TAKEN_OVER};
use crate::offsets::{CommittedOffset, Sweep};
use crate::step::{GroupResponse, OffsetsRecord, RequestContext, Step};
use crate::time::{Moment, Now, Stamp};
use crate::topics::TopicMetadata;

/// Upper bound of a group's id in bytes. Kafka has no such bound of its own.
pub const GROUP_ID_BYTES_MAX: usize = 1_024;
/// Upper bound of a static member's instance id in bytes: Kafka's clients allow the same as for a topic's name.
const INSTANCE_ID_BYTES_MAX: usize = limits::TOPIC_NAME_BYTES_MAX;

/// Groups whose deadlines are handled in one step. With [`DUES_PER_GROUP`], and as many members as a group may have,
/// this is about a millisecond.
const GROUPS_PER_STEP: usize = 16;
/// Deadlines of one group that are handled in one step: each may have to examine all members.
pub(crate) const DUES_PER_GROUP: usize = 4;

/// From this version on a SyncGroup says which protocol it means (KIP-559).
const SYNC_PROTOCOL_VERSION: i16 = 5;

/// The groups of one partition.
///
/// Invariants:
/// - `timers` has exactly the `scheduled` of every group.
/// - No group is in both `groups` and `lent_groups`, and there are at most `groups_max` in both together.
/// - `share` is the charge of all groups.
/// - After each call, every group that does not linger has members, ids given out, offsets or a record.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: GroupConfig,
    pub(crate) groups: BTreeMap<Arc<str>, GroupEntry>,
    pub(crate) timers: BTreeSet<(Moment, Arc<str>)>,
    /// Groups that are worked on outside the shard.
    pub(crate) lent_groups: LentGroups,
    /// When the load ended; unset until then.
    pub(crate) loaded_at: Option<Now>,
    /// The sweep for expired offsets.
    pub(crate) sweep: Sweep,
    /// The memory that its groups take.
    pub(crate) share: Share,
    /// Groups whose last member has left, until the next [`Shard::take_emptied`].
    pub(crate) emptied: Vec<Arc<str>>,
    /// Groups that have changed their protocol, until the next [`Shard::take_protocol_changes`].
    pub(crate) protocol_changes: Vec<ProtocolChange>,
}

impl Shard {
    /// A shard without groups, whose groups share this memory with those of the server's other shards.
    pub fn new(config: GroupConfig, memory: Arc<GroupMemory>) -> Self {
        Self::with_share(config, Share::new(memory))
    }

    /// As [`Shard::new`], with an existing share.
    pub(crate) fn with_share(config: GroupConfig, share: Share) -> Self {
        Self {
            config,
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            lent_groups: LentGroups::new(),
            loaded_at: None,
            sweep: Sweep::default(),
            share,
            emptied: Vec::new(),
            protocol_changes: Vec::new(),
        }
    }

    /// Replaces the options, which hold for every decision from now on.
    pub fn set_config(&mut self, config: GroupConfig) {
        self.config = config;
    }

    /// Ends the load: members get a new session, and time begins to count.
    pub fn on_loaded(&mut self, now: Now) -> Step {
        self.loaded_at = Some(now);
        self.sweep = Sweep::ended(now);
        let mut builder = StepBuilder::new(now, &self.config);
        for (group_id, entry) in &mut self.groups {
            entry.group.restart_sessions(now.moment, &self.config.of_group(group_id));
            if let Group::Classic(group) = &mut entry.group {
                group.rebalance_after_load(&mut builder);
            }
        }
        let step = builder.step;
        for group_id in self.group_ids() {
            self.finish(&group_id);
        }
        step
    }

    /// When [`Shard::expire`] has something to do; `None` if nothing is due at any time.
    pub fn next_deadline(&self) -> Option<Moment> {
        let sweep = self.next_sweep().filter(|_| !self.groups.is_empty());
        self.timers.first().map(|(at, _)| *at).into_iter().chain(sweep).min()
    }

    /// When the next sweep for expired offsets begins.
    fn next_sweep(&self) -> Option<Moment> {
        self.loaded_at?;
        Some(self.sweep.is_due_at(self.config.offsets_retention_check_interval_ms.max(1)))
    }

    /// Handles everything that is due by now: sessions, rebalances, expired offsets. Work beyond one slice stays due,
    /// so that requests of the shard's groups are served in between. Work that would take long by itself stays due,
    /// too: the host asks for it by [`Shard::due_at_length`] first.
    pub fn expire(&mut self, now: Now, topics: &dyn TopicMetadata) -> Step {
        let mut step = Step::default();
        let mut groups = 0..GROUPS_PER_STEP;
        while let Some((at, group_id)) = self.timers.first()
            && *at <= now.moment
            && self.cost_of_all(group_id) <= STEP_COST_MAX
            && groups.next().is_some()
            && let Some((_, group_id)) = self.timers.pop_first()
        {
            step.append(self.expire_group(now, &group_id, topics));
        }
        if self.next_sweep().is_some_and(|at| at <= now.moment) {
            step.append(self.sweep(now));
        }
        step
    }

    /// Handles the deadlines of a group that was lent because of them.
    pub fn expire_lent(&mut self, now: Now, group_id: &Arc<str>, topics: &dyn TopicMetadata) -> Step {
        let mut step = Step::default();
        for _ in 0..GROUPS_PER_STEP {
            self.wake_by(group_id, None);
            step.append(self.expire_group(now, group_id, topics));
            if self.timers.first().is_none_or(|(at, _)| *at > now.moment) {
                break;
            }
        }
        step
    }

    /// Handles the deadlines of one group, whose timer was taken out.
    fn expire_group(&mut self, now: Now, group_id: &Arc<str>, topics: &dyn TopicMetadata) -> Step {
        let Some(entry) = self.groups.get_mut(group_id) else { return Step::default() };
        entry.scheduled = None;
        let mut builder = StepBuilder::new(now, &self.config);
        match &mut entry.group {
            Group::Simple => {}
            Group::Classic(group) => group.expire(&mut builder),
            Group::Consumer(group) => builder.step.records = group.expire(group_id, now),
        }
        let mut step = builder.step;
        if !step.records.is_empty() {
            self.maybe_downgrade(now, group_id, topics, &mut step);
        }
        self.finish(group_id);
        step
    }

    /// Handles a JoinGroup. The reply comes with a later step if the group has to wait for other members.
    pub fn join_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &JoinGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let group_id = &*request.group_id;
        let checked = self.check_join(request);
        if checked.is_ok() && self.is_live_consumer_group(group_id) {
            return self.join_consumer_group(context, request, topics);
        }
        let before = self.protocol_of(group_id);
        let tombstones = match checked.and_then(|()| self.open_classic(context.now, request)) {
            Ok(tombstones) => tombstones,
            Err(error) => {
                let reply = join_error(Parked::of(context), &request.member_id, error);
                return Step::reply(context.token, reply);
            }
        };
        let Some(entry) = self.groups.get_mut(group_id) else { return Step::default() };
        let mut builder = StepBuilder::new(context.now, &self.config).within(entry.room(&self.share));
        builder.step.records = tombstones;
        if let Group::Classic(group) = &mut entry.group {
            group.join(&mut builder, context, request);
        }
        let step = builder.step;
        self.note_protocol(group_id, before, TAKEN_OVER);
        self.finish(group_id);
        step
    }

    /// Checks the fields of a JoinGroup that do not depend on the group.
    fn check_join(&self, request: &JoinGroupRequest<'_>) -> Result<(), ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let session_range = self.config.min_session_timeout_ms..=self.config.max_session_timeout_ms;
        if !session_range.contains(&request.session_timeout_ms) {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        if request.group_instance_id.as_ref().is_some_and(|id| id.len() > INSTANCE_ID_BYTES_MAX) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        Ok(())
    }

    /// Makes sure that the group of a JoinGroup, which is not a live KIP-848 group, is a classic one, and returns the
    /// tombstones of its former kind. A new group is only made for a member without an id, and an empty KIP-848 group
    /// is only taken over by one.
    fn open_classic(
        &mut self,
        now: Now,
        request: &JoinGroupRequest<'_>,
    ) -> Result<Vec<OffsetsRecord>, ErrorCode> {
        let group_id = &*request.group_id;
        match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Classic(_)) => return Ok(Vec::new()),
            _ if !request.member_id.is_empty() => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            _ if request.protocol_type.is_empty() || request.protocols.is_empty() => {
                return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
            }
            _ => {}
        }
        let group = ClassicGroup::new(group_id.into(), Some(Stamp::now(now)));
        self.replace(group_id, Group::Classic(Box::new(group)))
    }

    /// Makes the group of a KIP-848 member, or takes an empty classic one over; returns the tombstones of its former
    /// kind.
    pub(crate) fn open_consumer(&mut self, group_id: &str) -> Result<Vec<OffsetsRecord>, ErrorCode> {
        if matches!(self.groups.get(group_id).map(|entry| &entry.group), Some(Group::Consumer(_))) {
            return Ok(Vec::new());
        }
        self.replace(group_id, Group::Consumer(Box::default()))
    }

    /// Puts an empty group in place of another empty one, and keeps its offsets. Ids that a classic group had given
    /// out are forgotten: a client that comes back with one is told that it is unknown.
    fn replace(&mut self, group_id: &str, group: Group) -> Result<Vec<OffsetsRecord>, ErrorCode> {
        let Some(entry) = self.groups.get_mut(group_id) else {
            return self.create(group_id, GroupEntry::new(group)).map(|()| Vec::new());
        };
        let tombstones = entry.group.tombstones(group_id);
        entry.group = group;
        Ok(tombstones)
    }

    /// Handles a SyncGroup. The reply comes with a later step while the leader's assignment is awaited.
    pub fn sync_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &SyncGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let group_id = &*request.group_id;
        let refused = |error| Step::reply(context.token, sync_error(error));
        let is_named = request.protocol_type.is_some() && request.protocol_name.is_some();
        if context.api_version >= SYNC_PROTOCOL_VERSION && !is_named {
            return refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        if group_id.is_empty() {
            return refused(ErrorCode::INVALID_GROUP_ID);
        }
        if self.is_live_consumer_group(group_id) {
            return self.sync_consumer_group(context, request, topics);
        }
        let Some(entry) = self.groups.get_mut(group_id) else { return refused(ErrorCode::UNKNOWN_MEMBER_ID) };
        let room = entry.room(&self.share);
        let Group::Classic(group) = &mut entry.group else { return refused(ErrorCode::UNKNOWN_MEMBER_ID) };
        let mut builder = StepBuilder::new(context.now, &self.config).within(room);
        group.sync(&mut builder, context, request);
        let step = builder.step;
        self.finish(group_id);
        step
    }

    /// Handles a Heartbeat of a classic member. It writes records only in a KIP-848 group, and only if `may_record`.
    pub fn heartbeat(
        &mut self,
        context: &RequestContext<'_>,
        request: &HeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
        may_record: bool,
    ) -> Step {
        let (error, records) = match self.groups.get_mut(&*request.group_id) {
            _ if request.group_id.is_empty() => (ErrorCode::INVALID_GROUP_ID, Vec::new()),
            Some(GroupEntry { group: Group::Classic(group), .. }) => {
                (group.heartbeat(&StepBuilder::new(context.now, &self.config), request), Vec::new())
            }
            _ => self.heartbeat_consumer_group(context, request, topics, may_record),
        };
        self.wake_for(&request.group_id, &request.member_id);
        let response = HeartbeatResponse { error_code: error.0, ..HeartbeatResponse::default() };
        Step { records, ..Step::reply(context.token, GroupResponse::Heartbeat(response)) }
    }

    /// Makes sure that the shard's timer fires for the end of this member's session. A sign of life changes nothing
    /// else, and comes so often that the other members are not examined.
    pub(crate) fn wake_for(&mut self, group_id: &str, member_id: &str) {
        if let Some(GroupEntry { group: Group::Classic(group), .. }) = self.groups.get(group_id)
            && let Some(at) = group.session_end(member_id)
        {
            self.wake_by(group_id, Some(at));
        }
    }

    /// Handles a LeaveGroup: by members themselves, or by an admin for static members.
    pub fn leave_group(
        &mut self,
        context: &RequestContext<'_>,
        request: &LeaveGroupRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> Step {
        let group_id = &*request.group_id;
        let mut builder = StepBuilder::new(context.now, &self.config);
        let (response, mut step) = match self.groups.get_mut(group_id) {
            _ if group_id.is_empty() => {
                let error_code = ErrorCode::INVALID_GROUP_ID.0;
                (LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() }, builder.step)
            }
            Some(GroupEntry { group: Group::Classic(group), .. }) => {
                (group.leave(&mut builder, request, context.api_version), builder.step)
            }
            Some(GroupEntry { group: Group::Consumer(_), .. }) => {
                self.leave_consumer_group(context, request, topics)
            }
            _ => {
                let unknown = ErrorCode::UNKNOWN_MEMBER_ID;
                (leave_response(request, context.api_version, |_| unknown), builder.step)
            }
        };
        step.push_reply(context.token, GroupResponse::LeaveGroup(response));
        self.finish(group_id);
        step
    }

    /// Every committed offset: group, topic, partition, offset. For metrics and lag.
    pub fn committed_offsets(&self) -> impl Iterator<Item = (&str, &str, i32, &CommittedOffset)> {
        self.groups.iter().flat_map(|(group_id, entry)| {
            entry
                .offsets
                .iter()
                .map(move |(topic, partition, offset)| (&**group_id, topic, partition, offset))
        })
    }

    /// Does some work for a source: growth of groups meanwhile is charged to it.
    pub fn on_behalf_of<T>(&mut self, source: IpAddr, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.share.set_asker(Some(source));
        let done = work(self);
        self.share.set_asker(before);
        done
    }

    /// Number of groups.
    pub fn group_count(&self) -> usize {
        self.groups.len() + self.lent_groups.values().filter(|entry| entry.listed.is_some()).count()
    }

    /// The groups whose last member has left since the last call.
    pub fn take_emptied(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.emptied)
    }

    /// Adds a group if there is room for one more, or if it replaces a group without a member that has joined.
    pub(crate) fn create(&mut self, group_id: &str, entry: GroupEntry) -> Result<(), ErrorCode> {
        if group_id.len() > GROUP_ID_BYTES_MAX {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let size_bytes = GroupEntry::empty_bytes(group_id);
        let room = Room::new(&self.share, Charge::default(), 0);
        room.check(size_bytes).map_err(|shortage| shortage.code(ErrorCode::GROUP_MAX_SIZE_REACHED))?;
        self.make_room()?;
        self.groups.insert(group_id.into(), entry);
        Ok(())
    }

    /// Makes room for one more group.
    pub(crate) fn make_room(&mut self) -> Result<(), ErrorCode> {
        if self.groups.len() + self.lent_groups.len() >= self.config.groups_max {
            let unjoined =
                self.timers.iter().map(|(_, group_id)| group_id).find(|id| self.is_unjoined(id)).cloned();
            self.forget(&unjoined.ok_or(ErrorCode::GROUP_MAX_SIZE_REACHED)?);
        }
        Ok(())
    }

    /// Whether the group has only ids that were given out, and no record in the log.
    fn is_unjoined(&self, group_id: &str) -> bool {
        self.groups.get(group_id).is_some_and(|entry| {
            let is_unjoined =
                matches!(&entry.group, Group::Classic(group) if group.is_empty() && !group.is_persisted());
            is_unjoined && entry.offsets.is_empty()
        })
    }

    /// Every group's id.
    pub(crate) fn group_ids(&self) -> Vec<Arc<str>> {
        self.groups.keys().cloned().collect()
    }

    /// To be called when a step may have moved a group's deadlines closer, emptied it or changed its memory: removes
    /// a group of which nothing is left, and makes sure that the shard's timer fires in time.
    pub(crate) fn finish(&mut self, group_id: &str) {
        let Some(entry) = self.groups.get_mut(group_id) else { return };
        if matches!(&entry.group, Group::Classic(group) if group.is_vanishing()) {
            entry.group = Group::Simple;
        }
        let has_members = !entry.group.is_empty();
        if std::mem::replace(&mut entry.had_members, has_members) && !has_members {
            self.emptied.push(group_id.into());
        }
        entry.lingers &= entry.offsets.is_empty() && matches!(entry.group, Group::Simple);
        if matches!(entry.group, Group::Simple) && entry.offsets.is_empty() && !entry.lingers {
            return self.forget(group_id);
        }
        let deadline = entry.group.next_deadline();
        self.charge(group_id);
        self.wake_by(group_id, deadline);
    }

    /// Updates the memory that is charged to the group.
    pub(crate) fn charge(&mut self, group_id: &str) {
        if let Some(entry) = self.groups.get_mut(group_id) {
            let bytes = entry.memory_bytes(group_id);
            self.share.change(&mut entry.charge, bytes);
        }
    }

    /// Removes a group and its timer.
    pub(crate) fn forget(&mut self, group_id: &str) {
        let Some((group_id, mut entry)) = self.groups.remove_entry(group_id) else { return };
        self.share.change(&mut entry.charge, 0);
        if let Some(at) = entry.scheduled {
            self.timers.remove(&(at, group_id));
        }
    }

    /// Makes sure that the group's deadlines are handled by `deadline`. An earlier timer stays: it is cheaper to let
    /// it fire once in vain than to move it with each heartbeat.
    pub(crate) fn wake_by(&mut self, group_id: &str, deadline: Option<Moment>) {
        let Some((group_id, entry)) = self.groups.get_key_value(group_id) else { return };
        let (group_id, scheduled) = (group_id.clone(), entry.scheduled);
        let keep = match (scheduled, deadline) {
            (Some(scheduled), Some(deadline)) => scheduled <= deadline,
            (scheduled, deadline) => scheduled == deadline,
        };
        if keep {
            return;
        }
        if let Some(at) = scheduled {
            self.timers.remove(&(at, group_id.clone()));
        }
        if let Some(entry) = self.groups.get_mut(&group_id) {
            entry.scheduled = deadline;
        }
        if let Some(at) = deadline {
            self.timers.insert((at, group_id));
        }
    }
}

#[cfg(test)]
mod tests;
