//! Kafka's own performance tools as the clients of a measurement, and reading their output.
//!
//! The tools' own figures are used unchanged. Their first figures are the slow ones of a cold virtual machine, so the
//! producer's first tenth is its warm-up, which the tool itself leaves out of its figures.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use riverrun_measure::threads::{BusyThread, ThreadSampler};
use serde::Serialize;

use crate::clients::exec;
use crate::clients::install::Toolbox;

/// Bytes of a record's value.
pub(super) const RECORD_BYTES: u16 = 512;

/// One of this many records is the producer's warm-up.
const WARMUP_DIVISOR: u64 = 10;

/// Heap of a tool, as in Kafka's own scripts for them.
const HEAP: &str = "512m";

/// Time after which a run is taken for hung.
const RUN_LIMIT: Duration = Duration::from_mins(10);

/// Time without a record after which the consumer gives up.
const CONSUMER_TIMEOUT_MS: u32 = 60_000;

/// Latencies of produce requests as the producer's tool prints them, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct LatencyMs {
    pub(super) average: f64,
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
}

impl LatencyMs {
    /// The average, p50, p99, p99.9 and the greatest, for a table.
    pub(super) fn cells(&self) -> [String; 5] {
        let whole = |ms: f64| format!("{ms:.0}");
        let average = format!("{:.1}", self.average);
        [average, whole(self.p50), whole(self.p99), whole(self.p999), whole(self.max)]
    }
}

/// Figures that a tool reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reported {
    /// Records that the rate covers.
    pub(super) records: f64,
    pub(super) records_per_s: f64,
    /// In units of 2^20 bytes, as both tools count.
    pub(super) mib_per_s: f64,
    /// `None` for the consumer's tool.
    pub(super) latency_ms: Option<LatencyMs>,
}

/// One run of a tool.
pub(super) struct ClientRun {
    pub(super) reported: Reported,
    pub(super) cpu_s: f64,
    pub(super) busiest_thread: BusyThread,
}

/// Arguments of the producer's tool.
#[derive(Clone, Debug)]
pub(super) struct Production<'a> {
    pub(super) topic: &'a str,
    pub(super) records: u64,
    /// The first of the records, with which the tool warms up; they do not count.
    pub(super) warmup_records: u64,
    /// Records a second; `None` for as fast as the tool can.
    pub(super) pace_per_s: Option<u64>,
    /// Settings of the producer besides `acks=all`.
    pub(super) properties: &'a [&'a str],
}

/// Produces `records` to a topic, as fast as the tool can, acked by all replicas.
pub(super) fn produce(
    toolbox: &Toolbox,
    bootstrap: &str,
    topic: &str,
    records: u64,
) -> anyhow::Result<ClientRun> {
    let warmup_records = records / WARMUP_DIVISOR;
    let production = Production { topic, records, warmup_records, pace_per_s: None, properties: &[] };
    produce_as(toolbox, bootstrap, &production)
}

/// Produces as `production` says, acked by all replicas.
pub(super) fn produce_as(
    toolbox: &Toolbox,
    bootstrap: &str,
    production: &Production<'_>,
) -> anyhow::Result<ClientRun> {
    let Production { topic, records, warmup_records, pace_per_s, properties } = production;
    let mut command = tool(toolbox, "org.apache.kafka.tools.ProducerPerformance", bootstrap, topic, *records);
    let pace = pace_per_s.map_or_else(|| "-1".to_owned(), |pace| pace.to_string());
    command.args(["--record-size", &RECORD_BYTES.to_string(), "--throughput", &pace]);
    command.args(["--warmup-records", &warmup_records.to_string()]);
    command.args(["--command-property", "acks=all"]).args(properties.iter());
    run(&mut command, parse_producer)
}

/// Consumes `records` of a topic from its beginning, in a group of its own.
pub(super) fn consume(
    toolbox: &Toolbox,
    bootstrap: &str,
    topic: &str,
    records: u64,
) -> anyhow::Result<ClientRun> {
    let mut command = tool(toolbox, "org.apache.kafka.tools.ConsumerPerformance", bootstrap, topic, records);
    command.args(["--group", &format!("{topic}-group"), "--timeout", &CONSUMER_TIMEOUT_MS.to_string()]);
    let run = run(&mut command, parse_consumer)?;
    // The tool ends without an error when no record comes for too long.
    if run.reported.records < records as f64 {
        bail!("only {} of {records} records of {topic} were consumed", run.reported.records);
    }
    Ok(run)
}

fn tool(toolbox: &Toolbox, class: &str, bootstrap: &str, topic: &str, records: u64) -> Command {
    let mut command = toolbox.java(HEAP);
    // The tools print numbers in the user's language.
    command.args(["-Duser.language=en", "-Duser.country=US", class]);
    command.args(["--bootstrap-server", bootstrap, "--topic", topic]);
    command.args(["--num-records", &records.to_string()]);
    command
}

