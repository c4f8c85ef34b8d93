//! A Kafka client: producer, consumer and admin, for Riverrun and for any other server of the protocol.
//!
//! Owns the connections ([`Cluster`]) and the clients built on them: [`Producer`], [`Consumer`], [`Admin`]. It uses
//! the newest version of each request that both sides support, and reports clearly what a server does not offer. It
//! knows nothing of the server's internals. Everything runs on a [tokio](https://docs.rs/tokio) runtime.
//!
//! Everything is Rust except zstd: `riverrun-records`, which builds and reads batches, uses libzstd (C, with some
//! assembly on x86-64). `zstd-sys` compiles and links it statically whether or not zstd is used, so that building
//! needs a C compiler. The codecs of gzip, snappy and lz4 are Rust. The only system library linked is libc.
//!
//! # Producing
//!
//! [`Producer::send`] puts a record into the buffer and returns a [`Delivery`]: a separate future for the record's
//! partition and offset. By default every record is acknowledged by all in-sync replicas (`acks=all`), and arrives
//! once and in the order of its partition, retries included (`enable.idempotence`).
//!
//! ```no_run
//! use riverrun_client::{Producer, ProducerOptions, ProducerRecord};
//!
//! # async fn example() -> Result<(), riverrun_client::ClientError> {
//! let options = ProducerOptions::from_properties([
//!     ("bootstrap.servers", "localhost:9092"),
//!     ("linger.ms", "20"),
//!     ("compression.type", "lz4"),
//! ])?;
//! let producer = Producer::new(options).await?;
//! let mut deliveries = Vec::new();
//! for number in 0..1000 {
//!     let record = ProducerRecord::new("clicks", format!("click {number}")).with_key("me");
//!     // Waits only while the buffer is full.
//!     deliveries.push(producer.send(record).await?);
//! }
//! for delivery in deliveries {
//!     let placed = delivery.await?;
//!     println!("{}-{} at {}", placed.topic, placed.partition, placed.offset);
//! }
//! producer.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Producer::send_ref`] copies borrowed bytes once, into the batch. [`Producer::send_with`] takes a callback
//! instead, and [`Producer::send_tagged`] tells a [`DeliveryListener`] of whole batches, which costs the least.
//! [`Producer::try_send`] never waits, and [`Producer::send_blocking`] is for threads without a runtime. Records
//! without a key go to partitions in whole batches; an own [`Partitioner`] may decide otherwise.
//!
//! # Consuming
//!
//! A [`Consumer`] reads partitions that it is [assigned](Consumer::assign), or shares topics with a
//! [group](Consumer::subscribe). [`Consumer::poll`] returns records that borrow the fetched memory;
//! [`Consumer::poll_each`] passes them without creating records at all, which is several times as fast.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use riverrun_client::{Consumer, ConsumerOptions};
//!
//! # async fn example() -> Result<(), riverrun_client::ClientError> {
//! let options = ConsumerOptions::from_properties([
//!     ("bootstrap.servers", "localhost:9092"),
//!     ("group.id", "readers"),
//!     ("group.protocol", "consumer"),
//!     ("auto.offset.reset", "earliest"),
//!     ("enable.auto.commit", "false"),
//! ])?;
//! let mut consumer = Consumer::new(options).await?;
//! consumer.subscribe(&["clicks"]).await?;
//! loop {
//!     let records = consumer.poll(Duration::from_secs(1)).await?;
//!     for record in &records {
//!         println!("{}-{} at {}: {:?}", record.topic, record.partition, record.offset, record.value);
//!     }
//!     if records.is_empty() {
//!         break;
//!     }
//!     // What was returned is processed: at least once, whatever happens.
//!     consumer.commit().await?;
//! }
//! consumer.close().await
//! # }
//! ```
//!
//! A [`RebalanceListener`] is called with the partitions that the group assigns and revokes, chooses their start
//! positions, and commits before other members get them. [`Consumer::subscribe_pattern`] subscribes to all topics
//! whose names match. Without a group:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use riverrun_client::{ClusterOptions, Consumer, ConsumerOptions, StartAt, TimestampMs, TopicPartition};
//!
//! # async fn example() -> Result<(), riverrun_client::ClientError> {
//! let mut consumer = Consumer::new(ConsumerOptions::new(ClusterOptions::new("localhost:9092"))).await?;
//! let partition = TopicPartition::new("clicks", 0);
//! consumer.assign(vec![(partition.clone(), StartAt::Timestamp(TimestampMs(1_700_000_000_000)))]).await?;
//! let mut bytes = 0;
//! while consumer.lag(&partition) != Some(0) {
//!     let each = |_: &TopicPartition, record: &riverrun_client::Record<'_>| {
//!         bytes += record.value.map_or(0, <[u8]>::len);
//!     };
//!     consumer.poll_each(Duration::from_secs(1), each).await?;
//! }
//! println!("{bytes} bytes up to {:?}", consumer.position(&partition));
//! consumer.seek(&partition, StartAt::Earliest)
//! # }
//! ```
//!
//! # What is copied
//!
//! [`Producer::send`] and [`Producer::send_ref`] copy key, value and headers of a record once, into its batch. A
//! batch begins with room for a quarter more than the one before it in its partition took, or for a full batch if
//! that one was more than half full. A batch that outgrows its room is copied once more. The socket sends the batch
//! from there. Compression writes the batch once more, and so does a new producer epoch for a batch that was already
//! sealed.
//!
//! Each fetch answer is read into memory of its own, except for its first 16 KiB at most, which are read before its
//! length is known, and copied. The records of a partition that are more than half of an answer stay there, and keep
//! all of it alive. Smaller parts are copied once, so that they keep nothing else alive. A compressed batch is
//! inflated into memory of its own. [`Consumer::poll_each`] passes keys, values and headers from that memory. The
//! records of [`Consumer::poll`] share it, except for the names of headers, which are copied;
//! [`ConsumerRecord::detached`] copies the rest.
//!
//! # Administration
//!
//! [`Admin`] makes, changes, describes and deletes topics, configs, groups and offsets. Its calls give a result for each
//! item, so that the error of one does not hide the others.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//!
//! use riverrun_client::{Admin, ClusterOptions, NewTopic};
//!
//! # async fn example() -> Result<(), riverrun_client::ClientError> {
//! let admin = Admin::new(ClusterOptions::new("localhost:9092")).await?;
//! let configs = BTreeMap::from([("retention.ms".to_owned(), "86400000".to_owned())]);
//! let topic = NewTopic { partitions: Some(6), configs, ..NewTopic::named("clicks") };
//! for (name, created) in admin.create_topics(vec![topic], false).await {
//!     println!("{name}: {} partitions", created?.partitions);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! Retriable errors are retried within `delivery.timeout.ms` (producer) or `default.api.timeout.ms` (all others), and
//! by a consumer as long as it is polled: [`Consumer::trouble`] shows what keeps it from its work. Every other error
//! is a [`ClientError`], whose [`kind`](ClientError::kind) says what to do: retry, fix the request, or give up.
//! Impossible answers of a server are errors, too, and never a panic.
//!
//! # What is not there
//!
//! TLS, SASL and transactions, whose options are refused by name. The client does not wait when a server with quotas
//! asks it to (`throttle_time_ms`): such a server delays its later answers itself. A producer keeps the state of each
//! topic that it has sent to without a time limit; Kafka's forgets it after `metadata.max.idle.ms`.
//!
//! # Numbers
//!
//! [`Producer::metrics`] and [`Consumer::metrics`] return counts of the work so far and of buffered bytes.
//!
//! # Options
//!
//! They are fields of [`ProducerOptions`], [`ConsumerOptions`] and [`ClusterOptions`], or texts by Kafka's names:
//!
//! ```
//! use riverrun_client::{ClientError, ProducerOptions};
//!
//! let options = ProducerOptions::from_properties([
//!     ("bootstrap.servers", "localhost:9092"),
//!     ("linger.ms", "20"),
//!     ("compression.type", "lz4"),
//! ])?;
//! assert_eq!(options.linger.as_millis(), 20);
//! # Ok::<(), ClientError>(())
//! ```

