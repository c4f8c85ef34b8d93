//! The producer: records in, batches out, each record's offset back.
//!
//! Owns the way of a record from [`Producer::send`] to its [`Delivery`]: partitioner, accumulator, one sender task.
//! Guarantees, with idempotence, that the records of a partition arrive once and in the order in which they were
//! sent, retries included. Refuses records that are too large for any request.

mod accumulator;
mod batch;
mod delivery;
mod exchange;
mod listener;
mod looks;
mod metrics;
mod options;
mod partitioner;
mod queue;
mod record;
mod sender;
mod topics;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use riverrun_types::TimestampMs;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use self::accumulator::{Accumulator, Appended};
pub use self::delivery::Delivery;
use self::listener::{Callback, Enlist, Tagging};
pub use self::listener::{CompletedRecords, DeliveryListener};
use self::looks::{Looked, Looks};
pub use self::metrics::{ProducerMetrics, Tally};
pub use self::options::ProducerOptions;
pub use self::partitioner::{
    Choice, KeyedRoundRobin, Partitioner, PartitionerChoice, RoundRobin, Sticky, TopicPartitioner, TopicView,
    UniformSticky, partition_of_key,
};
pub use self::record::{ProducerRecord, RecordMetadata, RecordRef};
use self::sender::Sender;
use crate::cluster::{Cluster, TopicInfo, may_change};
use crate::error::ClientError;

/// Number for the next producer without a configured name.
static PRODUCERS: AtomicU64 = AtomicU64::new(1);

/// Sends records to topics. Shared by reference or `Arc`: all of its methods take `&self`.
///
/// Dropping it sends all buffered records in the background; [`close`](Self::close) waits for that, and
/// [`close_within`](Self::close_within) waits up to a limit.
///
/// ```no_run
/// use riverrun_client::{ClusterOptions, Producer, ProducerOptions, ProducerRecord};
///
/// # async fn example() -> Result<(), riverrun_client::ClientError> {
/// let producer = Producer::new(ProducerOptions::new(ClusterOptions::new("localhost:9092"))).await?;
/// let delivery = producer.send(ProducerRecord::new("clicks", "hello").with_key("me")).await?;
/// let placed = delivery.await?;
/// println!("{}-{} at {}", placed.topic, placed.partition, placed.offset);
/// producer.close().await;
/// # Ok(())
/// # }
/// ```
///
/// [`send`](Self::send) takes a record that owns its bytes and returns a future of its outcome;
/// [`send_ref`](Self::send_ref) borrows them. [`send_with`](Self::send_with) calls back instead, in the order of the
/// records of each partition (unless the sender task ends with its runtime). The sender task makes the call, so a
/// callback must not wait for room, a flush, a close or a [`Delivery`], which only that task can bring about. It may
/// use [`try_send`](Self::try_send). [`send_tagged`](Self::send_tagged) tells a listener of all records of a batch at
/// once, which at high rates costs the least. Threads outside of the runtime use
/// [`send_blocking`](Self::send_blocking); [`try_send`](Self::try_send) never waits.
///
/// Invariants: the sender task runs until the accumulator is closed and empty.
#[derive(Debug)]
pub struct Producer {
    cluster: Arc<Cluster>,
    options: Arc<ProducerOptions>,
    accumulator: Arc<Accumulator>,
    looks: Looks,
    runtime: Handle,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.accumulator.close();
    }
}

