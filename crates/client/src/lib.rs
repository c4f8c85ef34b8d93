//! A Kafka client: producer, consumer and admin, for Riverrun and for any other server of the protocol.
//!
//! Owns the connections ([`Cluster`]) and what is built on them: [`Producer`], [`Consumer`], [`Admin`]. It speaks the
//! newest version of each request that both sides know, and says clearly what a server does not offer. It knows
//! nothing of the server's inside.

mod cluster;
mod connection;
mod error;

pub use cluster::{Cluster, ClusterOptions, Node, PartitionInfo, TopicInfo};
pub use connection::ResponseFrame;
pub use error::ClientError;
