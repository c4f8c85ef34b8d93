//! Owns the calling side of links: makes them when they are needed, and sends the requests of this member.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::{EntryPayload, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use openraft_rt::AsyncRuntime as _;
use parking_lot::Mutex;
use riverrun_env::{BoxFuture, Link, NodeEnv};

use super::Identity;
use super::hello::{Failure, SHORT_BYTES_MAX};
use super::notes::Refusals;
use crate::runtime::Runtime;
use crate::types::{Entry, Peer, Types, Vote, VoterId};
use crate::wire::{Answer, Beginning, COMMANDS_BYTES_MAX, PIECE_BYTES, Request};

/// Time after which the making of a link begins anew. It may take longer than the time of the request that it is for.
const MAKING_TIME: Duration = Duration::from_secs(1);

/// Time that each byte of a command may take on its way: 16 MB are sent in a second.
const BYTE_TIME: Duration = Duration::from_nanos(60);

/// Upper bound of the answer to an ask in bytes.
const TOLD_BYTES_MAX: usize = 4 << 20;

type CommittedLeader = openraft::type_config::alias::CommittedLeaderIdOf<Types>;
type SnapshotOf = Snapshot<CommittedLeader, VoterId, Peer, Bytes>;

/// Makes connections to other members.
pub(crate) struct Connections {
    node: NodeEnv,
    identity: Identity,
    refusals: Arc<Refusals>,
}

impl Connections {
    pub(crate) fn new(node: &NodeEnv, identity: Identity) -> Self {
        Self { refusals: Arc::new(Refusals::new(Arc::clone(&node.env.clock))), node: node.clone(), identity }
    }
}

impl RaftNetworkFactory<Types> for Connections {
    type Network = Connection;

    async fn new_client(&mut self, target: VoterId, peer: &Peer) -> Connection {
        self.connection(target, peer)
    }
}

impl Connections {
    pub(crate) fn connection(&self, target: VoterId, peer: &Peer) -> Connection {
        Connection {
            node: self.node.clone(),
            identity: self.identity.clone(),
            refusals: Arc::clone(&self.refusals),
            to: target,
            address: peer.address.clone(),
            way: Mutex::default(),
        }
    }
}

/// A connection to another member, made when it is needed.
pub(crate) struct Connection {
    node: NodeEnv,
    identity: Identity,
    refusals: Arc<Refusals>,
    to: VoterId,
    address: String,
    /// Nobody shares it: the lock makes a link, which has one user, fit for a type that may be shared.
    way: Mutex<Way>,
}

/// The way to a member.
///
/// Invariants: `link` has proved itself and has no request that is not answered: one whose answer did not come in time is
/// dropped with it.
#[derive(Default)]
struct Way {
    link: Option<Link>,
    making: Option<Making>,
}

/// A link that is being made, and since when.
struct Making {
    since: Duration,
    made: BoxFuture<'static, Result<Made, Failure>>,
}

/// A link that has been made, and the time that its beginning took: a message there and one back.
struct Made {
    link: Link,
    round_trip: Duration,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Why a request has no answer.
pub(crate) enum NoAnswer {
    /// There is no link to the member: nothing was sent.
    Unreachable(Failure),
    /// There was no link in time: nothing was sent.
    NotMade,
    /// The link broke.
    Broken(io::Error),
    /// The answer is none, or too late.
    Lost(io::Error),
}

impl From<NoAnswer> for RPCError<Types> {
    fn from(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Unreachable(error) => Self::Unreachable(Unreachable::new(&error)),
            NoAnswer::NotMade => Self::Network(NetworkError::new(&io::Error::from(io::ErrorKind::TimedOut))),
            NoAnswer::Broken(error) | NoAnswer::Lost(error) => Self::Network(NetworkError::new(&error)),
        }
    }
}

fn unexpected() -> NoAnswer {
    NoAnswer::Lost(io::Error::new(io::ErrorKind::InvalidData, "the answer is to another request"))
}

fn late() -> NoAnswer {
    NoAnswer::Lost(io::ErrorKind::TimedOut.into())
}

impl Connection {
    /// Sends a request and waits for its answer, for `time` at most.
    async fn call(&mut self, request: &Request, time: Duration) -> Result<Answer, NoAnswer> {
        let until = self.node.env.clock.monotonic() + time;
        let message = request.encode();
        // A piece that goes on with a snapshot has to come over the same link.
        // An ask might be done twice.
        let is_free = !matches!(request, Request::Piece { beginning: None, .. } | Request::Ask(_));
        let answer_max = if let Request::Ask(_) = request { TOLD_BYTES_MAX } else { SHORT_BYTES_MAX };
        if let Some(link) = self.way.get_mut().link.take() {
            match self.exchange(link, message.clone(), until, answer_max).await {
                // The other side lets a link go that was idle, or one too many: a new one may do.
                Err(NoAnswer::Broken(_)) if is_free => {}
                result => return result,
            }
        }
        let Made { link, round_trip } = self.make_link(until).await?;
        if self.time_until(until) < round_trip {
            // An answer would come too late, and the link would be lost with it: it is for the next request.
            self.way.get_mut().link = Some(link);
            return Err(NoAnswer::NotMade);
        }
        self.exchange(link, message, until, answer_max).await
    }

