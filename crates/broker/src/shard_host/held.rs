//! Replies that wait until the log holds what they tell of, as durably as its topic asks.
//!
//! Each shard has its own, so that none waits for another. They are sent from the thread that moves the partition's
//! watermarks: many commits that became durable together are answered together, and no task waits for each.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_coordinator::ReplyToken;
use riverrun_log::Appended;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::partitions::{Acknowledge, NotDurable};

/// So many steps of a shard may be held, each with records of its own, while the log takes nothing.
pub(super) const HELD_STEPS_MAX: usize = 1_000;

/// The requests of all shards that were handed in and are not answered yet. Few of them are *parked*, which means that they wait
/// for other members of their group: the shard knows which.
pub(super) type Unanswered<R> = Arc<Mutex<HashMap<ReplyToken, Waiting<R>>>>;

/// A request that waits for its reply.
#[derive(Debug)]
pub(super) struct Waiting<R> {
    pub(super) shard: usize,
    pub(super) reply: oneshot::Sender<R>,
}

/// The replies and notices of steps, which go out when these are durable.
#[derive(Debug)]
pub(super) struct Release<R> {
    /// Replies, each with its way to the request.
    pub(super) replies: Vec<(oneshot::Sender<R>, R)>,
    /// Requests that only wait for the step to be durable.
    pub(super) notices: Vec<oneshot::Sender<()>>,
}

impl<R> Default for Release<R> {
    fn default() -> Self {
        Self { replies: Vec::new(), notices: Vec::new() }
    }
}

impl<R> Release<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty() && self.notices.is_empty()
    }

    /// Adds what another step releases.
    pub(super) fn join(&mut self, more: Self) {
        join(&mut self.replies, more.replies, |(sender, _)| sender.is_closed());
        join(&mut self.notices, more.notices, oneshot::Sender::is_closed);
    }

    /// Sends all of it. A client may be gone; its membership ends by its session.
    pub(super) fn send(self) {
        for (sender, reply) in self.replies {
            let _ = sender.send(reply);
        }
        for notice in self.notices {
            let _ = notice.send(());
        }
    }
}

/// Adds to those who wait. Before there is no place left for them, those go who have given up: there are never many more
/// than there were waiting at once.
fn join<T>(waiting: &mut Vec<T>, more: Vec<T>, has_given_up: impl Fn(&T) -> bool) {
    if waiting.len() + more.len() > waiting.capacity() {
        waiting.retain(|one| !has_given_up(one));
        waiting.reserve(waiting.len() + more.len());
    }
    waiting.extend(more);
}

/// The held replies of one shard.
///
/// Invariants: `steps` are in the order of the shard's steps, their tickets grow, and each waits for a batch that comes
/// after that of the step in front of it. Steps that wait for the same batch are held as one.
#[derive(Debug)]
pub(super) struct Held<R> {
    shard: usize,
    steps: Mutex<Steps<R>>,
    has_failed: AtomicBool,
    unanswered: Unanswered<R>,
}

#[derive(Debug)]
struct Steps<R> {
    waiting: VecDeque<HeldStep<R>>,
    next_ticket: u64,
}

/// The release of a step, and since when it waits.
#[derive(Debug)]
struct HeldStep<R> {
    ticket: u64,
    batch: Appended,
    since: Instant,
    release: Release<R>,
}

impl<R> Held<R> {
    pub(super) fn new(shard: usize, unanswered: Unanswered<R>) -> Self {
        let steps = Mutex::new(Steps { waiting: VecDeque::new(), next_ticket: 0 });
        Self { shard, steps, has_failed: AtomicBool::new(false), unanswered }
    }

    /// How many replies are held.
    #[cfg(test)]
    pub(super) fn replies(&self) -> usize {
        self.steps.lock().waiting.iter().map(|step| step.release.replies.len()).sum()
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.lock().waiting.is_empty()
    }

    /// Whether something has been held for so long: the log takes nothing at the moment.
    pub(super) fn is_stuck(&self, time: Duration) -> bool {
        self.steps.lock().waiting.front().is_some_and(|step| step.since.elapsed() >= time)
    }

    /// Whether it takes nothing, and so much waits for it that nothing should be added.
    pub(super) fn has_no_room(&self, time: Duration) -> bool {
        self.is_stuck(time) && self.steps.lock().waiting.len() >= HELD_STEPS_MAX
    }

    /// Holds what a step releases until `batch` is durable; the ticket is what that is to be registered under. None if it
    /// is already: the step before waits for the same.
    pub(super) fn push(&self, batch: Appended, release: Release<R>) -> Option<u64> {
        let mut steps = self.steps.lock();
        if let Some(before) = steps.waiting.back_mut().filter(|before| before.batch == batch) {
            before.release.join(release);
            return None;
        }
        let ticket = steps.next_ticket;
        steps.next_ticket += 1;
        steps.waiting.push_back(HeldStep { ticket, batch, since: Instant::now(), release });
        Some(ticket)
    }

