//! Owns the beginning of a link, in which both sides prove that they belong to one cluster.
//!
//! ```text
//! calling side                                 answering side
//!   hello                                        welcome
//!     magic "RRquorum"      8                      kind 1                u8
//!     version min           u16                    version               u16
//!     version max           u16                    voter                 u32 u32
//!     cluster id            16                     nonce                 32
//!     voter that calls      u32 u32                proof                 32
//!     voter that is meant   u32 u32
//!     nonce                 32
//!   proof
//!     kind 1                u8                   either side, in place of what it should say
//!     proof                 32                     kind 0                u8
//!   requests                                       reason                u32, UTF-8
//! ```
//! All little-endian. A voter is a node and its life; the one that is meant may be 0 0, if only its address is known. The
//! version is the largest that both know. Hello and refusal stay as they are in all versions, so that sides without a common
//! one can say so. A refusal is proved by nothing: its reason is a hint for the log.
//!
//! A proof is HMAC-SHA256 by the cluster's secret over a role, the hello, and the welcome up to its proof. So it is good for
//! one link (both nonces are in it), for one direction (the role), between these two voters, at this version: it can be neither
//! replayed, nor sent back to the side that it came from, nor moved to another link. The secret itself is not sent.

use std::io;

use bytes::Bytes;
use riverrun_env::{Link, Random};
use thiserror::Error;

use super::{Identity, VERSIONS};
use crate::codec::{Malformed, Reader, Writer};
#[cfg(test)]
use crate::planted::{Planted, is_planted};
use crate::secret::{Proof, SECRET_BYTES};
use crate::types::VoterId;
use crate::wire::{GOES, REFUSED, put_reason, reason};

/// Upper bound of a message in bytes, as long as its sender has not proved itself. It is the bound of answers, too.
pub(crate) const SHORT_BYTES_MAX: usize = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"RRquorum");
const NONCE_BYTES: usize = 32;

type Nonce = [u8; NONCE_BYTES];

/// Whose proof it is. Without it the answering side's own proof would be the calling side's as well.
#[derive(Clone, Copy)]
enum Role {
    Answers,
    Calls,
}

impl Role {
    /// The beginning of a proof. Whatever else the secret is used for has to begin otherwise.
    fn label(self) -> &'static [u8] {
        match self {
            Self::Answers => b"riverrun link, answering side\0",
            Self::Calls => b"riverrun link, calling side\0",
        }
    }
}

/// Why a link does not begin.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// It broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// The other side speaks something else.
    #[error("it does not speak the protocol between nodes: {0}")]
    Malformed(#[from] Malformed),
    /// The other side refuses this one.
    #[error("it says: {0}")]
    Refused(String),
    /// This side refuses the other one, and has said so.
    #[error("{0}")]
    Refuses(String),
    /// It takes too long.
    #[error("it has not proved itself in time: a node of this cluster needs its cluster id and its token")]
    TooLong,
}

impl Failure {
    /// Whether it is of interest that it happened: links break all the time.
    pub(crate) fn is_notable(&self) -> bool {
        match self {
            Self::Broken(error) => error.kind() == io::ErrorKind::InvalidData,
            Self::TooLong | Self::Malformed(_) | Self::Refused(_) | Self::Refuses(_) => true,
        }
    }

    fn another_token() -> Self {
        Self::Refuses(
            "the other side's cluster token is not this one's: all nodes of a cluster need the same one"
                .to_owned(),
        )
    }
}

/// The first message of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) versions: (u16, u16),
    pub(crate) cluster: [u8; 16],
    pub(crate) from: VoterId,
    pub(crate) to: Option<VoterId>,
    pub(crate) nonce: Nonce,
}

