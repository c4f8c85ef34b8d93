//! Reads the server's records after a crash: whole partitions for the verdict, the newest acks between crashes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use riverrun_client::{
    Admin, ClientError, CommittedOffset, Consumer, ConsumerOptions, StartAt, TopicPartition,
};
use riverrun_types::Offset;

use super::ledger::Ledger;
use super::load::{Shared, cluster_options};
use super::payload::{Identity, Placed, Places, identify};
use super::verify::{Observed, ObservedLog};

/// Time without a record after which a partition counts as unreadable.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait of a poll.
const POLL_WAIT: Duration = Duration::from_millis(200);

/// Longest wait of a fetch: at the end of the range there is nothing to wait for.
const FETCH_WAIT: Duration = Duration::from_millis(5);

/// Longest wait for the first answers of a server that was just started.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

type Records = BTreeMap<TopicPartition, Vec<(i64, Result<Identity, String>)>>;

/// All records and positions of these partitions and groups.
pub(super) async fn everything(
    shared: &Shared,
    partitions: &[TopicPartition],
    groups: &[String],
) -> anyhow::Result<Observed> {
    let mut consumer = connect(shared).await?;
    let starts = consumer.beginning_offsets(partitions).await.context("where the partitions begin")?;
    let ends = consumer.end_offsets(partitions).await.context("where the partitions end")?;
    let places = partitions.iter().map(|partition| (partition.clone(), starts[partition].0)).collect();
    let mut records = read(shared, &mut consumer, places, &ends).await?;
    let mut log = |partition: &TopicPartition| ObservedLog {
        start: starts[partition].0,
        end: ends[partition].0,
        records: records.remove(partition).unwrap_or_default(),
    };
    let logs = partitions.iter().map(|partition| (partition.clone(), log(partition))).collect::<Vec<_>>();
    Ok(Observed { logs: logs.into_iter().collect(), positions: positions(shared, groups).await? })
}

/// Beginnings and ends of the partitions.
pub(super) async fn bounds(
    shared: &Shared,
    partitions: &[TopicPartition],
) -> anyhow::Result<BTreeMap<TopicPartition, Range<i64>>> {
    let consumer = connect(shared).await?;
    let starts = consumer.beginning_offsets(partitions).await.context("where the partitions begin")?;
    let ends = consumer.end_offsets(partitions).await.context("where the partitions end")?;
    Ok(starts
        .into_iter()
        .map(|(partition, start)| (partition.clone(), start.0..ends[&partition].0))
        .collect())
}

/// Positions of the groups.
pub(super) async fn positions(
    shared: &Shared,
    groups: &[String],
) -> anyhow::Result<BTreeMap<(String, TopicPartition), i64>> {
    let admin = patiently(async || Admin::new(cluster_options(&shared.bootstrap)).await).await?;
    let mut positions = BTreeMap::new();
    for group in groups {
        let found =
            admin.group_offsets(group).await.with_context(|| format!("what {group} has committed"))?;
        let position =
            |(partition, committed): (_, CommittedOffset)| ((group.clone(), partition), committed.offset.0);
        positions.extend(found.into_iter().map(position));
    }
    Ok(positions)
}

/// Missing or misplaced acks, in words. Records that were deleted, or that no level has synced, may be missing.
pub(super) async fn missing(
    shared: &Shared,
    recent: &Places,
    ledger: &Ledger,
) -> anyhow::Result<Vec<String>> {
    let found = look(shared, recent).await?;
    let mut missing = Vec::new();
    for (partition, acks) in recent {
        let first_kept = found.starts[partition].0.min(ledger.beginning(partition).most);
        let binds = |ack: &&Placed| ack.offset >= first_kept && !ledger.binding.excuses_ack(ack.identity);
        missing.extend(acks.iter().filter(binds).filter_map(|ack| {
            let there = found.at(partition, ack.offset);
            (there != Some(&Ok(ack.identity))).then(|| {
                format!("{partition} at {}: {} was acked, {there:?} is there", ack.offset, ack.identity)
            })
        }));
    }
    Ok(missing)
}

