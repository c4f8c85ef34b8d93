//! The record accumulator: one queue of batches for each partition, and the memory that they may take.
//!
//! Owns the topics that the producer has met, the bound on buffered bytes, and the answer to when all batches up to a
//! point are complete. Senders append under one short lock; the sender task takes whole batches out.

mod space;
mod state;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use riverrun_types::{ErrorKind, NodeId, ProducerEpoch, ProducerId, TimestampMs};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::space::Space;
use self::state::State;
use super::batch::{Batch, BatchShape, Ended, QueueKey, Spare};
use super::delivery::BatchPlace;
use super::listener::Enlist;
use super::metrics::ProducerMetrics;
use super::options::ProducerOptions;
use super::partitioner::Choice;
use super::queue::{IN_FLIGHT_MAX, PartitionQueue, Readiness, SendRules};
use super::record::RecordRef;
use super::topics::Topic;
use super::verdict::{self, Verdict};
use crate::cluster::TopicInfo;
use crate::error::ClientError;

/// Spare batch buffers kept at least; more while more batches complete at once.
const SPARE_BUFFERS: usize = 8;

/// Spare batch buffers kept at most, however small: none of them counts against `buffer.memory`.
const SPARE_BUFFERS_MAX: usize = 256;

/// An open batch's share of the buffer may exceed its memory by this part of a full batch: an exact count with each
/// record would cost more than it saves.
const UNEVEN_PART: usize = 4;

/// The value of `telling` while no callback runs.
const NONE_TOLD: u64 = u64::MAX;

/// How often expired batches are searched within the delivery timeout.
const EXPIRY_LOOKS: u32 = 16;

/// The result of an append.
#[derive(Debug)]
pub(super) enum Appended<H> {
    /// The record is in a batch.
    Yes(H),
    /// The topic has not been learnt.
    UnknownTopic,
    /// The topic has only `count` partitions, as far as is known, and this is none of them.
    NoSuchPartition { partition: i32, count: i32 },
}

/// The batches that the sender task takes out at once.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// One request for each node, with at most one batch for each partition.
    pub(super) requests: BTreeMap<NodeId, Vec<Batch>>,
    /// Batches whose delivery timeout has expired.
    pub(super) expired: Vec<Batch>,
    /// Batches for partitions that do not exist any more.
    pub(super) gone: Vec<Batch>,
    /// Topics with a batch to send and no known leader.
    pub(super) leaderless: BTreeSet<Arc<str>>,
    /// When to drain again, if no event comes before.
    pub(super) next_check: Option<Instant>,
    /// True if more can be drained at once.
    pub(super) more: bool,
    /// Bytes of each node's request.
    bytes: BTreeMap<NodeId, usize>,
    /// Whether a node accepts a request, as far as it was asked.
    rooms: BTreeMap<NodeId, bool>,
}

impl Drained {
    fn check_at(&mut self, at: Option<Instant>) {
        self.next_check = self.next_check.into_iter().chain(at).min();
    }
}

/// The result of visiting a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    /// A batch was taken; the next may be ready, too.
    Taken,
    /// A batch is ready, and the request for this node has no room for it.
    Refused(NodeId),
    /// No batch is ready, or none can be taken for now.
    Over,
}

/// The sender task's state that decides which batches may be taken.
pub(super) struct DrainPlan<'a> {
    pub(super) now: Instant,
    /// The producer id, with idempotence.
    pub(super) producer: Option<(ProducerId, ProducerEpoch)>,
    /// Whether batches that have no sequence number may be sent.
    pub(super) fresh_allowed: bool,
    /// Leader of a partition.
    pub(super) leader: &'a mut dyn FnMut(&str, i32) -> Option<NodeId>,
    /// Whether the node accepts another request.
    pub(super) has_room: &'a mut dyn FnMut(NodeId) -> bool,
    /// Nodes with as many requests in flight as allowed. Queues that wait for them are listed nowhere while each of
    /// their partitions has that many in flight, too.
    pub(super) full: &'a [NodeId],
}

