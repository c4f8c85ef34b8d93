//! Partitioners: the choice of a record's partition.
//!
//! Records with a key go where Kafka's own clients send that key, unless plain round robin is configured. A
//! [`Partitioner`] chooses for records without one: the uniform sticky one (KIP-794), the older sticky one (KIP-480),
//! round robin, or one of the application's. The first two stay with a partition until its batch is done, so that
//! batches fill.

mod choice;
mod murmur2;
mod random;
mod round_robin;
mod sticky;
mod uniform;

use std::fmt::Debug;

pub use self::choice::PartitionerChoice;
pub use self::murmur2::partition_of_key;
pub use self::round_robin::{KeyedRoundRobin, RoundRobin};
pub use self::sticky::Sticky;
pub use self::uniform::UniformSticky;
use super::record::RecordRef;

/// A topic as a partitioner sees it.
pub trait TopicView {
    /// Number of partitions, at least 1.
    fn partition_count(&self) -> i32;

    /// The partitions that have a leader, sorted.
    fn available(&self) -> &[i32];

    /// Batches of a partition that wait to be sent, including the open one.
    fn waiting_batches(&self, partition: i32) -> usize;

    /// True if the partition's leader has taken none of its waiting batches for
    /// `partitioner.availability.timeout.ms`.
    fn is_slow(&self, partition: i32) -> bool;
}

/// The partition for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one, however many batches wait there.
    Fixed(i32),
    /// This one, while its batch lasts: the partitioner is told when the record is appended.
    Sticky(i32),
}

/// Makes the choices of one topic. It is called with the producer's buffer locked, so it neither waits nor does much.
///
/// A partition that the topic does not have makes the send fail.
pub trait TopicPartitioner: Send + Debug {
    /// The partition of a record that names none.
    fn choose(&mut self, record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice;

    /// A record of `record_bytes` would begin a new batch in a partition that was chosen as [`Choice::Sticky`]: the
    /// batch before is full or has been sent. Returns the partition to use; this method is not called again for the
    /// record.
    fn on_new_batch(&mut self, partition: i32, record_bytes: usize, topic: &dyn TopicView) -> i32 {
        let _ = (record_bytes, topic);
        partition
    }

    /// A record for which [`Choice::Sticky`] was chosen has been put into a batch of this partition.
    fn appended(&mut self, partition: i32, record_bytes: usize) {
        let _ = (partition, record_bytes);
    }
}

/// Makes a [`TopicPartitioner`] for each topic that a producer meets.
///
/// ```
/// use std::sync::Arc;
///
/// use riverrun_client::{
///     Choice, ClusterOptions, Partitioner, PartitionerChoice, ProducerOptions, RecordRef, TopicPartitioner, TopicView,
/// };
///
/// /// Records with an even first byte to the first partition, all others to one in the middle.
/// #[derive(Debug)]
/// struct ByParity;
///
/// impl Partitioner for ByParity {
///     fn for_topic(&self, _seed: u64) -> Box<dyn TopicPartitioner> {
///         Box::new(ByParity)
///     }
/// }
///
/// impl TopicPartitioner for ByParity {
///     fn choose(&mut self, record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
///         let first = record.value.and_then(|value| value.first()).copied().unwrap_or_default();
///         Choice::Fixed(if first % 2 == 0 { 0 } else { topic.partition_count() / 2 })
///     }
/// }
///
/// let mut options = ProducerOptions::new(ClusterOptions::new("localhost:9092"));
/// options.partitioner = PartitionerChoice::Custom(Arc::new(ByParity));
/// ```
pub trait Partitioner: Send + Sync + Debug {
    /// Makes the partitioner of one topic. Random choices follow from `seed`.
    fn for_topic(&self, seed: u64) -> Box<dyn TopicPartitioner>;
}

#[cfg(test)]
mod tests;
