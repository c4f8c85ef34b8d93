//! The demo's producer: first as fast as it goes, then at a fixed pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use riverrun_client::{ClientError, ClusterOptions, Delivery, Producer, ProducerOptions, ProducerRecord};
use riverrun_measure::pacing::{Rate, Schedule, sharpen_sleep, sleep_until};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::TOPIC;
use super::flights::{Flight, Flights};
use super::report::Report;
use crate::exit::{Exit, Failure};

/// Header that says which row of the file a record is.
pub(super) const ROW_HEADER: &str = "row";
/// Rows in the paced part at most, and its pace: together two seconds.
const PACED_ROWS_MAX: usize = 10_000;
pub(super) const PACED_ROWS_PER_SECOND: u32 = 5_000;
/// One row in so many goes into the paced part, if that is not more than its most.
const PACED_SHARE: usize = 6;
/// Records of the paced part that may wait for the task that watches acks.
const WATCHED_MAX: usize = PACED_ROWS_MAX;

/// When each row was due, shared with the readers.
pub(super) struct DueTimes {
    origin: Instant,
    due_ns: Vec<AtomicU64>,
    fast_rows: usize,
}

impl DueTimes {
    pub(super) fn new(rows: usize) -> Self {
        let due_ns = (0..rows).map(|_| AtomicU64::new(0)).collect();
        Self { origin: Instant::now(), due_ns, fast_rows: rows - PACED_ROWS_MAX.min(rows / PACED_SHARE) }
    }

    /// Rows that are sent as fast as it goes; the others are paced.
    pub(super) fn fast_rows(&self) -> usize {
        self.fast_rows
    }

    pub(super) fn rows(&self) -> usize {
        self.due_ns.len()
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn set_due(&self, row: usize, due: Instant) {
        let due = due.saturating_duration_since(self.origin).as_nanos();
        // SYNC: due. Read by `latency_ns` after the row has gone through two sockets.
        self.due_ns[row].store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Nanoseconds since a paced row was due; none for a row of the fast part.
    pub(super) fn latency_ns(&self, row: usize, now_ns: u64) -> Option<u64> {
        if row < self.fast_rows {
            return None;
        }
        // SYNC: due. Written by `set_due` before the row was sent.
        Some(now_ns.saturating_sub(self.due_ns.get(row)?.load(Ordering::Acquire)))
    }
}

/// The outcome of sending.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) acked: usize,
    /// The fast part, from its first row to its last ack.
    pub(super) fast_time: Duration,
    /// When the fast part began, since the origin of the due times.
    pub(super) fast_begun_ns: u64,
    pub(super) fast_rows: usize,
    pub(super) fast_bytes: u64,
    /// Nanoseconds from when a paced row was due to its ack.
    pub(super) latencies_ns: Vec<u64>,
}

/// Sends everything, and waits for every ack.
pub(super) async fn send(
    cluster: &ClusterOptions,
    flights: &Arc<Flights>,
    due_times: &Arc<DueTimes>,
    report: &mut Report,
) -> Result<Sent, Failure> {
    let mut sent = Sent { fast_rows: due_times.fast_rows(), ..Sent::default() };
    sent.fast_bytes = flights.bytes(sent.fast_rows);
    send_fast(cluster, flights, due_times, &mut sent).await?;
    report.sent_fast(&sent)?;
    send_paced(cluster, flights, due_times, &mut sent).await?;
    Ok(sent)
}

async fn send_fast(
    cluster: &ClusterOptions,
    flights: &Flights,
    due_times: &DueTimes,
    sent: &mut Sent,
) -> Result<(), Failure> {
    let producer = Producer::new(ProducerOptions::new(cluster.clone())).await?;
    let begun = Instant::now();
    sent.fast_begun_ns = due_times.now_ns();
    let mut deliveries = Vec::with_capacity(sent.fast_rows);
    for (row, flight) in flights.rows().iter().take(sent.fast_rows).enumerate() {
        deliveries.push(producer.send(record(row, flight)).await?);
    }
    producer.flush().await;
    for delivery in deliveries {
        delivery.await?;
        sent.acked += 1;
    }
    sent.fast_time = begun.elapsed();
    producer.close().await;
    Ok(())
}

async fn send_paced(
    cluster: &ClusterOptions,
    flights: &Arc<Flights>,
    due_times: &Arc<DueTimes>,
    sent: &mut Sent,
) -> Result<(), Failure> {
    // Without linger: what is measured is the way, not the waiting for company.
    let options = ProducerOptions { linger: Duration::ZERO, ..ProducerOptions::new(cluster.clone()) };
    let producer = Arc::new(Producer::new(options).await?);
    let (hand_over, deliveries) = mpsc::channel(WATCHED_MAX);
    let watcher = tokio::spawn(watch_acks(Arc::clone(due_times), deliveries));
    let pacer = {
        let (producer, flights, due_times) =
            (Arc::clone(&producer), Arc::clone(flights), Arc::clone(due_times));
        let runtime = Handle::current();
        move || pace(&runtime, &producer, &flights, &due_times, &hand_over)
    };
    let died = |error: tokio::task::JoinError| Failure::new(Exit::Failed, error.to_string());
    tokio::task::spawn_blocking(pacer).await.map_err(died)??;
    sent.latencies_ns = watcher.await.map_err(died)??;
    sent.acked += sent.latencies_ns.len();
    producer.close().await;
    Ok(())
}

/// Sends each row when it is due. On a thread of its own: the runtime's timer knows only whole milliseconds, which
/// would be most of what is measured.
fn pace(
    runtime: &Handle,
    producer: &Producer,
    flights: &Flights,
    due_times: &DueTimes,
    hand_over: &mpsc::Sender<(usize, Delivery)>,
) -> Result<(), ClientError> {
    sharpen_sleep();
    let schedule = Schedule::new(Instant::now(), Rate::per_second(PACED_ROWS_PER_SECOND.into()));
    let due = (0..).map_while(|number| schedule.due(number));
    let rows = flights.rows().iter().enumerate().skip(due_times.fast_rows());
    for ((row, flight), due) in rows.zip(due) {
        sleep_until(due);
        due_times.set_due(row, due);
        let delivery = runtime.block_on(producer.send(record(row, flight)))?;
        // The watcher ends early only with an error, for which it is asked afterwards.
        if hand_over.blocking_send((row, delivery)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Notes when each ack arrives, in whatever order they do.
async fn watch_acks(
    due_times: Arc<DueTimes>,
    mut deliveries: mpsc::Receiver<(usize, Delivery)>,
) -> Result<Vec<u64>, ClientError> {
    let mut open = FuturesUnordered::new();
    let mut latencies_ns = Vec::with_capacity(PACED_ROWS_MAX);
    loop {
        tokio::select! {
            Some((row, result)) = open.next(), if !open.is_empty() => {
                result?;
                latencies_ns.extend(due_times.latency_ns(row, due_times.now_ns()));
            }
            delivery = deliveries.recv() => match delivery {
                Some((row, delivery)) => open.push(async move { (row, delivery.await) }),
                None if open.is_empty() => return Ok(latencies_ns),
                None => {}
            }
        }
    }
}

fn record(row: usize, flight: &Flight) -> ProducerRecord {
    ProducerRecord {
        topic: TOPIC.to_owned(),
        key: Some(flight.carrier.clone()),
        value: Some(flight.row.clone()),
        headers: vec![(ROW_HEADER.to_owned(), Some(Bytes::from(row.to_string())))],
        ..ProducerRecord::default()
    }
}
