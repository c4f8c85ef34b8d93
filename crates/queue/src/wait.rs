//! How a tailer waits for the next record: a type that it is given.
//!
//! Spinning sees a record within the time that a cache line takes, and holds a core. Parking leaves the core
//! to others and costs a wake-up by the kernel, which the append pays that gives it: so a parked tailer naps before
//! it sleeps, and where records come soon one after the other no append has anybody to wake. Where there are more
//! threads than cores, who spins takes the time of the one it waits for.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::control::Control;
use crate::sys;

/// How long a parked tailer sleeps before it looks again, whatever happens. It is woken when something is
/// appended; this bounds what a wake-up costs that an appender owed and died before it gave it.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// How long a nap is: about as long as a wake-up takes. A shorter one is hardly one, and a longer one would be the
/// latency.
const NAP: Duration = Duration::from_micros(20);

/// How often one naps before one sleeps.
const NAPS: u32 = 2;

/// How long one sleeps whom nobody wakes.
const UNWOKEN_SLEEP_MAX: Duration = Duration::from_millis(1);

/// What a waiting tailer waits for.
#[derive(Debug)]
pub struct Watch<'a> {
    word: &'a AtomicU32,
    /// Where appenders look whether they have to wake anybody; none if this process must not write it.
    asleep: Option<&'a AtomicU32>,
    seen: u64,
    left: Duration,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(control: &'a Control, synced: bool, seen: u64, left: Duration) -> Self {
        let asleep = (!control.is_read_only()).then(|| control.tailers_asleep(synced));
        Self { word: control.low_half(synced), asleep, seen, left }
    }

    /// Sleeps for some microseconds, of which no append knows: it costs none of them anything.
    pub fn nap(&self) {
        sys::sleep_exactly(self.left.min(NAP));
    }

    /// Sleeps until there may be something to read, or until the time is over.
    pub fn sleep(&self) {
        let Some(asleep) = self.asleep else {
            std::thread::sleep(self.left.min(UNWOKEN_SLEEP_MAX));
            return;
        };
        asleep.store(1, SeqCst);
        // The flag is seen by every append from here on, or what it published is seen by the kernel's
        // comparison.
        sys::barrier_in_appenders();
        sys::futex_wait(self.word, self.seen as u32, self.left.min(SLEEP_MAX));
    }
}

/// What a tailer does while there is nothing to read.
pub trait WaitStrategy {
    /// Called each time a look found nothing, until one finds something.
    fn idle(&mut self, watch: &Watch<'_>);

    /// Called when there is something to read.
    fn reset(&mut self) {}

    /// Whether [`idle`](Self::idle) may sleep, so that a time-out has to be watched closely.
    fn sleeps(&self) -> bool {
        false
    }
}

/// Looks again at once. For a thread that has a core for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct BusySpin;

impl WaitStrategy for BusySpin {
    #[inline]
    fn idle(&mut self, _watch: &Watch<'_>) {
        std::hint::spin_loop();
    }
}

/// Spins for a while, then lets other threads run between looks.
#[derive(Clone, Copy, Debug)]
pub struct SpinThenYield {
    spins: u32,
    spun: u32,
}

impl SpinThenYield {
    /// Yields after `spins` looks.
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
    /// Naps after `spins` looks, and sleeps if that was not long enough.
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
    fn who_parks_naps_first_and_lets_no_append_wake_it_meanwhile() {
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
