//! Metrics of partitions and groups, read from the live server at each scrape.
//!
//! All partitions that have data are shown, in use or not. A scrape opens none of them: a partition that is not in use is
//! shown as the log store remembers it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use riverrun_coordinator::Committed;
use riverrun_log::KnownPartition;
use riverrun_types::{DurabilityLevel, Offset, PartitionId, TopicId};

use super::describe;
use crate::broker::Broker;
use crate::metadata::ClusterImage;
use crate::mounts::MountedQueue;
use crate::partitions::Durability;

/// Reads the server that it belongs to; shows nothing once that is gone.
pub(super) struct PartitionCollector {
    broker: Weak<Broker>,
}

impl PartitionCollector {
    pub(super) fn new(broker: Weak<Broker>) -> Self {
        Self { broker }
    }
}

impl fmt::Debug for PartitionCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionCollector").finish_non_exhaustive()
    }
}

/// A gauge's values by their labels.
pub(super) type Series = Vec<(Vec<(&'static str, String)>, i64)>;

/// A partition as it is shown.
struct Shown {
    topic: Arc<str>,
    id: PartitionId,
    size_bytes: u64,
    log_start: Offset,
    high_watermark: Offset,
    /// `None` for a mounted queue that takes no records from clients: each appender has its own.
    durability: Option<Durability>,
}

impl Collector for PartitionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        let image = broker.catalog.cluster();
        let shown = shown(&broker, &image);
        put_partitions(&mut encoder, &shown)?;
        let lag = group_lag(&broker, &image, &shown);
        let remembered =
            vec![(Vec::new(), i64::try_from(broker.logs.remembered_producers()).unwrap_or(i64::MAX))];
        let help =
            "Idempotent producers that partitions remember: each in each of them, as appended and as settled";
        put(&mut encoder, "producers_remembered", help, None, &remembered)?;
        put(&mut encoder, "group_lag", "Records that a group has not committed yet", None, &lag.known)?;
        let help =
            "Groups whose lag is not shown, or not all of it, because a request with much to do has them now";
        put(&mut encoder, "group_lag_unknown", help, None, &lag.unknown)?;
        let bytes = i64::try_from(broker.groups.memory_bytes()).unwrap_or(i64::MAX);
        let help = "Bytes that groups and their offsets take";
        put(&mut encoder, "group_memory", help, Some(&Unit::Bytes), &[(Vec::new(), bytes)])
    }
}

/// The partitions that have data, or had some, in the order of their log dirs and ids.
fn shown(broker: &Broker, image: &ClusterImage) -> Vec<Shown> {
    let mut levels: HashMap<TopicId, DurabilityLevel> = HashMap::new();
    let mut show = |(dir, known): (usize, KnownPartition)| {
        let topic = image.topic_by_id(known.id.topic)?;
        let wanted = *levels.entry(topic.id).or_insert_with(|| broker.level_wanted(topic));
        let live = broker.partitions.get(known.id);
        Some(Shown {
            topic: Arc::clone(&topic.name),
            id: known.id,
            size_bytes: known.size_bytes,
            log_start: known.log_start,
            high_watermark: live.map_or(known.log_end, |live| live.high_watermark()),
            durability: Some(broker.partition_durability(known.id, dir, wanted)),
        })
    };
    let dirs = 0..broker.logs.dir_count();
    let known = dirs.flat_map(|dir| broker.logs.known(dir).into_iter().map(move |known| (dir, known)));
    let own = known.filter(|(_, known)| known.log_end > Offset::ZERO).filter_map(&mut show);
    own.chain(broker.mounts.all().filter_map(|queue| shown_mounted(queue))).collect()
}

/// A mounted queue; none while it cannot be read.
fn shown_mounted(queue: &MountedQueue) -> Option<Shown> {
    Some(Shown {
        topic: Arc::clone(queue.name()),
        id: PartitionId { topic: queue.id(), index: 0 },
        size_bytes: queue.size_bytes().ok()?,
        log_start: queue.log_start(),
        high_watermark: queue.high_watermark().ok()?,
        durability: queue.durability(),
    })
}

fn put_partitions(encoder: &mut DescriptorEncoder<'_>, shown: &[Shown]) -> fmt::Result {
    let series = |value: fn(&Shown) -> i64| -> Series {
        shown.iter().map(|partition| (labels(partition), value(partition))).collect()
    };
    let sizes = series(|partition| i64::try_from(partition.size_bytes).unwrap_or(i64::MAX));
    put(encoder, "log_size", "Bytes of a partition's segments", Some(&Unit::Bytes), &sizes)?;
    let ends = series(|partition| partition.high_watermark.0);
    put(encoder, "high_watermark", "End offset of what readers of a partition may see", None, &ends)?;
    let starts = series(|partition| partition.log_start.0);
    put(encoder, "log_start_offset", "First offset of a partition that can be read", None, &starts)?;
    let series = |value: fn(&Durability) -> i64| -> Series {
        let known = shown.iter().filter_map(|partition| Some((partition, partition.durability?)));
        known.map(|(partition, durability)| (labels(partition), value(&durability))).collect()
    };
    let levels = series(|durability| i64::from(durability.reached.number()));
    let help =
        "What acked records of a partition survive, from 1 (replicated and synced) to 4 (in the page cache)";
    put(encoder, "durability_level", help, None, &levels)?;
    let wanted = series(|durability| i64::from(durability.wanted.number()));
    let help =
        "The level that the configs of a partition's topic ask for; it differs while a change is under way";
    put(encoder, "durability_level_wanted", help, None, &wanted)?;
    let unsynced = series(|durability| durability.unsynced_records);
    put(
        encoder,
        "unsynced_records",
        "Records of a partition that are appended and not synced yet",
        None,
        &unsynced,
    )
}

fn labels(partition: &Shown) -> Vec<(&'static str, String)> {
    vec![("topic", partition.topic.to_string()), ("partition", partition.id.index.to_string())]
}

/// Shows a gauge.
pub(super) fn put(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: &[(Vec<(&'static str, String)>, i64)],
) -> fmt::Result {
    let mut metric = describe(encoder, name, help, unit, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

/// The lag of groups.
#[derive(Default)]
struct Lag {
    known: Series,
    /// Groups whose lag is not known, or not all of it.
    unknown: Series,
}

/// High watermark less committed offset, for the groups whose shards are loaded. A partition that is not shown has no lag.
/// A group that is lent is not looked at, and counts as unknown.
fn group_lag(broker: &Broker, image: &ClusterImage, shown: &[Shown]) -> Lag {
    let by_id: HashMap<PartitionId, &Shown> =
        shown.iter().map(|partition| (partition.id, partition)).collect();
    let mut lag = Lag::default();
    broker.groups.show_committed(|slice| {
        for Committed { group_id, topic, offsets } in slice.committed {
            let Some(topic) = image.topic(&topic) else { continue };
            for (index, committed) in offsets {
                let Some(partition) = by_id.get(&PartitionId { topic: topic.id, index }) else { continue };
                let mut all = vec![("group", group_id.to_string())];
                all.extend(labels(partition));
                lag.known.push((all, partition.high_watermark.0.saturating_sub(committed.0).max(0)));
            }
        }
        let unknown = slice.lent.iter().map(|group_id| (vec![("group", group_id.to_string())], 1));
        lag.unknown.extend(unknown);
    });
    // Two slices may have seen the same group.
    lag.unknown.dedup();
    lag
}
