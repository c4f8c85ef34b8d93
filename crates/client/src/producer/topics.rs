//! The topics that a producer has met: a queue for each partition, and the partitioner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use riverrun_types::{NodeId, TopicId};
use tokio::time::Instant;

use super::partitioner::{Choice, TopicPartitioner, TopicView};
use super::queue::PartitionQueue;
use super::record::RecordRef;
use crate::cluster::TopicInfo;

/// How long a partition may seem gone because a server lags behind the others.
pub(super) const GONE_GRACE: Duration = Duration::from_secs(3);

/// One topic.
///
/// Invariants: `queues` and `leaders` have an entry for each partition that ever existed, and never get shorter:
/// batches in flight come back to their queue. The first `count` are those of the topic that has this `id` now;
/// `available` holds those that have a leader, sorted. Batches of the others are given up once metadata that was
/// requested at `gone_at` or later does not have them either; `asked_at` is when the known metadata was requested, if
/// that is known.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    id: TopicId,
    count: usize,
    gone_at: Option<Instant>,
    asked_at: Option<Instant>,
    pub(super) queues: Vec<PartitionQueue>,
    leaders: Vec<Option<NodeId>>,
    available: Vec<i32>,
    partitioner: Box<dyn TopicPartitioner>,
}

/// The topic as a partitioner sees it.
struct View<'a> {
    count: usize,
    queues: &'a [PartitionQueue],
    leaders: &'a [Option<NodeId>],
    available: &'a [i32],
    slow: &'a BTreeSet<NodeId>,
}

fn at<T>(items: &[T], partition: i32) -> Option<&T> {
    items.get(usize::try_from(partition).ok()?)
}

impl TopicView for View<'_> {
    fn partition_count(&self) -> i32 {
        i32::try_from(self.count).unwrap_or(i32::MAX).max(1)
    }

    fn available(&self) -> &[i32] {
        self.available
    }

    fn waiting_batches(&self, partition: i32) -> usize {
        at(self.queues, partition).map_or(0, PartitionQueue::len)
    }

    fn is_slow(&self, partition: i32) -> bool {
        at(self.leaders, partition).copied().flatten().is_some_and(|leader| self.slow.contains(&leader))
    }
}

impl Topic {
    pub(super) fn new(name: Arc<str>, partitioner: Box<dyn TopicPartitioner>) -> Self {
        let (queues, leaders, available) = (Vec::new(), Vec::new(), Vec::new());
        let (id, count, gone_at, asked_at) = (TopicId::ZERO, 0, None, None);
        Self { name, id, count, gone_at, asked_at, queues, leaders, available, partitioner }
    }

    /// Updates the topic from metadata. Returns whether it has fewer partitions than before: then it was created
    /// anew, because no topic loses any, and a server with fewer for the same id lags behind. For topics without ids,
    /// all metadata is believed. `asked_at` is when it was requested, unless that may be long ago.
    pub(super) fn learn(&mut self, topic: &TopicInfo, asked_at: Option<Instant>) -> bool {
        let (before, told) = (self.count, topic.partitions.len());
        let is_same = topic.id != TopicId::ZERO && topic.id == self.id;
        self.count = if is_same { told.max(before) } else { told };
        self.id = topic.id;
        let kept = self.count.max(self.queues.len());
        self.queues.resize_with(kept, PartitionQueue::default);
        self.leaders = topic.partitions.iter().map(|one| one.leader).collect();
        self.leaders.resize(kept, None);
        self.available =
            topic.partitions.iter().filter(|one| one.leader.is_some()).map(|one| one.index).collect();
        self.asked_at = asked_at.or(self.asked_at);
        let fewer = self.count < before;
        if fewer {
            self.gone_at = Some(Instant::now() + GONE_GRACE);
        }
        fewer
    }

    /// Replaces the partitioner.
    pub(super) fn set_partitioner(&mut self, partitioner: Box<dyn TopicPartitioner>) {
        self.partitioner = partitioner;
    }

    /// True if a partition with batches has no leader.
    pub(super) fn waits_for_leader(&self) -> bool {
        self.queues.iter().zip(&self.leaders).any(|(queue, leader)| leader.is_none() && !queue.is_empty())
    }

