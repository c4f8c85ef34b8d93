//! Records a second, by partitions and producers, keyless and spread round robin, so that batches are small and the
//! cost of a sync shows.
//!
//! Owns the interleaving, and the number of records of a run. It is derived from the contender's last rate and the
//! wanted time, because rates of contenders differ by orders of magnitude.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Context, anyhow};
use riverrun_measure::text::number::rounded;
use riverrun_measure::text::table::Table;
use riverrun_measure::threads::BusyThread;
use serde::Serialize;

use super::super::client::{self, ClientRun, LatencyMs, Production, RECORD_BYTES};
use super::super::probe::{Target, Topic, until_answered};
use super::super::throughput::write_back;
use super::contender::Contender;
use super::{Counted, Options, ROUND_ROBIN, Side, contenders, side_of};
use crate::bench::{Bench, round_named};

/// Topics with more partitions than this are created once: creating and deleting them in Kafka takes longer than a run.
const FRESH_PARTITIONS_MAX: i32 = 1000;

/// Records of each producer's first run, at an unknown rate.
const PILOT_RECORDS: u64 = 20_000;

/// The same at a level where Kafka syncs each batch on its own.
const SLOW_PILOT_RECORDS: u64 = 2000;

/// Share of the wanted time that the measured part of a run, without the warm-up, must last: a burst into the buffers
/// of both sides tells little about the rate of a longer one.
const MEASURED_SHARE_MIN: f64 = 0.3;

/// Most runs of one turn: each has its records from the rate of the one before, which a disturbance can make far too
/// low.
const TRIES_MAX: u32 = 4;

/// Fewest records of each producer, in any run: percentiles of fewer mean nothing.
const RECORDS_MIN: u64 = 400;

/// One measurement of one contender.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) contender: Contender,
    pub(super) durability: &'static str,
    pub(super) partitions: i32,
    pub(super) producers: u32,
    pub(super) round: u32,
    /// Over all producers.
    pub(super) records: u64,
    /// Time without the warm-up, of the producer that ended first.
    pub(super) measured_s: f64,
    pub(super) records_per_s: f64,
    pub(super) mib_per_s: f64,
    /// Each figure of the producer with the worst one.
    pub(super) latency_ms: LatencyMs,
    pub(super) server_cpu_s_per_gb: f64,
    pub(super) server_peak_memory_bytes: u64,
    pub(super) client_busiest_thread: BusyThread,
}

/// Parameters of a measurement, without the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    partitions: i32,
    producers: u32,
}

/// Measures every round into `runs`.
pub(super) fn measure(
    bench: &Bench,
    options: &Options,
    sides: &mut [Side],
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    let mut section = Section { bench, seconds: options.seconds as f64, rates: BTreeMap::new() };
    // The most partitions last, because topics that are created once stay.
    let mut partitions = options.partitions.clone();
    partitions.sort_unstable();
    for partitions in partitions {
        let cases: Vec<_> =
            options.producers.iter().map(|producers| Case { partitions, producers: *producers }).collect();
        for round in 0..=options.rounds {
            for case in &cases {
                for contender in contenders(sides) {
                    let side = side_of(sides, contender)?;
                    let run = section.turn(side, contender, *case, round)?;
                    if round > 0 {
                        runs.push(run);
                    }
                }
            }
        }
    }
    Ok(())
}

struct Section<'a> {
    bench: &'a Bench,
    /// Wanted time of a run.
    seconds: f64,
    /// Records a second of all producers, from the newest run.
    rates: BTreeMap<(Contender, Case), f64>,
}

