//! The host of a state machine whose shards lie in the partitions of a topic: it loads them, appends their records, sends
//! their replies, and keeps their time.
//!
//! Guarantees that a reply is sent only after the records of its step, and of every step before it on the same shard, are
//! in the log as durably as the topic asks; the next steps do not wait for that. If an append fails, or what was appended
//! is lost, the shard is ahead of its log: it is discarded, what waits for it is answered with `NOT_COORDINATOR`, and
//! requests are refused for a while before one of them loads it again, the longer the more often it has failed in a row. A
//! shard in trouble holds back none of the others, and neither does a part of one with which a request has much to do.
//!
//! [`StateMachine`] is what is hosted; [`ShardHost`] knows nothing else of it. The group coordinator is one.

mod at_length;
mod batches;
mod clock;
mod held;
pub(crate) mod line;
mod loading;
mod machine;
mod names;
mod replay;
mod requests;
mod rest;
mod slot;
mod timer;
mod unappended;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::MutexGuard;
use riverrun_coordinator::Now;
use riverrun_log::{AppendError, LogError};
use riverrun_protocol::ErrorCode;
use tokio::sync::{Semaphore, oneshot};

pub(crate) use self::at_length::Work;
use self::held::{Release, Unanswered};
pub(crate) use self::line::Asker;
pub(crate) use self::machine::{HostOptions, LentPart, Reply, ShardRecord, ShardTopic, StateMachine, Step};
pub(crate) use self::names::shard_of;
pub(crate) use self::requests::Begun;
use self::slot::{Loaded, Slot, SlotState};

/// How many shards are read at once for requests that ask for all of them: each takes one of the threads that may block.
const READS_MAX: usize = 4;

/// All shards of a state machine.
///
/// Invariants: there is one slot for each partition of the topic, whose number never changes once the first shard was
/// asked for.
#[derive(Debug)]
pub(crate) struct ShardHost<M: StateMachine> {
    this: Weak<Self>,
    options: Arc<HostOptions>,
    world: M::World,
    slots: OnceLock<Vec<Arc<Slot<M>>>>,
    unanswered: Unanswered<M::Response>,
    next_token: AtomicU64,
    /// Permits to read a shard for a request that asks for all of them.
    turns: Semaphore,
    alarm: timer::Alarm,
}

