//! The host's promises, with a tiny machine and with groups.

mod counter;
mod groups;

use std::sync::Arc;
use std::time::Duration;

use riverrun_env::sim::SimEnv;
use riverrun_records::Compression;

use super::HostOptions;
use crate::log_limit::GROUP_TROUBLE;

/// How a host of counters works.
pub(super) fn options(sim: &SimEnv) -> HostOptions {
    HostOptions {
        what: "counters",
        records: "counter records",
        topic: "__counters",
        bounds: "a counter in a partition",
        trouble: &GROUP_TROUBLE,
        compression: Compression::None,
        stuck_after: Duration::from_mins(1),
        clock: Arc::clone(&sim.clock) as _,
    }
}
