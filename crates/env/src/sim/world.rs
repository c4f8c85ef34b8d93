//! Several simulated machines, stepped one part at a time in an order that follows from one seed.
//!
//! A *part* is a task or a worker of a node. Whenever several can go on, the seed chooses one. Time stands still
//! while any can; when none can, it moves to the next event that is due. So nothing depends on the machine that the
//! simulation runs on, and the same seed gives the same [trace](World::trace).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::network::Net;
use super::node::SimNode;
use super::random::SplitMix;
use super::{SimClock, SimEnv};
use crate::{BoxFuture, Step, Work};

/// A node's number, in the order in which they were made.
pub(super) type NodeId = usize;

/// A task or a worker; never given out twice.
pub(super) type PartId = u64;

/// The simulated machines, their network and their time. Cloning it gives another handle on the same world.
#[derive(Clone)]
pub struct World(pub(super) Arc<Shared>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now()).finish_non_exhaustive()
    }
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    seed: u64,
}

/// Invariants: a part is in `ready` exactly while it `is_ready`; one that is being stepped has no `body`. `ready` is sorted, so that
/// it does not matter in which order one step wakes several: channels of libraries wake in an order of their own.
pub(super) struct State {
    random: SplitMix,
    now: Duration,
    nodes: Vec<Node>,
    parts: HashMap<PartId, Part>,
    ready: Vec<PartId>,
    due: BTreeMap<(Duration, u64), Due>,
    next_id: u64,
    pub(super) net: Net,
    trace: u64,
    steps: u64,
}

pub(super) struct Node {
    pub(super) name: String,
    clock: Arc<SimClock>,
    /// Nanoseconds that its clocks go forward in a million nanoseconds of the world's time.
    rate: u128,
    /// The part of the world's time that its clocks have not shown yet, in millionths of a nanosecond.
    carried: u128,
    is_paused: bool,
}

/// The rate of a clock that goes right.
const RATE: u128 = 1_000_000;

struct Part {
    node: NodeId,
    body: Option<Body>,
    is_ready: bool,
    /// It was woken while it was stepped.
    is_woken: bool,
}

pub(super) enum Body {
    Task(BoxFuture<'static, ()>),
    Worker(Box<dyn Work>),
}

/// An event that is due at a time.
enum Due {
    Wake(PartId),
    Call(Box<dyn FnOnce() + Send>),
}

/// The next thing to do.
enum Next {
    Part(PartId, Body),
    Call(Box<dyn FnOnce() + Send>),
    /// Nothing, up to the wanted time.
    Nothing,
}

impl World {
    /// A world without nodes, at time 0.
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: SplitMix::new(seed),
            now: Duration::ZERO,
            nodes: Vec::new(),
            parts: HashMap::new(),
            ready: Vec::new(),
            due: BTreeMap::new(),
            next_id: 0,
            net: Net::new(seed ^ 0x6e65_7477),
            trace: 0xcbf2_9ce4_8422_2325,
            steps: 0,
        };
        Self(Arc::new(Shared { state: Mutex::new(state), seed }))
    }

    /// A new machine with an empty disk. Its name is its address on the network, which may be followed by a colon and a port.
    pub fn node(&self, name: &str) -> SimNode {
        let mut state = self.0.state.lock();
        let id = state.nodes.len();
        let sim = SimEnv::new(self.0.seed.wrapping_mul(0x9e37_79b9).wrapping_add(id as u64));
        let clock = Arc::clone(&sim.clock);
        state.nodes.push(Node { name: name.to_owned(), clock, rate: RATE, carried: 0, is_paused: false });
        SimNode::new(id, name, sim, Arc::clone(&self.0))
    }

    /// Time since the world's beginning.
    pub fn now(&self) -> Duration {
        self.0.state.lock().now
    }

    /// Lets `time` pass, with all events in it.
    pub fn run_for(&self, time: Duration) {
        let end = self.now() + time;
        self.0.run(end, || false);
    }

    /// Lets time pass until `is_so`, which is asked after each step, but at most `at_most`; returns whether it is.
    pub fn run_until(&self, at_most: Duration, is_so: impl FnMut() -> bool) -> bool {
        let end = self.now() + at_most;
        self.0.run(end, is_so)
    }

    /// A digest of all steps so far: equal runs have equal digests.
    pub fn trace(&self) -> u64 {
        self.0.state.lock().trace
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.0.state.lock().steps
    }
}

