//! The TCP settings that client, server and benchmarks share.

/// Congestion control of connections that stay on one machine: they share no link and lose nothing. The system's
/// default for its network may pace their segments, as BBR does: a timer for nearly each of them took half of all
/// processor time of a consumer, and more than half of its throughput. Every Linux has this one, and every process
/// may choose it.
pub const LOCAL_CONGESTION_CONTROL: &str = "reno";
