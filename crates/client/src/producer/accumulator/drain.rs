//! The batches that the sender task takes out of the accumulator: one request for each node that accepts one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use riverrun_types::{NodeId, ProducerEpoch, ProducerId};
use tokio::time::Instant;

use super::Accumulator;
use super::state::State;
use crate::producer::batch::{Batch, QueueKey};
use crate::producer::queue::{Readiness, SendRules};

/// How often expired batches are searched within the delivery timeout.
const EXPIRY_LOOKS: u32 = 16;

/// The batches that the sender task takes out at once.
#[derive(Debug, Default)]
pub(in crate::producer) struct Drained {
    /// One request for each node, with at most one batch for each partition.
    pub(in crate::producer) requests: BTreeMap<NodeId, Vec<Batch>>,
    /// Batches whose delivery timeout has expired.
    pub(in crate::producer) expired: Vec<Batch>,
    /// Batches for partitions that do not exist any more.
    pub(in crate::producer) gone: Vec<Batch>,
    /// Topics with a batch to send and no known leader.
    pub(in crate::producer) leaderless: BTreeSet<Arc<str>>,
    /// When to drain again, if no event comes before.
    pub(in crate::producer) next_check: Option<Instant>,
    /// True if more can be drained at once.
    pub(in crate::producer) more: bool,
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
pub(in crate::producer) struct DrainPlan<'a> {
    pub(in crate::producer) now: Instant,
    /// The producer id, with idempotence.
    pub(in crate::producer) producer: Option<(ProducerId, ProducerEpoch)>,
    /// Whether batches that have no sequence number may be sent.
    pub(in crate::producer) fresh_allowed: bool,
    /// Leader of a partition.
    pub(in crate::producer) leader: &'a mut dyn FnMut(&str, i32) -> Option<NodeId>,
    /// Whether the node accepts another request.
    pub(in crate::producer) has_room: &'a mut dyn FnMut(NodeId) -> bool,
    /// Nodes with as many requests in flight as allowed. Queues that wait for them are listed nowhere while each of
    /// their partitions has that many in flight, too.
    pub(in crate::producer) full: &'a [NodeId],
}

impl Accumulator {
    /// Takes out the batches that may be sent now, at most one request for each node.
    pub(in crate::producer) fn drain(&self, plan: &mut DrainPlan<'_>) -> Drained {
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
    pub(in crate::producer) fn list_stalled(&self) {
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