impl Hello {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Writer::default();
        out.u64(MAGIC);
        out.u16(self.versions.0);
        out.u16(self.versions.1);
        out.0.extend_from_slice(&self.cluster);
        out.voter(self.from);
        out.voter(self.to.unwrap_or_default());
        out.0.extend_from_slice(&self.nonce);
        out.0.into()
    }

    pub(crate) fn decode(message: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        if reader.u64()? != MAGIC {
            return Err(Malformed("a link begins with something else than a hello"));
        }
        let hello = Self {
            versions: (reader.u16()?, reader.u16()?),
            cluster: reader.array()?,
            from: reader.voter()?,
            to: Some(reader.voter()?).filter(|to| *to != VoterId::default()),
            nonce: reader.array()?,
        };
        reader.end()?;
        Ok(hello)
    }
}

/// The answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) version: u16,
    pub(crate) voter: VoterId,
    pub(crate) nonce: Nonce,
    pub(crate) proof: Proof,
}

impl Welcome {
    /// Everything before the proof.
    fn head(&self) -> Writer {
        let mut out = Writer::default();
        out.u8(GOES);
        out.u16(self.version);
        out.voter(self.voter);
        out.0.extend_from_slice(&self.nonce);
        out
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = self.head();
        out.0.extend_from_slice(&self.proof);
        out.0.into()
    }

    /// Reads a welcome; the inner error is a refusal.
    pub(crate) fn decode(message: &Bytes) -> Result<Result<Self, String>, Malformed> {
        turn(message, |reader| {
            Ok(Self {
                version: reader.u16()?,
                voter: reader.voter()?,
                nonce: reader.array()?,
                proof: proof(reader)?,
            })
        })
    }
}

fn proof(reader: &mut Reader<'_>) -> Result<Proof, Malformed> {
    reader.array()
}

pub(crate) fn encode_proof(proof: &Proof) -> Bytes {
    let mut out = Writer::default();
    out.u8(GOES);
    out.0.extend_from_slice(proof);
    out.0.into()
}

/// Reads the calling side's proof; the inner error is a refusal.
pub(crate) fn decode_proof(message: &Bytes) -> Result<Result<Proof, String>, Malformed> {
    turn(message, proof)
}

/// Reads what a side says in its turn, or its refusal.
fn turn<T>(
    message: &Bytes,
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Result<T, String>, Malformed> {
    let mut reader = Reader::new(message);
    let turn = match reader.u8()? {
        REFUSED => Err(reason(&mut reader)?),
        GOES => Ok(read(&mut reader)?),
        _ => return Err(Malformed("a link does not begin as it should")),
    };
    reader.end()?;
    Ok(turn)
}

fn encode_refusal(reason: &str) -> Bytes {
    let mut out = Writer::default();
    out.u8(REFUSED);
    put_reason(&mut out, reason);
    out.0.into()
}

async fn receive(link: &mut Link) -> Result<Bytes, Failure> {
    let message = link.receiver.receive_at_most(SHORT_BYTES_MAX).await?;
    message.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof).into())
}

/// The largest version in both ranges.
fn common_version(one: (u16, u16), other: (u16, u16)) -> Option<u16> {
    let version = one.1.min(other.1);
    (version >= one.0.max(other.0)).then_some(version)
}

fn named((min, max): (u16, u16)) -> String {
    if min == max { format!("version {min}") } else { format!("versions {min} to {max}") }
}

/// Whether a voter is the one that is meant, if that is known; the error is the one that is meant instead.
fn is_meant(to: Option<VoterId>, voter: VoterId) -> Result<(), VoterId> {
    #[cfg(test)]
    if is_planted(Planted::OtherLifeAnswers) {
        return Ok(());
    }
    match to {
        Some(to) if to != voter => Err(to),
        _ => Ok(()),
    }
}

fn draw_nonce(random: &dyn Random) -> Nonce {
    let mut nonce = [0; NONCE_BYTES];
    random.fill(&mut nonce);
    nonce
}

impl Identity {
    fn prove(&self, role: Role, hello: &Bytes, head: &Writer) -> Proof {
        #[cfg(test)]
        let role = if is_planted(Planted::RoleNotProved) { Role::Answers } else { role };
        self.secret.prove(&[role.label(), hello, &head.0])
    }

