//! Records on their way: one queue of batches for each partition, and the memory that they may take.
//!
//! Owns the topics that the producer has met, the bound on buffered bytes, and the question when everything up to
//! a point is settled. Senders append under one short lock; the sender task takes whole batches out.

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

/// The memory of so many full batches is kept for the next ones at least; of more where more are done at once.
const SPARE_BUFFERS: usize = 8;

/// And of so many at most, however small they are: none of it counts as taken from the producer's buffer.
const SPARE_BUFFERS_MAX: usize = 256;

/// An open batch may hold so much more of the buffer than it takes memory, as a part of a full one: to be exact with each record
/// would cost more than it is worth.
const UNEVEN_PART: usize = 4;

/// What `telling` is while nobody is told.
const NOBODY: u64 = u64::MAX;

/// Looks for batches that were tried for too long in the time that they are tried for.
const EXPIRY_LOOKS: u32 = 16;

/// What an append comes to.
#[derive(Debug)]
pub(super) enum Appended<H> {
    /// The record is in a batch.
    Yes(H),
    /// The topic has not been learnt.
    UnknownTopic,
    /// The topic has only so many partitions, as far as is known, and this is none of them.
    NoSuchPartition { partition: i32, count: i32 },
}

/// What the sender takes out in one go.
#[derive(Debug, Default)]
pub(super) struct Drained {
    /// One request for each node, with at most one batch for each partition.
    pub(super) requests: BTreeMap<NodeId, Vec<Batch>>,
    /// Batches that were tried for too long.
    pub(super) expired: Vec<Batch>,
    /// Batches for partitions that are there no more.
    pub(super) gone: Vec<Batch>,
    /// Topics with a batch to send and no known leader.
    pub(super) leaderless: BTreeSet<Arc<str>>,
    /// When there may be more, if nothing happens before.
    pub(super) next_check: Option<Instant>,
    /// Whether there may be more at once.
    pub(super) more: bool,
    /// Bytes of each node's request.
    bytes: BTreeMap<NodeId, usize>,
    /// Whether a node takes a request, as far as it was asked.
    rooms: BTreeMap<NodeId, bool>,
}

impl Drained {
    fn check_at(&mut self, at: Option<Instant>) {
        self.next_check = self.next_check.into_iter().chain(at).min();
    }
}

/// What came of a look at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// A batch was taken; the next may be ready, too.
    Taken,
    /// A batch is ready, and the request for this node has no room for it.
    Refused(NodeId),
    /// None is ready, or none can be taken for now.
    Over,
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
    /// Nodes that take none because as many as may be are under way. What waits for them is in no list while each partition
    /// has that many under way, too.
    pub(super) full: &'a [NodeId],
}

