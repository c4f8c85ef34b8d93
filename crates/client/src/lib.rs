//! A Kafka client: producer, consumer and admin, for Riverrun and for any other server of the protocol.
//!
//! Owns the connections ([`Cluster`]) and what is built on them: [`Producer`], [`Consumer`], [`Admin`]. It speaks the
//! newest version of each request that both sides know, and says clearly what a server does not offer. It knows
//! nothing of the server's inside.
//!
//! Options are fields of [`ProducerOptions`], [`ConsumerOptions`] and [`ClusterOptions`], or texts by Kafka's names:
//!
//! ```
//! use riverrun_client::{ClientError, ProducerOptions};
//!
//! let options = ProducerOptions::from_properties([
//!     ("bootstrap.servers", "localhost:9092"),
//!     ("linger.ms", "20"),
//!     ("compression.type", "lz4"),
//! ])?;
//! assert_eq!(options.linger.as_millis(), 20);
//! # Ok::<(), ClientError>(())
//! ```

mod admin;
mod cluster;
mod connection;
mod consumer;
mod coordinator;
mod error;
mod list_offsets;
mod options;
mod producer;
mod retry;
mod topic_partition;

pub use admin::{
    ActiveProducer, Admin, ClusterDescription, ConfigChange, ConfigEntry, ConfigOperation, ConfigResource,
    ConfigSource, ConfigSynonym, CreatedTopic, DescribedNode, GroupDescription, GroupListing, GroupMember,
    LogDir, LogDirReplica, NewTopic, Results,
};
pub use cluster::{Cluster, ClusterOptions, Node, PartitionInfo, TopicInfo};
pub use consumer::{
    Assignor, Consumer, ConsumerOptions, ConsumerRecord, GroupProtocol, OffsetReset, StartAt, Trouble,
};
pub use coordinator::CommittedOffset;
pub use error::ClientError;
pub use list_offsets::{FoundOffset, Isolation, OffsetSpec};
pub use options::{Kind, OptionDef, markdown as options_markdown};
pub use producer::{
    Choice, Delivery, Partitioner, PartitionerChoice, Producer, ProducerOptions, ProducerRecord,
    RecordMetadata, RecordRef, RoundRobin, Sticky, TopicPartitioner, TopicView, UniformSticky,
    partition_of_key,
};
pub use topic_partition::TopicPartition;
// What the options and errors above are made of.
pub use riverrun_protocol::{ApiKey, ErrorCode};
pub use riverrun_records::{Compression, Header, Record};
pub use riverrun_types::{Acks, ErrorKind, LeaderEpoch, NodeId, Offset, TimestampMs};
