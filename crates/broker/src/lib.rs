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
mod broker;
mod catalog;
mod catch_up;
mod changes;
mod cleaner;
mod compaction_failures;
pub mod config;
mod context;
mod cordon;
mod damaged_partitions;
mod descriptors;
mod error;
mod fetch;
mod fetch_sessions;
mod flow;
mod groups;
mod handlers;
mod health;
mod held_files;
mod jobs;
mod log_limit;
mod metadata;
mod metrics;
mod mounts;
mod net;
mod partitions;
mod replicas;
mod response;
mod scrape;
mod scrub;
mod scrub_progress;
mod server;
mod settle;
mod shard_host;
mod start;
mod start_error;
mod stop_signal;
mod supervisor;
#[cfg(test)]
mod testing;
mod text;
mod topic_names;
mod upkeep;
mod waits;
mod watchdog;
mod writers;

pub use metadata::{
    FrameError, MetadataError, MetadataFinding, NamedKind, UnseenDir, Whereabouts, named_partitions,
    unseen_dirs, verify_identity, verify_lost_metadata, verify_mark, verify_metadata,
};
pub use server::{Server, ServerBuilder, StopError};
pub use start_error::StartError;
