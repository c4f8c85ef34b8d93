//! Lending: a group that is worked on for long leaves its shard meanwhile, so that the others wait for nobody.
//!
//! Owns the way out and back, and what a request costs before it is worked on. A lent group is alone in a shard of its own,
//! which takes the same requests; what is left of it is how it is listed. Its records may be appended among those of other
//! groups: none of them names another group. Guarantees that the bounds of the shard and of all groups' memory hold with what
//! is lent. The shell asks nothing of a shard about a group that is lent.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use riverrun_protocol::ConsumerGroupHeartbeatRequest;
use riverrun_protocol::list_groups_response::ListedGroup;
use riverrun_types::TopicId;

use crate::TopicMetadata;
use crate::group::{Group, GroupEntry};
use crate::memory::Held;
use crate::pattern::PatternTopics;
use crate::shard::Shard;
use crate::time::Now;

/// What a request may cost in a step for which the shard's other groups wait, in bytes of a group's memory that it looks at or
/// changes: about as many members or offsets as take a millisecond.
pub const STEP_COST_MAX: usize = 512 * 1024;
/// What it costs to commit, delete or fetch the offset of one partition.
const OFFSET_COST: usize = 1_024;
/// What it costs to assign one partition.
const PARTITION_COST: usize = 256;
/// What a topic costs that is assigned, beside its name and its partitions.
const TOPIC_COST: usize = 256;
/// What it costs to look at a partition that a member holds or shall hold.
const HELD_COST: usize = 128;
/// The cost of what may be much, and is not known before it is done.
pub(crate) const UNKNOWN_COST: usize = STEP_COST_MAX + 1;

/// A group that was taken out of its shard, alone in a shard of its own.
#[derive(Debug)]
pub struct Lent {
    group_id: Arc<str>,
    shard: Shard,
}

impl Lent {
    /// Its id.
    pub fn group_id(&self) -> &Arc<str> {
        &self.group_id
    }

    /// The shard that has this group only.
    pub fn shard(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

/// The groups that are out, by their ids.
pub(crate) type AwayGroups = BTreeMap<Arc<str>, Away>;

/// What a shard keeps of a group that is lent.
#[derive(Debug)]
pub(crate) struct Away {
    /// How it is listed; none if there is no group of this id yet.
    pub(crate) listed: Option<ListedGroup<'static>>,
    /// Topics that were deleted meanwhile.
    deleted: Vec<(String, TopicId)>,
}

impl Shard {
    /// Takes a group out, or keeps the place of one that is to be made; none if it is out already.
    pub fn lend(&mut self, group_id: &str) -> Option<Lent> {
        if self.is_lent(group_id) {
            return None;
        }
        let mut config = self.config.clone();
        let is_there = self.groups.contains_key(group_id);
        // The place of a new group is taken from now on.
        config.groups_max = usize::from(is_there || self.make_room().is_ok());
        let listed = self.groups.get(group_id).map(|entry| entry.listed(group_id));
        let removed = self.groups.remove_entry(group_id);
        let group_id = removed.as_ref().map_or_else(|| group_id.into(), |(group_id, _)| Arc::clone(group_id));
        let part = self.share.part(removed.as_ref().map_or_else(Held::default, |(_, entry)| entry.held));
        let mut shard = Self::with_share(config, part);
        shard.loaded_at = self.loaded_at;
        if let Some((group_id, entry)) = removed {
            if let Some(at) = entry.scheduled {
                self.timers.remove(&(at, Arc::clone(&group_id)));
                shard.timers.insert((at, Arc::clone(&group_id)));
            }
            shard.groups.insert(group_id, entry);
        }
        self.away.insert(Arc::clone(&group_id), Away { listed, deleted: Vec::new() });
        Some(Lent { group_id, shard })
    }

    /// Whether the group is out.
    pub fn is_lent(&self, group_id: &str) -> bool {
        self.away.contains_key(group_id)
    }

    /// Topics that were deleted while the group was out: it has to drop their offsets before it is taken back.
    pub fn take_deleted(&mut self, lent: &Lent) -> Vec<(String, TopicId)> {
        self.away.get_mut(&lent.group_id).map(|away| std::mem::take(&mut away.deleted)).unwrap_or_default()
    }

    /// Takes back what has become of a group.
    pub fn take_back(&mut self, lent: Lent) {
        let Lent { group_id, shard } = lent;
        self.away.remove(&group_id);
        self.groups.extend(shard.groups);
        self.timers.extend(shard.timers);
        self.emptied.extend(shard.emptied);
        self.protocol_changes.extend(shard.protocol_changes);
        self.share.absorb(shard.share);
    }

    /// Remembers topics that were deleted for the groups that are out, as far as their ids are in this range.
    pub(crate) fn note_deleted(&mut self, deleted: &[(&str, TopicId)], range: (Bound<&str>, Bound<&str>)) {
        for (_, away) in self.away.range_mut::<str, _>(range) {
            away.deleted.extend(deleted.iter().map(|(name, id)| ((*name).to_owned(), *id)));
        }
    }

    /// What a request costs that looks at all of a group.
    pub fn cost_of_all(&self, group_id: &str) -> usize {
        let cost = |entry: &GroupEntry| match &entry.group {
            Group::Consumer(group) => entry.held.bytes.saturating_add(group.cost_of_members()),
            Group::Simple | Group::Classic(_) => entry.held.bytes,
        };
        self.groups.get(group_id).map_or(0, cost)
    }

    /// What a request costs that names so many partitions.
    pub fn cost_of_offsets(partitions: usize) -> usize {
        partitions.saturating_mul(OFFSET_COST)
    }

    /// What it costs to read all of a group's offsets.
    pub fn cost_of_all_offsets(&self, group_id: &str) -> usize {
        self.groups.get(group_id).map_or(0, |entry| entry.offsets.memory_bytes())
    }

    /// What a `JoinGroup` of this size costs. One that comes into a KIP-848 group names topics that the server assigns.
    pub fn cost_of_join(&self, group_id: &str, frame_bytes: usize) -> usize {
        let assigned = match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) if !group.is_empty() => UNKNOWN_COST,
            _ => 0,
        };
        self.cost_of_all(group_id).saturating_add(frame_bytes).saturating_add(assigned)
    }

