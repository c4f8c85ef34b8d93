//! A budget of bytes that many connections share.
//!
//! Requests are charged *before* their memory is allocated and wait while the budget is spent; responses are
//! charged as they stand (a request that was admitted must be able to finish, so nothing waits for a response's
//! charge and no two parties can wait for each other). Refuses nothing: it slows the senders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Bytes that may be held at once.
///
/// Invariants: `used` is the sum of all live [`Charge`]s.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    released: Notify,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self { capacity_bytes, used_bytes: AtomicUsize::new(0), released: Notify::new() })
    }

    /// Bytes held now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, waiting while others hold too much. A charge larger than the whole budget is admitted
    /// when nothing else is held, so that a legal frame is never stuck.
    pub(crate) async fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        loop {
            if let Some(charge) = self.try_charge(bytes) {
                return charge;
            }
            let released = self.released.notified();
            tokio::pin!(released);
            // Enrolled before the second look: a release in between is not missed.
            released.as_mut().enable();
            if let Some(charge) = self.try_charge(bytes) {
                return charge;
            }
            released.await;
        }
    }

    /// Takes `bytes` at once if the budget has them.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.used_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                (used == 0 || used.saturating_add(bytes) <= self.capacity_bytes)
                    .then(|| used.saturating_add(bytes))
            })
            .ok()
            .map(|_| Charge { budget: Arc::clone(self), bytes })
    }

    /// Takes `bytes` whatever is held: for what exists already.
    pub(crate) fn force_charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        Charge { budget: Arc::clone(self), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.budget.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_charge_waits_until_another_is_given_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.charge(80).await;
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.charge(40).await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!(budget.used_bytes(), 40);
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn one_charge_above_the_capacity_passes_alone() {
        let budget = MemoryBudget::new(100);
        let huge = budget.charge(1_000).await;
        assert!(budget.try_charge(1).is_none());
        drop(huge);
        assert!(budget.try_charge(1).is_some());
    }

    #[test]
    fn a_response_is_charged_without_waiting() {
        let budget = MemoryBudget::new(10);
        let _held = budget.force_charge(50);
        assert!(budget.try_charge(1).is_none());
    }
}
