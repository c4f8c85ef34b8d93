//! A Kafka client: producer, consumer and admin, for Riverrun and for any other server of the protocol.
//!
//! Owns the connections ([`Cluster`]) and what is built on them: [`Producer`]. It speaks the
//! newest version of each request that both sides know, and says clearly what a server does not offer. It knows
//! nothing of the server's inside.

mod cluster;
mod connection;
mod error;
mod producer;

pub use cluster::{Cluster, ClusterOptions, Node, PartitionInfo, TopicInfo};
pub use error::ClientError;
pub use producer::{Delivery, Producer, ProducerOptions, ProducerRecord, RecordMetadata};
