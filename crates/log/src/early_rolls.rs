//! How often a segment may end before it is large: an allowance that time gives back.
//!
//! Each segment costs two files and a few system calls, however small it is. If options ask for a new one with every
//! batch (`segment.index.bytes=4`, `segment.ms=1`), the settler would do nothing else, and producers that wait for the
//! journal's space would wait for all of that. So a small segment ends for its index or its time only while its log and
//! its log dir have some of their allowance left, and grows otherwise. Pure: the time comes in as an argument.

use std::time::Duration;

use parking_lot::Mutex;

/// A segment of so many bytes ends for its index or its time without an allowance: the smallest value of
/// `segment.bytes`. Segments of this size cost little beside the writing of their bytes.
pub(crate) const SMALL_SEGMENT_BYTES: u64 = 1024 * 1024;

/// A log may end so many small segments at once, and one in each interval in the long run: about 20 ms of work at
/// first, and then hardly any. More is never needed: the upkeep ends the segments that have come of age in between.
const LOG_BURST: u32 = 64;
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// The allowance of all logs of a log dir: a third of a second of work at once, and two percent of a processor for
/// good.
const DIR_BURST: u32 = 1024;
const DIR_INTERVAL: Duration = Duration::from_millis(16);

/// The allowance of a log or a log dir.
///
/// Invariants: `used_until` is when all that was taken will have been given back.
#[derive(Debug)]
pub(crate) struct Allowance {
    burst: u32,
    interval: Duration,
    used_until: Duration,
}

impl Allowance {
    pub(crate) fn of_log() -> Self {
        Self { burst: LOG_BURST, interval: LOG_INTERVAL, used_until: Duration::ZERO }
    }

    fn of_dir() -> Self {
        Self { burst: DIR_BURST, interval: DIR_INTERVAL, used_until: Duration::ZERO }
    }

    fn has_some(&self, now: Duration) -> bool {
        self.used_until.saturating_sub(now) <= self.interval * (self.burst - 1)
    }

    fn take(&mut self, now: Duration) {
        self.used_until = self.used_until.max(now) + self.interval;
    }
}

/// The allowance of a log dir, which its logs use together.
#[derive(Debug)]
pub(crate) struct EarlyRolls(Mutex<Allowance>);

impl EarlyRolls {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Allowance::of_dir()))
    }

    /// Whether a log with the allowance `log` may end a small segment at monotonic time `now`.
    pub(crate) fn may(&self, log: &Allowance, now: Duration) -> bool {
        log.has_some(now) && self.0.lock().has_some(now)
    }

    /// A small segment was ended.
    pub(crate) fn take(&self, log: &mut Allowance, now: Duration) {
        log.take(now);
        self.0.lock().take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of small segments that a log may end one after another.
    fn take_all(dir: &EarlyRolls, log: &mut Allowance, now: Duration) -> u32 {
        let mut count = 0;
        while dir.may(log, now) {
            dir.take(log, now);
            count += 1;
        }
        count
    }

    #[test]
    fn a_log_uses_up_its_burst_and_gets_one_back_in_each_interval() {
        let (dir, mut log) = (EarlyRolls::new(), Allowance::of_log());
        let begun = Duration::from_secs(1000);
        assert_eq!(take_all(&dir, &mut log, begun), LOG_BURST);
        assert_eq!(take_all(&dir, &mut log, begun + LOG_INTERVAL / 2), 0);
        assert_eq!(take_all(&dir, &mut log, begun + LOG_INTERVAL), 1);
        assert_eq!(take_all(&dir, &mut log, begun + 4 * LOG_INTERVAL), 3);
        assert_eq!(
            take_all(&dir, &mut log, begun + Duration::from_hours(10)),
            LOG_BURST,
            "no more for a rest"
        );
    }

    #[test]
    fn many_logs_use_up_what_their_dir_is_allowed() {
        let dir = EarlyRolls::new();
        let now = Duration::from_secs(1000);
        let mut logs: Vec<_> = (0..1000).map(|_| Allowance::of_log()).collect();
        let all: u32 = logs.iter_mut().map(|log| take_all(&dir, log, now)).sum();
        assert_eq!(all, DIR_BURST);
        let later: u32 = logs.iter_mut().map(|log| take_all(&dir, log, now + 10 * DIR_INTERVAL)).sum();
        assert_eq!(later, 10);
    }
}
