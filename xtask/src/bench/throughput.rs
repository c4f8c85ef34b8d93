//! The throughput section: both servers up, Kafka's tools in turn on each.
//!
//! Owns the interleaving: within a round the servers take turns on every number of partitions, so that other work of
//! the machine falls on both. Each turn has a topic of its own, deleted after it, and begins when everything earlier is
//! written to the disk.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use riverrun_measure::text::number::{counted, rounded};
use riverrun_measure::text::table::Table;
use riverrun_measure::threads::BusyThread;
use serde::Serialize;

use super::client::{self, ClientRun, LatencyMs, RECORD_BYTES};
use super::level::Level;
use super::probe::{Target, Topic, until_answered};
use super::{Bench, round_named};
use crate::clients::install::Toolbox;
use crate::clients::server::{Server, ServerKind};

/// Numbers of partitions that are measured.
pub(super) const PARTITIONS: [i32; 2] = [1, 7];

/// The turn before the first round has one of this many records: enough for Kafka's virtual machine to compile the code
/// that matters.
const WARMUP_DIVISOR: u64 = 2;

/// Direction of the records, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    In,
    Out,
}

impl Direction {
    pub(super) const ALL: [Self; 2] = [Self::In, Self::Out];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// One client run against one server.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) direction: Direction,
    pub(super) partitions: i32,
    pub(super) round: u32,
    pub(super) server: &'static str,
    pub(super) durability: &'static str,
    pub(super) records: u64,
    pub(super) records_per_s: f64,
    pub(super) mib_per_s: f64,
    pub(super) latency_ms: Option<LatencyMs>,
    pub(super) server_cpu_s: f64,
    /// A GB is 10^9 bytes of record values.
    pub(super) server_cpu_s_per_gb: f64,
    /// Since the server began, so it only grows from run to run.
    pub(super) server_peak_memory_bytes: u64,
    pub(super) client_cpu_s: f64,
    pub(super) client_busiest_thread: BusyThread,
}

impl Run {
    pub(super) fn partitions_named(&self) -> String {
        counted(self.partitions, "partition")
    }
}

/// A server that runs for the whole section.
struct Side {
    kind: ServerKind,
    server: Server,
}

/// Parameters of the section.
pub(super) struct Section {
    pub(super) level: Level,
    pub(super) rounds: u32,
    /// Records of each client run.
    pub(super) records: u64,
}

/// Starts the servers, warms them up, measures every round into `runs`, and stops them.
pub(super) fn measure(bench: &Bench, section: &Section, runs: &mut Vec<Run>) -> anyhow::Result<()> {
    let Section { level, rounds, records } = *section;
    let start = |kind: &ServerKind| Ok(Side { kind: *kind, server: bench.launch_at(*kind, level)?.start()? });
    let mut sides = bench.kinds.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let (toolbox, data) = (&bench.toolbox, &bench.data);
    for side in &mut sides {
        eprintln!("warming up {}", side.kind.name());
        for partitions in PARTITIONS {
            let turn = Turn { toolbox, data, round: 0, partitions, level };
            turn.take(side, records / WARMUP_DIVISOR)?;
        }
    }
    for round in 1..=rounds {
        for partitions in PARTITIONS {
            let turn = Turn { toolbox, data, round, partitions, level };
            for side in &mut sides {
                runs.extend(turn.take(side, records)?);
            }
        }
    }
    for mut side in sides {
        side.server.stop()?;
        bench.clear(side.kind)?;
    }
    Ok(())
}

/// Producing and consuming once, on a fresh topic.
struct Turn<'a> {
    toolbox: &'a Toolbox,
    data: &'a Path,
    round: u32,
    partitions: i32,
    level: Level,
}

