//! The result in the original's shape, key by key.
//!
//! Publish and end-to-end latencies are in milliseconds, publish delays in microseconds, as in the original. Publish
//! latency counts from the due time of a record; the original counts from the call of send, and so leaves the delay
//! out. End-to-end latencies of 0 count, which the original drops.

use riverrun_measure::histogram::{Latencies, LatencySummary};
use serde_json::{Map, Value};

use crate::plan::Plan;
use crate::runner::{Figures, Period};

/// A figure of one kind of latency, in microseconds.
type Figure = fn(&LatencySummary) -> f64;

/// Figures and the ends of their keys.
const FIGURES: [(&str, Figure); 8] = [
    ("Avg", |latency| latency.mean_us),
    ("50pct", |latency| latency.p50_us as f64),
    ("75pct", |latency| latency.p75_us as f64),
    ("95pct", |latency| latency.p95_us as f64),
    ("99pct", |latency| latency.p99_us as f64),
    ("999pct", |latency| latency.p999_us as f64),
    ("9999pct", |latency| latency.p9999_us as f64),
    ("Max", |latency| latency.max_us as f64),
];

/// A kind of latency.
struct Column {
    /// Its name in the keys of periods, and in those of the whole run.
    names: [&'static str; 2],
    /// Microseconds in its unit.
    unit: f64,
    of_period: fn(&Period) -> &LatencySummary,
    of_all: fn(&Figures) -> &Latencies,
}

const COLUMNS: [Column; 3] = [
    Column {
        names: ["publishLatency", "aggregatedPublishLatency"],
        unit: 1000.0,
        of_period: |period| &period.publish,
        of_all: |figures| &figures.publish,
    },
    Column {
        names: ["publishDelayLatency", "aggregatedPublishDelayLatency"],
        unit: 1.0,
        of_period: |period| &period.delay,
        of_all: |figures| &figures.delay,
    },
    Column {
        names: ["endToEndLatency", "aggregatedEndToEndLatency"],
        unit: 1000.0,
        of_period: |period| &period.end_to_end,
        of_all: |figures| &figures.end_to_end,
    },
];

/// The result of a run as the original writes it.
pub(crate) fn omb_result(plan: &Plan, figures: &Figures, driver: &str) -> Map<String, Value> {
    let topics = plan.topics.len();
    let per_topic = |count: usize| count.checked_div(topics).unwrap_or(count);
    let mut map = Map::new();
    let mut put = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
    put("workload", plan.name.as_str().into());
    put("driver", driver.into());
    put("messageSize", plan.load.value_bytes.into());
    put("topics", topics.into());
    put("partitions", plan.topics.first().map_or(0, |topic| topic.partitions).into());
    put("producersPerTopic", per_topic(plan.producers.len()).into());
    // Members of one group, as in the original, whatever the key's name says.
    put("consumersPerTopic", plan.members().into());
    let each = |of: &dyn Fn(&Period) -> Value| figures.periods.iter().map(of).collect::<Value>();
    let rate =
        |period: &Period, count: u64| Value::from(count as f64 / period.seconds.max(f64::MIN_POSITIVE));
    put("publishRate", each(&|one| rate(one, one.counts.acked)));
    put("publishErrorRate", each(&|one| rate(one, one.counts.failed)));
    put("consumeRate", each(&|one| rate(one, one.counts.received + one.counts.caught_up)));
    put("backlog", each(&|one| one.backlog.into()));
    for Column { names: [period_name, all_name], unit, of_period, of_all } in COLUMNS {
        let all = of_all(figures);
        let summary = all.summary();
        for (end, figure) in FIGURES {
            put(&format!("{period_name}{end}"), each(&|one| (figure(of_period(one)) / unit).into()));
            put(&format!("{all_name}{end}"), (figure(&summary) / unit).into());
        }
        put(&format!("{all_name}Quantiles"), quantiles(all, unit));
    }
    map
}

fn quantiles(latencies: &Latencies, unit: f64) -> Value {
    let pairs = latencies.quantiles().into_iter();
    pairs.map(|(percentile, us)| (percentile.to_string(), Value::from(us as f64 / unit))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Driver, PlanOptions, Workload, to_plan};
    use super::*;

    #[test]
    fn every_key_of_the_original_is_written_in_its_unit() {
        let text = "name: n\ntopics: 2\npartitionsPerTopic: 5\nmessageSize: 4\nsubscriptionsPerTopic: 2
consumerPerSubscription: 3\nproducersPerTopic: 2\nproducerRate: 7\ntestDurationMinutes: 1\n";
        let workload = Workload::parse("w", text).expect("a workload");
        let plan = to_plan("w", &workload, &Driver::default(), &PlanOptions::default()).expect("a plan");
        let mut figures = Figures::default();
        let mut period = Period { seconds: 10.0, backlog: 4, ..Period::default() };
        figures.publish.record_us(2000);
        figures.delay.record_us(3);
        period.counts.acked = 50;
        (period.publish, period.delay) = (figures.publish.summary(), figures.delay.summary());
        figures.periods = vec![period.clone(), period];
        let result = omb_result(&plan, &figures, "Kafka");
        let number = |key: &str| result[key].as_f64().unwrap_or_else(|| panic!("{key} is {:?}", result[key]));
        assert_eq!((result["workload"].as_str(), result["driver"].as_str()), (Some("n"), Some("Kafka")));
        for (key, expected) in [
            ("messageSize", 4.0),
            ("topics", 2.0),
            ("partitions", 5.0),
            ("producersPerTopic", 2.0),
            ("consumersPerTopic", 3.0),
            ("aggregatedPublishLatencyMax", 2.0),
            ("aggregatedPublishLatency9999pct", 2.0),
            ("aggregatedPublishDelayLatencyAvg", 3.0),
            ("aggregatedEndToEndLatency50pct", 0.0),
        ] {
            assert!((number(key) - expected).abs() < 1e-9, "{key}: {}", number(key));
        }
        assert_eq!(result["publishRate"], serde_json::json!([5.0, 5.0]));
        assert_eq!(result["backlog"], serde_json::json!([4, 4]));
        assert_eq!(result["publishLatency99pct"], serde_json::json!([2.0, 2.0]));
        assert_eq!(result["publishDelayLatencyMax"], serde_json::json!([3.0, 3.0]));
        assert!(result["aggregatedPublishLatencyQuantiles"].is_object());
        assert!(result.contains_key("endToEndLatencyAvg") && result.contains_key("publishErrorRate"));
    }
}
