//! The result of a run: the original's JSON, with ours beside it.
//!
//! Owns the document that is written for each run. Its top level is that of `OpenMessaging` Benchmark, so that readers
//! of those files can read these; everything else stands under [`OURS`]. Latencies there count from the due time of a
//! record, also those that the original counts from the call of send.

use riverrun_measure::histogram::{Latencies, LatencySummary};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::environment::{Environment, LoopbackFigures, TopicDurability};
use crate::omb::omb_result;
use crate::plan::{Durability, Plan, Replicas, Shrunk, TargetRate};
use crate::process::ProcessRun;
use crate::runner::{
    BacklogFigures, DiskFullFigures, FoundRate, LogDirFigures, MemberFigures, PageCache, RunOutcome, Second,
    WorkerRun,
};

/// The key of our part of the document.
pub const OURS: &str = "riverrun";
/// Format version of our part.
pub const FORMAT: u32 = 1;

/// Place of a run among others, and its circumstances.
#[derive(Clone, Debug, Default)]
pub struct RunLabel {
    /// The suite, or the file.
    pub suite: String,
    /// The scenario of the suite.
    pub scenario: String,
    /// Key and value of each varied parameter.
    pub case: Vec<(String, String)>,
    /// Number of the repetition, from 1.
    pub round: u32,
    /// When it began, RFC 3339.
    pub started: String,
    /// The server's name.
    pub server: String,
    /// Program and version of the server, if known.
    pub software: Option<String>,
    /// The driver's name.
    pub driver: String,
    /// Texts of the files it was read from, by name.
    pub files: Vec<(String, String)>,
    /// The scale that sizes were shrunk by; 1 for not at all.
    pub scale: f64,
    /// The value of `--replication-factor`.
    pub replication_override: Option<i16>,
    /// Replicas that the file asks for.
    pub replicas_wanted: Replicas,
    /// Number of processes that produced the load.
    pub workers: usize,
}

/// Latencies as the report draws them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LatencyFigures {
    #[serde(flatten)]
    summary: LatencySummary,
    /// Pairs of percentile and microseconds.
    quantiles: Vec<(f64, u64)>,
}

impl LatencyFigures {
    fn of(latencies: &Latencies) -> Option<Self> {
        (!latencies.is_empty())
            .then(|| Self { summary: latencies.summary(), quantiles: latencies.quantiles() })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ours<'a> {
    format: u32,
    suite: &'a str,
    scenario: &'a str,
    case: Map<String, Value>,
    round: u32,
    started: &'a str,
    server: &'a str,
    software: Option<&'a str>,
    scale: f64,
    /// Times of the plan if they were shrunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    shrunk: Option<Shrunk>,
    workers: usize,
    latency_from: &'static str,
    setup: Setup<'a>,
    durability: DurabilityFigures<'a>,
    replication: Replication,
    page_cache: &'a PageCache,
    totals: Totals,
    publish: Option<LatencyFigures>,
    publish_delay: Option<LatencyFigures>,
    end_to_end: Option<LatencyFigures>,
    /// Only in runs without producers.
    #[serde(skip_serializing_if = "Option::is_none")]
    poll: Option<LatencyFigures>,
    /// Only in runs with members of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<MemberFigures>,
    /// Only in runs that searched for a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<FoundRate>,
    backlog: Option<BacklogDocument>,
    disk_full: Option<DiskFullFigures>,
    log_dirs: &'a [LogDirFigures],
    seconds: &'a [Second],
    server_usage: Option<ProcessRun>,
    client_usage: Option<ProcessRun>,
    /// Use of the workers. With workers, the client only gives orders.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    worker_usage: &'a [WorkerRun],
    environment: &'a Environment,
    files: Map<String, Value>,
    notes: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Setup<'a> {
    topics: usize,
    partitions: u64,
    producers: usize,
    consumers: usize,
    subscriptions_per_topic: usize,
    value_bytes: usize,
    wanted_rate: Option<f64>,
    rate: &'static str,
    in_flight: Option<u32>,
    warmup_s: f64,
    producer_settings: Map<String, Value>,
    consumer_settings: Map<String, Value>,
    plan: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DurabilityFigures<'a> {
    /// Durability that the plan asks for; `wanted` is the level that the topic's configs ask for, as the server names
    /// it.
    asked: Option<Durability>,
    #[serde(flatten)]
    reached: Option<&'a TopicDurability>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replication {
    wanted: i16,
    used: i16,
    overridden: bool,
    /// `min.insync.replicas` of the topics, if the file sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_in_sync: Option<MinInSync>,
}

#[derive(Debug, Serialize)]
struct MinInSync {
    wanted: i16,
    used: i16,
}

/// Reading of a backlog, and its share of the loopback interface. The rates in the totals span the whole measurement,
/// most of which may have been spent on writing the backlog.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BacklogDocument {
    #[serde(flatten)]
    figures: BacklogFigures,
    /// Bytes per second as a share of the interface's rate with the default congestion control, and without pacing.
    to_loopback: Option<f64>,
    to_unpaced_loopback: Option<f64>,
}

