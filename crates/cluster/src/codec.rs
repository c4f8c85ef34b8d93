//! Owns the encoding of a quorum's values in bytes, on disk and on the wire: little-endian integers, and lengths before what has
//! one. `openraft`'s own encodings change with its versions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::vote::RaftLeaderId as _;

use crate::types::{Command, Entry, LogId, Membership, Peer, SnapshotMeta, StoredMembership, Vote, VoterId};

/// Upper bound of the members of a quorum, learners included, and of the sets of a joint change.
const MEMBERS_MAX: usize = 1_000;
/// Upper bound of an address in bytes.
const ADDRESS_BYTES_MAX: usize = 1_000;

const BLANK: u8 = 0;
const COMMAND: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Bytes that are not what they should be, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads values from the beginning of bytes on.
pub(crate) struct Reader<'a>(pub(crate) &'a Bytes, usize);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self(bytes, 0)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let found =
            self.0.get(self.1..).and_then(|rest| rest.first_chunk()).ok_or(Malformed("it is too short"))?;
        self.1 += N;
        Ok(*found)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    /// A length, at most `max`.
    pub(crate) fn length(&mut self, max: usize) -> Result<usize, Malformed> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > max { Err(Malformed("a length is beyond its bound")) } else { Ok(length) }
    }

    /// Bytes behind their length.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let length = self.length(self.0.len())?;
        let end = self.1.saturating_add(length);
        if end > self.0.len() {
            return Err(Malformed("it is too short"));
        }
        let bytes = self.0.slice(self.1..end);
        self.1 = end;
        Ok(bytes)
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> Bytes {
        self.0.slice(self.1..)
    }

    /// Refuses bytes that are left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.1 == self.0.len() { Ok(()) } else { Err(Malformed("it is too long")) }
    }

    pub(crate) fn option<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { value(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn voter(&mut self) -> Result<VoterId, Malformed> {
        Ok(VoterId { node: self.u32()?, life: self.u32()? })
    }

    pub(crate) fn vote(&mut self) -> Result<Vote, Malformed> {
        let (term, voter, is_committed) = (self.u64()?, self.voter()?, self.flag()?);
        Ok(if is_committed { Vote::new_committed(term, voter) } else { Vote::new(term, voter) })
    }

    pub(crate) fn log_id(&mut self) -> Result<LogId, Malformed> {
        Ok(LogId::new_term_index(self.u64()?, self.u64()?))
    }

    pub(crate) fn log_id_option(&mut self) -> Result<Option<LogId>, Malformed> {
        self.option(Self::log_id)
    }

    fn membership(&mut self) -> Result<Membership, Malformed> {
        let mut configs = Vec::new();
        for _ in 0..self.length(MEMBERS_MAX)? {
            let count = self.length(MEMBERS_MAX)?;
            let config: BTreeSet<_> = (0..count).map(|_| self.voter()).collect::<Result<_, _>>()?;
            configs.push(config);
        }
        let mut nodes = BTreeMap::new();
        for _ in 0..self.length(MEMBERS_MAX)? {
            let id = self.voter()?;
            let address = self.bytes()?;
            let address = std::str::from_utf8(&address).map_err(|_| Malformed("an address is no text"))?;
            if address.len() > ADDRESS_BYTES_MAX {
                return Err(Malformed("an address is too long"));
            }
            nodes.insert(id, Peer { address: address.to_owned() });
        }
        if configs.is_empty() && nodes.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(configs, nodes)
            .map_err(|_| Malformed("a voter is no member, or a set of voters is empty"))
    }

    pub(crate) fn entry(&mut self) -> Result<Entry, Malformed> {
        let log_id = self.log_id()?;
        let payload = match self.u8()? {
            BLANK => EntryPayload::Blank,
            COMMAND => EntryPayload::Normal(Command(self.bytes()?)),
            MEMBERSHIP => EntryPayload::Membership(self.membership()?),
            _ => return Err(Malformed("an entry is of no known kind")),
        };
        Ok(Entry { log_id, payload })
    }

    pub(crate) fn entries(&mut self, max: usize) -> Result<Vec<Entry>, Malformed> {
        let count = self.length(max)?;
        (0..count).map(|_| self.entry()).collect()
    }

    pub(crate) fn snapshot_meta(&mut self) -> Result<SnapshotMeta, Malformed> {
        let last_log_id = self.log_id_option()?;
        let (log_id, membership) = (self.log_id_option()?, self.membership()?);
        Ok(SnapshotMeta { last_log_id, last_membership: StoredMembership::new(log_id, membership) })
    }
}

/// Writes values behind each other.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// # Panics
    /// If it is longer than 4 GiB, which is beyond every bound.
    pub(crate) fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).expect("bounded"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn voter(&mut self, id: VoterId) {
        self.u32(id.node);
        self.u32(id.life);
    }

    pub(crate) fn vote(&mut self, vote: &Vote) {
        self.u64(vote.leader_id.term());
        self.voter(*vote.leader_id.node_id());
        self.u8(u8::from(vote.committed));
    }

    pub(crate) fn log_id(&mut self, id: &LogId) {
        self.u64(id.committed_leader_id().term);
        self.u64(id.index);
    }

    pub(crate) fn log_id_option(&mut self, id: Option<&LogId>) {
        self.u8(u8::from(id.is_some()));
        if let Some(id) = id {
            self.log_id(id);
        }
    }

    fn membership(&mut self, membership: &Membership) {
        let configs = membership.get_joint_config();
        self.length(configs.len());
        for config in configs {
            self.length(config.len());
            for id in config {
                self.voter(*id);
            }
        }
        let nodes: Vec<_> = membership.nodes().collect();
        self.length(nodes.len());
        for (id, peer) in nodes {
            self.voter(*id);
            self.bytes(peer.address.as_bytes());
        }
    }

    pub(crate) fn entry(&mut self, entry: &Entry) {
        self.log_id(&entry.log_id);
        match &entry.payload {
            EntryPayload::Blank => self.u8(BLANK),
            EntryPayload::Normal(command) => {
                self.u8(COMMAND);
                self.bytes(&command.0);
            }
            EntryPayload::Membership(membership) => {
                self.u8(MEMBERSHIP);
                self.membership(membership);
            }
        }
    }

    pub(crate) fn entries(&mut self, entries: &[Entry]) {
        self.length(entries.len());
        for entry in entries {
            self.entry(entry);
        }
    }

    pub(crate) fn snapshot_meta(&mut self, meta: &SnapshotMeta) {
        self.log_id_option(meta.last_log_id.as_ref());
        self.log_id_option(meta.last_membership.log_id().as_ref());
        self.membership(meta.last_membership.membership());
    }
}
