//! `perf consume`: reads topics as fast as they come, with one consumer or several of one group.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use indicatif::ProgressBar;
use regex_automata::meta::Regex;
use riverrun_bench::load::consuming::{ConsumeLoad, ConsumeRun};
use riverrun_bench::load::figures::ReadInterval;
use riverrun_bench::random::SeededRandom;
use riverrun_client::{Admin, ConsumerOptions};
use riverrun_measure::text::number;
use riverrun_types::TimestampMs;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use super::date::{DEFAULT_PATTERN, DateFormat};
use super::lines::{self, ReadFigures};
use super::load_failure;
use super::properties::{self, PropertyArgs};
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::progress;
use crate::signals::StopSignals;
use crate::text::output::{print_json, print_text};
use crate::text::time::now;

/// Name of the client where nobody gives another, as Kafka's tool has it.
const CLIENT_ID: &str = "perf-consumer-client";
/// Time between two looks at what was read.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Names of groups of which one is chosen if nobody gives one.
const GROUPS: u64 = 100_000;

#[expect(clippy::struct_excessive_bools, reason = "one for each flag that is there or not")]
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).args(["topic", "include"])))]
#[command(group(ArgGroup::new("records").required(true).args(["num_records", "messages"])))]
pub(super) struct ConsumeArgs {
    /// Read this topic
    #[arg(long)]
    topic: Option<String>,
    /// Read the topics whose whole name matches this regular expression
    #[arg(long, value_name = "PATTERN")]
    include: Option<String>,
    /// End when this many records were read
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    num_records: Option<u64>,
    /// As --num-records (older)
    #[arg(long, value_name = "COUNT", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// The consumers' group [default: perf-consumer- and a number]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    properties: PropertyArgs,
    /// As --command-config (older)
    #[arg(long = "consumer.config", value_name = "FILE", hide = true, conflicts_with = "command_config")]
    consumer_config: Option<PathBuf>,
    /// Bytes of one partition in one answer at most
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576, value_parser = clap::value_parser!(i32).range(1..))]
    fetch_size: i32,
    /// Begin with the next record where the group has committed nothing, and not with the first
    #[arg(long)]
    from_latest: bool,
    /// Taken for Kafka's tool's sake: the system sizes the buffers of connections here
    #[arg(long, value_name = "BYTES")]
    socket_buffer_size: Option<i32>,
    /// Print the client's metrics at the end
    #[arg(long)]
    print_metrics: bool,
    /// Print a line for each consumer and --reporting-interval, the last for what is left, and none about all
    #[arg(long)]
    show_detailed_stats: bool,
    /// End when no record came for this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout: u64,
    /// Milliseconds between two lines of --show-detailed-stats
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    reporting_interval: u64,
    /// How times are written: Java's letters y, M, d, E, H, h, a, m, s, S, X, Z, z and text in single quotes; times are
    /// UTC, names English
    #[arg(long, value_name = "PATTERN", default_value = DEFAULT_PATTERN)]
    date_format: DateFormat,
    /// Print no names of columns
    #[arg(long)]
    hide_header: bool,
    /// Print one JSON document at the end and nothing else
    #[arg(long, conflicts_with_all = ["show_detailed_stats", "print_metrics"])]
    json: bool,
    /// Consumers, which share the group
    #[arg(long, value_name = "COUNT", default_value = "1")]
    threads: NonZeroUsize,
}

impl ConsumeArgs {
    fn options(&mut self) -> Result<ConsumerOptions, Failure> {
        let arguments = std::mem::take(&mut self.properties).or_older(&[], self.consumer_config.as_deref());
        let mut all = arguments.all(&[("client.id", CLIENT_ID)])?;
        // As in Kafka's tool, flags go before properties, defaults of flags included.
        let group = self
            .group
            .clone()
            .unwrap_or_else(|| format!("perf-consumer-{}", SeededRandom::unseeded().below(GROUPS)));
        all.set("group.id", group);
        all.set("max.partition.fetch.bytes", self.fetch_size.to_string());
        all.set("auto.offset.reset", if self.from_latest { "latest" } else { "earliest" });
        if self.socket_buffer_size.is_some() {
            logging::note(
                "warning: the system sizes the buffers of connections, so --socket-buffer-size has no effect",
            );
        }
        Ok(properties::consumer(&all)?)
    }

    async fn topics(&self, options: &ConsumerOptions) -> Result<Vec<String>, Failure> {
        let Some(pattern) = &self.include else { return Ok(self.topic.iter().cloned().collect()) };
        let whole = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|error| Failure::usage(format!("--include {pattern}: {error}")))?;
        let topics = Admin::new(options.cluster.clone()).await?.list_topics().await?;
        let names = topics.into_iter().filter(|topic| !topic.internal).map(|topic| topic.name);
        let matching: Vec<_> = names.filter(|name| whole.is_match(name.as_str())).collect();
        if matching.is_empty() {
            return Err(Failure::new(Exit::NotFound, format!("no topic matches {pattern}")));
        }
        Ok(matching)
    }

    fn records(&self) -> u64 {
        self.num_records.or(self.messages).unwrap_or(0)
    }
}

