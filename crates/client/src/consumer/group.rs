//! Membership in a group: a task of its own that joins, gives signs of life and tells the consumer what to read.
//!
//! Owns the events between that task and [`Consumer::poll`](super::Consumer::poll). Guarantees that a partition is
//! only given up to the group after the consumer has confirmed it, so that the commit comes first; that what was read in
//! one membership is not committed in a later one; and that a consumer which is not polled for `max.poll.interval.ms`
//! leaves, until it is polled again.

mod assignors;
mod classic;
mod departure;
mod events;
mod liveness;
mod server_side;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use riverrun_protocol::ErrorCode;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub use self::assignors::Assignor;
pub(super) use self::departure::Departure;
use self::departure::leave;
use self::events::Events;
use self::liveness::{PollWatch, Polling};
use super::options::{ConsumerOptions, GroupProtocol};
use super::subscription::Subscription;
use super::trouble::{SharedAttempts, Trouble};
use crate::coordinator::{GroupCoordinator, MemberIdentity};
use crate::error::ClientError;
use crate::retry::Chance;
use crate::topic_partition::TopicPartition;

/// What the group wants of the consumer.
#[derive(Debug)]
pub(super) enum GroupEvent {
    /// Read these, too, from the committed offsets.
    Assign(Vec<TopicPartition>),
    /// Commit and give these up, then confirm.
    Revoke { partitions: Vec<TopicPartition>, done: oneshot::Sender<()> },
    /// All partitions belong to others by now: stop, and commit nothing. So many memberships are over.
    Lost { memberships: u64 },
    /// Membership has ended with this error.
    Failed(ClientError),
}

/// Who this member is.
#[derive(Debug)]
struct Known {
    member: MemberIdentity,
    /// How many of its memberships are over.
    lost: u64,
}

/// The identity that the group knows this member by, shared with who commits.
#[derive(Clone, Debug)]
struct SharedIdentity(Arc<Mutex<Known>>);

