//! Whose turn it is with a part of a shard that is worked on outside of it, such as a group.
//!
//! Owns a line for each such part. The sources in it take turns, and so do the connections of a source: a connection
//! with thousands of requests holds up another one for a single step. A line is bounded, and a source has a share of
//! it. A request that leaves a line lets the next one on. A part that no request is at has no line.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::context::RequestContext;
use crate::flow::source::Source;

/// Requests that wait for one part at most, but for [`FEW`] of each source. A source has no more of them than it leaves
/// free.
pub(crate) const LINE_MAX: usize = 10_000;
/// Requests of a source that may wait for a part however many others do: those of a machine with many members.
pub(crate) const FEW: usize = 100;

/// The asker for a part: a connection of a source, or the server itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asker {
    /// None is the server itself.
    source: Option<Source>,
    connection: u64,
}

impl Asker {
    /// The server itself.
    pub(crate) const SERVER: Self = Self { source: None, connection: 0 };

    /// The sender of a request.
    pub(crate) fn of(context: &RequestContext) -> Self {
        let connection = &context.connection;
        Self { source: Some(Source::of(connection.peer.ip())), connection: connection.id }
    }
}

/// The line is as long as it may be, or this source's part of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// Queues that take turns.
///
/// Invariants: a key is in `order` once, exactly while it has a queue; no queue is empty between two calls.
#[derive(Debug)]
struct Rounds<K, Q> {
    queues: HashMap<K, Q>,
    order: VecDeque<K>,
}

impl<K, Q> Default for Rounds<K, Q> {
    fn default() -> Self {
        Self { queues: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Copy + Eq + Hash, Q: Default> Rounds<K, Q> {
    /// The queue of this key, to put something into.
    fn queue(&mut self, key: K) -> &mut Q {
        match self.queues.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push_back(key);
                entry.insert(Q::default())
            }
        }
    }

    /// Takes something from the queue that is next. `take` also tells whether more is in it.
    fn next<T>(&mut self, take: impl FnOnce(&mut Q) -> (Option<T>, bool)) -> Option<T> {
        let key = self.order.pop_front()?;
        let (taken, has_more) = take(self.queues.get_mut(&key)?);
        if has_more {
            self.order.push_back(key);
        } else {
            self.queues.remove(&key);
        }
        taken
    }

    /// Takes something out of the queue of this key. `take_out` tells whether more is in it.
    fn take_out(&mut self, key: K, take_out: impl FnOnce(&mut Q) -> bool) {
        if self.queues.get_mut(&key).is_some_and(|queue| !take_out(queue)) {
            self.queues.remove(&key);
            self.order.retain(|other| *other != key);
        }
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// A request that waits: its number in its line, and how it learns of its turn.
type Waiter = (u64, oneshot::Sender<()>);

#[derive(Debug, Default)]
struct OfSource {
    waiting: usize,
    connections: Rounds<u64, VecDeque<Waiter>>,
}

/// The requests that wait for a part while another one is at it.
///
/// Invariants: `waiting` counts the waiters of all sources, and that of a source its own. `is_handed_on` is set from the moment
/// at which a waiter is given the turn until its task takes it.
#[derive(Debug, Default)]
struct Line {
    waiting: usize,
    is_handed_on: bool,
    last_ticket: u64,
    sources: Rounds<Option<Source>, OfSource>,
}

impl Line {
    fn join(&mut self, asker: Asker) -> Result<(u64, oneshot::Receiver<()>), Full> {
        let of_source = self.sources.queues.get(&asker.source).map_or(0, |of_source| of_source.waiting);
        let is_bounded = asker.source.is_some();
        if is_bounded && of_source >= LINE_MAX.saturating_sub(self.waiting).max(FEW) {
            return Err(Full);
        }
        let (sender, receiver) = oneshot::channel();
        self.last_ticket += 1;
        self.waiting += 1;
        let of_source = self.sources.queue(asker.source);
        of_source.waiting += 1;
        of_source.connections.queue(asker.connection).push_back((self.last_ticket, sender));
        Ok((self.last_ticket, receiver))
    }

    fn leave(&mut self, asker: Asker, ticket: u64) {
        let Self { waiting, sources, .. } = self;
        sources.take_out(asker.source, |of_source| {
            let OfSource { waiting: waiting_of_source, connections } = of_source;
            connections.take_out(asker.connection, |waiters| {
                let before = waiters.len();
                waiters.retain(|(other, _)| *other != ticket);
                *waiting -= before - waiters.len();
                *waiting_of_source -= before - waiters.len();
                !waiters.is_empty()
            });
            !connections.is_empty()
        });
    }

    /// Lets the next one on; whether there is one.
    fn hand_on(&mut self) -> bool {
        while let Some((_, sender)) = self.next() {
            // One that is leaving at this moment takes no turn.
            self.is_handed_on = sender.send(()).is_ok();
            if self.is_handed_on {
                return true;
            }
        }
        false
    }

    fn next(&mut self) -> Option<Waiter> {
        let next = self.sources.next(|of_source| {
            let waiter = of_source.connections.next(|waiters| (waiters.pop_front(), !waiters.is_empty()));
            of_source.waiting -= usize::from(waiter.is_some());
            (waiter, !of_source.connections.is_empty())
        });
        self.waiting -= usize::from(next.is_some());
        next
    }
}

type AllLines = Arc<Mutex<HashMap<Arc<str>, Line>>>;

/// The lines of one shard's parts.
///
/// Invariants: a part has a line exactly while somebody is at it; one is at it at a time.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: AllLines,
}

/// The turn with a part: nobody else lends it until this is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    lines: AllLines,
    key: Arc<str>,
}

/// A place in a line, which is left when this is dropped.
struct Place {
    lines: AllLines,
    key: Arc<str>,
    asker: Asker,
    ticket: u64,
    turn: oneshot::Receiver<()>,
}

impl Lines {
    /// Waits for the turn with a part. Safe to drop at any time.
    pub(super) async fn pass(&self, key: &str, asker: Asker) -> Result<Pass, Full> {
        match self.ask(key, asker)? {
            Ok(pass) => Ok(pass),
            Err(place) => Ok(place.turn().await),
        }
    }

