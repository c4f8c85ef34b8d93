//! Owns the messages between members of a quorum, once a link between them has begun.
//!
//! A request and an answer are: kind u8, and their body. Who speaks to whom, and by which version, is settled when the link
//! [begins](crate::net). A snapshot is sent in pieces, each of which is answered; the first says what it is of, and how large.

use bytes::Bytes;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, VoteRequest,
    VoteResponse,
};

use crate::codec::{Malformed, Reader, Writer};
use crate::types::{SnapshotMeta, Types, Vote};

/// Upper bound of the entries of a message.
pub(crate) const ENTRIES_MAX: usize = 4_096;
/// Upper bound of the commands of a message in bytes, unless it has a single one.
pub(crate) const COMMANDS_BYTES_MAX: usize = 32 << 20;
/// Upper bound of a message in bytes: commands, and what is around them.
pub const MESSAGE_BYTES_MAX: usize = COMMANDS_BYTES_MAX + (2 << 20);
/// Size in bytes of a piece of a snapshot.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

const _: () = assert!(crate::COMMAND_BYTES_MAX <= COMMANDS_BYTES_MAX, "a message takes each command");

/// Upper bound of the reason of a refusal in bytes.
const REASON_BYTES_MAX: usize = 300;

/// A message that refuses what came before it, and says why. It is the same in all versions.
pub(crate) const REFUSED: u8 = 0;
/// A message with which the beginning of a link goes on.
pub(crate) const GOES: u8 = 1;

pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    /// A piece of a snapshot; the first one has a beginning.
    Piece {
        beginning: Option<Beginning>,
        bytes: Bytes,
    },
    /// Something besides the quorum's own requests.
    Ask(Bytes),
}

/// A snapshot that is to be sent: the vote of the leader that sends it, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    /// Its size in bytes.
    pub(crate) total: u64,
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
    /// The request is refused, for this reason, and the link is over.
    Refused(String),
}

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const TRANSFER: u8 = 4;
const FIRST_PIECE: u8 = 5;
const PIECE: u8 = 6;
const SNAPSHOT: u8 = 7;
const ASK: u8 = 8;
const TOLD: u8 = 9;

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

/// Writes the reason of a refusal, as far as it has room.
pub(crate) fn put_reason(out: &mut Writer, reason: &str) {
    out.bytes(&reason.as_bytes()[..reason.floor_char_boundary(REASON_BYTES_MAX)]);
}

/// Reads the reason of a refusal. It goes to the log: so it is one line, whoever has written it.
pub(crate) fn reason(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let bytes = reader.bytes()?;
    if bytes.len() > REASON_BYTES_MAX {
        return Err(Malformed("a reason is too long"));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| Malformed("a reason is no text"))?;
    Ok(text.replace(char::is_control, "?"))
}

impl Request {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        match self {
            Self::Append(append) => {
                out.u8(APPEND);
                out.vote(&append.vote);
                out.log_id_option(append.prev_log_id.as_ref());
                out.entries(&append.entries);
                out.log_id_option(append.leader_commit.as_ref());
            }
            Self::Vote(vote) => {
                out.u8(VOTE);
                put_vote_request(&mut out, vote);
            }
            Self::PreVote(vote) => {
                out.u8(PRE_VOTE);
                put_vote_request(&mut out, vote);
            }
            Self::Transfer(transfer) => {
                out.u8(TRANSFER);
                out.vote(transfer.from_leader());
                out.voter(*transfer.to_node_id());
                out.log_id_option(transfer.last_log_id());
            }
            Self::Piece { beginning, bytes } => {
                out.u8(if beginning.is_some() { FIRST_PIECE } else { PIECE });
                if let Some(Beginning { vote, meta, total }) = beginning {
                    out.vote(vote);
                    out.snapshot_meta(meta);
                    out.u64(*total);
                }
                out.bytes(bytes);
            }
            Self::Ask(asked) => {
                out.u8(ASK);
                out.bytes(asked);
            }
        }
        out.0.into()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let request = match reader.u8()? {
            APPEND => Self::Append(AppendEntriesRequest {
                vote: reader.vote()?,
                prev_log_id: reader.log_id_option()?,
                entries: reader.entries(ENTRIES_MAX)?,
                leader_commit: reader.log_id_option()?,
            }),
            VOTE => Self::Vote(vote_request(&mut reader)?),
            PRE_VOTE => Self::PreVote(vote_request(&mut reader)?),
            TRANSFER => {
                let (vote, to) = (reader.vote()?, reader.voter()?);
                Self::Transfer(TransferLeaderRequest::new(vote, to, reader.log_id_option()?))
            }
            FIRST_PIECE => {
                let (vote, meta, total) = (reader.vote()?, reader.snapshot_meta()?, reader.u64()?);
                Self::Piece { beginning: Some(Beginning { vote, meta, total }), bytes: reader.bytes()? }
            }
            PIECE => Self::Piece { beginning: None, bytes: reader.bytes()? },
            ASK => Self::Ask(reader.bytes()?),
            _ => return Err(Malformed("a request is of no known kind")),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Answer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
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
                put_reason(&mut out, reason);
            }
        }
        out.0.into()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
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
            REFUSED => Self::Refused(reason(&mut reader)?),
            _ => return Err(Malformed("an answer is of no known kind")),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// Reads a request and an answer; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_message(bytes: &Bytes) {
    if let Ok(request) = Request::decode(bytes) {
        let encoded = request.encode();
        assert_eq!(Request::decode(&encoded).expect("it was just encoded").encode(), encoded);
    }
    if let Ok(answer) = Answer::decode(bytes) {
        let encoded = answer.encode();
        assert_eq!(Answer::decode(&encoded).expect("it was just encoded").encode(), encoded);
    }
}
