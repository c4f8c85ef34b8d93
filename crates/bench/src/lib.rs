//! Measures any Kafka server: load that keeps to its schedule, latencies, and the machine they were measured on.
//!
//! Owns what a load generator needs to be honest: [`pacing`] (when each record is due, whatever happens to the ones
//! before it), [`load`] (threads that keep to that, and consumers), [`histogram`] (every latency, none cut off) and
//! [`environment`] (what the machine does at best). It drives servers through `riverrun-client` only and knows nothing
//! of any server's inside.

pub mod environment;
pub mod hdr_log;
pub mod histogram;
pub mod input;
pub mod jobs;
pub mod keys;
pub mod load;
pub mod omb;
pub mod pacing;
pub mod payload;
pub mod plan;
pub mod process;
pub mod properties;
pub mod random;
pub mod report;
pub mod result;
pub mod runner;
pub mod scale;
pub mod suite;
pub mod trogdor;
pub mod unsupported;
pub mod worker;
