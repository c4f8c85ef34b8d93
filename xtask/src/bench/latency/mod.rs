//! `cargo xtask bench latency`: one record at a time over one plain connection, acked after its sync.
//!
//! The probe is one blocking socket, no virtual machine. The device's own time for a synced write of one block is
//! measured in the same run and directory, alternating with the records, so that both meet the same device. The
//! breakdown comes from the server's own histograms; the rest is network and waking up.

mod device;

use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use riverrun_measure::histogram::{Latencies, LatencySummary};
use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::goals::{Goal, table};
use super::level::Level;
use super::machine::Machine;
use super::metrics::{JOURNAL_QUEUE_SECONDS, JOURNAL_SYNC_SECONDS, JOURNAL_WRITE_SECONDS, Metrics};
use super::probe::{Probe, Target, Topic, until_answered};
use super::{Bench, PROBE, Place};
use crate::clients::server::{Server, ServerKind};
use device::{Device, Method};

/// A goal: the median time above the device's own.
const ABOVE_DEVICE_US_MAX: f64 = 100.0;

/// Measurements of one kind in one turn.
const TURN: usize = 20;

/// Turns of the warm-up.
const WARMUP_TURNS: usize = 20;

/// The server's setting for the blocks of its journal, with its default and its largest.
const ALIGNMENT: &str = "journal.alignment";
const BLOCK_BYTES: usize = 4096;
const BLOCK_BYTES_MAX: usize = 65_536;

/// Arguments of `cargo xtask bench latency`.
#[derive(Args)]
pub(super) struct Options {
    /// Records, and synced writes of the device
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..))]
    records: u32,
    /// Any other setting of the server, as in `riverrun serve --set`; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    place: Place,
}

impl Options {
    /// Bytes of one write to the device: the size to which the server pads a lone record.
    fn block_bytes(&self) -> anyhow::Result<usize> {
        let set = self.set.iter().find_map(|setting| setting.strip_prefix(ALIGNMENT)?.strip_prefix('='));
        let bytes = set.map_or(Ok(BLOCK_BYTES), str::parse)?;
        ensure!(bytes.is_power_of_two() && bytes <= BLOCK_BYTES_MAX, "{ALIGNMENT} of {bytes} bytes");
        Ok(bytes)
    }
}

/// Times of one kind.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    what: String,
    #[serde(flatten)]
    times: LatencySummary,
}

impl Row {
    pub(super) fn of(what: impl Into<String>, times: &Latencies) -> Self {
        Self { what: what.into(), times: times.summary() }
    }

    fn p50_us(&self) -> f64 {
        self.times.p50_us as f64
    }
}

/// A table of times.
pub(super) fn rows(rows: &[Row]) -> String {
    let columns = ["what", "count", "mean us", "p50 us", "p90 us", "p99 us", "max us"];
    let mut table = Table::of_figures(1, &columns);
    for Row { what, times } in rows {
        table.row(&[
            what.clone(),
            times.count.to_string(),
            format!("{:.0}", times.mean_us),
            times.p50_us.to_string(),
            times.p90_us.to_string(),
            times.p99_us.to_string(),
            times.max_us.to_string(),
        ]);
    }
    table.render(0)
}

/// Results of a run, as written to the JSON file.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    rows: Vec<Row>,
    /// Parts of the median record's time at the synced level.
    breakdown: Vec<Part>,
    goals: Vec<Goal>,
}

/// A part of the median record's time; `None` if the server does not report it.
#[derive(Clone, Debug, Serialize)]
struct Part {
    what: &'static str,
    p50_us: Option<f64>,
    /// Exact, while the p50 is as coarse as the server's buckets.
    mean_us: Option<f64>,
}

impl Part {
    /// A part from one of the server's histograms.
    fn of(what: &'static str, name: &str, before: &Metrics, after: &Metrics) -> Self {
        let us = |seconds: f64| seconds * 1e6;
        let p50_us = after.quantile_since(before, name, 0.5).map(us);
        Self { what, p50_us, mean_us: after.mean_since(before, name).map(us) }
    }
}

/// Times of each kind of measurement.
#[derive(Default)]
struct Times {
    device: [Latencies; Method::ALL.len()],
    /// Requests that touch no disk.
    round_trips: Latencies,
    synced: Latencies,
    unsynced: Latencies,
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let (bench, machine) = Bench::prepare(&options.place, vec![ServerKind::Riverrun], PROBE)?;
    let launch = bench.launch(ServerKind::Riverrun)?;
    let mut server = launch.with_own_settings(options.set.iter().cloned()).start()?;
    let (times, before, after) = measure(&mut server, options)?;
    server.stop()?;
    bench.clear(ServerKind::Riverrun)?;
    let findings = judge(machine, &times, options.block_bytes()?, &before, &after);
    print(&findings);
    options.place.write_json(&findings)
}