impl Producer {
    /// Connects to the cluster. Fails if the options contradict each other or no server can be reached.
    pub fn new(mut options: ProducerOptions) -> BoxFuture<'static, Result<Self, ClientError>> {
        Box::pin(async move {
            options.check()?;
            options.cluster.name_client(|| format!("producer-{}", PRODUCERS.fetch_add(1, Ordering::Relaxed)));
            let options = Arc::new(options);
            let cluster = Cluster::connect(options.cluster.clone()).await?;
            let accumulator = Arc::new(Accumulator::new(Arc::clone(&options)));
            let sender = Sender::new(Arc::clone(&cluster), Arc::clone(&options), Arc::clone(&accumulator));
            let sender = Mutex::new(Some(tokio::spawn(sender.run())));
            let looks = Looks::new(Arc::clone(&cluster));
            Ok(Self { cluster, options, accumulator, looks, runtime: Handle::current(), sender })
        })
    }

    /// Puts a record into the buffer. Waits at most `max.block.ms`, and only for the topic's metadata (with its first
    /// record), for the partition that the record names if it does not exist yet, and for room in the buffer. The
    /// returned future is independent: it completes when the record is delivered or has failed.
    // The sends are not boxed: most records are taken at once, and each box would be an allocation.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ClientError> {
        let headers = record.header_refs();
        self.send_ref(&record.borrow(&headers)).await
    }

    /// As [`send`](Self::send), for a record whose bytes are borrowed.
    pub async fn send_ref(&self, record: &RecordRef<'_>) -> Result<Delivery, ClientError> {
        match self.try_send(record)? {
            Some(delivery) => Ok(delivery),
            None => self.deliver(record, None).await,
        }
    }

    /// As [`send`](Self::send), but calls `callback` with the outcome. The callback is dropped uncalled only if this
    /// fails. It costs an allocation for each record, which a [`Delivery`] does not.
    pub async fn send_with(
        &self,
        record: &RecordRef<'_>,
        callback: impl FnOnce(Result<RecordMetadata, ClientError>) + Send + 'static,
    ) -> Result<(), ClientError> {
        let mut callback = Some(Callback::new(callback));
        match self.try_deliver(record, &mut callback)? {
            Some(_) => Ok(()),
            None => self.deliver(record, callback).await.map(drop),
        }
    }

    /// As [`send_ref`](Self::send_ref), but without waiting. Returns `None` if it would have to wait: for room in the
    /// buffer, for a topic that the producer does not know, or for a partition that the topic does not have yet.
    pub fn try_send(&self, record: &RecordRef<'_>) -> Result<Option<Delivery>, ClientError> {
        self.try_deliver(record, &mut None)
    }

    /// As [`send_ref`](Self::send_ref), for a thread that is not one of the runtime's: blocks it instead. Panics
    /// inside of a runtime.
    pub fn send_blocking(&self, record: &RecordRef<'_>) -> Result<Delivery, ClientError> {
        match self.try_send(record)? {
            Some(delivery) => Ok(delivery),
            None => self.runtime.block_on(self.deliver(record, None)),
        }
    }

    /// As [`send_ref`](Self::send_ref), but with a tag by which `listener` gets the outcome, together with the other
    /// records of the batch. The tag is dropped without a call only if this fails.
    pub async fn send_tagged<L: DeliveryListener>(
        &self,
        record: &RecordRef<'_>,
        tag: L::Tag,
        listener: &Arc<L>,
    ) -> Result<(), ClientError> {
        let mut noting = Tagging { listener, tag: Some(tag) };
        match self.try_append(record, &mut noting)? {
            Some(()) => Ok(()),
            None => self.append(record, noting).await,
        }
    }

    /// Puts a record into the buffer if that is possible at once. Not generic: the sends are compiled again in each
    /// crate that polls them, and so would be their callees.
    fn try_deliver(
        &self,
        record: &RecordRef<'_>,
        callback: &mut Option<Callback>,
    ) -> Result<Option<Delivery>, ClientError> {
        self.try_append(record, callback)
    }

    /// Puts a record into the buffer, waiting if necessary; the box costs nothing compared with the wait.
    fn deliver<'a>(
        &'a self,
        record: &'a RecordRef<'_>,
        callback: Option<Callback>,
    ) -> BoxFuture<'a, Result<Delivery, ClientError>> {
        Box::pin(self.append(record, callback))
    }

    fn try_append<W: Enlist>(
        &self,
        record: &RecordRef<'_>,
        waiter: &mut W,
    ) -> Result<Option<W::Handle>, ClientError> {
        record.check()?;
        let reserved_bytes = record.size_bound_bytes();
        if !self.accumulator.try_reserve(reserved_bytes)? {
            return Ok(None);
        }
        let reservation = Reservation { accumulator: &self.accumulator, bytes: reserved_bytes };
        let timestamp = record.timestamp.unwrap_or_else(now);
        match self.accumulator.append(record, timestamp, reserved_bytes, waiter)? {
            Appended::Yes(handle) => {
                reservation.keep();
                Ok(Some(handle))
            }
            Appended::UnknownTopic | Appended::NoSuchPartition { .. } => Ok(None),
        }
    }

    /// Puts a record into the buffer, waiting for metadata and room.
    async fn append<W: Enlist>(
        &self,
        record: &RecordRef<'_>,
        mut waiter: W,
    ) -> Result<W::Handle, ClientError> {
        let reserved_bytes = record.size_bound_bytes();
        let timestamp = record.timestamp.unwrap_or_else(now);
        // `None` for a time beyond the clock's range.
        let deadline = Instant::now().checked_add(self.options.block_max);
        let mut is_made_up = false;
        loop {
            let reservation = self.reserve(record, deadline).await?;
            match self.accumulator.append(record, timestamp, reserved_bytes, &mut waiter)? {
                Appended::Yes(handle) => {
                    reservation.keep();
                    return Ok(handle);
                }
                Appended::NoSuchPartition { partition, count } if is_made_up => {
                    return Err(no_such_partition(record.topic, partition, count));
                }
                // The partitioner got the known partitions. It may know more, but it must not choose future ones.
                Appended::NoSuchPartition { .. } if record.partition.is_none() => {
                    is_made_up = true;
                    drop(reservation);
                    self.look(record.topic, deadline).await?;
                }
                // The topic was created anew meanwhile.
                Appended::UnknownTopic | Appended::NoSuchPartition { .. } => {}
            }
        }
    }

    /// Waits for the partition and for room. Boxed, so that it is not compiled again with the appends of each kind of
    /// listener.
    fn reserve<'a>(
        &'a self,
        record: &'a RecordRef<'_>,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<Reservation<'a>, ClientError>> {
        Box::pin(async move {
            // Before it takes room, which other records can use until then.
            self.find_place(record, deadline).await?;
            let reserve = Reservation::new(&self.accumulator, record.size_bound_bytes());
            self.in_time(deadline, "room in the buffer (buffer.memory)", reserve).await
        })
    }

    /// Waits until the topic is known, and has the partition that the record names.
    async fn find_place(&self, record: &RecordRef<'_>, deadline: Option<Instant>) -> Result<(), ClientError> {
        let mut is_last = false;
        loop {
            let missing = match self.accumulator.find_place(record) {
                Appended::Yes(()) => return Ok(()),
                Appended::UnknownTopic => None,
                Appended::NoSuchPartition { partition, count } => {
                    Some(no_such_partition(record.topic, partition, count))
                }
            };
            match (missing, self.cluster.cached_topic(record.topic)) {
                (Some(missing), _) if is_last => return Err(missing),
                (None, Some(known)) => self.learn(&known),
                _ => is_last = self.look(record.topic, deadline).await?,
            }
        }
    }

    /// Requests a topic's metadata until the topic can be used. Known metadata stays valid meanwhile. Returns whether
    /// there is no time for another request.
    fn look<'a>(
        &'a self,
        name: &'a str,
        deadline: Option<Instant>,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        Box::pin(async move {
            loop {
                let look = self.looks.look(name, deadline);
                let Looked { topic, is_last } = self.in_time(deadline, "the topic's metadata", look).await?;
                if is_last || !may_change(&topic, true) {
                    let topic = topic?;
                    // Another task may have learnt more of it since.
                    let known = self.cluster.known_topic(name).map(|known| known.topic);
                    self.learn(&known.unwrap_or(topic));
                    return Ok(is_last);
                }
            }
        })
    }

    fn learn(&self, topic: &TopicInfo) {
        self.accumulator.learn(topic, random_seed(), None);
    }

    async fn in_time<T>(
        &self,
        deadline: Option<Instant>,
        what: &str,
        future: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let Some(deadline) = deadline else { return future.await };
        timeout_at(deadline, future).await.unwrap_or_else(|_| {
            let (after, what) = (self.options.block_max, format!("waited for {what}"));
            Err(ClientError::Blocked { after, what, last: self.accumulator.trouble() })
        })
    }

    /// Sends all buffered records without lingering, and waits until all have their outcome, which the records' own
    /// [`Delivery`] returns, and until their callbacks and listeners have returned. A callback must not wait for it:
    /// it would wait for itself.
    pub fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.accumulator.flush())
    }

    /// Sends all buffered records, waits for them and ends. Later sends fail with [`ClientError::Closed`]. If the
    /// caller stops waiting, the records are sent all the same, and another call waits for them.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.accumulator.close();
            let mut sender = self.sender.lock().await;
            let Some(task) = sender.as_mut() else { return };
            let ended = task.await;
            *sender = None;
            if let Err(error) = ended {
                tracing::error!(%error, "the sender task has failed");
            }
        })
    }

    /// As [`close`](Self::close), but waits for `limit` at most, and returns whether all records had their outcome by
    /// then. After that, records in no request fail with [`ClientError::Closed`]. Records in flight get the outcome
    /// of their request, within `request.timeout.ms` and without a retry; later records of their partition complete
    /// after them.
    pub fn close_within(&self, limit: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let is_done = timeout(limit, self.close()).await.is_ok();
            if !is_done {
                self.accumulator.abandon();
            }
            is_done
        })
    }

    /// Counts of its work so far.
    pub fn metrics(&self) -> ProducerMetrics {
        let traffic = self.cluster.traffic();
        ProducerMetrics {
            connections: traffic.connections,
            all_requests: traffic.requests,
            sent_bytes: traffic.sent_bytes,
            answers: traffic.answers,
            received_bytes: traffic.received_bytes,
            ..self.accumulator.metrics()
        }
    }

    /// The cluster that it is connected to.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }
}

/// Bytes of the buffer, given back unless a batch keeps them.
struct Reservation<'a> {
    accumulator: &'a Accumulator,
    bytes: usize,
}

impl<'a> Reservation<'a> {
    async fn new(accumulator: &'a Accumulator, bytes: usize) -> Result<Self, ClientError> {
        accumulator.reserve(bytes).await?;
        Ok(Self { accumulator, bytes })
    }

    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.accumulator.release(self.bytes);
        }
    }
}

fn no_such_partition(topic: &str, partition: i32, count: i32) -> ClientError {
    ClientError::Invalid(format!("{topic} has partitions 0 to {}, not {partition}", count - 1))
}

fn now() -> TimestampMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// A seed for random choices. Without the system's randomness every producer has the same one, which does no harm.
fn random_seed() -> u64 {
    getrandom::u64().unwrap_or(1)
}
