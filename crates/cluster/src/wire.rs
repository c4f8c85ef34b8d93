//! Owns the messages between members of a quorum.
//!
//! A request is: version u8, cluster id of 16 bytes, the sender and the receiver that it is meant for, kind u8, and its body. An
//! answer is: version u8, kind u8, and its body. A snapshot is sent in pieces, each of which is answered.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};

use crate::codec::{Malformed, Reader, Writer};
use crate::types::{SnapshotMeta, Types, Vote, VoterId};

/// Version of the protocol between nodes.
const VERSION: u8 = 1;
/// Upper bound of the entries of a message.
pub(crate) const ENTRIES_MAX: usize = 4_096;
/// Size in bytes of a piece of a snapshot.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The sender and the receiver of a request, and their cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) cluster: [u8; 16],
    pub(crate) from: VoterId,
    pub(crate) to: VoterId,
}

pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    /// A piece of a snapshot, which has `total` bytes; the first one says what it is of.
    Piece {
        first: Option<(Vote, SnapshotMeta)>,
        total: u64,
        bytes: Bytes,
    },
    /// Something besides the quorum's own requests.
    Ask(Bytes),
}

pub(crate) enum Answer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    /// Whether the leadership could be handed over.
    Transfer(bool),
    /// More pieces are to come.
    Piece,
    Snapshot(SnapshotResponse<Types>),
    /// The answer to an ask.
    Told(Bytes),
    /// The request is refused, for a reason that more tries do not change.
    Refused(String),
}

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const FIRST_PIECE: u8 = 5;
const PIECE: u8 = 6;
const SNAPSHOT: u8 = 7;
const REFUSED: u8 = 8;
const ASK: u8 = 9;
const TOLD: u8 = 10;

const SUCCESS: u8 = 0;
const PARTIAL: u8 = 1;
const CONFLICT: u8 = 2;
const HIGHER_VOTE: u8 = 3;

fn put_vote_request(out: &mut Writer, request: &VoteRequest<Types>) {
    out.vote(&request.vote);
    out.log_id_option(request.last_log_id.as_ref());
    out.u8(u8::from(request.leadership_transfer));
}

fn vote_request(reader: &mut Reader<'_>) -> Result<VoteRequest<Types>, Malformed> {
    let (vote, last_log_id) = (reader.vote()?, reader.log_id_option()?);
    let mut request = VoteRequest::new(vote, last_log_id);
    request.leadership_transfer = reader.flag()?;
    Ok(request)
}

impl Envelope {
    /// A request's bytes.
    pub(crate) fn seal(&self, request: &Request) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.0.extend_from_slice(&self.cluster);
        out.voter(self.from);
        out.voter(self.to);
        match request {
            Request::Append(append) => {
                out.u8(APPEND);
                out.vote(&append.vote);
                out.log_id_option(append.prev_log_id.as_ref());
                out.entries(&append.entries);
                out.log_id_option(append.leader_commit.as_ref());
            }
            Request::Vote(vote) => {
                out.u8(VOTE);
                put_vote_request(&mut out, vote);
            }
            Request::PreVote(vote) => {
                out.u8(PRE_VOTE);
                put_vote_request(&mut out, vote);
            }
            Request::Transfer(transfer) => {
                out.u8(TRANSFER);
                out.vote(transfer.from_leader());
                out.voter(*transfer.to_node_id());
                out.log_id_option(transfer.last_log_id());
            }
            Request::Piece { first, total, bytes } => {
                out.u8(if first.is_some() { FIRST_PIECE } else { PIECE });
                if let Some((vote, meta)) = first {
                    out.vote(vote);
                    out.snapshot_meta(meta);
                }
                out.u64(*total);
                out.bytes(bytes);
            }
            Request::Ask(asked) => {
                out.u8(ASK);
                out.bytes(asked);
            }
        }
        out.0.into()
    }

    /// Reads a request.
    pub(crate) fn open(message: &Bytes) -> Result<(Self, Request), Malformed> {
        let mut reader = Reader::new(message);
        check_version(&mut reader)?;
        let mut cluster = [0; 16];
        cluster[..8].copy_from_slice(&reader.u64()?.to_le_bytes());
        cluster[8..].copy_from_slice(&reader.u64()?.to_le_bytes());
        let envelope = Self { cluster, from: reader.voter()?, to: reader.voter()? };
        let request = match reader.u8()? {
            APPEND => Request::Append(AppendEntriesRequest {
                vote: reader.vote()?,
                prev_log_id: reader.log_id_option()?,
                entries: reader.entries(ENTRIES_MAX)?,
                leader_commit: reader.log_id_option()?,
            }),
            VOTE => Request::Vote(vote_request(&mut reader)?),
            PRE_VOTE => Request::PreVote(vote_request(&mut reader)?),
            TRANSFER => {
                let (vote, to) = (reader.vote()?, reader.voter()?);
                Request::Transfer(TransferLeaderRequest::new(vote, to, reader.log_id_option()?))
            }
            kind @ (FIRST_PIECE | PIECE) => {
                let first =
                    if kind == FIRST_PIECE { Some((reader.vote()?, reader.snapshot_meta()?)) } else { None };
                Request::Piece { first, total: reader.u64()?, bytes: reader.bytes()? }
            }
            ASK => Request::Ask(reader.bytes()?),
            _ => return Err(Malformed("a request is of no known kind")),
        };
        reader.end()?;
        Ok((envelope, request))
    }
}

