//! Wait strategies: how a tailer waits for the next record.
//!
//! Spinning sees a record within the time of a cache-line transfer, and occupies a core. Parking leaves the core to
//! other threads, but costs a wake-up by the kernel, which the append pays. A parked tailer therefore naps before it
//! sleeps; where records follow each other quickly, no append has to wake it. Where there are more threads than
//! cores, a spinning thread takes processor time from the one that it waits for.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::control::Control;
use crate::sys;

/// Longest sleep of a parked tailer. An append wakes it earlier; this bounds the delay if an appender dies before it
/// makes the wake-up that it owes.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Length of a nap: about as long as a wake-up takes. A much shorter one would hardly be a sleep, and a longer one
/// would add latency.
const NAP: Duration = Duration::from_micros(20);

/// Naps before the first sleep.
const NAPS: u32 = 2;

/// Longest sleep of a tailer that appenders cannot wake.
const UNWOKEN_SLEEP_MAX: Duration = Duration::from_millis(1);

/// The condition for which a tailer waits.
#[derive(Debug)]
pub struct Watch<'a> {
    word: &'a AtomicU32,
    /// The flag by which appenders see that they have to wake a tailer; `None` if this process must not write it.
    asleep: Option<&'a AtomicU32>,
    seen: u64,
    left: Duration,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(control: &'a Control, synced: bool, seen: u64, left: Duration) -> Self {
        let asleep = (!control.is_read_only()).then(|| control.tailers_asleep(synced));
        Self { word: control.low_half(synced), asleep, seen, left }
    }

    /// Sleeps for some microseconds without setting the flag, so that no append pays a wake-up.
    pub fn nap(&self) {
        sys::sleep_exactly(self.left.min(NAP));
    }

    /// Sleeps until there may be something to read, or until the time-out.
    pub fn sleep(&self) {
        let Some(asleep) = self.asleep else {
            std::thread::sleep(self.left.min(UNWOKEN_SLEEP_MAX));
            return;
        };
        asleep.store(1, SeqCst);
        // From here on, every append sees the flag, or the kernel's comparison sees the position that it published.
        sys::barrier_in_appenders();
        sys::futex_wait(self.word, self.seen as u32, self.left.min(SLEEP_MAX));
    }
}

/// The behaviour of a tailer while there is nothing to read.
pub trait WaitStrategy {
    /// Called after each check that found nothing to read.
    fn idle(&mut self, watch: &Watch<'_>);

    /// Called when there is something to read.
    fn reset(&mut self) {}

    /// True if [`idle`](Self::idle) may sleep, so that the clock has to be read each time.
    fn sleeps(&self) -> bool {
        false
    }
}

/// Checks again at once. For a thread that has a core of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusySpin;

impl WaitStrategy for BusySpin {
    #[inline]
    fn idle(&mut self, _watch: &Watch<'_>) {
        std::hint::spin_loop();
    }
}

/// Spins for a while, then lets other threads run between checks.
#[derive(Clone, Copy, Debug)]
pub struct SpinThenYield {
    spins: u32,
    spun: u32,
}

impl SpinThenYield {
    /// Yields after `spins` checks.
    pub fn new(spins: u32) -> Self {
        Self { spins, spun: 0 }
    }
}

impl Default for SpinThenYield {
    fn default() -> Self {
        Self::new(1000)
    }
}

impl WaitStrategy for SpinThenYield {
    #[inline]
    fn idle(&mut self, _watch: &Watch<'_>) {
        if self.spun < self.spins {
            self.spun += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    fn reset(&mut self) {
        self.spun = 0;
    }
}

/// Spins for a while, then naps, and then sleeps until an appender wakes it.
#[derive(Clone, Copy, Debug)]
pub struct Park {
    spins: u32,
    spun: u32,
    napped: u32,
}

impl Park {
    /// Naps after `spins` checks, and sleeps if the naps were not long enough.
    pub fn new(spins: u32) -> Self {
        Self { spins, spun: 0, napped: 0 }
    }
}

impl Default for Park {
    fn default() -> Self {
        Self::new(100)
    }
}

impl WaitStrategy for Park {
    #[inline]
    fn idle(&mut self, watch: &Watch<'_>) {
        if self.spun < self.spins {
            self.spun += 1;
            std::hint::spin_loop();
        } else if self.napped < NAPS {
            self.napped += 1;
            watch.nap();
        } else {
            watch.sleep();
        }
    }

    fn reset(&mut self) {
        self.spun = 0;
        self.napped = 0;
    }

    fn sleeps(&self) -> bool {
        self.spun >= self.spins
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::mapping::Access;

    #[test]
    fn parked_tailer_naps_first_without_a_wake_up() {
        let dir = tempfile::tempdir().expect("a directory");
        Control::create(dir.path(), 4096, 0).expect("a control file");
        let control = Control::open(dir.path(), Access::Write).expect("whole").expect("there");
        let watch = Watch::new(&control, false, 0, Duration::from_millis(1));
        let mut park = Park::new(3);
        for _ in 0..2 {
            for _ in 0..3 + NAPS {
                park.idle(&watch);
                assert!(!control.take_sleepers(false), "no append has anybody to wake");
            }
            park.idle(&watch);
            assert!(control.take_sleepers(false), "now it sleeps");
            assert_eq!(control.tailers_asleep(false).load(Relaxed), 0);
            park.reset();
        }
    }
}
