//! Threads that send records when they are due.
//!
//! Guarantees that a record's latency counts from its time in the schedule, whatever kept the thread from sending it
//! then: a full buffer, a server that stalls, or the records before it. Records whose time came before the producers
//! were stopped and that were never handed over count with the time that they have waited.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverrun_client::{ClientError, Producer, RecordMetadata, RecordRef};
use riverrun_types::TimestampMs;
use tokio::runtime::Handle;

use super::clock::{STAMP_BYTES, StampClock, write_stamp};
use super::meter::{Meter, Meters};
use super::orders::{Orders, Produce};
use crate::pacing::{Rate, Schedule, sharpen_sleep, sleep_until};
use crate::plan::{KeySource, ProducerPlan, Stamp, ValueSource};

/// A thread looks for new orders at least this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Records between two looks while the thread does not sleep.
const RECORDS_PER_LOOK: u64 = 64;

/// Where the records of one producer go, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    topics: Vec<String>,
    /// Index of the topic, and the partition unless the partitioner chooses it.
    turns: Vec<(usize, Option<i32>)>,
}

impl Targets {
    pub(super) fn new(plan: &ProducerPlan) -> Self {
        let turns = match &plan.partitions_in_turn {
            None => (0..plan.topics.len()).map(|topic| (topic, None)).collect(),
            Some(counts) => counts
                .iter()
                .enumerate()
                .flat_map(|(topic, count)| (0..*count).map(move |index| (topic, Some(index.cast_signed()))))
                .collect(),
        };
        Self { topics: plan.topics.clone(), turns }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder is below a length")]
    fn of(&self, number: u64) -> (&str, Option<i32>) {
        let (topic, partition) = self.turns[(number % self.turns.len() as u64) as usize];
        (&self.topics[topic], partition)
    }
}

/// Bounds the records that are not acked yet.
#[derive(Debug)]
pub(super) struct InFlight {
    count: Mutex<u32>,
    less: Condvar,
    max: u32,
}

impl InFlight {
    pub(super) fn new(max: u32) -> Self {
        Self { count: Mutex::new(0), less: Condvar::new(), max }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) {
        let count = self.lock();
        let full = |count: &mut u32| *count >= self.max;
        *self.less.wait_while(count, full).unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn leave(&self) {
        *self.lock() -= 1;
        self.less.notify_one();
    }
}

/// One producer of a thread.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) producer: Arc<Producer>,
    pub(super) targets: Targets,
    /// None where only the producer's own buffer bounds it.
    pub(super) in_flight: Option<Arc<InFlight>>,
}

/// A thread that sends for one producer, or for several in turn.
#[derive(Debug)]
pub(super) struct ProducerThread {
    pub(super) senders: Vec<Sender>,
    /// Number of its first producer among those of all workers, and how many those are.
    pub(super) first: usize,
    pub(super) total: usize,
    pub(super) keys: KeySource,
    pub(super) values: ValueSource,
    pub(super) stamp: Stamp,
    pub(super) clock: StampClock,
    pub(super) meters: Arc<Meters>,
    pub(super) orders: Arc<Orders>,
    pub(super) runtime: Handle,
    /// Bytes of the value that is being sent, where a time is written over it.
    pub(super) scratch: Vec<u8>,
    /// Records sent so far.
    pub(super) number: u64,
}

impl ProducerThread {
    /// Does as ordered until it is to end.
    pub(super) fn run(mut self) {
        sharpen_sleep();
        let runtime = self.runtime.clone();
        let _entered = runtime.enter();
        let mut seen = 0;
        while let Some((generation, produce)) = self.orders.wait(seen) {
            seen = generation;
            if let Some(produce) = produce {
                self.follow(&produce, generation);
            }
        }
    }

