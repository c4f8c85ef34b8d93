//! The topics that a group reads, by name and by pattern; the hash that shows when they changed; and the target made
//! from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use riverrun_types::TopicId;

use crate::GroupConfig;
use crate::TopicMetadata;
use crate::assignors::{self, Assignment, Assignor, PartitionCounts};
use crate::lend::{STEP_COST_MAX, cost_of_pattern, cost_of_topics};
use crate::pattern::PatternTopics;
use crate::time::Now;

use super::changes::{Change, Recorder, pattern_bytes_max, target_bytes_max};
use super::heartbeat::Given;
use super::member::{MemberId, Subscription};
use super::request::Refusal;
use super::{ConsumerGroup, HASH_UNKNOWN, ResolvedPattern, TopicNames, size};

/// Minimum time between two resolutions of the patterns, as in Kafka: each time, every topic is matched against every
/// pattern.
const PATTERN_REFRESH_MS_MIN: i64 = 10_000;

impl ConsumerGroup {
    /// Whether a member reads this topic.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.topic_sets.keys().any(|topics| topics.contains(topic))
            || self.patterns.values().any(|resolved| resolved.topics.contains(topic))
    }

    /// The ids of the topics that a member reads, as far as they exist.
    pub(super) fn subscribed_ids(
        &self,
        subscription: &Subscription,
        topics: &dyn TopicMetadata,
    ) -> BTreeSet<TopicId> {
        let resolved = subscription.pattern.as_ref().and_then(|pattern| self.patterns.get(pattern));
        let by_pattern = resolved.into_iter().flat_map(|resolved| &resolved.topics);
        subscription.topics.iter().chain(by_pattern).filter_map(|name| topics.topic_id(name)).collect()
    }

    /// Resolves the new patterns, or all if topics have changed since; returns whether that changed the topics of any
    /// pattern. A pattern that is still being resolved is tried again with the next heartbeat; one that there is no
    /// memory for, or whose topics are more than a record holds, later.
    pub(super) fn refresh_patterns(&mut self, given: Given<'_>, recorder: &mut Recorder<'_>) -> bool {
        let Given { now, topics, config, room } = given;
        let all = self.patterns_resolved.is_none_or(|(generation, at)| {
            generation != topics.generation() && now.moment.since(at) >= PATTERN_REFRESH_MS_MIN
        });
        let due = self.pattern_users.keys().filter(|&pattern| all || !self.patterns.contains_key(pattern));
        let due: Vec<String> = due.cloned().collect();
        if due.is_empty() {
            return false;
        }
        let (mut has_changed, mut has_room, mut is_known) = (false, true, true);
        for pattern in due {
            let names = match topics.topics_of_pattern(&pattern) {
                PatternTopics::Known(names) => names,
                // It was valid once. If it is not any more, or takes too long by now, it keeps its former topics.
                PatternTopics::Invalid(_) => continue,
                PatternTopics::Pending => {
                    is_known = false;
                    continue;
                }
            };
            if self.patterns.get(&pattern).is_some_and(|resolved| resolved.topics == *names) {
                continue;
            }
            let version = topics.generation().cast_signed();
            let topics = TopicNames::clone(&names);
            let resolved = ResolvedPattern { topics, version, resolved_at_ms: now.wall.0 };
            let before_bytes = self.patterns.get(&pattern).map_or(0, size::resolved_bytes);
            let after_bytes = self.memory_bytes() + size::resolved_bytes(&resolved) - before_bytes;
            let is_too_large = pattern_bytes_max(&resolved.topics) > config.group_metadata_max_bytes;
            if is_too_large || room.check(after_bytes).is_err() {
                has_room = false;
                continue;
            }
            self.commit(Change::Pattern(pattern, Some(resolved)), recorder);
            has_changed = true;
        }
        if all && is_known {
            let unfinished = || topics.generation().wrapping_sub(1);
            let generation = if has_room { topics.generation() } else { unfinished() };
            self.patterns_resolved = Some((generation, now.moment));
        }
        has_changed
    }

    /// Moves to the next group epoch if members changed their subscriptions, or their topics changed.
    pub(super) fn refresh_epoch(
        &mut self,
        subscription_changed: bool,
        topics: &dyn TopicMetadata,
        recorder: &mut Recorder<'_>,
    ) {
        let must_move = subscription_changed || self.group_epoch == 0;
        let is_known = self.metadata_hash != HASH_UNKNOWN;
        if !must_move && is_known && self.hashed_generation == Some(topics.generation()) {
            return;
        }
        let metadata_hash = self.hash_topics(topics);
        let has_changed = metadata_hash != self.metadata_hash;
        self.hashed_generation = Some(topics.generation());
        if must_move || has_changed {
            let epoch = self.group_epoch + i32::from(must_move || is_known);
            self.commit(Change::Epoch { epoch, metadata_hash }, recorder);
        }
    }

    /// Hash of the existing topics that the group reads: name, id and partition count of each, in order of the names.
    /// Never [`HASH_UNKNOWN`]. Kafka hashes alike, but its value is never compared with this one.
    fn hash_topics(&self, topics: &dyn TopicMetadata) -> i64 {
        let by_name = self.topic_sets.keys().flat_map(|topics| topics.iter());
        let by_pattern = self.patterns.values().flat_map(|resolved| &resolved.topics);
        let names: BTreeSet<&String> = by_name.chain(by_pattern).collect();
        let mut hash = Fnv::default();
        for name in names {
            if let Some(id) = topics.topic_id(name) {
                hash.write(&name.len().to_le_bytes());
                hash.write(name.as_bytes());
                hash.write(&id.0);
                hash.write(&topics.partition_count(id).unwrap_or_default().to_le_bytes());
            }
        }
        match hash.0.cast_signed() {
            HASH_UNKNOWN => 1,
            hash => hash,
        }
    }

    /// Makes a new target if the group has moved on, unless the last one is too young: members that come together are
    /// then served together (KIP-1263). A target that there is no memory for is put off for as long. So is one of which
    /// a member's part is more than a record holds, which is the error.
    pub(super) fn refresh_target(
        &mut self,
        given: Given<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Refusal> {
        let Given { now, topics, config, room } = given;
        if self.assignment_epoch >= self.group_epoch || self.is_target_young(now, config) {
            return Ok(());
        }
        let mut changed = self.make_target(topics, config);
        changed.retain(|(id, target)| self.targets.get(id) != Some(target));
        let is_too_large = |target: &Assignment| target_bytes_max(target) > config.group_metadata_max_bytes;
        let too_large = changed.iter().find(|(_, target)| is_too_large(target));
        if too_large.is_some() || room.check(self.bytes_with_targets(&changed)).is_err() {
            self.target_put_off_at = Some(now.moment);
            return too_large.map_or(Ok(()), |(id, _)| Err(Refusal::too_large(id)));
        }
        self.target_put_off_at = None;
        for (id, target) in changed {
            self.commit(Change::Target(id, Some(target)), recorder);
        }
        self.record_target(self.group_epoch, now, recorder);
        Ok(())
    }

    /// Whether [`Self::refresh_target`] may fail once the member has this subscription: not where what all members read
    /// costs little, because a topic and a partition cost more than they take in a record.
    pub(super) fn may_outgrow_record(
        &self,
        before: &Subscription,
        after: &Subscription,
        given: Given<'_>,
    ) -> bool {
        let Given { now, topics, config, .. } = given;
        let is_moving = after != before || self.moves_on(topics);
        if !is_moving || self.is_target_young(now, config) {
            return false;
        }
        let named = cost_of_topics(after.topics.iter().map(String::as_str), topics);
        let by_pattern = after.pattern.as_deref().map_or(0, |pattern| cost_of_pattern(pattern, topics));
        let cost = self.cost_of_target(topics).saturating_add(named).saturating_add(by_pattern);
        cost > STEP_COST_MAX.min(config.group_metadata_max_bytes)
    }

    /// Whether the last target was made, or put off, so recently that the next one waits. The target of an empty
    /// group was given to no member, so the first member that comes then does not wait.
    fn is_target_young(&self, now: Now, config: &GroupConfig) -> bool {
        let interval_ms = i64::from(config.consumer_assignment_interval_ms);
        let is_young = |age_ms: i64| age_ms < interval_ms;
        let made = self.assigned_at.filter(|_| !self.targets.is_empty());
        made.and_then(|at| at.passed_since_ms(now)).is_some_and(is_young)
            || self.target_put_off_at.is_some_and(|at| is_young(now.moment.since(at)))
    }

    /// Memory of the group in bytes once these members' targets are replaced.
    fn bytes_with_targets(&self, changed: &[(MemberId, Assignment)]) -> usize {
        let before = changed.iter().filter_map(|(id, _)| self.targets.get(id)).map(size::target_bytes);
        let after = changed.iter().map(|(_, target)| size::target_bytes(target));
        self.memory_bytes() + after.sum::<usize>() - before.sum::<usize>()
    }

    fn make_target(&self, topics: &dyn TopicMetadata, config: &GroupConfig) -> Vec<(MemberId, Assignment)> {
        let mut sets: Vec<BTreeSet<TopicId>> = Vec::new();
        let mut known: HashMap<(*const TopicNames, Option<&str>), usize> = HashMap::new();
        let mut set_of_member = Vec::with_capacity(self.members.len());
        for member in self.members.values() {
            let subscription = &member.subscription;
            // Equal sets of names are one set, so their address identifies them.
            let key = (Arc::as_ptr(&subscription.topics), subscription.pattern.as_deref());
            set_of_member.push(*known.entry(key).or_insert_with(|| {
                sets.push(self.subscribed_ids(subscription, topics));
                sets.len() - 1
            }));
        }
        let nothing = Assignment::new();
        let members: Vec<assignors::Member<'_>> = (self.members.iter().zip(&set_of_member))
            .map(|((id, member), &set)| assignors::Member {
                id,
                instance_id: member.subscription.instance_id.as_deref(),
                subscribed: &sets[set],
                current: self.targets.get(id).unwrap_or(&nothing),
            })
            .collect();
        let shares = self.assignor(config).assign(&members, &partition_counts(&sets, topics));
        self.members.keys().cloned().zip(shares).collect()
    }

    /// The assignor that most members ask for; among equals, and if no member asks for one, the one configured first.
    pub(super) fn assignor(&self, config: &GroupConfig) -> Assignor {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.members.values().filter_map(|member| member.subscription.server_assignor.as_deref())
        {
            *votes.entry(name).or_default() += 1;
        }
        let known = config.consumer_assignors.iter().rev();
        let known =
            known.filter_map(|name| Some((votes.get(name.as_str()).copied(), Assignor::by_name(name)?)));
        known.max_by_key(|(votes, _)| *votes).map_or(Assignor::Uniform, |(_, assignor)| assignor)
    }
}

fn partition_counts(sets: &[BTreeSet<TopicId>], topics: &dyn TopicMetadata) -> PartitionCounts {
    let ids = sets.iter().flatten();
    ids.filter_map(|&id| Some((id, topics.partition_count(id)?))).collect()
}

/// FNV-1a over 64 bits: stable across versions, unlike the standard library's hashers.
struct Fnv(u64);

/// Initial value of the hash.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of a group whose topics do not exist.
pub(super) const HASH_OF_NOTHING: i64 = FNV_BASIS.cast_signed();

impl Default for Fnv {
    fn default() -> Self {
        Self(FNV_BASIS)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
