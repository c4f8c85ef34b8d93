//! The counts of producers, by the names and in the units of Kafka's producer.
//!
//! Rates and averages are of the whole run. Kafka's are of its last minute or less, so that of a short run both say the same.

use std::time::Duration;

use riverrun_client::{ProducerMetrics, Tally};
use riverrun_measure::text::number;

const US_PER_MS: f64 = 1000.0;
const NS_PER_US: u64 = 1000;

/// Names and values of all producers together, sorted. `record_bytes` is the mean length of a record.
pub(super) fn values(
    each: &[ProducerMetrics],
    record_bytes: f64,
    time: Duration,
) -> Vec<(&'static str, f64)> {
    let sum = |of: fn(&ProducerMetrics) -> u64| each.iter().map(of).sum::<u64>() as f64;
    let count = |of: fn(&ProducerMetrics) -> usize| each.iter().map(of).sum::<usize>() as f64;
    let tally = |of: fn(&ProducerMetrics) -> &Tally| {
        let mut all = Tally::default();
        for one in each {
            all.merge(of(one));
        }
        all
    };
    let rate = |total: f64| number::rate(total, time);
    let mean = |total: f64, count: f64| if count > 0.0 { total / count } else { 0.0 };
    let (batches, queued, latency) =
        (tally(|one| &one.sent_batch_bytes), tally(|one| &one.queued_us), tally(|one| &one.latency_us));
    let (failed, retried, sent) =
        (sum(|one| one.records_failed), sum(|one| one.records_retried), sum(|one| one.records_sent));
    let (split, requests) = (sum(|one| one.batches_split), sum(|one| one.all_requests));
    let (outgoing, incoming) = (sum(|one| one.sent_bytes), sum(|one| one.received_bytes));
    let answers = sum(|one| one.answers);
    vec![
        ("producer-metrics:batch-size-avg", batches.mean()),
        ("producer-metrics:batch-size-max", batches.max as f64),
        ("producer-metrics:batch-split-rate", rate(split)),
        ("producer-metrics:batch-split-total", split),
        ("producer-metrics:buffer-available-bytes", count(|one| one.buffer_free_bytes)),
        ("producer-metrics:buffer-total-bytes", count(|one| one.buffer_bytes)),
        (
            "producer-metrics:bufferpool-wait-time-ns-total",
            sum(|one| one.buffer_wait_us.saturating_mul(NS_PER_US)),
        ),
        ("producer-metrics:connection-creation-total", sum(|one| one.connections)),
        ("producer-metrics:incoming-byte-rate", rate(incoming)),
        ("producer-metrics:incoming-byte-total", incoming),
        ("producer-metrics:network-io-rate", rate(requests + answers)),
        ("producer-metrics:network-io-total", requests + answers),
        ("producer-metrics:outgoing-byte-rate", rate(outgoing)),
        ("producer-metrics:outgoing-byte-total", outgoing),
        ("producer-metrics:record-error-rate", rate(failed)),
        ("producer-metrics:record-error-total", failed),
        ("producer-metrics:record-queue-time-avg", queued.mean() / US_PER_MS),
        ("producer-metrics:record-queue-time-max", queued.max as f64 / US_PER_MS),
        ("producer-metrics:record-retry-rate", rate(retried)),
        ("producer-metrics:record-retry-total", retried),
        ("producer-metrics:record-send-rate", rate(sent)),
        ("producer-metrics:record-send-total", sent),
        ("producer-metrics:record-size-avg", record_bytes),
        ("producer-metrics:records-per-request-avg", mean(sent, sum(|one| one.requests))),
        ("producer-metrics:request-latency-avg", latency.mean() / US_PER_MS),
        ("producer-metrics:request-latency-max", latency.max as f64 / US_PER_MS),
        ("producer-metrics:request-rate", rate(requests)),
        ("producer-metrics:request-size-avg", mean(outgoing, requests)),
        ("producer-metrics:request-total", requests),
        ("producer-metrics:requests-in-flight", count(|one| one.requests_in_flight)),
        ("producer-metrics:response-rate", rate(answers)),
        ("producer-metrics:response-total", answers),
        ("producer-metrics:waiting-threads", count(|one| one.senders_waiting)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_sent_is_zero_and_names_are_sorted_and_given_once() {
        let values = values(&[ProducerMetrics::default()], 0.0, Duration::ZERO);
        assert!(values.iter().all(|(_, value)| *value == 0.0), "{values:?}");
        assert!(values.is_sorted_by(|one, other| one.0 < other.0), "{values:?}");
    }
}