impl Shared {
    /// Steps parts until `end`, or until `is_so`; returns whether it is.
    pub(super) fn run(self: &Arc<Self>, end: Duration, mut is_so: impl FnMut() -> bool) -> bool {
        loop {
            if is_so() {
                return true;
            }
            let next = self.state.lock().next(end);
            match next {
                Next::Nothing => return is_so(),
                Next::Call(call) => call(),
                Next::Part(id, body) => _ = self.step(id, body),
            }
        }
    }

    /// Runs one step of a part, which stays in the world unless it is done; returns whether it is. Steps may nest:
    /// one that waits for another part, or for time, steps the others.
    fn step(self: &Arc<Self>, id: PartId, body: Body) -> bool {
        let (body, step) = match body {
            Body::Worker(mut work) => {
                let step = work.step();
                (Body::Worker(work), step)
            }
            Body::Task(mut task) => {
                let waker = Waker::from(Arc::new(PartWaker { shared: Arc::downgrade(self), id }));
                let step = match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(()) => Step::Done,
                    Poll::Pending => Step::Sleep(None),
                };
                (Body::Task(task), step)
            }
        };
        // Dropped without the lock, which the body's own drop may take.
        let dropped = self.state.lock().stepped(id, body, step);
        drop(dropped);
        step == Step::Done
    }

    /// Steps a worker until it is done, wherever it stands. Time moves on as far as it sleeps, with all events
    /// meanwhile.
    ///
    /// # Panics
    /// If it sleeps until it is woken: no part would wake it.
    pub(super) fn finish(self: &Arc<Self>, id: PartId) {
        loop {
            let (body, until) = {
                let mut state = self.state.lock();
                let Some(part) = state.parts.get(&id) else { return };
                if part.body.is_none() {
                    // It waits for itself.
                    return;
                }
                if part.is_ready {
                    (state.take(id), state.now)
                } else {
                    let until = state.wakes_at(id).expect("a worker is waited for that no part wakes");
                    (None, until)
                }
            };
            match body {
                Some(body) => _ = self.step(id, body),
                None => _ = self.run(until, || self.is_ready(id)),
            }
        }
    }

    fn is_ready(&self, id: PartId) -> bool {
        self.state.lock().parts.get(&id).is_none_or(|part| part.is_ready)
    }

    pub(super) fn wake(&self, id: PartId) {
        self.state.lock().wake(id);
    }

    /// Adds a part, which can go on at once.
    pub(super) fn add(&self, node: NodeId, body: Body) -> PartId {
        let mut state = self.state.lock();
        let id = state.new_id();
        state.parts.insert(id, Part { node, body: Some(body), is_ready: false, is_woken: false });
        state.wake(id);
        id
    }

    /// Removes a part from the world. The caller drops its body without the lock.
    pub(super) fn remove(&self, id: PartId) {
        let removed = self.state.lock().remove(id);
        drop(removed);
    }

    /// Removes all parts of a node from the world.
    pub(super) fn remove_all(&self, node: NodeId) {
        let mut state = self.state.lock();
        let mut ids: Vec<PartId> =
            state.parts.iter().filter(|(_, part)| part.node == node).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let removed: Vec<_> = ids.into_iter().map(|id| state.remove(id)).collect();
        drop(state);
        drop(removed);
    }

    /// Lets `time` pass by a node's clock, with all events in it but for the waiting part's.
    pub(super) fn pass(self: &Arc<Self>, node: NodeId, time: Duration) {
        let until = self.state.lock().in_node_time(node, time);
        self.run(until, || false);
    }

    /// Ends after `time` by a node's clock.
    pub(super) fn sleep(self: &Arc<Self>, node: NodeId, time: Duration) -> BoxFuture<'static, ()> {
        let slept = Arc::new(Mutex::new((false, None::<Waker>)));
        let ended = Arc::clone(&slept);
        let wake = move || {
            let waker = {
                let mut slept = ended.lock();
                slept.0 = true;
                slept.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
        };
        {
            let mut state = self.state.lock();
            let at = state.in_node_time(node, time);
            state.call_at(at, Box::new(wake));
        }
        Box::pin(std::future::poll_fn(move |context| {
            let mut slept = slept.lock();
            if slept.0 {
                return Poll::Ready(());
            }
            slept.1 = Some(context.waker().clone());
            Poll::Pending
        }))
    }
}

struct PartWaker {
    shared: Weak<Shared>,
    id: PartId,
}

impl std::task::Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.wake(self.id);
        }
    }
}

impl State {
    pub(super) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn now(&self) -> Duration {
        self.now
    }