mod admin;
mod cluster;
mod connection;
mod consumer;
mod coordinator;
mod error;
mod leaders;
mod list_offsets;
mod options;
mod producer;
mod retry;
mod slot;
mod socket;
mod topic_partition;
mod traffic;

pub use admin::{
    ActiveProducer, Admin, ClusterDescription, ConfigChange, ConfigEntry, ConfigOperation, ConfigResource,
    ConfigSource, ConfigSynonym, CreatedTopic, DescribedNode, GroupDescription, GroupListing, GroupMember,
    LogDir, LogDirReplica, NewTopic, Results,
};
pub use cluster::{Cluster, ClusterOptions, Node, PartitionInfo, TopicInfo};
pub use consumer::{
    Answer, Assignor, Consumer, ConsumerMetrics, ConsumerOptions, ConsumerRecord, GroupProtocol, OffsetReset,
    RebalanceListener, Revocation, StartAt, Trouble,
};
pub use coordinator::CommittedOffset;
pub use error::ClientError;
pub use list_offsets::{FoundOffset, Isolation, OffsetSpec};
pub use options::{Kind, OptionDef, markdown as options_markdown};
pub use producer::{
    Choice, CompletedRecords, Delivery, DeliveryListener, KeyedRoundRobin, Partitioner, PartitionerChoice,
    Producer, ProducerMetrics, ProducerOptions, ProducerRecord, RecordMetadata, RecordRef, RoundRobin,
    Sticky, Tally, TopicPartitioner, TopicView, UniformSticky, partition_of_key,
};
pub use topic_partition::TopicPartition;
// The return type of the public methods that wait.
pub use futures_util::future::BoxFuture;
// Types of the options and errors above.
pub use riverrun_protocol::{ApiKey, ErrorCode};
pub use riverrun_records::{Compression, Header, Record};
pub use riverrun_types::{Acks, ErrorKind, LeaderEpoch, NodeId, Offset, TimestampMs};
