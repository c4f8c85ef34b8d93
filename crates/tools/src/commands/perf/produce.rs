//! `perf produce`: sends as fast as it goes or at a rate, from one thread or many.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use futures_util::future::join_all;
use indicatif::ProgressBar;
use riverrun_bench::keys::{KeyDistribution, Keys, ParseKeyDistributionError};
use riverrun_bench::load::figures::{Figures, Interval};
use riverrun_bench::load::producing::{ProduceLoad, ProduceRun};
use riverrun_bench::load::target::Lane;
use riverrun_bench::payload::Payloads;
use riverrun_client::Producer;
use riverrun_measure::histogram::Latencies;
use riverrun_measure::pacing::Rate;
use riverrun_measure::text::number;
use riverrun_types::TimestampMs;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use super::hdr::HdrFile;
use super::properties::{self, PropertyArgs};
use super::{lines, load_failure, producer_metrics};
use crate::args::parse_pair;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::progress;
use crate::signals::StopSignals;
use crate::text::output::{print_json, print_text};
use crate::text::time::now;

/// Name of the client where nobody gives another, as Kafka's tool has it.
const CLIENT_ID: &str = "perf-producer-client";
/// Time between two looks at what was acked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest wait for the last records' acks once the reader of the output has left.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Seed of payloads and keys: a run can be repeated.
const SEED: u64 = 0;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("payload").required(true).args(["record_size", "payload_file", "payload_monotonic"])))]
pub(super) struct ProduceArgs {
    /// Send to this topic
    #[arg(long)]
    topic: String,
    /// Send this many records
    #[arg(long, value_name = "COUNT")]
    num_records: u64,
    /// Bytes of a record: random letters A to Z
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_073_741_824))]
    record_size: Option<u32>,
    /// A text file; each record is one of its payloads, at random
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Text between the payloads of --payload-file
    #[arg(long, value_name = "TEXT", default_value = "\\n")]
    payload_delimiter: String,
    /// Each record is its number, in decimal digits
    #[arg(long)]
    payload_monotonic: bool,
    /// Records per second of all threads together; -1 for as many as go
    #[arg(long, value_name = "RATE", default_value_t = -1.0, allow_negative_numbers = true, value_parser = parse_throughput)]
    throughput: f64,
    #[command(flatten)]
    properties: PropertyArgs,
    /// As --command-property (older)
    #[arg(long, value_name = "NAME=VALUE", num_args = 1.., value_parser = parse_pair, hide = true)]
    producer_props: Vec<(String, String)>,
    /// As --command-config (older)
    #[arg(long = "producer.config", value_name = "FILE", hide = true, conflicts_with = "command_config")]
    producer_config: Option<PathBuf>,
    /// Print the client's metrics at the end, by Kafka's names and in its units; rates and averages are of the whole run
    #[arg(long)]
    print_metrics: bool,
    /// Print one JSON document at the end and nothing else
    #[arg(long, conflicts_with = "print_metrics")]
    json: bool,
    /// Refused: there are no transactions yet
    #[arg(long, hide = true)]
    transactional_id: Option<String>,
    /// Refused: there are no transactions yet
    #[arg(long, hide = true)]
    transaction_duration_ms: Option<u64>,
    /// Leave the first records out of a second summary, which is printed below the first
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    warmup_records: u64,
    /// Milliseconds between two lines of progress
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    reporting_interval: u64,
    #[command(flatten)]
    keys: KeyArgs,
    /// Threads that send [default: as many as --producers]
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZeroUsize>,
    /// Producers, each with a buffer and connections of its own; threads share them, or send over several in turn
    #[arg(long, value_name = "COUNT", default_value = "1")]
    producers: NonZeroUsize,
    /// Way to choose the partition of a record: uniform-sticky or kip794, sticky or kip480, round-robin,
    /// keyed-round-robin (Kafka's default before KIP-480: turns without a key, and the key's partition with one), or the
    /// name of a class of Kafka's for the first three
    #[arg(long, value_name = "NAME")]
    partitioner: Option<String>,
    /// Write every latency to this file, second by second, as a log for the histogram tools (.hlog), in microseconds; after
    /// the warm-up, and where records are paced also the latency from the call of send, with the tag from-send
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// Which keys records have.
#[derive(Args, Debug)]
struct KeyArgs {
    /// Keys of records: none, range (0, 1, 2 ... below --record-key-range, again and again), random (any of these),
    /// sequential (0, 1, 2 ... without end), or mixed (a random one for every other record)
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = parse_distribution)]
    key_distribution: KeyDistribution,
    /// Number of different keys of range, random and mixed
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    record_key_range: Option<u32>,
}

