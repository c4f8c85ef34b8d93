//! `cargo xtask bench durability`: the cost of an ack that survives a loss of power, side by side with Kafka.
//!
//! Owns the options and the order of a run. Kafka's own producer tool is the client of both servers;
//! `docs/benchmarks.md` says how to run it and what each column means.

mod backlog;
mod contender;
mod goals;
mod paced;
mod restart;
mod throughput;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::goals::{Goal, table};
use super::machine::{Client, Machine};
use super::{Bench, PROBE, Place, kinds};
use crate::clients::server::{Server, ServerKind};
use contender::Contender;

/// Client settings that make batches small: no key, every record to the next partition.
const ROUND_ROBIN: &[&str] = &["partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"];

/// Sections of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Records a second, by partitions and producers
    Throughput,
    /// Latency at a rate that the server can hold, with few partitions and with many
    Paced,
    /// Latency of producing while a consumer reads records that no cache holds
    Backlog,
    /// Start after a kill, with many partitions and a full journal
    Restart,
}

/// Arguments of `cargo xtask bench durability`.
#[derive(Args)]
pub(super) struct Options {
    /// Measure one of the two, without ratios
    #[arg(long, value_enum)]
    only: Option<ServerKind>,
    /// Sections, separated by commas; all when absent
    #[arg(long, value_enum, value_delimiter = ',')]
    section: Vec<Section>,
    /// Numbers of partitions of the throughput section
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000, 10_000], value_parser = clap::value_parser!(i32).range(1..=10_000))]
    partitions: Vec<i32>,
    /// Numbers of producers of the throughput section
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4], value_parser = clap::value_parser!(u32).range(1..=16))]
    producers: Vec<u32>,
    /// Times that each measurement is made; ratios are the median over the rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// About how long each run of a client is to take
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=300))]
    seconds: u64,
    /// Records a second of the paced sections
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pace: u64,
    /// Partitions of the section about restarts
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    restart_partitions: i32,
    /// Bytes in the journal when the server of that section is killed, in units of 2^20; as much as it gets when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    restart_fill_mib: Option<u32>,
    /// Bytes of the backlog, in units of 2^20
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..))]
    backlog_mib: u64,
    /// Rate of reading the backlog, in units of 2^20 bytes a second; 0 for as fast as possible
    #[arg(long, default_value_t = 100)]
    backlog_mib_per_s: u64,
    #[command(flatten)]
    place: Place,
}

impl Options {
    fn wants(&self, section: Section) -> bool {
        self.section.is_empty() || self.section.contains(&section)
    }
}

/// Results of a run, as written to the JSON file.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    throughput: Vec<throughput::Run>,
    paced: Vec<paced::Run>,
    backlog: Vec<backlog::Run>,
    restart: Vec<restart::Run>,
    /// The most resident memory of our server, by section.
    peak_memory: Vec<goals::Peak>,
    goals: Vec<Goal>,
}

/// At least one of this many records is the tool's warm-up: its virtual machine is new each time.
const WARMUP_DIVISOR: u64 = 4;

/// Number of records of a run, and of its warm-up.
struct Counted {
    records: u64,
    warmup_records: u64,
}

impl Counted {
    /// A run of about `records`. The first record of each partition belongs to the warm-up: at each, Kafka's producer
    /// copies its map of known partitions, and with ten thousand of them that takes seconds.
    fn of(records: u64, partitions: i32) -> Self {
        let least = records / WARMUP_DIVISOR;
        let warmup_records = least.max(u64::from(partitions.unsigned_abs()));
        Self { records: records - least + warmup_records, warmup_records }
    }
}

/// A running server of a section.
struct Side {
    kind: ServerKind,
    server: Server,
}

/// Runs the sections that the options name.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let kinds = kinds(options.only);
    let is_ours_left_out = !kinds.contains(&ServerKind::Riverrun);
    ensure!(
        !(is_ours_left_out && options.section == [Section::Restart]),
        "--section restart is of Riverrun alone"
    );
    let client = if options.section == [Section::Restart] { PROBE } else { Client::KafkaTools };
    let (bench, machine) = Bench::prepare(&options.place, kinds, client)?;
    let mut findings = Findings {
        machine,
        throughput: Vec::new(),
        paced: Vec::new(),
        backlog: Vec::new(),
        restart: Vec::new(),
        peak_memory: Vec::new(),
        goals: Vec::new(),
    };
    let result = measure(&bench, options, &mut findings);
    findings.goals = goals::of(&findings);
    print(&findings);
    options.place.write_json(&findings)?;
    result
}

/// Results before an error stay in `findings`: they took minutes.
fn measure(bench: &Bench, options: &Options, findings: &mut Findings) -> anyhow::Result<()> {
    if options.wants(Section::Throughput) {
        with_sides(bench, findings, "throughput", |sides, findings| {
            throughput::measure(bench, options, sides, &mut findings.throughput)
        })?;
    }
    if options.wants(Section::Paced) {
        with_sides(bench, findings, "paced", |sides, findings| {
            paced::measure(bench, options, sides, &mut findings.paced)
        })?;
    }
    if options.wants(Section::Backlog) {
        with_sides(bench, findings, "backlog", |sides, findings| {
            backlog::measure(bench, options, sides, &mut findings.backlog)
        })?;
    }
    if options.wants(Section::Restart) && bench.kinds.contains(&ServerKind::Riverrun) {
        restart::measure(bench, options, findings)?;
    }
    Ok(())
}

/// Starts the servers for a section, and stops them after it.
fn with_sides(
    bench: &Bench,
    findings: &mut Findings,
    section: &'static str,
    measure: impl FnOnce(&mut [Side], &mut Findings) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut sides = Vec::new();
    for kind in &bench.kinds {
        sides.push(Side { kind: *kind, server: bench.launch(*kind)?.start()? });
    }
    measure(&mut sides, findings)?;
    for mut side in sides {
        if side.kind == ServerKind::Riverrun {
            findings.peak_memory.push(goals::Peak::of(section, &side.server)?);
        }
        side.server.stop()?;
        bench.clear(side.kind)?;
    }
    Ok(())
}

/// The contenders of the running servers, in the order of a round.
fn contenders(sides: &[Side]) -> Vec<Contender> {
    let is_up = |contender: &Contender| sides.iter().any(|side| side.kind == contender.server());
    Contender::ALL.into_iter().filter(is_up).collect()
}

/// The server of a contender, which is one of [`contenders`].
fn side_of(sides: &mut [Side], contender: Contender) -> anyhow::Result<&mut Side> {
    let side = sides.iter_mut().find(|side| side.kind == contender.server());
    side.ok_or_else(|| anyhow::anyhow!("{} is not up", contender.server().name()))
}

/// Files below a directory that hold records.
fn segments(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(segments(&entry.path())?);
        } else if entry.path().extension().is_some_and(|extension| extension == "log") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn print(findings: &Findings) {
    println!("\n{}", findings.machine);
    for text in [
        throughput::text(&findings.throughput),
        paced::text(&findings.paced),
        backlog::text(&findings.backlog),
        restart::text(&findings.restart),
    ] {
        if !text.is_empty() {
            println!("{text}");
        }
    }
    if !findings.goals.is_empty() {
        println!("{}", table(&findings.goals));
    }
}
