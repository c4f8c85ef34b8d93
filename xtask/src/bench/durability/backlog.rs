//! Latency of producing while a reader reads records that no cache holds any more.
//!
//! The backlog is larger than the server's tail cache, and is dropped from the page cache before it is read. The reader
//! is our own client in this process, because another virtual machine would take the processor that the servers need.
//! It reads at the same rate from both servers.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use riverrun_client::{ClusterOptions, Consumer, ConsumerOptions, StartAt, TopicPartition};
use riverrun_measure::text::number::rounded;
use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::super::client::{self, LatencyMs, Production, RECORD_BYTES};
use super::super::probe::{Target, Topic, batch_of, until_answered};
use super::super::throughput::write_back;
use super::super::{median, ratio_by_round};
use super::contender::Contender;
use super::{Options, Side, contenders, paced, segments, side_of};
use crate::bench::{Bench, round_named};

const PARTITIONS: i32 = 8;

/// Value of a record of the backlog: few large ones are quickly made.
const BACKLOG_VALUE_BYTES: usize = 64 << 10;

/// One of this many records is the tool's warm-up.
const WARMUP_DIVISOR: u64 = 4;

/// Share of the wanted rate. The reader begins anew at the end of the backlog, and starts before the tool is at work.
const READ_SHARE_MIN: f64 = 0.9;

/// Longest wait of the reader for records, and so for the order to stop.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    pub(super) contender: Contender,
    pub(super) durability: &'static str,
    pub(super) round: u32,
    /// In units of 2^20 bytes; `None` without a reader.
    pub(super) read_mib_per_s: Option<f64>,
    /// The wanted rate of the reader; 0 for as fast as possible.
    pub(super) limit_mib_per_s: u64,
    pub(super) pace_per_s: u64,
    /// If it is below the pace, the server could not keep it.
    pub(super) records_per_s: f64,
    pub(super) latency_ms: LatencyMs,
}

impl Run {
    pub(super) fn held_its_pace(&self) -> bool {
        paced::is_held(self.records_per_s, self.pace_per_s)
    }

    /// Whether the reader was as fast as wanted, or no reader was wanted.
    pub(super) fn read_enough(&self) -> bool {
        let least = self.limit_mib_per_s as f64 * READ_SHARE_MIN;
        self.read_mib_per_s.is_none_or(|rate| rate > 0.0 && rate >= least)
    }
}

/// Measures every round into `runs`: both servers, with syncing and without.
pub(super) fn measure(
    bench: &Bench,
    options: &Options,
    sides: &mut [Side],
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    let contenders = contenders(sides);
    for contender in &contenders {
        fill(side_of(sides, *contender)?, *contender, options.backlog_mib << 20)?;
    }
    for round in 0..=options.rounds {
        for with_reader in [false, true] {
            for contender in &contenders {
                let side = side_of(sides, *contender)?;
                let run = turn(bench, options, side, *contender, round, with_reader)?;
                eprintln!(
                    "{}: {}, {}: p99 {:.0} ms {}",
                    round_named(round, "warm-up"),
                    side.kind.name(),
                    run.durability,
                    run.latency_ms.p99,
                    run.read_mib_per_s.map_or_else(String::new, |rate| format!("with {rate:.0} MiB/s read"))
                );
                if round > 0 {
                    runs.push(run);
                }
            }
        }
    }
    Ok(())
}

fn name_of(contender: Contender) -> String {
    format!("backlog-{}", contender.slug())
}

/// Creates the topic, and the backlog in it.
fn fill(side: &mut Side, contender: Contender, bytes: u64) -> anyhow::Result<()> {
    let topic = Topic { name: name_of(contender), partitions: PARTITIONS };
    // Kafka syncs each batch on its own, which would take minutes. The level to measure is set for the load.
    let filling = if contender == Contender::KafkaSynced { Contender::KafkaUnsynced } else { contender };
    until_answered(&mut side.server, |probe| filling.create(probe, &topic))?;
    let all = [Target { topic: topic.name.clone(), partitions: 0..PARTITIONS }];
    let batch = batch_of(BACKLOG_VALUE_BYTES)?;
    let requests = bytes.div_ceil(batch.len() as u64 * u64::from(PARTITIONS.unsigned_abs()));
    let mut left = requests;
    until_answered(&mut side.server, |probe| {
        while left > 0 {
            probe.produce_batch(&all, &batch)?;
            left -= 1;
        }
        Ok(())
    })?;
    until_answered(&mut side.server, |probe| probe.alter(&topic.name, contender.configs()))
}

fn turn(
    bench: &Bench,
    options: &Options,
    side: &mut Side,
    contender: Contender,
    round: u32,
    with_reader: bool,
) -> anyhow::Result<Run> {
    write_back(&bench.data)?;
    let bootstrap = side.server.bootstrap();
    let topic = name_of(contender);
    let records = options.pace * options.seconds;
    let production = Production {
        topic: &topic,
        records,
        warmup_records: records / WARMUP_DIVISOR,
        pace_per_s: Some(options.pace),
        properties: &[],
    };
    if with_reader {
        drop_from_cache(side)?;
    }
    let reader = Reader {
        bootstrap: &bootstrap,
        topic: &topic,
        limit_mib_per_s: options.backlog_mib_per_s,
        stop: AtomicBool::new(false),
        bytes: AtomicU64::new(0),
    };
    let begun = Instant::now();
    let client = thread::scope(|scope| {
        let reading = with_reader.then(|| scope.spawn(|| reader.run()));
        let client = client::produce_as(&bench.toolbox, &bootstrap, &production);
        reader.stop.store(true, Ordering::Relaxed);
        match reading.map(thread::ScopedJoinHandle::join) {
            Some(Err(_)) => Err(anyhow!("the reader's thread panicked")),
            Some(Ok(read)) => read.and(client),
            None => client,
        }
    })?;
    side.server.must_run()?;
    let read_mib = reader.bytes.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
    Ok(Run {
        contender,
        durability: contender.durability(),
        round,
        read_mib_per_s: with_reader.then(|| read_mib / begun.elapsed().as_secs_f64()),
        limit_mib_per_s: options.backlog_mib_per_s,
        pace_per_s: options.pace,
        records_per_s: client.reported.records_per_s,
        latency_ms: client.reported.latency_ms.unwrap_or_default(),
    })
}