fn parse_distribution(text: &str) -> Result<KeyDistribution, ParseKeyDistributionError> {
    text.parse()
}

fn parse_throughput(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate < 0.0 || Rate::per_second(rate).is_some() => Ok(rate),
        _ => Err(format!("it must be a number of at least {}, or -1 for no limit", Rate::MIN)),
    }
}

impl KeyArgs {
    fn keys(&self) -> Result<Keys, Failure> {
        let distribution = self.key_distribution;
        match (distribution.needs_range(), self.record_key_range) {
            (true, None) => {
                Err(Failure::usage(format!("--key-distribution {distribution} needs --record-key-range")))
            }
            (false, Some(_)) => Err(Failure::usage(format!(
                "--record-key-range goes with --key-distribution range, random or mixed, not {distribution}"
            ))),
            (_, range) => Ok(Keys::new(distribution, u64::from(range.unwrap_or(1)), SEED)),
        }
    }
}

impl ProduceArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.transactional_id.is_some() || self.transaction_duration_ms.is_some() {
            return Err(Failure::usage("there are no transactions yet, so they cannot be measured"));
        }
        if self.num_records == 0 {
            return Err(Failure::usage("--num-records is at least 1"));
        }
        if self.warmup_records >= self.num_records {
            return Err(Failure::usage("--warmup-records is below --num-records"));
        }
        Ok(())
    }

    fn payloads(&self) -> Result<Payloads, Failure> {
        if let Some(path) = &self.payload_file {
            let delimiter = self.payload_delimiter.replace("\\n", "\n").replace("\\t", "\t");
            return Payloads::from_file(path, &delimiter, SEED)
                .map_err(|error| Failure::io(path.display(), &error));
        }
        Ok(self.record_size.map_or_else(Payloads::monotonic, |size| Payloads::random(size as usize, SEED)))
    }

    async fn producers(&mut self) -> Result<Vec<Arc<Producer>>, Failure> {
        let older = std::mem::take(&mut self.producer_props);
        let arguments = std::mem::take(&mut self.properties);
        let mut all =
            arguments.or_older(&older, self.producer_config.as_deref()).all(&[("client.id", CLIENT_ID)])?;
        if let Some(partitioner) = &self.partitioner {
            all.set("partitioner.class", by_proposal(partitioner));
        }
        let options = properties::producer(&all)?;
        let mut producers = Vec::new();
        for _ in 0..self.producers.get() {
            let producer = Producer::new(options.clone()).await?;
            // The way to the topic is no part of the first records' latency.
            producer
                .cluster()
                .topic(&self.topic, true)
                .await
                .map_err(|error| Failure::from(error).about(format!("topic {}", self.topic)))?;
            producers.push(Arc::new(producer));
        }
        Ok(producers)
    }

    /// The lanes of each thread: a share of the producers, or one that it shares with other threads.
    fn lanes(&self, producers: &[Arc<Producer>]) -> Vec<Vec<Lane>> {
        let lane = |index: usize| Lane::new(Arc::clone(&producers[index]), &self.topic);
        share_out(self.threads.unwrap_or(self.producers).get(), producers.len())
            .into_iter()
            .map(|indexes| indexes.into_iter().map(lane).collect())
            .collect()
    }
}

/// Partitioners by the number of the proposal that they come from.
fn by_proposal(name: &str) -> &str {
    match name {
        "kip480" => "sticky",
        "kip794" => "uniform-sticky",
        other => other,
    }
}

/// For each thread the indexes of its producers.
fn share_out(threads: usize, producers: usize) -> Vec<Vec<usize>> {
    let of = |thread: usize| match thread {
        _ if thread < producers => (thread..producers).step_by(threads).collect(),
        _ => vec![thread % producers],
    };
    (0..threads).map(of).collect()
}