impl BacklogDocument {
    fn new(figures: BacklogFigures, loopback: Option<LoopbackFigures>) -> Self {
        let rate = (figures.drain_s > 0.0).then(|| figures.drained_bytes as f64 / figures.drain_s);
        let share = |limit: Option<f64>| Some(rate? / limit.filter(|limit| *limit > 0.0)?);
        Self {
            figures,
            to_loopback: share(loopback.map(|loopback| loopback.bytes_per_s)),
            to_unpaced_loopback: share(loopback.and_then(|loopback| loopback.unpaced_bytes_per_s)),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    test_s: f64,
    sent: u64,
    acked: u64,
    acked_bytes: u64,
    failed: u64,
    overdue: u64,
    received: u64,
    received_bytes: u64,
    caught_up: u64,
    caught_up_bytes: u64,
    acked_late: u64,
    received_late: u64,
    /// Records that were neither acked nor refused when the wait for them ended.
    unacked: u64,
    /// Records that were acked and not read when the wait for them ended, over all groups but those that catch up.
    unread: u64,
    publish_rate: f64,
    publish_bytes_rate: f64,
    consume_rate: f64,
    consume_bytes_rate: f64,
    catch_up_bytes_rate: f64,
    /// Bytes per second as a share of the interface's rate with the default congestion control, and without pacing.
    publish_to_loopback: Option<f64>,
    publish_to_unpaced_loopback: Option<f64>,
    consume_to_loopback: Option<f64>,
    consume_to_unpaced_loopback: Option<f64>,
    server_cpu_us_per_record: Option<f64>,
}

/// The document of one run.
pub fn document(
    plan: &Plan,
    outcome: &RunOutcome,
    label: &RunLabel,
    environment: &Environment,
    page_cache: &PageCache,
) -> Value {
    let mut document = omb_result(plan, &outcome.figures, &label.driver);
    let ours = ours(plan, outcome, label, environment, page_cache);
    let ours = serde_json::to_value(ours).unwrap_or_else(|error| Value::from(error.to_string()));
    document.insert(OURS.to_owned(), ours);
    Value::Object(document)
}

fn ours<'a>(
    plan: &'a Plan,
    outcome: &'a RunOutcome,
    label: &'a RunLabel,
    environment: &'a Environment,
    page_cache: &'a PageCache,
) -> Ours<'a> {
    let figures = &outcome.figures;
    let texts = |pairs: &[(String, String)]| {
        pairs.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect()
    };
    Ours {
        format: FORMAT,
        suite: &label.suite,
        scenario: &label.scenario,
        case: texts(&label.case),
        round: label.round,
        started: &label.started,
        server: &label.server,
        software: label.software.as_deref(),
        scale: label.scale,
        shrunk: plan.shrunk,
        workers: label.workers,
        latency_from: "the time at which a record was to be sent; without pacing, its send",
        setup: setup(plan),
        durability: DurabilityFigures { asked: plan.durability, reached: outcome.durability.as_ref() },
        replication: replication(plan, label),
        page_cache,
        totals: totals(outcome, environment),
        publish: LatencyFigures::of(&figures.publish),
        publish_delay: LatencyFigures::of(&figures.delay),
        end_to_end: LatencyFigures::of(&figures.end_to_end),
        poll: LatencyFigures::of(&figures.poll),
        members: figures.members,
        search: figures.search,
        backlog: figures.backlog.map(|backlog| BacklogDocument::new(backlog, environment.loopback)),
        disk_full: figures.disk_full,
        log_dirs: &outcome.log_dirs,
        seconds: &figures.seconds,
        server_usage: figures.server,
        client_usage: figures.client,
        worker_usage: &figures.workers,
        environment,
        files: texts(&label.files),
        notes: plan
            .notes
            .iter()
            .chain(&figures.notes)
            .map(String::as_str)
            .chain(environment.notes())
            .collect(),
    }
}

fn replication(plan: &Plan, label: &RunLabel) -> Replication {
    let (wanted, used) = (label.replicas_wanted, plan.replicas());
    Replication {
        wanted: wanted.count,
        used: used.count,
        overridden: label.replication_override.is_some(),
        min_in_sync: wanted
            .min_in_sync
            .zip(used.min_in_sync)
            .map(|(wanted, used)| MinInSync { wanted, used }),
    }
}