pub(super) async fn run(mut args: ConsumeArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let topics = args.topics(&options).await?;
    let client_id = options.cluster.client_id.clone();
    if !args.hide_header && !args.json {
        print_text(&format!("{}\n", lines::read_header(args.show_detailed_stats)))?;
    }
    let (records, consumers) = (args.records(), args.threads.get());
    let wall = now();
    let mut run = ConsumeLoad { options, consumers, topics, records }.start(&Handle::current());
    let mut report = Report::new(&args, wall, run.started());
    let mut stop = StopSignals::new()?;
    let ended = report.watch(&run, &mut stop).await;
    let end = run.done().unwrap_or_else(Instant::now);
    run.stop();
    let leaving = async { run.join().await.map_err(load_failure) };
    let ended = ended.and(stop.or_at_once(leaving, "the consumers did not leave their group").await);
    report.finish(&run, end, ended.is_ok())?;
    if args.print_metrics {
        print_text(&report.metrics(&client_id, end))?;
    }
    ended
}

/// The records read so far, and the lines about them.
///
/// Invariants: one of `total` and of `lately` for each consumer; `lately` holds what was read since `line_at`.
struct Report<'a> {
    args: &'a ConsumeArgs,
    bar: ProgressBar,
    wall: TimestampMs,
    started: Instant,
    line_at: Instant,
    read_at: Instant,
    total: Vec<ReadInterval>,
    lately: Vec<ReadInterval>,
    /// The joining of the group was in an earlier line.
    told_joining: bool,
}

impl<'a> Report<'a> {
    fn new(args: &'a ConsumeArgs, wall: TimestampMs, started: Instant) -> Self {
        let bar = progress::bar(Some(args.records()), progress::OF_ALL);
        let none = vec![ReadInterval::default(); args.threads.get()];
        Self {
            args,
            bar,
            wall,
            started,
            line_at: started,
            read_at: started,
            total: none.clone(),
            lately: none,
            told_joining: false,
        }
    }

    /// Until enough was read, nothing comes any more, or it is interrupted.
    async fn watch(&mut self, run: &ConsumeRun, stop: &mut StopSignals) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while run.done().is_none() && !run.has_ended() {
            tokio::select! {
                biased;
                () = stop.next() => {
                    let text = "interrupted; the figures are of the records read until then";
                    return Err(Failure::new(Exit::Interrupted, text));
                }
                _ = ticks.tick() => self.look(run)?,
            }
            if self.read_at.elapsed() > Duration::from_millis(self.args.timeout) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn look(&mut self, run: &ConsumeRun) -> Result<(), Failure> {
        self.take(run);
        if self.line_at.elapsed() >= Duration::from_millis(self.args.reporting_interval) {
            if self.args.show_detailed_stats {
                self.print_detailed(run)?;
            }
            self.lately.fill(ReadInterval::default());
            self.line_at = Instant::now();
        }
        Ok(())
    }

    fn take(&mut self, run: &ConsumeRun) {
        let mut records = 0;
        for ((total, lately), taken) in self.total.iter_mut().zip(&mut self.lately).zip(run.take()) {
            for sum in [total, lately] {
                sum.records += taken.records;
                sum.bytes += taken.bytes;
            }
            records += taken.records;
        }
        if records > 0 {
            self.read_at = Instant::now();
            self.bar.inc(records);
            let lately = self.lately.iter().map(|one| one.records).sum();
            let rate = number::per_second(lately, self.line_at.elapsed());
            self.bar.set_message(format!("{} records/s", number::count(rate)));
        }
    }

    fn print_detailed(&mut self, run: &ConsumeRun) -> Result<(), Failure> {
        let end = Instant::now();
        let time = end - self.line_at;
        let joined = run.assigned().unwrap_or(end);
        // Until there were partitions; in the line in which they came, the part of its time before that.
        let joining =
            if self.told_joining { Duration::ZERO } else { joined.saturating_duration_since(self.line_at) };
        self.told_joining |= run.assigned().is_some();
        let mut text = String::new();
        for (index, (total, lately)) in self.total.iter().zip(&self.lately).enumerate() {
            let figures = ReadFigures {
                bytes: total.bytes,
                records: total.records,
                bytes_lately: lately.bytes,
                records_lately: lately.records,
                time,
                joining,
            };
            text.extend([self.time(end), format!(", {index}, "), figures.columns(), "\n".to_owned()]);
        }
        self.bar.suspend(|| print_text(&text))
    }

    fn time(&self, at: Instant) -> String {
        let since_ms = i64::try_from(at.duration_since(self.started).as_millis()).unwrap_or(i64::MAX);
        self.args.date_format.format(TimestampMs(self.wall.0.saturating_add(since_ms)))
    }

    /// Prints what is to be printed at the end. Too few records are a time-out, unless something else has gone wrong.
    fn finish(&mut self, run: &ConsumeRun, end: Instant, well: bool) -> Result<(), Failure> {
        self.take(run);
        self.bar.finish_and_clear();
        if self.args.show_detailed_stats {
            self.print_detailed(run)?;
        }
        let (records, bytes) = self.sums();
        let timed_out = well && records < self.args.records();
        if timed_out && !self.args.json {
            let timeout = self.args.timeout;
            print_text(&format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({timeout} ms) exceeded. \
                 You can use the --timeout option to increase the timeout.\n"
            ))?;
        }
        if self.args.show_detailed_stats {
            return Ok(());
        }
        let joined = run.assigned().map_or(end, |assigned| assigned.min(end));
        let figures = ReadFigures {
            bytes,
            records,
            bytes_lately: bytes,
            records_lately: records,
            time: end - self.started,
            joining: joined - self.started,
        };
        if self.args.json {
            return print_json(&self.document(&figures, timed_out));
        }
        print_text(&format!("{}, {}, {}\n", self.time(self.started), self.time(end), figures.columns()))
    }

