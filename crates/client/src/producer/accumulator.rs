//! Records on their way: one queue of batches for each partition, and the memory that they may take.
//!
//! Owns the topics that the producer has met, the bound on buffered bytes, and the question when everything up to
//! a point is settled. Senders append under one short lock; the sender task takes whole batches out.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use riverrun_types::{NodeId, ProducerEpoch, ProducerId, TimestampMs};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::batch::{Batch, BatchShape, QueueKey};
use super::delivery::{BatchPlace, Delivery, Outcome};
use super::options::ProducerOptions;
use super::partitioner::{Sticky, partition_of_key};
use super::queue::{PartitionQueue, Readiness, SendRules};
use super::record::ProducerRecord;
use crate::cluster::TopicInfo;
use crate::error::ClientError;

/// What an append came to.
#[derive(Debug)]
pub(super) enum Appended {
    /// The record is in a batch.
    Yes(Delivery),
    /// The topic has not been learnt.
    UnknownTopic,
    /// The topic has only so many partitions, as far as is known.
    NoSuchPartition(i32),
}

#[derive(Debug)]
struct TopicQueues {
    name: Arc<str>,
    /// One for each partition; `count` is their number.
    queues: Vec<PartitionQueue>,
    count: i32,
    /// Partitions that have a leader, sorted.
    available: Vec<i32>,
    sticky: Sticky,
}

impl TopicQueues {
    fn choose(&mut self, record: &ProducerRecord, record_bytes: usize, full_bytes: usize) -> i32 {
        let count = self.count;
        match (record.partition, &record.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) if count > 0 => partition_of_key(key, count),
            (None, _) => self.sticky.choose(&self.available, count, record_bytes, full_bytes),
        }
    }
}

/// Invariants: `index` names the place of each topic in `topics`, which never shrinks; `active` holds each queue
/// with `listed` once, and every queue that is not empty; `unresolved` holds the ids of batches without outcome.
#[derive(Debug, Default)]
struct State {
    topics: Vec<TopicQueues>,
    index: HashMap<Arc<str>, usize>,
    active: VecDeque<QueueKey>,
    unresolved: BTreeSet<u64>,
    next_batch: u64,
    hurry_below: u64,
    chain_broken: bool,
    closed: bool,
}

impl State {
    fn add_topic(&mut self, name: &str, seed: u64) -> usize {
        let (name, place): (Arc<str>, _) = (name.into(), self.topics.len());
        self.index.insert(Arc::clone(&name), place);
        let (queues, available) = (Vec::new(), Vec::new());
        self.topics.push(TopicQueues { name, queues, count: 0, available, sticky: Sticky::new(seed) });
        place
    }

    fn queue(&mut self, key: QueueKey) -> Option<&mut PartitionQueue> {
        self.topics.get_mut(key.topic)?.queues.get_mut(usize::try_from(key.partition).ok()?)
    }

    fn list(&mut self, key: QueueKey) {
        let Some(queue) = self.queue(key) else { return };
        if !std::mem::replace(&mut queue.listed, true) {
            self.active.push_back(key);
        }
    }
}

/// What the sender takes out in one go.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// One request for each node, with at most one batch for each partition.
    pub(super) requests: BTreeMap<NodeId, Vec<Batch>>,
    /// Batches that were tried for too long.
    pub(super) expired: Vec<Batch>,
    /// Topics with a batch to send and no known leader.
    pub(super) leaderless: BTreeSet<Arc<str>>,
    /// When there may be more, if nothing happens before.
    pub(super) next_check: Option<Instant>,
}

impl Drained {
    fn check_at(&mut self, at: Option<Instant>) {
        self.next_check = self.next_check.into_iter().chain(at).min();
    }
}

/// What the sender knows when it takes batches out.
pub(super) struct DrainPlan<'a> {
    pub(super) now: Instant,
    /// The producer id, with idempotence.
    pub(super) producer: Option<(ProducerId, ProducerEpoch)>,
    /// Whether batches that have no sequence number may be sent.
    pub(super) fresh_allowed: bool,
    /// Leader of a partition.
    pub(super) leader: &'a mut dyn FnMut(&str, i32) -> Option<NodeId>,
    /// Whether the node takes another request.
    pub(super) has_room: &'a mut dyn FnMut(NodeId) -> bool,
}

/// The producer's buffer.
///
/// Invariants: `space` has as many permits as bytes are free; a batch's bytes are given back with its outcome.
#[derive(Debug)]
pub(super) struct Accumulator {
    shape: BatchShape,
    linger: Duration,
    delivery_timeout: Duration,
    request_bytes_max: usize,
    state: Mutex<State>,
    space: Semaphore,
    short_of_space: AtomicUsize,
    /// Tells the sender that there is something to look at.
    pub(super) wake: Notify,
    settled: Notify,
}

