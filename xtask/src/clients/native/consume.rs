//! Consuming without sharing: positions, ends, times, resets, commits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::{
    ClientError, CommittedOffset, Consumer, Offset, ProducerRecord, StartAt, TimestampMs, TopicPartition,
};

use super::super::rust_cases::{Bench, same};
use super::{
    admin_of, all_from, consumer_of, gather, numbered, produce_to, producer_of, read_all, sorted, topic_of,
    values,
};

/// Longest median, over ten records, until a waiting consumer sees a record.
const SEEN_WITHIN: Duration = Duration::from_millis(200);

pub(super) async fn assign(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "assign", 1).await?;
    produce_to(bench, &topic, "v", 100, &[]).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let mut consumer = consumer_of(bench, &[]).await?;
    for (start, first) in
        [(StartAt::Earliest, 0), (StartAt::Offset(Offset(90)), 90), (StartAt::Timestamp(TimestampMs(0)), 0)]
    {
        consumer.assign(vec![(partition.clone(), start)]).await?;
        let records = gather(&mut consumer, 100 - first).await?;
        same(&format!("values {start:?}"), &values(&records), &numbered("v", 100)[first..].to_vec())?;
        same("the position", &consumer.position(&partition), &Some(Offset(100)))?;
        same("the lag", &consumer.lag(&partition), &Some(0))?;
    }
    consumer.assign(vec![(partition.clone(), StartAt::Latest)]).await?;
    while consumer.position(&partition).is_none() {
        consumer.poll(super::SHORT).await?;
    }
    produce_to(bench, &topic, "w", 1, &[]).await?;
    same("only what is new", &values(&gather(&mut consumer, 1).await?), &numbered("w", 1))?;
    let partitions = [partition.clone()];
    same("the end", &consumer.end_offsets(&partitions).await?[&partition], &Offset(101))?;
    same("the beginning", &consumer.beginning_offsets(&partitions).await?[&partition], &Offset(0))?;
    same("the assignment", &consumer.assignment(), &partitions.to_vec())
}

pub(super) async fn seek(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "seek", 1).await?;
    produce_to(bench, &topic, "v", 1000, &[("batch.size", "700")]).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let mut consumer = consumer_of(bench, &[("max.poll.records", "10")]).await?;
    consumer.assign(all_from(&topic, 1, StartAt::Earliest)).await?;
    for (start, first) in [
        (StartAt::Offset(Offset(777)), Some(777)),
        (StartAt::Earliest, Some(0)),
        (StartAt::Offset(Offset(998)), Some(998)),
        (StartAt::Latest, None),
        (StartAt::Offset(Offset(1)), Some(1)),
    ] {
        consumer.seek(&partition, start)?;
        let wait = if first.is_some() { super::PATIENCE } else { Duration::from_millis(300) };
        let records = consumer.poll(wait).await?;
        same(&format!("the first {start:?}"), &records.first().map(|record| record.offset.0), &first)?;
    }
    let other = TopicPartition::new(topic.as_str(), 1);
    same("what is not read has no position", &consumer.seek(&other, StartAt::Latest).is_err(), &true)
}

pub(super) async fn pause_and_resume(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "pause", 2).await?;
    produce_to(bench, &topic, "v", 500, &[]).await?;
    let mut consumer = consumer_of(bench, &[]).await?;
    consumer.assign(all_from(&topic, 2, StartAt::Earliest)).await?;
    let paused = [TopicPartition::new(topic.as_str(), 1)];
    consumer.pause(&paused)?;
    same("paused", &consumer.paused(), &paused.to_vec())?;
    let (mut records, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_millis(500) {
        records.extend(consumer.poll(super::SHORT).await?);
    }
    same("nothing of the paused one", &records.iter().all(|record| record.partition == 0), &true)?;
    consumer.resume(&paused)?;
    let left = 500 - records.len();
    records.extend(gather(&mut consumer, left).await?);
    same("all in the end", &sorted(values(&records)), &sorted(numbered("v", 500)))
}