    fn is_proved(&self, role: Role, hello: &Bytes, head: &Writer, proof: &Proof) -> bool {
        #[cfg(test)]
        if is_planted(Planted::ProofNotChecked) {
            return true;
        }
        #[cfg(test)]
        let role = if is_planted(Planted::RoleNotProved) { Role::Answers } else { role };
        self.secret.is_proved(&[role.label(), hello, &head.0], proof)
    }

    /// The version to speak with a side that says this hello.
    fn agree(&self, hello: &Hello) -> Result<u16, Failure> {
        let version = common_version(VERSIONS, hello.versions).ok_or_else(|| {
            let [ours, theirs] = [VERSIONS, hello.versions].map(named);
            Failure::Refuses(format!(
                "this node speaks {ours} of the protocol between nodes and the other one {theirs}: update the older one"
            ))
        })?;
        if hello.cluster != self.cluster {
            let reason =
                "this node belongs to a cluster with another id: look at the address that it was found by";
            return Err(Failure::Refuses(reason.to_owned()));
        }
        match is_meant(hello.to, self.voter) {
            Ok(()) => Ok(version),
            Err(to) => {
                Err(Failure::Refuses(format!("this node is voter {}, and {to} was asked for", self.voter)))
            }
        }
    }

    /// Lets the calling side of a link in, once it has proved itself; returns the voter that it is. The caller limits the time.
    pub(crate) async fn let_in(&self, link: &mut Link, random: &dyn Random) -> Result<VoterId, Failure> {
        let result = self.answer_hello(link, random).await;
        refuse(link, result).await
    }

    async fn answer_hello(&self, link: &mut Link, random: &dyn Random) -> Result<VoterId, Failure> {
        let message = receive(link).await?;
        let hello = Hello::decode(&message)?;
        let version = self.agree(&hello)?;
        let nonce = draw_nonce(random);
        #[cfg(test)]
        let nonce = if is_planted(Planted::NonceReused) { [0; NONCE_BYTES] } else { nonce };
        let mut welcome = Welcome { version, voter: self.voter, nonce, proof: [0; SECRET_BYTES] };
        let head = welcome.head();
        welcome.proof = self.prove(Role::Answers, &message, &head);
        link.sender.send(welcome.encode()).await?;
        let proof = decode_proof(&receive(link).await?)?.map_err(Failure::Refused)?;
        if self.is_proved(Role::Calls, &message, &head, &proof) {
            Ok(hello.from)
        } else {
            Err(Failure::another_token())
        }
    }

    /// Begins a link as its calling side: to a voter, if it is known who has the address. Returns the voter that has it. The
    /// caller limits the time.
    pub(crate) async fn begin(
        &self,
        link: &mut Link,
        to: Option<VoterId>,
        random: &dyn Random,
    ) -> Result<VoterId, Failure> {
        let result = self.say_hello(link, to, random).await;
        refuse(link, result).await
    }

    async fn say_hello(
        &self,
        link: &mut Link,
        to: Option<VoterId>,
        random: &dyn Random,
    ) -> Result<VoterId, Failure> {
        let Self { cluster, voter: from, .. } = *self;
        let hello = Hello { versions: VERSIONS, cluster, from, to, nonce: draw_nonce(random) };
        let message = hello.encode();
        link.sender.send(message.clone()).await?;
        let welcome = Welcome::decode(&receive(link).await?)?.map_err(Failure::Refused)?;
        let head = welcome.head();
        if !self.is_proved(Role::Answers, &message, &head, &welcome.proof) {
            return Err(Failure::another_token());
        }
        let (min, max) = VERSIONS;
        if !(min..=max).contains(&welcome.version) || is_meant(to, welcome.voter).is_err() {
            return Err(Malformed("a welcome is for another hello").into());
        }
        link.sender.send(encode_proof(&self.prove(Role::Calls, &message, &head))).await?;
        Ok(welcome.voter)
    }
}

/// Tells the other side, if this one refuses it.
async fn refuse<T>(link: &mut Link, result: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(Failure::Refuses(reason)) = &result {
        // It may be gone: then it needs no reason.
        let _ = link.sender.send(encode_refusal(reason)).await;
    }
    result
}