impl Accumulator {
    pub(super) fn new(options: &ProducerOptions) -> Self {
        Self {
            shape: BatchShape {
                compression: options.compression,
                level: options.compression_level,
                full_bytes: options.batch_bytes,
            },
            linger: options.linger,
            delivery_timeout: options.delivery_timeout,
            request_bytes_max: options.request_bytes_max,
            state: Mutex::default(),
            space: Semaphore::new(options.buffer_bytes),
            short_of_space: AtomicUsize::new(0),
            wake: Notify::new(),
            settled: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic and its partitions known.
    pub(super) fn learn(&self, topic: &TopicInfo, seed: u64) {
        let mut state = self.lock();
        let place = state
            .index
            .get(topic.name.as_str())
            .copied()
            .unwrap_or_else(|| state.add_topic(&topic.name, seed));
        let known = &mut state.topics[place];
        if topic.partition_count() > known.count {
            known.count = topic.partition_count();
            known.queues.resize_with(topic.partitions.len(), PartitionQueue::default);
        }
        known.available =
            topic.partitions.iter().filter(|one| one.leader.is_some()).map(|one| one.index).collect();
    }

    /// Waits for room for a record of so many bytes. The caller gives it back with [`release`](Self::release), or
    /// leaves it to the batch that takes the record.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<(), ClientError> {
        if bytes > self.request_bytes_max {
            let limit = self.request_bytes_max;
            return Err(ClientError::Invalid(format!(
                "a record of up to {bytes} bytes is longer than request_bytes_max, {limit}"
            )));
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(permit) = self.space.try_acquire_many(permits) {
            permit.forget();
            return Ok(());
        }
        // Batches do not linger while somebody waits for their bytes.
        let _waiting = Waiting::new(&self.short_of_space);
        self.wake.notify_one();
        let permit = self.space.acquire_many(permits).await.map_err(|_| ClientError::Closed)?;
        permit.forget();
        Ok(())
    }

    /// Gives bytes back.
    pub(super) fn release(&self, bytes: usize) {
        self.space.add_permits(bytes);
    }

    /// Puts a record, whose bytes are reserved, into the last batch of its partition.
    pub(super) fn append(
        &self,
        record: &ProducerRecord,
        timestamp: TimestampMs,
        reserved_bytes: usize,
    ) -> Result<Appended, ClientError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            return Err(ClientError::Closed);
        }
        let Some(&topic) = state.index.get(record.topic.as_str()) else { return Ok(Appended::UnknownTopic) };
        let queues = &mut state.topics[topic];
        let partition = queues.choose(record, reserved_bytes, self.shape.full_bytes);
        let Some(queue) = usize::try_from(partition).ok().and_then(|at| queues.queues.get_mut(at)) else {
            return Ok(Appended::NoSuchPartition(queues.count));
        };
        let key = QueueKey { topic, partition };
        let (delivery, look) = if let Some(open) = queue.open(reserved_bytes) {
            (open.append(record, timestamp, reserved_bytes)?, open.is_full())
        } else {
            let outcome = Outcome::new(Arc::clone(&queues.name), partition);
            let mut batch = Batch::new(state.next_batch, key, outcome, self.shape);
            let delivery = batch.append(record, timestamp, reserved_bytes)?;
            state.unresolved.insert(batch.id);
            state.next_batch += 1;
            queue.push(batch);
            (delivery, true)
        };
        state.list(key);
        drop(guard);
        if look {
            self.wake.notify_one();
        }
        Ok(Appended::Yes(delivery))
    }

    /// Takes out what may be sent now, at most one request for each node.
    pub(super) fn drain(&self, plan: &mut DrainPlan<'_>) -> Drained {
        let mut state = self.lock();
        let pressed = state.closed || self.short_of_space.load(Ordering::Relaxed) > 0;
        let rules = SendRules {
            now: plan.now,
            linger: self.linger,
            hurry_below: if pressed { u64::MAX } else { state.hurry_below },
            fresh_allowed: plan.fresh_allowed,
        };
        let mut drained = Drained::default();
        // Whoever gets a batch into a request goes behind those that did not.
        let (mut first, mut last) = (Vec::new(), Vec::new());
        while let Some(key) = state.active.pop_front() {
            let taken = self.drain_queue(&mut state, key, plan, &rules, &mut drained);
            if taken { last.push(key) } else { first.push(key) }
        }
        for key in first.into_iter().chain(last) {
            if state.queue(key).is_some_and(|queue| !queue.is_empty()) {
                state.list(key);
            }
        }
        drained
    }

