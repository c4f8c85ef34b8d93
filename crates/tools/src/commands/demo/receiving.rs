//! The demo's readers: a group of three, each a task with connections of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use riverrun_client::{
    ClusterOptions, Consumer, ConsumerOptions, ConsumerRecord, GroupProtocol, OffsetReset,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::checks::{Arrival, Seen};
use super::flights::Flights;
use super::sending::{DueTimes, ROW_HEADER};
use super::{GROUP, MEMBERS, PATIENCE, TOPIC};
use crate::exit::{Exit, Failure};

const POLL: Duration = Duration::from_millis(100);
/// How long readers go on when everything has arrived, in case something arrives twice.
const AFTERTIME: Duration = Duration::from_millis(300);

/// State that the readers share.
struct Shared {
    flights: Arc<Flights>,
    due_times: Arc<DueTimes>,
    arrived: AtomicUsize,
    /// Partitions that each member has.
    assigned: [AtomicUsize; MEMBERS],
}

/// A running group.
pub(super) struct Readers {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<(usize, Seen), Failure>>,
    stop: watch::Sender<bool>,
}

impl Readers {
    /// Starts the group, and waits until its members have shared all partitions among them.
    pub(super) async fn start(
        cluster: &ClusterOptions,
        flights: &Arc<Flights>,
        due_times: &Arc<DueTimes>,
        partitions: i32,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            flights: Arc::clone(flights),
            due_times: Arc::clone(due_times),
            arrived: AtomicUsize::new(0),
            assigned: std::array::from_fn(|_| AtomicUsize::new(0)),
        });
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for member in 0..MEMBERS {
            tasks.spawn(read(member, cluster.clone(), Arc::clone(&shared), stopping.clone()));
        }
        let mut readers = Self { shared, tasks, stop };
        let partitions = usize::try_from(partitions).unwrap_or(0);
        if !readers.wait(|shared| shared.has_shared(partitions)).await? {
            return Err(Failure::new(Exit::Unreachable, "the group did not come together"));
        }
        Ok(readers)
    }

    /// Waits until every row has arrived, or nothing more does, and ends the group. What is missing then is for the
    /// checks to say.
    pub(super) async fn finish(mut self) -> Result<Vec<Seen>, Failure> {
        let rows = self.shared.due_times.rows();
        self.wait(|shared| shared.arrived.load(Ordering::Relaxed) >= rows).await?;
        tokio::time::sleep(AFTERTIME).await;
        self.stop.send_replace(true);
        let mut seen = vec![Seen::default(); MEMBERS];
        while let Some(ended) = self.tasks.join_next().await {
            let (member, what) = ended.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
            seen[member] = what;
        }
        Ok(seen)
    }

    /// Waits until `done`, as long as something arrives at least every [`PATIENCE`]. Answers whether it is done, and
    /// fails if a reader does.
    async fn wait(&mut self, done: impl Fn(&Shared) -> bool) -> Result<bool, Failure> {
        let mut progress = (usize::MAX, Instant::now());
        while !done(&self.shared) {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => {
                    ended.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
                }
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
            let arrived = self.shared.arrived.load(Ordering::Relaxed);
            if arrived != progress.0 {
                progress = (arrived, Instant::now());
            } else if progress.1.elapsed() > PATIENCE {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Shared {
    /// Whether all partitions are shared, and nobody is left without if there are enough.
    fn has_shared(&self, partitions: usize) -> bool {
        let counts = self.assigned.each_ref().map(|count| count.load(Ordering::Relaxed));
        let readers = counts.iter().filter(|count| **count > 0).count();
        counts.iter().sum::<usize>() == partitions && readers == MEMBERS.min(partitions)
    }

    fn arrive(&self, seen: &mut Seen, record: &ConsumerRecord, now_ns: u64) {
        let row = row_of(record);
        let flight = row.and_then(|row| self.flights.get(row));
        let is_unchanged = flight.is_some_and(|flight| {
            record.key.as_ref() == Some(&flight.carrier) && record.value.as_ref() == Some(&flight.row)
        });
        if let Some(row) = row {
            match self.due_times.latency_ns(row, now_ns) {
                Some(latency_ns) => seen.latencies_ns.push(latency_ns),
                None => seen.last_fast_ns = now_ns,
            }
        }
        seen.arrivals.push(Arrival { row, partition: record.partition, is_unchanged });
    }
}

fn row_of(record: &ConsumerRecord) -> Option<usize> {
    let (_, value) = record.headers.iter().find(|(name, _)| name == ROW_HEADER)?;
    std::str::from_utf8(value.as_ref()?).ok()?.parse().ok()
}

/// One member, until the demo stops it.
async fn read(
    member: usize,
    cluster: ClusterOptions,
    shared: Arc<Shared>,
    stopping: watch::Receiver<bool>,
) -> Result<(usize, Seen), Failure> {
    let mut consumer = Consumer::new(ConsumerOptions {
        group: Some(GROUP.to_owned()),
        group_protocol: GroupProtocol::Consumer,
        offset_reset: OffsetReset::Earliest,
        ..ConsumerOptions::new(cluster)
    })
    .await?;
    consumer.subscribe(&[TOPIC.to_owned()]).await?;
    let mut seen = Seen::default();
    while !*stopping.borrow() {
        let records = consumer.poll(POLL).await?;
        let now_ns = shared.due_times.now_ns();
        for record in &records {
            shared.arrive(&mut seen, record, now_ns);
        }
        shared.arrived.fetch_add(records.len(), Ordering::Relaxed);
        shared.assigned[member].store(consumer.assignment().len(), Ordering::Relaxed);
    }
    consumer.commit().await?;
    consumer.close().await?;
    Ok((member, seen))
}
