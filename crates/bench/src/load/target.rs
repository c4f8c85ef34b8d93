//! Targets that take records: the native client, or a test's double with known delays.

use std::future::Future as _;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, CompletedRecords, DeliveryListener, Producer, RecordRef};
use riverrun_types::TimestampMs;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::meter::{Meter, Sent};
use crate::plan::ProducerPlan;

/// A sender that waits for acks checks this often whether the next record is still wanted.
const WANTED_LOOK_EVERY: Duration = Duration::from_millis(100);

/// A record on its way to a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp: TimestampMs,
}

/// Takes records and reports their outcomes to a meter of its own.
pub(crate) trait Target {
    /// The reason why a record was refused, or not acked.
    type Error: Send + 'static;

    /// Waits until one more record may be unacked. False when the load is given up. `turn` counts the records of the
    /// sender.
    fn wait_for_room(&mut self, turn: u64) -> bool;

    /// Takes a record; may wait for the client's buffer. Unless it fails, the meter gets `sent` once, on the thread
    /// that learns the record's outcome.
    fn send(&mut self, turn: u64, record: &Outgoing<'_>, sent: Sent) -> Result<(), Self::Error>;
}

/// A producer and the places that its records go to in turn.
///
/// Invariants: the indexes of `turns`, of which there is at least one, are those of `topics`.
#[derive(Clone, Debug)]
pub struct Lane {
    producer: Arc<Producer>,
    topics: Vec<String>,
    /// Index of the topic, and the partition unless the partitioner chooses it.
    turns: Vec<(usize, Option<i32>)>,
    /// `None` if only the producer's own buffer bounds it.
    in_flight: Option<Arc<InFlight>>,
}

impl Lane {
    /// A lane to one topic.
    pub fn new(producer: Arc<Producer>, topic: &str) -> Self {
        Self { producer, topics: vec![topic.to_owned()], turns: vec![(0, None)], in_flight: None }
    }

