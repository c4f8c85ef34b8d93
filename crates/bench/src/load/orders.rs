//! What the threads of a load are to do now.
//!
//! Invariants: the generation grows with every order, and the order of one generation never changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// An order to produce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Produce {
    /// When the first record is due.
    pub(crate) start: Instant,
    /// Records a second over all producers of all workers; none for as many as go.
    pub(crate) rate: Option<f64>,
    /// Records over all producers of all workers; none for no end.
    pub(crate) quota: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    produce: Option<Produce>,
    /// No other order comes after this one.
    last: bool,
    ended: bool,
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

    /// Has the threads produce, or wait.
    pub(crate) fn give(&self, produce: Option<Produce>) {
        self.change(|state| state.produce = produce);
    }

    /// Has the threads produce, and end after it.
    pub(crate) fn give_last(&self, produce: Produce) {
        self.change(|state| (state.produce, state.last) = (Some(produce), true));
    }

    /// Has the threads end.
    pub(crate) fn end(&self) {
        self.change(|state| (state.produce, state.ended) = (None, true));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        // The state is read under the lock; threads that look without it see the number only.
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Waits for orders later than those of generation `seen`. None when it is time to end.
    pub(crate) fn wait(&self, seen: u64) -> Option<(u64, Option<Produce>)> {
        let is_new = || self.generation.load(Ordering::Relaxed) != seen;
        let unchanged = |state: &mut State| !state.ended && !state.last && !is_new();
        let state = self.changed.wait_while(self.lock(), unchanged).unwrap_or_else(PoisonError::into_inner);
        (!state.ended && is_new()).then(|| (self.generation.load(Ordering::Relaxed), state.produce))
    }

    /// Whether the orders of this generation still hold.
    pub(crate) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn threads_wait_for_orders_that_they_have_not_seen() {
        let orders = Arc::new(Orders::default());
        let waiting = Arc::clone(&orders);
        let thread = std::thread::spawn(move || waiting.wait(0));
        let produce = Produce { start: Instant::now(), rate: Some(5.0), quota: None };
        orders.give(Some(produce));
        assert_eq!(thread.join().expect("it was told"), Some((1, Some(produce))));
        assert!(orders.is_current(1));
        orders.give(None);
        assert!(!orders.is_current(1));
        orders.end();
        assert_eq!(orders.wait(2), None);
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
