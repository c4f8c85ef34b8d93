//! Counts and latencies of producers and consumers, taken once a second by the runner.
//!
//! Guarantees that everything recorded is taken exactly once. Recording holds a lock for a few nanoseconds, taking only
//! for the exchange of a box.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riverrun_client::ClientError;
use riverrun_measure::histogram::Latencies;
use serde::{Deserialize, Serialize};

use crate::load::meter::Sent;

/// Meters of one load: producers and consumers share them, so that thousands of clients need no thousands of
/// histograms.
const METERS: usize = 8;

/// Counts since the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Records that were handed to the client.
    pub sent: u64,
    /// Records that were acked.
    pub acked: u64,
    /// Bytes of their values.
    pub acked_bytes: u64,
    /// Records that could not be delivered.
    pub failed: u64,
    /// Records that were read.
    pub received: u64,
    /// Bytes of their values.
    pub received_bytes: u64,
    /// Records that were read by groups that catch up.
    pub caught_up: u64,
    /// Bytes of their values.
    pub caught_up_bytes: u64,
    /// Records that were read before they were due, by the clocks.
    pub from_the_future: u64,
    /// Records that were due and not sent when the rate changed or the producers were stopped.
    pub overdue: u64,
}

impl Counts {
    /// Adds those of `other`.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acked += other.acked;
        self.acked_bytes += other.acked_bytes;
        self.failed += other.failed;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.caught_up += other.caught_up;
        self.caught_up_bytes += other.caught_up_bytes;
        self.from_the_future += other.from_the_future;
        self.overdue += other.overdue;
    }
}

/// Counts and latencies since the last time.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Counts.
    pub counts: Counts,
    /// Latencies from the due time of a record to its ack.
    pub publish: Latencies,
    /// Times from the due time of a record to the call of send.
    pub delay: Latencies,
    /// Latencies from the due time of a record to its reading.
    pub end_to_end: Latencies,
    /// The part of `publish` for records that were not delivered: they failed, or were never sent.
    pub undelivered: Latencies,
    /// For each record that was read: how long its consumer had waited for the poll that brought it.
    pub poll: Latencies,
    /// The first error, if there was one.
    pub error: Option<String>,
}

impl Taken {
    /// Adds the report of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.publish.merge(&other.publish);
        self.delay.merge(&other.delay);
        self.end_to_end.merge(&other.end_to_end);
        self.undelivered.merge(&other.undelivered);
        self.poll.merge(&other.poll);
        if self.error.is_none() {
            self.error.clone_from(&other.error);
        }
    }

    fn clear(&mut self) {
        self.counts = Counts::default();
        self.publish.clear();
        self.delay.clear();
        self.end_to_end.clear();
        self.undelivered.clear();
        self.poll.clear();
        self.error = None;
    }
}

/// One of the places that clients record in.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Counted for each record, and therefore outside the lock.
    sent: AtomicU64,
    now: Mutex<Box<Taken>>,
}

impl Meter {
    fn lock(&self) -> MutexGuard<'_, Box<Taken>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that were acked, or not delivered. The latency of the latter is at least their wait so far.
    pub(super) fn decided<'a>(
        &self,
        sent: impl ExactSizeIterator<Item = &'a Sent>,
        outcome: Result<(), impl ToString>,
    ) {
        let time = Instant::now();
        let mut now = self.lock();
        let now = &mut **now;
        let is_acked = outcome.is_ok();
        let count = sent.len() as u64;
        if let Err(error) = outcome {
            now.error.get_or_insert_with(|| error.to_string());
        }
        *(if is_acked { &mut now.counts.acked } else { &mut now.counts.failed }) += count;
        for sent in sent {
            let latency = sent.latency(time);
            now.publish.record(latency);
            if is_acked {
                now.counts.acked_bytes += sent.bytes as u64;
            } else {
                now.undelivered.record(latency);
            }
            if let Some(due) = sent.due {
                now.delay.record(sent.begun.saturating_duration_since(due));
            }
        }
    }

    /// Records that were due and not sent. Their latency and their delay are at least the time for which they were due:
    /// leaving them out would hide the very stall that kept them from being sent.
    pub(super) fn overdue(&self, waited: impl Iterator<Item = (Duration, u64)>) {
        let mut now = self.lock();
        let now = &mut **now;
        for (waited, count) in waited {
            now.counts.overdue += count;
            for latencies in [&mut now.publish, &mut now.delay, &mut now.undelivered] {
                latencies.record_many(waited, count);
            }
        }
    }

    pub(super) fn error(&self, error: String) {
        self.lock().error.get_or_insert(error);
    }

    /// Records of one poll.
    pub(super) fn received(&self, batch: &Received<'_>) {
        let mut now = self.lock();
        if batch.catch_up {
            now.counts.caught_up += batch.records;
            now.counts.caught_up_bytes += batch.bytes;
        } else {
            now.counts.received += batch.records;
            now.counts.received_bytes += batch.bytes;
        }
        now.counts.from_the_future += batch.from_the_future;
        for latency in batch.latencies {
            now.end_to_end.record(*latency);
        }
    }

    /// The wait for a poll, counted once for each of its records.
    pub(super) fn polled(&self, waited: Duration, records: u64) {
        self.lock().poll.record_many(waited, records);
    }

    /// Exchanges the records for `spare`, which is empty.
    fn exchange(&self, spare: &mut Box<Taken>) {
        std::mem::swap(&mut *self.lock(), spare);
        spare.counts.sent += self.sent.swap(0, Ordering::Relaxed);
    }
}

