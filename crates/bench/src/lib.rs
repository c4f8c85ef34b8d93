//! Measures any Kafka server: load that keeps to its schedule, latencies, and the machine they were measured on.
//!
//! Owns the parts of an honest load generator: [`load`] (threads that keep to the schedule of
//! `riverrun_measure::pacing`, and consumers), the histograms of all latencies (`riverrun_measure::histogram`) and
//! [`environment`] (the machine at its best). Drives servers through `riverrun-client` only and knows the inside of
//! none.

pub mod ballast;
pub mod environment;
pub mod hdr_log;
pub mod input;
pub mod jobs;
pub mod keys;
pub mod load;
pub mod omb;
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