/// Measures all kinds in turns, with the server's metrics before and after.
fn measure(server: &mut Server, options: &Options) -> anyhow::Result<(Times, Metrics, Metrics)> {
    let topic = |name: &str| Topic { name: name.to_owned(), partitions: 1 };
    until_answered(server, |probe| {
        probe.create_with(&[topic("synced")], Level::Synced.topic_configs())?;
        probe.create_with(&[topic("unsynced")], Level::PageCache.topic_configs())
    })?;
    let (data, block_bytes) = (server.dir().join("data"), options.block_bytes()?);
    let mut devices = Method::ALL
        .into_iter()
        .map(|method| Device::open(&data, method, block_bytes))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut probe = Probe::connect(server)?;
    let [synced, unsynced] =
        ["synced", "unsynced"].map(|topic| Target { topic: topic.to_owned(), partitions: 0..1 });
    let (mut times, mut before) = (Times::default(), Metrics::default());
    let turns = (options.records as usize).div_ceil(TURN);
    for turn in 0..WARMUP_TURNS + turns {
        if turn == WARMUP_TURNS {
            (times, before) = (Times::default(), Metrics::of(server)?);
        }
        for (device, times) in devices.iter_mut().zip(&mut times.device) {
            // A request over the network precedes each write, as between two records: a device that may rest between
            // two writes behaves differently.
            repeat(times, || probe.greet().and_then(|()| device.write()))?;
        }
        repeat(&mut times.round_trips, || timed(|| probe.greet()))?;
        repeat(&mut times.unsynced, || timed(|| probe.produce(std::slice::from_ref(&unsynced))))?;
        repeat(&mut times.synced, || timed(|| probe.produce(std::slice::from_ref(&synced))))?;
    }
    Ok((times, before, Metrics::of(server)?))
}

fn repeat(times: &mut Latencies, mut once: impl FnMut() -> anyhow::Result<Duration>) -> anyhow::Result<()> {
    for _ in 0..TURN {
        times.record(once()?);
    }
    Ok(())
}

fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    what()?;
    Ok(begun.elapsed())
}

fn judge(machine: Machine, times: &Times, block_bytes: usize, before: &Metrics, after: &Metrics) -> Findings {
    let device = Method::ALL.into_iter().zip(&times.device);
    let mut rows: Vec<_> = device
        .map(|(method, times)| Row::of(format!("device, {block_bytes} bytes, {}", method.name()), times))
        .collect();
    // The server chooses the better method by default, and so does the comparison.
    let device_us = rows.iter().map(Row::p50_us).fold(f64::INFINITY, f64::min);
    let round_trips = Row::of("request without disk", &times.round_trips);
    let synced = Row::of(format!("record, durability {}", Level::Synced.name()), &times.synced);
    let above_us = synced.p50_us() - device_us;
    let goal = Goal {
        what: "synced record, p50 above the device's own".to_owned(),
        measured: format!("{above_us:.0} us ({:.0} us, device {device_us:.0} us)", synced.p50_us()),
        wanted: format!("< {ABOVE_DEVICE_US_MAX} us"),
        reached: Some(above_us < ABOVE_DEVICE_US_MAX),
    };
    let breakdown = breakdown(&synced, &round_trips, before, after);
    rows.push(round_trips);
    rows.push(Row::of(format!("record, durability {}", Level::PageCache.name()), &times.unsynced));
    rows.push(synced);
    Findings { machine, rows, breakdown, goals: vec![goal] }
}

/// The parts that the journal reports, the network by a request without disk, and the rest by difference.
fn breakdown(synced: &Row, network: &Row, before: &Metrics, after: &Metrics) -> Vec<Part> {
    let row = |what, row: &Row| Part { what, p50_us: Some(row.p50_us()), mean_us: Some(row.times.mean_us) };
    let mut parts = vec![
        Part::of("queue", JOURNAL_QUEUE_SECONDS, before, after),
        Part::of("write", JOURNAL_WRITE_SECONDS, before, after),
        Part::of("sync", JOURNAL_SYNC_SECONDS, before, after),
        row("network and request", network),
    ];
    let known = |of: fn(&Part) -> Option<f64>| parts.iter().filter_map(of).sum::<f64>();
    let rest = Part {
        what: "wake and the rest, by difference",
        p50_us: Some(synced.p50_us() - known(|part| part.p50_us)),
        mean_us: Some(synced.times.mean_us - known(|part| part.mean_us)),
    };
    parts.extend([rest, row("all", synced)]);
    parts
}

fn print(findings: &Findings) {
    println!("\n{}", findings.machine);
    println!("One at a time, in turns\n\n{}", rows(&findings.rows));
    let mut parts = Table::of_figures(1, &["part of a synced record", "p50 us", "mean us"]);
    for part in &findings.breakdown {
        let digits = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
        parts.row(&[part.what.to_owned(), digits(part.p50_us), digits(part.mean_us)]);
    }
    println!("Breakdown\n\n{}", parts.render(0));
    println!("{}", table(&findings.goals));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_taken_from_sorted_times() {
        let mut times = Latencies::new();
        (1..=101).rev().for_each(|us| times.record_us(us));
        let row = Row::of("x", &times);
        assert_eq!((row.times.p50_us, row.times.p99_us, row.times.max_us), (51, 100, 101));
        assert!(rows(&[row]).ends_with("x       101       51      51      91     100     101\n"));
    }

    #[test]
    fn time_that_the_server_does_not_count_is_the_rest() {
        let text = |count: u32| {
            let of = |name: &str| {
                format!("{name}_bucket{{le=\"0.0001\"}} {count}\n{name}_bucket{{le=\"+Inf\"}} {count}\n")
            };
            of(JOURNAL_WRITE_SECONDS) + &of(JOURNAL_SYNC_SECONDS)
        };
        let (before, after) = (Metrics::default(), Metrics::parse(&text(10)));
        let row = |us| {
            let mut times = Latencies::new();
            times.record_us(us);
            Row::of("x", &times)
        };
        let (synced, network) = (row(300), row(40));
        let parts = breakdown(&synced, &network, &before, &after);
        let rest = parts.iter().find(|part| part.what.starts_with("wake")).unwrap();
        assert_eq!(
            (parts[0].p50_us, rest.p50_us.map(|us| format!("{us:.0}"))),
            (None, Some("160".to_owned()))
        );
    }
}