    /// Whether a request came before the next one: it waits for the part, or was given the turn and has not taken it.
    pub(super) fn is_awaited(&self, key: &str) -> bool {
        self.lines.lock().get(key).is_some_and(|line| line.waiting > 0 || line.is_handed_on)
    }

    /// The turn if nobody is at the part, or else a place in its line.
    fn ask(&self, key: &str, asker: Asker) -> Result<Result<Pass, Place>, Full> {
        let mut lines = self.lines.lock();
        let found = lines.get_key_value(key).map(|(key, _)| Arc::clone(key));
        let Some(key) = found else {
            let key: Arc<str> = key.into();
            lines.insert(Arc::clone(&key), Line::default());
            return Ok(Ok(Pass { lines: Arc::clone(&self.lines), key }));
        };
        let (ticket, turn) = lines.entry(Arc::clone(&key)).or_default().join(asker)?;
        Ok(Err(Place { lines: Arc::clone(&self.lines), key, asker, ticket, turn }))
    }
}

impl Place {
    async fn turn(mut self) -> Pass {
        // It comes: the request that is at the part lets the next one on, and this one has not left.
        let _ = (&mut self.turn).await;
        if let Some(line) = self.lines.lock().get_mut(&self.key) {
            line.is_handed_on = false;
        }
        Pass { lines: Arc::clone(&self.lines), key: Arc::clone(&self.key) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        self.turn.close();
        if self.turn.try_recv().is_ok() {
            hand_on(&mut lines, &self.key);
        } else if let Some(line) = lines.get_mut(&self.key) {
            line.leave(self.asker, self.ticket);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        hand_on(&mut self.lines.lock(), &self.key);
    }
}

fn hand_on(lines: &mut HashMap<Arc<str>, Line>, key: &str) {
    if lines.get_mut(key).is_some_and(|line| !line.hand_on()) {
        lines.remove(key);
    }
}

#[cfg(test)]
mod tests;
