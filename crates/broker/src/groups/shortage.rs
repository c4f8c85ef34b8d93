//! Refusals for want of the memory of groups: a line in the log once in a while, a finding of `/health` for a while.

use std::time::Duration;

use parking_lot::Mutex;
use riverrun_coordinator::GroupMemory;
use riverrun_env::Clock;

use crate::flow::source::Source;
use crate::log_limit::GROUP_MEMORY_SHORTAGE;

/// So many of the sources that hold most are named where memory is short: the others go short because of them.
const HOLDERS_TOLD: usize = 3;
/// For so long after a refusal for want of memory `/health` tells it. Clients try again more often than that.
const SHORTAGE_TOLD: Duration = Duration::from_secs(10);

/// Refusals for want of memory that were logged, or left out of the log.
#[derive(Debug, Default)]
pub(super) struct Shortage(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    refusals: u64,
    /// When the last one was seen, in monotonic time.
    at: Option<Duration>,
}

impl Shortage {
    /// Logs refusals for want of memory, once in a while.
    pub(super) fn look(&self, memory: &GroupMemory, clock: &dyn Clock) {
        let refusals = memory.refusals();
        {
            let mut seen = self.0.lock();
            if seen.refusals == refusals {
                return;
            }
            *seen = Seen { refusals, at: Some(clock.monotonic()) };
        }
        GROUP_MEMORY_SHORTAGE.warn(|suppressed| {
            let holders = holders(memory);
            tracing::warn!(suppressed, "members or commits of groups were refused: {holders}");
        });
    }

    /// The sources that hold the memory of groups, for a while after a refusal for want of it.
    pub(super) fn told(&self, memory: &GroupMemory, clock: &dyn Clock) -> Option<String> {
        let seen_at = self.0.lock().at?;
        let is_over = clock.monotonic().saturating_sub(seen_at) > SHORTAGE_TOLD;
        (!is_over).then(|| format!("members or commits of groups are refused: {}", holders(memory)))
    }
}

fn holders(memory: &GroupMemory) -> String {
    let (held, max) = (memory.held_bytes(), memory.max_bytes());
    let largest = memory.largest_sources(HOLDERS_TOLD).into_iter();
    let largest: Vec<_> =
        largest.map(|(source, bytes)| format!(", {bytes} of them for {}", Source::of(source))).collect();
    let little = memory.little_bytes();
    format!(
        "groups hold {held} bytes of {max} (groups.memory.max.bytes){}; a group, and all that a source has made \
         grow, may be no larger than a third of what is left of seven eighths; the rest is for those that hold no more than \
         {little}",
        largest.concat()
    )
}
