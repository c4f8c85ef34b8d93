//! When each record is due.
//!
//! Owns the schedule of a paced load. Guarantees that a record's time depends on its number and the rate only, never
//! on how the records before it fared: a server that stalls finds all that was due meanwhile, each with the time at
//! which it should have gone, and the latency from that time shows the stall in full (no coordinated omission).
//! Refuses rates that are no number above 0.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Below this, a thread that sleeps would wake up later than it wants to; it goes on at once instead.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// Records per second, above 0 and finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// This many a second; none unless it is a finite number above 0.
    pub fn per_second(rate: f64) -> Option<Self> {
        (rate.is_finite() && rate > 0.0).then_some(Self(rate))
    }

    /// Records per second.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The share of one of `count` that do the work together.
    #[must_use]
    pub fn share(self, count: usize) -> Self {
        Self(self.0 / count.max(1) as f64)
    }
}

/// The times at which the records of one sender are due.
///
/// Several senders of one rate interleave: each has its share of the rate and begins at its own part of the interval.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    rate: Option<Rate>,
}

impl Schedule {
    /// Begins at `start`; without a rate, every record is due at once.
    pub fn new(start: Instant, rate: Option<Rate>) -> Self {
        Self { start, rate }
    }

    /// The schedule of one of `count` senders that share this one.
    #[must_use]
    pub fn share(self, index: usize, count: usize) -> Self {
        let Some(rate) = self.rate else { return self };
        let offset = Duration::from_secs_f64(index as f64 / rate.get());
        Self { start: self.start + offset, rate: Some(rate.share(count)) }
    }

    /// Whether records wait for their time.
    pub fn is_paced(&self) -> bool {
        self.rate.is_some()
    }

    /// When the record of this number, from 0, is due; none where nothing is paced.
    pub fn due(&self, number: u64) -> Option<Instant> {
        let rate = self.rate?;
        // Computed from the number, not added up: a sum of rounded intervals drifts.
        Some(self.start + Duration::from_secs_f64(number as f64 / rate.get()))
    }

    /// How many records are due at `now`.
    #[expect(clippy::cast_possible_truncation, reason = "a count beyond u64 stops at its greatest value")]
    pub fn due_count(&self, now: Instant) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let Some(elapsed) = now.checked_duration_since(self.start) else { return 0 };
        // The first is due at the start itself.
        (elapsed.as_secs_f64() * rate.get()).floor() as u64 + 1
    }
}

/// A schedule that many senders share and that may be replaced while they run.
///
/// Invariants: `generation` is counted up after each replacement of `schedule`.
#[derive(Debug)]
pub struct Pace {
    schedule: Mutex<Schedule>,
    generation: AtomicU64,
}

impl Pace {
    /// Begins with this schedule.
    pub fn new(schedule: Schedule) -> Arc<Self> {
        Arc::new(Self { schedule: Mutex::new(schedule), generation: AtomicU64::new(0) })
    }

