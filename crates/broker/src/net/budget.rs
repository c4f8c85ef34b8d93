//! A budget of bytes that many connections share.
//!
//! Requests are charged *before* their memory is allocated and wait while the budget is spent; responses are
//! charged as they stand (a request that was admitted must be able to finish, so nothing waits for a response's
//! charge and no two parties can wait for each other). Refuses nothing: it slows the senders.
//!
//! A large frame is charged as it arrives. All frames that are still arriving hold a part of the budget only, so
//! that requests which are whole always find some of it, however many others never get whole. Frames that are half
//! here could then wait for each other for ever; so one of them at a time may overdraw the budget and is done. What
//! it overdraws stands in nobody's way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The part of a budget that may be spent on what is only of use, so that it never stands in the way of requests.
const SPARE_SHARE: usize = 4;
/// The part of a budget that frames which are still arriving leave to others.
const WHOLE_SHARE: usize = 4;

/// Bytes that may be held at once.
///
/// Invariants: `used` is the sum of all live [`Charge`]s but for what is overdrawn; it passes the capacity only by
/// responses and by one charge that was taken when nothing else was held. `arriving` is the part of it that charges
/// of frames which are not whole hold. One charge at a time is overdrawn: the one that holds the permit of
/// `overdraft`.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    capacity_bytes: usize,
    used_bytes: AtomicUsize,
    arriving_bytes: Mutex<usize>,
    /// Frames that wait for memory to arrive in.
    arrivals_held_up: AtomicUsize,
    released: Notify,
    overdraft: Arc<Semaphore>,
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    /// Bytes that are counted in the budget.
    bytes: usize,
    is_arriving: bool,
    /// Bytes beyond the budget, and the leave to take them.
    overdrawn_bytes: usize,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    pub(crate) fn new(capacity_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity_bytes,
            used_bytes: AtomicUsize::new(0),
            arriving_bytes: Mutex::new(0),
            arrivals_held_up: AtomicUsize::new(0),
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

    /// Whether a frame waits for memory that others, which are not whole either, hold.
    pub(crate) fn holds_up_arrivals(&self) -> bool {
        self.arrivals_held_up.load(Ordering::Relaxed) > 0
    }

    /// Takes `bytes`, waiting while others hold too much. A charge larger than the whole budget is admitted
    /// when nothing else is held, so that a legal frame is never stuck.
    pub(crate) async fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.wait_for(|| self.take(bytes)).await;
        self.charged(bytes)
    }

    /// Takes `bytes` at once if the budget has them.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.take(bytes).then(|| self.charged(bytes))
    }

    /// Takes `bytes` at once if most of the budget is free: for what is only of use. It counts as arriving.
    pub(crate) fn try_charge_spare(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let has_spare = self.used_bytes().saturating_add(bytes) <= self.capacity_bytes / SPARE_SHARE;
        let mut charge = self.arriving();
        (has_spare && charge.try_grow(bytes)).then_some(charge)
    }

    /// A charge of nothing yet, for a frame that arrives.
    pub(crate) fn arriving(self: &Arc<Self>) -> Charge {
        let mut charge = self.charged(0);
        charge.is_arriving = true;
        charge
    }

    /// Takes `bytes` whatever is held: for what exists already.
    pub(crate) fn force_charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.used_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.charged(bytes)
    }

    /// The charge of bytes that have been taken.
    fn charged(self: &Arc<Self>, bytes: usize) -> Charge {
        let budget = Arc::clone(self);
        Charge { budget, bytes, is_arriving: false, overdrawn_bytes: 0, overdraft: None }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used == 0 || used.saturating_add(bytes) <= self.capacity_bytes;
        self.used_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                fits(used).then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    fn take_arriving(&self, bytes: usize) -> bool {
        let arriving_max = self.capacity_bytes - self.capacity_bytes / WHOLE_SHARE;
        let mut arriving = self.arriving_bytes.lock();
        let is_taken = arriving.saturating_add(bytes) <= arriving_max && self.take(bytes);
        if is_taken {
            *arriving += bytes;
        }
        is_taken
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
        self.bytes + self.overdrawn_bytes
    }

    /// Takes more for a frame that arrives, at once: if the budget has it, or if this charge may overdraw.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        if self.overdraft.is_some() {
            self.overdrawn_bytes += bytes;
            return true;
        }
        let is_taken = self.budget.take_arriving(bytes);
        if is_taken {
            self.bytes += bytes;
        }
        is_taken
    }

    /// Takes more for a frame that arrives, waiting for the budget or for leave to overdraw it.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        while !self.try_grow(bytes) {
            let budget = &self.budget;
            let _held_up = HeldUp::new(&budget.arrivals_held_up);
            let permit = tokio::select! {
                () = budget.wait_for(|| budget.take_arriving(bytes)) => None,
                permit = Arc::clone(&budget.overdraft).acquire_owned() => permit.ok(),
            };
            if permit.is_none() {
                self.bytes += bytes;
                return;
            }
            self.overdraft = permit;
        }
    }

    /// What arrived is whole. It goes on to hold what it holds, and what it overdrew is nobody else's until it ends:
    /// there is never more than one such frame.
    pub(crate) fn settle(&mut self) {
        if self.overdrawn_bytes == 0 {
            self.overdraft = None;
        }
        self.end_arrival();
    }

    fn end_arrival(&mut self) {
        if std::mem::take(&mut self.is_arriving) {
            *self.budget.arriving_bytes.lock() -= self.bytes;
            self.budget.released.notify_waiters();
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.end_arrival();
        self.budget.released.notify_waiters();
    }
}