impl<M: StateMachine> ShardHost<M> {
    pub(crate) fn new(options: HostOptions, world: M::World) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            options: Arc::new(options),
            world,
            slots: OnceLock::new(),
            unanswered: Unanswered::default(),
            next_token: AtomicU64::new(0),
            turns: Semaphore::new(READS_MAX),
            alarm: timer::Alarm::default(),
        })
    }

    /// The state that the machines share.
    pub(crate) fn world(&self) -> &M::World {
        &self.world
    }

    /// How many shards there are: none while the topic does not exist.
    pub(crate) fn shard_count(&self) -> usize {
        self.all_slots().len()
    }

    /// The cost of a request for this part now; 0 if its shard is not loaded.
    pub(crate) fn cost(&self, key: &str, cost: impl Fn(&M) -> usize) -> usize {
        let Some(slot) = self.slot_of(key) else { return 0 };
        slot.state.lock().loaded().map_or(0, |loaded| cost(&loaded.machine))
    }

    /// Shows the shards that are loaded, in slices: between two of them steps that wait for the shard's lock come
    /// first. A look answers where in the shard the next one goes on.
    pub(crate) fn show_slices<P, T>(
        &self,
        look: impl Fn(&M, Option<P>) -> (T, Option<P>),
        mut show: impl FnMut(T),
    ) {
        for slot in self.known_slots() {
            let mut place = None;
            loop {
                let state = slot.state.lock();
                let Some(loaded) = state.loaded() else { break };
                let (slice, next) = look(&loaded.machine, place);
                MutexGuard::unlock_fair(state);
                show(slice);
                place = next;
                if place.is_none() {
                    break;
                }
            }
        }
    }

    /// A shard that could not be loaded or not append, and has not been since; and why.
    pub(crate) fn failed_shard(&self) -> Option<(usize, String)> {
        self.known_slots().iter().find_map(|slot| Some((slot.index, slot.failure()?)))
    }

    /// A shard whose log holds more than the bounds of the machines allow, and how many of its records were left out.
    pub(crate) fn cut_shard(&self) -> Option<(usize, u64)> {
        let left_out = |slot: &Slot<M>| slot.state.lock().loaded().map_or(0, |loaded| loaded.left_out);
        let shards = self.known_slots().iter();
        shards.map(|slot| (slot.index, left_out(slot))).find(|(_, count)| *count > 0)
    }

    /// Why the shard of this part takes no changes, if it has failed.
    pub(crate) fn failure_of(&self, key: &str) -> Option<String> {
        self.slot_of(key)?.failure()
    }

    /// Whether records of the shard of this part have waited for the disk for long.
    pub(crate) fn is_stuck(&self, key: &str) -> bool {
        self.slot_of(key).is_some_and(|slot| slot.is_stuck())
    }

    /// One step of a shard: state changes, records go to the log, replies and the notice go out when they are durable, and
    /// the timer learns of the next deadline. All under the shard's lock, so that records and replies keep the order of
    /// the steps; and without a wait for the disk, so that nobody waits for it who wants the lock.
    pub(crate) fn step(
        &self,
        index: usize,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut M, Now) -> Step<M::Response>,
    ) -> Result<(), ErrorCode> {
        let slot = self.slot(index)?;
        self.step_on(slot, &mut slot.state(), notice, run)
    }

    fn step_on(
        &self,
        slot: &Arc<Slot<M>>,
        state: &mut SlotState<M>,
        notice: Option<oneshot::Sender<()>>,
        run: impl FnOnce(&mut M, Now) -> Step<M::Response>,
    ) -> Result<(), ErrorCode> {
        let loaded = state.loaded_mut().ok_or(ErrorCode::NOT_COORDINATOR)?;
        let step = run(&mut loaded.machine, self.options.now());
        loaded.machine.on_step(&self.world);
        let appends = batches::encode_step(&self.options, &step.records).map_err(AppendError::from);
        if let Err(error) = appends.and_then(|appends| self.append(slot, loaded, appends)) {
            return Err(self.discard(slot, state, &error));
        }
        self.end_step(slot, loaded, step.replies, notice);
        Ok(())
    }

    /// The end of a step whose records the log has taken, or that wait for it to be opened.
    fn end_step(
        &self,
        slot: &Slot<M>,
        loaded: &mut Loaded<M>,
        replies: Vec<Reply<M::Response>>,
        notice: Option<oneshot::Sender<()>>,
    ) {
        loaded.machine.on_appended();
        if let Some(deadline) = loaded.machine.next_deadline() {
            self.alarm.set(deadline);
        }
        let replies = self.addressed(replies);
        slot.release(loaded, Release { replies, notices: notice.into_iter().collect() });
    }

    /// Discards a shard that is ahead of its log, with all who wait for it.
    fn discard(&self, slot: &Slot<M>, state: &mut SlotState<M>, error: &AppendError) -> ErrorCode {
        let why = match (error, state.loaded()) {
            (AppendError::Storage(LogError::Lost(_)), Some(loaded)) => slot.lost(&loaded.partition),
            _ => error.to_string(),
        };
        self.discard_because(slot, state, &why);
        crate::error::coordinator_append_error(error)
    }

    /// Discards a shard for this reason, and answers all who wait for a reply of it.
    fn discard_because(&self, slot: &Slot<M>, state: &mut SlotState<M>, why: &dyn std::fmt::Display) {
        slot.fail(state, why);
        self.unanswered.lock().retain(|_, waiting| waiting.shard != slot.index);
    }

    /// Replies with those who wait for them. Nobody waits any more for one whose client has given up.
    fn addressed(
        &self,
        replies: Vec<Reply<M::Response>>,
    ) -> Vec<(oneshot::Sender<M::Response>, M::Response)> {
        let mut unanswered = self.unanswered.lock();
        let waiting = replies.into_iter().map(|reply| (unanswered.remove(&reply.token), reply.body));
        waiting.filter_map(|(waiting, body)| Some((waiting?.reply, body))).collect()
    }

    fn slot(&self, index: usize) -> Result<&Arc<Slot<M>>, ErrorCode> {
        self.known_slots().get(index).ok_or(ErrorCode::NOT_COORDINATOR)
    }

    /// The slot that a part belongs to, if any was asked for.
    fn slot_of(&self, key: &str) -> Option<&Arc<Slot<M>>> {
        let slots = self.known_slots();
        slots.get(shard_of(key, slots.len()))
    }

    /// All slots once one was asked for.
    fn known_slots(&self) -> &[Arc<Slot<M>>] {
        self.slots.get().map_or(&[], Vec::as_slice)
    }

    fn open_slots(&self) -> Result<&[Arc<Slot<M>>], ErrorCode> {
        if let Some(slots) = self.slots.get() {
            return Ok(slots);
        }
        let count = self.world.partition_count().ok_or(ErrorCode::NOT_COORDINATOR)?;
        let make = |index| Arc::new(Slot::new(index, &self.unanswered, &self.options));
        Ok(self.slots.get_or_init(|| (0..count).map(make).collect()))
    }

    /// All slots; none while the topic does not exist.
    fn all_slots(&self) -> &[Arc<Slot<M>>] {
        self.open_slots().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