fn check_version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    if reader.u8()? == VERSION {
        Ok(())
    } else {
        Err(Malformed("it is of another version of the protocol between nodes"))
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Append(response) => {
                out.u8(APPEND);
                match response {
                    AppendEntriesResponse::Success => out.u8(SUCCESS),
                    AppendEntriesResponse::PartialSuccess(id) => {
                        out.u8(PARTIAL);
                        out.log_id_option(id.as_ref());
                    }
                    AppendEntriesResponse::Conflict => out.u8(CONFLICT),
                    AppendEntriesResponse::HigherVote(vote) => {
                        out.u8(HIGHER_VOTE);
                        out.vote(vote);
                    }
                }
            }
            Self::Vote(response) => {
                out.u8(VOTE);
                out.vote(&response.vote);
                out.u8(u8::from(response.vote_granted));
                out.log_id_option(response.last_log_id.as_ref());
            }
            Self::Transfer(done) => {
                out.u8(TRANSFER);
                out.u8(u8::from(*done));
            }
            Self::Piece => out.u8(PIECE),
            Self::Snapshot(response) => {
                out.u8(SNAPSHOT);
                out.vote(&response.vote);
            }
            Self::Told(told) => {
                out.u8(TOLD);
                out.bytes(told);
            }
            Self::Refused(reason) => {
                out.u8(REFUSED);
                out.bytes(reason.as_bytes());
            }
        }
        out.0.into()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        check_version(&mut reader)?;
        let answer = match reader.u8()? {
            APPEND => Self::Append(match reader.u8()? {
                SUCCESS => AppendEntriesResponse::Success,
                PARTIAL => AppendEntriesResponse::PartialSuccess(reader.log_id_option()?),
                CONFLICT => AppendEntriesResponse::Conflict,
                HIGHER_VOTE => AppendEntriesResponse::HigherVote(reader.vote()?),
                _ => return Err(Malformed("an answer to an append is of no known kind")),
            }),
            VOTE => {
                let (vote, granted) = (reader.vote()?, reader.flag()?);
                Self::Vote(VoteResponse::new(vote, reader.log_id_option()?, granted))
            }
            TRANSFER => Self::Transfer(reader.flag()?),
            PIECE => Self::Piece,
            SNAPSHOT => Self::Snapshot(SnapshotResponse::new(reader.vote()?)),
            TOLD => Self::Told(reader.bytes()?),
            REFUSED => Self::Refused(String::from_utf8_lossy(&reader.bytes()?).into_owned()),
            _ => return Err(Malformed("an answer is of no known kind")),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// Reads a request and an answer; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_message(bytes: &Bytes) {
    if let Ok((envelope, request)) = Envelope::open(bytes) {
        let sealed = envelope.seal(&request);
        let (again, request) = Envelope::open(&sealed).expect("it was just sealed");
        assert_eq!((again, again.seal(&request)), (envelope, sealed));
    }
    if let Ok(answer) = Answer::decode(bytes) {
        let encoded = answer.encode();
        assert_eq!(Answer::decode(&encoded).expect("it was just encoded").encode(), encoded);
    }
}
