//! One member of a classic group.
//!
//! Owns a member's state between its requests, and how members are compared and described.

use std::collections::BTreeSet;
use std::sync::Arc;

use riverrun_protocol::join_group_request::JoinGroupRequestProtocol;
use riverrun_protocol::{JoinGroupRequest, consumer_protocol};

use crate::step::{ReplyToken, RequestContext};
use crate::time::Moment;

/// A member's id. The coordinator makes it from the client id or the instance id and a UUID.
pub(crate) type MemberId = Arc<str>;

/// A request that waits for other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    /// The address of the reply.
    pub(crate) token: ReplyToken,
    /// Version of the request, which decides the fields of the reply.
    pub(crate) api_version: i16,
}

impl Parked {
    /// The request that is being handled.
    pub(crate) fn of(context: &RequestContext<'_>) -> Self {
        Self { token: context.token, api_version: context.api_version }
    }
}

/// A protocol (for consumers: an assignor) that a member supports, with the member's metadata for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    /// Name of the protocol.
    pub(crate) name: String,
    /// The member's metadata, opaque to the coordinator except for the topics of consumers.
    pub(crate) metadata: Vec<u8>,
}

/// Memory of a protocol beside its name and metadata, in bytes, so that a million empty ones count too.
const PROTOCOL_OVERHEAD_BYTES: usize = 64;

/// Memory of a member beside its texts, protocols and assignment, in bytes: its places in the group's maps.
pub(super) const MEMBER_BYTES: usize = 512;

/// Further memory of the first member of a group, in bytes: the first node of a map has room for eleven.
pub(super) const FIRST_MEMBER_BYTES: usize = 2_560;

/// Memory of an id that was given out, beside its text, in bytes.
pub(super) const PENDING_BYTES: usize = 128;

/// Upper bound of a client id in bytes, in member ids and in descriptions; longer ones are cut.
const CLIENT_ID_BYTES_MAX: usize = 255;

/// The terms under which a member joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Time that it may take to rejoin and to sync.
    pub(crate) rebalance_timeout_ms: i32,
    /// Time that it may be silent.
    pub(crate) session_timeout_ms: i32,
    /// The protocols that it supports, in order of its preference.
    pub(crate) protocols: Vec<Protocol>,
}

impl Terms {
    /// Reads the terms from a request. Version 0 has one timeout for both.
    pub(crate) fn of(request: &JoinGroupRequest<'_>, api_version: i16) -> Self {
        let rebalance_timeout_ms =
            if api_version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms };
        let protocols = request.protocols.iter().map(|protocol| Protocol {
            name: protocol.name.to_string(),
            metadata: protocol.metadata.to_vec(),
        });
        Self {
            rebalance_timeout_ms: rebalance_timeout_ms.max(0),
            session_timeout_ms: request.session_timeout_ms,
            protocols: protocols.collect(),
        }
    }
}

/// Memory in bytes of the protocols of one member.
pub(crate) fn protocols_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|p| p.name.len() + p.metadata.len() + PROTOCOL_OVERHEAD_BYTES).sum()
}

/// Memory in bytes of the protocols in a request, before anything is copied.
pub(crate) fn requested_bytes(protocols: &[JoinGroupRequestProtocol<'_>]) -> usize {
    protocols.iter().map(|p| p.name.len() + p.metadata.len() + PROTOCOL_OVERHEAD_BYTES).sum()
}

/// Memory in bytes of a member beside its protocols and its assignment; each text counts as often as it is kept.
pub(crate) fn member_bytes(
    member_id: &str,
    instance_id: Option<&str>,
    client_id: &str,
    client_host: &str,
) -> usize {
    MEMBER_BYTES + member_id.len() + 2 * instance_id.map_or(0, str::len) + client_id.len() + client_host.len()
}

/// A member.
///
/// Invariants: `awaiting_join` is only set while the group prepares a rebalance; `awaiting_sync` only while it
/// completes one. Both are changed by the group alone, which counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// `group.instance.id` of a static member.
    pub(crate) instance_id: Option<String>,
    /// Client id at its join.
    pub(crate) client_id: String,
    /// Address at its join.
    pub(crate) client_host: String,
    /// The terms of its join.
    pub(crate) terms: Terms,
    /// Its assignment from the leader; empty before the first sync.
    pub(crate) assignment: Vec<u8>,
    /// Its JoinGroup request that waits for the rebalance.
    pub(crate) awaiting_join: Option<Parked>,
    /// Its SyncGroup request that waits for the leader.
    pub(crate) awaiting_sync: Option<Parked>,
    /// It has not seen a join complete yet, so it does not heartbeat.
    pub(crate) is_new: bool,
    /// When it is removed unless it sends something; `None` while a parked request proves it alive.
    pub(crate) expires_at: Option<Moment>,
}