    /// Sends until there are other orders, or as many as there should be.
    fn follow(&mut self, produce: &Produce, generation: u64) {
        let schedule = self.schedule(produce);
        let quota = produce.quota.map_or(u64::MAX, |quota| self.share_of(quota));
        let mut sent = 0;
        while sent < quota && self.is_current(generation, sent) {
            match schedule.due(sent) {
                None => self.send(None),
                Some(due) => {
                    if !self.wait_for(due, generation) {
                        break;
                    }
                    self.send(Some(due));
                }
            }
            sent += 1;
        }
        if schedule.is_paced() && self.orders.ends_producing(generation) {
            self.meter().overdue(overdue(&schedule, sent, quota, Instant::now()));
        }
    }

    fn is_current(&self, generation: u64, sent: u64) -> bool {
        !sent.is_multiple_of(RECORDS_PER_LOOK) || self.orders.is_current(generation)
    }

    /// Sleeps until then; false if there were other orders meanwhile.
    fn wait_for(&self, due: Instant, generation: u64) -> bool {
        loop {
            let now = Instant::now();
            if due <= now + LOOK_EVERY {
                sleep_until(due);
                return true;
            }
            sleep_until(now + LOOK_EVERY);
            if !self.orders.is_current(generation) {
                return false;
            }
        }
    }

    /// This thread's part of the schedule: producers that share a rate interleave.
    fn schedule(&self, produce: &Produce) -> Schedule {
        let Some(rate) = produce.rate.and_then(Rate::per_second) else {
            return Schedule::new(produce.start, None);
        };
        let own = rate.get() * self.senders.len() as f64 / self.total as f64;
        let offset = Duration::from_secs_f64(self.first as f64 / rate.get());
        Schedule::new(produce.start + offset, Rate::per_second(own))
    }

    /// This thread's part of a number of records: the first producers send one more where it does not come out even.
    fn share_of(&self, quota: u64) -> u64 {
        let total = self.total as u64;
        let extra_until = quota % total;
        let more = (self.first as u64..(self.first + self.senders.len()) as u64)
            .filter(|producer| *producer < extra_until)
            .count();
        quota / total * self.senders.len() as u64 + more as u64
    }

