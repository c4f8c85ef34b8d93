//! Owns what a member asks of the one that leads, and its answers, as bytes.
//!
//! ```text
//! ask    version u8 = 1, kind u8: 1 decide (count u32, decisions), 2 heartbeat (node i32, incarnation u64, applied u64, digest u64)
//! told   version u8 = 1, kind u8: 1 decided (version of the image u64, count u32, answers), 2 another leads (flag u8, voter),
//!        3 unknown (text), 4 heartbeat (flags u8: 1 known, 2 fenced, 4 differs)
//! ```

use bytes::Bytes;
use riverrun_types::NodeId;

use crate::codec::{Malformed, Reader, Writer};
use crate::controller::{Decided, Decision};
use crate::types::VoterId;

const VERSION: u8 = 1;
const DECIDE: u8 = 1;
const HEARTBEAT: u8 = 2;
const DECIDED: u8 = 1;
const NOT_LEADER: u8 = 2;
const UNKNOWN: u8 = 3;
const ALIVE: u8 = 4;

/// A sign of life of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heartbeat {
    pub(super) node: NodeId,
    pub(super) incarnation: u64,
    /// The index of the last entry of the quorum's log that it has applied, and the digest of all commands up to there.
    pub(super) applied: u64,
    pub(super) digest: u64,
}

/// The answer to a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alive {
    /// Whether this life of the broker is the one that is registered.
    pub(super) is_known: bool,
    pub(super) is_fenced: bool,
    /// Whether the broker has applied other commands than the leader.
    pub(super) differs: bool,
}

/// Something that a member asks of the one that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Decide(Vec<Decision>),
    Heartbeat(Heartbeat),
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// All were decided, as one change. It holds in images of this version and of later ones.
    Decided {
        version: u64,
        answers: Vec<Decided>,
    },
    /// Another member leads, or none. Nothing was decided.
    NotLeader(Option<VoterId>),
    /// It is not known whether the decisions hold.
    Unknown(String),
    Alive(Alive),
}

impl Ask {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Decide(decisions) => {
                out.u8(DECIDE);
                out.decisions(decisions);
            }
            Self::Heartbeat(Heartbeat { node, incarnation, applied, digest }) => {
                out.u8(HEARTBEAT);
                out.u32(node.0.cast_unsigned());
                out.u64(*incarnation);
                out.u64(*applied);
                out.u64(*digest);
            }
        }
        out.0.into()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        let ask = match reader.u8()? {
            DECIDE => Self::Decide(reader.decisions()?),
            HEARTBEAT => Self::Heartbeat(Heartbeat {
                node: NodeId(reader.u32()?.cast_signed()),
                incarnation: reader.u64()?,
                applied: reader.u64()?,
                digest: reader.u64()?,
            }),
            _ => return Err(Malformed("an ask is of a kind that this program does not know")),
        };
        reader.end()?;
        Ok(ask)
    }
}

fn check_version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    if reader.u8()? == VERSION {
        Ok(())
    } else {
        Err(Malformed("an ask has a version that this program does not know"))
    }
}

impl Told {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u8(VERSION);
        match self {
            Self::Decided { version, answers } => {
                out.u8(DECIDED);
                out.u64(*version);
                out.answers(answers);
            }
            Self::NotLeader(leader) => {
                out.u8(NOT_LEADER);
                out.u8(u8::from(leader.is_some()));
                if let Some(leader) = leader {
                    out.voter(*leader);
                }
            }
            Self::Unknown(reason) => {
                out.u8(UNKNOWN);
                out.bytes(reason.as_bytes());
            }
            Self::Alive(Alive { is_known, is_fenced, differs }) => {
                out.u8(ALIVE);
                out.u8(u8::from(*is_known) | u8::from(*is_fenced) << 1 | u8::from(*differs) << 2);
            }
        }
        out.0.into()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        let told = match reader.u8()? {
            DECIDED => Self::Decided { version: reader.u64()?, answers: reader.answers()? },
            NOT_LEADER => Self::NotLeader(reader.option(Reader::voter)?),
            UNKNOWN => Self::Unknown(String::from_utf8_lossy(&reader.bytes()?).into_owned()),
            ALIVE => {
                let flags = reader.u8()?;
                let has = |bit| flags & bit == bit;
                Self::Alive(Alive { is_known: has(1), is_fenced: has(2), differs: has(4) })
            }
            _ => return Err(Malformed("an answer is of a kind that this program does not know")),
        };
        reader.end()?;
        Ok(told)
    }
}

/// Reads an ask and an answer; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_ask(bytes: &Bytes) {
    if let Ok(ask) = Ask::decode(bytes) {
        assert_eq!(Ask::decode(&ask.encode()), Ok(ask));
    }
    if let Ok(told) = Told::decode(bytes) {
        assert_eq!(Told::decode(&told.encode()), Ok(told));
    }
}