    fn document(&self, figures: &ReadFigures, timed_out: bool) -> Value {
        let fetching = figures.fetching();
        let rate = |count: u64, time| number::rate(count as f64, time);
        json!({
            "start_timestamp_ms": self.wall.0,
            "seconds": figures.time.as_secs_f64(),
            "rebalance_seconds": figures.joining.as_secs_f64(),
            "fetch_seconds": figures.time.saturating_sub(figures.joining).as_secs_f64(),
            "records": figures.records,
            "bytes": figures.bytes,
            "records_per_second": rate(figures.records, figures.time),
            "bytes_per_second": rate(figures.bytes, figures.time),
            "fetch_records_per_second": rate(figures.records, fetching),
            "fetch_bytes_per_second": rate(figures.bytes, fetching),
            "timed_out": timed_out,
        })
    }

    fn sums(&self) -> (u64, u64) {
        (self.total.iter().map(|one| one.records).sum(), self.total.iter().map(|one| one.bytes).sum())
    }

    fn metrics(&self, client_id: &str, end: Instant) -> String {
        let (records, bytes) = self.sums();
        let (records, bytes, time) = (records as f64, bytes as f64, end - self.started);
        let values = [
            ("consumer-fetch-manager-metrics:bytes-consumed-rate", number::rate(bytes, time)),
            ("consumer-fetch-manager-metrics:bytes-consumed-total", bytes),
            ("consumer-fetch-manager-metrics:records-consumed-rate", number::rate(records, time)),
            ("consumer-fetch-manager-metrics:records-consumed-total", records),
        ];
        lines::metrics(client_id, &values)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        consume: ConsumeArgs,
    }

    fn args(flags: &[&str]) -> Result<ConsumeArgs, clap::Error> {
        Line::try_parse_from([&["consume"], flags].concat()).map(|line| line.consume)
    }

    #[test]
    fn a_topic_or_a_pattern_and_a_number_of_records_are_needed() {
        assert!(args(&["--topic", "t"]).is_err());
        assert!(args(&["--num-records", "1"]).is_err());
        assert!(args(&["--topic", "t", "--include", "t", "--num-records", "1"]).is_err());
        assert!(args(&["--topic", "t", "--num-records", "1", "--messages", "1"]).is_err());
        assert_eq!(args(&["--include", "t.*", "--messages", "7"]).expect("older").records(), 7);
    }

    #[test]
    fn flags_go_before_properties() {
        let flags = ["--topic", "t", "--num-records", "1", "--group", "g", "--fetch-size", "5"];
        let pairs =
            ["--command-property", "group.id=other", "max.partition.fetch.bytes=9", "fetch.min.bytes=3"];
        let options = args(&[&flags[..], &pairs].concat()).expect("flags").options().expect("options");
        assert_eq!((options.group.as_deref(), options.partition_max_bytes), (Some("g"), 5));
        assert_eq!((options.fetch_min_bytes, options.cluster.client_id.as_str()), (3, CLIENT_ID));
    }

    #[test]
    fn groups_that_nobody_named_differ() {
        let group = || {
            args(&["--topic", "t", "--num-records", "1"]).expect("flags").options().expect("options").group
        };
        let groups: std::collections::BTreeSet<_> = (0..5).map(|_| group()).collect();
        assert!(groups.len() > 1, "{groups:?}");
    }
}