impl Member {
    /// Whether it waits for a rebalance or the leader, so that silence does not mean death. A new member may have
    /// gone away while parked, so it does not count.
    pub(crate) fn is_excused(&self) -> bool {
        !self.is_new && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }

    /// Memory in bytes under this id, beside its protocols and its assignment.
    pub(crate) fn size_bytes(&self, member_id: &str) -> usize {
        member_bytes(member_id, self.instance_id.as_deref(), &self.client_id, &self.client_host)
    }

    /// Its metadata in this protocol; empty if it does not support it.
    pub(crate) fn metadata(&self, protocol: &str) -> &[u8] {
        self.terms.protocols.iter().find(|p| p.name == protocol).map_or(&[], |p| &p.metadata)
    }

    /// Whether its metadata in this protocol, if that is a consumer's, claims partitions that the leader did not give
    /// it.
    pub(super) fn gives_up(&self, protocol: &str) -> bool {
        let Ok(said) = consumer_protocol::decode_subscription(self.metadata(protocol)) else { return false };
        let given = consumer_protocol::decode_assignment(&self.assignment).unwrap_or_default();
        let given = given.assigned_partitions.iter();
        let given: BTreeSet<(&str, i32)> =
            given.flat_map(|topic| topic.partitions.iter().map(|&index| (&*topic.topic, index))).collect();
        let mut owned = said.owned_partitions.iter();
        owned.any(|topic| topic.partitions.iter().any(|&index| !given.contains(&(&*topic.topic, index))))
    }

    /// Whether it rejoins with exactly the same metadata.
    pub(crate) fn matches(&self, protocols: &[JoinGroupRequestProtocol<'_>]) -> bool {
        let ours = &self.terms.protocols;
        ours.len() == protocols.len()
            && ours.iter().zip(protocols).all(|(a, b)| a.name == *b.name && a.metadata == *b.metadata)
    }
}

/// A new member id: the client's own name for itself, then a UUID in Java's spelling.
pub(crate) fn new_member_id(context: &RequestContext<'_>, instance_id: Option<&str>) -> MemberId {
    let prefix = instance_id.unwrap_or_else(|| kept_client_id(context));
    format!("{prefix}-{}", random_uuid(context.random)).into()
}

/// The client id as far as it is kept. A client sends it before it is a member, so it has a bound of its own.
pub(crate) fn kept_client_id<'a>(context: &RequestContext<'a>) -> &'a str {
    let client_id = context.client_id;
    &client_id[..client_id.floor_char_boundary(CLIENT_ID_BYTES_MAX)]
}

/// Bytes as a version 4 UUID in its usual spelling.
fn random_uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let value = u128::from_be_bytes(bytes);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        value >> 96,
        value >> 80 & 0xffff,
        value >> 64 & 0xffff,
        value >> 48 & 0xffff,
        value & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Now;

    #[test]
    fn a_long_client_id_is_cut_between_characters() {
        let client_id = "é".repeat(200);
        let context = RequestContext {
            now: Now::simulated(0),
            token: ReplyToken(0),
            client_id: &client_id,
            client_host: "",
            api_version: 9,
            random: [0; 16],
        };
        assert_eq!(new_member_id(&context, None).len(), 254 + 1 + 36);
    }

    #[test]
    fn a_member_id_ends_in_a_version_4_uuid() {
        let uuid = random_uuid([0xff; 16]);
        assert_eq!(uuid, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(random_uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    }
}
