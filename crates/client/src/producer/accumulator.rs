//! The record accumulator: one queue of batches for each partition, and the memory that they may take.
//!
//! Owns the topics that the producer has met, the bound on buffered bytes, and the answer to when all batches up to a
//! point are complete. Senders append under one short lock; the sender task takes whole batches out (`drain.rs`) and
//! reports their outcomes (`outcomes.rs`).

mod drain;
mod outcomes;
mod space;
mod state;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use riverrun_types::TimestampMs;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) use self::drain::{DrainPlan, Drained};
use self::space::Space;
use self::state::State;
use super::batch::{Batch, BatchShape, QueueKey, Spare};
use super::listener::Enlist;
use super::metrics::ProducerMetrics;
use super::options::ProducerOptions;
use super::partitioner::Choice;
use super::queue::{IN_FLIGHT_MAX, PartitionQueue};
use super::record::RecordRef;
use super::topics::Topic;
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

#[cfg(test)]
mod tests;
