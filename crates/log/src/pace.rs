//! The pace of a pass over the partitions that have changed: not faster than need be while there is much to do.
//!
//! Each partition costs a few system calls, and ten thousand of them a processor for a tenth of a second and more,
//! which appends and waits for acks lack meanwhile. Settled bytes keep the disk busy, too, and the journal's next write
//! comes after them. So after each slice, of partitions or of bytes, the pass pauses for as long as the slice has
//! taken. It does not pause if the write cache or a journal runs full, or if a caller waits for the pass to end or for
//! its turn after it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use riverrun_env::Env;

/// Partitions of a slice: about a millisecond's worth. A pass over fewer has no pause.
const SLICE_LOGS: u32 = 64;
/// Bytes of a slice, whatever the number of partitions: about as long for a disk.
const SLICE_BYTES: usize = 1024 * 1024;
/// A pause at most: a slice that took longer has waited for the disk, or for the processor.
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// Whether a caller waits for the pass to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// It is done at once.
    AtOnce,
    /// It may take twice as long.
    Spread,
}

/// Tells whether a pass may take its time.
pub(crate) trait Pressure: fmt::Debug {
    /// Whether appends wait, or soon will, until bytes in memory and in the journals are settled.
    fn is_pressed(&self) -> bool;
}

/// Callers in haste about the passes over one log dir. There is one pass at a time: a caller may wait for another's.
///
/// Invariants: the number of [`InHaste`] that there are.
#[derive(Debug, Default)]
pub(crate) struct Hurry(AtomicUsize);

/// A caller in haste, as long as it lives.
#[derive(Debug)]
pub(crate) struct InHaste<'a>(&'a Hurry);

impl Hurry {
    /// To be called before the caller waits for its turn, and held until it is done.
    pub(crate) fn enter(&self, haste: Haste) -> Option<InHaste<'_>> {
        (haste == Haste::AtOnce).then(|| {
            self.0.fetch_add(1, Ordering::Relaxed);
            InHaste(self)
        })
    }

    /// Whether a caller is in haste now.
    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for InHaste<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Spreads one pass over the partitions.
///
/// Invariants: `done` and `bytes` are less than a slice.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    env: &'a Env,
    pressure: &'a dyn Pressure,
    hurry: &'a Hurry,
    slice: Slice,
}

#[derive(Debug)]
struct Slice {
    begun: Duration,
    /// Partitions.
    done: u32,
    /// Bytes that were written.
    bytes: usize,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(env: &'a Env, pressure: &'a dyn Pressure, hurry: &'a Hurry) -> Self {
        Self { env, pressure, hurry, slice: Slice { begun: env.clock.monotonic(), done: 0, bytes: 0 } }
    }

    /// To be called after each partition, without a lock of any. Returns whether it was the last of a slice.
    pub(crate) fn step(&mut self) -> bool {
        let ends = self.slice.ends();
        if ends {
            self.rest();
        }
        ends
    }

    /// To be called after a run of a partition was written, without any lock of it.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        if self.slice.ends_with(bytes) {
            self.rest();
        }
    }

    fn rest(&mut self) {
        let pause = self.slice.pause(self.env.clock.monotonic());
        if !pause.is_zero() && !self.pressure.is_pressed() && !self.hurry.is_any() {
            self.env.clock.sleep(pause);
        }
        self.slice.begun = self.env.clock.monotonic();
    }
}

impl Slice {
    /// Counts one more partition; returns whether it is the last one of a slice.
    fn ends(&mut self) -> bool {
        self.done = (self.done + 1) % SLICE_LOGS;
        self.done == 0
    }

    /// Counts so many written bytes; returns whether they are the last ones of a slice.
    fn ends_with(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let ends = self.bytes >= SLICE_BYTES;
        self.bytes %= SLICE_BYTES;
        ends
    }

    /// The pause after the slice that ends now.
    fn pause(&self, now: Duration) -> Duration {
        now.saturating_sub(self.begun).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use riverrun_env::Clock;
    use riverrun_env::sim::SimEnv;
    use riverrun_types::TimestampMs;

    use super::*;
    use crate::open_logs::OpenLogs;
    use crate::options::StoreOptions;
    use crate::shared::StoreShared;

    const MS: Duration = Duration::from_millis(1);

    const SLICE: Slice = Slice { begun: Duration::from_millis(5), done: 0, bytes: 0 };

    #[test]
    fn few_partitions_are_gone_through_at_once() {
        let mut slice = SLICE;
        let ends: Vec<u32> = (1..=3 * SLICE_LOGS).filter(|_| slice.ends()).collect();
        assert_eq!(ends, [SLICE_LOGS, 2 * SLICE_LOGS, 3 * SLICE_LOGS]);
    }

    #[test]
    fn much_of_few_partitions_is_not_written_at_once() {
        let mut slice = SLICE;
        let part = SLICE_BYTES / 2 + 1;
        let ends: Vec<bool> = (0..5).map(|_| slice.ends_with(part)).collect();
        assert_eq!(ends, [false, true, false, true, false]);
        assert!(slice.ends_with(100 * SLICE_BYTES));
    }

    #[test]
    fn others_get_as_much_time_as_a_slice_has_taken_within_a_bound() {
        let slice = SLICE;
        assert_eq!(slice.pause(6 * MS), MS);
        assert_eq!(slice.pause(500 * MS), PAUSE_MAX, "it has waited for something");
        assert_eq!(slice.pause(5 * MS), Duration::ZERO);
    }

    /// A clock that moves a second on with each reading.
    struct RunningClock(AtomicU64);

    impl Clock for RunningClock {
        fn wall(&self) -> TimestampMs {
            TimestampMs::NONE
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn pass_over_many_partitions_rests_unless_it_is_in_haste() {
        let real = Env::real();
        let env = Env { clock: Arc::new(RunningClock(AtomicU64::new(0))), ..SimEnv::new(1).env() };
        let options = StoreOptions { write_cache_bytes: 1000, ..StoreOptions::default() };
        let shared = StoreShared::new(OpenLogs::new(1, 1), Vec::new(), options);
        let hurry = Hurry::default();
        let pass = || {
            let begun = real.clock.monotonic();
            let mut pace = Pace::new(&env, &shared, &hurry);
            (0..10 * SLICE_LOGS).for_each(|_| _ = pace.step());
            real.clock.monotonic().saturating_sub(begun)
        };
        let spread = pass();
        assert!(spread >= 10 * PAUSE_MAX, "{spread:?}");
        assert!(hurry.enter(Haste::Spread).is_none());
        // The machine may be busy with other things, but not in each of many tries.
        let is_at_once = || (0..100).any(|_| pass() < PAUSE_MAX);
        let in_haste = hurry.enter(Haste::AtOnce);
        assert!(is_at_once());
        drop(in_haste);
        assert!(pass() >= 10 * PAUSE_MAX);
        shared.cache.add(750);
        assert!(shared.is_pressed());
        assert!(is_at_once());
    }
}
