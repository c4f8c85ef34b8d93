//! The state under the accumulator's lock: the queues, and the order in which to visit them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use riverrun_records::layout;
use riverrun_types::NodeId;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::producer::batch::{Batch, BatchShape, Ended, ID_STEP, QueueKey, Spare};
use crate::producer::delivery::Outcome;
use crate::producer::metrics::ProducerMetrics;
use crate::producer::queue::PartitionQueue;
use crate::producer::topics::{Leaders, Topic};

/// Room for records that a partition's first batch has.
const ROOM_BYTES: usize = 8 * 1024;

/// Invariants: `index` names the place of each topic in `topics`, which never shrinks; `last` is the place of the
/// last topic looked up; `active`, `stalled` and `leaderless` together hold each queue with `listed` once, and every
/// queue whose next batch may be sent; `parked` holds those whose next batch may be sent later, at least once at that
/// time; the others wait for a batch in flight. `unresolved` holds the ids of batches whose outcome was not passed
/// on.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) topics: Vec<Topic>,
    pub(super) index: HashMap<Arc<str>, usize>,
    pub(super) last: usize,
    pub(super) active: VecDeque<QueueKey>,
    /// Queues that wait for their leader to accept a request, or another one.
    pub(super) stalled: BTreeMap<NodeId, VecDeque<QueueKey>>,
    /// Queues that wait for a leader, or for certainty that their partition is gone.
    pub(super) leaderless: Vec<QueueKey>,
    pub(super) parked: BinaryHeap<Reverse<(Instant, QueueKey)>>,
    /// When to search for expired batches; `None` without batches.
    pub(super) expire_at: Option<Instant>,
    pub(super) unresolved: BTreeSet<u64>,
    pub(super) next_batch: u64,
    pub(super) hurry_below: u64,
    /// True if lingering batches were hurried since the last drain.
    pub(super) hurried: bool,
    pub(super) leaders: Leaders,
    pub(super) counts: ProducerMetrics,
    /// The last obstacle of any record since one was delivered: the reason for records that were never sent.
    pub(super) trouble: Option<Arc<ClientError>>,
}

impl State {
    /// The place of a topic. Most records go to the topic of the record before.
    pub(super) fn find(&mut self, name: &str) -> Option<usize> {
        if self.topics.get(self.last).is_none_or(|topic| *topic.name != *name) {
            self.last = *self.index.get(name)?;
        }
        Some(self.last)
    }

    pub(super) fn queue(&mut self, key: QueueKey) -> Option<&mut PartitionQueue> {
        self.topics.get_mut(key.topic)?.queues.get_mut(usize::try_from(key.partition).ok()?)
    }

    pub(super) fn list(&mut self, key: QueueKey) {
        let Some(queue) = self.queue(key) else { return };
        if !std::mem::replace(&mut queue.listed, true) {
            self.active.push_back(key);
        }
    }

    /// Lists a queue that has batches.
    pub(super) fn list_unless_empty(&mut self, key: QueueKey) {
        if self.queue(key).is_some_and(|queue| !queue.is_empty()) {
            self.list(key);
        }
    }

    /// Stalls a queue until its leader accepts a request again, or until there is a leader.
    pub(super) fn stall(&mut self, key: QueueKey, leader: Option<NodeId>) {
        let Some(queue) = self.queue(key) else { return };
        queue.listed = true;
        match leader {
            Some(node) => self.stalled.entry(node).or_default().push_back(key),
            None => self.leaderless.push(key),
        }
    }

    /// Stalls queues again from which their leader has taken nothing, before all others.
    pub(super) fn stall_first(&mut self, mut keys: VecDeque<QueueKey>, leader: NodeId) {
        for key in &keys {
            if let Some(queue) = self.queue(*key) {
                queue.listed = true;
            }
        }
        if !keys.is_empty() {
            keys.extend(self.stalled.remove(&leader).into_iter().flatten());
            self.stalled.insert(leader, keys);
        }
    }

