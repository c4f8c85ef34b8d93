//! Owns a member of a quorum as the rest of the program sees it: propose a command, and know who leads.

mod asking;
mod in_flight;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, Fatal, LinearizableReadError, RaftError};
use openraft::{ChangeMembers, Config, ReadPolicy, SnapshotPolicy};
use openraft_rt::WatchReceiver as _;
use riverrun_env::{BoxFuture, NodeEnv, TaskHandle};
use thiserror::Error;

use self::asking::Asking;
pub use self::asking::{AskError, Lane};
use self::in_flight::InFlight;
use crate::log::{LogStore, Opened, StoreError};
use crate::machine::{Machine, Shared, StateMachine};
use crate::net::{AnswererSlot, Connections, Identity, start_serving};
use crate::runtime::InNode;
use crate::secret::Secret;
use crate::types::{Command, Peer, Types, VoterId};
use crate::wire::ENTRIES_MAX;

/// Upper bound of a command in bytes.
pub const COMMAND_BYTES_MAX: usize = 32 << 20;

/// The options of a member.
#[derive(Clone, Debug)]
pub struct QuorumOptions {
    /// The cluster's id. Members of another one are refused.
    pub cluster: [u8; 16],
    /// The secret that its members share. Whoever does not have it is not heard.
    pub secret: Secret,
    /// This member.
    pub voter: VoterId,
    /// The address on which it listens for other members.
    pub listen: String,
    /// The directory of its log and its snapshot.
    pub directory: PathBuf,
    /// Time between two signs of life of a leader. Another leader is looked for after six to twelve of it.
    pub heartbeat: Duration,
    /// Entries after which a snapshot takes their place.
    pub snapshot_every: u64,
}

/// Why a member does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its files cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its snapshot cannot be used.
    #[error("the snapshot of the quorum cannot be used: {0}")]
    Snapshot(String),
    /// Nobody can reach it.
    #[error("{0}: {1}")]
    Listen(String, #[source] io::Error),
    /// The options fit nothing.
    #[error("the options of the quorum do not fit: {0}")]
    Options(String),
    /// It stopped while it started.
    #[error("the quorum's member has stopped: {0}")]
    Stopped(String),
}

/// Why a command was not taken, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// Another member leads; none is known while one is being elected. The command was not taken.
    #[error("another member leads")]
    NotLeader(Option<VoterId>),
    /// The command is too large. It was not taken.
    #[error("a command has at most {COMMAND_BYTES_MAX} bytes")]
    TooLarge,
    /// The change of the members does not fit those that there are, or another one is not over. Nothing has changed.
    #[error("the members cannot be changed so: {0}")]
    Members(String),
    /// The member has stopped: its storage has failed, or it was told to. The command may have been taken.
    #[error("the quorum's member has stopped: {0}")]
    Stopped(String),
}

/// A command that all members apply, at an index of the log, and the machine's answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The index of the command.
    pub index: u64,
    /// The answer of the [`Machine`].
    pub reply: Bytes,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The index of the last entry that it has applied.
    pub applied: Option<u64>,
    /// A digest of all commands and replies up to there: equal on all members that have applied as much.
    pub digest: u64,
}

/// Answers what other members ask of this one, besides the quorum's own messages.
pub trait Answerer: Send + Sync {
    /// The answer to what a member has asked.
    fn answer(&self, from: VoterId, asked: Bytes) -> BoxFuture<'static, Bytes>;
}

/// A member of a quorum. Clones are the same member.
pub struct Quorum<M: Machine> {
    inner: Arc<Inner<M>>,
}

impl<M: Machine> Clone for Quorum<M> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<M: Machine> {
    node: NodeEnv,
    raft: Arc<openraft::Raft<Types, StateMachine<M>>>,
    in_flight: InFlight,
    applied: Shared<M>,
    store: LogStore,
    listening: TaskHandle,
    answerer: AnswererSlot,
    asking: Asking,
}

impl<M: Machine> fmt::Debug for Quorum<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("voter", self.inner.raft.node_id()).finish_non_exhaustive()
    }
}

fn config(options: &QuorumOptions) -> Result<Config, StartError> {
    let heartbeat = u64::try_from(options.heartbeat.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "riverrun".to_owned(),
        heartbeat_interval: heartbeat,
        election_timeout_min: heartbeat.saturating_mul(6),
        election_timeout_max: heartbeat.saturating_mul(12),
        install_snapshot_timeout: heartbeat.saturating_mul(100),
        max_payload_entries: 300,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_every),
        max_in_snapshot_log_to_keep: options.snapshot_every / 5,
        enable_pre_vote: Some(true),
        // Entries are sent before they are durable here: a leader that has lost them and led on in its term would give their indexes
        // out again.
        enable_leader_restore: Some(false),
        // A member whose disk has lost what it had answered is mended, and stops no leader. By itself none loses that; see
        // decision 12.
        allow_log_reversion: Some(true),
        // At least a leader's lease and the longest wait for an election together.
        quorum_loss_probe_interval: Some(heartbeat.saturating_mul(24)),
        ..Config::default()
    };
    #[cfg(test)]
    let config = with_planted(config);
    debug_assert!(
        config.max_payload_entries <= ENTRIES_MAX as u64,
        "a message takes as many entries as are sent"
    );
    config.validate().map_err(|error| StartError::Options(error.to_string()))
}