impl Section<'_> {
    /// A run that is long enough, after as many shorter ones as that takes. Runs of round 0 also warm the server up.
    fn turn(&mut self, side: &mut Side, contender: Contender, case: Case, round: u32) -> anyhow::Result<Run> {
        until_long_enough(self.seconds, || self.run(side, contender, case, round))
    }

    fn run(&mut self, side: &mut Side, contender: Contender, case: Case, round: u32) -> anyhow::Result<Run> {
        let fresh = case.partitions <= FRESH_PARTITIONS_MAX;
        let topic = prepare(side, contender, case, fresh)?;
        let run = self.produce(side, contender, case, round, &topic)?;
        if fresh {
            until_answered(&mut side.server, |probe| probe.delete(&topic.name))?;
        }
        self.rates.insert((contender, case), run.records_per_s);
        eprintln!("{}", progress(&run));
        Ok(run)
    }

    fn records_each(&self, contender: Contender, case: Case) -> u64 {
        let pilot = if contender == Contender::KafkaSynced { SLOW_PILOT_RECORDS } else { PILOT_RECORDS };
        let Some(rate) = self.rates.get(&(contender, case)) else { return pilot };
        whole(rate * self.seconds / f64::from(case.producers)).max(RECORDS_MIN)
    }

    fn produce(
        &self,
        side: &mut Side,
        contender: Contender,
        case: Case,
        round: u32,
        topic: &Topic,
    ) -> anyhow::Result<Run> {
        write_back(&self.bench.data)?;
        let (bootstrap, before) = (side.server.bootstrap(), side.server.usage()?);
        let Counted { records, warmup_records } =
            Counted::of(self.records_each(contender, case), case.partitions);
        let production = Production {
            topic: &topic.name,
            records,
            warmup_records,
            pace_per_s: None,
            properties: ROUND_ROBIN,
        };
        let clients = produce_at_once(self.bench, &bootstrap, &production, case.producers);
        side.server.must_run()?;
        let used = side.server.usage()?;
        let (clients, records) = (clients?, records * u64::from(case.producers));
        let gb = (records * u64::from(RECORD_BYTES)) as f64 / 1e9;
        Ok(Run {
            contender,
            durability: contender.durability(),
            partitions: case.partitions,
            producers: case.producers,
            round,
            records,
            measured_s: shortest_s(&clients),
            records_per_s: clients.iter().map(|client| client.reported.records_per_s).sum(),
            mib_per_s: clients.iter().map(|client| client.reported.mib_per_s).sum(),
            latency_ms: worst(clients.iter().filter_map(|client| client.reported.latency_ms)),
            server_cpu_s_per_gb: (used.cpu_s - before.cpu_s) / gb,
            server_peak_memory_bytes: used.peak_bytes,
            client_busiest_thread: busiest(&clients).context("no producer ran")?,
        })
    }
}

/// Runs until the rate is known well enough for a run of the right length, which is the last.
fn until_long_enough(wanted_s: f64, mut run: impl FnMut() -> anyhow::Result<Run>) -> anyhow::Result<Run> {
    let mut last = run()?;
    for _ in 1..TRIES_MAX {
        if last.measured_s >= wanted_s * MEASURED_SHARE_MIN {
            break;
        }
        last = run()?;
    }
    Ok(last)
}

/// A topic that is ready for producing at the contender's level.
fn prepare(side: &mut Side, contender: Contender, case: Case, fresh: bool) -> anyhow::Result<Topic> {
    // Kafka in one process copes badly with two topics of ten thousand partitions, so there is only one, and its level
    // is changed.
    let name = if fresh {
        format!("durability-{}-{}", contender.slug(), case.partitions)
    } else {
        format!("durability-{}", case.partitions)
    };
    let topic = Topic { name, partitions: case.partitions };
    until_answered(&mut side.server, |probe| contender.create(probe, &topic))?;
    if !fresh {
        until_answered(&mut side.server, |probe| probe.alter(&topic.name, contender.configs()))?;
        contender.until_reached(&mut side.server, &topic.name)?;
    }
    // The clients must not meet partitions without a leader; the record that this produces does no harm.
    let last = Target { topic: topic.name.clone(), partitions: topic.partitions - 1..topic.partitions };
    until_answered(&mut side.server, |probe| probe.produce(std::slice::from_ref(&last)))?;
    Ok(topic)
}

