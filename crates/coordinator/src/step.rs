//! The input of a shard beside the request, and its output: the context, records and replies.
//!
//! Owns the contract with the host. A [`Step`] is already applied to the shard when it is returned. The host appends
//! its records to the shard's partition and sends its replies when they are durable; replies of later steps wait for
//! the records of earlier ones, so that no client is told of a state that a crash could take back. If the append
//! fails, the shard is ahead of its log: the host discards it, answers the parked requests, and loads it again.

use riverrun_protocol::{
    ConsumerGroupHeartbeatResponse, HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse,
    OffsetCommitResponse, OffsetDeleteResponse, SyncGroupResponse,
};

use crate::time::Now;

/// Identifies one request that is in flight, so that its reply finds the way back. The host chooses it and never uses
/// one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyToken(pub u64);

/// The host's facts about a request beside its body.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The clocks at arrival.
    pub now: Now,
    /// The address of the reply.
    pub token: ReplyToken,
    /// The request header's client id, empty if there was none.
    pub client_id: &'a str,
    /// The peer's address as Kafka prints it: `/` and the address without the port.
    pub client_host: &'a str,
    /// Version of the request.
    pub api_version: i16,
    /// Fresh random bytes: they become a member id if the request needs a new one.
    pub random: [u8; 16],
}

/// One record for `__consumer_offsets`; without a value it is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsRecord {
    /// The encoded key: an `i16` record type, then the key's fields.
    pub key: Vec<u8>,
    /// The encoded value: an `i16` version, then the value's fields.
    pub value: Option<Vec<u8>>,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The request that it answers.
    pub token: ReplyToken,
    /// The answer.
    pub body: GroupResponse,
}

/// The response body of a request that changes groups.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the response of the request that it is named after")]
pub enum GroupResponse {
    JoinGroup(JoinGroupResponse<'static>),
    SyncGroup(SyncGroupResponse<'static>),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse<'static>),
    OffsetCommit(OffsetCommitResponse<'static>),
    OffsetDelete(OffsetDeleteResponse<'static>),
    ConsumerGroupHeartbeat(ConsumerGroupHeartbeatResponse<'static>),
}

/// The result of one input. The module's head has the host's duties.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a step's records must be appended and its replies sent"]
pub struct Step {
    /// Records to append in this order, in one batch where they fit.
    pub records: Vec<OffsetsRecord>,
    /// Replies to send once the records are durable.
    pub replies: Vec<Reply>,
}

impl Step {
    /// A step with only a reply.
    pub(crate) fn reply(token: ReplyToken, body: GroupResponse) -> Self {
        Self { records: Vec::new(), replies: vec![Reply { token, body }] }
    }

    /// Adds one answer.
    pub(crate) fn push_reply(&mut self, token: ReplyToken, body: GroupResponse) {
        self.replies.push(Reply { token, body });
    }

    /// Appends the content of another step.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.records.append(&mut other.records);
        self.replies.append(&mut other.replies);
    }
}
