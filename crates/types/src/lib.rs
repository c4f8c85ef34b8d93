//! Ids, offsets, levels and limits that every part of Riverrun shares.
//!
//! Owns the newtypes that keep counts, indexes, sizes and positions apart, the durability levels with the two pure
//! rules *acked* and *visible*, the limits on input from outside, the account of lost log lines that the log's
//! writer and a server share, and the map that images of metadata are made of. No I/O, no async.
//!
//! ```
//! use riverrun_types::{DurabilityLevel, Offset};
//!
//! let next = Offset(41).next();
//! assert_eq!(next, Offset(42));
//! assert!(!DurabilityLevel::AsyncAsync.syncs_locally());
//! ```

mod durability;
mod error_kind;
mod ids;
pub mod limits;
mod log_account;
mod old_format;
mod sharded_map;
pub mod tcp;

pub use durability::{Acks, DurabilityLevel, ParseDurabilityError, Watermarks, ack_offset, visible_offset};
pub use error_kind::ErrorKind;
pub use ids::{
    LeaderEpoch, NodeId, Offset, ParseTopicIdError, PartitionId, Position, ProducerEpoch, ProducerId,
    TimestampMs, TopicId,
};
pub use log_account::LogAccount;
pub use old_format::old_format;
pub use sharded_map::{ShardKey, ShardedMap};
