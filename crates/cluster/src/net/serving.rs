//! Owns the answering side of links: lets other members in and answers their requests.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use openraft::raft::SnapshotResponse;
use openraft::storage::Snapshot;
use openraft_rt::{AsyncRuntime as _, Select2};
use riverrun_env::{BoxFuture, Link, LinkListener, LinkReceiver, NodeEnv, TaskHandle};

use super::arrival::{Arrival, Arrived, Incoming};
use super::hello::Failure;
use super::links::{Links, Place};
use super::notes::Strangers;
use super::{IDLE_TIME, Identity, PROOF_TIME};
use crate::log::LogStore;
use crate::machine::{Machine, StateMachine};
#[cfg(test)]
use crate::planted::{Planted, is_planted};
use crate::quorum::Answerer;
use crate::runtime::{InNode, Runtime};
use crate::types::{Types, VoterId};
use crate::wire::{Answer, Beginning, MESSAGE_BYTES_MAX, Request};

type Raft<M> = openraft::Raft<Types, StateMachine<M>>;

/// The place of whoever answers what members ask besides the quorum's own requests.
pub(crate) type AnswererSlot = Arc<OnceLock<Arc<dyn Answerer>>>;

/// The things that all links of a member have in common.
struct Door<M: Machine> {
    node: NodeEnv,
    identity: Identity,
    raft: Raft<M>,
    store: LogStore,
    arrival: Arrival,
    strangers: Strangers,
    answerer: AnswererSlot,
}

/// Starts the task that answers the requests of other members, and ends all of their links once it is aborted.
pub(crate) fn start_serving<M: Machine>(
    node: &NodeEnv,
    listener: Box<dyn LinkListener>,
    raft: &Arc<Raft<M>>,
    store: &LogStore,
    identity: Identity,
    answerer: &AnswererSlot,
) -> TaskHandle {
    let strangers = Strangers::new(Arc::clone(&node.env.clock));
    let (raft, store, arrival) = (Raft::clone(raft), store.clone(), Arrival::default());
    let (node, answerer) = (node.clone(), Arc::clone(answerer));
    let door = Arc::new(Door { node, identity, raft, store, arrival, strangers, answerer });
    let node = &door.node.clone();
    node.tasks.spawn("quorum-listener", Box::pin(InNode::new(node, door.serve(listener))))
}