pub(super) async fn run(mut args: ProduceArgs) -> Result<(), Failure> {
    args.check()?;
    let (payloads, keys) = (args.payloads()?, args.keys.keys()?);
    let hdr = args
        .hdr
        .as_ref()
        .map(|path| {
            HdrFile::create(path, &format!("riverrun perf produce, topic {}", args.topic), "from-send")
        })
        .transpose()?;
    let producers = args.producers().await?;
    if args.warmup_records > 0 && !args.json {
        let count = args.warmup_records;
        print_text(&format!(
            "Warmup first {count} records. Steady state results will print after the complete test summary.\n"
        ))?;
    }
    let load = ProduceLoad {
        threads: args.lanes(&producers),
        records: args.num_records,
        warmup_records: args.warmup_records,
        rate: Rate::per_second(args.throughput),
        payloads,
        keys,
    };
    let mut run = load.start(&Handle::current()).map_err(load_failure)?;
    let mut stop = StopSignals::new()?;
    let mut report = Report::new(&args, &producers, hdr, run.started());
    let not_closed = "the producers were not closed";
    match watch(&mut report, &mut run, &mut stop).await {
        Ok(Watched::Done(outcome)) => outcome.and(stop.or_at_once(close(&producers), not_closed).await),
        Ok(Watched::GivenUp) => {
            let text = "interrupted twice; records not acked until then are not counted";
            Err(Failure::new(Exit::Interrupted, text))
        }
        // The report cannot be written.
        Err(failure) => {
            run.stop();
            stop.or_at_once(close_soon(&producers), not_closed).await.and(Err(failure))
        }
    }
}

/// Has what was handed over sent, and waits for it.
async fn close(producers: &[Arc<Producer>]) -> Result<(), Failure> {
    join_all(producers.iter().map(|producer| producer.close())).await;
    Ok(())
}

/// Closes the producers within `CLOSE_WAIT`: without a reader nothing more can be printed.
async fn close_soon(producers: &[Arc<Producer>]) -> Result<(), Failure> {
    let closed = join_all(producers.iter().map(|producer| producer.close_within(CLOSE_WAIT))).await;
    if closed.contains(&false) {
        logging::note(&format!("warning: records not acked within {CLOSE_WAIT:?} are given up"));
    }
    Ok(())
}

/// How it ended to watch a run.
enum Watched {
    /// All records have their outcome, and the run has this one.
    Done(Result<(), Failure>),
    /// Nobody waits for the outcomes that are missing, nor for anything that would wait for them.
    GivenUp,
}

/// Reports until all records have their outcome, or until it is interrupted for the second time; then what there is.
async fn watch(
    report: &mut Report<'_>,
    run: &mut ProduceRun,
    stop: &mut StopSignals,
) -> Result<Watched, Failure> {
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupted = false;
    while !run.is_done() {
        tokio::select! {
            biased;
            () = stop.next() => {
                if interrupted {
                    report.finish(run)?;
                    return Ok(Watched::GivenUp);
                }
                interrupted = true;
                run.stop();
            }
            _ = ticks.tick() => report.look(run)?,
        }
    }
    let joined = run.join().map_err(load_failure);
    for producer in report.producers {
        // All have their outcome. What is counted is so as well after that.
        producer.flush().await;
    }
    report.finish(run)?;
    Ok(Watched::Done(joined.and_then(|()| outcome(report, run, interrupted))))
}

/// Outcome of a run whose records all have theirs.
fn outcome(report: &Report<'_>, run: &ProduceRun, interrupted: bool) -> Result<(), Failure> {
    if let Some(error) = run.take_error() {
        return Err(
            Failure::from(error).about(format!("{} records were not acked, one of them", report.failed()))
        );
    }
    if interrupted {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted; the summary is about the records sent until then",
        ));
    }
    Ok(())
}

/// The measurement so far, and the lines about it.
///
/// Invariants: `lately` holds what was acked since `line_at`.
struct Report<'a> {
    args: &'a ProduceArgs,
    producers: &'a [Arc<Producer>],
    bar: ProgressBar,
    hdr: Option<HdrFile>,
    wall: TimestampMs,
    started: Instant,
    line_at: Instant,
    lately: Figures,
    total: Interval,
    told_steady: bool,
}

impl<'a> Report<'a> {
    fn new(
        args: &'a ProduceArgs,
        producers: &'a [Arc<Producer>],
        hdr: Option<HdrFile>,
        started: Instant,
    ) -> Self {
        let bar = progress::bar(Some(args.num_records), progress::OF_ALL);
        let (lately, total) = (Figures::default(), Interval::default());
        let wall = now();
        Self { args, producers, bar, hdr, wall, started, line_at: started, lately, total, told_steady: false }
    }

