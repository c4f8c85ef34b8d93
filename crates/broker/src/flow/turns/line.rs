//! The line of connections that wait for their turn: chooses the next source, and the next of its connections.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::level::Level;

/// A connection that waits for its turn.
pub(super) trait Waits {
    type Source: Copy + Eq + Hash;

    fn source(&self) -> Self::Source;

    /// The time that its whole source had.
    fn source_level(&self) -> &Level;

    /// The time that it had itself.
    fn level(&self) -> &Level;

    /// Whether it was woken as one of a crowd.
    fn is_in_crowd(&self) -> bool;
}

/// The turn of a connection that was woken as one of a crowd comes so much later. It is half of the delay of connections
/// whose turns are as long as one may be: a consumer that waits for records comes before those.
const CROWD_DELAY: Duration = Duration::from_secs(1);
/// One of so many turns goes to the connection that has waited for longest. So none starves: each waits at most so many times
/// as long as in a plain queue.
const TURNS_OF_OLDEST: u64 = 4;

/// A place in line: the earlier time is the earlier place, and of two with the same time the one that was taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Duration,
    number: u64,
}

/// The places in line, by rank and by number. Invariants: both have the same places.
#[derive(Debug)]
struct Ranked<V> {
    by_place: BTreeMap<Place, V>,
    by_number: BTreeMap<u64, Place>,
}

impl<V> Default for Ranked<V> {
    fn default() -> Self {
        Self { by_place: BTreeMap::new(), by_number: BTreeMap::new() }
    }
}

impl<V> Ranked<V> {
    fn insert(&mut self, place: Place, value: V) {
        self.by_place.insert(place, value);
        self.by_number.insert(place.number, place);
    }

    fn first(&self) -> Option<&V> {
        self.by_place.values().next()
    }

    fn remove(&mut self, place: Place) {
        self.by_place.remove(&place);
        self.by_number.remove(&place.number);
    }

    /// Takes out the first by rank, or the first that came.
    fn pop(&mut self, is_for_oldest: bool) -> Option<V> {
        if is_for_oldest {
            let (_, place) = self.by_number.pop_first()?;
            return self.by_place.remove(&place);
        }
        let (place, value) = self.by_place.pop_first()?;
        self.by_number.remove(&place.number);
        Some(value)
    }
}

/// Those of one source. Invariants: it is in the order of the sources at `place`.
#[derive(Debug)]
struct Queue<T> {
    place: Place,
    waiting: Ranked<Arc<T>>,
}

/// Invariants: `order` has each source of `sources` once, and a connection of each waits.
#[derive(Debug)]
pub(super) struct Line<T: Waits> {
    sources: HashMap<T::Source, Queue<T>>,
    order: Ranked<T::Source>,
    next_number: u64,
    turns: u64,
}

impl<T: Waits> Default for Line<T> {
    fn default() -> Self {
        Self { sources: HashMap::new(), order: Ranked::default(), next_number: 0, turns: 0 }
    }
}

impl<T: Waits> Line<T> {
    /// A new place in line for this one, or for its source, which had so much.
    fn place(&mut self, now: Duration, level: &Level, who: &T) -> Place {
        self.next_number += 1;
        let delay = if who.is_in_crowd() { CROWD_DELAY } else { Duration::ZERO };
        Place { at: now + level.delay(now) + delay, number: self.next_number }
    }

    pub(super) fn join(&mut self, now: Duration, who: Arc<T>) {
        let source = who.source();
        let place = self.place(now, who.level(), &who);
        let of_source = self.place(now, who.source_level(), &who);
        match self.sources.entry(source) {
            Entry::Vacant(entry) => {
                let queue = entry.insert(Queue { place: of_source, waiting: Ranked::default() });
                queue.waiting.insert(place, who);
                self.order.insert(of_source, source);
            }
            Entry::Occupied(entry) => {
                let queue = entry.into_mut();
                queue.waiting.insert(place, who);
                // Up to now it had none but those of a crowd.
                if of_source < queue.place {
                    self.order.remove(queue.place);
                    self.order.insert(of_source, source);
                    queue.place = of_source;
                }
            }
        }
    }

    /// Takes out the next connection. Its source comes into line anew with those that are left: their long wait, due to their
    /// number, brings it no earlier place.
    pub(super) fn next(&mut self, now: Duration) -> Option<Arc<T>> {
        self.turns += 1;
        let is_for_oldest = self.turns.is_multiple_of(TURNS_OF_OLDEST);
        let source = self.order.pop(is_for_oldest)?;
        let queue = self.sources.get_mut(&source)?;
        let who = queue.waiting.pop(is_for_oldest)?;
        let Some(next) = queue.waiting.first().map(Arc::clone) else {
            self.sources.remove(&source);
            return Some(who);
        };
        let place = self.place(now, next.source_level(), &next);
        self.order.insert(place, source);
        self.sources.get_mut(&source)?.place = place;
        Some(who)
    }

    /// The next one of each source.
    pub(super) fn firsts(&self) -> impl Iterator<Item = &T> {
        self.sources.values().filter_map(|queue| queue.waiting.first()).map(Arc::as_ref)
    }
}

#[cfg(test)]
mod tests;