    /// Begins anew with another rate, now. What was due and is not sent yet is not made up for.
    pub fn set_rate(&self, rate: Option<Rate>) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Schedule::new(Instant::now(), rate);
        // SYNC: whoever sees the new generation finds the new schedule under the lock.
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn current(&self) -> (u64, Schedule) {
        // SYNC: read before the schedule, so that a replacement in between is noticed the next time.
        let generation = self.generation.load(Ordering::Acquire);
        (generation, *self.schedule.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One sender's way through a shared schedule.
///
/// Invariants: `number` counts the records that were sent since `schedule` began.
#[derive(Debug)]
pub struct Pacer {
    pace: Arc<Pace>,
    index: usize,
    count: usize,
    generation: u64,
    schedule: Schedule,
    number: u64,
}

impl Pacer {
    /// Sender `index` of `count`.
    pub fn new(pace: Arc<Pace>, index: usize, count: usize) -> Self {
        let (generation, schedule) = pace.current();
        Self { pace, index, count, generation, schedule: schedule.share(index, count), number: 0 }
    }

    /// When the next record is due; none where nothing is paced. Asks for the present schedule each time.
    pub fn due(&mut self) -> Option<Instant> {
        if self.pace.generation.load(Ordering::Acquire) != self.generation {
            let (generation, schedule) = self.pace.current();
            (self.generation, self.schedule, self.number) =
                (generation, schedule.share(self.index, self.count), 0);
        }
        self.schedule.due(self.number)
    }

    /// The record is sent: the next one's turn.
    pub fn advance(&mut self) {
        self.number += 1;
    }
}

/// Lets the thread sleep until `due`, and not at all if that has passed or is very near.
///
/// Wakes up some ten microseconds late where [`sharpen_sleep`] was called on the thread. What it is late by is part
/// of every latency that is measured from the intended time, as it should be: it is small, and never hidden.
pub fn sleep_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left >= SLEEP_MIN {
        std::thread::sleep(left);
    }
}

/// Asks the kernel to wake this thread when it wants to be woken, and not up to 50 us later to save power.
pub fn sharpen_sleep() {
    if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::MIN.into()) {
        tracing::debug!(%error, "timer slack stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(rate: f64) -> Rate {
        Rate::per_second(rate).expect("a rate")
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::per_second(bad), None, "{bad}");
        }
        assert!((rate(0.5).get() - 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_record_s_time_depends_on_its_number_only() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Some(rate(3.0)));
        assert_eq!(schedule.due(0), Some(start));
        assert_eq!(schedule.due(3), Some(start + Duration::from_secs(1)));
        // After an hour and more nothing has been rounded away.
        assert_eq!(schedule.due(3 * 100_000), Some(start + Duration::from_secs(100_000)));
        assert_eq!(Schedule::new(start, None).due(7), None);
    }

    #[test]
    fn what_is_due_is_counted_from_the_start_and_never_forgotten() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Some(rate(10.0)));
        for (elapsed_ms, expected) in [(0, 1), (99, 1), (101, 2), (1_001, 11), (60_001, 601)] {
            let now = start + Duration::from_millis(elapsed_ms);
            assert_eq!(schedule.due_count(now), expected, "{elapsed_ms} ms");
        }
        let later = Schedule::new(start + Duration::from_secs(1), Some(rate(10.0)));
        assert_eq!(later.due_count(start), 0);
        assert_eq!(Schedule::new(start, None).due_count(start), u64::MAX);
    }

    #[test]
    fn senders_that_share_a_rate_interleave() {
        let start = Instant::now();
        let whole = Schedule::new(start, Some(rate(1000.0)));
        for number in 0..20_u64 {
            let part = whole.share((number % 4) as usize, 4);
            let (due, expected) = (part.due(number / 4).unwrap(), whole.due(number).unwrap());
            let apart = due.max(expected) - due.min(expected);
            assert!(apart < Duration::from_micros(1), "{number}: {apart:?}");
        }
    }

    #[test]
    fn a_new_rate_begins_anew_for_every_sender() {
        let start = Instant::now();
        let pace = Pace::new(Schedule::new(start, Some(rate(10.0))));
        let mut pacer = Pacer::new(Arc::clone(&pace), 1, 2);
        assert_eq!(pacer.due(), Some(start + Duration::from_millis(100)));
        pacer.advance();
        assert_eq!(pacer.due(), Some(start + Duration::from_millis(300)));
        let changed = Instant::now();
        pace.set_rate(Some(rate(1000.0)));
        let due = pacer.due().expect("paced");
        assert!(due >= changed && due < changed + Duration::from_millis(100), "{:?}", due - changed);
        pace.set_rate(None);
        assert_eq!(pacer.due(), None);
    }

    #[test]
    fn sleeping_until_a_time_that_has_passed_returns_at_once() {
        let before = Instant::now();
        sleep_until(before.checked_sub(Duration::from_secs(3)).unwrap_or(before));
        assert!(before.elapsed() < Duration::from_millis(100));
        sleep_until(before + Duration::from_millis(30));
        assert!(before.elapsed() >= Duration::from_millis(30));
    }
}
