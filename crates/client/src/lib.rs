//! A Kafka client: producer, consumer and admin, for Riverrun and for any other server of the protocol.
//!
//! Owns the connections ([`Cluster`]) and what is built on them: [`Producer`], [`Consumer`], [`Admin`]. It speaks the
//! newest version of each request that both sides know, and says clearly what a server does not offer. It knows
//! nothing of the server's inside. Everything runs on a [tokio](https://docs.rs/tokio) runtime.
//!
//! All of it is Rust but for zstd: `riverrun-records`, which makes and reads batches, has libzstd for it (C, with some assembly
//! on x86-64), which `zstd-sys` compiles and links statically whether or not zstd is used, so that building needs a C compiler.
//! The codecs of gzip, snappy and lz4 are Rust. Nothing else of the system is linked but libc.
//!
//! # Producing
//!
//! [`Producer::send`] hands a record over and answers with a [`Delivery`]: a future of its own, which tells where the
//! record has come to lie. By default every record is acknowledged by all who must have it (`acks=all`), and arrives
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
//! Where the bytes are the caller's own, [`Producer::send_ref`] copies them once, into the batch. [`Producer::send_with`]
//! calls a function back instead, and [`Producer::send_noted`] tells a [`DeliveryListener`] of whole batches, which costs the
//! least. [`Producer::try_send`] never waits, and [`Producer::send_blocking`] is for threads without a runtime. Records
//! without a key go to partitions in whole batches; a [`Partitioner`] of one's own may decide otherwise.
//!
//! # Consuming
//!
//! A [`Consumer`] reads partitions that it is [given](Consumer::assign), or shares topics with a
//! [group](Consumer::subscribe). [`Consumer::poll`] returns records whose bytes lie where they were fetched;
//! [`Consumer::poll_each`] shows them without making records at all, which is several times as fast.
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
//! A [`RebalanceListener`] hears of the partitions that the group gives and takes, chooses where to begin with them, and
//! commits before others get them. [`Consumer::subscribe_pattern`] shares all topics whose names match. By hand:
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
//! Of a record that is sent, key, value and headers are copied once, into its batch, by [`Producer::send`] as by
//! [`Producer::send_ref`]. A batch that becomes more than a quarter larger than the one before it in its partition grows, by
//! which what is in it is copied again, unless that one was more than half full: then it has room for all from the
//! beginning. From there the socket takes them; compression writes the batch once more, and so does a new producer epoch for
//! a batch that was made already.
//!
//! What is fetched is read into memory of its own for each answer, but for its first 16 KiB at most, which are read before
//! its length is known, and copied. Where the records of a partition are more than half of an answer they stay there, and
//! keep all of it alive. Where they are less they are copied once, so that they keep nothing alive but themselves. A batch that
//! is compressed is inflated into memory of its own. [`Consumer::poll_each`] shows keys, values and headers where they lie then.
//! The records of [`Consumer::poll`] share that memory, but for the names of headers, which are copied;
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
//! What may pass is tried again within `delivery.timeout.ms` (producer) or `default.api.timeout.ms` (all others), and by
//! a consumer for as long as it is polled: [`Consumer::trouble`] tells what keeps it from its work. The rest is a
//! [`ClientError`], whose [`kind`](ClientError::kind) says what to do: retry, fix the request, or give up. Answers of a
//! server that cannot be true are errors, too, and never a panic.
//!
//! # What is not there
//!
//! TLS, SASL and transactions, whose options are refused by name. A time that a server with quotas asks to wait for
//! (`throttle_time_ms`) is not waited for: such a server answers later by itself. A producer keeps what it knows of each topic
//! that it has sent to, however long ago; Kafka's forgets it after `metadata.max.idle.ms`.
//!
//! # Numbers
//!
//! [`Producer::metrics`] and [`Consumer::metrics`] count what was done and say what is held.
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
    Choice, Delivery, DeliveryListener, KeyedRoundRobin, Partitioner, PartitionerChoice, Producer,
    ProducerMetrics, ProducerOptions, ProducerRecord, RecordMetadata, RecordRef, RoundRobin, SettledRecords,
    Sticky, Tally, TopicPartitioner, TopicView, UniformSticky, partition_of_key,
};
pub use topic_partition::TopicPartition;
// The public methods that wait return this one.
pub use futures_util::future::BoxFuture;
// What the options and errors above are made of.
pub use riverrun_protocol::{ApiKey, ErrorCode};
pub use riverrun_records::{Compression, Header, Record};
pub use riverrun_types::{Acks, ErrorKind, LeaderEpoch, NodeId, Offset, TimestampMs};