    fn meter(&self) -> &Meter {
        self.meters.of(self.first)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder is below a length")]
    fn send(&mut self, due: Option<Instant>) {
        let count = self.senders.len() as u64;
        let (turn, number) = ((self.number % count) as usize, self.number);
        self.number += 1;
        let among_all = among_all(number, count, (self.first as u64, self.total as u64));
        let (key, value) = (self.keys.next(among_all), self.values.next(among_all));
        if let Some(in_flight) = &self.senders[turn].in_flight {
            in_flight.enter();
        }
        let handed_over = Instant::now();
        // Without a schedule a record is due when there is room for it in flight, and not before.
        let delay = due.map(|due| handed_over.saturating_duration_since(due));
        let due = due.unwrap_or(handed_over);
        let timestamp = self.write_value(value.as_ref(), due);
        let sender = &self.senders[turn];
        let (topic, partition) = sender.targets.of(number / count);
        let record = RecordRef {
            topic,
            partition,
            key: key.as_deref(),
            value: value
                .as_deref()
                .map(|value| if self.stamp == Stamp::Value { &self.scratch } else { value }),
            headers: &[],
            timestamp,
        };
        self.hand_over(sender, &record, due);
        self.meter().sent(delay);
    }

    /// Writes the time at which the record is due over a copy of its value. If that is too short, the record's
    /// timestamp has to tell it, in milliseconds.
    fn write_value(&mut self, value: Option<&Bytes>, due: Instant) -> Option<TimestampMs> {
        if self.stamp != Stamp::Value {
            return None;
        }
        let due = self.clock.at(due);
        self.scratch.clear();
        self.scratch.extend_from_slice(value.map_or(&[], |value| value));
        write_stamp(&mut self.scratch, due);
        let due_ms = || TimestampMs(i64::try_from(due.as_millis()).unwrap_or(i64::MAX));
        (self.scratch.len() < STAMP_BYTES).then(due_ms)
    }

    fn hand_over(&self, sender: &Sender, record: &RecordRef<'_>, due: Instant) {
        let outcome = Outcome {
            meters: Arc::clone(&self.meters),
            meter: self.first,
            in_flight: sender.in_flight.clone(),
            due,
            bytes: record.value.map_or(0, <[u8]>::len),
        };
        let refused = outcome.clone();
        let mut sending = pin!(sender.producer.send_with(record, move |result| outcome.take(result)));
        // Nearly always there is room at once, and no need to put the thread to sleep.
        let sent = match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => self.runtime.block_on(sending),
        };
        if let Err(error) = sent {
            refused.take(Err(error));
        }
    }
}

/// The number among the records of all producers, of which there are `total`, of the one that a thread sends as its
/// `number`th for `own` of them in turn, from the `first` on. So no two senders have the same.
fn among_all(number: u64, own: u64, (first, total): (u64, u64)) -> u64 {
    number / own * total + first + number % own
}

/// How long the records from `sent` on have been due by now. None where the first is not late by more than it takes to
/// see an order: then the thread kept up.
fn overdue(schedule: &Schedule, sent: u64, quota: u64, now: Instant) -> impl Iterator<Item = Duration> {
    let late = move |number| Some(now.saturating_duration_since(schedule.due(number)?));
    let kept_up = late(sent).is_none_or(|late| late <= LOOK_EVERY);
    let end = if kept_up { sent } else { schedule.due_count(now).min(quota) };
    (sent..end).filter_map(late)
}

/// What is to be done when it is known what became of a record.
#[derive(Clone)]
struct Outcome {
    meters: Arc<Meters>,
    meter: usize,
    in_flight: Option<Arc<InFlight>>,
    due: Instant,
    bytes: usize,
}

impl Outcome {
    fn take(self, result: Result<RecordMetadata, ClientError>) {
        let (meter, latency) = (self.meters.of(self.meter), self.due.elapsed());
        match result {
            Ok(_) => meter.acked(latency, self.bytes),
            Err(error) => meter.failed(latency, error.to_string()),
        }
        if let Some(in_flight) = self.in_flight {
            in_flight.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_to_topics_in_turn_or_to_their_partitions() {
        let topics = vec!["a".to_owned(), "b".to_owned()];
        let by_partitioner = Targets::new(&ProducerPlan { topics: topics.clone(), partitions_in_turn: None });
        let found: Vec<_> = (0..3).map(|number| by_partitioner.of(number)).collect();
        assert_eq!(found, [("a", None), ("b", None), ("a", None)]);
        let in_turn = Targets::new(&ProducerPlan { topics, partitions_in_turn: Some(vec![2, 1]) });
        let found: Vec<_> = (0..4).map(|number| in_turn.of(number)).collect();
        assert_eq!(found, [("a", Some(0)), ("a", Some(1)), ("b", Some(0)), ("a", Some(0))]);
    }

    #[test]
    fn senders_share_the_numbers_of_the_records() {
        let of = |own: u64, first: u64| (0..own * 3).map(move |number| among_all(number, own, (first, 5)));
        let mut all: Vec<_> = of(2, 0).chain(of(2, 2)).chain(of(1, 4)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn records_are_overdue_only_where_the_thread_did_not_keep_up() {
        let start = Instant::now();
        let schedule = Schedule::new(start, Rate::per_second(100.0));
        let now = start + Duration::from_millis(1005);
        let found = |sent, quota| overdue(&schedule, sent, quota, now).collect::<Vec<_>>();
        assert_eq!(found(100, u64::MAX), [], "the last was due 5 ms ago");
        let late = found(51, u64::MAX);
        assert_eq!(late.len(), 50);
        let first = late[0].as_millis();
        assert!((494..=496).contains(&first), "{first} ms");
        assert_eq!(found(51, 60).len(), 9, "no more than were to be sent");
        assert_eq!(found(51, 51), []);
    }

    #[test]
    fn no_more_records_are_in_flight_than_allowed() {
        let in_flight = Arc::new(InFlight::new(2));
        in_flight.enter();
        in_flight.enter();
        let waiting = Arc::clone(&in_flight);
        let third = std::thread::spawn(move || waiting.enter());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!third.is_finished());
        in_flight.leave();
        third.join().expect("it got its turn");
        assert_eq!(*in_flight.lock(), 2);
    }
}
