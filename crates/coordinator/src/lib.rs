//! Consumer groups as pure state machines: the classic protocol, KIP-848 groups, and committed offsets.
//!
//! Owns the decisions of a group coordinator. A [`Shard`] holds the groups of one partition of `__consumer_offsets`:
//! requests and time go in, and a [`Step`] comes out with the records to append and the replies to send, which may
//! answer older requests that were parked. Replaying a partition's records into a fresh shard gives the same groups.
//!
//! Guarantees: the same inputs give the same outputs; every input is answered, nothing panics. The memory of each
//! group, member and offset is bounded by [`GroupConfig`], and that of all groups by [`GroupMemory`], the only state
//! that the shards of a server share. Knows no files, sockets, clocks and randomness: the host supplies them in
//! [`RequestContext`].
//!
//! A group changes its protocol with the clients that come and go, as far as `group.consumer.migration.policy`
//! allows: while it has members of both, it is a KIP-848 group. An *empty* group is taken over by the first member
//! that comes. The records of its old kind are deleted in the same step, and offsets survive the change.
//!
//! ```
//! use riverrun_coordinator::{GroupConfig, GroupMemory, Now, PatternTopics};
//! use riverrun_coordinator::{ReplyToken, RequestContext, Shard, TopicMetadata};
//! use riverrun_protocol::HeartbeatRequest;
//! use riverrun_types::TopicId;
//!
//! # struct NoTopics;
//! # impl TopicMetadata for NoTopics {
//! #     fn topic_id(&self, _: &str) -> Option<TopicId> { None }
//! #     fn topic_name(&self, _: TopicId) -> Option<&str> { None }
//! #     fn partition_count(&self, _: TopicId) -> Option<i32> { None }
//! #     fn topics_of_pattern(&self, _: &str) -> PatternTopics { PatternTopics::Pending }
//! #     fn partition_racks(&self, _: TopicId, _: i32) -> Vec<&str> { Vec::new() }
//! #     fn generation(&self) -> u64 { 0 }
//! # }
//! let mut shard = Shard::new(GroupConfig::default(), GroupMemory::new(256 << 20));
//! let context = RequestContext {
//!     now: Now::simulated(1_000),
//!     token: ReplyToken(7),
//!     client_id: "example",
//!     client_host: "/127.0.0.1",
//!     api_version: 4,
//!     random: [0; 16],
//! };
//! let step = shard.heartbeat(&context, &HeartbeatRequest::default(), &NoTopics, true);
//! assert!(step.records.is_empty());
//! assert_eq!(step.replies[0].token, ReplyToken(7));
//! ```

mod admin;
pub mod assignors;
mod classic;
mod config;
mod consumer;
mod error;
mod foreign;
mod group;
mod lend;
mod memory;
mod migration;
mod offsets;
mod pattern;
mod records;
mod refusal;
mod replay;
mod runs;
mod shard;
mod step;
mod time;
mod topics;

pub use config::{GroupConfig, MigrationPolicy, OwnConfig, OwnConfigs, UnknownPolicy};
pub use error::ReplayError;
pub use foreign::{ForeignError, check_record};
pub use lend::{Lent, STEP_COST_MAX};
pub use memory::GroupMemory;
pub use migration::ProtocolChange;
pub use offsets::{
    Committed, CommittedOffset, CommittedPlace, CommittedSlice, Deletion, offset_fetch_groups,
    offset_fetch_response,
};
pub use pattern::{PatternError, PatternTopics, TopicPattern, Workspace};
pub use refusal::{refuse_join_group, refuse_offset_commit, refuse_offset_fetch};
pub use shard::{GROUP_ID_BYTES_MAX, Shard};
pub use step::{GroupResponse, OffsetsRecord, Reply, ReplyToken, RequestContext, Step};
pub use time::{Moment, Now, Setting, Stamp};
pub use topics::TopicMetadata;
