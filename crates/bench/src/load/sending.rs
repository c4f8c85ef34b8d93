//! The loop of one sending thread.
//!
//! Guarantees that each record of the schedule is sent, late if it must be, and that its latency begins when it was
//! due. Acks are looked at between sends and while the thread would sleep; when they came is the target's to say, so
//! looking late makes no latency longer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::figures::Interval;
use super::target::Target;
use crate::keys::Keys;
use crate::pacing::{Schedule, sharpen_sleep, sleep_until};
use crate::payload::Payloads;

/// Records between two looks at the acks while there is no time to sleep.
const LOOK_RECORDS: u32 = 64;
/// Time between two looks at the acks, and at whether to stop, while there is.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The numbers of the records that one of several senders sends.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    step: u64,
    end: u64,
}

impl Numbers {
    /// Every `count`th from `index` on, below `end`.
    pub(super) fn new(index: usize, count: usize, end: u64) -> Self {
        Self { next: index as u64, step: count as u64, end }
    }
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let number = self.next;
        self.next = number.saturating_add(self.step);
        (number < self.end).then_some(number)
    }
}

/// What a sender shares with whoever watches it.
#[derive(Debug)]
pub(super) struct Shared<E> {
    interval: Mutex<Interval>,
    first_error: Mutex<Option<E>>,
    /// When the sender had the last outcome.
    pub(super) finished: OnceLock<Instant>,
}

impl<E> Default for Shared<E> {
    fn default() -> Self {
        Self { interval: Mutex::default(), first_error: Mutex::new(None), finished: OnceLock::new() }
    }
}

impl<E> Shared<E> {
    /// What happened since the last call.
    pub(super) fn take(&self) -> Interval {
        std::mem::take(&mut *self.lock())
    }

    /// Why the first record was not acked; once.
    pub(super) fn take_error(&self) -> Option<E> {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn lock(&self) -> MutexGuard<'_, Interval> {
        self.interval.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_error(&self, error: E) {
        self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// What all senders of a load share.
#[derive(Debug)]
pub(super) struct Control {
    /// Set to end all senders.
    pub(super) stop: AtomicBool,
    /// Records below this number warm up.
    pub(super) warmup_records: u64,
    /// When the first record after them was sent.
    pub(super) steady_since: OnceLock<Instant>,
}

/// A record that was sent.
#[derive(Debug)]
struct Sent<P> {
    pending: P,
    due: Option<Instant>,
    begun: Instant,
    bytes: u64,
    steady: bool,
}

/// One sender.
///
/// Invariants: `unsettled` holds the records whose outcome was not seen yet, in the order of sending.
pub(super) struct Sending<T: Target> {
    target: T,
    numbers: Numbers,
    schedule: Schedule,
    payloads: Payloads,
    keys: Keys,
    control: Arc<Control>,
    shared: Arc<Shared<T::Error>>,
    unsettled: VecDeque<Sent<T::Pending>>,
    handed_over: u64,
}

impl<T: Target> Sending<T> {
    pub(super) fn new(
        target: T,
        numbers: Numbers,
        schedule: Schedule,
        (payloads, keys): (Payloads, Keys),
        control: Arc<Control>,
        shared: Arc<Shared<T::Error>>,
    ) -> Self {
        let unsettled = VecDeque::new();
        Self { target, numbers, schedule, payloads, keys, control, shared, unsettled, handed_over: 0 }
    }

    /// Sends until the numbers end or it is told to stop, and waits for all outcomes. Fails with what the target did
    /// not take; what it took and did not ack is counted.
    pub(super) fn run(mut self) -> Result<(), T::Error> {
        sharpen_sleep();
        let outcome = self.send_all();
        if outcome.is_err() {
            // The others' figures would be those of another load.
            self.control.stop.store(true, Ordering::Relaxed);
        }
        self.settle();
        while let Some(mut sent) = self.unsettled.pop_front() {
            let acked = match self.target.poll(&mut sent.pending) {
                Some(outcome) => outcome,
                None => self.target.wait(sent.pending),
            };
            let taken = (sent.due, sent.begun, sent.bytes, sent.steady);
            count(&self.shared, &mut self.shared.lock(), taken, acked);
        }
        self.shared.finished.get_or_init(Instant::now);
        outcome
    }

    fn send_all(&mut self) -> Result<(), T::Error> {
        let mut since_look = 0;
        while let Some(number) = self.numbers.next() {
            // Numbers of all senders are one sequence, and so are their times.
            let due = self.schedule.due(number);
            if !self.wait_for(due) {
                break;
            }
            self.send(number, due)?;
            since_look += 1;
            if since_look >= LOOK_RECORDS {
                self.settle();
                since_look = 0;
            }
        }
        Ok(())
    }

    /// Waits until then; false if it is time to stop.
    fn wait_for(&mut self, due: Option<Instant>) -> bool {
        loop {
            if self.control.stop.load(Ordering::Relaxed) {
                return false;
            }
            let Some(due) = due else { return true };
            let now = Instant::now();
            if now >= due {
                return true;
            }
            self.settle();
            sleep_until(due.min(now + LOOK_INTERVAL));
        }
    }

    fn send(&mut self, number: u64, due: Option<Instant>) -> Result<(), T::Error> {
        let (key, value) = (self.keys.next(number), self.payloads.next(number));
        let (bytes, steady) = (value.len() as u64, number >= self.control.warmup_records);
        let begun = Instant::now();
        if steady {
            self.control.steady_since.get_or_init(|| begun);
        }
        let pending = self.target.send(key.as_deref(), &value)?;
        self.unsettled.push_back(Sent { pending, due, begun, bytes, steady });
        self.handed_over += 1;
        Ok(())
    }

    /// Counts the outcomes that are there, up to the first that is not.
    fn settle(&mut self) {
        let mut interval = self.shared.lock();
        interval.handed_over += std::mem::take(&mut self.handed_over);
        while let Some(sent) = self.unsettled.front_mut() {
            let Some(outcome) = self.target.poll(&mut sent.pending) else { break };
            count(&self.shared, &mut interval, (sent.due, sent.begun, sent.bytes, sent.steady), outcome);
            self.unsettled.pop_front();
        }
    }
}

fn count<E>(
    shared: &Shared<E>,
    interval: &mut Interval,
    (due, begun, bytes, steady): (Option<Instant>, Instant, u64, bool),
    outcome: Result<Instant, E>,
) {
    match outcome {
        Ok(acked) => {
            let figures = if steady { &mut interval.steady } else { &mut interval.warmup };
            let since = |begin: Instant| acked.saturating_duration_since(begin);
            figures.record(bytes, due.map(since), since(begun));
        }
        Err(error) => {
            interval.failed += 1;
            shared.note_error(error);
        }
    }
}

#[cfg(test)]
mod tests;
