//! Our server's metrics, as printed by its admin port.

use std::time::Duration;

use anyhow::ensure;

use crate::clients::server::Server;
use crate::wire::http_get;

/// Bytes of the journal that are not free for reuse.
pub(super) const JOURNAL_BYTES_USED: &str = "riverrun_journal_used_bytes";

/// Whether a journal stores nothing at the moment, and the label of the reason that it is full.
pub(super) const JOURNAL_WAITING: &str = "riverrun_journal_waiting";
pub(super) const FOR_SETTLING: &str = "for=\"settling\"";

/// Bytes of records in memory that are in no segment yet.
pub(super) const WRITE_CACHE_BYTES: &str = "riverrun_write_cache_bytes";

/// Times for which the journal's groups waited, were written and were synced.
pub(super) const JOURNAL_QUEUE_SECONDS: &str = "riverrun_journal_queue_seconds";
pub(super) const JOURNAL_WRITE_SECONDS: &str = "riverrun_journal_write_seconds";
pub(super) const JOURNAL_SYNC_SECONDS: &str = "riverrun_journal_sync_seconds";

/// Longest wait for the server's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The samples of the admin port at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    lines: Vec<(String, f64)>,
}

impl Metrics {
    pub(crate) fn of(server: &Server) -> anyhow::Result<Self> {
        let (status, body) = http_get(server.admin_port(), "/metrics", ANSWER_LIMIT)?;
        ensure!(status == 200, "the admin port answered {status}");
        Ok(Self::parse(&body))
    }

    pub(super) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self { lines: samples.filter_map(sample).collect() }
    }

    /// The sum of all samples of a name, over all labels; `None` if there is no sample.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        let of_name = |sample: &&(String, f64)| {
            sample.0.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        let mut values = self.lines.iter().filter(of_name).map(|(_, value)| *value).peekable();
        values.peek()?;
        Some(values.sum())
    }

    /// Whether some sample of a name with this label is not zero.
    pub(super) fn is_any(&self, name: &str, label: &str) -> bool {
        let is_such = |sample: &(String, f64)| {
            let labels = sample.0.strip_prefix(name).filter(|rest| rest.starts_with('{'));
            labels.is_some_and(|labels| labels.contains(label)) && sample.1 > 0.0
        };
        self.lines.iter().any(is_such)
    }

    /// The cumulative buckets of a histogram over all its labels: upper bounds, which are the last label, and counts.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (sample, count) in &self.lines {
            let Some(labels) = sample.strip_prefix(name).and_then(|rest| rest.strip_prefix("_bucket{"))
            else {
                continue;
            };
            let Some(bound) = labels.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            let bound = if bound == "+Inf" { Some(f64::INFINITY) } else { bound.parse().ok() };
            let Some(bound) = bound else { continue };
            match buckets.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
                Some((_, known)) => *known += count,
                None => buckets.push((bound, *count)),
            }
        }
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        buckets
    }

    /// The mean of a histogram since `before`; `None` if it counted nothing since.
    pub(super) fn mean_since(&self, before: &Self, name: &str) -> Option<f64> {
        let since = |part: &str| {
            let name = format!("{name}_{part}");
            Some(self.sum(&name)? - before.sum(&name).unwrap_or_default())
        };
        let count = since("count").filter(|count| *count > 0.0)?;
        Some(since("sum")? / count)
    }

    /// A quantile of a histogram since `before`, interpolated linearly within its buckets.
    pub(super) fn quantile_since(&self, before: &Self, name: &str, quantile: f64) -> Option<f64> {
        let earlier = before.buckets(name);
        let count_before = |bound: f64| {
            earlier.iter().find(|(known, _)| known.total_cmp(&bound).is_eq()).map_or(0.0, |(_, count)| *count)
        };
        let buckets: Vec<_> = self
            .buckets(name)
            .into_iter()
            .map(|(bound, count)| (bound, count - count_before(bound)))
            .collect();
        let wanted = buckets.last().filter(|(_, count)| *count > 0.0)?.1 * quantile;
        let at = buckets.iter().position(|(_, count)| *count >= wanted)?;
        let (low, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
        let (high, upto) = buckets[at];
        if high.is_infinite() || upto <= below {
            return Some(low);
        }
        Some(low + (high - low) * (wanted - below) / (upto - below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_name_are_summed_over_their_labels() {
        let metrics = Metrics::parse("# HELP a x\na{l=\"1\"} 2\na{l=\"2\"} 3\na_b 9\nc 4.5\n");
        assert_eq!((metrics.sum("a"), metrics.sum("c"), metrics.sum("d")), (Some(5.0), Some(4.5), None));
    }

    #[test]
    fn label_is_looked_for_in_samples_of_its_name() {
        let metrics = Metrics::parse("a{l=\"1\"} 0\na{l=\"2\"} 1\nab{l=\"1\"} 1\n");
        assert!(metrics.is_any("a", "l=\"2\"") && !metrics.is_any("a", "l=\"1\""));
        assert!(!metrics.is_any("c", "l=\"1\""));
    }

    #[test]
    fn mean_counts_only_later_samples() {
        let (before, after) =
            (Metrics::parse("h_sum 10\nh_count 1\n"), Metrics::parse("h_sum 16\nh_count 4\n"));
        assert_eq!(after.mean_since(&before, "h").map(|mean| format!("{mean:.1}")), Some("2.0".to_owned()));
        assert_eq!(after.mean_since(&after, "h"), None);
    }

    #[test]
    fn quantile_counts_only_later_samples() {
        let text = |one: u32, two: u32, all: u32| {
            format!(
                "h_bucket{{le=\"0.1\"}} {one}\nh_bucket{{le=\"0.2\"}} {two}\nh_bucket{{le=\"+Inf\"}} {all}\n"
            )
        };
        let (before, after) = (Metrics::parse(&text(100, 100, 100)), Metrics::parse(&text(100, 110, 110)));
        let median = after.quantile_since(&before, "h", 0.5).unwrap();
        assert!((median - 0.15).abs() < 1e-9, "{median}");
        assert_eq!(after.quantile_since(&after, "h", 0.5), None);
    }
}
