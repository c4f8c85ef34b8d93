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
pub mod config;
mod context;
mod descriptors;
mod durability;
mod error;
mod fetch;
mod groups;
mod handlers;
mod health;
mod log_limit;
mod marked;
mod metadata;
mod metrics;
mod mounts;
mod net;
mod partitions;
mod router;
mod scrub;
mod server;
mod settle;
mod shutdown;
mod start;
mod supervisor;
#[cfg(test)]
mod testing;
mod topics;
mod uncleanable;
mod upkeep;
mod watchdog;
mod writers;

pub use metadata::{
    FrameError, MetadataError, MetadataFinding, NamedKind, UnseenDir, Whereabouts, unseen_dirs,
    verify_identity, verify_lost_metadata, verify_mark, verify_metadata,
};
pub use server::{Server, ServerBuilder, StopError};
pub use start::StartError;
