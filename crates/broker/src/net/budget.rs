//! A budget of bytes that many connections share.
//!
//! Requests are charged *before* their memory is allocated and wait while the budget is spent; responses are
//! charged as they stand (a request that was admitted must be able to finish, so nothing waits for a response's
//! charge and no two parties can wait for each other). Refuses nothing: it slows the senders.
//!
//! A large frame is charged as it arrives, so that a length alone, whose bytes never come, takes nothing from others.
//! Frames that are half here could then wait for each other for ever; so one of them at a time may overdraw the
//! budget and is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The part of a budget that may be spent on what is only of use, so that it never stands in the way of requests.
const SPARE_SHARE: usize = 4;

/// Bytes that may be held at once.
///
/// Invariants: `used` is the sum of all live [`Charge`]s; it passes the capacity only by responses, by one charge
/// that was taken when nothing else was held, and by the one that holds the permit of `overdraft`.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    released: Notify,
    overdraft: Arc<Semaphore>,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(crate) fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity_bytes,
            used_bytes: AtomicUsize::new(0),
            released: Notify::new(),
            overdraft: Arc::new(Semaphore::new(1)),
        })
    }

    /// Bytes held now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether more is held than there is.
    pub(crate) fn is_spent(&self) -> bool {
        self.used_bytes() > self.capacity_bytes
    }

    /// Takes `bytes`, waiting while others hold too much. A charge larger than the whole budget is admitted
    /// when nothing else is held, so that a legal frame is never stuck.
    pub(crate) async fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.wait_for(|| self.take(bytes)).await;
        Charge { budget: Arc::clone(self), bytes, overdraft: None }
    }

    /// Takes `bytes` at once if the budget has them.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.take(bytes).then(|| Charge { budget: Arc::clone(self), bytes, overdraft: None })
    }

    /// Takes `bytes` at once if most of the budget is free: for what is only of use.
    pub(crate) fn try_charge_spare(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let has_spare = self.used_bytes().saturating_add(bytes) <= self.capacity_bytes / SPARE_SHARE;
        if has_spare { self.try_charge(bytes) } else { None }
    }

    /// Takes `bytes` whatever is held: for what exists already.
    pub(crate) fn force_charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        Charge { budget: Arc::clone(self), bytes, overdraft: None }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used == 0 || used.saturating_add(bytes) <= self.capacity_bytes;
        self.used_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                fits(used).then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    /// Tries until `taken` says yes, each time that something was released.
    async fn wait_for(&self, taken: impl Fn() -> bool) {
        while !taken() {
            let released = self.released.notified();
            tokio::pin!(released);
            // Enrolled before the second look: a release in between is not missed.
            released.as_mut().enable();
            if taken() {
                return;
            }
            released.await;
        }
    }
}

impl Charge {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more at once if the budget has it, or if this charge may overdraw.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        if self.overdraft.is_some() {
            self.budget.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        } else if !self.budget.take(bytes) {
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// Takes more, waiting for the budget or for leave to overdraw it.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        while !self.try_grow(bytes) {
            let budget = &self.budget;
            let permit = tokio::select! {
                () = budget.wait_for(|| budget.take(bytes)) => None,
                permit = Arc::clone(&budget.overdraft).acquire_owned() => permit.ok(),
            };
            if permit.is_none() {
                self.bytes += bytes;
                return;
            }
            self.overdraft = permit;
        }
    }

    /// Gives up the leave to overdraw: what was waited for is here, and the next may have it.
    pub(crate) fn settle(&mut self) {
        self.overdraft = None;
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

    #[tokio::test]
    async fn of_charges_that_wait_for_each_other_one_overdraws_and_is_done() {
        let budget = MemoryBudget::new(100);
        let mut first = budget.charge(50).await;
        let mut second = budget.charge(50).await;
        first.grow(30).await;
        assert!(budget.is_spent());
        assert!(first.try_grow(30), "it goes on to overdraw");
        let waiting = tokio::spawn(async move {
            second.grow(10).await;
            second
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished(), "one at a time");
        first.settle();
        let second = waiting.await.unwrap();
        assert_eq!((first.bytes(), second.bytes()), (110, 60));
        drop((first, second));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn a_charge_that_grows_takes_what_another_gives_back() {
        let budget = MemoryBudget::new(100);
        let permit = Arc::clone(&budget.overdraft).acquire_owned().await.unwrap();
        let (mut growing, other) = (budget.charge(50).await, budget.charge(50).await);
        assert!(!growing.try_grow(50));
        let waiting = tokio::spawn(async move {
            growing.grow(50).await;
            growing
        });
        drop(other);
        assert_eq!(waiting.await.unwrap().bytes(), 100);
        assert_eq!(budget.used_bytes(), 0);
        drop(permit);
    }

    #[test]
    fn a_response_is_charged_without_waiting() {
        let budget = MemoryBudget::new(10);
        let _held = budget.force_charge(50);
        assert!(budget.try_charge(1).is_none());
    }
}