impl SharedIdentity {
    fn new(member: MemberIdentity) -> Self {
        Self(Arc::new(Mutex::new(Known { member, lost: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now.
    fn get(&self) -> MemberIdentity {
        self.lock().member.clone()
    }

    fn set_member(&self, member_id: &str) {
        member_id.clone_into(&mut self.lock().member.member_id);
    }

    fn set_epoch(&self, epoch: i32) {
        self.lock().member.epoch = epoch;
    }

    /// Ends a membership, and answers how many are over. The next begins as what `renew` makes of the member.
    fn lose(&self, renew: impl FnOnce(&mut MemberIdentity)) -> u64 {
        let mut known = self.lock();
        renew(&mut known.member);
        known.lost += 1;
        known.lost
    }
}

/// Who commits what was read in one membership, now and at any later time.
#[derive(Clone, Debug)]
pub(super) struct Committer {
    identity: SharedIdentity,
    lost: u64,
    /// The least epoch that a member has.
    epoch_min: i32,
}

impl Committer {
    /// As the group knows it now. Fails if the group has given the member up since: others may have read on from what was
    /// committed before, and would be set back by it. Fails, too, until the group has taken the member in: while a group has no
    /// members, it takes what anybody commits who says that he is none.
    pub(super) fn member(&self) -> Result<MemberIdentity, ClientError> {
        let known = self.identity.lock();
        let (code, message) = if known.lost != self.lost {
            let message = "the group had given the member up before this commit could be made";
            (ErrorCode::UNKNOWN_MEMBER_ID, message)
        } else if known.member.epoch < self.epoch_min {
            (ErrorCode::REBALANCE_IN_PROGRESS, "the group has not taken the member in yet")
        } else {
            return Ok(known.member.clone());
        };
        Err(ClientError::Server { code, message: Some(message.to_owned()) })
    }
}

/// What both protocols' tasks need.
#[derive(Clone, Debug)]
struct MemberContext {
    options: Arc<ConsumerOptions>,
    coordinator: Arc<GroupCoordinator>,
    identity: SharedIdentity,
    /// Joining the group, and staying in it.
    attempts: SharedAttempts,
    subscription: watch::Receiver<Subscription>,
    events: Events,
}

impl MemberContext {
    /// Tells the consumer, whenever it takes that in.
    fn tell(&self, event: GroupEvent) {
        self.events.put(event);
    }

    /// The group has given the member up, or the member the group.
    fn lose(&self, renew: impl FnOnce(&mut MemberIdentity)) {
        let memberships = self.identity.lose(renew);
        self.tell(GroupEvent::Lost { memberships });
    }

    /// What is subscribed to now. A later change is seen by waiting on `subscription`.
    fn subscribed(&mut self) -> Subscription {
        self.subscription.borrow_and_update().clone()
    }

    /// Whether it is all topics that match.
    fn has_pattern(&self) -> bool {
        self.subscription.borrow().pattern().is_some()
    }

    async fn pause(&self) {
        let next_at = self.attempts.lock().next_at(&self.options.cluster, Chance::draw());
        tokio::time::sleep_until(next_at).await;
    }

    /// Is a member until that fails for good, and says why. Boxed, so that the task holds the state of one protocol, and so that
    /// neither is compiled again with what polls it.
    fn run(self) -> BoxFuture<'static, ClientError> {
        match self.options.group_protocol {
            GroupProtocol::Classic => Box::pin(classic::ClassicMember::new(self).run()),
            GroupProtocol::Consumer => Box::pin(server_side::ServerSideMember::new(self).run()),
        }
    }

    /// The same, but for the times in which nobody polls.
    async fn run_while_polled(self, polls: &PollWatch) -> ClientError {
        loop {
            tokio::select! {
                ended = self.clone().run() => return ended,
                () = polls.silence(self.options.rebalance_timeout) => {}
            }
            tracing::warn!(
                group = self.coordinator.group(),
                "nobody has polled for max.poll.interval.ms: the consumer leaves its group until somebody does"
            );
            let left = leave(&self.coordinator, &self.options, &self.identity.get()).await;
            if let Err(error) = &left {
                tracing::warn!(%error, "the group has not heard that, and will notice by itself");
            }
            // What was under way has not failed, and what fails later begins later.
            self.attempts.lock().succeed();
            // Where the group has not heard of it, the member takes its place back by the id that it has there.
            let renew = if left.is_ok() { MemberIdentity::forget } else { MemberIdentity::begin_anew };
            self.lose(renew);
            polls.resumed().await;
        }
    }
}

/// The consumer's side of its membership. Dropping it ends the task; the group notices when its signs of life
/// are missing, unless the [`Departure`] after its [`end`](Self::end) tells it.
///
/// Invariants: `lost` memberships are over as far as the consumer has heard: what it reads, it reads in the one after these.
#[derive(Debug)]
pub(super) struct Membership {
    events: Events,
    subscription: watch::Sender<Subscription>,
    identity: SharedIdentity,
    lost: u64,
    attempts: SharedAttempts,
    coordinator: Arc<GroupCoordinator>,
    options: Arc<ConsumerOptions>,
    polls: Arc<PollWatch>,
    task: JoinHandle<()>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Membership {
    /// Begins to join. Where the group has not heard the goodbye of the membership before, the member takes its place back by
    /// the id that it has there, so that nobody waits for the one that it was.
    pub(super) fn start(
        options: Arc<ConsumerOptions>,
        coordinator: Arc<GroupCoordinator>,
        subscribed: Subscription,
        unheard: Option<Departure>,
    ) -> Self {
        let (subscription, watched) = watch::channel(subscribed);
        let events = Events::default();
        let new_member =
            || MemberIdentity { instance_id: options.instance_id.clone(), ..MemberIdentity::none() };
        let identity = SharedIdentity::new(unheard.map_or_else(new_member, Departure::into_member));
        let attempts = SharedAttempts::default();
        let context = MemberContext {
            options: Arc::clone(&options),
            coordinator: Arc::clone(&coordinator),
            identity: identity.clone(),
            attempts: attempts.clone(),
            subscription: watched,
            events: events.clone(),
        };
        let polls = Arc::new(PollWatch::new());
        let (watched, told) = (Arc::clone(&polls), events.clone());
        let task = tokio::spawn(async move {
            let ended = context.run_while_polled(&watched).await;
            told.put(GroupEvent::Failed(ended));
        });
        Self { events, subscription, identity, lost: 0, attempts, coordinator, options, polls, task }
    }

    /// Subscribes to something else. To say the same again is no reason for the group to rebalance.
    pub(super) fn resubscribe(&self, subscription: Subscription) {
        self.subscription.send_if_modified(|current| {
            let differs = *current != subscription;
            *current = subscription;
            differs
        });
    }

    /// Is to be held while the consumer is polled.
    pub(super) fn polling(&self) -> Polling {
        self.polls.begin()
    }

    /// Who commits what is read now.
    pub(super) fn committer(&self) -> Committer {
        let epoch_min = match self.options.group_protocol {
            GroupProtocol::Classic => 0,
            // A member that joins says 0.
            GroupProtocol::Consumer => 1,
        };
        Committer { identity: self.identity.clone(), lost: self.lost, epoch_min }
    }

    /// What keeps it from being a member, if something does.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.attempts.lock().trouble()
    }

    /// The next event. After the end of the task there is none, ever.
    pub(super) async fn next_event(&mut self) -> GroupEvent {
        let event = self.events.next().await;
        self.noted(event)
    }

    /// An event that has come already.
    pub(super) fn try_event(&mut self) -> Option<GroupEvent> {
        let event = self.events.take()?;
        Some(self.noted(event))
    }

    fn noted(&mut self, event: GroupEvent) -> GroupEvent {
        if let GroupEvent::Lost { memberships } = event {
            self.lost = memberships;
        }
        event
    }

    /// Ends the task. The group has yet to be told.
    pub(super) async fn end(mut self) -> Departure {
        self.task.abort();
        // Another thread may be at it still, and what it sends then would come behind the goodbye.
        let _ = (&mut self.task).await;
        let (coordinator, options) = (Arc::clone(&self.coordinator), Arc::clone(&self.options));
        Departure::new(coordinator, options, self.identity.get())
    }
}