/// The records of one poll.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) catch_up: bool,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) from_the_future: u64,
    pub(super) latencies: &'a [Duration],
}

/// All meters of one load.
#[derive(Debug, Default)]
pub(super) struct Meters {
    meters: [Meter; METERS],
    spare: Mutex<Box<Taken>>,
}

impl Meters {
    /// The meter of the client with this number.
    pub(super) fn of(&self, number: usize) -> &Meter {
        &self.meters[number % METERS]
    }

    /// Everything since the last time.
    pub(super) fn take(&self) -> Taken {
        let mut taken = Taken::default();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        for meter in &self.meters {
            meter.exchange(&mut spare);
            taken.merge(&spare);
            spare.clear();
        }
        taken
    }
}

/// The meter of a sending thread.
#[derive(Clone, Debug)]
pub(super) struct SenderMeter {
    pub(super) meters: Arc<Meters>,
    /// Number of the thread's first producer.
    pub(super) at: usize,
}

impl SenderMeter {
    fn meter(&self) -> &Meter {
        self.meters.of(self.at)
    }
}

impl crate::load::meter::Meter<ClientError> for SenderMeter {
    fn sent(&self, _: &Sent) {
        self.meter().sent();
    }

    fn decided<'a>(&self, sent: impl ExactSizeIterator<Item = &'a Sent>, outcome: Result<(), &ClientError>) {
        self.meter().decided(sent, outcome);
    }

    fn refused(&self, sent: &Sent, error: ClientError) {
        self.meter().decided(std::iter::once(sent), Err(error));
    }

    fn overdue(&self, waited: impl Iterator<Item = (Duration, u64)>) {
        self.meter().overdue(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_figures_are_taken_once() {
        let meters = Meters::default();
        let now = Instant::now();
        let sent = |latency: Duration| {
            let due = now.checked_sub(latency).expect("it runs longer than that");
            Sent { number: 0, due: Some(due), begun: due + Duration::from_micros(3), bytes: 100 }
        };
        for number in 0..10 {
            meters.of(number).sent();
            meters.of(number).sent();
            meters.of(number).decided([sent(Duration::from_millis(2)); 2].iter(), Ok::<_, String>(()));
        }
        meters.of(1).decided([sent(Duration::from_secs(9))].iter(), Err("first"));
        meters.of(1).decided([sent(Duration::from_secs(9))].iter(), Err("second"));
        let latencies = [Duration::from_millis(1); 2];
        let batch =
            Received { catch_up: false, records: 2, bytes: 30, from_the_future: 1, latencies: &latencies };
        meters.of(3).received(&batch);
        meters.of(3).received(&Received { catch_up: true, latencies: &[], ..batch });
        meters.of(3).polled(Duration::from_millis(5), 4);
        let taken = meters.take();
        let counts = taken.counts;
        assert_eq!((counts.sent, counts.acked, counts.acked_bytes, counts.failed), (20, 20, 2000, 2));
        assert_eq!((counts.received, counts.caught_up, counts.from_the_future), (2, 2, 2));
        assert_eq!(
            (taken.publish.count(), taken.delay.count(), taken.delay.min_us(), taken.end_to_end.count()),
            (22, 22, 3, 2)
        );
        let max_us = taken.publish.max_us();
        assert!((9_000_000..19_000_000).contains(&max_us), "{max_us} us");
        assert_eq!((taken.undelivered.count(), taken.undelivered.max_us()), (2, max_us));
        assert_eq!((taken.poll.count(), taken.poll.max_us()), (4, 5000));
        assert_eq!(taken.error.as_deref(), Some("first"));
        let again = meters.take();
        assert_eq!(again.counts, Counts::default());
        assert!(
            again.publish.is_empty()
                && again.undelivered.is_empty()
                && again.poll.is_empty()
                && again.error.is_none()
        );
    }

    #[test]
    fn unsent_records_count_with_their_wait() {
        let meters = Meters::default();
        meters
            .of(0)
            .overdue([(1, 1), (2, 4), (3, 1)].map(|(s, count)| (Duration::from_secs(s), count)).into_iter());
        let taken = meters.take();
        assert_eq!(taken.counts.overdue, 6);
        for latencies in [&taken.publish, &taken.delay, &taken.undelivered] {
            assert_eq!((latencies.count(), latencies.max_us()), (6, 3_000_000));
        }
    }
}
