//! Group membership: a task of its own that joins, sends heartbeats and passes assignments to the consumer.
//!
//! Owns the events between that task and [`Consumer::poll`](super::Consumer::poll). Guarantees that:
//!
//! - a partition is given up to the group only after the consumer has confirmed it, so that the commit comes first;
//! - records read in one membership are not committed in a later one;
//! - a consumer that is not polled for `max.poll.interval.ms` leaves, until it is polled again.

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

/// An instruction of the group to the consumer.
#[derive(Debug)]
pub(super) enum GroupEvent {
    /// Read these in addition, from the committed offsets.
    Assign(Vec<TopicPartition>),
    /// Commit and give these up, then confirm.
    Revoke { partitions: Vec<TopicPartition>, done: oneshot::Sender<()> },
    /// All partitions belong to other members by now: stop, and commit nothing. `memberships` is the number of ended
    /// memberships.
    Lost { memberships: u64 },
    /// Membership has ended with this error.
    Failed(ClientError),
}

/// The member's identity, and the count of its ended memberships.
#[derive(Debug)]
struct Known {
    member: MemberIdentity,
    /// Number of its ended memberships.
    lost: u64,
}

/// The identity by which the group knows this member, shared with the committers.
#[derive(Clone, Debug)]
struct SharedIdentity(Arc<Mutex<Known>>);

impl SharedIdentity {
    fn new(member: MemberIdentity) -> Self {
        Self(Arc::new(Mutex::new(Known { member, lost: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current identity.
    fn get(&self) -> MemberIdentity {
        self.lock().member.clone()
    }

    fn set_member(&self, member_id: &str) {
        member_id.clone_into(&mut self.lock().member.member_id);
    }

    fn set_epoch(&self, epoch: i32) {
        self.lock().member.epoch = epoch;
    }

    /// Ends a membership, and returns how many have ended. The next begins with the identity that `renew` makes.
    fn lose(&self, renew: impl FnOnce(&mut MemberIdentity)) -> u64 {
        let mut known = self.lock();
        renew(&mut known.member);
        known.lost += 1;
        known.lost
    }
}

/// Commits the records read in one membership, now and at any later time.
#[derive(Clone, Debug)]
pub(super) struct Committer {
    identity: SharedIdentity,
    lost: u64,
    /// The lowest epoch of an admitted member.
    epoch_min: i32,
}

impl Committer {
    /// The current identity. Fails if the group has removed the member since: others may have read on from the
    /// committed offsets, and this commit would set them back. Fails, too, until the group has admitted the member:
    /// while a group has no members, it accepts the commits of any client without a membership.
    pub(super) fn member(&self) -> Result<MemberIdentity, ClientError> {
        let known = self.identity.lock();
        let (code, message) = if known.lost != self.lost {
            let message = "the group removed the member before this commit";
            (ErrorCode::UNKNOWN_MEMBER_ID, message)
        } else if known.member.epoch < self.epoch_min {
            (ErrorCode::REBALANCE_IN_PROGRESS, "the group has not admitted the member yet")
        } else {
            return Ok(known.member.clone());
        };
        Err(ClientError::Server { code, message: Some(message.to_owned()) })
    }
}

/// State that the tasks of both protocols share.
#[derive(Clone, Debug)]
struct MemberContext {
    options: Arc<ConsumerOptions>,
    coordinator: Arc<GroupCoordinator>,
    identity: SharedIdentity,
    /// Attempts to join the group and to stay in it.
    attempts: SharedAttempts,
    subscription: watch::Receiver<Subscription>,
    events: Events,
}

impl MemberContext {
    /// Queues an event for the consumer.
    fn tell(&self, event: GroupEvent) {
        self.events.put(event);
    }

    /// Ends the membership, because the group has removed the member or the member has left.
    fn lose(&self, renew: impl FnOnce(&mut MemberIdentity)) {
        let memberships = self.identity.lose(renew);
        self.tell(GroupEvent::Lost { memberships });
    }

    /// The current subscription. A later change is seen by waiting on `subscription`.
    fn subscribed(&mut self) -> Subscription {
        self.subscription.borrow_and_update().clone()
    }

    /// True for a subscription by pattern.
    fn has_pattern(&self) -> bool {
        self.subscription.borrow().pattern().is_some()
    }

    async fn pause(&self) {
        let next_at = self.attempts.lock().next_at(&self.options.cluster, Chance::draw());
        tokio::time::sleep_until(next_at).await;
    }

    /// Keeps the membership until that fails for good, and returns the error. Boxed, so that the task holds the state
    /// of one protocol, and so that neither protocol is compiled again with its caller.
    fn run(self) -> BoxFuture<'static, ClientError> {
        match self.options.group_protocol {
            GroupProtocol::Classic => Box::pin(classic::ClassicMember::new(self).run()),
            GroupProtocol::Consumer => Box::pin(server_side::ServerSideMember::new(self).run()),
        }
    }

    /// The same, except for the times in which the application does not poll.
    async fn run_while_polled(self, polls: &PollWatch) -> ClientError {
        loop {
            tokio::select! {
                ended = self.clone().run() => return ended,
                () = polls.silence(self.options.rebalance_timeout) => {}
            }
            tracing::warn!(
                group = self.coordinator.group(),
                "no poll for max.poll.interval.ms: the consumer leaves its group until the next poll"
            );
            let left = leave(&self.coordinator, &self.options, &self.identity.get()).await;
            if let Err(error) = &left {
                tracing::warn!(%error, "the group could not be told; it notices when the session times out");
            }
            // The interrupted attempt has not failed; a later failure begins anew.
            self.attempts.lock().succeed();
            // If the coordinator has not received the `LeaveGroup`, the member takes its place back by its id.
            let renew = if left.is_ok() { MemberIdentity::forget } else { MemberIdentity::begin_anew };
            self.lose(renew);
            polls.resumed().await;
        }
    }
}

/// The consumer's side of its membership. Dropping it ends the task; the coordinator then notices the missing
/// heartbeats, unless the [`Departure`] of [`end`](Self::end) tells it.
///
/// Invariants: `lost` is the number of ended memberships that the consumer knows of; it reads in the one after these.
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
    /// Begins to join. If the coordinator has not received the end of the membership before, the member takes its
    /// place back by its id, so that the group does not wait for it.
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

    /// Changes the subscription. Repeating the same one causes no rebalance.
    pub(super) fn resubscribe(&self, subscription: Subscription) {
        self.subscription.send_if_modified(|current| {
            let differs = *current != subscription;
            *current = subscription;
            differs
        });
    }

    /// A guard to keep while the consumer is polled.
    pub(super) fn polling(&self) -> Polling {
        self.polls.begin()
    }

    /// The committer for records that are read now.
    pub(super) fn committer(&self) -> Committer {
        let epoch_min = match self.options.group_protocol {
            GroupProtocol::Classic => 0,
            // The epoch of a joining member is 0.
            GroupProtocol::Consumer => 1,
        };
        Committer { identity: self.identity.clone(), lost: self.lost, epoch_min }
    }

    /// The problem that keeps it from being a member, if there is one.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.attempts.lock().trouble()
    }

    /// The next event. After the end of the task it waits for ever.
    pub(super) async fn next_event(&mut self) -> GroupEvent {
        let event = self.events.next().await;
        self.noted(event)
    }

    /// An event that is already queued.
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
        // Another thread may still run the task, and a request that it sends later would arrive after the `LeaveGroup`.
        let _ = (&mut self.task).await;
        let (coordinator, options) = (Arc::clone(&self.coordinator), Arc::clone(&self.options));
        Departure::new(coordinator, options, self.identity.get())
    }
}