pub(super) async fn offsets_for_times(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "times", 1).await?;
    let producer = producer_of(bench, &[]).await?;
    for n in 0..100_i64 {
        let timestamp = Some(TimestampMs(1_700_000_000_000 + n * 1000));
        producer.send(ProducerRecord { timestamp, ..ProducerRecord::new(&topic, "v") }).await?;
    }
    producer.close().await;
    let consumer = consumer_of(bench, &[]).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    for (time, expected) in [(0, Some(0)), (42_000, Some(42)), (42_001, Some(43)), (99_001, None)] {
        let asked = [(partition.clone(), TimestampMs(1_700_000_000_000 + time))];
        let found = consumer.offsets_for_times(&asked).await?;
        let offset = found.get(&partition).context("no answer")?.map(|found| found.offset.0);
        same(&format!("after {time} ms"), &offset, &expected)?;
    }
    Ok(())
}

/// The first records of a group without commits, by `auto.offset.reset`.
pub(super) async fn reset(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "reset", 1).await?;
    let partition = TopicPartition::new(topic.as_str(), 0);
    let producer = producer_of(bench, &[]).await?;
    for (value, timestamp) in [("old", Some(TimestampMs(1_600_000_000_000))), ("new", None)] {
        producer.send(ProducerRecord { timestamp, ..ProducerRecord::new(&topic, value) }).await?.await?;
    }
    for (reset, position) in [("earliest", 0), ("latest", 2), ("by_duration:PT1H", 1)] {
        let group = bench.name("native-reset");
        let mut consumer = consumer_of(bench, &[("group.id", &group), ("auto.offset.reset", reset)]).await?;
        consumer.assign(vec![(partition.clone(), StartAt::Committed)]).await?;
        let begun = Instant::now();
        let mut records = Vec::new();
        while consumer.position(&partition) != Some(Offset(2)) && begun.elapsed() < super::PATIENCE {
            records.extend(consumer.poll(super::SHORT).await?);
        }
        same(reset, &(2 - records.len()), &position)?;
    }
    let group = bench.name("native-reset");
    let mut consumer = consumer_of(bench, &[("group.id", &group), ("auto.offset.reset", "none")]).await?;
    consumer.assign(vec![(partition.clone(), StartAt::Committed)]).await?;
    let error = consumer.poll(super::PATIENCE).await.err();
    same("none", &matches!(error, Some(ClientError::NoPosition { .. })), &true)
}

pub(super) async fn out_of_range(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "range", 1).await?;
    produce_to(bench, &topic, "v", 10, &[]).await?;
    let from = |offset| all_from(&topic, 1, StartAt::Offset(Offset(offset)));
    let mut consumer = consumer_of(bench, &[]).await?;
    consumer.assign(from(5000)).await?;
    same("back to the first", &values(&gather(&mut consumer, 10).await?), &numbered("v", 10))?;
    let mut strict = consumer_of(bench, &[("auto.offset.reset", "none")]).await?;
    strict.assign(from(5000)).await?;
    let error = strict.poll(super::PATIENCE).await.err();
    same("none", &matches!(error, Some(ClientError::NoPosition { .. })), &true)
}

/// The offset that a group has committed for one partition.
async fn committed(
    consumer: &Consumer,
    partition: &TopicPartition,
) -> anyhow::Result<Option<CommittedOffset>> {
    Ok(consumer.committed(std::slice::from_ref(partition)).await?.remove(partition))
}

pub(super) async fn commits(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "commits", 1).await?, bench.name("native-commits"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    produce_to(bench, &topic, "v", 100, &[("batch.size", "0")]).await?;
    let by_hand = [("group.id", group.as_str()), ("enable.auto.commit", "false"), ("max.poll.records", "40")];
    let mut consumer = consumer_of(bench, &by_hand).await?;
    consumer.assign(all_from(&topic, 1, StartAt::Committed)).await?;
    same("nothing at first", &committed(&consumer, &partition).await?, &None)?;
    let read = consumer.poll(super::PATIENCE).await?.len();
    consumer.commit().await?;
    let position = consumer.position(&partition);
    same("the position", &position, &Some(Offset(i64::try_from(read)?)))?;
    same("committed", &committed(&consumer, &partition).await?.map(|one| one.offset), &position)?;
    let noted = CommittedOffset { offset: Offset(33), leader_epoch: None, metadata: "a note".to_owned() };
    consumer.commit_offsets(&BTreeMap::from([(partition.clone(), noted.clone())])).await?;
    same("with a note", &committed(&consumer, &partition).await?, &Some(noted))?;
    consumer.close().await?;
    let mut next = consumer_of(bench, &by_hand).await?;
    next.assign(all_from(&topic, 1, StartAt::Committed)).await?;
    same("goes on there", &values(&gather(&mut next, 67).await?), &numbered("v", 100)[33..].to_vec())
}

