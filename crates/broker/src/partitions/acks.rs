//! The acks of a partition's staged batches, which wait until the records are as durable as its level asks.
//!
//! A batch is *staged* first: it has its offsets, and its place in the order of all. The request that staged it asks for
//! its outcome, and leaves an [`Acknowledge`] behind if that is not decided yet. The thread that moves the watermarks calls
//! it, so it must be short and must not wait.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use riverrun_log::Appended;
use riverrun_types::Acks;

/// Records that were staged and will never be acked: the write or the sync that they waited for has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotDurable;

/// Receives the outcome of a staged batch, once.
pub(crate) trait Acknowledge: Send + Sync + fmt::Debug {
    /// The batch that was registered under `ticket` is as durable as it has to be, or never will be.
    fn decided(&self, ticket: u64, outcome: Result<(), NotDurable>);
}

/// With so many entries those of targets that are gone are looked for.
const CLEARED_FROM: usize = 64;

#[derive(Debug)]
struct Entry {
    staged: Appended,
    acks: Acks,
    ticket: u64,
    /// Gone once the client's request waits no longer.
    target: Weak<dyn Acknowledge>,
}

/// The entries of one partition.
#[derive(Debug, Default)]
struct Entries {
    queue: VecDeque<Entry>,
    /// The length of the queue when entries of targets that are gone were last taken out.
    left: usize,
}

impl Entries {
    fn push(&mut self, entry: Entry) {
        if self.queue.len() >= 2 * self.left.max(CLEARED_FROM / 2) {
            self.queue.retain(|entry| entry.target.strong_count() > 0);
            self.left = self.queue.len();
        }
        // Two connections may stage in one order and come here in the other.
        let last = entry.staged.last_offset;
        let before = self.queue.iter().rposition(|other| other.staged.last_offset <= last);
        self.queue.insert(before.map_or(0, |before| before + 1), entry);
    }
}

/// The waiting acks of one partition.
///
/// Invariants: `entries` are in the order of their offsets. Entries of targets that are gone are about as many as the
/// others at most, or a few, so that a producer that resends and does not wait adds nothing while nothing becomes
/// durable.
#[derive(Debug, Default)]
pub(super) struct AckQueue {
    entries: Mutex<Entries>,
}

/// The outcome of a staged batch, if it is decided.
pub(super) type Decision = Option<Result<(), NotDurable>>;

impl AckQueue {
    /// Calls `target` with the outcome, if it still exists then. The caller calls [`Self::decide`] afterwards with the
    /// watermarks of then, which may have moved in between.
    pub(super) fn push(&self, staged: Appended, acks: Acks, ticket: u64, target: Weak<dyn Acknowledge>) {
        self.entries.lock().push(Entry { staged, acks, ticket, target });
    }

    /// Tells the outcomes that are decided, from the front up to the first that is not.
    pub(super) fn decide(&self, judge: impl Fn(Appended, Acks) -> Decision) {
        let mut is_last = false;
        while !is_last {
            let mut entries = self.entries.lock();
            let outcome = entries.queue.front().and_then(|entry| judge(entry.staged, entry.acks));
            let Some((outcome, entry)) = outcome.zip(entries.queue.pop_front_if(|_| outcome.is_some()))
            else {
                return;
            };
            // An entry that is pushed after that is decided by its own caller.
            is_last = entries.queue.is_empty();
            drop(entries);
            if let Some(target) = entry.target.upgrade() {
                target.decided(entry.ticket, outcome);
            }
        }
    }

    /// Tells all outcomes that are decided, wherever they stand: losses do not come in the order of offsets.
    pub(super) fn decide_all(&self, judge: impl Fn(Appended, Acks) -> Decision) {
        let mut told = Vec::new();
        self.entries.lock().queue.retain(|entry| match judge(entry.staged, entry.acks) {
            Some(outcome) => {
                told.extend(entry.target.upgrade().map(|target| (target, entry.ticket, outcome)));
                false
            }
            None => true,
        });
        for (target, ticket, outcome) in told {
            target.decided(ticket, outcome);
        }
    }

    /// Whether an ack waits.
    pub(super) fn any(&self) -> bool {
        !self.entries.lock().queue.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().queue.len()
    }
}

/// Waits for the outcomes of any number of staged batches, of one partition or of many.
///
/// Invariants: `left` counts the batches that are registered and undecided.
#[derive(Debug, Default)]
pub(crate) struct AckWaiter {
    left: AtomicUsize,
    failed: Mutex<Vec<u64>>,
    waker: AtomicWaker,
}

