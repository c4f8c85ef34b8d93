//! Consumer groups of KIP-848: the coordinator assigns, members reconcile one heartbeat at a time.
//!
//! Owns one group's state. A request is checked first and then turned into [`Change`]s, each of which is recorded and
//! applied; a load applies the same changes from the records. So a replayed group equals the one that lived, except
//! for soft state: timers, and the times at which topics and patterns were last examined.
//!
//! Three epochs tell the state of a group. The *group epoch* counts the changes of the members and of the topics that
//! they read; the *assignment epoch* is the group epoch for which the target assignment was made; a *member epoch* is
//! the assignment epoch that the member has reached. `reconcile` takes members from one to the next.
//!
//! While a group changes its protocol it has members of both. A *classic member* joins, syncs and heartbeats as in a
//! classic group, but never leads: the coordinator assigns, each rejoin is a part of its reconciliation, and its
//! generation is its member epoch. `classic` serves such members; `convert` makes a KIP-848 group from a classic one,
//! and back.
//!
//! Guarantees: a partition is held by at most one member, from the response that assigns it to the heartbeat that
//! reports it given up; the size of a group is bounded by [`crate::GroupConfig`] and the constants of `heartbeat`.
//! Refuses assignors that run in clients, which KIP-848 dropped.

mod admin;
mod changes;
mod classic;
mod convert;
mod heartbeat;
mod holders;
mod member;
mod reconcile;
mod request;
mod shard;
mod size;
mod subscription;
mod timers;

#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use riverrun_types::TimestampMs;

use crate::assignors::Assignment;
use crate::classic::distinct_names;
use crate::step::OffsetsRecord;
use crate::time::{Moment, Now, Stamp};

pub(crate) use changes::Recorder;
use changes::{Change, ConsumerRecord};
pub(crate) use heartbeat::Given;
use holders::Holders;
use member::{Member, MemberId, Progress, Subscription, partition_count};
pub(crate) use request::Refusal;
use timers::Timers;

/// The metadata hash of a group from which a member was removed: topics are not at hand then, so the next heartbeat
/// fills it in, without another epoch. Groups without members have it too.
const HASH_UNKNOWN: i64 = 0;

/// Topics by name, as a member subscribes to them.
type TopicNames = BTreeSet<String>;

/// The topics that a pattern matched when it was resolved last: the value of a `ConsumerGroupRegularExpression`
/// record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ResolvedPattern {
    topics: TopicNames,
    /// [`crate::TopicMetadata::generation`] at that time.
    version: i64,
    resolved_at_ms: i64,
}

/// One group.
///
/// Invariants:
/// - `static_members` maps each instance id to the member that has it.
/// - `holders` maps exactly the partitions in the members' progress to their members.
/// - `subscription_bytes`, `topic_sets` and `pattern_users` count the members' subscriptions; `partitions` counts the
///   partitions in targets and in the members' progress.
/// - `classic_members` counts the members of the classic protocol, and `classic_votes` how many of them support each
///   protocol, of which one is supported by all.
/// - `memory_bytes` is the sum of the sizes that `size` gives for each thing here but `holders`.
/// - `timers` has only members; `assignment_epoch <= group_epoch`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConsumerGroup {
    group_epoch: i32,
    metadata_hash: i64,
    assignment_epoch: i32,
    /// When the target was made, or the last member left; unset before.
    assigned_at: Option<Stamp>,
    members: BTreeMap<MemberId, Member>,
    static_members: BTreeMap<String, MemberId>,
    targets: BTreeMap<MemberId, Assignment>,
    patterns: BTreeMap<String, ResolvedPattern>,
    holders: Holders,
    /// Each set of topics that members subscribe to by name, with the number of those members.
    topic_sets: BTreeMap<Arc<TopicNames>, usize>,
    /// Each pattern that members subscribe with, with the number of those members.
    pattern_users: BTreeMap<String, usize>,
    classic_members: usize,
    classic_votes: BTreeMap<String, usize>,
    subscription_bytes: usize,
    partitions: usize,
    memory_bytes: usize,
    timers: Timers,
    /// Generation of the topics that `metadata_hash` was computed from.
    hashed_generation: Option<u64>,
    /// Generation of the topics against which all patterns were resolved, and the time.
    patterns_resolved: Option<(u64, Moment)>,
    /// When a new target was last put off for lack of memory.
    target_put_off_at: Option<Moment>,
}