/// Those of `places` that still hold their records.
pub(super) async fn left(shared: &Shared, places: Places) -> anyhow::Result<Places> {
    let found = look(shared, &places).await?;
    let mut left = places;
    for (partition, places) in &mut left {
        places.retain(|placed| found.at(partition, placed.offset) == Some(&Ok(placed.identity)));
    }
    Ok(left)
}

/// Records between the first and the last of some places, by partition.
#[derive(Default)]
struct Found {
    /// Beginnings of the partitions.
    starts: BTreeMap<TopicPartition, Offset>,
    records: Records,
}

impl Found {
    fn at(&self, partition: &TopicPartition, offset: i64) -> Option<&Result<Identity, String>> {
        let records = self.records.get(partition)?;
        let at = records.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
        Some(&records[at].1)
    }
}

async fn look(shared: &Shared, wanted: &Places) -> anyhow::Result<Found> {
    let partitions: Vec<_> = wanted.keys().cloned().collect();
    if partitions.is_empty() {
        return Ok(Found::default());
    }
    let mut consumer = connect(shared).await?;
    let starts = consumer.beginning_offsets(&partitions).await.context("where the partitions begin")?;
    let mut ends = consumer.end_offsets(&partitions).await.context("where the partitions end")?;
    let mut places = BTreeMap::new();
    for (partition, wanted) in wanted {
        let offsets = || wanted.iter().map(|placed| placed.offset);
        let first = offsets().min().unwrap_or_default().max(starts[partition].0);
        // The load goes on: records after the last of these places belong to another look.
        let end = ends[partition].0.min(offsets().max().unwrap_or_default() + 1);
        ends.insert(partition.clone(), Offset(end));
        if first < end {
            places.insert(partition.clone(), first);
        }
    }
    let records = read(shared, &mut consumer, places, &ends).await?;
    Ok(Found { starts, records })
}

async fn connect(shared: &Shared) -> anyhow::Result<Consumer> {
    let options = || ConsumerOptions {
        fetch_wait_max: FETCH_WAIT,
        auto_commit_interval: None,
        ..ConsumerOptions::new(cluster_options(&shared.bootstrap))
    };
    patiently(async || Consumer::new(options()).await).await
}

async fn patiently<T>(connect: impl AsyncFn() -> Result<T, ClientError>) -> anyhow::Result<T> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        match connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).context("nothing can be read back");
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Reads each partition from its place up to its end.
async fn read(
    shared: &Shared,
    consumer: &mut Consumer,
    places: BTreeMap<TopicPartition, i64>,
    ends: &BTreeMap<TopicPartition, Offset>,
) -> anyhow::Result<Records> {
    let at =
        |(partition, offset): (&TopicPartition, &i64)| (partition.clone(), StartAt::Offset(Offset(*offset)));
    consumer.assign(places.iter().map(at).collect()).await?;
    let mut records = Records::new();
    let mut next = places;
    let mut heard = Instant::now();
    loop {
        next.retain(|partition, next| *next < ends[partition].0);
        if next.is_empty() {
            return Ok(records);
        }
        let polled = consumer.poll(POLL_WAIT).await.context("a partition cannot be read")?;
        if !polled.is_empty() {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE_LIMIT {
            let places: Vec<_> =
                next.iter().map(|(partition, next)| format!("{partition} at {next}")).collect();
            bail!("no more records come from {}, which end later", places.join(", "));
        }
        for record in polled {
            let partition = TopicPartition::new(record.topic, record.partition);
            let offset = record.offset.0;
            if ends.get(&partition).is_some_and(|end| offset < end.0) {
                let value = record.value.as_deref().unwrap_or_default();
                if let Some(next) = next.get_mut(&partition) {
                    *next = offset + 1;
                }
                records.entry(partition).or_default().push((offset, identify(shared.run, value)));
            }
        }
    }
}
