//! Measures any Kafka server: load that keeps to its schedule, latencies, and the machine they were measured on.
//!
//! Owns what a load generator needs to be honest: [`pacing`] (when each record is due, whatever happens to the ones
//! before it). It drives servers through `riverrun-client` only and knows nothing of any server's inside.

pub mod hdr_log;
pub mod histogram;
pub mod keys;
pub mod pacing;
pub mod payload;
pub mod random;