/// Reads what a link begins with; what is accepted is the same after it was written again.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_beginning(bytes: &Bytes) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    let is_refused = |reason: &str| {
        let refusal = encode_refusal(reason);
        Welcome::decode(&refusal).is_ok_and(|turn| turn.is_err_and(|again| again == reason))
    };
    match Welcome::decode(bytes) {
        Ok(Ok(welcome)) => assert_eq!(welcome.encode(), bytes),
        Ok(Err(reason)) => assert!(is_refused(&reason)),
        Err(_) => {}
    }
    match decode_proof(bytes) {
        Ok(Ok(proof)) => assert_eq!(encode_proof(&proof), bytes),
        Ok(Err(reason)) => assert!(is_refused(&reason)),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use riverrun_env::sim::World;

    use super::*;
    use crate::secret::Secret;

    fn identity(node: u32) -> Identity {
        Identity {
            cluster: [7; 16],
            voter: VoterId { node, life: 1 },
            secret: Secret::new([9; SECRET_BYTES]),
        }
    }

    /// Answers a hello with this welcome, which is proved.
    async fn answer(identity: Identity, link: &mut Link, version: u16) {
        let hello = receive(link).await.expect("a hello");
        let nonce = [3; NONCE_BYTES];
        let mut welcome = Welcome { version, voter: identity.voter, nonce, proof: [0; SECRET_BYTES] };
        welcome.proof = identity.prove(Role::Answers, &hello, &welcome.head());
        link.sender.send(welcome.encode()).await.expect("sent");
        // The other side's turn: it proves itself, or goes.
        let _ = receive(link).await;
    }

    /// Whether a voter lets itself in with one that answers so, if it calls the first one.
    fn begins(answering: u32, version: u16) -> bool {
        let world = World::new(1);
        let node = world.node("a").env();
        let mut listener = node.network.listen("a").expect("free");
        let begun = Arc::new(Mutex::new(None));
        let result = Arc::clone(&begun);
        let answers = async move {
            answer(identity(answering), &mut listener.accept().await.expect("a link"), version).await;
        };
        let env = node.clone();
        let calls = async move {
            let mut link = env.network.connect("a").await.expect("it listens");
            let to = Some(identity(1).voter);
            *result.lock() = Some(identity(2).begin(&mut link, to, &*env.env.random).await.is_ok());
        };
        node.tasks.spawn("answer", Box::pin(answers));
        node.tasks.spawn("call", Box::pin(calls));
        world.run_for(Duration::from_secs(1));
        let begun = *begun.lock();
        begun.expect("it has come to an end")
    }

    #[test]
    fn another_voter_or_version_than_was_asked_for_is_not_taken() {
        let (min, max) = VERSIONS;
        assert!(begins(1, min));
        assert!(begins(1, max));
        assert!(!begins(3, max), "the voter");
        assert!(!begins(1, max + 1), "the version");
        assert!(!begins(1, min - 1), "the version");
    }

    #[test]
    fn the_largest_common_version_is_spoken() {
        assert_eq!(common_version((1, 3), (2, 5)), Some(3));
        assert_eq!(common_version((2, 5), (1, 3)), Some(3));
        assert_eq!(common_version((4, 4), (1, u16::MAX)), Some(4));
        assert_eq!(common_version((1, 3), (4, 5)), None);
        assert_eq!(common_version((1, 3), (3, 1)), None, "a range that is none");
    }

    #[test]
    fn a_reason_is_short_and_one_line() {
        for (said, heard) in [("why\n\u{85}not", "why??not".to_owned()), (&"ä".repeat(500), "ä".repeat(150))]
        {
            let refusal = encode_refusal(said);
            assert!(refusal.len() <= SHORT_BYTES_MAX);
            assert_eq!(Welcome::decode(&refusal), Ok(Err(heard.clone())));
            assert_eq!(decode_proof(&refusal), Ok(Err(heard)));
        }
        let mut long = Writer::default();
        long.u8(REFUSED);
        long.bytes(&[b'a'; 301]);
        assert!(Welcome::decode(&long.0.into()).is_err());
    }
}