    /// A lane of a plan, with at most `in_flight` unacked records.
    pub(crate) fn planned(producer: Arc<Producer>, plan: &ProducerPlan, in_flight: Option<u32>) -> Self {
        let in_flight = in_flight.map(|max| Arc::new(InFlight::new(max)));
        Self { producer, topics: plan.topics.clone(), turns: turns(plan), in_flight }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder is below a length")]
    fn place(&self, number: u64) -> (&str, Option<i32>) {
        let turn = if self.turns.len() == 1 { 0 } else { (number % self.turns.len() as u64) as usize };
        let (topic, partition) = self.turns[turn];
        (&self.topics[topic], partition)
    }
}

fn turns(plan: &ProducerPlan) -> Vec<(usize, Option<i32>)> {
    let Some(counts) = &plan.partitions_in_turn else {
        return (0..plan.topics.len()).map(|topic| (topic, None)).collect();
    };
    let of_topic = |(topic, count): (usize, &u32)| {
        (0..*count).map(move |index| (topic, Some(index.cast_signed()))).collect::<Vec<_>>()
    };
    counts.iter().enumerate().flat_map(of_topic).collect()
}

/// Bounds the unacked records.
#[derive(Debug)]
struct InFlight {
    count: Mutex<u32>,
    less: Condvar,
    max: u32,
}

impl InFlight {
    fn new(max: u32) -> Self {
        Self { count: Mutex::new(0), less: Condvar::new(), max }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more; false if the load is given up.
    fn enter(&self, wanted: &watch::Receiver<()>) -> bool {
        let mut count = self.lock();
        while *count >= self.max {
            if is_abandoned(wanted) {
                return false;
            }
            let woken = self.less.wait_timeout(count, WANTED_LOOK_EVERY);
            count = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        *count += 1;
        true
    }

    fn leave(&self, count: usize) {
        *self.lock() -= u32::try_from(count).unwrap_or(u32::MAX);
        // At most one sender waits: lanes are not shared.
        self.less.notify_one();
    }
}

/// Reports the outcomes of a lane's records to the meter.
#[derive(Debug)]
struct LaneMeter<M> {
    meter: M,
    in_flight: Option<Arc<InFlight>>,
}

impl<M: Meter<ClientError>> DeliveryListener for LaneMeter<M> {
    type Tag = Sent;

    fn completed(&self, records: &CompletedRecords<'_, Sent>) {
        self.meter.decided(records.tags(), records.result());
        if let Some(in_flight) = &self.in_flight {
            in_flight.leave(records.tags().len());
        }
    }
}

/// Sends over lanes, one after the other.
///
/// Invariants: there is at least one lane.
#[derive(Debug)]
pub(crate) struct Lanes<M> {
    runtime: Handle,
    all: Vec<(Lane, Arc<LaneMeter<M>>)>,
    /// Changed, or closed, when the load is given up: then the sender stops waiting for room.
    wanted: watch::Receiver<()>,
}

impl<M> Lanes<M> {
    /// A target of these lanes, at least one, for a thread outside the runtime. `meter` gets the outcomes of the
    /// records.
    pub(crate) fn new(
        runtime: Handle,
        lanes: Vec<Lane>,
        wanted: watch::Receiver<()>,
        meter: impl Fn() -> M,
    ) -> Self {
        assert!(!lanes.is_empty(), "a sender without a lane");
        let metered = |lane: Lane| {
            let in_flight = lane.in_flight.clone();
            (lane, Arc::new(LaneMeter { meter: meter(), in_flight }))
        };
        Self { runtime, all: lanes.into_iter().map(metered).collect(), wanted }
    }

    /// The lane of a turn, and how many turns it had before.
    #[expect(clippy::cast_possible_truncation, reason = "a remainder is below a length")]
    fn of(&self, turn: u64) -> (&(Lane, Arc<LaneMeter<M>>), u64) {
        if let [only] = &*self.all {
            return (only, turn);
        }
        let count = self.all.len() as u64;
        (&self.all[(turn % count) as usize], turn / count)
    }
}

impl<M: Meter<ClientError>> Target for Lanes<M> {
    type Error = ClientError;

    fn wait_for_room(&mut self, turn: u64) -> bool {
        let in_flight = &self.of(turn).0.0.in_flight;
        in_flight.as_ref().is_none_or(|in_flight| in_flight.enter(&self.wanted))
    }

    fn send(&mut self, turn: u64, record: &Outgoing<'_>, sent: Sent) -> Result<(), ClientError> {
        let ((lane, meter), number) = self.of(turn);
        let (topic, partition) = lane.place(number);
        let &Outgoing { key, value, timestamp } = record;
        let record = RecordRef { topic, partition, key, value, headers: &[], timestamp: Some(timestamp) };
        let begun = sent.begun;
        let mut sending = pin!(lane.producer.send_tagged(&record, sent, meter));
        // Nearly always there is room at once, so that the thread need not sleep.
        let taken = match sending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => taken,
            Poll::Pending => self.runtime.block_on(unless_abandoned(sending, self.wanted.clone(), begun)),
        };
        if let (Err(_), Some(in_flight)) = (&taken, &lane.in_flight) {
            in_flight.leave(1);
        }
        taken
    }
}

/// The outcome of `sending`, or its end when the load is given up.
async fn unless_abandoned(
    sending: impl Future<Output = Result<(), ClientError>>,
    mut wanted: watch::Receiver<()>,
    begun: Instant,
) -> Result<(), ClientError> {
    tokio::select! {
        taken = sending => taken,
        _ = wanted.changed() => {
            let (after, what) = (begun.elapsed(), "the load was given up".to_owned());
            Err(ClientError::Blocked { after, what, last: None })
        }
    }
}

/// Whether the load was given up, or is gone.
fn is_abandoned(wanted: &watch::Receiver<()>) -> bool {
    wanted.has_changed().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wait_for_room_ends_with_its_load() {
        let (load, wanted) = watch::channel(());
        drop(load);
        assert!(is_abandoned(&wanted));
        let outcome = unless_abandoned(std::future::pending(), wanted, Instant::now()).await;
        assert!(matches!(outcome, Err(ClientError::Blocked { .. })));
        let (load, wanted) = watch::channel(());
        load.send_replace(());
        assert!(is_abandoned(&wanted));
        let outcome = unless_abandoned(std::future::pending(), wanted, Instant::now()).await;
        assert!(matches!(outcome, Err(ClientError::Blocked { .. })));
        let (_load, wanted) = watch::channel(());
        assert!(!is_abandoned(&wanted));
        assert!(unless_abandoned(std::future::ready(Ok(())), wanted, Instant::now()).await.is_ok());
    }

    #[test]
    fn records_go_to_topics_or_partitions_in_turn() {
        let topics = vec!["a".to_owned(), "b".to_owned()];
        let by_partitioner = turns(&ProducerPlan { topics: topics.clone(), partitions_in_turn: None });
        assert_eq!(by_partitioner, [(0, None), (1, None)]);
        let in_turn = turns(&ProducerPlan { topics, partitions_in_turn: Some(vec![2, 1]) });
        assert_eq!(in_turn, [(0, Some(0)), (0, Some(1)), (1, Some(0))]);
    }

    #[test]
    fn records_in_flight_are_bounded() {
        let in_flight = Arc::new(InFlight::new(2));
        let (load, wanted) = watch::channel(());
        assert!(in_flight.enter(&wanted) && in_flight.enter(&wanted));
        let enter = || {
            let (waiting, wanted) = (Arc::clone(&in_flight), wanted.clone());
            std::thread::spawn(move || waiting.enter(&wanted))
        };
        let third = enter();
        std::thread::sleep(Duration::from_millis(30));
        assert!(!third.is_finished());
        in_flight.leave(1);
        assert!(third.join().expect("it got its turn"));
        assert_eq!(*in_flight.lock(), 2);
        // Missing acks block no sender once the load is given up.
        let fourth = enter();
        std::thread::sleep(Duration::from_millis(30));
        assert!(!fourth.is_finished());
        load.send_replace(());
        let deadline = Instant::now() + Duration::from_secs(30);
        while !fourth.is_finished() {
            assert!(Instant::now() < deadline, "it waits for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!fourth.join().expect("it ended"));
        assert_eq!(*in_flight.lock(), 2);
    }
}
