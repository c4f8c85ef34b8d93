//! The orders to the threads of a load, past and present.
//!
//! Invariants: the generation grows with every order, and the order of one generation never changes. A thread sees
//! every order, also those given while it was busy, so that it can report the records that were due by each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use riverrun_measure::pacing::Rate;

/// An order to produce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Produce {
    /// When the first record is due.
    pub(crate) start: Instant,
    /// Records per second over all producers of all workers; `None` for as fast as possible.
    pub(crate) rate: Option<Rate>,
    /// Records over all producers of all workers; `None` for no end.
    pub(crate) quota: Option<u64>,
}

/// An order as it was given.
#[derive(Clone, Copy, Debug)]
struct Given {
    produce: Option<Produce>,
    at: Instant,
}

/// Invariants: the order of generation `n` is the `n`th of `given`, from 1.
#[derive(Debug, Default)]
struct State {
    given: Vec<Given>,
    /// No other order follows.
    last: bool,
    ended: bool,
    /// Threads that wait, having followed every order.
    idle: usize,
}

/// The orders of one load.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    state: Mutex<State>,
    changed: Condvar,
    generation: AtomicU64,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Orders the threads to produce, or to wait.
    pub(crate) fn give(&self, produce: Option<Produce>) {
        self.change(produce, |_| {});
    }

    /// Orders the threads to produce, and to end after it.
    pub(crate) fn give_last(&self, produce: Produce) {
        self.change(Some(produce), |state| state.last = true);
    }

    /// Orders the threads to end.
    pub(crate) fn end(&self) {
        self.change(None, |state| state.ended = true);
    }

    fn change(&self, produce: Option<Produce>, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.given.push(Given { produce, at: Instant::now() });
        // Waiting threads have this order to follow, even those that have not woken up yet.
        state.idle = 0;
        change(&mut state);
        // Threads that look without the lock use the number only; the state is read under the lock.
        self.generation.store(state.given.len() as u64, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits for the order after generation `seen`, which may be outdated already. `None` when it is time to end.
    pub(crate) fn wait(&self, seen: u64) -> Option<(u64, Option<Produce>)> {
        let unchanged = |state: &mut State| !state.ended && !state.last && nth(state, seen).is_none();
        let mut state = self.lock();
        if unchanged(&mut state) {
            state.idle += 1;
        }
        let state = self.changed.wait_while(state, unchanged).unwrap_or_else(PoisonError::into_inner);
        let next = nth(&state, seen).filter(|_| !state.ended)?;
        Some((seen + 1, next.produce))
    }

    /// Whether the order of this generation still holds.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }

    /// When the order of this generation ended; `None` if it still holds.
    pub(crate) fn held_until(&self, generation: u64) -> Option<Instant> {
        nth(&self.lock(), generation).map(|next| next.at)
    }

    /// Threads that have followed every order, and reported the records that they left unsent.
    pub(crate) fn idle(&self) -> usize {
        self.lock().idle
    }
}

/// The order after the first `before` ones.
fn nth(state: &State, before: u64) -> Option<Given> {
    usize::try_from(before).ok().and_then(|before| state.given.get(before)).copied()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn threads_wait_for_orders_they_have_not_seen() {
        let orders = Arc::new(Orders::default());
        let waiting = Arc::clone(&orders);
        let thread = std::thread::spawn(move || waiting.wait(0));
        let produce = Produce { start: Instant::now(), rate: Rate::per_second(5.0), quota: None };
        orders.give(Some(produce));
        assert_eq!(thread.join().expect("an order wakes the thread"), Some((1, Some(produce))));
        assert!(orders.is_current(1));
        orders.give(None);
        assert!(!orders.is_current(1));
        orders.end();
        assert_eq!(orders.wait(2), None);
    }

    #[test]
    fn every_order_is_seen_with_the_time_of_its_end() {
        let orders = Orders::default();
        let produce = |rate| Produce { start: Instant::now(), rate: Rate::per_second(rate), quota: None };
        let (first, second) = (produce(5.0), produce(6.0));
        orders.give(Some(first));
        assert_eq!(orders.held_until(1), None);
        orders.give(Some(second));
        orders.give(None);
        assert_eq!(orders.wait(0), Some((1, Some(first))));
        assert_eq!(orders.wait(1), Some((2, Some(second))));
        assert_eq!(orders.wait(2), Some((3, None)));
        let (one, other) =
            (orders.held_until(1).expect("it is over"), orders.held_until(2).expect("it is over"));
        assert!(second.start <= one && one <= other && other <= Instant::now());
        assert!(!orders.is_current(2) && orders.is_current(3));
    }

    #[test]
    fn thread_that_followed_every_order_is_idle() {
        let orders = Arc::new(Orders::default());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let waiting = Arc::clone(&orders);
                std::thread::spawn(move || waiting.wait(0))
            })
            .collect();
        while orders.idle() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        orders.give(None);
        assert_eq!(orders.idle(), 0, "nor are those that have not woken up yet");
        for thread in threads {
            assert_eq!(thread.join().expect("an order wakes the thread"), Some((1, None)));
        }
        assert_eq!(orders.idle(), 0);
    }

    #[test]
    fn the_last_order_is_followed_once() {
        let orders = Orders::default();
        let produce = Produce { start: Instant::now(), rate: None, quota: Some(1) };
        orders.give_last(produce);
        assert_eq!(orders.wait(0), Some((1, Some(produce))));
        assert_eq!(orders.wait(1), None);
    }
}
