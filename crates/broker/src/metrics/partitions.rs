//! What is read from live partitions and groups at each scrape.
//!
//! Only partitions in use are shown: one that nobody touches costs nothing, here either.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use riverrun_types::{Offset, TopicId};

use crate::broker::Broker;
use crate::metadata::Image;
use crate::partitions::Partition;

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
type Series = Vec<(Vec<(&'static str, String)>, i64)>;

impl Collector for PartitionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        let image = broker.metadata.image();
        let named: Vec<_> = broker
            .partitions
            .all()
            .into_iter()
            .filter_map(|partition| {
                Some((Arc::clone(&image.topic_by_id(partition.id.topic)?.name), partition))
            })
            .collect();
        let series = |value: fn(&Partition) -> i64| -> Series {
            named.iter().map(|(topic, partition)| (labels(topic, partition), value(partition))).collect()
        };
        let sizes = series(|partition| i64::try_from(partition.log.size_bytes()).unwrap_or(i64::MAX));
        put(&mut encoder, "log_size", "Bytes of a partition's segments", Some(&Unit::Bytes), &sizes)?;
        let ends = series(|partition| partition.high_watermark().0);
        put(
            &mut encoder,
            "high_watermark",
            "End offset of what readers of a partition may see",
            None,
            &ends,
        )?;
        let starts = series(|partition| partition.log.known_range().0.0);
        put(&mut encoder, "log_start_offset", "First offset of a partition that can be read", None, &starts)?;
        let levels = series(|partition| i64::from(partition.level().number()));
        put(
            &mut encoder,
            "durability_level",
            "What acked records of a partition survive, from 1 (replicated and synced) to 4 (in the page cache)",
            None,
            &levels,
        )?;
        let lag = group_lag(&broker, &image);
        put(&mut encoder, "group_lag", "Records that a group has not committed yet", None, &lag)?;
        let held = |bytes: usize| vec![(Vec::new(), i64::try_from(bytes).unwrap_or(i64::MAX))];
        let requests = held(broker.budgets.requests.used_bytes());
        put(&mut encoder, "request_memory", "Bytes held by requests", Some(&Unit::Bytes), &requests)?;
        let responses = held(broker.budgets.responses.used_bytes());
        put(&mut encoder, "response_memory", "Bytes held by unsent responses", Some(&Unit::Bytes), &responses)
    }
}

fn labels(topic: &str, partition: &Partition) -> Vec<(&'static str, String)> {
    vec![("topic", topic.to_owned()), ("partition", partition.id.index.to_string())]
}

fn put(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: &Series,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(*value).encode(metric.encode_family(labels)?)?;
    }
    Ok(())
}

/// Group, topic and the offset that was committed.
type Commit = (String, String, Offset);

/// High watermark less committed offset, for the groups whose shards are loaded.
fn group_lag(broker: &Broker, image: &Image) -> Series {
    let mut committed: HashMap<(TopicId, i32), Vec<Commit>> = HashMap::new();
    broker.groups.peek_loaded(|shard| {
        for (group, topic, index, offset) in shard.committed_offsets() {
            let Some(found) = image.topic(topic) else { continue };
            let entry = (group.to_owned(), topic.to_owned(), offset.offset);
            committed.entry((found.id, index)).or_default().push(entry);
        }
    });
    let mut series = Series::new();
    for ((id, index), entries) in committed {
        let Some(end) = image.topic_by_id(id).and_then(|topic| broker.end_offset(topic, index)) else {
            continue;
        };
        for (group, topic, offset) in entries {
            let labels = vec![("group", group), ("topic", topic), ("partition", index.to_string())];
            series.push((labels, (end.0 - offset.0).max(0)));
        }
    }
    series
}
