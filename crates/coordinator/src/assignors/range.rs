//! The `range` assignor: contiguous ranges, topic by topic.
//!
//! Guarantees: the shares of one topic differ by at most one partition, and the first members have the larger ones;
//! two topics with the same subscribers and number of partitions are cut alike, so that equal keys of both meet in
//! one member. Current assignments are kept only as far as the members' order keeps them, as in Kafka: members are
//! served in a fixed order, so a group that does not change is assigned as before.

use std::collections::BTreeMap;

use riverrun_types::TopicId;

use super::{Assignment, Member, PartitionCounts, ranked};

pub(super) fn assign(members: &[Member<'_>], topics: &PartitionCounts) -> Vec<Assignment> {
    let mut shares = vec![Assignment::new(); members.len()];
    for (topic, subscribers) in subscribers_by_topic(members, topics) {
        divide(topic, topics[&topic], &subscribers, &mut shares);
    }
    shares
}

/// The subscribers of each topic that exists, in order of precedence.
fn subscribers_by_topic(members: &[Member<'_>], topics: &PartitionCounts) -> BTreeMap<TopicId, Vec<usize>> {
    let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for member in ranked(members) {
        for topic in members[member].subscribed.iter().filter(|topic| topics.contains_key(topic)) {
            subscribers.entry(*topic).or_default().push(member);
        }
    }
    subscribers
}

/// Cuts one topic into ranges; members that come after the last partition get none.
fn divide(topic: TopicId, partitions: i32, subscribers: &[usize], shares: &mut [Assignment]) {
    let members = i32::try_from(subscribers.len()).unwrap_or(i32::MAX);
    let (quota, larger) = (partitions / members, partitions % members);
    let mut next = 0;
    for (rank, &member) in (0..members).zip(subscribers) {
        let size = quota + i32::from(rank < larger);
        if size > 0 {
            shares[member].insert(topic, (next..next + size).collect());
        }
        next += size;
    }
}