impl ConsumerGroup {
    /// Applies a record of a load.
    fn replay(&mut self, record: ConsumerRecord) {
        self.apply(record.change);
    }

    /// Records a change and applies it.
    fn commit(&mut self, change: Change, recorder: &mut Recorder<'_>) {
        recorder.record(&change);
        self.apply(change);
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Epoch { epoch, metadata_hash } => {
                self.group_epoch = epoch;
                self.metadata_hash = metadata_hash;
            }
            Change::TargetEpoch { epoch, assigned_at_ms } => {
                self.assignment_epoch = epoch;
                self.assigned_at = (assigned_at_ms > 0).then(|| Stamp::recorded(TimestampMs(assigned_at_ms)));
            }
            Change::Member(id, Some(subscription)) => self.set_subscription(id, subscription),
            Change::Member(id, None) => self.remove_member(&id),
            Change::Progress(id, progress) => self.set_progress(&id, progress),
            Change::Target(id, target) => self.set_target(id, target),
            Change::Pattern(pattern, resolved) => self.set_pattern(pattern, resolved),
            Change::Deleted => *self = Self::default(),
            Change::Obsolete => {}
        }
    }

    fn set_target(&mut self, id: MemberId, target: Option<Assignment>) {
        self.memory_bytes += target.as_ref().map_or(0, size::target_bytes);
        self.partitions += target.as_ref().map_or(0, partition_count);
        let previous = match target {
            Some(target) => self.targets.insert(id, target),
            None => self.targets.remove(&id),
        };
        self.memory_bytes -= previous.as_ref().map_or(0, size::target_bytes);
        self.partitions -= previous.as_ref().map_or(0, partition_count);
    }

    fn set_pattern(&mut self, pattern: String, resolved: Option<ResolvedPattern>) {
        self.memory_bytes += resolved.as_ref().map_or(0, size::resolved_bytes);
        let previous = match resolved {
            Some(resolved) => self.patterns.insert(pattern, resolved),
            None => self.patterns.remove(&pattern),
        };
        self.memory_bytes -= previous.as_ref().map_or(0, size::resolved_bytes);
    }

    fn set_subscription(&mut self, id: MemberId, mut subscription: Subscription) {
        let previous = self.members.get_mut(&id).map(|member| std::mem::take(&mut member.subscription));
        if let Some(previous) = previous {
            self.uncount(&id, previous);
        }
        self.count(&id, &mut subscription);
        self.members.entry(id).or_default().subscription = subscription;
    }

    /// Adds a subscription to the counts over all members, and lets it share equal topics with theirs.
    fn count(&mut self, id: &MemberId, subscription: &mut Subscription) {
        self.subscription_bytes += subscription.size_bytes();
        self.memory_bytes += size::member_bytes(id, subscription);
        if let Some(instance_id) = &subscription.instance_id {
            self.static_members.insert(instance_id.clone(), Arc::clone(id));
        }
        if let Some(pattern) = &subscription.pattern {
            let users = self.pattern_users.entry(pattern.clone()).or_default();
            *users += 1;
            self.memory_bytes += if *users == 1 { size::pattern_bytes(pattern) } else { 0 };
        }
        if let Some(classic) = &subscription.classic {
            self.classic_members += 1;
            for name in distinct_names(&classic.protocols) {
                *self.classic_votes.entry(name.to_owned()).or_default() += 1;
            }
        }
        if let Some((shared, _)) = self.topic_sets.get_key_value(&subscription.topics) {
            subscription.topics = Arc::clone(shared);
        }
        let users = self.topic_sets.entry(Arc::clone(&subscription.topics)).or_default();
        *users += 1;
        self.memory_bytes += if *users == 1 { size::set_bytes(&subscription.topics) } else { 0 };
    }

    fn uncount(&mut self, id: &MemberId, subscription: Subscription) {
        self.subscription_bytes = self.subscription_bytes.saturating_sub(subscription.size_bytes());
        self.memory_bytes -= size::member_bytes(id, &subscription);
        if let Some(instance_id) = subscription.instance_id
            && self.static_members.get(&instance_id) == Some(id)
        {
            self.static_members.remove(&instance_id);
        }
        if let Some(pattern) = subscription.pattern {
            let is_last = uncount_one(&mut self.pattern_users, &pattern);
            self.memory_bytes -= if is_last { size::pattern_bytes(&pattern) } else { 0 };
        }
        if let Some(classic) = &subscription.classic {
            self.classic_members -= 1;
            for name in distinct_names(&classic.protocols) {
                uncount_one(&mut self.classic_votes, name);
            }
        }
        let is_last = uncount_one(&mut self.topic_sets, &subscription.topics);
        self.memory_bytes -= if is_last { size::set_bytes(&subscription.topics) } else { 0 };
    }

    fn remove_member(&mut self, id: &MemberId) {
        self.set_progress(id, None);
        if let Some(member) = self.members.remove(id) {
            self.uncount(id, member.subscription);
        }
        self.timers.remove(id);
    }

    /// Sets a member's progress; `None` resets it. A load may see the progress of a member before its subscription,
    /// which was compacted to a later place.
    fn set_progress(&mut self, id: &MemberId, progress: Option<Progress>) {
        if progress.is_none() && !self.members.contains_key(id) {
            return;
        }
        if !self.members.contains_key(id) {
            self.set_subscription(Arc::clone(id), Subscription::default());
        }
        let member = self.members.entry(Arc::clone(id)).or_default();
        let previous = std::mem::replace(&mut member.progress, progress.unwrap_or_default());
        self.memory_bytes += size::progress_bytes(&member.progress);
        self.memory_bytes -= size::progress_bytes(&previous);
        self.partitions += member.progress.partition_count();
        self.partitions -= previous.partition_count();
        self.holders.remove(id, &previous);
        self.holders.add(id, &member.progress);
    }

    /// Removes members for good: they left, or missed a deadline.
    fn fence(&mut self, ids: &[MemberId], now: Now, recorder: &mut Recorder<'_>) {
        for id in ids {
            self.remove_with_records(id, recorder);
        }
        self.drop_unused_patterns(recorder);
        self.commit(Change::Epoch { epoch: self.group_epoch + 1, metadata_hash: HASH_UNKNOWN }, recorder);
        if self.members.is_empty() {
            self.record_target(self.assignment_epoch, now, recorder);
        }
    }

    /// The record of an empty group, if the clock was set since it wrote down its time.
    pub(crate) fn correct_time(&mut self, group_id: &str, now: Now) -> Option<OffsetsRecord> {
        let corrected = self.assigned_at.filter(|_| self.members.is_empty())?.corrected(now)?;
        let mut recorder = Recorder::new(group_id);
        let change = Change::TargetEpoch { epoch: self.assignment_epoch, assigned_at_ms: corrected.wall.0 };
        self.commit(change, &mut recorder);
        self.assigned_at = Some(corrected);
        recorder.into_records().pop()
    }

    /// Records the epoch of the target, and that it is made now. In a group without members this is the time at which
    /// the last one left, for which no other record has a field.
    fn record_target(&mut self, epoch: i32, now: Now, recorder: &mut Recorder<'_>) {
        self.commit(Change::TargetEpoch { epoch, assigned_at_ms: now.wall.0 }, recorder);
        self.assigned_at = Some(Stamp::now(now));
    }

    fn remove_with_records(&mut self, id: &MemberId, recorder: &mut Recorder<'_>) {
        self.commit(Change::Progress(Arc::clone(id), None), recorder);
        self.commit(Change::Target(Arc::clone(id), None), recorder);
        self.commit(Change::Member(Arc::clone(id), None), recorder);
    }

    /// Forgets the topics of patterns without subscribers.
    fn drop_unused_patterns(&mut self, recorder: &mut Recorder<'_>) {
        let unused = self.patterns.keys().filter(|pattern| !self.pattern_users.contains_key(*pattern));
        for pattern in unused.cloned().collect::<Vec<_>>() {
            self.commit(Change::Pattern(pattern, None), recorder);
        }
    }
}

/// Subtracts one user, and removes the key at zero; returns whether it was the last user.
fn uncount_one<K: Borrow<Q> + Ord, Q: Ord + ?Sized>(counts: &mut BTreeMap<K, usize>, key: &Q) -> bool {
    let is_last = match counts.get_mut(key) {
        Some(count) => {
            *count -= 1;
            *count == 0
        }
        None => false,
    };
    if is_last {
        counts.remove(key);
    }
    is_last
}