pub(super) async fn auto_commit(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (topic, group) = (topic_of(bench, "auto-commit", 1).await?, bench.name("native-auto-commit"));
    let partition = TopicPartition::new(topic.as_str(), 0);
    produce_to(bench, &topic, "v", 10, &[]).await?;
    let often = [("group.id", group.as_str()), ("auto.commit.interval.ms", "100")];
    let mut consumer = consumer_of(bench, &often).await?;
    consumer.assign(all_from(&topic, 1, StartAt::Committed)).await?;
    gather(&mut consumer, 10).await?;
    let begun = Instant::now();
    while committed(&consumer, &partition).await?.map(|one| one.offset) != Some(Offset(10)) {
        consumer.poll(super::SHORT).await?;
        if begun.elapsed() > super::PATIENCE {
            bail!("nothing was committed by the timer");
        }
    }
    produce_to(bench, &topic, "w", 5, &[]).await?;
    let mut last = consumer_of(bench, &[("group.id", group.as_str())]).await?;
    last.assign(all_from(&topic, 1, StartAt::Committed)).await?;
    gather(&mut last, 5).await?;
    last.close().await?;
    same("by close", &committed(&consumer, &partition).await?.map(|one| one.offset), &Some(Offset(15)))
}

pub(super) async fn long_poll(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "long-poll", 1).await?;
    let mut consumer = consumer_of(bench, &[("fetch.max.wait.ms", "5000")]).await?;
    consumer.assign(all_from(&topic, 1, StartAt::Earliest)).await?;
    consumer.poll(Duration::from_millis(100)).await?;
    let producer = producer_of(bench, &[("linger.ms", "0")]).await?;
    let mut waits = Vec::new();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begun = Instant::now();
        producer.send(ProducerRecord::new(&topic, "v")).await?;
        gather(&mut consumer, 1).await?;
        waits.push(begun.elapsed());
    }
    waits.sort_unstable();
    same(&format!("the median of {waits:?}"), &(waits[5] < SEEN_WITHIN), &true)
}

pub(super) async fn many_partitions(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "many", 200).await?;
    let producer = producer_of(bench, &[]).await?;
    for n in 0..2000 {
        let record =
            ProducerRecord { partition: Some(n % 200), ..ProducerRecord::new(&topic, format!("v{n}")) };
        producer.send(record).await?;
    }
    producer.close().await;
    let records = read_all(bench, &topic, 200, 2000, &[]).await?;
    same("values", &sorted(values(&records)), &sorted(numbered("v", 2000)))
}

/// A consumer with hardly any buffer gets all records nevertheless.
pub(super) async fn small_budget(bench: &Bench<'_>) -> anyhow::Result<()> {
    let topic = topic_of(bench, "budget", 4).await?;
    produce_to(bench, &topic, &"x".repeat(2000), 400, &[("batch.size", "4000")]).await?;
    let small = [("read.ahead.bytes", "10000"), ("fetch.max.bytes", "8000")];
    let records = read_all(bench, &topic, 4, 400, &small).await?;
    let expected = numbered(&"x".repeat(2000), 400);
    same("values", &(sorted(values(&records)) == sorted(expected)), &true)?;
    let before = admin_of(bench).await?.partition_sizes().await?;
    let sizes = before.iter().filter(|(partition, _)| *partition.topic == *topic);
    same("more is stored than may be held", &(sizes.map(|(_, bytes)| bytes).sum::<i64>() > 10_000), &true)
}