fn setup(plan: &Plan) -> Setup<'_> {
    let (wanted_rate, rate) = match plan.rate {
        TargetRate::Fixed(rate) => (Some(rate.get()), "fixed"),
        TargetRate::Search => (None, "searched"),
        TargetRate::Unpaced => (None, "unpaced"),
    };
    let texts = |settings: &crate::properties::Properties| {
        settings.iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    };
    Setup {
        topics: plan.topics.len(),
        partitions: plan.topics.iter().map(|topic| u64::from(topic.partitions)).sum(),
        producers: plan.producers.len(),
        consumers: plan.consumers.len(),
        subscriptions_per_topic: plan.readers(false) + plan.readers(true),
        value_bytes: plan.load.value_bytes,
        wanted_rate,
        rate,
        in_flight: plan.load.in_flight,
        warmup_s: plan.warmup.as_secs_f64(),
        producer_settings: texts(&plan.load.producer_settings),
        consumer_settings: texts(&plan.load.consumer_settings),
        plan: &plan.name,
    }
}

fn totals(outcome: &RunOutcome, environment: &Environment) -> Totals {
    let figures = &outcome.figures;
    let (counts, late) = (&figures.counts, &figures.late);
    let rate = |count: u64| count as f64 / figures.test_s.max(f64::MIN_POSITIVE);
    let share =
        |bytes: u64, limit: Option<f64>| limit.filter(|rate| *rate > 0.0).map(|limit| rate(bytes) / limit);
    let loopback = environment.loopback.map(|loopback| loopback.bytes_per_s);
    let unpaced = environment.loopback.and_then(|loopback| loopback.unpaced_bytes_per_s);
    let records = counts.acked + counts.received + counts.caught_up;
    Totals {
        test_s: figures.test_s,
        sent: counts.sent,
        acked: counts.acked,
        acked_bytes: counts.acked_bytes,
        failed: counts.failed + late.failed,
        overdue: counts.overdue + late.overdue,
        received: counts.received,
        received_bytes: counts.received_bytes,
        caught_up: counts.caught_up,
        caught_up_bytes: counts.caught_up_bytes,
        acked_late: late.acked,
        received_late: late.received,
        unacked: figures.unacked,
        unread: figures.unread,
        publish_rate: rate(counts.acked),
        publish_bytes_rate: rate(counts.acked_bytes),
        consume_rate: rate(counts.received),
        consume_bytes_rate: rate(counts.received_bytes),
        catch_up_bytes_rate: rate(counts.caught_up_bytes),
        publish_to_loopback: share(counts.acked_bytes, loopback),
        publish_to_unpaced_loopback: share(counts.acked_bytes, unpaced),
        consume_to_loopback: share(counts.received_bytes, loopback),
        consume_to_unpaced_loopback: share(counts.received_bytes, unpaced),
        server_cpu_us_per_record: figures
            .server
            // The use of an ended process since its last look is unknown.
            .filter(|server| records > 0 && !server.ended)
            .map(|server| server.cpu_s * 1e6 / records as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Figures;
    use crate::worker::Counts;

    #[test]
    fn share_of_loopback_is_that_of_the_rate_beside_it() {
        let counts =
            Counts { acked_bytes: 6000, received_bytes: 1000, caught_up_bytes: 5000, ..Counts::default() };
        let figures = Figures { test_s: 2.0, counts, ..Figures::default() };
        let outcome = RunOutcome { figures, durability: None, log_dirs: Vec::new(), left: None };
        let loopback = LoopbackFigures { bytes_per_s: 4000.0, unpaced_bytes_per_s: Some(8000.0) };
        let environment = Environment { loopback: Some(loopback), ..Environment::default() };
        let totals = serde_json::to_value(totals(&outcome, &environment)).expect("plain data");
        for (rate, paced, unpaced) in [
            ("publishBytesRate", "publishToLoopback", "publishToUnpacedLoopback"),
            ("consumeBytesRate", "consumeToLoopback", "consumeToUnpacedLoopback"),
        ] {
            let figure = |key: &str| totals[key].as_f64().expect("a number");
            assert!((figure(paced) * 4000.0 - figure(rate)).abs() < 1e-6, "{totals}");
            assert!((figure(unpaced) * 8000.0 - figure(rate)).abs() < 1e-6, "{totals}");
        }
    }

    #[test]
    fn share_of_loopback_of_a_backlog_spans_its_reading() {
        let figures = BacklogFigures { drain_s: 0.5, drained_bytes: 1000, ..BacklogFigures::default() };
        let shares = |figures, loopback| {
            let one = BacklogDocument::new(figures, loopback);
            (one.to_loopback, one.to_unpaced_loopback)
        };
        let loopback = |unpaced| Some(LoopbackFigures { bytes_per_s: 4000.0, unpaced_bytes_per_s: unpaced });
        assert_eq!(shares(figures, loopback(Some(8000.0))), (Some(0.5), Some(0.25)));
        assert_eq!(shares(figures, loopback(None)), (Some(0.5), None));
        assert_eq!(shares(figures, None), (None, None));
        assert_eq!(shares(BacklogFigures::default(), loopback(Some(8000.0))), (None, None), "none was read");
    }
}
