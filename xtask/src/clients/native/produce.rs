//! Producing: acks, codecs, sequences, the parts of a record, and its partition.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use riverrun_client::{
    Choice, ClientError, ErrorCode, Offset, Partitioner, PartitionerChoice, Producer, ProducerOptions,
    ProducerRecord, RecordRef, TimestampMs, TopicPartitioner, TopicView, partition_of_key,
};

use super::super::rust_cases::{Bench, same};
use super::{
    admin_of, fails_with, numbered, produce_to, producer_of, read_all, sorted, text, topic_of, values,
};

pub(super) async fn acks(bench: &Bench<'_>) -> anyhow::Result<()> {
    for (acks, told) in [("0", false), ("1", true), ("all", true)] {
        let topic = topic_of(bench, "acks", 1).await?;
        let placed = produce_to(bench, &topic, "v", 200, &[("acks", acks)]).await?;
        let offsets: Vec<Offset> = placed.iter().map(|one| one.offset).collect();
        let expected: Vec<Offset> = (0..200).map(|n| if told { Offset(n) } else { Offset(-1) }).collect();
        same(&format!("offsets with acks={acks}"), &offsets, &expected)?;
        let records = read_all(bench, &topic, 1, 200, &[]).await?;
        same(&format!("records with acks={acks}"), &values(&records), &numbered("v", 200))?;
    }
    Ok(())
}

pub(super) async fn codecs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "codecs", 1).await?;
    let mut expected = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let prefix = format!("{codec}-");
        produce_to(bench, &topic, &prefix, 500, &[("compression.type", codec)]).await?;
        expected.extend(numbered(&prefix, 500));
    }
    let records = read_all(bench, &topic, 1, expected.len(), &[]).await?;
    same("values", &values(&records), &expected)
}

/// Small batches, five under way in each partition: none lost, none doubled, all in order.
pub(super) async fn idempotence(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "idempotence", 4).await?;
    let placed = produce_to(bench, &topic, "v", 5000, &[("batch.size", "512"), ("linger.ms", "0")]).await?;
    let mut expected = BTreeMap::<(i32, Offset), String>::new();
    for (metadata, value) in placed.iter().zip(numbered("v", 5000)) {
        expected.insert((metadata.partition, metadata.offset), value);
    }
    same("places that differ", &expected.len(), &5000)?;
    let records = read_all(bench, &topic, 4, 5000, &[]).await?;
    let found: BTreeMap<_, _> = records
        .iter()
        .map(|record| ((record.partition, record.offset), text(record.value.as_deref())))
        .collect();
    same("records by place", &found, &expected)?;
    let mut last = BTreeMap::<i32, usize>::new();
    for ((partition, _), value) in &found {
        let number: usize = value.trim_start_matches('v').parse()?;
        let before = last.insert(*partition, number);
        same("in order", &before.is_none_or(|before| before < number), &true)?;
    }
    Ok(())
}

pub(super) async fn headers_and_nulls(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "headers", 1).await?;
    let producer = producer_of(bench, &[]).await?;
    let headers = vec![
        ("a".to_owned(), Some("1".into())),
        ("a".to_owned(), Some("2".into())),
        ("none".to_owned(), None),
        ("empty".to_owned(), Some("".into())),
    ];
    let timestamp = Some(TimestampMs(1_700_000_000_123));
    let full = ProducerRecord { headers: headers.clone(), timestamp, ..ProducerRecord::new(&topic, "v") };
    let deletion = ProducerRecord { value: None, ..ProducerRecord::new(&topic, "").with_key("k") };
    let empty = ProducerRecord::new(&topic, "").with_key("");
    for record in [full.with_key("k"), deletion, empty] {
        producer.send(record).await?;
    }
    producer.close().await;
    let records = read_all(bench, &topic, 1, 3, &[]).await?;
    same("headers", &records[0].headers, &headers)?;
    same("timestamp", &Some(records[0].timestamp), &timestamp)?;
    same(
        "a null value",
        &(text(records[1].key.as_deref()), records[1].value.clone()),
        &("k".to_owned(), None),
    )?;
    let lengths = [&records[2].key, &records[2].value].map(|part| part.as_deref().map(<[u8]>::len));
    same("empty, not null", &lengths, &[Some(0), Some(0)])
}

pub(super) async fn keys(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "keys", 5).await?;
    let placed = produce_to(bench, &topic, "v", 70, &[]).await?;
    for (n, metadata) in placed.iter().enumerate() {
        let key = format!("key-{}", n % 7);
        same(&format!("partition of {key}"), &metadata.partition, &partition_of_key(key.as_bytes(), 5))?;
    }
    Ok(())
}

/// Sends all records to the last partition.
#[derive(Debug)]
struct ToTheLast;

impl Partitioner for ToTheLast {
    fn for_topic(&self, _seed: u64) -> Box<dyn TopicPartitioner> {
        Box::new(Self)
    }
}

impl TopicPartitioner for ToTheLast {
    fn choose(&mut self, _record: &RecordRef<'_>, topic: &dyn TopicView) -> Choice {
        Choice::Fixed(topic.partition_count() - 1)
    }
}

