//! The producer: records in, batches out, each record's place back.
//!
//! Owns the way of a record from [`Producer::send`] to its [`Delivery`]: partitioner, accumulator, one sender task.
//! Guarantees, with idempotence, that the records of a partition arrive once and in the order in which they were
//! sent, retries included. Refuses records that fit into no request.

mod accumulator;
mod batch;
mod delivery;
mod exchange;
mod options;
mod partitioner;
mod queue;
mod record;
mod sender;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use riverrun_types::TimestampMs;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use self::accumulator::{Accumulator, Appended};
pub use self::delivery::Delivery;
pub use self::options::ProducerOptions;
pub use self::record::{ProducerRecord, RecordMetadata};
use self::sender::Sender;
use crate::cluster::Cluster;
use crate::error::ClientError;

/// Sends records to topics. Shared by reference or `Arc`: all of its methods take `&self`.
///
/// Dropping it sends what was handed over, in the background; [`close`](Self::close) waits for that.
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
/// Invariants: the sender task runs until the accumulator is closed and empty.
#[derive(Debug)]
pub struct Producer {
    cluster: Arc<Cluster>,
    accumulator: Arc<Accumulator>,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.accumulator.close();
    }
}

impl Producer {
    /// Connects to the cluster. Fails if the options contradict each other or no server can be reached.
    pub async fn new(options: ProducerOptions) -> Result<Self, ClientError> {
        options.check()?;
        let options = Arc::new(options);
        let cluster = Cluster::connect(options.cluster.clone()).await?;
        let accumulator = Arc::new(Accumulator::new(&options));
        let sender = Sender::new(Arc::clone(&cluster), options, Arc::clone(&accumulator));
        let sender = Mutex::new(Some(tokio::spawn(sender.run())));
        Ok(Self { cluster, accumulator, sender })
    }

    /// Hands a record over. Waits only for room in the buffer and, with a topic's first record, for the topic.
    /// The result is a future of its own: it tells when and where the record has arrived.
    pub async fn send(&self, record: ProducerRecord) -> Result<Delivery, ClientError> {
        let reserved_bytes = record.size_bound_bytes();
        let reservation = Reservation::new(&self.accumulator, reserved_bytes).await?;
        let timestamp = record.timestamp.unwrap_or_else(now);
        let mut asked = false;
        loop {
            match self.accumulator.append(&record, timestamp, reserved_bytes)? {
                Appended::Yes(delivery) => {
                    reservation.keep();
                    return Ok(delivery);
                }
                Appended::UnknownTopic => {}
                // Partitions may have been added since.
                Appended::NoSuchPartition(_) if !asked => {
                    asked = true;
                    self.cluster.forget_topic(&record.topic);
                }
                Appended::NoSuchPartition(count) => return Err(no_such_partition(&record, count)),
            }
            let topic = self.cluster.topic(&record.topic, true).await?;
            self.accumulator.learn(&topic, random_seed());
        }
    }

    /// Sends what was handed over so far without lingering, and waits until all of it has its outcome, which the
    /// records' own [`Delivery`] tells.
    pub async fn flush(&self) {
        self.accumulator.flush().await;
    }

    /// Sends what was handed over, waits for it and ends. Later sends fail with [`ClientError::Closed`].
    pub async fn close(&self) {
        self.accumulator.close();
        if let Some(sender) = self.sender.lock().await.take()
            && let Err(error) = sender.await
        {
            tracing::error!(%error, "the sender task has failed");
        }
    }

    /// The servers that it is connected to.
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

fn no_such_partition(record: &ProducerRecord, count: i32) -> ClientError {
    let partition = record.partition.unwrap_or_default();
    ClientError::Invalid(format!("{} has partitions 0 to {}, not {partition}", record.topic, count - 1))
}

fn now() -> TimestampMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// A start for choices at random. Without the system's randomness every producer starts alike, which is no harm.
fn random_seed() -> u64 {
    getrandom::u64().unwrap_or(1)
}