    pub(super) fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node]
    }

    /// The node of that name.
    pub(super) fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Schedules `call` at a time; it runs without the lock.
    pub(super) fn call_at(&mut self, at: Duration, call: Box<dyn FnOnce() + Send>) {
        let number = self.new_id();
        self.due.insert((at, number), Due::Call(call));
    }

    /// The world's time after `time` more by a node's clock.
    fn in_node_time(&self, node: NodeId, time: Duration) -> Duration {
        let Node { rate, carried, .. } = &self.nodes[node];
        let nanos = (time.as_nanos() * RATE).saturating_sub(*carried).div_ceil(*rate);
        self.now.saturating_add(nanos_time(nanos))
    }

    /// When a sleeping part goes on by itself; `None` if only a wake-up ends its sleep.
    fn wakes_at(&self, id: PartId) -> Option<Duration> {
        let wakes = |due: &Due| matches!(due, Due::Wake(part) if *part == id);
        self.due.iter().find(|(_, due)| wakes(due)).map(|((at, _), _)| *at)
    }

    fn wake(&mut self, id: PartId) {
        let Some(part) = self.parts.get_mut(&id) else { return };
        if part.body.is_none() {
            part.is_woken = true;
        } else if !std::mem::replace(&mut part.is_ready, true) {
            let place = self.ready.partition_point(|ready| *ready < id);
            self.ready.insert(place, id);
        }
    }

    fn remove(&mut self, id: PartId) -> Option<Part> {
        self.ready.retain(|ready| *ready != id);
        self.parts.remove(&id)
    }

    /// Takes a part's body, to step it.
    fn take(&mut self, id: PartId) -> Option<Body> {
        let part = self.parts.get_mut(&id)?;
        let body = part.body.take()?;
        if std::mem::take(&mut part.is_ready) {
            self.ready.retain(|ready| *ready != id);
        }
        part.is_woken = false;
        self.count_step(id);
        Some(body)
    }

    /// Counts a step, and adds it to the trace.
    fn count_step(&mut self, id: PartId) {
        self.steps += 1;
        for word in [u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX), id] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
    }

    /// Returns its body to a part, or returns the body that is to be dropped.
    fn stepped(&mut self, id: PartId, body: Body, step: Step) -> Option<Body> {
        let Some(part) = self.parts.get_mut(&id) else { return Some(body) };
        if step == Step::Done {
            self.parts.remove(&id);
            return Some(body);
        }
        part.body = Some(body);
        let (node, is_woken) = (part.node, std::mem::take(&mut part.is_woken));
        match step {
            Step::Sleep(Some(time)) if !is_woken => {
                let at = self.in_node_time(node, time);
                let number = self.new_id();
                self.due.insert((at, number), Due::Wake(id));
            }
            Step::Sleep(_) if !is_woken => {}
            _ => self.wake(id),
        }
        None
    }

    fn next(&mut self, end: Duration) -> Next {
        loop {
            if let Some(id) = self.choose() {
                if let Some(body) = self.take(id) {
                    return Next::Part(id, body);
                }
                continue;
            }
            let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= end) else {
                self.advance(end);
                return Next::Nothing;
            };
            let ((at, _), due) = entry.remove_entry();
            self.advance(at);
            match due {
                Due::Wake(id) => self.wake(id),
                Due::Call(call) => return Next::Call(call),
            }
        }
    }

    /// Chooses one of the parts that can go on.
    fn choose(&mut self) -> Option<PartId> {
        if self.nodes.iter().all(|node| !node.is_paused) {
            return (!self.ready.is_empty()).then(|| self.ready[self.random.below(self.ready.len())]);
        }
        let is_paused = |id: &PartId| self.parts.get(id).is_some_and(|part| self.nodes[part.node].is_paused);
        let ready: Vec<_> = self.ready.iter().copied().filter(|id| !is_paused(id)).collect();
        (!ready.is_empty()).then(|| ready[self.random.below(ready.len())])
    }

    /// Moves time on, and the clocks of all nodes, each at its own rate.
    fn advance(&mut self, to: Duration) {
        let by = to.saturating_sub(self.now);
        if by.is_zero() {
            return;
        }
        self.now = to;
        for node in &mut self.nodes {
            let passed = by.as_nanos() * node.rate + node.carried;
            node.carried = passed % RATE;
            node.clock.advance(nanos_time(passed / RATE));
        }
    }
}

impl Node {
    /// Makes its clocks faster by `ppm` millionths, or slower.
    pub(super) fn set_drift(&mut self, ppm: i32) {
        self.rate = RATE.saturating_add_signed(i128::from(ppm)).max(1);
    }

    pub(super) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }
}

fn nanos_time(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