    /// Takes what was acked since the last look, and prints a line if it is time.
    fn look(&mut self, run: &ProduceRun) -> Result<(), Failure> {
        self.take(run)?;
        let since_line = self.line_at.elapsed();
        if since_line >= Duration::from_millis(self.args.reporting_interval) {
            self.print(&lines::sent_lately(&self.lately, since_line))?;
            self.lately = Figures::default();
            self.line_at = Instant::now();
        }
        if self.args.warmup_records > 0 && !self.told_steady && run.steady_since().is_some() {
            self.told_steady = true;
            self.print("In steady state.")?;
        }
        Ok(())
    }

    fn take(&mut self, run: &ProduceRun) -> Result<(), Failure> {
        let interval = run.take();
        if let Some(hdr) = &mut self.hdr {
            let steady = &interval.steady;
            let none = Latencies::default();
            hdr.add(steady.latency(), if steady.is_paced() { steady.latency_from_send() } else { &none })?;
        }
        let acked = interval.all();
        self.lately.merge(&acked);
        self.total.merge(&interval);
        self.bar.set_position(self.total.acked());
        if !self.bar.is_hidden() && !acked.latency().is_empty() {
            let rate = number::per_second(self.lately.records, self.line_at.elapsed());
            let p99 = Duration::from_micros(acked.latency().percentile_us(99.0));
            self.bar.set_message(format!("{} records/s  p99 {}", number::count(rate), number::duration(p99)));
        }
        Ok(())
    }

    /// A line for people; none where a program reads.
    fn print(&self, line: &str) -> Result<(), Failure> {
        if self.args.json {
            return Ok(());
        }
        self.bar.suspend(|| print_text(&format!("{line}\n")))
    }

    /// Prints our own lines and then, at the end where scripts look for them, the summaries.
    fn finish(&mut self, run: &ProduceRun) -> Result<(), Failure> {
        self.take(run)?;
        self.bar.finish_and_clear();
        if let Some(hdr) = self.hdr.take() {
            hdr.finish()?;
        }
        let end = run.last_outcome().unwrap_or_else(Instant::now);
        let since = run.steady_since().map_or(Duration::ZERO, |since| end - since);
        if self.args.json {
            return print_json(&self.document(end - self.started, since));
        }
        let all = self.total.all();
        let steady = &self.total.steady;
        let with_warmup = self.args.warmup_records > 0;
        let measured = if with_warmup { steady } else { &all };
        let scope = if with_warmup { " after the warm-up" } else { "" };
        let failed = failed_too(measured.failed);
        if measured.is_paced() {
            let due = format!("latency from the time at which a record was due{scope}{failed}");
            self.print(&lines::microseconds(&due, measured.latency()))?;
        }
        let sent = format!("latency from the call of send{scope}{failed}");
        self.print(&lines::microseconds(&sent, measured.latency_from_send()))?;
        self.print(&lines::sent_in_all(&all, end - self.started, "records"))?;
        if with_warmup {
            self.print(&lines::sent_in_all(steady, since, "steady state records"))?;
        }
        if self.args.print_metrics { self.print_metrics(&all, end - self.started) } else { Ok(()) }
    }

    /// All figures, and apart from them those after the warm-up, if there was to be one.
    fn document(&self, time: Duration, steady_time: Duration) -> Value {
        let with_warmup = self.args.warmup_records > 0;
        let mut document = figures(&self.total.all(), time);
        document["start_timestamp_ms"] = json!(self.wall.0);
        document["failed_records"] = json!(self.total.failed());
        document["after_warmup"] = json!(with_warmup.then(|| figures(&self.total.steady, steady_time)));
        document
    }

    /// Metrics of all producers together: each has the name that the settings give.
    fn print_metrics(&self, all: &Figures, time: Duration) -> Result<(), Failure> {
        let each: Vec<_> = self.producers.iter().map(|producer| producer.metrics()).collect();
        let names = self.producers.iter().map(|producer| &producer.cluster().options().client_id);
        let client_id = names.into_iter().next().map_or(CLIENT_ID, String::as_str);
        let mean_bytes = all.bytes as f64 / all.records.max(1) as f64;
        print_text(&lines::metrics(client_id, &producer_metrics::values(&each, mean_bytes, time)))
    }