/// The producer's buffer.
///
/// The fields that the sender task reads in each round lie outside of the state: the state's lock is taken for each
/// record, and a task that waits for it sleeps.
///
/// Invariants: `space` holds the bytes that no batch has; a batch's bytes are freed with its outcome. Once `closed`
/// is set, no record comes that was not in the state at the next lock of it. `ended` is set when the sender task is
/// gone. `spare` is memory of full batches. `id_spent` is true if a partition has no epoch left, so that the producer
/// needs another id. `telling` is the first of the batches that have left `unresolved` while callbacks still get
/// their outcomes: those of one call at most, because only the sender task completes batches.
#[derive(Debug)]
pub(super) struct Accumulator {
    options: Arc<ProducerOptions>,
    shape: BatchShape,
    state: Mutex<State>,
    space: Space,
    closed: AtomicBool,
    abandoned: AtomicBool,
    ended: AtomicBool,
    id_spent: AtomicBool,
    telling: AtomicU64,
    spare: Mutex<Vec<Spare>>,
    /// Wakes the sender task.
    pub(super) wake: Notify,
    completed: Notify,
}

impl Accumulator {
    pub(super) fn new(options: Arc<ProducerOptions>) -> Self {
        Self {
            shape: BatchShape {
                compression: options.compression,
                level: options.compression_level(),
                full_bytes: options.batch_bytes.min(options.buffer_bytes),
            },
            state: Mutex::default(),
            space: Space::new(options.buffer_bytes),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            id_spent: AtomicBool::new(false),
            telling: AtomicU64::new(NONE_TOLD),
            spare: Mutex::default(),
            wake: Notify::new(),
            completed: Notify::new(),
            options,
        }
    }