/// Counts the records of each partition after many records without a key.
async fn spread(bench: &Bench<'_>, topic: &str, producer: &Producer) -> anyhow::Result<Vec<usize>> {
    let mut deliveries = Vec::new();
    for value in numbered("value-of-some-length-", 3000) {
        deliveries.push(producer.send(ProducerRecord::new(topic, value)).await?);
    }
    let mut counts = vec![0; 3];
    for delivery in deliveries {
        counts[usize::try_from(delivery.await?.partition)?] += 1;
    }
    producer.close().await;
    read_all(bench, topic, 3, 3000, &[]).await?;
    Ok(counts)
}

pub(super) async fn partitioners(bench: &Bench<'_>) -> anyhow::Result<()> {
    for name in ["uniform-sticky", "sticky", "round-robin", "keyed-round-robin"] {
        let topic = topic_of(bench, name, 3).await?;
        let small = [("partitioner.class", name), ("batch.size", "1000"), ("linger.ms", "20")];
        let counts = spread(bench, &topic, &producer_of(bench, &small).await?).await?;
        // 3000 records are some hundred batches: no partition gets only a handful.
        same(
            &format!("each partition gets its part of {counts:?}"),
            &counts.iter().all(|n| *n > 300),
            &true,
        )?;
        if name.ends_with("round-robin") {
            same("in turn", &counts, &vec![1000; 3])?;
        }
    }
    let topic = topic_of(bench, "own-partitioner", 3).await?;
    let bootstrap = bench.bootstrap();
    let mut options = ProducerOptions::from_properties([("bootstrap.servers", bootstrap.as_str())])?;
    options.partitioner = PartitionerChoice::Custom(Arc::new(ToTheLast));
    same("one's own", &spread(bench, &topic, &Producer::new(options).await?).await?, &vec![0, 0, 3000])?;
    // The partition could still be created, so the producer waits for it.
    let producer = producer_of(bench, &[("max.block.ms", "2000")]).await?;
    let named = ProducerRecord { partition: Some(1), ..ProducerRecord::new(&topic, "v").with_key("k") };
    same("named", &producer.send(named).await?.await?.partition, &1)?;
    let absent = ProducerRecord { partition: Some(3), ..ProducerRecord::new(&topic, "v") };
    let refused = producer.send(absent).await.err();
    same("a partition too many is refused", &matches!(refused, Some(ClientError::Invalid(_))), &true)
}

/// The callbacks of a partition come in the order of its records, all of them before the end of a flush.
pub(super) async fn callbacks(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "callbacks", 1).await?;
    let producer = producer_of(bench, &[("batch.size", "500"), ("linger.ms", "1000")]).await?;
    let told = Arc::new(Mutex::new(Vec::new()));
    for value in numbered("v", 1000) {
        let told = Arc::clone(&told);
        let record = RecordRef::new(&topic, value.as_bytes());
        let callback = move |result: Result<riverrun_client::RecordMetadata, ClientError>| {
            told.lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(result.ok().map(|one| one.offset));
        };
        producer.send_with(&record, callback).await?;
    }
    tokio::time::timeout(Duration::from_secs(10), producer.flush()).await.context("the flush lingers")?;
    let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    same("offsets in order", &told, &(0..1000).map(|n| Some(Offset(n))).collect())
}

pub(super) async fn large_records(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "large", 1).await?;
    let producer = producer_of(bench, &[]).await?;
    for n in 0..4_u8 {
        producer.send(ProducerRecord::new(&topic, vec![n; 900 * 1024])).await?;
    }
    producer.close().await;
    let small = [("max.partition.fetch.bytes", "1000"), ("fetch.max.bytes", "1000")];
    let records = read_all(bench, &topic, 1, 4, &small).await?;
    let found: Vec<_> = records
        .iter()
        .map(|record| record.value.as_ref().map(|value| (value.len(), value.first().copied())))
        .collect();
    same("values", &found, &(0..4).map(|n| Some((900 * 1024, Some(n)))).collect())
}

pub(super) async fn too_large(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "too-large", 1).await?;
    let long = ProducerRecord::new(&topic, vec![b'x'; 2 << 20]);
    let by_client = producer_of(bench, &[]).await?.send(long.clone()).await.err();
    same("the client refuses", &matches!(by_client, Some(ClientError::RecordTooLarge { .. })), &true)?;
    let producer = producer_of(bench, &[("max.request.size", "4000000")]).await?;
    fails_with("the server", producer.send(long).await?.await, ErrorCode::MESSAGE_TOO_LARGE)?;
    // Records that are too large together are split.
    let wide = [("max.request.size", "4000000"), ("batch.size", "3000000"), ("linger.ms", "100")];
    let producer = producer_of(bench, &wide).await?;
    for n in 0..20_u8 {
        producer.send(ProducerRecord::new(&topic, vec![n; 100_000])).await?;
    }
    producer.close().await;
    let records = read_all(bench, &topic, 1, 20, &[]).await?;
    let firsts: Vec<_> =
        records.iter().map(|record| record.value.as_ref().and_then(|value| value.first().copied())).collect();
    same("values of the parts", &firsts, &(0..20).map(Some).collect())
}

pub(super) async fn auto_create(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = bench.name("native-auto");
    produce_to(bench, &topic, "v", 10, &[]).await?;
    let described = super::only(admin_of(bench).await?.describe_topics(std::slice::from_ref(&topic)).await)?;
    same("partitions", &described.partition_count(), &1)?;
    let records = read_all(bench, &topic, 1, 10, &[]).await?;
    same("values", &sorted(values(&records)), &sorted(numbered("v", 10)))
}