impl Turn<'_> {
    fn take(&self, side: &mut Side, records: u64) -> anyhow::Result<[Run; 2]> {
        let topic =
            Topic { name: format!("bench-{}-{}", self.round, self.partitions), partitions: self.partitions };
        until_answered(&mut side.server, |probe| {
            probe.create(std::slice::from_ref(&topic))?;
            // The clients must not meet partitions without a leader; the records that this produces do no harm.
            probe.produce(&[Target { topic: topic.name.clone(), partitions: 0..topic.partitions }])
        })?;
        let incoming = self.run(side, &topic, Direction::In, records)?;
        let outgoing = self.run(side, &topic, Direction::Out, records)?;
        until_answered(&mut side.server, |probe| probe.delete(&topic.name))?;
        Ok([incoming, outgoing])
    }

    fn run(&self, side: &mut Side, topic: &Topic, direction: Direction, records: u64) -> anyhow::Result<Run> {
        write_back(self.data)?;
        let (bootstrap, before) = (side.server.bootstrap(), side.server.usage()?);
        let client = match direction {
            Direction::In => client::produce(self.toolbox, &bootstrap, &topic.name, records),
            Direction::Out => client::consume(self.toolbox, &bootstrap, &topic.name, records),
        };
        side.server.must_run()?;
        let used = side.server.usage()?;
        let server_cpu_s = used.cpu_s - before.cpu_s;
        let run = self.result(side.kind, direction, records, &client?, server_cpu_s, used.peak_bytes);
        eprintln!("{}", progress(&run));
        Ok(run)
    }

    fn result(
        &self,
        kind: ServerKind,
        direction: Direction,
        records: u64,
        client: &ClientRun,
        server_cpu_s: f64,
        server_peak_memory_bytes: u64,
    ) -> Run {
        let gb = (records * u64::from(RECORD_BYTES)) as f64 / 1e9;
        Run {
            direction,
            partitions: self.partitions,
            round: self.round,
            server: kind.name(),
            durability: self.level.beside(kind),
            records,
            records_per_s: client.reported.records_per_s,
            mib_per_s: client.reported.mib_per_s,
            latency_ms: client.reported.latency_ms,
            server_cpu_s,
            server_cpu_s_per_gb: server_cpu_s / gb,
            server_peak_memory_bytes,
            client_cpu_s: client.cpu_s,
            client_busiest_thread: client.busiest_thread.clone(),
        }
    }
}

/// Waits until the system has written the page cache of earlier turns, so that no turn pays for another.
pub(super) fn write_back(data: &Path) -> anyhow::Result<()> {
    let directory = File::open(data).with_context(|| format!("{} cannot be opened", data.display()))?;
    Ok(rustix::fs::syncfs(&directory)?)
}

fn progress(run: &Run) -> String {
    let round = round_named(run.round, "warm-up");
    let (partitions, direction) = (run.partitions_named(), run.direction.name());
    format!("{round}: {partitions}, {}, {direction}: {} records/s", run.server, rounded(run.records_per_s))
}

/// One table for each direction.
pub(super) fn tables(runs: &[Run]) -> String {
    Direction::ALL.map(|direction| of_direction(runs, direction)).join("\n")
}

fn of_direction(runs: &[Run], direction: Direction) -> String {
    let runs: Vec<_> = runs.iter().filter(|run| run.direction == direction).collect();
    let records = rounded(runs.first().map_or(0.0, |run| run.records as f64));
    let (title, table) = match direction {
        Direction::In => ("In: ProducerPerformance, acks=all", incoming(&runs)),
        Direction::Out => ("Out: ConsumerPerformance", outgoing(&runs)),
    };
    format!("{title}, {records} records of {RECORD_BYTES} bytes\n\n{}", table.render(0))
}

fn incoming(runs: &[&Run]) -> Table {
    let mut table = Table::of_figures(
        2,
        &[
            "server",
            "durability",
            "partitions",
            "round",
            "records/s",
            "MiB/s",
            "avg ms",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "server CPU s/GB",
            "peak RSS MB",
            "client CPU s",
            "busiest client thread",
        ],
    );
    for run in runs {
        let [server, durability, partitions, round, records, mib, cpu, peak, client, busiest] = common(run);
        let latency = |of: fn(&LatencyMs) -> f64| {
            run.latency_ms.as_ref().map_or_else(|| "-".to_owned(), |latency| format!("{:.0}", of(latency)))
        };
        table.row(&[
            server,
            durability,
            partitions,
            round,
            records,
            mib,
            latency(|latency| latency.average),
            latency(|latency| latency.p50),
            latency(|latency| latency.p95),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            latency(|latency| latency.max),
            cpu,
            peak,
            client,
            busiest,
        ]);
    }
    table
}

fn outgoing(runs: &[&Run]) -> Table {
    let mut table = Table::of_figures(
        2,
        &[
            "server",
            "durability",
            "partitions",
            "round",
            "records/s",
            "MiB/s",
            "server CPU s/GB",
            "peak RSS MB",
            "client CPU s",
            "busiest client thread",
        ],
    );
    for run in runs {
        table.row(&common(run));
    }
    table
}

/// The columns that both tables have, in the order of the shorter one.
fn common(run: &Run) -> [String; 10] {
    [
        run.server.to_owned(),
        run.durability.to_owned(),
        run.partitions.to_string(),
        run.round.to_string(),
        rounded(run.records_per_s),
        format!("{:.1}", run.mib_per_s),
        format!("{:.2}", run.server_cpu_s_per_gb),
        rounded(run.server_peak_memory_bytes as f64 / 1e6),
        format!("{:.2}", run.client_cpu_s),
        run.client_busiest_thread.to_string(),
    ]
}