    /// Lists all stalled queues again.
    pub(super) fn recall_all(&mut self) {
        let stalled = std::mem::take(&mut self.stalled).into_values().flatten();
        self.active.extend(stalled.chain(std::mem::take(&mut self.leaderless)));
    }

    /// Lists a queue at a later time. Returns whether that is the earliest time of all.
    pub(super) fn park(&mut self, key: QueueKey, at: Instant) -> bool {
        let Some(queue) = self.queue(key) else { return false };
        if queue.parked_until.is_some_and(|until| until <= at) {
            return false;
        }
        queue.parked_until = Some(at);
        let first = self.parked.peek().is_none_or(|Reverse((first, _))| at < *first);
        self.parked.push(Reverse((at, key)));
        first
    }

    /// Lists the queues whose time has come, or all parked ones.
    pub(super) fn unpark(&mut self, now: Instant, all: bool) {
        while let Some(Reverse((at, key))) = self.parked.peek().copied() {
            if at > now && !all {
                return;
            }
            self.parked.pop();
            if let Some(queue) = self.queue(key) {
                queue.parked_until = None;
            }
            self.list_unless_empty(key);
        }
    }

    /// Lists every queue that has batches.
    pub(super) fn list_all(&mut self) {
        (0..self.topics.len()).for_each(|topic| self.list_topic(topic));
    }

    /// Lists every queue of a topic that has batches, including those of partitions that are gone.
    pub(super) fn list_topic(&mut self, topic: usize) {
        for (partition, _) in (0..).zip(0..self.topics[topic].queues.len()) {
            self.list_unless_empty(QueueKey { topic, partition });
        }
    }

    /// Counts a completed batch whose callbacks are due.
    pub(super) fn leave(&mut self, Ended { batch, result }: &Ended) {
        self.unresolved.remove(&batch.id);
        let records = u64::try_from(batch.record_count()).unwrap_or_default();
        let counts = &mut self.counts;
        *(if result.is_ok() { &mut counts.records_delivered } else { &mut counts.records_failed }) += records;
        counts.batches += 1;
        counts.batch_bytes += batch.size_bytes() as u64;
    }

    /// A batch for a partition, whose first record takes at most so many bytes. If the batch before was large, this
    /// one gets room for a full batch at once; otherwise little more than that one used: with many partitions such
    /// batches fill the buffer.
    pub(super) fn new_batch(
        &mut self,
        key: QueueKey,
        shape: BatchShape,
        record_bytes: usize,
        spare: impl FnOnce() -> Option<Spare>,
    ) -> Batch {
        let last_bytes = self.queue(key).map_or(0, |queue| queue.last_bytes());
        let least = layout::HEADER_BYTES + record_bytes;
        let memory = if last_bytes > shape.full_bytes / 2 {
            spare().unwrap_or_else(|| Vec::with_capacity(shape.full_bytes.max(least)).into())
        } else {
            let room = if last_bytes == 0 { ROOM_BYTES } else { last_bytes + last_bytes / 4 };
            Vec::with_capacity(room.min(shape.full_bytes).max(least)).into()
        };
        let outcome = Outcome::new(Arc::clone(&self.topics[key.topic].name), key.partition);
        Batch::new(self.next_batch, key, outcome, shape, memory)
    }

    /// Queues a new batch of a partition. Returns whether to wake the sender task: this batch or the one before is
    /// full, or this one is the next to be sent. With the maximum in flight, a returning batch wakes the sender task.
    pub(super) fn begin(&mut self, batch: Batch, linger: Duration, in_flight_max: usize) -> bool {
        let (key, lingers, full) = (batch.key, batch.created + linger, batch.is_full());
        self.unresolved.insert(batch.id);
        self.next_batch += ID_STEP;
        let Some(queue) = self.queue(key) else { return false };
        queue.push(batch);
        if full || queue.len() > 1 || linger.is_zero() {
            let goes = queue.takes_off(in_flight_max);
            if goes {
                self.list(key);
            }
            return goes;
        }
        self.park(key, lingers)
    }
}