/// Drops the server's segments from the page cache, as far as they are written, so that a backlog is read from the
/// disk.
fn drop_from_cache(side: &Side) -> anyhow::Result<()> {
    for segment in segments(&side.server.dir().join("data"))? {
        // A segment that was deleted meanwhile has nothing in the cache.
        if let Ok(file) = File::open(&segment) {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .with_context(|| segment.display().to_string())?;
        }
    }
    Ok(())
}

/// Reads a topic from its beginning, again and again, at a limited rate.
struct Reader<'a> {
    bootstrap: &'a str,
    topic: &'a str,
    /// No limit if zero.
    limit_mib_per_s: u64,
    stop: AtomicBool,
    bytes: AtomicU64,
}

impl Reader<'_> {
    fn run(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            while !self.stop.load(Ordering::Relaxed) {
                self.once().await?;
            }
            Ok(())
        })
    }

    /// Reads from the beginning to the end as of the call.
    async fn once(&self) -> anyhow::Result<()> {
        let mut consumer = Consumer::new(ConsumerOptions::new(ClusterOptions::new(self.bootstrap))).await?;
        let partitions: Vec<_> =
            (0..PARTITIONS).map(|index| TopicPartition::new(self.topic, index)).collect();
        let ends = consumer.end_offsets(&partitions).await?;
        consumer
            .assign(partitions.iter().map(|partition| (partition.clone(), StartAt::Earliest)).collect())
            .await?;
        let (begun, mut read) = (Instant::now(), 0_u64);
        let at_end = |consumer: &Consumer| {
            ends.iter().all(|(partition, end)| consumer.position(partition).is_some_and(|at| at >= *end))
        };
        while !self.stop.load(Ordering::Relaxed) && !at_end(&consumer) {
            let records = consumer.poll(POLL_WAIT).await?;
            let values = records.iter().filter_map(|record| record.value.as_deref());
            let bytes: usize = values.map(<[u8]>::len).sum();
            read += bytes as u64;
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            if self.limit_mib_per_s > 0 {
                let due = Duration::from_secs_f64(read as f64 / (self.limit_mib_per_s << 20) as f64);
                tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
            }
        }
        Ok(())
    }
}

/// The table, empty if nothing was measured.
pub(super) fn text(runs: &[Run]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let columns = [
        "server",
        "durability",
        "round",
        "backlog read MiB/s",
        "records/s",
        "avg ms",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
    ];
    let mut table = Table::of_figures(2, &columns);
    for run in runs {
        let [average, p50, p99, p999, max] = run.latency_ms.cells();
        table.row(&[
            run.contender.server().name().to_owned(),
            run.durability.to_owned(),
            run.round.to_string(),
            run.read_mib_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
            rounded(run.records_per_s),
            average,
            p50,
            p99,
            p999,
            max,
        ]);
    }
    format!(
        "Beside a reader of the backlog: ProducerPerformance, acks=all, paced, records of {RECORD_BYTES} bytes\n\n{}\n{}",
        table.render(0),
        summary(runs)
    )
}

/// The p99 of each contender with and without the reader, their ratio, and the reader's rate.
fn summary(runs: &[Run]) -> String {
    let columns =
        ["server", "durability", "p99 ms alone", "beside the reader", "ratio", "backlog read MiB/s"];
    let mut table = Table::of_figures(2, &columns);
    for contender in Contender::ALL {
        let p99 = |with_reader| {
            let is_such =
                move |run: &&Run| run.contender == contender && run.read_mib_per_s.is_some() == with_reader;
            median(runs.iter().filter(is_such).map(|run| run.latency_ms.p99))
        };
        if let Some(ratio) = ratio(runs, contender) {
            table.row(&[
                contender.server().name().to_owned(),
                contender.durability().to_owned(),
                format!("{:.0}", p99(false)),
                format!("{:.0}", p99(true)),
                format!("{ratio:.2}x"),
                format!("{:.0}", read_mib_per_s(runs, contender)),
            ]);
        }
    }
    format!("Medians over the rounds, the ratio of the rounds' ratios\n\n{}", table.render(0))
}

/// The median over the rounds of a contender's p99 beside the reader by that without; `None` if either is missing.
pub(super) fn ratio(runs: &[Run], contender: Contender) -> Option<f64> {
    let of = |with_reader| {
        runs.iter()
            .filter(move |run| run.contender == contender && run.read_mib_per_s.is_some() == with_reader)
    };
    let p99 = |with_reader| of(with_reader).map(|run| (run.round, run.latency_ms.p99));
    ratio_by_round(p99(true), p99(false))
}

/// The median over the rounds of the rate of a contender's reader.
pub(super) fn read_mib_per_s(runs: &[Run], contender: Contender) -> f64 {
    median(runs.iter().filter(|run| run.contender == contender).filter_map(|run| run.read_mib_per_s))
}