fn run(command: &mut Command, parse: fn(&str) -> Option<Reported>) -> anyhow::Result<ClientRun> {
    let mut sampler = ThreadSampler::new();
    let finished = exec::run_watched(command, b"", RUN_LIMIT, &mut |process| sampler.look(process))?;
    if !finished.status.success() {
        bail!("{command:?} failed ({}):\n{}", finished.status, finished.output());
    }
    let reported = parse(&finished.stdout).with_context(|| {
        format!("the tool's figures are missing in what it printed:\n{}", finished.output())
    })?;
    let window = Duration::from_secs_f64(reported.records / reported.records_per_s);
    let busiest_thread =
        sampler.busiest(window, bounds_the_client).context("the tool ended before its threads were seen")?;
    Ok(ClientRun { reported, cpu_s: sampler.cpu_seconds(), busiest_thread })
}

/// The virtual machine's compilers are busy while a program warms up, beside it: they do not hold it back.
fn bounds_the_client(thread: &str) -> bool {
    !(thread.starts_with("C1 Compiler") || thread.starts_with("C2 Compiler"))
}

/// The last line: records after the warm-up, their rates, then latencies, each a number followed by words.
fn parse_producer(printed: &str) -> Option<Reported> {
    let line = printed.lines().rev().find(|line| line.contains(" steady state records sent"))?;
    let parts: Vec<_> = line.split(", ").collect();
    let [count, rate, average, max, p50, p95, p99, p999] = parts.as_slice() else { return None };
    let (rate, mib_rate) = rate.split_once('(')?;
    Some(Reported {
        records: leading(count)?,
        records_per_s: leading(rate)?,
        mib_per_s: leading(mib_rate)?,
        latency_ms: Some(LatencyMs {
            average: leading(average)?,
            p50: leading(p50)?,
            p95: leading(p95)?,
            p99: leading(p99)?,
            p999: leading(p999)?,
            max: leading(max)?,
        }),
    })
}

fn leading(words: &str) -> Option<f64> {
    words.split_whitespace().next()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The last row. Its rates are those of fetching alone: joining the group is not the server's throughput.
fn parse_consumer(printed: &str) -> Option<Reported> {
    let row: Vec<_> =
        printed.lines().rev().find(|line| line.matches(", ").count() == 9)?.split(", ").collect();
    Some(Reported {
        records: leading(row[4])?,
        records_per_s: leading(row[9])?,
        mib_per_s: leading(row[8])?,
        latency_ms: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_producers_figures_are_those_after_its_warm_up() {
        let printed = "223587 records sent, 44699.5 records/sec (21.83 MB/sec), 1095.1 ms avg latency, \
                       1488.0 ms max latency.\n\
                       600000 records sent, 40744.261850 records/sec (19.89 MB/sec), 1362.09 ms avg latency, \
                       3220.00 ms max latency, 1139 ms 50th, 3027 ms 95th, 3175 ms 99th, 3212 ms 99.9th.\n\
                       400000 steady state records sent, 59880.239521 records/sec (29.24 MB/sec), \
                       883.98 ms avg latency, 1488.00 ms max latency, 800 ms 50th, 1384 ms 95th, \
                       1448 ms 99th, 1487 ms 99.9th.\n";
        let latency_ms =
            LatencyMs { average: 883.98, p50: 800.0, p95: 1384.0, p99: 1448.0, p999: 1487.0, max: 1488.0 };
        let expected = Reported {
            records: 400_000.0,
            records_per_s: 59_880.239_521,
            mib_per_s: 29.24,
            latency_ms: Some(latency_ms),
        };
        assert_eq!(parse_producer(printed), Some(expected));
    }

    #[test]
    fn a_producer_that_did_not_end_has_no_figures() {
        assert_eq!(parse_producer("223587 records sent, 44699.5 records/sec (21.83 MB/sec)"), None);
    }

    #[test]
    fn the_consumers_figures_are_those_of_fetching() {
        let printed = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
                       rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
                       2026-11-21 22:55:26:192, 2026-11-21 22:55:30:665, 292.9688, 65.4971, 600000, \
                       134138.1623, 1992, 2481, 118.0849, 241837.9686\n";
        let expected = Reported {
            records: 600_000.0,
            records_per_s: 241_837.968_6,
            mib_per_s: 118.084_9,
            latency_ms: None,
        };
        assert_eq!(parse_consumer(printed), Some(expected));
    }

    #[test]
    fn a_header_alone_has_no_figures() {
        assert_eq!(parse_consumer("a, b, c, d, e, f, g, h, i, j\n"), None);
    }
}
