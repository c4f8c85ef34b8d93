//! What client, server and measurements have to agree on about TCP.

/// Congestion control of connections that stay on one machine: they share no link and lose nothing. What the system chose for
/// its network may pace their segments, as BBR does: a timer for nearly each of them, which was half of all processor time
/// of a consumer, and less than half the throughput. Every Linux has this one, and everyone may choose it.
pub const LOCAL_CONGESTION_CONTROL: &str = "reno";