    /// Most batches of one partition in flight.
    fn in_flight_max(&self) -> usize {
        self.options.cluster.in_flight_max.min(IN_FLIGHT_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or updates a topic by metadata that was requested at `asked_at`, or at an unknown time. Random choices
    /// follow from `seed` if the topic is new. Returns whether all partitions with batches have a leader.
    pub(super) fn learn(&self, topic: &TopicInfo, seed: u64, asked_at: Option<Instant>) -> bool {
        let mut state = self.lock();
        let place = if let Some(place) = state.index.get(topic.name.as_str()) {
            *place
        } else {
            let (name, place): (Arc<str>, _) = (topic.name.as_str().into(), state.topics.len());
            let partitioner = self.options.partitioner.for_topic(&self.options, seed);
            state.index.insert(Arc::clone(&name), place);
            state.topics.push(Topic::new(name, partitioner));
            place
        };
        if state.topics[place].learn(topic, asked_at) {
            // The chosen partition may be gone, and its batch should not wait for long.
            state.topics[place].set_partitioner(self.options.partitioner.for_topic(&self.options, seed));
            state.recall_all();
            state.list_topic(place);
            self.wake.notify_one();
        }
        !state.topics[place].waits_for_leader()
    }

    /// Takes room for a record of so many bytes, and returns whether there was. The caller gives it back with
    /// [`release`](Self::release), or passes it to the batch that takes the record.
    pub(super) fn try_reserve(&self, bytes: usize) -> Result<bool, ClientError> {
        self.options.check_record_bytes(bytes)?;
        self.space.try_take(bytes)
    }

    /// The same, but waits for the room. Batches do not linger meanwhile.
    pub(super) async fn reserve(&self, bytes: usize) -> Result<(), ClientError> {
        if self.try_reserve(bytes)? {
            return Ok(());
        }
        self.space.take(bytes, &self.wake).await
    }

    /// Gives bytes back.
    pub(super) fn release(&self, bytes: usize) {
        self.space.give_back(bytes);
    }

    /// Freed bytes that were not given back yet.
    pub(super) fn freed_bytes(&self) -> usize {
        self.space.freed_bytes()
    }

    /// Gives back freed bytes.
    pub(super) fn release_freed(&self) {
        self.space.give_back_freed();
    }

    /// Whether the record's topic is known, and has the partition that the record names.
    pub(super) fn find_place(&self, record: &RecordRef<'_>) -> Appended<()> {
        let mut state = self.lock();
        let Some(at) = state.find(record.topic) else { return Appended::UnknownTopic };
        let topic = &mut state.topics[at];
        match record.partition {
            Some(partition) if topic.queue_for_records(partition).is_none() => {
                Appended::NoSuchPartition { partition, count: topic.partition_count() }
            }
            _ => Appended::Yes(()),
        }
    }

    /// Puts a record, whose bytes are reserved, into the last batch of its partition. `waiter` is enlisted if that
    /// succeeds.
    pub(super) fn append<W: Enlist>(
        &self,
        record: &RecordRef<'_>,
        timestamp: TimestampMs,
        reserved_bytes: usize,
        waiter: &mut W,
    ) -> Result<Appended<W::Handle>, ClientError> {
        let in_flight_max = self.in_flight_max();
        let mut guard = self.lock();
        let state = &mut *guard;
        if self.is_closed() {
            return Err(ClientError::Closed);
        }
        let Some(at) = state.find(record.topic) else { return Ok(Appended::UnknownTopic) };
        let topic = &mut state.topics[at];
        let (choice, left) = topic.place(record, reserved_bytes, &state.leaders.slow);
        if let Some(partition) = left {
            state.list(QueueKey { topic: at, partition });
            self.wake.notify_one();
        }
        let topic = &mut state.topics[at];
        let (Choice::Fixed(partition) | Choice::Sticky(partition)) = choice;
        let key = QueueKey { topic: at, partition };
        let count = topic.partition_count();
        let Some(queue) = topic.queue_for_records(partition) else {
            return Ok(Appended::NoSuchPartition { partition, count });
        };
        let (handle, look) = if let Some(open) = queue.open(reserved_bytes) {
            let handle = open.append(record, timestamp, reserved_bytes, waiter)?;
            self.even_out(open, self.shape.full_bytes / UNEVEN_PART);
            let goes = open.is_full() && queue.takes_off(in_flight_max);
            if goes {
                state.list(key);
            }
            (handle, goes)
        } else {
            if let Some(last) = queue.last() {
                self.even_out(last, 0);
            }
            let mut batch = state.new_batch(key, self.shape, reserved_bytes, || self.spare().pop());
            let handle = batch.append(record, timestamp, reserved_bytes, waiter)?;
            self.even_out(&mut batch, 0);
            let look = state.begin(batch, self.options.linger, in_flight_max);
            (handle, look || self.space.is_short())
        };
        if let Choice::Sticky(partition) = choice {
            state.topics[at].placed(partition, reserved_bytes);
        }
        drop(guard);
        if look {
            self.wake.notify_one();
        }
        Ok(Appended::Yes(handle))
    }

    /// Takes out the batches that may be sent now, at most one request for each node.
    pub(super) fn drain(&self, plan: &mut DrainPlan<'_>) -> Drained {
        let mut state = self.lock();
        let pressed = self.is_closed() || self.space.is_short();
        let fresh_allowed = plan.fresh_allowed && !self.is_id_spent();
        let rules = SendRules {
            now: plan.now,
            linger: self.options.linger,
            hurry_below: if pressed { u64::MAX } else { state.hurry_below },
            fresh_allowed,
            in_flight_max: self.in_flight_max(),
        };
        let mut drained = Drained::default();
        self.expire(&mut state, plan.now, &mut drained);
        let hurried = std::mem::take(&mut state.hurried);
        state.unpark(plan.now, pressed || hurried);
        let mut taken = self.drain_stalled(&mut state, plan, &rules, &mut drained);
        while let Some(key) = state.active.pop_front() {
            match self.drain_queue(&mut state, key, plan, &rules, &mut drained) {
                Visit::Taken => taken.push(key),
                Visit::Refused(node) => {
                    drained.more = true;
                    state.stall(key, Some(node));
                }
                Visit::Over => {}
            }
        }
        // Queues that got a batch into a request go behind those that did not.
        for key in taken {
            state.list_unless_empty(key);
        }
        let State { leaders, stalled, .. } = &mut *state;
        for node in plan.full {
            leaders.note(*node, false, plan.now, self.options.partitioner_availability_timeout);
        }
        leaders.keep(|node| stalled.contains_key(&node) || plan.full.contains(&node));
        drained.more |= !state.active.is_empty();
        state.counts.requests += drained.requests.len() as u64;
        drained.check_at(state.parked.peek().map(|Reverse((at, _))| *at));
        drained
    }

    /// Takes out the batches whose delivery timeout has expired. Visits all queues, and so not in every round.
    fn expire(&self, state: &mut State, now: Instant, drained: &mut Drained) {
        let timeout = self.options.delivery_timeout;
        let pause = (timeout / EXPIRY_LOOKS).clamp(Duration::from_millis(1), Duration::from_secs(1));
        if state.unresolved.is_empty() {
            state.expire_at = None;
            return;
        }
        let due = *state.expire_at.get_or_insert(now + pause) <= now;
        if due {
            state.expire_at = Some(now + pause);
            let mut broken = Vec::new();
            for queue in state.topics.iter_mut().flat_map(|topic| &mut topic.queues) {
                while let Some(expired) = queue.take_expired(now, timeout) {
                    if expired.stamp.is_some() {
                        queue.break_chain();
                        broken.push(expired.key);
                    }
                    drained.expired.push(expired);
                }
            }
            for key in broken {
                state.list_unless_empty(key);
            }
            // Stalled queues may be empty now, and then nothing waits for their leader any more.
            state.recall_all();
        }
        drained.check_at(state.expire_at);
    }

    /// Takes batches of stalled queues whose leaders accept requests again, until these are full, and returns the
    /// queues. The cost follows the taken batches, not the waiting ones.
    fn drain_stalled(
        &self,
        state: &mut State,
        plan: &mut DrainPlan<'_>,
        rules: &SendRules,
        drained: &mut Drained,
    ) -> Vec<QueueKey> {
        let mut taken = Vec::new();
        let nodes: Vec<NodeId> = state.stalled.keys().copied().collect();
        for node in nodes {
            if !self.takes(state, node, plan, drained) {
                continue;
            }
            let mut keys = state.stalled.remove(&node).unwrap_or_default();
            while let Some(key) = keys.pop_front() {
                match self.drain_queue(state, key, plan, rules, drained) {
                    Visit::Taken => taken.push(key),
                    Visit::Refused(full) => {
                        drained.more = true;
                        if full == node {
                            keys.push_front(key);
                            break;
                        }
                        // The partition has another leader by now.
                        state.stall(key, Some(full));
                    }
                    Visit::Over => {}
                }
            }
            state.stall_first(keys, node);
        }
        taken
    }

    /// Lists all stalled queues again: their leaders may have changed.
    pub(super) fn list_stalled(&self) {
        self.lock().recall_all();
    }

    /// Whether a node accepts another request. Asked once for each node and drain.
    fn takes(
        &self,
        state: &mut State,
        node: NodeId,
        plan: &mut DrainPlan<'_>,
        drained: &mut Drained,
    ) -> bool {
        *drained.rooms.entry(node).or_insert_with(|| {
            let takes = (plan.has_room)(node);
            let timeout = self.options.partitioner_availability_timeout;
            state.leaders.note(node, takes, plan.now, timeout);
            takes
        })
    }

    /// Takes at most one batch of this queue into its leader's request.
    fn drain_queue(
        &self,
        state: &mut State,
        key: QueueKey,
        plan: &mut DrainPlan<'_>,
        rules: &SendRules,
        drained: &mut Drained,
    ) -> Visit {
        let Some(queue) = state.queue(key) else { return Visit::Over };
        queue.listed = false;
        if state.topics[key.topic].is_missing(key.partition) {
            give_up_missing(state, key, drained);
            return Visit::Over;
        }
        let Some(queue) = state.queue(key) else { return Visit::Over };
        let spent = plan.producer.is_some_and(|(_, epoch)| !queue.mend(epoch));
        if spent {
            self.id_spent.store(true, Ordering::Relaxed);
        }
        let Some(queue) = state.queue(key) else { return Visit::Over };
        match queue.readiness(rules) {
            // A batch in flight lists the queue again when it comes back.
            Readiness::Empty | Readiness::Blocked => Visit::Over,
            Readiness::At(at) => {
                state.park(key, at);
                Visit::Over
            }
            Readiness::Now => {
                let name = &state.topics[key.topic].name;
                let leader = (plan.leader)(name, key.partition);
                if leader.is_none() {
                    drained.leaderless.insert(Arc::clone(name));
                }
                if let Some(node) = leader.filter(|node| self.takes(state, *node, plan, drained)) {
                    return self.take_into(state, key, node, plan.producer, drained);
                }
                state.stall(key, leader);
                Visit::Over
            }
        }
    }

    /// Takes a queue's next batch into a node's request, if that has room.
    fn take_into(
        &self,
        state: &mut State,
        key: QueueKey,
        node: NodeId,
        producer: Option<(ProducerId, ProducerEpoch)>,
        drained: &mut Drained,
    ) -> Visit {
        let Some(queue) = state.queue(key) else { return Visit::Over };
        let bytes = drained.bytes.entry(node).or_default();
        let batch_bytes = queue.next_size_bytes();
        if *bytes > 0 && *bytes + batch_bytes > self.options.request_bytes_max {
            return Visit::Refused(node);
        }
        *bytes += batch_bytes;
        let mut batch = queue.take(producer);
        if let Some(batch) = &mut batch {
            self.even_out(batch, 0);
        }
        drained.requests.entry(node).or_default().extend(batch);
        Visit::Taken
    }

    /// Adjusts a batch's share of the buffer to its memory, if they differ by more than `off_bytes`: each record came
    /// with room of its own, and the batch had some spare, or has grown.
    fn even_out(&self, batch: &mut Batch, off_bytes: usize) {
        let memory_bytes = batch.memory_bytes();
        if batch.reserved_bytes.abs_diff(memory_bytes) <= off_bytes {
            return;
        }
        match memory_bytes.checked_sub(batch.reserved_bytes) {
            Some(missing) => self.space.take_at_once(missing),
            None => self.space.free(batch.reserved_bytes - memory_bytes),
        }
        batch.reserved_bytes = memory_bytes;
    }

    /// Completes a batch that is not in flight any more. `broken`: its sequence numbers leave a gap. The callbacks of
    /// its records run after those of all earlier batches of the partition, without a lock.
    pub(super) fn complete(&self, batch: Batch, result: Result<BatchPlace, ClientError>, broken: bool) {
        let Some((first, others)) = self.end(Ended { batch, result }, broken) else { return };
        if !others.is_empty() {
            // Batches that wait behind them may go now.
            self.wake.notify_one();
        }
        for ended in std::iter::once(first).chain(others) {
            self.tell(ended);
        }
        // SYNC: told. Pairs with the acquire in `is_told`: all callbacks have returned.
        self.telling.store(NONE_TOLD, Ordering::Release);
        self.completed.notify_waiters();
    }

    /// Records the outcome of a batch. Returns the batches whose callbacks are due, this one first: none while an
    /// earlier one has no outcome.
    fn end(&self, ended: Ended, broken: bool) -> Option<(Ended, Vec<Ended>)> {
        let key = ended.batch.key;
        let mut state = self.lock();
        let queue = state.queue(key)?;
        queue.came_back(ended.batch.id);
        let is_delivered = ended.result.is_ok();
        if is_delivered {
            queue.confirm();
        }
        if broken {
            queue.break_chain();
        }
        let first = queue.end(ended);
        let others: Vec<Ended> = std::iter::from_fn(|| queue.next_ended()).collect();
        if is_delivered {
            state.trouble = None;
        }
        state.list_unless_empty(key);
        let first = first?;
        // SYNC: told. Stored before the batches leave `unresolved`, for readers under the same lock.
        self.telling.store(first.batch.id, Ordering::Relaxed);
        for ended in std::iter::once(&first).chain(&others) {
            state.leave(ended);
        }
        Some((first, others))
    }

    /// Calls the callbacks of a batch's records, and takes back its bytes.
    fn tell(&self, Ended { batch, result }: Ended) {
        let reserved_bytes = batch.reserved_bytes;
        let memory = batch.finish(result);
        self.space.free(reserved_bytes);
        if let Some(memory) = memory {
            self.keep(memory);
        }
    }

    /// Keeps the memory of a full batch for another.
    pub(super) fn keep(&self, memory: Spare) {
        if memory.buffer.capacity() < self.shape.full_bytes {
            return;
        }
        let wanted = self.space.lump_bytes() / memory.buffer.capacity().max(1);
        let mut spare = self.spare();
        if spare.len() < wanted.clamp(SPARE_BUFFERS, SPARE_BUFFERS_MAX) {
            spare.push(memory);
        }
    }

    /// Retries, splits or completes a batch that came back with this error, and returns whether its leader may have
    /// changed.
    pub(super) fn handle_error(&self, mut batch: Batch, error: ClientError, retry_at: Instant) -> bool {
        let verdict = verdict::of_error(&batch, &error, self.is_next(&batch), self.options.retries);
        tracing::debug!(%error, ?verdict, attempts = batch.attempts, "a batch came back");
        match verdict {
            Verdict::Delivered => {
                let place = BatchPlace { base_offset: None, append_time: None };
                self.complete(batch, Ok(place), false);
                false
            }
            Verdict::Split => {
                batch.last_error = Some(error);
                self.split(batch);
                false
            }
            Verdict::Again { broken } => {
                let moved = error.kind() == ErrorKind::Retry;
                self.set_trouble(error.clone());
                batch.last_error = Some(error);
                self.retry(batch, retry_at, broken);
                moved
            }
            Verdict::Failed { broken } => {
                self.complete(batch, Err(error), broken);
                false
            }
        }
    }

    /// Replaces a batch that the server finds too large by its halves.
    fn split(&self, batch: Batch) {
        let (id, key) = (batch.id, batch.key);
        let parts = match batch.split() {
            Ok(parts) => parts,
            Err(failed) => {
                let (batch, error) = *failed;
                let broken = batch.stamp.is_some();
                return self.complete(batch, Err(error.into()), broken);
            }
        };
        let mut state = self.lock();
        state.counts.batches_split += 1;
        state.unresolved.remove(&id);
        state.unresolved.extend(parts.iter().map(|part| part.id));
        let now = Instant::now();
        if let Some(queue) = state.queue(key) {
            queue.came_back(id);
            for part in parts {
                queue.put_back(part, now);
            }
        }
        state.list(key);
    }

    /// Queues a batch again that came back. `broken`: its sequence has to begin again first.
    fn retry(&self, batch: Batch, retry_at: Instant, broken: bool) {
        let mut state = self.lock();
        state.counts.batches_retried += 1;
        state.counts.records_retried += u64::try_from(batch.record_count()).unwrap_or_default();
        let key = batch.key;
        let Some(queue) = state.queue(key) else { return };
        queue.came_back(batch.id);
        queue.put_back(batch, retry_at);
        if broken {
            queue.break_chain();
        }
        state.list(key);
    }

    /// True if the server expects this batch's sequence numbers, as far as is known.
    fn is_next(&self, batch: &Batch) -> bool {
        self.lock().queue(batch.key).is_some_and(|queue| queue.is_next(batch.id))
    }

    /// True if the producer needs a new id.
    pub(super) fn is_id_spent(&self) -> bool {
        self.id_spent.load(Ordering::Relaxed)
    }

    /// True if a new producer id could be used now without duplicating a record.
    pub(super) fn allows_new_id(&self) -> bool {
        self.lock().topics.iter().all(|topic| topic.queues.iter().all(PartitionQueue::allows_new_id))
    }

    /// Begins every sequence again, under a new producer id.
    pub(super) fn restart_sequences(&self) {
        let mut state = self.lock();
        self.id_spent.store(false, Ordering::Relaxed);
        state.topics.iter_mut().flat_map(|topic| &mut topic.queues).for_each(PartitionQueue::restart);
        state.list_all();
    }

    /// Takes out all waiting batches, to fail them.
    pub(super) fn take_all(&self) -> Vec<Batch> {
        let mut state = self.lock();
        state
            .topics
            .iter_mut()
            .flat_map(|topic| &mut topic.queues)
            .flat_map(PartitionQueue::take_all)
            .collect()
    }

    /// Names of the topics that have something to send.
    pub(super) fn active_topics(&self) -> BTreeSet<Arc<str>> {
        let state = self.lock();
        let waits = |topic: &&Topic| topic.queues.iter().any(|queue| !queue.is_empty());
        state.topics.iter().filter(waits).map(|topic| Arc::clone(&topic.name)).collect()
    }

    /// Sends all batches without lingering, and waits until all have their outcome.
    pub(super) async fn flush(&self) {
        let target = {
            let mut state = self.lock();
            state.hurry_below = state.next_batch;
            state.hurried = true;
            state.next_batch
        };
        self.wake.notify_one();
        loop {
            let mut completed = std::pin::pin!(self.completed.notified());
            completed.as_mut().enable();
            if self.is_told(target) {
                return;
            }
            completed.await;
        }
    }

    /// True if every batch before this one has its outcome, and its callbacks have returned.
    fn is_told(&self, target: u64) -> bool {
        let completed = self.lock().unresolved.first().is_none_or(|first| *first >= target);
        // SYNC: told. Pairs with the stores in `complete` and `end`.
        let is_told = completed && self.telling.load(Ordering::Acquire) >= target;
        // SYNC: ended. Pairs with the release in `end_of_sender`.
        is_told || self.ended.load(Ordering::Acquire)
    }

    /// Stores the last obstacle of any record.
    pub(super) fn set_trouble(&self, error: ClientError) {
        self.lock().trouble = Some(Arc::new(error));
    }

    /// The last obstacle of any record since one was delivered.
    pub(super) fn trouble(&self) -> Option<Arc<ClientError>> {
        self.lock().trouble.clone()
    }

    /// Updates the counts.
    pub(super) fn count(&self, count: impl FnOnce(&mut ProducerMetrics)) {
        count(&mut self.lock().counts);
    }

    /// Counts of the work so far.
    pub(super) fn metrics(&self) -> ProducerMetrics {
        let state = self.lock();
        ProducerMetrics {
            buffer_bytes: self.options.buffer_bytes,
            buffer_free_bytes: self.space.free_bytes(),
            senders_waiting: self.space.waiting(),
            buffer_wait_us: self.space.wait_us(),
            batches_waiting: state.unresolved.len(),
            ..state.counts
        }
    }

    /// Takes no more records.
    pub(super) fn close(&self) {
        // SYNC: closed. Pairs with the acquire in `is_closed`.
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Takes no more records, and makes the sender task fail the waiting ones.
    pub(super) fn abandon(&self) {
        // SYNC: abandoned. Pairs with the acquire in `is_abandoned`.
        self.abandoned.store(true, Ordering::Release);
        self.close();
    }

    /// Fails waiting batches, and takes no more records: the sender task has ended. Batches in flight have failed by
    /// themselves.
    pub(super) fn end_of_sender(&self) {
        self.close();
        self.space.close();
        let left = {
            let mut state = self.lock();
            let queues = state.topics.iter_mut().flat_map(|topic| &mut topic.queues);
            let left: Vec<Ended> = queues.flat_map(PartitionQueue::end_all).collect();
            // SYNC: told. Stored before the batches leave `unresolved`; `ended` is set after all callbacks.
            self.telling.store(0, Ordering::Relaxed);
            for ended in &left {
                state.leave(ended);
            }
            left
        };
        for ended in left {
            self.tell(ended);
        }
        // Batches in flight have called their callbacks themselves.
        self.lock().unresolved.clear();
        // SYNC: ended. Pairs with the acquire in `is_told`: all possible callbacks have returned.
        self.ended.store(true, Ordering::Release);
        self.completed.notify_waiters();
    }

    /// True if waiting batches are not to be sent any more.
    pub(super) fn is_abandoned(&self) -> bool {
        // SYNC: abandoned. Pairs with the release in `abandon`.
        self.abandoned.load(Ordering::Acquire)
    }

    /// True if no more records can come and all batches have their outcome.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.lock().unresolved.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        // SYNC: closed. Pairs with the release in `close`. A thread that sees it and then takes the state's lock
        // makes it visible to every later append under that lock.
        self.closed.load(Ordering::Acquire)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out the batches of a partition that is certainly gone. Until then they wait as for a leader, and the
/// metadata is requested repeatedly.
fn give_up_missing(state: &mut State, key: QueueKey, drained: &mut Drained) {
    let is_sure = state.topics[key.topic].gives_up_missing();
    let Some(queue) = state.queue(key).filter(|queue| !queue.is_empty()) else { return };
    if is_sure {
        drained.gone.extend(queue.take_all());
    } else {
        state.stall(key, None);
        drained.leaderless.insert(Arc::clone(&state.topics[key.topic].name));
    }
}

#[cfg(test)]
mod tests;
