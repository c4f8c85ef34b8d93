//! Owns the names of a quorum's things: voters, peers, commands, and what `openraft` is to use for them.

use std::fmt;

use bytes::Bytes;

use crate::runtime::Runtime;

/// A member of a quorum: a node, and the life of its data directory. A node whose directory was wiped comes back as another
/// voter: one that has forgotten its votes must not vote under the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VoterId {
    /// The node's id (`node.id`).
    pub node: u32,
    /// The number that the quorum's log gave to the data directory.
    pub life: u32,
}

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.life)
    }
}

impl From<VoterId> for u64 {
    fn from(id: VoterId) -> Self {
        Self::from(id.node) << 32 | Self::from(id.life)
    }
}

impl From<u64> for VoterId {
    fn from(id: u64) -> Self {
        let [node, life] = [id >> 32, id & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(u32::MAX));
        Self { node, life }
    }
}

/// The place of a member on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address of its listener for other nodes.
    pub address: String,
}

/// A command, in the encoding of the [`Machine`](crate::Machine).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command(pub Bytes);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A machine's answer to a command. Each member computes it; the member that was asked gives it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply(pub Bytes);

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Command,
        R = Reply,
        NodeId = VoterId,
        Node = Peer,
        // One leader in a term, as in the paper.
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, VoterId>,
        AsyncRuntime = Runtime,
);

pub(crate) type Vote = openraft::type_config::alias::VoteOf<Types>;
pub(crate) type LogId = openraft::type_config::alias::LogIdOf<Types>;
pub(crate) type Entry = openraft::type_config::alias::EntryOf<Types>;
pub(crate) type Membership = openraft::Membership<VoterId, Peer>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<Types>;
