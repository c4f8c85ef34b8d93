//! The simulated network: links with delays, which a test may hold up, break or refuse.
//!
//! A message of a link arrives after a delay that the seed draws, and never before an earlier message. While the way
//! from one node to another is *cut*, messages wait, as TCP repeats them until it gives up: they arrive once the way
//! is restored, unless the link is broken by then.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::World;
use super::random::SplitMix;
use super::world::{NodeId, Shared, State};
use crate::{BoxFuture, Link, LinkListener, LinkReceiver, LinkSender, Network};

/// Messages that may be on their way or unread in one direction before the sender waits.
const UNREAD_MAX: usize = 64;

type LinkId = u64;

/// The state of the network.
pub(super) struct Net {
    random: SplitMix,
    delay: RangeInclusive<Duration>,
    /// Ways from one node to another on which nothing arrives.
    cuts: BTreeSet<(NodeId, NodeId)>,
    listeners: HashMap<String, Listening>,
    links: HashMap<LinkId, [Side; 2]>,
}

struct Listening {
    node: NodeId,
    made: VecDeque<Link>,
    waker: Option<Waker>,
}

/// One end of a link.
struct Side {
    node: NodeId,
    /// Halves of this end that are in use.
    halves: u8,
    /// Messages sent by this side that have not arrived, oldest first.
    sent: VecDeque<Message>,
    /// Number of these whose time has come while their way is cut.
    blocked: usize,
    /// The earliest time at which the last of them arrives.
    arrives_at: Duration,
    /// Messages that have arrived here and are unread.
    unread: VecDeque<Bytes>,
    /// The other side sends no more.
    has_ended: bool,
    /// The other side is gone, so that sending fails.
    is_deserted: bool,
    /// Nothing goes in or out any more.
    is_broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Message {
    Bytes(Bytes),
    /// The end of the messages.
    End,
}

impl Side {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            halves: 2,
            sent: VecDeque::new(),
            blocked: 0,
            arrives_at: Duration::ZERO,
            unread: VecDeque::new(),
            has_ended: false,
            is_deserted: false,
            is_broken: false,
            reader: None,
            writer: None,
        }
    }

    /// Breaks the link; returns the tasks to wake.
    fn break_off(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.is_broken = true;
        self.sent.clear();
        self.unread.clear();
        self.reader.take().into_iter().chain(self.writer.take())
    }
}

impl Net {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix::new(seed),
            delay: Duration::from_micros(50)..=Duration::from_micros(500),
            cuts: BTreeSet::new(),
            listeners: HashMap::new(),
            links: HashMap::new(),
        }
    }

    fn draw_delay(&mut self) -> Duration {
        let (least, most) = (*self.delay.start(), *self.delay.end());
        let range = most.saturating_sub(least).as_micros();
        let micros = self.random.below(usize::try_from(range).unwrap_or(usize::MAX - 1) + 1);
        least + Duration::from_micros(micros as u64)
    }
}

/// Faults of the network.
impl World {
    /// Sets the delay of messages from now on.
    pub fn set_delay(&self, delay: RangeInclusive<Duration>) {
        self.0.state.lock().net.delay = delay;
    }

