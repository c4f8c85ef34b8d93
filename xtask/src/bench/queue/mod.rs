//! `cargo xtask bench queue`: the embedded queue side by side with Chronicle Queue, in one run.
//!
//! Chronicle Queue is measured by a program that the user names: it takes DIR RATE SECONDS SIZE HOPS and prints one
//! line (drawn in `engine.rs`). Runs are interleaved in pairs that take turns to begin, in the same directory, at the
//! same size and rate; latency counts from the intended send time on both sides. Ours alone is measured with several
//! appenders and tailers, and over a long run in little memory. Each figure is shown with the share of time that the
//! machine's hypervisor took.

mod engine;
mod goals;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use riverrun_measure::text::number::rounded;
use riverrun_measure::text::table::Table;
use serde::Serialize;

use super::goals::{Goal, table};
use super::machine::{Client, Machine, Programs};
use super::{median, write_json};
use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use engine::{Engine, Engines, Load, Run};

/// Sections of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
enum Section {
    /// One producer, one consumer, paced
    Paced,
    /// Through a service and a second queue, paced
    TwoHops,
    /// One producer, one consumer, as fast as possible
    Unpaced,
    /// Ours alone, as fast as possible, with 1, 2 and 4 tailers and 1 and 2 appenders
    Fan,
    /// Ours alone: memory of many records with retention
    Memory,
}

/// Arguments of `cargo xtask bench queue`.
#[derive(Args)]
pub(super) struct Options {
    /// A program that measures Chronicle Queue; without it ours is measured alone
    #[arg(long, value_name = "FILE")]
    chronicle: Option<PathBuf>,
    /// A `riverrun` to measure instead of the one of this checkout, which is built first
    #[arg(long, value_name = "FILE")]
    riverrun: Option<PathBuf>,
    /// Directories for the queues, made and emptied; repeatable. `/dev/shm` and `target/bench` when absent
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Sections to measure; all but the memory when absent
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Section>,
    /// Times that each pair is measured; figures are medians
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each paced run, of which the first two do not count with Chronicle Queue
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(3..))]
    seconds: u64,
    /// Messages a second, paced
    #[arg(long, default_value_t = 500_000)]
    rate: u64,
    /// Messages a second through two queues
    #[arg(long, default_value_t = 50_000)]
    hop_rate: u64,
    /// Bytes of a message
    #[arg(long, default_value_t = 512)]
    size: u32,
    /// Messages of the memory run, in millions
    #[arg(long, default_value_t = 300)]
    memory_millions: u64,
    /// Also write everything measured as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Results of a run, as written to the JSON file.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    runs: Vec<Run>,
    goals: Vec<Goal>,
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let toolbox = Toolbox::new(checkout()?, Profile::Dist);
    if options.riverrun.is_none() {
        toolbox.install(&[Kit::Server].into())?;
    }
    let riverrun = options.riverrun.clone().unwrap_or_else(|| toolbox.server_binary());
    let engines = Engines { riverrun, chronicle: options.chronicle.clone() };
    let dirs = dirs(options, &toolbox);
    let programs = Programs { binary: options.riverrun.as_deref(), has_kafka: false };
    let client = Client::Ours("the queues' own programs");
    let machine = Machine::look(&toolbox, dirs.last().map(PathBuf::as_path), client, programs);
    let mut findings = Findings { machine, runs: Vec::new(), goals: Vec::new() };
    let result = measure(options, &engines, &dirs, &mut findings.runs);
    findings.goals = goals::of(&findings.runs);
    println!("\n{}", findings.machine);
    println!("{}", figures(&findings.runs));
    if !findings.goals.is_empty() {
        println!("{}", table(&findings.goals));
    }
    if let Some(file) = &options.json {
        write_json(file, &findings)?;
    }
    result
}

fn dirs(options: &Options, toolbox: &Toolbox) -> Vec<PathBuf> {
    if !options.data.is_empty() {
        return options.data.clone();
    }
    let memory = Path::new("/dev/shm").is_dir().then(|| PathBuf::from("/dev/shm/riverrun-bench"));
    memory.into_iter().chain([toolbox.bench_dir().join("queue")]).collect()
}

/// Results before an error stay in `runs`: they took minutes.
fn measure(
    options: &Options,
    engines: &Engines,
    dirs: &[PathBuf],
    runs: &mut Vec<Run>,
) -> anyhow::Result<()> {
    for dir in dirs {
        for round in 0..options.rounds {
            for load in loads(options) {
                let mut order: Vec<Engine> = engines.of(&load);
                if round % 2 == 1 {
                    order.reverse();
                }
                for engine in order {
                    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
                    let found = engines.run(engine, &load, dir, round)?;
                    println!("{}", found.line());
                    runs.push(found);
                }
            }
        }
    }
    Ok(())
}

/// The loads of each round.
fn loads(options: &Options) -> Vec<Load> {
    /// More than any queue takes on any machine.
    const UNPACED_RATE: u64 = 10_000_000;
    let wanted = |section: Section| match options.only.as_slice() {
        [] => section != Section::Memory,
        only => only.contains(&section),
    };
    let base = Load {
        section: Section::Paced,
        rate: options.rate,
        seconds: options.seconds,
        size: options.size,
        hops: 1,
        appenders: 1,
        tailers: 1,
    };
    let mut loads = vec![
        base,
        Load { section: Section::TwoHops, rate: options.hop_rate, hops: 2, ..base },
        Load { section: Section::Unpaced, rate: UNPACED_RATE, seconds: 1, ..base },
    ];
    // At rate 0, seconds count millions of messages.
    let fan = Load { section: Section::Fan, rate: 0, seconds: 10, ..base };
    for (appenders, tailers) in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4)] {
        loads.push(Load { appenders, tailers, ..fan });
    }
    loads.push(Load { section: Section::Memory, rate: 0, seconds: options.memory_millions, ..base });
    loads.retain(|load| wanted(load.section));
    loads
}

/// Medians over the rounds.
fn figures(runs: &[Run]) -> String {
    let mut table = Table::of_figures(
        3,
        &[
            "what",
            "directory",
            "engine",
            "messages/s",
            "publish p50 ns",
            "p99 ns",
            "p99.9 ns",
            "end to end p50 ns",
            "p99 ns",
            "p99.9 ns",
            "CPU ns",
            "private MB",
            "steal %",
        ],
    );
    let mut keys: Vec<_> = runs.iter().map(Run::key).collect();
    keys.dedup();
    let mut seen = Vec::new();
    for key in keys {
        if seen.contains(&key) {
            continue;
        }
        let of = |field: fn(&Run) -> f64| median(runs.iter().filter(|run| run.key() == key).map(field));
        table.row(&[
            key.0.clone(),
            key.1.clone(),
            key.2.name().to_owned(),
            rounded(of(|run| run.achieved)),
            rounded(of(|run| run.publish_ns[0])),
            rounded(of(|run| run.publish_ns[1])),
            rounded(of(|run| run.publish_ns[2])),
            rounded(of(|run| run.end_to_end_ns[0])),
            rounded(of(|run| run.end_to_end_ns[1])),
            rounded(of(|run| run.end_to_end_ns[2])),
            rounded(of(|run| run.cpu_ns)),
            of(|run| run.private_mb).round().to_string(),
            format!("{:.1}", of(|run| run.steal_percent)),
        ]);
        seen.push(key);
    }
    format!("Unsynced: an append is in the page cache\n\n{}", table.render(0))
}
