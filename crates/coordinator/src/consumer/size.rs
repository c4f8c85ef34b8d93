//! A group's memory, and the check that there is enough for a heartbeat.
//!
//! Owns the estimates: the length of each text and, for each thing, the worst case of the maps that hold it. A run of
//! partitions of the target is counted with the progress that it will become, so that a member which reaches it later
//! has its room already. The exception is runs that come apart because their partitions were assigned at different
//! epochs.

use std::collections::{BTreeMap, BTreeSet};

use riverrun_types::TopicId;

use crate::TopicMetadata;
use crate::assignors::Assignment;
use crate::classic::protocols_bytes;
use crate::memory::{Room, Shortage};
use crate::pattern::PatternTopics;
use crate::runs::RunMap;

use super::member::{Progress, Subscription};
use super::{ConsumerGroup, ResolvedPattern, TopicNames};

/// Bytes of a member beside its texts: itself, its timers, its places in the group's maps.
const MEMBER_BYTES: usize = 1_024;
/// Further bytes of the first member of a group: the first node of a map has room for eleven.
const FIRST_MEMBER_BYTES: usize = 4_096;
/// Bytes of a set of topics beside their names.
const SET_BYTES: usize = 128;
/// Bytes of a name in a set, beside its text.
const NAME_BYTES: usize = 64;
/// Bytes of a pattern beside its texts.
const PATTERN_BYTES: usize = 256;
/// Bytes of a topic of one member, in a target or in its progress: its place among the topics, and the first node of
/// a map of runs.
const TOPIC_BYTES: usize = 256;
/// Bytes of a topic with held partitions, however many members hold them.
const HELD_TOPIC_BYTES: usize = 416;
/// Bytes of a run of partitions in a target.
const TARGET_RUN_BYTES: usize = 24;
/// Bytes of a run of partitions that a member holds.
const HELD_RUN_BYTES: usize = 80;
/// Bytes of a topic with a single reader, so that it is one run, in a target and in the progress that it becomes.
const UNSHARED_TOPIC_BYTES: usize = 2 * TOPIC_BYTES + TARGET_RUN_BYTES + HELD_RUN_BYTES + HELD_TOPIC_BYTES;

/// Bytes of a member beside its topics and its partitions. The names of its classic protocols are kept once more, to
/// be counted.
pub(super) fn member_bytes(id: &str, subscription: &Subscription) -> usize {
    let Subscription {
        instance_id, rack_id, client_id, client_host, server_assignor, pattern, classic, ..
    } = subscription;
    let texts = [instance_id, instance_id, rack_id, server_assignor, pattern].into_iter().flatten();
    let text_bytes: usize = texts.map(String::len).sum();
    let classic_bytes = classic.as_ref().map_or(0, |classic| 2 * protocols_bytes(&classic.protocols));
    MEMBER_BYTES + id.len() + client_id.len() + client_host.len() + text_bytes + classic_bytes
}

/// Bytes of a set of topics that members subscribe to, however many do.
pub(super) fn set_bytes(topics: &TopicNames) -> usize {
    SET_BYTES + names_bytes(topics)
}

/// Bytes of a pattern that members subscribe with, however many do.
pub(super) fn pattern_bytes(pattern: &str) -> usize {
    PATTERN_BYTES + 2 * pattern.len()
}

/// Bytes of the topics that a pattern matches.
pub(super) fn resolved_bytes(resolved: &ResolvedPattern) -> usize {
    names_bytes(&resolved.topics)
}

/// Bytes of one member's target, and of the progress that it will become.
pub(super) fn target_bytes(target: &Assignment) -> usize {
    2 * TOPIC_BYTES * target.len() + (TARGET_RUN_BYTES + HELD_RUN_BYTES) * run_count(target)
}

/// Bytes of one member's partitions.
pub(super) fn progress_bytes(progress: &Progress) -> usize {
    let held = [&progress.assigned, &progress.revoking];
    held.into_iter().map(|held| TOPIC_BYTES * held.len() + HELD_RUN_BYTES * run_count(held)).sum()
}

fn run_count<V>(by_topic: &BTreeMap<TopicId, RunMap<V>>) -> usize {
    by_topic.values().map(RunMap::run_count).sum()
}

fn names_bytes(names: &TopicNames) -> usize {
    names.iter().map(|name| NAME_BYTES + name.len()).sum()
}

impl ConsumerGroup {
    /// Memory of the group, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let first = if self.members.is_empty() { 0 } else { FIRST_MEMBER_BYTES };
        self.memory_bytes + first + HELD_TOPIC_BYTES * self.holders.topic_count()
    }

    /// Checks that there is memory for a member's new subscription, and for the assignment that follows from it.
    /// `before` is its former subscription, if it is not new.
    pub(super) fn check_memory(
        &self,
        id: &str,
        before: Option<&Subscription>,
        after: &Subscription,
        topics: &dyn TopicMetadata,
        room: Room<'_>,
    ) -> Result<(), Shortage> {
        if before == Some(after) {
            return Ok(());
        }
        let given_back = before.map_or(0, |before| self.given_back_bytes(id, before, after));
        let first = if self.members.is_empty() { FIRST_MEMBER_BYTES } else { 0 };
        let taken = first + member_bytes(id, after) + self.new_topics_bytes(after, topics);
        room.check((self.memory_bytes() + taken).saturating_sub(given_back))
    }

    /// Bytes that a member frees by a new subscription.
    fn given_back_bytes(&self, id: &str, before: &Subscription, after: &Subscription) -> usize {
        let is_last = self.topic_sets.get(&before.topics) == Some(&1) && before.topics != after.topics;
        member_bytes(id, before) + if is_last { set_bytes(&before.topics) } else { 0 }
    }

    /// Bytes of topics that no member has subscribed to in this way: their names, and the partitions that will be
    /// assigned.
    fn new_topics_bytes(&self, subscription: &Subscription, topics: &dyn TopicMetadata) -> usize {
        let mut bytes = 0;
        let mut ids = BTreeSet::new();
        if !self.topic_sets.contains_key(&subscription.topics) {
            bytes += set_bytes(&subscription.topics);
            self.add_unread(&subscription.topics, topics, &mut ids);
        }
        if let Some(pattern) = &subscription.pattern
            && !self.pattern_users.contains_key(pattern)
        {
            bytes += pattern_bytes(pattern);
            if let PatternTopics::Known(names) = topics.topics_of_pattern(pattern) {
                bytes += names_bytes(&names);
                self.add_unread(&names, topics, &mut ids);
            }
        }
        bytes + UNSHARED_TOPIC_BYTES * ids.len()
    }

    /// Adds the topics that exist and that no member reads yet.
    fn add_unread(&self, names: &TopicNames, topics: &dyn TopicMetadata, ids: &mut BTreeSet<TopicId>) {
        let known = names.iter().filter_map(|name| Some((name, topics.topic_id(name)?)));
        ids.extend(known.filter(|(name, _)| !self.is_subscribed_to(name)).map(|(_, id)| id));
    }
}