/// One frame that waits, in the count of them.
struct HeldUp<'a>(&'a AtomicUsize);

impl<'a> HeldUp<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    /// A frame that has arrived so far.
    async fn arrived(budget: &Arc<MemoryBudget>, bytes: usize) -> Charge {
        let mut charge = budget.arriving();
        charge.grow(bytes).await;
        charge
    }

    #[tokio::test]
    async fn of_frames_that_wait_for_each_other_one_overdraws_and_is_done() {
        let budget = MemoryBudget::new(100);
        let (mut first, mut second) = (arrived(&budget, 35).await, arrived(&budget, 40).await);
        first.grow(30).await;
        assert!(first.try_grow(30), "it goes on to overdraw");
        assert_eq!((first.bytes(), budget.used_bytes()), (95, 75));
        first.settle();
        assert!(budget.try_charge(25).is_some(), "what is overdrawn stands in nobody's way");
        let waiting = tokio::spawn(async move {
            second.grow(90).await;
            second
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(
            !waiting.is_finished() && budget.holds_up_arrivals(),
            "one at a time, until its memory is free"
        );
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!((second.bytes(), budget.used_bytes()), (130, 40));
        assert!(!budget.holds_up_arrivals());
        drop(second);
        assert_eq!((budget.used_bytes(), *budget.arriving_bytes.lock()), (0, 0));
    }

    #[tokio::test]
    async fn frames_that_arrive_leave_a_quarter_to_those_that_are_whole() {
        let budget = MemoryBudget::new(100);
        let permit = Arc::clone(&budget.overdraft).acquire_owned().await.unwrap();
        let mut halves: Vec<_> = (0..3).map(|_| budget.arriving()).collect();
        assert!(halves.iter_mut().all(|half| half.try_grow(25)));
        assert!(!budget.arriving().try_grow(1) && budget.try_charge_spare(1).is_none());
        let whole = budget.try_charge(25).expect("the rest is for requests that are whole");
        assert!(budget.try_charge(1).is_none());
        drop(whole);
        halves[0].settle();
        assert_eq!(budget.used_bytes(), 75, "a frame that is whole is held like any request");
        assert!(budget.arriving().try_grow(25));
        drop((halves, permit));
        assert_eq!((budget.used_bytes(), *budget.arriving_bytes.lock()), (0, 0));
    }

    #[tokio::test]
    async fn a_frame_that_arrives_takes_what_another_gives_back() {
        let budget = MemoryBudget::new(100);
        let permit = Arc::clone(&budget.overdraft).acquire_owned().await.unwrap();
        let (mut growing, mut other) = (arrived(&budget, 35).await, arrived(&budget, 40).await);
        assert!(!growing.try_grow(40));
        let waiting = tokio::spawn(async move {
            growing.grow(40).await;
            growing
        });
        tokio::task::yield_now().await;
        // Whole or gone, it does not arrive any more.
        other.settle();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "the whole budget is held");
        drop(other);
        assert_eq!(waiting.await.unwrap().bytes(), 75);
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
