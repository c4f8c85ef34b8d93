//! Replies that wait until the log holds what they tell of, as durably as group offsets are to be.
//!
//! Each shard has its own, so that none waits for another. They are sent from the thread that moves the partition's
//! watermarks: many commits that became durable together are answered together, and no task waits for each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_coordinator::{GroupResponse, ReplyToken};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Waiting;
use crate::partitions::{Acknowledge, NotDurable};

/// The requests of all shards that wait for a reply from a step to come.
pub(super) type Parked = Arc<Mutex<HashMap<ReplyToken, Waiting>>>;

/// What goes out when a step is durable.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// Replies, and who gets them.
    pub(super) replies: Vec<(oneshot::Sender<GroupResponse>, GroupResponse)>,
    /// Somebody who only wants to know that it is.
    pub(super) notice: Option<oneshot::Sender<()>>,
}

impl Release {
    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.notice.is_none()
    }

    /// Sends all of it. A client may be gone; its membership ends by its session.
    pub(super) fn send(self) {
        for (sender, reply) in self.replies {
            let _ = sender.send(reply);
        }
        if let Some(notice) = self.notice {
            let _ = notice.send(());
        }
    }
}

/// The held replies of one shard.
///
/// Invariants: `steps` are in the order of the shard's steps, their tickets grow, and each waits for a batch that is not
/// before that of the step in front of it.
#[derive(Debug)]
pub(super) struct Held {
    shard: usize,
    steps: Mutex<Steps>,
    has_failed: AtomicBool,
    parked: Parked,
}

#[derive(Debug, Default)]
struct Steps {
    waiting: VecDeque<HeldStep>,
    next_ticket: u64,
}

/// What a step releases, and since when it waits.
#[derive(Debug)]
struct HeldStep {
    ticket: u64,
    since: Instant,
    release: Release,
}

impl Held {
    pub(super) fn new(shard: usize, parked: Parked) -> Self {
        Self { shard, steps: Mutex::default(), has_failed: AtomicBool::new(false), parked }
    }

    /// Whose they are.
    pub(super) fn shard(&self) -> usize {
        self.shard
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.lock().waiting.is_empty()
    }

    /// Whether something has been held for so long: the log takes nothing at the moment.
    pub(super) fn is_stuck(&self, time: Duration) -> bool {
        self.steps.lock().waiting.front().is_some_and(|step| step.since.elapsed() >= time)
    }

    /// Holds what a step releases; the ticket is what its batch is registered under.
    pub(super) fn push(&self, release: Release) -> u64 {
        let mut steps = self.steps.lock();
        let ticket = steps.next_ticket;
        steps.next_ticket += 1;
        steps.waiting.push_back(HeldStep { ticket, since: Instant::now(), release });
        ticket
    }

    /// Whether records of this shard were lost since it was asked last: it is ahead of its log then.
    pub(super) fn take_failure(&self) -> bool {
        self.has_failed.load(Ordering::Acquire) && self.has_failed.swap(false, Ordering::AcqRel)
    }
}

impl Acknowledge for Held {
    fn decided(&self, ticket: u64, outcome: Result<(), NotDurable>) {
        let mut steps = self.steps.lock();
        if outcome == Err(NotDurable) {
            // Whoever waits finds its sender gone, here and among those who wait for a step to come.
            self.has_failed.store(true, Ordering::Release);
            steps.waiting.clear();
            drop(steps);
            self.parked.lock().retain(|_, waiting| waiting.shard != self.shard);
            return;
        }
        // All before it are durable, too. Sent under the lock, so that the next ones do not overtake them.
        while let Some(step) = steps.waiting.pop_front_if(|step| step.ticket <= ticket) {
            step.release.send();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(held: &Held) -> (u64, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (held.push(Release { notice: Some(sender), ..Release::default() }), receiver)
    }

    #[test]
    fn a_durable_step_releases_all_before_it_and_none_after() {
        let held = Held::new(0, Parked::default());
        let ((_, mut first), (second, mut middle), (_, mut last)) =
            (notice(&held), notice(&held), notice(&held));
        held.decided(second, Ok(()));
        assert!(first.try_recv().is_ok() && middle.try_recv().is_ok());
        assert!(last.try_recv().is_err() && !held.is_empty());
        assert!(!held.take_failure());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_for_long_is_stuck_until_it_is_durable() {
        let held = Held::new(0, Parked::default());
        assert!(!held.is_stuck(Duration::ZERO));
        let (first, _first) = notice(&held);
        tokio::time::advance(Duration::from_secs(5)).await;
        let (_, _second) = notice(&held);
        assert!(held.is_stuck(Duration::from_secs(5)));
        held.decided(first, Ok(()));
        assert!(!held.is_stuck(Duration::from_secs(5)));
    }

    #[test]
    fn a_loss_answers_all_of_the_shard_and_is_told_once() {
        let parked = Parked::default();
        let mut answers = Vec::new();
        for shard in [0, 1] {
            let (reply, receiver) = oneshot::channel();
            parked.lock().insert(ReplyToken(shard as u64), Waiting { shard, reply });
            answers.push(receiver);
        }
        let held = Held::new(0, Arc::clone(&parked));
        let (ticket, mut lost) = notice(&held);
        held.decided(ticket, Err(NotDurable));
        assert_eq!(lost.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(matches!(answers[0].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(answers[1].try_recv(), Err(oneshot::error::TryRecvError::Empty)), "another shard's");
        assert!(held.take_failure() && !held.take_failure());
    }
}