/// The producer's buffer.
///
/// What is asked for with each turn of the sender stands apart from the state: its lock is taken for each record, and who
/// waits for it sleeps.
///
/// Invariants: `space` holds what no batch has; a batch's bytes are freed with its outcome. Once `closed` is set, no record
/// comes that was not in the state at the next look at it. `ended` is set when the sender task is gone. `spare` is memory of
/// full batches. `id_spent` tells whether some partition has no epoch left, so that the producer needs another id. `telling`
/// is the first of the batches that have left `unresolved` while somebody is still being told of their outcomes: those of
/// one call at most, for only the sender task settles.
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
    /// Tells the sender that there is something to look at.
    pub(super) wake: Notify,
    settled: Notify,
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
            telling: AtomicU64::new(NOBODY),
            spare: Mutex::default(),
            wake: Notify::new(),
            settled: Notify::new(),
            options,
        }
    }

    /// Batches of one partition that may be under way at once.
    fn in_flight_max(&self) -> usize {
        self.options.cluster.in_flight_max.min(IN_FLIGHT_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a topic and its partitions known, as the cluster said when it was asked at `asked_at`, or at some time. Choices
    /// at random follow from `seed` if it is new. Answers whether all partitions with something to send have a leader.
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
            // What was chosen so far may be gone, and what waits there is not to wait for long.
            state.topics[place].set_partitioner(self.options.partitioner.for_topic(&self.options, seed));
            state.recall_all();
            state.list_topic(place);
            self.wake.notify_one();
        }
        !state.topics[place].waits_for_leader()
    }

    /// Takes room for a record of so many bytes, and says whether there was. The caller gives it back with
    /// [`release`](Self::release), or leaves it to the batch that takes the record.
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

    /// Bytes that were freed and not given back yet.
    pub(super) fn freed_bytes(&self) -> usize {
        self.space.freed_bytes()
    }

    /// Gives back what was freed.
    pub(super) fn release_freed(&self) {
        self.space.give_back_freed();
    }

    /// Whether there is a place for a record, as far as it says itself where it goes.
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

    /// Takes out what may be sent now, at most one request for each node.
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
        let mut taken = self.drain_held(&mut state, plan, &rules, &mut drained);
        while let Some(key) = state.active.pop_front() {
            match self.drain_queue(&mut state, key, plan, &rules, &mut drained) {
                Turn::Taken => taken.push(key),
                Turn::Refused(node) => {
                    drained.more = true;
                    state.hold(key, Some(node));
                }
                Turn::Over => {}
            }
        }
        // Whoever gets a batch into a request goes behind those that did not.
        for key in taken {
            state.list_unless_empty(key);
        }
        let State { leaders, held, .. } = &mut *state;
        for node in plan.full {
            leaders.note(*node, false, plan.now, self.options.partitioner_availability_timeout);
        }
        leaders.keep(|node| held.contains_key(&node) || plan.full.contains(&node));
        drained.more |= !state.active.is_empty();
        state.counts.requests += drained.requests.len() as u64;
        drained.check_at(state.parked.peek().map(|Reverse((at, _))| *at));
        drained
    }

    /// Takes out the batches that were tried for too long. Looks at all queues, and so not at every turn.
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
            // What was set aside may be empty now, and then nobody waits for its leader any more.
            state.recall_all();
        }
        drained.check_at(state.expire_at);
    }

    /// Takes what was set aside for leaders that take something again, until their requests are full, and answers of which
    /// queues. So a look costs what it takes, and not what waits.
    fn drain_held(
        &self,
        state: &mut State,
        plan: &mut DrainPlan<'_>,
        rules: &SendRules,
        drained: &mut Drained,
    ) -> Vec<QueueKey> {
        let mut taken = Vec::new();
        let nodes: Vec<NodeId> = state.held.keys().copied().collect();
        for node in nodes {
            if !self.takes(state, node, plan, drained) {
                continue;
            }
            let mut keys = state.held.remove(&node).unwrap_or_default();
            while let Some(key) = keys.pop_front() {
                match self.drain_queue(state, key, plan, rules, drained) {
                    Turn::Taken => taken.push(key),
                    Turn::Refused(full) => {
                        drained.more = true;
                        if full == node {
                            keys.push_front(key);
                            break;
                        }
                        // Another leads it by now.
                        state.hold(key, Some(full));
                    }
                    Turn::Over => {}
                }
            }
            state.hold_first(keys, node);
        }
        taken
    }

    /// Has all that was set aside looked at again: the leaders may be others by now.
    pub(super) fn list_held(&self) {
        self.lock().recall_all();
    }

    /// Whether a node takes another request. It is asked once in a look.
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
    ) -> Turn {
        let Some(queue) = state.queue(key) else { return Turn::Over };
        queue.listed = false;
        if state.topics[key.topic].is_missing(key.partition) {
            give_up_missing(state, key, drained);
            return Turn::Over;
        }
        let Some(queue) = state.queue(key) else { return Turn::Over };
        let spent = plan.producer.is_some_and(|(_, epoch)| !queue.mend(epoch));
        if spent {
            self.id_spent.store(true, Ordering::Relaxed);
        }
        let Some(queue) = state.queue(key) else { return Turn::Over };
        match queue.readiness(rules) {
            // What is under way lists the queue again when it comes back.
            Readiness::Empty | Readiness::Blocked => Turn::Over,
            Readiness::At(at) => {
                state.park(key, at);
                Turn::Over
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
                state.hold(key, leader);
                Turn::Over
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
    ) -> Turn {
        let Some(queue) = state.queue(key) else { return Turn::Over };
        let bytes = drained.bytes.entry(node).or_default();
        let batch_bytes = queue.next_size_bytes();
        if *bytes > 0 && *bytes + batch_bytes > self.options.request_bytes_max {
            return Turn::Refused(node);
        }
        *bytes += batch_bytes;
        let mut batch = queue.take(producer);
        if let Some(batch) = &mut batch {
            self.even_out(batch, 0);
        }
        drained.requests.entry(node).or_default().extend(batch);
        Turn::Taken
    }

    /// Has a batch hold as much of the buffer as it takes memory, if it is off by more than so many bytes: each record came
    /// with room of its own, and the batch had some for it, or has grown.
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

    /// Ends a batch that is not under way any more. `broken`: its sequence numbers leave a gap. Its records' senders are told
    /// when those of all earlier batches of the partition have been, and nothing is locked meanwhile.
    pub(super) fn settle(&self, batch: Batch, result: Result<BatchPlace, ClientError>, broken: bool) {
        let Some((first, others)) = self.end(Ended { batch, result }, broken) else { return };
        if !others.is_empty() {
            // What waits behind them may go now.
            self.wake.notify_one();
        }
        for ended in std::iter::once(first).chain(others) {
            self.tell(ended);
        }
        // SYNC: told. Pairs with the acquire in `is_told`: whoever was told has done what it does.
        self.telling.store(NOBODY, Ordering::Release);
        self.settled.notify_waiters();
    }

    /// Takes in that a batch has its outcome, and hands out those whose turn it is to be told by that, itself first: none
    /// while an earlier one has no outcome.
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
        // SYNC: told. Before it is seen that the batches have left, by who looks under the same lock.
        self.telling.store(first.batch.id, Ordering::Relaxed);
        for ended in std::iter::once(&first).chain(&others) {
            state.leave(ended);
        }
        Some((first, others))
    }

    /// Tells the senders of a batch's records, and takes back what it held.
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

    /// Decides what becomes of a batch that came back with this error, and says whether its leader may be another now.
    pub(super) fn settle_error(&self, mut batch: Batch, error: ClientError, retry_at: Instant) -> bool {
        let verdict = verdict::of_error(&batch, &error, self.is_next(&batch), self.options.retries);
        tracing::debug!(%error, ?verdict, attempts = batch.attempts, "a batch came back");
        match verdict {
            Verdict::Delivered => {
                let place = BatchPlace { base_offset: None, append_time: None };
                self.settle(batch, Ok(place), false);
                false
            }
            Verdict::Split => {
                batch.last_error = Some(error);
                self.split(batch);
                false
            }
            Verdict::Again { broken } => {
                let moved = error.kind() == ErrorKind::Retry;
                self.note_trouble(error.clone());
                batch.last_error = Some(error);
                self.retry(batch, retry_at, broken);
                moved
            }
            Verdict::Failed { broken } => {
                self.settle(batch, Err(error), broken);
                false
            }
        }
    }

    /// Puts the halves of a batch that the server finds too large in its place.
    fn split(&self, batch: Batch) {
        let (id, key) = (batch.id, batch.key);
        let parts = match batch.split() {
            Ok(parts) => parts,
            Err(failed) => {
                let (batch, error) = *failed;
                let broken = batch.stamp.is_some();
                return self.settle(batch, Err(error.into()), broken);
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

    /// Puts a batch that came back in line again. `broken`: its sequence has to begin again first.
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

    /// Whether the server expects this batch's sequence numbers, as far as is known.
    fn is_next(&self, batch: &Batch) -> bool {
        self.lock().queue(batch.key).is_some_and(|queue| queue.is_next(batch.id))
    }

    /// Whether the producer needs a new id.
    pub(super) fn is_id_spent(&self) -> bool {
        self.id_spent.load(Ordering::Relaxed)
    }

    /// Whether a new producer id could be taken now without doubling a record.
    pub(super) fn is_settled(&self) -> bool {
        self.lock().topics.iter().all(|topic| topic.queues.iter().all(PartitionQueue::is_settled))
    }

    /// Begins every sequence again, under a new producer id.
    pub(super) fn restart_sequences(&self) {
        let mut state = self.lock();
        self.id_spent.store(false, Ordering::Relaxed);
        state.topics.iter_mut().flat_map(|topic| &mut topic.queues).for_each(PartitionQueue::restart);
        state.list_all();
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

    /// Names of the topics that have something to send.
    pub(super) fn active_topics(&self) -> BTreeSet<Arc<str>> {
        let state = self.lock();
        let waits = |topic: &&Topic| topic.queues.iter().any(|queue| !queue.is_empty());
        state.topics.iter().filter(waits).map(|topic| Arc::clone(&topic.name)).collect()
    }

    /// Sends what is here now without lingering, and waits until all of it has its outcome.
    pub(super) async fn flush(&self) {
        let target = {
            let mut state = self.lock();
            state.hurry_below = state.next_batch;
            state.hurried = true;
            state.next_batch
        };
        self.wake.notify_one();
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.is_told(target) {
                return;
            }
            settled.await;
        }
    }

    /// Whether every batch before this one has its outcome, and whoever is told of it has been.
    fn is_told(&self, target: u64) -> bool {
        let settled = self.lock().unresolved.first().is_none_or(|first| *first >= target);
        // SYNC: told. Pairs with the stores in `settle` and `end`.
        let is_told = settled && self.telling.load(Ordering::Acquire) >= target;
        // SYNC: ended. Pairs with the release in `end_of_sender`.
        is_told || self.ended.load(Ordering::Acquire)
    }

    /// Notes what stands in the way of records.
    pub(super) fn note_trouble(&self, error: ClientError) {
        self.lock().trouble = Some(Arc::new(error));
    }

    /// What has stood in the way of whatever record since one was delivered last.
    pub(super) fn trouble(&self) -> Option<Arc<ClientError>> {
        self.lock().trouble.clone()
    }

    /// Has something counted.
    pub(super) fn count(&self, count: impl FnOnce(&mut ProducerMetrics)) {
        count(&mut self.lock().counts);
    }

    /// What has happened so far, in numbers.
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

    /// Takes no more records, and has the sender fail those that wait.
    pub(super) fn abandon(&self) {
        // SYNC: abandoned. Pairs with the acquire in `is_abandoned`.
        self.abandoned.store(true, Ordering::Release);
        self.close();
    }

    /// Fails what waits, and takes nothing more: nobody sends any longer. What was under way has failed by itself.
    pub(super) fn end_of_sender(&self) {
        self.close();
        self.space.close();
        let left = {
            let mut state = self.lock();
            let queues = state.topics.iter_mut().flat_map(|topic| &mut topic.queues);
            let left: Vec<Ended> = queues.flat_map(PartitionQueue::end_all).collect();
            // SYNC: told. Before it is seen that the batches have left; `ended` says when all were told.
            self.telling.store(0, Ordering::Relaxed);
            for ended in &left {
                state.leave(ended);
            }
            left
        };
        for ended in left {
            self.tell(ended);
        }
        // Those that were under way told their records themselves.
        self.lock().unresolved.clear();
        // SYNC: ended. Pairs with the acquire in `is_told`: what could be told has been.
        self.ended.store(true, Ordering::Release);
        self.settled.notify_waiters();
    }

    /// Whether nothing that waits is to be sent any more.
    pub(super) fn is_abandoned(&self) -> bool {
        // SYNC: abandoned. Pairs with the release in `abandon`.
        self.abandoned.load(Ordering::Acquire)
    }

    /// Whether nothing will come any more and everything has its outcome.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.lock().unresolved.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        // SYNC: closed. Pairs with the release in `close`. Who saw it before a look at the state has those who append after
        // that look see it, too: they take the same lock.
        self.closed.load(Ordering::Acquire)
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out what waits for a partition that is gone, if that is sure. Until then it waits as for a leader: somebody is asked
/// again and again whether it is.
fn give_up_missing(state: &mut State, key: QueueKey, drained: &mut Drained) {
    let is_sure = state.topics[key.topic].gives_up_missing();
    let Some(queue) = state.queue(key).filter(|queue| !queue.is_empty()) else { return };
    if is_sure {
        drained.gone.extend(queue.take_all());
    } else {
        state.hold(key, None);
        drained.leaderless.insert(Arc::clone(&state.topics[key.topic].name));
    }
}

#[cfg(test)]
mod tests;