    fn failed(&self) -> u64 {
        self.total.failed()
    }
}

/// Kafka's tool leaves failed records out; where they are in our figures, these say so.
fn failed_too(failed: u64) -> String {
    if failed == 0 { String::new() } else { format!(" (with {failed} that failed, until then)") }
}

/// Figures of an interval, for programs. Records and rates are of acked records; latencies also of failed ones, until they
/// failed. Only paced records have a latency from due.
fn figures(figures: &Figures, time: Duration) -> Value {
    json!({
        "seconds": time.as_secs_f64(),
        "records": figures.records,
        "failed": figures.failed,
        "bytes": figures.bytes,
        "records_per_second": number::rate(figures.records as f64, time),
        "bytes_per_second": number::rate(figures.bytes as f64, time),
        "latency_from_due": figures.is_paced().then(|| figures.latency().summary()),
        "latency_from_send": figures.latency_from_send().summary(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        produce: ProduceArgs,
    }

    fn args(flags: &[&str]) -> Result<ProduceArgs, clap::Error> {
        let basic = ["produce", "--topic", "t", "--num-records", "10"];
        Line::try_parse_from([&basic, flags].concat()).map(|line| line.produce)
    }

    #[test]
    fn there_is_exactly_one_kind_of_payload() {
        assert!(args(&[]).is_err());
        assert!(args(&["--record-size", "1", "--payload-monotonic"]).is_err());
        for flags in [&["--record-size", "1"][..], &["--payload-file", "f"], &["--payload-monotonic"]] {
            assert!(args(flags).is_ok(), "{flags:?}");
        }
    }

    #[test]
    fn a_throughput_is_a_rate_or_negative_for_none() {
        let rate = |text| args(&["--record-size", "1", "--throughput", text]).map(|args| args.throughput);
        assert!(rate("-1").is_ok_and(|rate| Rate::per_second(rate).is_none()));
        assert!(rate("2.5").is_ok_and(|rate| Rate::per_second(rate).is_some()));
        for bad in ["0", "1e-300", "NaN", "inf", "x"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_of_a_range_need_one_and_others_take_none() {
        let keys =
            |flags: &[&str]| args(&[&["--payload-monotonic"], flags].concat()).expect("flags").keys.keys();
        for name in ["range", "random", "mixed"] {
            assert!(keys(&["--key-distribution", name]).is_err(), "{name}");
            assert!(keys(&["--key-distribution", name, "--record-key-range", "3"]).is_ok(), "{name}");
        }
        assert!(keys(&["--record-key-range", "3"]).is_err());
        assert!(keys(&["--key-distribution", "sequential"]).is_ok());
    }

    #[test]
    fn transactions_and_a_warmup_of_all_records_are_refused() {
        let check =
            |flags: &[&str]| args(&[&["--payload-monotonic"], flags].concat()).expect("flags").check();
        assert!(check(&["--transactional-id", "t"]).is_err());
        assert!(check(&["--transaction-duration-ms", "5"]).is_err());
        assert!(check(&["--warmup-records", "10"]).is_err());
        assert!(check(&["--warmup-records", "9"]).is_ok());
    }

    #[test]
    fn every_producer_has_a_thread_and_every_thread_a_producer() {
        assert_eq!(share_out(1, 1), [[0]]);
        assert_eq!(share_out(2, 5), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(share_out(5, 2), [[0], [1], [0], [1], [0]]);
        assert_eq!(share_out(3, 3), [[0], [1], [2]]);
    }

    #[test]
    fn partitioners_have_names_and_others_are_refused() {
        for (name, known) in [
            ("kip480", true),
            ("kip794", true),
            ("round-robin", true),
            ("keyed-round-robin", true),
            ("kip1", false),
        ] {
            let all = [("partitioner.class".to_owned(), by_proposal(name).to_owned())].into_iter().collect();
            assert_eq!(properties::producer(&all).is_ok(), known, "{name}");
        }
    }

    #[test]
    fn settings_of_older_flags_are_taken() {
        let flags = ["--payload-monotonic", "--producer-props", "acks=1", "linger.ms=7", "--throughput", "5"];
        assert_eq!(args(&flags).expect("flags").producer_props.len(), 2);
    }
}