    /// Stops all messages from one node to another, or lets them arrive again. The other direction is not affected.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn cut(&self, from: &str, to: &str, is_cut: bool) {
        let mut state = self.0.state.lock();
        let named = |name: &str| state.node_named(name).unwrap_or_else(|| panic!("there is no node {name}"));
        let way = (named(from), named(to));
        if is_cut {
            state.net.cuts.insert(way);
        } else if state.net.cuts.remove(&way) {
            self.0.release_blocked(&mut state, way);
        }
    }

    /// Breaks all links between two nodes: both sides are told.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn break_links(&self, one: &str, other: &str) {
        let mut state = self.0.state.lock();
        let named = |name: &str| state.node_named(name).unwrap_or_else(|| panic!("there is no node {name}"));
        let ends = BTreeSet::from([named(one), named(other)]);
        let is_between = |sides: &[Side; 2]| BTreeSet::from([sides[0].node, sides[1].node]) == ends;
        let wakers = state.net.break_where(is_between);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Net {
    /// Breaks links; returns the tasks to wake.
    fn break_where(&mut self, is_wanted: impl Fn(&[Side; 2]) -> bool) -> Vec<Waker> {
        let mut ids: Vec<_> =
            self.links.iter().filter(|(_, sides)| is_wanted(sides)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let mut wakers = Vec::new();
        for id in ids {
            for side in self.links.get_mut(&id).into_iter().flatten() {
                wakers.extend(side.break_off());
            }
        }
        wakers
    }
}

impl Shared {
    /// Ends all listeners of a node.
    pub(super) fn unlisten(&self, node: NodeId) {
        let listeners = self.state.lock().net.remove_listeners(node);
        // Dropped without the lock: they have links.
        drop(listeners);
    }

    /// Forgets the links of a node that is gone, and its system too: the other sides are not told.
    pub(super) fn forget_links(&self, node: NodeId) {
        let mut wakers = Vec::new();
        for sides in self.state.lock().net.links.values_mut() {
            if let Some(gone) = sides.iter_mut().find(|side| side.node == node) {
                wakers.extend(gone.break_off());
            }
        }
        // They wake no task: those that waited there are gone.
        drop(wakers);
    }

    /// Lets the messages arrive that waited for a way which is restored.
    fn release_blocked(self: &Arc<Self>, state: &mut State, (from, to): (NodeId, NodeId)) {
        let mut blocked: Vec<(LinkId, usize)> = Vec::new();
        for (id, sides) in &state.net.links {
            let on_way = |side: &usize| sides[*side].node == from && sides[1 - side].node == to;
            blocked.extend((0..2).filter(on_way).map(|side| (*id, side)));
        }
        blocked.sort_unstable();
        for (id, side) in blocked {
            let messages =
                state.net.links.get_mut(&id).map_or(0, |sides| std::mem::take(&mut sides[side].blocked));
            (0..messages).for_each(|_| self.arrive_later(state, id, side));
        }
    }

    /// Sends a message of this side.
    fn send(self: &Arc<Self>, state: &mut State, id: LinkId, side: usize, message: Message) {
        let Some(sides) = state.net.links.get_mut(&id) else { return };
        if !sides[side].is_broken {
            sides[side].sent.push_back(message);
            self.arrive_later(state, id, side);
        }
    }

    /// Schedules one more message of this side, to arrive after a delay, and after those before it.
    fn arrive_later(self: &Arc<Self>, state: &mut State, id: LinkId, side: usize) {
        let at = state.now() + state.net.draw_delay();
        let Some(sides) = state.net.links.get_mut(&id) else { return };
        let at = at.max(sides[side].arrives_at);
        sides[side].arrives_at = at;
        let shared = Arc::downgrade(self);
        let arrive = move || {
            if let Some(shared) = shared.upgrade() {
                shared.arrive(id, side);
            }
        };
        state.call_at(at, Box::new(arrive));
    }

    /// The oldest message of this side arrives, unless its way is cut.
    fn arrive(&self, id: LinkId, from: usize) {
        let mut state = self.state.lock();
        let net = &mut state.net;
        let Some(sides) = net.links.get_mut(&id) else { return };
        if net.cuts.contains(&(sides[from].node, sides[1 - from].node)) {
            sides[from].blocked += 1;
            return;
        }
        if sides[1 - from].is_broken {
            // No system is there to take it, or to answer.
            return;
        }
        match sides[from].sent.pop_front() {
            Some(Message::Bytes(bytes)) => sides[1 - from].unread.push_back(bytes),
            Some(Message::End) => sides[1 - from].has_ended = true,
            None => return,
        }
        let waker = sides[1 - from].reader.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Drops half of an end of a link; with the second half the end is closed, and with both ends the link is gone.
    fn drop_half(&self, id: LinkId, side: usize) {
        let mut state = self.state.lock();
        let Some(sides) = state.net.links.get_mut(&id) else { return };
        sides[side].halves -= 1;
        if sides[side].halves > 0 || sides[side].is_broken {
            return;
        }
        sides[1 - side].is_deserted = true;
        let waker = sides[1 - side].writer.take();
        if sides.iter().all(|side| side.halves == 0) {
            state.net.links.remove(&id);
        }
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Net {
    fn remove_listeners(&mut self, node: NodeId) -> Vec<Listening> {
        let mut addresses: Vec<_> =
            self.listeners.iter().filter(|(_, at)| at.node == node).map(|(name, _)| name.clone()).collect();
        addresses.sort_unstable();
        addresses.iter().filter_map(|address| self.listeners.remove(address)).collect()
    }
}

/// The network as one node sees it.
pub(super) struct SimNetwork {
    pub(super) node: NodeId,
    pub(super) shared: Arc<Shared>,
}

impl Network for SimNetwork {
    fn listen(&self, address: &str) -> io::Result<Box<dyn LinkListener>> {
        let mut state = self.shared.state.lock();
        if state.net.listeners.contains_key(address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let listening = Listening { node: self.node, made: VecDeque::new(), waker: None };
        state.net.listeners.insert(address.to_owned(), listening);
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(SimListener { address: address.to_owned(), node: self.node, shared }))
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Link>> {
        let (node, shared, address) = (self.node, Arc::clone(&self.shared), address.to_owned());
        Box::pin(async move {
            let there = shared.state.lock().net.draw_delay();
            shared.sleep(node, there).await;
            let made = shared.link(node, &address)?;
            let back = shared.state.lock().net.draw_delay();
            shared.sleep(node, back).await;
            match made {
                Some(link) => Ok(link),
                // The address does not answer.
                None => std::future::pending().await,
            }
        })
    }
}

impl Shared {
    /// Makes a link from a node to an address; `None` if the address does not answer.
    fn link(self: &Arc<Self>, from: NodeId, address: &str) -> io::Result<Option<Link>> {
        let mut state = self.state.lock();
        let id = state.new_id();
        let Some(to) = state.net.listeners.get(address).map(|listening| listening.node) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        if state.net.cuts.contains(&(from, to)) || state.net.cuts.contains(&(to, from)) {
            return Ok(None);
        }
        state.net.links.insert(id, [Side::new(from), Side::new(to)]);
        let [here, there] =
            [(0, to), (1, from)].map(|(side, other)| self.ends(id, side, state.node(other).name.clone()));
        let waker = state.net.listeners.get_mut(address).and_then(|listening| {
            listening.made.push_back(there);
            listening.waker.take()
        });
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(Some(here))
    }

    fn ends(self: &Arc<Self>, id: LinkId, side: usize, source: String) -> Link {
        let shared = || Arc::clone(self);
        Link {
            source,
            sender: Box::new(SimSender { id, side, shared: shared() }),
            receiver: Box::new(SimReceiver { id, side, shared: shared() }),
        }
    }
}

struct SimListener {
    address: String,
    node: NodeId,
    shared: Arc<Shared>,
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        // After a kill another listener may have the address.
        let is_mine = state.net.listeners.get(&self.address).is_some_and(|at| at.node == self.node);
        let listening = is_mine.then(|| state.net.listeners.remove(&self.address));
        drop(state);
        drop(listening);
    }
}

impl LinkListener for SimListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Link>> {
        Box::pin(poll_fn(|context| {
            let mut state = self.shared.state.lock();
            let Some(listening) = state.net.listeners.get_mut(&self.address) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            if let Some(link) = listening.made.pop_front() {
                return Poll::Ready(Ok(link));
            }
            listening.waker = Some(context.waker().clone());
            Poll::Pending
        }))
    }
}

struct SimSender {
    id: LinkId,
    side: usize,
    shared: Arc<Shared>,
}

impl SimSender {
    fn try_send(&self, context: &Context<'_>, message: &mut Option<Bytes>) -> Poll<io::Result<()>> {
        let mut state = self.shared.state.lock();
        let Some(sides) = state.net.links.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if sides[self.side].is_broken || sides[self.side].is_deserted {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if sides[self.side].sent.len() + sides[1 - self.side].unread.len() >= UNREAD_MAX {
            sides[self.side].writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        if let Some(bytes) = message.take() {
            self.shared.send(&mut state, self.id, self.side, Message::Bytes(bytes));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimSender {
    fn drop(&mut self) {
        self.shared.send(&mut self.shared.state.lock(), self.id, self.side, Message::End);
        self.shared.drop_half(self.id, self.side);
    }
}

impl LinkSender for SimSender {
    fn send(&mut self, message: Bytes) -> BoxFuture<'_, io::Result<()>> {
        let mut message = Some(message);
        Box::pin(poll_fn(move |context| self.try_send(context, &mut message)))
    }
}

struct SimReceiver {
    id: LinkId,
    side: usize,
    shared: Arc<Shared>,
}

impl SimReceiver {
    fn try_receive(&self, context: &Context<'_>, bytes_max: usize) -> Poll<io::Result<Option<Bytes>>> {
        let mut state = self.shared.state.lock();
        let Some(sides) = state.net.links.get_mut(&self.id) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        if let Some(bytes) = sides[self.side].unread.pop_front() {
            let writer = sides[1 - self.side].writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            if bytes.len() > bytes_max {
                let reason = format!("a message of {} bytes is too long", bytes.len());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, reason)));
            }
            return Poll::Ready(Ok(Some(bytes)));
        }
        let side = &mut sides[self.side];
        if side.is_broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if side.has_ended {
            return Poll::Ready(Ok(None));
        }
        side.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for SimReceiver {
    fn drop(&mut self) {
        self.shared.drop_half(self.id, self.side);
    }
}

impl LinkReceiver for SimReceiver {
    fn receive_at_most(&mut self, bytes_max: usize) -> BoxFuture<'_, io::Result<Option<Bytes>>> {
        Box::pin(poll_fn(move |context| self.try_receive(context, bytes_max)))
    }
}