impl AckWaiter {
    /// Announces one batch more; before it is registered.
    pub(super) fn expect_one(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all are decided.
    pub(crate) async fn decided(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            // SYNC: decided. Pairs with the release in `Acknowledge::decided`, after `failed` was written.
            if self.left.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether the batch of this ticket was decided to fail.
    pub(crate) fn has_failed(&self, ticket: u64) -> bool {
        self.failed.lock().contains(&ticket)
    }
}

impl Acknowledge for AckWaiter {
    fn decided(&self, ticket: u64, outcome: Result<(), NotDurable>) {
        if outcome.is_err() {
            self.failed.lock().push(ticket);
        }
        // SYNC: decided. Pairs with the acquire in `AckWaiter::decided`.
        if self.left.fetch_sub(1, Ordering::Release) == 1 {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use riverrun_types::Offset;
    use tokio::time::timeout;

    use super::*;

    /// The outcomes that were told, in their order.
    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<(u64, bool)>>);

    impl Acknowledge for Told {
        fn decided(&self, ticket: u64, outcome: Result<(), NotDurable>) {
            self.0.lock().push((ticket, outcome.is_ok()));
        }
    }

    fn weak<T: Acknowledge + 'static>(target: &Arc<T>) -> Weak<dyn Acknowledge> {
        let target: Weak<T> = Arc::downgrade(target);
        target
    }

    fn staged(last: i64) -> Appended {
        Appended {
            base_offset: Offset(last),
            last_offset: Offset(last),
            log_append_time: None,
            log_start_offset: Offset(0),
            bytes: 1,
            duplicate: false,
            loss_count: 0,
        }
    }

    fn up_to(last: i64) -> impl Fn(Appended, Acks) -> Decision {
        move |staged, _| (staged.last_offset <= Offset(last)).then_some(Ok(()))
    }

    #[test]
    fn each_ack_is_told_once_its_end_is_reached() {
        let (queue, told) = (AckQueue::default(), Arc::new(Told::default()));
        for last in [3, 1, 2, 5] {
            queue.push(staged(last), Acks::All, last.unsigned_abs(), weak(&told));
        }
        queue.decide(up_to(0));
        assert!(told.0.lock().is_empty());
        queue.decide(up_to(3));
        assert_eq!(*told.0.lock(), [(1, true), (2, true), (3, true)]);
        queue.decide(up_to(9));
        queue.decide_all(|_, _| Some(Err(NotDurable)));
        assert_eq!(*told.0.lock(), [(1, true), (2, true), (3, true), (5, true)]);
        assert!(!queue.any());
    }

    #[test]
    fn losses_are_told_wherever_they_stand() {
        let (queue, told) = (AckQueue::default(), Arc::new(Told::default()));
        for last in [1, 2, 3] {
            queue.push(staged(last), Acks::All, last.unsigned_abs(), weak(&told));
        }
        queue.decide_all(|staged, _| (staged.last_offset == Offset(2)).then_some(Err(NotDurable)));
        assert_eq!(*told.0.lock(), [(2, false)]);
        queue.decide(up_to(9));
        assert_eq!(*told.0.lock(), [(2, false), (1, true), (3, true)]);
    }

    #[test]
    fn acks_that_nobody_waits_for_do_not_pile_up() {
        let (queue, told) = (AckQueue::default(), Arc::new(Told::default()));
        for last in 0..100 {
            queue.push(staged(last), Acks::All, last.unsigned_abs(), weak(&told));
        }
        for _ in 0..10_000 {
            let waiter = Arc::new(AckWaiter::default());
            waiter.expect_one();
            queue.push(staged(50), Acks::All, 0, weak(&waiter));
        }
        assert!(queue.len() <= 2 * 100, "{}", queue.len());
        queue.decide(up_to(98));
        queue.decide_all(|_, _| Some(Err(NotDurable)));
        let tickets: Vec<_> = told.0.lock().iter().map(|(ticket, _)| *ticket).collect();
        assert_eq!(tickets, (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_waiter_waits_for_all_its_batches_and_knows_which_failed() {
        let (one, other) = (AckQueue::default(), AckQueue::default());
        let waiter = Arc::new(AckWaiter::default());
        for (ticket, queue) in [(0, &one), (1, &other)] {
            waiter.expect_one();
            queue.push(staged(1), Acks::All, ticket, weak(&waiter));
        }
        let short = Duration::from_millis(5);
        assert!(timeout(short, waiter.decided()).await.is_err());
        other.decide_all(|_, _| Some(Err(NotDurable)));
        assert!(timeout(short, waiter.decided()).await.is_err());
        let waiting = tokio::spawn({
            let waiter = Arc::clone(&waiter);
            async move { waiter.decided().await }
        });
        tokio::task::yield_now().await;
        one.decide(up_to(1));
        timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("ends");
        assert_eq!([waiter.has_failed(0), waiter.has_failed(1)], [false, true]);
    }
}
