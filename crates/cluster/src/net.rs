//! Owns how members of a quorum reach each other: a link for each direction of speech, one request after the other on it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use openraft_rt::AsyncRuntime as _;
use parking_lot::Mutex;
use riverrun_env::{Link, LinkListener, NodeEnv};

use crate::log::LogStore;
use crate::machine::{Machine, StateMachine};
use crate::runtime::{InNode, Runtime};
use crate::types::{Peer, SnapshotMeta, Types, Vote, VoterId};
use crate::wire::{Answer, Envelope, PIECE_BYTES, Request};

/// Upper bound of a snapshot in bytes.
const SNAPSHOT_BYTES_MAX: usize = 512 << 20;
/// Upper bound of the links of other members: each has three, and a lost one is noticed late.
const LINKS_MAX: usize = 256;

type Raft<M> = openraft::Raft<Types, StateMachine<M>>;
type CommittedLeader = openraft::type_config::alias::CommittedLeaderIdOf<Types>;
type SnapshotOf = Snapshot<CommittedLeader, VoterId, Peer, Bytes>;

/// A member, as the others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: [u8; 16],
    pub(crate) voter: VoterId,
}

/// Makes connections to other members.
pub(crate) struct Connections {
    pub(crate) node: NodeEnv,
    pub(crate) identity: Identity,
}

impl RaftNetworkFactory<Types> for Connections {
    type Network = Connection;

    async fn new_client(&mut self, target: VoterId, peer: &Peer) -> Connection {
        let Identity { cluster, voter: from } = self.identity;
        let envelope = Envelope { cluster, from, to: target };
        Connection {
            node: self.node.clone(),
            envelope,
            address: peer.address.clone(),
            link: Mutex::new(None),
        }
    }
}

/// A connection to another member, made when it is needed.
///
/// Invariants: `link` has no request that is not answered: one whose answer did not come in time is dropped with it.
pub(crate) struct Connection {
    node: NodeEnv,
    envelope: Envelope,
    address: String,
    /// Nobody shares it: the lock makes a link, which has one user, fit for a type that may be shared.
    link: Mutex<Option<Link>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a request has no answer.
enum NoAnswer {
    /// There is no link to the member.
    Unreachable(io::Error),
    /// The link broke, or the answer is none, or too late.
    Lost(io::Error),
}

impl From<NoAnswer> for RPCError<Types> {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Unreachable(error) => Self::Unreachable(Unreachable::new(&error)),
            NoAnswer::Lost(error) => Self::Network(NetworkError::new(&error)),
        }
    }
}

