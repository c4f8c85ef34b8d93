//! The Riverrun server: listeners, handlers, metadata, metrics.
//!
//! [`Server`] is the door: it starts with a [`config::BrokerConfig`], or in a test of someone's project with
//! nothing at all, and stops cleanly. Only this crate turns errors of the parts into Kafka's error codes.
//!
//! ```
//! let server = riverrun_broker::Server::builder().start()?;
//! assert!(server.bootstrap().starts_with("127.0.0.1:"));
//! server.stop()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
mod answers;
mod aside;
mod auto_creation;
mod broker;
mod changes;
mod cleaner;
mod compaction_failures;
pub mod config;
mod context;
mod damaged_partitions;
mod descriptors;
mod durability;
mod error;
mod fetch;
mod groups;
mod handlers;
mod health;
mod jobs;
mod log_limit;
mod metadata;
mod metrics;
mod mounts;
mod net;
mod partitions;
mod router;
mod scrub;
mod server;
mod settle;
mod start;
mod stop_signal;
mod supervisor;
#[cfg(test)]
mod testing;
mod topics;
mod watchdog;
mod writers;

pub use metadata::{
    FrameError, MetadataError, MetadataFinding, NamedKind, UnseenDir, Whereabouts, named_partitions,
    unseen_dirs, verify_identity, verify_lost_metadata, verify_mark, verify_metadata,
};
pub use server::{Server, ServerBuilder, StopError};
pub use start::StartError;