    /// Whether records of this shard were lost since it was asked last: it is ahead of its log then.
    pub(super) fn take_failure(&self) -> bool {
        self.has_failed.load(Ordering::Acquire) && self.has_failed.swap(false, Ordering::AcqRel)
    }
}

impl<R: fmt::Debug + Send> Acknowledge for Held<R> {
    fn decided(&self, ticket: u64, outcome: Result<(), NotDurable>) {
        let mut steps = self.steps.lock();
        if outcome == Err(NotDurable) {
            // Requests find their sender gone: those that wait here, and those that wait for a later step.
            self.has_failed.store(true, Ordering::Release);
            steps.waiting.clear();
            drop(steps);
            self.unanswered.lock().retain(|_, waiting| waiting.shard != self.shard);
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
    use riverrun_types::Offset;

    use super::*;

    fn batch(last: i64) -> Appended {
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

    /// Waits for the batch with this offset.
    fn try_notice(held: &Held<()>, last: i64) -> (Option<u64>, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (held.push(batch(last), Release { notices: vec![sender], ..Release::default() }), receiver)
    }

    /// As the first who does.
    fn notice(held: &Held<()>, last: i64) -> (u64, oneshot::Receiver<()>) {
        let (ticket, receiver) = try_notice(held, last);
        (ticket.expect("the first"), receiver)
    }

    #[test]
    fn a_durable_step_releases_all_before_it_and_none_after() {
        let held = Held::new(0, Unanswered::<()>::default());
        let ((_, mut first), (second, mut middle), (_, mut last)) =
            (notice(&held, 1), notice(&held, 2), notice(&held, 3));
        held.decided(second, Ok(()));
        assert!(first.try_recv().is_ok() && middle.try_recv().is_ok());
        assert!(last.try_recv().is_err() && !held.is_empty());
        assert!(!held.take_failure());
    }

    #[test]
    fn requests_for_the_same_batch_are_held_as_one_until_given_up() {
        let held = Held::new(0, Unanswered::<()>::default());
        let (ticket, mut first) = notice(&held, 1);
        let mut others = Vec::new();
        for number in 0..10_000 {
            let (none, receiver) = try_notice(&held, 1);
            assert_eq!(none, None);
            // One of a thousand waits on.
            others.extend(Some(receiver).filter(|_| number % 1000 == 0));
        }
        let (_, mut later) = notice(&held, 2);
        {
            let steps = held.steps.lock();
            let notices = &steps.waiting[0].release.notices;
            assert!(steps.waiting.len() == 2 && notices.capacity() < 100, "{}", notices.capacity());
        }
        held.decided(ticket, Ok(()));
        assert!(first.try_recv().is_ok() && others.iter_mut().all(|other| other.try_recv().is_ok()));
        assert!(later.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn steps_have_room_while_the_log_takes_some_or_few_are_held() {
        let (held, time) = (Held::new(0, Unanswered::<()>::default()), Duration::from_secs(5));
        let many = i64::try_from(HELD_STEPS_MAX).expect("few");
        let mut tickets = (0..many).map(|last| notice(&held, last).0);
        let first = tickets.next().expect("many");
        tokio::time::advance(time).await;
        assert!(held.is_stuck(time) && !held.has_no_room(time), "one is held");
        assert_eq!(tickets.count() + 1, HELD_STEPS_MAX);
        assert!(held.has_no_room(time));
        held.decided(first, Ok(()));
        assert!(!held.has_no_room(time), "it takes some");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_for_long_is_stuck_until_it_is_durable() {
        let held = Held::new(0, Unanswered::<()>::default());
        assert!(!held.is_stuck(Duration::ZERO));
        let (first, _first) = notice(&held, 1);
        tokio::time::advance(Duration::from_secs(5)).await;
        let (_, _second) = notice(&held, 2);
        assert!(held.is_stuck(Duration::from_secs(5)));
        held.decided(first, Ok(()));
        assert!(!held.is_stuck(Duration::from_secs(5)));
    }

    #[test]
    fn a_loss_answers_all_of_the_shard_and_is_told_once() {
        let unanswered = Unanswered::<()>::default();
        let mut answers = Vec::new();
        for shard in [0, 1] {
            let (reply, receiver) = oneshot::channel();
            unanswered.lock().insert(ReplyToken(shard as u64), Waiting { shard, reply });
            answers.push(receiver);
        }
        let held = Held::new(0, Arc::clone(&unanswered));
        let (ticket, mut lost) = notice(&held, 1);
        held.decided(ticket, Err(NotDurable));
        assert_eq!(lost.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(matches!(answers[0].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(answers[1].try_recv(), Err(oneshot::error::TryRecvError::Empty)), "another shard's");
        assert!(held.take_failure() && !held.take_failure());
    }
}
