//! Metrics of the journals and of the write cache, read from the live server at each scrape. A journal is named by its
//! directory.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use riverrun_journal::{Journal, JournalMetrics, TimeHistogram};

use super::describe;
use super::partitions::put;
use crate::broker::Broker;

/// Reads the server that it belongs to; shows nothing once that is gone.
pub(super) struct JournalCollector {
    broker: Weak<Broker>,
}

impl JournalCollector {
    pub(super) fn new(broker: Weak<Broker>) -> Self {
        Self { broker }
    }
}

impl fmt::Debug for JournalCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalCollector").finish_non_exhaustive()
    }
}

type Labels = Vec<(&'static str, String)>;

/// A journal as it is shown.
struct Shown {
    dir: String,
    used_bytes: u64,
    has_failed: bool,
    is_full: bool,
    is_short: bool,
    metrics: JournalMetrics,
}

impl Shown {
    fn labels(&self) -> Labels {
        vec![("dir", self.dir.clone())]
    }
}

impl Collector for JournalCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(broker) = self.broker.upgrade() else { return Ok(()) };
        let show = |(dir, journal): (std::path::PathBuf, &Journal)| Shown {
            dir: dir.display().to_string(),
            used_bytes: journal.used_bytes(),
            has_failed: journal.failure().is_some(),
            is_full: journal.full_for().is_some(),
            is_short: journal.shortage().is_some(),
            metrics: journal.metrics(),
        };
        let shown: Vec<Shown> =
            broker.config.journal_dirs().into_iter().zip(broker.logs.journals()).map(show).collect();
        put_cache(&mut encoder, &broker)?;
        put_states(&mut encoder, &shown)?;
        put_counters(&mut encoder, &shown)?;
        put_times(&mut encoder, &shown)
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn put_cache(encoder: &mut DescriptorEncoder<'_>, broker: &Broker) -> fmt::Result {
    let cache = broker.logs.write_cache();
    let bytes = vec![(Vec::new(), gauge(cache.bytes()))];
    let help = "Bytes of records in memory that are in no segment yet";
    put(encoder, "write_cache", help, Some(&Unit::Bytes), &bytes)?;
    let limit = vec![(Vec::new(), gauge(cache.bytes_max()))];
    let help = "Bytes of records in no segment at which producers wait";
    put(encoder, "write_cache_limit", help, Some(&Unit::Bytes), &limit)
}

fn put_states(encoder: &mut DescriptorEncoder<'_>, shown: &[Shown]) -> fmt::Result {
    let used: Vec<_> = shown.iter().map(|journal| (journal.labels(), gauge(journal.used_bytes))).collect();
    let help = "Bytes of a journal that are not free for use again";
    put(encoder, "journal_used", help, Some(&Unit::Bytes), &used)?;
    let failed: Vec<_> =
        shown.iter().map(|journal| (journal.labels(), i64::from(journal.has_failed))).collect();
    put(encoder, "journal_failed", "Whether a journal acks nothing any more until a restart", None, &failed)?;
    let waits = |journal: &Shown, reason: &str, is_waiting: bool| {
        let mut labels = journal.labels();
        labels.push(("for", reason.to_owned()));
        (labels, i64::from(is_waiting))
    };
    let waiting: Vec<_> = shown
        .iter()
        .flat_map(|journal| {
            [waits(journal, "settling", journal.is_full), waits(journal, "system", journal.is_short)]
        })
        .collect();
    let help = "Whether a journal stores nothing for the moment: it is full and waits until what it has is in segments, \
                or the system is short of space, descriptors or memory";
    put(encoder, "journal_waiting", help, None, &waiting)
}

fn put_counters(encoder: &mut DescriptorEncoder<'_>, shown: &[Shown]) -> fmt::Result {
    let mut groups = Vec::new();
    for journal in shown {
        let metrics = &journal.metrics;
        for (reason, count) in [
            ("queue_empty", metrics.groups_queue_empty),
            ("group_bytes", metrics.groups_bytes),
            ("group_wait", metrics.groups_wait),
        ] {
            let mut labels = journal.labels();
            labels.push(("reason", reason.to_owned()));
            groups.push((labels, count));
        }
    }
    let help = "Groups of records that a journal has written, by what ended their gathering: nothing more was queued, \
                journal.group.bytes, or journal.group.wait.us";
    put_counter(encoder, "journal_groups", help, None, &groups)?;
    let counted = |value: fn(&JournalMetrics) -> u64| -> Vec<(Labels, u64)> {
        shown.iter().map(|journal| (journal.labels(), value(&journal.metrics))).collect()
    };
    let entries = counted(|metrics| metrics.entries);
    put_counter(encoder, "journal_entries", "Appends that a journal has stored", None, &entries)?;
    let (written, padding) = (counted(|metrics| metrics.bytes), counted(|metrics| metrics.padding_bytes));
    let help = "Bytes that a journal has written, with headers and padding";
    put_counter(encoder, "journal_written", help, Some(&Unit::Bytes), &written)?;
    let help = "Bytes of padding among those that a journal has written";
    put_counter(encoder, "journal_padding", help, Some(&Unit::Bytes), &padding)
}

pub(super) fn put_counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: &[(Labels, u64)],
) -> fmt::Result {
    let mut metric = describe(encoder, name, help, unit, MetricType::Counter)?;
    for (labels, value) in series {
        metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None)?;
    }
    Ok(())
}

/// One of the histograms of a journal.
type TimesOf = fn(&JournalMetrics) -> &TimeHistogram;

fn put_times(encoder: &mut DescriptorEncoder<'_>, shown: &[Shown]) -> fmt::Result {
    let times: [(&str, &str, TimesOf); 3] = [
        ("journal_queue", "Time from an append's submission to the write of its group", |metrics| {
            &metrics.queueing
        }),
        (
            "journal_write",
            "Time to put a group of records together and, unless one call writes and syncs it, to write it",
            |metrics| &metrics.writing,
        ),
        (
            "journal_sync",
            "Time of a sync that made groups of records durable, or of the one call that writes and syncs a group",
            |metrics| &metrics.syncing,
        ),
    ];
    for (name, help, histogram) in times {
        let mut metric = describe(encoder, name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for journal in shown {
            let histogram = histogram(&journal.metrics);
            let labels = journal.labels();
            let mut family = metric.encode_family(&labels)?;
            let sum = seconds(histogram.sum_us);
            family.encode_histogram::<NoLabelSet>(sum, histogram.count(), &buckets(histogram), None)?;
        }
    }
    Ok(())
}

/// The histogram's buckets: the upper bound in seconds, and the count of the bucket alone.
fn buckets(histogram: &TimeHistogram) -> Vec<(f64, u64)> {
    let bound = |bucket| TimeHistogram::bound_us(bucket).map_or(f64::INFINITY, seconds);
    histogram.buckets.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a sum of microseconds is shown, not counted with")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
