//! Lending: a group with a long request leaves its shard meanwhile, so that the other groups do not wait.
//!
//! Owns lending and taking back, and the cost of a request before it is served. A lent group is alone in a shard of
//! its own, which takes the same requests; its former shard keeps its entry for lists. Its records may be appended
//! among those of other groups, because none of them names another group. Guarantees that the bounds of the shard and
//! of all groups' memory include lent groups. The host asks a shard nothing about a group that is lent.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use riverrun_protocol::ConsumerGroupHeartbeatRequest;
use riverrun_protocol::list_groups_response::ListedGroup;
use riverrun_types::TopicId;

use crate::TopicMetadata;
use crate::group::{Group, GroupEntry};
use crate::memory::Charge;
use crate::pattern::PatternTopics;
use crate::shard::Shard;
use crate::time::Now;

/// Upper bound of the cost of a request in a step for which the shard's other groups wait, in bytes of a group's
/// memory that it examines or changes: about as many members or offsets as take a millisecond.
pub const STEP_COST_MAX: usize = 512 * 1024;
/// Cost of committing, deleting or fetching the offset of one partition.
const OFFSET_COST: usize = 1_024;
/// Cost of assigning one partition.
const PARTITION_COST: usize = 256;
/// Cost of assigning one topic, beside its name and its partitions.
const TOPIC_COST: usize = 256;
/// Cost of examining a partition that a member holds or will hold.
const HELD_COST: usize = 128;
/// The cost of work whose size is unknown in advance.
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

/// The lent groups, by their ids.
pub(crate) type LentGroups = BTreeMap<Arc<str>, LentEntry>;

/// A shard's entry for a lent group.
#[derive(Debug)]
pub(crate) struct LentEntry {
    /// Its entry in lists; `None` if the group does not exist yet.
    pub(crate) listed: Option<ListedGroup<'static>>,
    /// Topics that were deleted meanwhile.
    deleted: Vec<(String, TopicId)>,
}

impl Shard {
    /// Takes a group out, or keeps the place of one that will be made; `None` if it is lent already.
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
        let part = self.share.part(removed.as_ref().map_or_else(Charge::default, |(_, entry)| entry.charge));
        let mut shard = Self::with_share(config, part);
        shard.loaded_at = self.loaded_at;
        if let Some((group_id, entry)) = removed {
            if let Some(at) = entry.scheduled {
                self.timers.remove(&(at, Arc::clone(&group_id)));
                shard.timers.insert((at, Arc::clone(&group_id)));
            }
            shard.groups.insert(group_id, entry);
        }
        self.lent_groups.insert(Arc::clone(&group_id), LentEntry { listed, deleted: Vec::new() });
        Some(Lent { group_id, shard })
    }

    /// Whether the group is lent.
    pub fn is_lent(&self, group_id: &str) -> bool {
        self.lent_groups.contains_key(group_id)
    }

    /// Topics that were deleted while the group was lent: it has to drop their offsets before it is taken back.
    pub fn take_deleted(&mut self, lent: &Lent) -> Vec<(String, TopicId)> {
        self.lent_groups
            .get_mut(&lent.group_id)
            .map(|entry| std::mem::take(&mut entry.deleted))
            .unwrap_or_default()
    }

    /// Takes a lent group back, in its present state.
    pub fn take_back(&mut self, lent: Lent) {
        let Lent { group_id, shard } = lent;
        self.lent_groups.remove(&group_id);
        self.groups.extend(shard.groups);
        self.timers.extend(shard.timers);
        self.emptied.extend(shard.emptied);
        self.protocol_changes.extend(shard.protocol_changes);
        self.share.absorb(shard.share);
    }

    /// Remembers deleted topics for the lent groups whose ids are in this range.
    pub(crate) fn note_deleted(&mut self, deleted: &[(&str, TopicId)], range: (Bound<&str>, Bound<&str>)) {
        for (_, entry) in self.lent_groups.range_mut::<str, _>(range) {
            entry.deleted.extend(deleted.iter().map(|(name, id)| ((*name).to_owned(), *id)));
        }
    }

    /// Cost of a request that examines all of a group.
    pub fn cost_of_all(&self, group_id: &str) -> usize {
        let cost = |entry: &GroupEntry| match &entry.group {
            Group::Consumer(group) => entry.charge.bytes.saturating_add(group.cost_of_members()),
            Group::Simple | Group::Classic(_) => entry.charge.bytes,
        };
        self.groups.get(group_id).map_or(0, cost)
    }

    /// Cost of a request that names `partitions`.
    pub fn cost_of_offsets(partitions: usize) -> usize {
        partitions.saturating_mul(OFFSET_COST)
    }

    /// Cost of reading all of a group's offsets.
    pub fn cost_of_all_offsets(&self, group_id: &str) -> usize {
        self.groups.get(group_id).map_or(0, |entry| entry.offsets.memory_bytes())
    }

    /// Cost of a `JoinGroup` of this size. In a KIP-848 group it names topics that the server assigns.
    pub fn cost_of_join(&self, group_id: &str, frame_bytes: usize) -> usize {
        let assigned = match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) if !group.is_empty() => UNKNOWN_COST,
            _ => 0,
        };
        self.cost_of_all(group_id).saturating_add(frame_bytes).saturating_add(assigned)
    }

    /// Cost of a classic member's heartbeat: in a KIP-848 group it may move the group on.
    pub fn cost_of_sign_of_life(&self, group_id: &str, member_id: &str, topics: &dyn TopicMetadata) -> usize {
        match self.groups.get(group_id).map(|entry| &entry.group) {
            Some(Group::Consumer(group)) if !group.moves_on(topics) => group.cost_of_member(member_id),
            Some(Group::Consumer(_)) => self.cost_of_moving_on(group_id, topics),
            _ => 0,
        }
    }

    /// Cost of a `ConsumerGroupHeartbeat`.
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

    /// Cost of examining all of a group, and of assigning the topics that it reads now: these may have come, or
    /// grown, since they were assigned. A classic group becomes a KIP-848 group with its members' subscriptions.
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

    /// The next group with deadlines to handle, if that costs more than a step may. Its timer is taken out: the
    /// caller calls [`Shard::expire_lent`] once the group is lent.
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

/// Cost of examining `count` partitions that members hold or will hold.
pub(crate) fn cost_of_partitions(count: usize) -> usize {
    count.saturating_mul(HELD_COST)
}

/// Cost of assigning these topics, as far as they exist. Examining them may cost no more than a step may: each
/// further topic counts as one with one partition.
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

/// Cost of assigning the topics that a pattern matches.
pub(crate) fn cost_of_pattern(pattern: &str, topics: &dyn TopicMetadata) -> usize {
    match topics.peek_pattern(pattern) {
        PatternTopics::Known(names) => cost_of_topics(names.iter().map(String::as_str), topics),
        PatternTopics::Pending => UNKNOWN_COST,
        PatternTopics::Invalid(_) => 0,
    }
}

#[cfg(test)]
mod tests;