    fn time_until(&self, until: Duration) -> Duration {
        until.saturating_sub(self.node.env.clock.monotonic())
    }

    /// Makes a link. If that takes too long, it goes on with the next request.
    async fn make_link(&mut self, until: Duration) -> Result<Made, NoAnswer> {
        let (now, time) = (self.node.env.clock.monotonic(), self.time_until(until));
        let Way { making, .. } = self.way.get_mut();
        if making.as_ref().is_some_and(|making| now.saturating_sub(making.since) >= MAKING_TIME) {
            *making = None;
        }
        let current = making.get_or_insert_with(|| {
            let made = make(self.node.clone(), self.identity.clone(), self.to, self.address.clone());
            Making { since: now, made: Box::pin(made) }
        });
        let made = Runtime::timeout(time, &mut current.made).await.map_err(|_| NoAnswer::NotMade)?;
        *making = None;
        made.map_err(|failure| {
            if failure.is_notable() {
                self.refusals.refused(self.to, &self.address, &failure.to_string());
            }
            NoAnswer::Unreachable(failure)
        })
    }

    /// Sends a request over a link, which is kept if it is answered.
    async fn exchange(
        &mut self,
        mut link: Link,
        request: Bytes,
        until: Duration,
        answer_max: usize,
    ) -> Result<Answer, NoAnswer> {
        let exchanging = async {
            link.sender.send(request).await?;
            let answer = link.receiver.receive_at_most(answer_max).await?;
            answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let exchanged = Runtime::timeout(self.time_until(until), exchanging).await.map_err(|_| late())?;
        match Answer::decode(&exchanged.map_err(NoAnswer::Broken)?) {
            Ok(Answer::Refused(reason)) => {
                self.refusals.refused(self.to, &self.address, &reason);
                Err(NoAnswer::Lost(io::Error::other(reason)))
            }
            Ok(answer) => {
                self.refusals.taken(self.to, &self.address);
                self.way.get_mut().link = Some(link);
                Ok(answer)
            }
            Err(error) => Err(NoAnswer::Lost(io::Error::new(io::ErrorKind::InvalidData, error))),
        }
    }

    /// Asks the member something that is none of the quorum's own requests.
    pub(crate) async fn ask(&mut self, asked: Bytes, time: Duration) -> Result<Bytes, NoAnswer> {
        match self.call(&Request::Ask(asked), time).await? {
            Answer::Told(told) => Ok(told),
            _ => Err(unexpected()),
        }
    }

    /// Lets go of a link that the other side may have let go.
    pub(crate) fn let_go(&mut self) {
        self.way.get_mut().link = None;
    }

    /// Sends a snapshot in pieces. Each has the time that the whole may take.
    async fn send_snapshot(
        &mut self,
        vote: Vote,
        snapshot: &SnapshotOf,
        time: Duration,
    ) -> Result<SnapshotResponse<Types>, NoAnswer> {
        let total = snapshot.snapshot.len() as u64;
        let mut beginning = Some(Beginning { vote, meta: snapshot.meta.clone(), total });
        let mut rest = snapshot.snapshot.clone();
        loop {
            let bytes = rest.split_to(rest.len().min(PIECE_BYTES));
            let piece = Request::Piece { beginning: beginning.take(), bytes };
            match self.call(&piece, time).await? {
                Answer::Snapshot(response) => return Ok(response),
                Answer::Piece if !rest.is_empty() => {}
                _ => return Err(unexpected()),
            }
        }
    }
}

/// The number of entries from the first on that fit into a message, at least one, and the bytes of their commands.
fn fitting(entries: &[Entry]) -> (usize, usize) {
    let mut bytes = 0;
    for (count, entry) in entries.iter().enumerate() {
        // Others are small, and few.
        let more = if let EntryPayload::Normal(command) = &entry.payload { command.0.len() } else { 0 };
        if count > 0 && bytes + more > COMMANDS_BYTES_MAX {
            return (count, bytes);
        }
        bytes += more;
    }
    (entries.len(), bytes)
}

/// Makes a link to a voter, which has proved itself.
async fn make(node: NodeEnv, identity: Identity, to: VoterId, address: String) -> Result<Made, Failure> {
    let mut link = node.network.connect(&address).await?;
    let begun = node.env.clock.monotonic();
    identity.begin(&mut link, Some(to), &*node.env.random).await?;
    Ok(Made { link, round_trip: node.env.clock.monotonic().saturating_sub(begun) })
}

impl RaftNetworkV2<Types> for Connection {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        mut request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let (entries, bytes) = fitting(&request.entries);
        let is_cut = entries < request.entries.len();
        request.entries.truncate(entries);
        let last = request.entries.last().map(|entry| entry.log_id);
        let time = option.hard_ttl() + BYTE_TIME * u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.call(&Request::Append(request), time).await? {
            Answer::Append(AppendEntriesResponse::Success) if is_cut => {
                Ok(AppendEntriesResponse::PartialSuccess(last))
            }
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
