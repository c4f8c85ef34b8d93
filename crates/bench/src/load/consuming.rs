//! Consumers of one group that read as fast as records come, and the handle on them.
//!
//! Each consumer is a task of its own. Its records are counted and dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverrun_client::{ClientError, Consumer, ConsumerOptions, ConsumerRecord};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::LoadError;
use super::figures::ReadInterval;

/// Longest wait of a poll, after which the consumer checks whether to stop.
const POLL_TIME: Duration = Duration::from_millis(100);
/// The same while the consumer has no partitions, so that the time of the assignment is measured closely.
const POLL_TIME_UNASSIGNED: Duration = Duration::from_millis(2);

/// Consumers to run.
#[derive(Clone, Debug)]
pub struct ConsumeLoad {
    /// Options of each consumer, the group's name included.
    pub options: ConsumerOptions,
    /// Number of consumers.
    pub consumers: usize,
    /// The topics that the consumers share.
    pub topics: Vec<String>,
    /// Records over all consumers after which they stop. A consumer counts its last poll whole.
    pub records: u64,
}

#[derive(Debug)]
struct Control {
    stop: AtomicBool,
    /// Records still to read.
    left: AtomicU64,
    /// When all records were read.
    done: OnceLock<Instant>,
}

/// State that one consumer shares with its [`ConsumeRun`].
#[derive(Debug, Default)]
struct Shared {
    interval: Mutex<ReadInterval>,
    assigned: OnceLock<Instant>,
}

/// Running consumers. They go on if it is dropped; see [`stop`](Self::stop).
///
/// Invariants: one of `shared` for each consumer.
#[derive(Debug)]
pub struct ConsumeRun {
    tasks: Vec<JoinHandle<Result<(), ClientError>>>,
    shared: Vec<Arc<Shared>>,
    control: Arc<Control>,
    started: Instant,
}

impl ConsumeLoad {
    /// Starts the consumers on `runtime`.
    pub fn start(self, runtime: &Handle) -> ConsumeRun {
        let left = AtomicU64::new(self.records);
        let control = Arc::new(Control { stop: AtomicBool::new(false), left, done: OnceLock::new() });
        let mut run = ConsumeRun { tasks: Vec::new(), shared: Vec::new(), control, started: Instant::now() };
        for _ in 0..self.consumers {
            let shared = Arc::new(Shared::default());
            let reading = Reading { control: Arc::clone(&run.control), shared: Arc::clone(&shared) };
            run.tasks.push(runtime.spawn(reading.run(self.options.clone(), self.topics.clone())));
            run.shared.push(shared);
        }
        run
    }
}

impl ConsumeRun {
    /// When the consumers were started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When a consumer of the group first got partitions.
    pub fn assigned(&self) -> Option<Instant> {
        self.shared.iter().filter_map(|shared| shared.assigned.get().copied()).min()
    }

    /// Records read since the last call, by each consumer.
    pub fn take(&self) -> Vec<ReadInterval> {
        let take = |shared: &Arc<Shared>| {
            std::mem::take(&mut *shared.interval.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.shared.iter().map(take).collect()
    }

    /// Asks the consumers to end.
    pub fn stop(&self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }

    /// When the consumers had read the records of their load; `None` before.
    pub fn done(&self) -> Option<Instant> {
        self.control.done.get().copied()
    }

    /// Whether a consumer has ended; before the end of all, only an error ends one.
    pub fn has_ended(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the consumers have left their group. Afterwards, [`take`](Self::take) has the rest.
    pub async fn join(&mut self) -> Result<(), LoadError> {
        let mut outcome = Ok(());
        for task in self.tasks.drain(..) {
            let ended = task.await.map_err(|_| LoadError::Broken);
            outcome = outcome.and(ended.and_then(|ended| ended.map_err(LoadError::from)));
        }
        outcome
    }
}

struct Reading {
    control: Arc<Control>,
    shared: Arc<Shared>,
}

impl Reading {
    async fn run(self, options: ConsumerOptions, topics: Vec<String>) -> Result<(), ClientError> {
        let mut consumer = Consumer::new(options).await?;
        consumer.subscribe(&topics).await?;
        let outcome = self.read(&mut consumer).await;
        if outcome.is_err() {
            // The figures of the others would be those of another load.
            self.control.stop.store(true, Ordering::Relaxed);
        }
        outcome.and(consumer.close().await)
    }

    async fn read(&self, consumer: &mut Consumer) -> Result<(), ClientError> {
        while !self.control.stop.load(Ordering::Relaxed) && self.control.left.load(Ordering::Relaxed) > 0 {
            let unassigned = self.shared.assigned.get().is_none();
            let records = consumer.poll(if unassigned { POLL_TIME_UNASSIGNED } else { POLL_TIME }).await?;
            if unassigned && !(records.is_empty() && consumer.assignment().is_empty()) {
                self.shared.assigned.get_or_init(Instant::now);
            }
            if !records.is_empty() {
                self.count(&records);
            }
        }
        Ok(())
    }

    fn count(&self, records: &[ConsumerRecord]) {
        let len = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len) as u64;
        let bytes: u64 = records.iter().map(|record| len(&record.key) + len(&record.value)).sum();
        let count = records.len() as u64;
        let mut interval = self.shared.interval.lock().unwrap_or_else(PoisonError::into_inner);
        interval.bytes += bytes;
        interval.records += count;
        drop(interval);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let before = self.control.left.fetch_update(set, get, |left| Some(left.saturating_sub(count)));
        // Cannot fail: the closure always returns `Some`.
        if before.is_ok_and(|left| left <= count) {
            self.control.done.get_or_init(Instant::now);
        }
    }
}