fn unexpected() -> NoAnswer {
    NoAnswer::Lost(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another request"))
}

impl Connection {
    /// Sends a request and waits for its answer, for `time` at most.
    async fn call(&mut self, request: &Request, time: Duration) -> Result<Answer, NoAnswer> {
        let link = self.link.get_mut().take();
        let exchange = exchange(self.node.clone(), self.address.clone(), link, self.envelope.seal(request));
        let (link, answer) = match Runtime::timeout(time, exchange).await {
            Ok(result) => result?,
            Err(late) => return Err(NoAnswer::Lost(io::Error::new(io::ErrorKind::TimedOut, late))),
        };
        match Answer::decode(&answer) {
            Ok(Answer::Refused(reason)) => Err(NoAnswer::Lost(io::Error::other(reason))),
            Ok(answer) => {
                *self.link.get_mut() = Some(link);
                Ok(answer)
            }
            Err(error) => Err(NoAnswer::Lost(io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }

    /// Sends a snapshot in pieces. Each has the time that the whole may take.
    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: &SnapshotOf,
        time: Duration,
    ) -> Result<SnapshotResponse<Types>, NoAnswer> {
        let total = snapshot.snapshot.len() as u64;
        let mut first = Some((vote, snapshot.meta.clone()));
        let mut rest = snapshot.snapshot.clone();
        loop {
            let bytes = rest.split_to(rest.len().min(PIECE_BYTES));
            let piece = Request::Piece { first: first.take(), total, bytes };
            match self.call(&piece, time).await? {
                Answer::Snapshot(response) => return Ok(response),
                Answer::Piece if !rest.is_empty() => {}
                _ => return Err(unexpected()),
            }
        }
    }
}

async fn exchange(
    node: NodeEnv,
    address: String,
    link: Option<Link>,
    request: Bytes,
) -> Result<(Link, Bytes), NoAnswer> {
    let mut link = match link {
        Some(link) => link,
        None => node.network.connect(&address).await.map_err(NoAnswer::Unreachable)?,
    };
    link.sender.send(request).await.map_err(NoAnswer::Lost)?;
    let answer = link.receiver.receive().await.map_err(NoAnswer::Lost)?;
    answer.map(|answer| (link, answer)).ok_or_else(|| NoAnswer::Lost(io::ErrorKind::UnexpectedEof.into()))
}

impl RaftNetworkV2<Types> for Connection {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        match self.call(&Request::Append(request), option.hard_ttl()).await? {
            Answer::Append(response) => Ok(response),
            _ => Err(unexpected().into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&Request::Vote(request), option.hard_ttl()).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(unexpected().into()),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&Request::PreVote(request), option.hard_ttl()).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(unexpected().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let sending = self.send_snapshot(vote, &snapshot, option.hard_ttl());
        match Runtime::select2(Box::pin(cancel), Box::pin(sending)).await {
            openraft_rt::Select2::First(closed) => Err(StreamingError::Closed(closed)),
            openraft_rt::Select2::Second(sent) => Ok(sent.map_err(RPCError::from)?),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.call(&Request::Transfer(request), option.hard_ttl()).await? {
            Answer::Transfer(true) => Ok(Ok(())),
            Answer::Transfer(false) => Err(RPCError::Network(NetworkError::new(&io::Error::other(
                "the member does not take the leadership over",
            )))),
            _ => Err(unexpected().into()),
        }
    }
}

/// Answers the requests of other members, until the listener fails.
pub(crate) async fn serve<M: Machine>(
    node: NodeEnv,
    mut listener: Box<dyn LinkListener>,
    raft: Raft<M>,
    store: LogStore,
    identity: Identity,
) {
    let links = Arc::new(());
    loop {
        let link = match listener.accept().await {
            Ok(link) => link,
            Err(error) => {
                tracing::warn!("another member could not be let in: {error}");
                node.tasks.sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if Arc::strong_count(&links) > LINKS_MAX {
            tracing::warn!("another member was not let in: there are {LINKS_MAX} links");
            continue;
        }
        let counted = Arc::clone(&links);
        let answering = Answering { raft: raft.clone(), store: store.clone(), identity, incoming: None };
        let task = InNode::new(&node, async move {
            answer_all(answering, link).await;
            drop(counted);
        });
        node.tasks.spawn("quorum-link", Box::pin(task));
    }
}

async fn answer_all<M: Machine>(mut answering: Answering<M>, mut link: Link) {
    while let Ok(Some(message)) = link.receiver.receive().await {
        let answer = match answering.answer(&message).await {
            Ok(answer) => answer,
            Err(reason) => Answer::Refused(reason),
        };
        let is_refused = matches!(answer, Answer::Refused(_));
        if link.sender.send(answer.encode()).await.is_err() || is_refused {
            return;
        }
    }
}

/// Answers the requests of one link.
struct Answering<M: Machine> {
    raft: Raft<M>,
    store: LogStore,
    identity: Identity,
    /// The snapshot that is arriving.
    incoming: Option<(Vote, SnapshotMeta, BytesMut)>,
}

impl<M: Machine> Answering<M> {
    async fn answer(&mut self, message: &Bytes) -> Result<Answer, String> {
        let (envelope, request) = Envelope::open(message).map_err(|error| error.to_string())?;
        self.check(&envelope)?;
        #[cfg(test)]
        if let (Request::Vote(vote) | Request::PreVote(vote), true) = (&request, is_any_vote_granted()) {
            return Ok(Answer::Vote(VoteResponse::new(vote.vote, None, true)));
        }
        let stopped = "the member has stopped".to_owned();
        match request {
            Request::Append(append) => self.raft.append_entries(append).await.map(Answer::Append),
            Request::Vote(vote) => self.raft.vote(vote).await.map(Answer::Vote),
            Request::PreVote(vote) => self.raft.pre_vote(vote).await.map(Answer::Vote),
            Request::Transfer(transfer) => {
                let handed = self.raft.handle_transfer_leader(transfer).await.map_err(|_| stopped)?;
                return Ok(Answer::Transfer(handed.is_ok()));
            }
            Request::Piece { first, total, bytes } => return self.take_piece(first, total, &bytes).await,
        }
        .map_err(|_| stopped)
    }

    fn check(&self, envelope: &Envelope) -> Result<(), String> {
        if envelope.cluster != self.identity.cluster {
            return Err("this node belongs to another cluster: look at the addresses of --join".to_owned());
        }
        #[cfg(test)]
        if crate::planted::is_planted(crate::planted::Planted::OtherLifeAnswers) {
            return Ok(());
        }
        if envelope.to != self.identity.voter {
            return Err(format!("this node is {}, and {} was asked", self.identity.voter, envelope.to));
        }
        Ok(())
    }

    async fn take_piece(
        &mut self,
        first: Option<(Vote, SnapshotMeta)>,
        total: u64,
        bytes: &Bytes,
    ) -> Result<Answer, String> {
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        if total > SNAPSHOT_BYTES_MAX {
            return Err(format!("a snapshot has at most {SNAPSHOT_BYTES_MAX} bytes"));
        }
        if let Some((vote, meta)) = first {
            self.incoming = Some((vote, meta, BytesMut::new()));
        }
        let (_, _, arrived) = self.incoming.as_mut().ok_or("a snapshot has no beginning")?;
        arrived.extend_from_slice(bytes);
        if arrived.len() < total && !bytes.is_empty() {
            return Ok(Answer::Piece);
        }
        let (vote, meta, arrived) = self.incoming.take().ok_or("a snapshot has no beginning")?;
        if arrived.len() != total {
            return Err("a snapshot has another size than it said".to_owned());
        }
        let snapshot = Snapshot { meta, snapshot: arrived.freeze() };
        let stopped = "the member has stopped";
        let installed = self.raft.install_full_snapshot(vote, snapshot).await.map_err(|_| stopped)?;
        #[cfg(test)]
        if crate::planted::is_planted(crate::planted::Planted::InstallAnsweredEarly) {
            return Ok(Answer::Snapshot(installed));
        }
        // `openraft` takes a snapshot for installed at once if its entries are here and committed, durable or not. The leader is
        // told of what is durable.
        self.store.sync_all().await.map_err(|_| stopped)?;
        Ok(Answer::Snapshot(installed))
    }
}

#[cfg(test)]
fn is_any_vote_granted() -> bool {
    crate::planted::is_planted(crate::planted::Planted::VoteAlwaysGranted)
}

/// Starts the task that answers the requests of other members.
pub(crate) fn start_serving<M: Machine>(
    node: &NodeEnv,
    listener: Box<dyn LinkListener>,
    raft: &Arc<Raft<M>>,
    store: &LogStore,
    identity: Identity,
) -> riverrun_env::TaskHandle {
    let serving = serve(node.clone(), listener, Raft::clone(raft), store.clone(), identity);
    node.tasks.spawn("quorum-listener", Box::pin(InNode::new(node, serving)))
}