impl<M: Machine> Door<M> {
    async fn serve(self: Arc<Self>, mut listener: Box<dyn LinkListener>) {
        let links = Links::default();
        loop {
            let link = match listener.accept().await {
                Ok(link) => link,
                Err(error) => {
                    tracing::warn!("another member could not be let in: {error}");
                    self.node.tasks.sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (place, ending, lost) = links.enter(&link.source);
            if let Some(source) = lost {
                self.strangers
                    .warn(&source, &"too many have not proved themselves, and a new one needs its place");
            }
            let door = Arc::clone(&self);
            let answering = async move { door.answer_link(link, place).await };
            let task = InNode::new(&self.node, async move {
                // It has ended either way.
                let _ = Runtime::select2(ending, Box::pin(answering)).await;
            });
            self.node.tasks.spawn("quorum-link", Box::pin(task));
        }
    }

    async fn answer_link(&self, mut link: Link, place: Place) {
        let proving = self.identity.let_in(&mut link, &*self.node.env.random);
        let proved = Runtime::timeout(PROOF_TIME, proving).await.unwrap_or(Err(Failure::TooLong));
        let voter = match proved {
            Ok(voter) => voter,
            Err(failure) if failure.is_notable() => return self.strangers.warn(&link.source, &failure),
            Err(failure) => return tracing::debug!("a link from {} has ended: {failure}", link.source),
        };
        place.prove(voter);
        let incoming = self.arrival.over(place.number());
        let mut waiting = Waiting::new(&self.node);
        while let Some(message) = waiting.receive(&mut *link.receiver).await {
            let answer = self.answer(voter, &message, &incoming).await.unwrap_or_else(Answer::Refused);
            let is_refused = matches!(answer, Answer::Refused(_));
            if link.sender.send(answer.encode()).await.is_err() || is_refused {
                return;
            }
        }
    }

    /// Answers a request. An error is the reason for which it is refused.
    async fn answer(&self, from: VoterId, message: &Bytes, incoming: &Incoming) -> Result<Answer, String> {
        let stopped = "the member has stopped".to_owned();
        let request = Request::decode(message).map_err(|error| error.to_string())?;
        #[cfg(test)]
        if let (Request::Vote(vote) | Request::PreVote(vote), true) =
            (&request, is_planted(Planted::VoteAlwaysGranted))
        {
            return Ok(Answer::Vote(openraft::raft::VoteResponse::new(vote.vote, None, true)));
        }
        match request {
            Request::Append(append) => self.raft.append_entries(append).await.map(Answer::Append),
            Request::Vote(vote) => self.raft.vote(vote).await.map(Answer::Vote),
            Request::PreVote(vote) => self.raft.pre_vote(vote).await.map(Answer::Vote),
            Request::Transfer(transfer) => {
                let handed = self.raft.handle_transfer_leader(transfer).await.map_err(|_| stopped)?;
                return Ok(Answer::Transfer(handed.is_ok()));
            }
            Request::Ask(asked) => {
                let answerer = self.answerer.get().ok_or("the member is starting")?;
                return Ok(Answer::Told(answerer.answer(from, asked).await));
            }
            Request::Piece { beginning, bytes } => {
                return match incoming.take(beginning, &bytes)? {
                    None => Ok(Answer::Piece),
                    Some(arrived) => self.install(arrived).await.map(Answer::Snapshot).ok_or(stopped),
                };
            }
        }
        .map_err(|_| stopped)
    }

    /// Installs a snapshot, in a task of its own: it is in memory until that is over, even if its link ends before.
    async fn install(&self, arrived: Arrived) -> Option<SnapshotResponse<Types>> {
        let (raft, store) = (self.raft.clone(), self.store.clone());
        let installing = Runtime::spawn(async move {
            let Arrived { beginning: Beginning { vote, meta, .. }, bytes, place } = arrived;
            let installed =
                raft.install_full_snapshot(vote, Snapshot { meta, snapshot: bytes }).await.ok()?;
            #[cfg(test)]
            if is_planted(Planted::InstallAnsweredEarly) {
                return Some(installed);
            }
            // `openraft` takes a snapshot for installed at once if its entries are here and committed, durable or not. The leader is
            // told of what is durable.
            store.sync_all().await.ok()?;
            drop(place);
            Some(installed)
        });
        installing.await.ok()?
    }
}

/// Waits for the requests of a link, as long as they come.
struct Waiting {
    node: NodeEnv,
    /// The time of the last request's answer.
    since: Duration,
    /// Ends when the link may be idle for too long: one timer for many requests.
    alarm: BoxFuture<'static, ()>,
}

impl Waiting {
    fn new(node: &NodeEnv) -> Self {
        Self { since: node.env.clock.monotonic(), alarm: node.tasks.sleep(IDLE_TIME), node: node.clone() }
    }

    /// The next request; `None` if the link has ended or is idle.
    async fn receive(&mut self, receiver: &mut dyn LinkReceiver) -> Option<Bytes> {
        self.since = self.node.env.clock.monotonic();
        let mut next = receiver.receive_at_most(MESSAGE_BYTES_MAX);
        loop {
            match Runtime::select2(&mut next, &mut self.alarm).await {
                Select2::First(message) => return message.ok().flatten(),
                Select2::Second(()) => {
                    let idle = self.node.env.clock.monotonic().saturating_sub(self.since);
                    let left = IDLE_TIME.checked_sub(idle).filter(|left| !left.is_zero())?;
                    self.alarm = self.node.tasks.sleep(left);
                }
            }
        }
    }
}
