//! Latency at a rate far below the highest: a producer's wait for its ack, with few partitions and with many.

use riverrun_measure::text::number::rounded;
use riverrun_measure::text::table::Table;
use riverrun_measure::threads::BusyThread;
use serde::Serialize;

use super::super::client::{self, LatencyMs, Production, RECORD_BYTES};
use super::super::probe::{Target, Topic, until_answered};
use super::super::throughput::write_back;
use super::contender::Contender;
use super::{Counted, Options, ROUND_ROBIN, Side, contenders, side_of};
use crate::bench::{Bench, round_named};

/// Numbers of partitions that the goal compares.
pub(super) const FEW: i32 = 100;
pub(super) const MANY: i32 = 10_000;

/// Share of the pace that counts as kept; the end of a run is slower.
const PACE_SHARE_MIN: f64 = 0.95;

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) contender: Contender,
    pub(super) durability: &'static str,
    pub(super) partitions: i32,
    pub(super) round: u32,
    pub(super) pace_per_s: u64,
    /// If it is below the pace, the server could not keep it.
    pub(super) records_per_s: f64,
    pub(super) latency_ms: LatencyMs,
    pub(super) client_busiest_thread: BusyThread,
}

impl Run {
    pub(super) fn held_its_pace(&self) -> bool {
        is_held(self.records_per_s, self.pace_per_s)
    }
}

/// Whether a rate is about the wanted pace.
pub(super) fn is_held(records_per_s: f64, pace_per_s: u64) -> bool {
    records_per_s >= pace_per_s as f64 * PACE_SHARE_MIN
}

/// Measures every round into `runs`: ours at both levels, Kafka without syncing.
pub(super) fn measure(
    bench: &Bench,
    options: &Options,
    sides: &mut [Side],
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    let paced: Vec<_> =
        contenders(sides).into_iter().filter(|contender| *contender != Contender::KafkaSynced).collect();
    for round in 0..=options.rounds {
        for partitions in [FEW, MANY] {
            for contender in &paced {
                let side = side_of(sides, *contender)?;
                let run = turn(bench, options, side, *contender, partitions, round)?;
                eprintln!(
                    "{}: {partitions} partitions, {}, {}: p99 {:.0} ms",
                    round_named(round, "warm-up"),
                    side.kind.name(),
                    run.durability,
                    run.latency_ms.p99
                );
                if round > 0 {
                    runs.push(run);
                }
            }
        }
    }
    Ok(())
}

fn turn(
    bench: &Bench,
    options: &Options,
    side: &mut Side,
    contender: Contender,
    partitions: i32,
    round: u32,
) -> anyhow::Result<Run> {
    let topic = Topic { name: format!("paced-{}-{partitions}", contender.slug()), partitions };
    until_answered(&mut side.server, |probe| contender.create(probe, &topic))?;
    let last = Target { topic: topic.name.clone(), partitions: partitions - 1..partitions };
    until_answered(&mut side.server, |probe| probe.produce(std::slice::from_ref(&last)))?;
    write_back(&bench.data)?;
    let Counted { records, warmup_records } = Counted::of(options.pace * options.seconds, partitions);
    let production = Production {
        topic: &topic.name,
        records,
        warmup_records,
        pace_per_s: Some(options.pace),
        properties: ROUND_ROBIN,
    };
    let client = client::produce_as(&bench.toolbox, &side.server.bootstrap(), &production)?;
    side.server.must_run()?;
    Ok(Run {
        contender,
        durability: contender.durability(),
        partitions,
        round,
        pace_per_s: options.pace,
        records_per_s: client.reported.records_per_s,
        latency_ms: client.reported.latency_ms.unwrap_or_default(),
        client_busiest_thread: client.busiest_thread,
    })
}

/// The table, empty if nothing was measured.
pub(super) fn text(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let mut table = Table::of_figures(
        2,
        &[
            "server",
            "durability",
            "partitions",
            "round",
            "records/s",
            "avg ms",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "busiest client thread",
        ],
    );
    for run in runs {
        let [average, p50, p99, p999, max] = run.latency_ms.cells();
        table.row(&[
            run.contender.server().name().to_owned(),
            run.durability.to_owned(),
            run.partitions.to_string(),
            run.round.to_string(),
            rounded(run.records_per_s),
            average,
            p50,
            p99,
            p999,
            max,
            run.client_busiest_thread.to_string(),
        ]);
    }
    format!(
        "Paced: ProducerPerformance, acks=all, round robin, {} records/s of {RECORD_BYTES} bytes\n\n{}",
        rounded(first.pace_per_s as f64),
        table.render(0)
    )
}