#[cfg(test)]
fn with_planted(config: Config) -> Config {
    use crate::planted::{Planted, is_planted};
    let leads_on = is_planted(Planted::LeadsOnAfterAStart);
    let probe = config.quorum_loss_probe_interval.filter(|_| !is_planted(Planted::NoProbe));
    Config { enable_leader_restore: Some(leads_on), quorum_loss_probe_interval: probe, ..config }
}

impl<M: Machine> Quorum<M> {
    /// Starts a member: reads its files, listens for the others, and takes part in what they agree upon. A directory without a log
    /// makes a member that waits until it is told of others, by [`Self::found`] or by a leader.
    pub async fn start(node: &NodeEnv, options: QuorumOptions, machine: M) -> Result<Self, StartError> {
        InNode::new(node, Self::start_here(node, options, machine)).await
    }

    async fn start_here(node: &NodeEnv, options: QuorumOptions, machine: M) -> Result<Self, StartError> {
        let config = Arc::new(config(&options)?);
        let listener = node.network.listen(&options.listen);
        let listener = listener.map_err(|error| StartError::Listen(options.listen.clone(), error))?;
        let Opened { store, snapshot } = LogStore::open(&node.env, &options.directory)?;
        // The worker of a log that nobody uses ends.
        let closing = |error| {
            store.close();
            error
        };
        let state = StateMachine::new(machine, store.clone(), snapshot);
        let state = state.map_err(StartError::Snapshot).map_err(closing)?;
        let applied = state.shared();
        let identity = Identity { cluster: options.cluster, voter: options.voter, secret: options.secret };
        let connections = Connections::new(node, identity.clone());
        let raft = openraft::Raft::new(options.voter, config, connections, store.clone(), state).await;
        let raft = raft.map_err(|error| StartError::Stopped(error.to_string())).map_err(closing)?;
        let raft = Arc::new(raft);
        stop_with_its_log(node, &store, &raft);
        let answerer = AnswererSlot::default();
        let listening = start_serving(node, listener, &raft, &store, identity.clone(), &answerer);
        let asking = Asking::new(Connections::new(node, identity));
        let (node, in_flight) = (node.clone(), InFlight::default());
        let inner = Inner { node, raft, in_flight, applied, store, listening, answerer, asking };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Founds a quorum of these members. To be called on one of them, once in the life of a cluster.
    pub async fn found(&self, members: BTreeMap<VoterId, Peer>) -> Result<(), ProposeError> {
        let raft = Arc::clone(&self.inner.raft);
        let founded = InNode::new(&self.inner.node, async move { raft.initialize(members).await }).await;
        founded.map_err(|error| match error {
            RaftError::Fatal(fatal) => stopped(&fatal),
            RaftError::APIError(error) => ProposeError::Members(error.to_string()),
        })
    }

    /// Proposes a command, and waits until it is committed and applied here. If the caller gives up meanwhile, it may be committed all
    /// the same. Commands in flight are bounded, by number and by bytes: a further one waits in line.
    pub async fn propose(&self, command: Bytes) -> Result<Accepted, ProposeError> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(ProposeError::TooLarge);
        }
        let _share = self.inner.in_flight.enter(command.len()).await;
        let raft = Arc::clone(&self.inner.raft);
        let written =
            InNode::new(&self.inner.node, async move { raft.client_write(Command(command)).await }).await;
        let written = written.map_err(refused)?;
        Ok(Accepted { index: written.log_id().index, reply: written.data.0 })
    }

    /// Lets members follow that have no vote.
    pub async fn add_learner(&self, id: VoterId, peer: Peer) -> Result<(), ProposeError> {
        self.change(ChangeMembers::AddNodes([(id, peer)].into())).await
    }

    /// Makes these the voters; each has to follow already. Those who leave are no members any more.
    pub async fn set_voters(&self, voters: BTreeSet<VoterId>) -> Result<(), ProposeError> {
        // A change that a former leader has not ended is ended first: on top of it a leader that both leave would be no member in
        // the middle of the change, which `openraft` does not expect either.
        let sets = self
            .inner
            .raft
            .metrics()
            .borrow_watched()
            .membership_config
            .membership()
            .get_joint_config()
            .clone();
        if let [_, .., last] = sets.as_slice() {
            self.change(ChangeMembers::ReplaceAllVoters(last.clone())).await?;
        }
        self.change(ChangeMembers::ReplaceAllVoters(voters)).await
    }

    async fn change(&self, change: ChangeMembers<VoterId, Peer>) -> Result<(), ProposeError> {
        // A leader that has left leads for a moment more. `openraft` does not expect another change from it, and panics in a debug
        // build.
        if !self.is_member() {
            return Err(ProposeError::NotLeader(None));
        }
        let raft = Arc::clone(&self.inner.raft);
        let changed =
            InNode::new(&self.inner.node, async move { raft.change_membership(change, false).await }).await;
        changed.map(drop).map_err(refused)
    }

    /// Has `answerer` answer what other members ask from here on. They are refused before. The first one stays.
    pub fn answer_with(&self, answerer: Arc<dyn Answerer>) {
        // The first one stays.
        let _ = self.inner.answerer.set(answerer);
    }

    /// Asks another member, and waits for its answer, for `time` at most. In each lane one ask is under way at a time; others wait.
    pub async fn ask(
        &self,
        to: VoterId,
        lane: Lane,
        asked: Bytes,
        time: Duration,
    ) -> Result<Bytes, AskError> {
        let inner = Arc::clone(&self.inner);
        InNode::new(&self.inner.node, async move {
            let peer = inner.peer(to).ok_or(AskError::NotReached(to, "it is no member".to_owned()))?;
            inner.asking.ask(&inner.node, to, &peer, lane, asked, time).await
        })
        .await
    }

    /// Waits until a majority has confirmed that this member leads, and until it has applied whatever was accepted before.
    pub async fn confirm_leadership(&self) -> Result<(), ProposeError> {
        let raft = Arc::clone(&self.inner.raft);
        let confirmed =
            InNode::new(
                &self.inner.node,
                async move { raft.ensure_linearizable(ReadPolicy::ReadIndex).await },
            );
        confirmed.await.map(drop).map_err(|error| match error {
            RaftError::Fatal(fatal) => stopped(&fatal),
            RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => {
                ProposeError::NotLeader(forward.leader_id)
            }
            RaftError::APIError(_) => ProposeError::NotLeader(None),
        })
    }

    /// Waits until this member has applied the entry of an index. None if it stops before.
    pub async fn wait_for(&self, index: u64) -> Option<()> {
        let raft = Arc::clone(&self.inner.raft);
        InNode::new(&self.inner.node, async move {
            let mut metrics = raft.metrics();
            while metrics.borrow_watched().last_applied.is_none_or(|applied| applied.index < index) {
                metrics.changed().await.ok()?;
            }
            Some(())
        })
        .await
    }

    /// The digest of all commands and replies up to an index, if this member has applied it lately.
    pub fn digest_at(&self, index: u64) -> Option<u64> {
        self.inner.applied.0.lock().digest_at(index)
    }

    /// Whether this one is a member, by the newest entry of its log that says who is.
    fn is_member(&self) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&metrics.id).is_some()
    }

    /// The member that leads, as far as this one knows.
    pub fn leader(&self) -> Option<VoterId> {
        self.inner.raft.metrics().borrow_watched().current_leader
    }

    /// The term and whether this member takes itself for its leader.
    pub fn leads(&self) -> (u64, bool) {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.current_term, metrics.state == openraft::ServerState::Leader)
    }

    /// How far this member has come.
    pub fn progress(&self) -> Progress {
        let applied = self.inner.applied.0.lock();
        Progress { applied: applied.last.map(|id| id.index), digest: applied.digest }
    }

    /// Looks at the machine. Commands wait meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&M) -> T) -> T {
        look(&self.inner.applied.0.lock().machine)
    }

    /// Stops this member. What it has taken stays.
    pub async fn stop(&self) {
        self.inner.listening.abort();
        let raft = Arc::clone(&self.inner.raft);
        // It has ended either way.
        let _ = InNode::new(&self.inner.node, async move { raft.shutdown().await }).await;
        self.inner.store.close();
    }
}

/// Stops a member whose log has failed: it would live on with one that takes nothing.
fn stop_with_its_log<M: Machine>(
    node: &NodeEnv,
    store: &LogStore,
    raft: &Arc<openraft::Raft<Types, StateMachine<M>>>,
) {
    let (failure, stopping) = (store.failure(), Arc::clone(raft));
    let stop = async move {
        if failure.await.is_ok() {
            // It may have ended already.
            let _ = stopping.shutdown().await;
        }
    };
    node.tasks.spawn("quorum-failure", Box::pin(InNode::new(node, stop)));
}

impl<M: Machine> Inner<M> {
    fn peer(&self, member: VoterId) -> Option<Peer> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_node(&member).cloned()
    }
}

fn stopped(fatal: &Fatal<Types>) -> ProposeError {
    ProposeError::Stopped(fatal.to_string())
}

fn refused(error: RaftError<Types, ClientWriteError<Types>>) -> ProposeError {
    match error {
        RaftError::Fatal(fatal) => stopped(&fatal),
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            ProposeError::NotLeader(forward.leader_id)
        }
        RaftError::APIError(error) => ProposeError::Members(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