    /// True if only an earlier topic of this name had the partition, as far as is known. Never for topics without
    /// ids: they do not tell that topic from this one.
    pub(super) fn is_missing(&self, partition: i32) -> bool {
        let is_beyond = usize::try_from(partition).is_ok_and(|at| at >= self.count);
        is_beyond && self.gone_at.is_some() && self.id != TopicId::ZERO
    }

    /// True if missing partitions are certainly gone: a server that lags behind had the time to catch up, and was
    /// asked.
    pub(super) fn gives_up_missing(&self) -> bool {
        self.gone_at.zip(self.asked_at).is_some_and(|(gone_at, asked_at)| gone_at <= asked_at)
    }

    /// Number of partitions, as far as is known.
    pub(super) fn partition_count(&self) -> i32 {
        i32::try_from(self.count).unwrap_or(i32::MAX)
    }

    /// The queue of a partition that takes records.
    pub(super) fn queue_for_records(&mut self, partition: i32) -> Option<&mut PartitionQueue> {
        let at = usize::try_from(partition).ok().filter(|at| *at < self.count)?;
        self.queues.get_mut(at)
    }

    /// The partition for a record, and the partition that the partitioner has left, whose batch is closed by that.
    pub(super) fn place(
        &mut self,
        record: &RecordRef<'_>,
        record_bytes: usize,
        slow: &BTreeSet<NodeId>,
    ) -> (Choice, Option<i32>) {
        if let Some(partition) = record.partition {
            return (Choice::Fixed(partition), None);
        }
        let Self { count, queues, leaders, available, partitioner, .. } = self;
        let view = View { count: *count, queues, leaders, available, slow };
        match partitioner.choose(record, &view) {
            Choice::Sticky(partition)
                if at(queues, partition).is_some_and(|queue| queue.needs_batch(record_bytes)) =>
            {
                let next = partitioner.on_new_batch(partition, record_bytes, &view);
                let left = (next != partition).then(|| usize::try_from(partition).ok()).flatten();
                let left = left.and_then(|at| queues.get_mut(at)).is_some_and(PartitionQueue::complete_last);
                (Choice::Sticky(next), left.then_some(partition))
            }
            choice => (choice, None),
        }
    }

    /// Tells the partitioner that a record was appended where it chose.
    pub(super) fn placed(&mut self, partition: i32, record_bytes: usize) {
        self.partitioner.appended(partition, record_bytes);
    }
}

/// Since when each leader has taken nothing more.
///
/// Invariants: holds the nodes that had no room in the last drain and in all drains since that time, while batches
/// wait for them or the maximum is in flight to them: for others no event would show that they have room.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    slow_since: BTreeMap<NodeId, Instant>,
    /// Leaders that have taken nothing for longer than the timeout, for the partitioners.
    pub(super) slow: BTreeSet<NodeId>,
}

impl Leaders {
    /// Records whether a node takes its ready batches.
    pub(super) fn note(&mut self, node: NodeId, takes: bool, now: Instant, timeout: Duration) {
        if takes {
            self.slow_since.remove(&node);
            self.slow.remove(&node);
            return;
        }
        let since = *self.slow_since.entry(node).or_insert(now);
        if !timeout.is_zero() && now.saturating_duration_since(since) > timeout {
            self.slow.insert(node);
        }
    }

    /// Forgets all but these nodes.
    pub(super) fn keep(&mut self, waited_for: impl Fn(NodeId) -> bool) {
        self.slow_since.retain(|node, _| waited_for(*node));
        self.slow.retain(|node| waited_for(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_leader_is_slow_until_it_takes_a_batch() {
        let (mut leaders, node, now) = (Leaders::default(), NodeId(1), Instant::now());
        let timeout = Duration::from_millis(10);
        leaders.note(node, false, now, timeout);
        leaders.note(node, false, now + timeout, timeout);
        assert!(!leaders.slow.contains(&node));
        leaders.note(node, false, now + timeout * 2, timeout);
        assert!(leaders.slow.contains(&node));
        leaders.note(node, true, now + timeout * 3, timeout);
        leaders.note(node, false, now + timeout * 4, timeout);
        assert!(!leaders.slow.contains(&node));
        leaders.note(node, false, now + timeout * 9, Duration::ZERO);
        assert!(!leaders.slow.contains(&node), "zero is never");
    }
}