/// Runs several tools at the same time.
fn produce_at_once(
    bench: &Bench,
    bootstrap: &str,
    production: &Production<'_>,
    producers: u32,
) -> anyhow::Result<Vec<ClientRun>> {
    thread::scope(|scope| {
        let produce = || client::produce_as(&bench.toolbox, bootstrap, production);
        let started: Vec<_> = (0..producers).map(|_| scope.spawn(produce)).collect();
        let ended = started.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|result| result.unwrap_or_else(|_| Err(anyhow!("a producer's thread panicked")))).collect()
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a number of records, far below the largest integer")]
fn whole(records: f64) -> u64 {
    records.max(0.0) as u64
}

fn worst(latencies: impl Iterator<Item = LatencyMs>) -> LatencyMs {
    let worse = |one: LatencyMs, other: LatencyMs| LatencyMs {
        average: one.average.max(other.average),
        p50: one.p50.max(other.p50),
        p95: one.p95.max(other.p95),
        p99: one.p99.max(other.p99),
        p999: one.p999.max(other.p999),
        max: one.max.max(other.max),
    };
    latencies.reduce(worse).unwrap_or_default()
}

fn shortest_s(clients: &[ClientRun]) -> f64 {
    let each = clients.iter().map(|client| client.reported.records / client.reported.records_per_s);
    each.reduce(f64::min).unwrap_or_default()
}

fn busiest(clients: &[ClientRun]) -> Option<BusyThread> {
    let threads = clients.iter().map(|client| &client.busiest_thread);
    threads.max_by(|one, other| one.share.total_cmp(&other.share)).cloned()
}

fn progress(run: &Run) -> String {
    let round = round_named(run.round, "pilot");
    format!(
        "{round}: {} partitions, {} producers, {}, {}: {} of {} records/s",
        run.partitions,
        run.producers,
        run.contender.server().name(),
        run.durability,
        rounded(run.records as f64),
        rounded(run.records_per_s)
    )
}

/// The table, empty if nothing was measured.
pub(super) fn text(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let columns = [
        "server",
        "durability",
        "partitions",
        "producers",
        "round",
        "measured s",
        "records/s",
        "MiB/s",
        "avg ms",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "server CPU s/GB",
        "peak RSS MB",
        "busiest client thread",
    ];
    let mut table = Table::of_figures(2, &columns);
    for run in runs {
        let [average, p50, p99, p999, max] = run.latency_ms.cells();
        table.row(&[
            run.contender.server().name().to_owned(),
            run.durability.to_owned(),
            run.partitions.to_string(),
            run.producers.to_string(),
            run.round.to_string(),
            format!("{:.1}", run.measured_s),
            rounded(run.records_per_s),
            format!("{:.1}", run.mib_per_s),
            average,
            p50,
            p99,
            p999,
            max,
            format!("{:.2}", run.server_cpu_s_per_gb),
            rounded(run.server_peak_memory_bytes as f64 / 1e6),
            run.client_busiest_thread.to_string(),
        ]);
    }
    format!(
        "Throughput: ProducerPerformance, acks=all, round robin, records of {RECORD_BYTES} bytes\n\n{}",
        table.render(0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a contender of this length.
    fn run(measured_s: f64) -> Run {
        Run {
            contender: Contender::KafkaUnsynced,
            durability: "page cache",
            partitions: 1000,
            producers: 1,
            round: 1,
            records: 9685,
            measured_s,
            records_per_s: 27_312.0,
            mib_per_s: 13.3,
            latency_ms: LatencyMs::default(),
            server_cpu_s_per_gb: 1.0,
            server_peak_memory_bytes: 1,
            client_busiest_thread: BusyThread { name: "t".to_owned(), share: 0.1, held_up_share: 0.0 },
        }
    }

    #[test]
    fn run_that_was_too_short_is_repeated() {
        let last = |lengths_s: &[f64]| {
            let mut lengths_s = lengths_s.iter();
            let taken = until_long_enough(5.0, || Ok(run(*lengths_s.next().expect("no more runs"))));
            (taken.unwrap().measured_s, lengths_s.len())
        };
        assert_eq!(last(&[1.5, 9.0]), (1.5, 1));
        assert_eq!(last(&[0.27, 3.9, 9.0]), (3.9, 1));
        assert_eq!(last(&[0.1, 0.2, 0.3, 0.4, 9.0]), (0.4, 1), "it has an end");
    }
}