    /// Takes at most one batch of this queue into its leader's request, and says whether it did.
    fn drain_queue(
        &self,
        state: &mut State,
        key: QueueKey,
        plan: &mut DrainPlan<'_>,
        rules: &SendRules,
        drained: &mut Drained,
    ) -> bool {
        let name = Arc::clone(&state.topics[key.topic].name);
        let Some(queue) = state.queue(key) else { return false };
        queue.listed = false;
        let mut broke = false;
        while let Some(expired) = queue.take_expired(rules.now, self.delivery_timeout) {
            broke |= expired.stamp.is_some();
            drained.expired.push(expired);
        }
        if broke {
            queue.break_chain();
        }
        let mut taken = false;
        match queue.readiness(rules) {
            Readiness::Empty | Readiness::Blocked => {}
            Readiness::At(at) => drained.check_at(Some(at)),
            Readiness::Now => match (plan.leader)(&name, key.partition) {
                None => {
                    drained.leaderless.insert(name);
                }
                Some(node) if (plan.has_room)(node) => {
                    let request = drained.requests.entry(node).or_default();
                    let request_bytes: usize = request.iter().map(Batch::size_bytes).sum();
                    if request.is_empty() || request_bytes + queue.next_size_bytes() <= self.request_bytes_max
                    {
                        request.extend(queue.take(plan.producer));
                        taken = true;
                    }
                }
                Some(_) => {}
            },
        }
        drained.check_at(queue.expires_at(self.delivery_timeout));
        state.chain_broken |= broke;
        taken
    }

    /// Ends a batch that is not under way any more. `broken`: its sequence numbers leave a gap.
    pub(super) fn settle(&self, batch: Batch, result: Result<BatchPlace, ClientError>, broken: bool) {
        let mut state = self.lock();
        if let Some(queue) = state.queue(batch.key) {
            queue.came_back(batch.id);
            if result.is_ok() {
                queue.confirm();
            }
            if broken {
                queue.break_chain();
            }
        }
        state.chain_broken |= broken;
        state.unresolved.remove(&batch.id);
        drop(state);
        let reserved_bytes = batch.reserved_bytes;
        batch.finish(result);
        self.release(reserved_bytes);
        self.settled.notify_waiters();
    }

    /// Puts a batch that came back in line again. `broken`: it needs another producer id first.
    pub(super) fn retry(&self, batch: Batch, retry_at: Instant, broken: bool) {
        let mut state = self.lock();
        let key = batch.key;
        state.chain_broken |= broken;
        let Some(queue) = state.queue(key) else { return };
        queue.came_back(batch.id);
        queue.put_back(batch, retry_at);
        if broken {
            queue.break_chain();
        }
        state.list(key);
    }

    /// Whether the server expects this batch's sequence numbers, as far as is known.
    pub(super) fn is_next(&self, batch: &Batch) -> bool {
        self.lock().queue(batch.key).is_some_and(|queue| queue.is_next(batch.id))
    }

    /// Whether the producer needs a new id.
    pub(super) fn is_chain_broken(&self) -> bool {
        self.lock().chain_broken
    }

    /// Whether a new producer id could be taken now without doubling a record.
    pub(super) fn is_settled(&self) -> bool {
        self.lock().topics.iter().all(|topic| topic.queues.iter().all(PartitionQueue::is_settled))
    }

    /// Begins every sequence again, under a new producer id.
    pub(super) fn restart_sequences(&self) {
        let mut state = self.lock();
        state.chain_broken = false;
        state.topics.iter_mut().flat_map(|topic| &mut topic.queues).for_each(PartitionQueue::restart);
    }

    /// Takes out everything that waits, to fail it.
    pub(super) fn take_all(&self) -> Vec<Batch> {
        let mut state = self.lock();
        state
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.queues)
            .flat_map(PartitionQueue::take_all)
            .collect()
    }

    /// Name of a batch's topic.
    pub(super) fn topic_name(&self, key: QueueKey) -> Arc<str> {
        Arc::clone(&self.lock().topics[key.topic].name)
    }

    /// Names of the topics that have something to send.
    pub(super) fn active_topics(&self) -> BTreeSet<Arc<str>> {
        let state = self.lock();
        state.active.iter().map(|key| Arc::clone(&state.topics[key.topic].name)).collect()
    }

    /// Sends what is here now without lingering, and waits until all of it has its outcome.
    pub(super) async fn flush(&self) {
        let target = {
            let mut state = self.lock();
            state.hurry_below = state.next_batch;
            state.next_batch
        };
        self.wake.notify_one();
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.lock().unresolved.first().is_none_or(|first| *first >= target) {
                return;
            }
            settled.await;
        }
    }

    /// Takes no more records.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Whether nothing will come any more and everything has its outcome.
    pub(super) fn is_done(&self) -> bool {
        let state = self.lock();
        state.closed && state.unresolved.is_empty()
    }
}

/// Counts a sender that waits for room, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