    /// What the heartbeat of a classic member costs: in a KIP-848 group it may move the group on.
    pub fn cost_of_sign_of_life(&self, group_id: &str, member_id: &str, topics: &dyn TopicMetadata) -> usize {
        match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) if !group.moves_on(topics) => group.cost_of_member(member_id),
            Some(Group::Consumer(_)) => self.cost_of_moving_on(group_id, topics),
            _ => 0,
        }
    }

    /// What a `ConsumerGroupHeartbeat` costs.
    pub fn cost_of_heartbeat(
        &self,
        request: &ConsumerGroupHeartbeatRequest<'_>,
        topics: &dyn TopicMetadata,
    ) -> usize {
        let says_more = request.member_epoch <= 0
            || request.subscribed_topic_names.is_some()
            || request.subscribed_topic_regex.is_some()
            || request.server_assignor.is_some();
        if !says_more {
            return self.cost_of_sign_of_life(&request.group_id, &request.member_id, topics);
        }
        let names = request.subscribed_topic_names.as_deref().unwrap_or_default();
        let by_name = cost_of_topics(names.iter().map(|name| &**name), topics);
        let pattern = request.subscribed_topic_regex.as_deref().filter(|pattern| !pattern.is_empty());
        let by_pattern = pattern.map_or(0, |pattern| cost_of_pattern(pattern, topics));
        self.cost_of_moving_on(&request.group_id, topics).saturating_add(by_name).saturating_add(by_pattern)
    }

    /// What it costs to look at all of a group, and to assign what it reads now: its topics may have come, or grown, since
    /// they were assigned. A classic group becomes another one with what its members read.
    fn cost_of_moving_on(&self, group_id: &str, topics: &dyn TopicMetadata) -> usize {
        let Some(entry) = self.groups.get(group_id) else { return 0 };
        let assigned = match &entry.group {
            Group::Simple => 0,
            Group::Classic(group) if group.is_empty() => 0,
            Group::Classic(_) => UNKNOWN_COST,
            Group::Consumer(group) => group.cost_of_target(topics),
        };
        self.cost_of_all(group_id).saturating_add(assigned)
    }

    /// The next group on whose deadlines is to be acted, if that costs more than a step may. Its timer is taken out: whoever
    /// asks calls [`Shard::expire_lent`] once the group is lent.
    pub fn due_at_length(&mut self, now: Now) -> Option<Arc<str>> {
        let (at, group_id) = self.timers.first()?;
        if *at > now.moment || self.cost_of_all(group_id) <= STEP_COST_MAX {
            return None;
        }
        let (_, group_id) = self.timers.pop_first()?;
        if let Some(entry) = self.groups.get_mut(&group_id) {
            entry.scheduled = None;
        }
        Some(group_id)
    }
}

/// What it costs to look at so many partitions that members hold or shall hold.
pub(crate) fn cost_of_partitions(count: usize) -> usize {
    count.saturating_mul(HELD_COST)
}

/// What it costs to assign these topics, as far as they exist. Looking at them is to cost no more than a step may: of those
/// beyond, each is taken for one with one partition.
pub(crate) fn cost_of_topics<'n>(
    names: impl ExactSizeIterator<Item = &'n str>,
    topics: &dyn TopicMetadata,
) -> usize {
    let mut cost = 0_usize;
    let mut names = names;
    while cost <= STEP_COST_MAX {
        let Some(name) = names.next() else { return cost };
        let count = topics.topic_id(name).and_then(|id| usize::try_from(topics.partition_count(id)?).ok());
        let of_topic = |count: usize| TOPIC_COST + name.len() + count.saturating_mul(PARTITION_COST);
        cost = cost.saturating_add(count.map_or(0, of_topic));
    }
    cost.saturating_add(names.len().saturating_mul(TOPIC_COST + PARTITION_COST))
}

/// What it costs to assign what a pattern names.
pub(crate) fn cost_of_pattern(pattern: &str, topics: &dyn TopicMetadata) -> usize {
    match topics.peek_pattern(pattern) {
        PatternTopics::Known(names) => cost_of_topics(names.iter().map(String::as_str), topics),
        PatternTopics::Pending => UNKNOWN_COST,
        PatternTopics::Invalid(_) => 0,
    }
}

#[cfg(test)]
mod tests;
