//! `cargo xtask bench`: what the server does per second, per processor second and per byte of memory, side by side
//! with Kafka 4.3.1 in one run.
//!
//! Owns the options and the order of a run: install, measure, print, write JSON. How to run it and what each column
//! means is in `docs/benchmarks.md`. A goal that is missed is printed and is no error: a run fails only if
//! something could not be measured.

mod client;
mod durability;
mod goals;
mod latency;
mod machine;
pub(crate) mod metrics;
mod mount;
mod probe;
mod queue;
mod startup;
mod throughput;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use crate::clients::server::{Launch, ServerKind};
use goals::Goal;
use machine::Machine;

/// What an acked record of our server survives; ours is started with exactly this level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// A crash of the process: what Kafka promises by default, which leaves syncing to the system
    #[value(name = "4")]
    PageCache,
    /// Loss of power, where Kafka stays at its default
    #[value(name = "1")]
    Synced,
}

impl Level {
    /// Settings of our server besides its defaults.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::PageCache => &["default.durability=4"],
            Self::Synced => &["default.durability=1"],
        }
    }

    /// What is printed beside every figure of `server`.
    fn name(self, server: ServerKind) -> &'static str {
        match (self, server) {
            (Self::Synced, ServerKind::Riverrun) => "1 synced",
            _ => "4 page cache",
        }
    }
}

/// What Kafka's start script passes to the virtual machine, with a heap of 2 GB.
const KAFKA_JVM_OPTIONS: &[&str] = &[
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// Arguments of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The server and Kafka, interleaved, under Kafka's own performance tools; then their starts and idle memory
    Server(ServerOptions),
    /// What an ack that survives a loss of power costs, side by side with Kafka
    Durability(durability::Options),
    /// One record at a time, acked after its sync, beside what the device itself takes
    Latency(latency::Options),
    /// From an append to a mounted queue to a Kafka consumer that waits
    Mount(mount::Options),
    /// The embedded queue, side by side with Chronicle Queue
    Queue(queue::Options),
}

/// Arguments of `cargo xtask bench server`.
#[derive(Args)]
struct ServerOptions {
    /// Measure one of the two, without ratios
    #[arg(long, value_enum)]
    only: Option<ServerKind>,
    /// Only the throughput section
    #[arg(long, conflicts_with = "startup")]
    throughput: bool,
    /// Only the start-up section
    #[arg(long)]
    startup: bool,
    /// Our server's durability level
    #[arg(long, value_enum, default_value_t = Level::PageCache)]
    durability: Level,
    /// Times that each measurement is made; ratios are the median over the rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Records of 512 bytes in each client run
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    records: u64,
    /// Partitions of the start-up section
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    startup_partitions: i32,
    /// Directory for the servers' data, emptied before and after; `target/bench` when absent
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Also write everything measured as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where and on what a section measures.
struct Bench {
    toolbox: Toolbox,
    data: PathBuf,
    kinds: Vec<ServerKind>,
    /// Another binary of ours than the one of this checkout.
    binary: Option<PathBuf>,
    /// At which our server is measured.
    level: Level,
}

impl Bench {
    /// A server's empty directory, ready for its first start.
    fn launch(&self, kind: ServerKind) -> anyhow::Result<Launch<'_>> {
        Ok(self.plain_launch(kind)?.with_own_settings(self.level.settings().iter().copied()))
    }

    /// As [`launch`](Self::launch), with our defaults: what an ack means is each topic's.
    fn plain_launch(&self, kind: ServerKind) -> anyhow::Result<Launch<'_>> {
        let launch = Launch::prepare(kind, &self.toolbox, self.data.join(kind.name()))?;
        let launch = launch.with_jvm_options(KAFKA_JVM_OPTIONS);
        Ok(match &self.binary {
            Some(binary) => launch.with_binary(binary.clone()),
            None => launch,
        })
    }

    /// What the measurement needs, fetched and built. Kafka's jars are needed in any case: its tools are the clients.
    fn install(&self) -> anyhow::Result<()> {
        let mut kits = BTreeSet::from([Kit::Java]);
        if self.kinds.contains(&ServerKind::Riverrun) && self.binary.is_none() {
            kits.insert(Kit::Server);
        }
        self.toolbox.install(&kits)
    }

    /// Removes what a server left.
    fn clear(&self, kind: ServerKind) -> anyhow::Result<()> {
        let dir = self.data.join(kind.name());
        fs::remove_dir_all(&dir).with_context(|| format!("could not clear {}", dir.display()))
    }
}

/// Everything that a run found out, as it stands in the JSON file.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    throughput: Vec<throughput::Run>,
    startup: Vec<startup::Figure>,
    goals: Vec<Goal>,
}

impl Findings {
    fn new(machine: Machine) -> Self {
        Self { machine, throughput: Vec::new(), startup: Vec::new(), goals: Vec::new() }
    }

    /// Compares what was found with the goals.
    fn judge(&mut self) {
        self.goals = goals::of_throughput(&self.throughput);
        self.goals.extend(goals::of_startup(&self.startup));
    }
}

/// Runs the benchmark that the options name.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match &options.what {
        What::Server(options) => run_server(options),
        What::Durability(options) => durability::run(options),
        What::Latency(options) => latency::run(options),
        What::Mount(options) => mount::run(options),
        What::Queue(options) => queue::run(options),
    }
}

fn run_server(options: &ServerOptions) -> anyhow::Result<()> {
    let toolbox = Toolbox::new(checkout()?, Profile::Dist);
    let data = options.data.clone().unwrap_or_else(|| toolbox.bench_dir());
    let kinds = options.only.map_or_else(|| vec![ServerKind::Kafka, ServerKind::Riverrun], |only| vec![only]);
    let bench = Bench { toolbox, data, kinds, binary: None, level: options.durability };
    bench.install()?;
    let mut findings = Findings::new(Machine::look(&bench.toolbox));
    let result = measure(&bench, options, &mut findings);
    findings.judge();
    print(&findings);
    if let Some(file) = &options.json {
        write_json(file, &findings)?;
    }
    result
}

/// What was found before an error stays in `findings`: it took minutes.
fn measure(bench: &Bench, options: &ServerOptions, findings: &mut Findings) -> anyhow::Result<()> {
    if !options.startup {
        throughput::measure(bench, options.rounds, options.records, &mut findings.throughput)?;
    }
    if !options.throughput {
        startup::measure(bench, options.rounds, options.startup_partitions, &mut findings.startup)?;
    }
    Ok(())
}

fn print(findings: &Findings) {
    println!("\n{}", findings.machine);
    if !findings.throughput.is_empty() {
        println!("{}", throughput::tables(&findings.throughput));
    }
    if !findings.startup.is_empty() {
        println!("{}", startup::table(&findings.startup));
    }
    if !findings.goals.is_empty() {
        println!("{}", goals::table(&findings.goals));
    }
}

fn write_json(file: &Path, findings: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(findings)? + "\n";
    fs::write(file, text).with_context(|| format!("could not write {}", file.display()))
}

/// The middle of the values, or the mean of the two in the middle; zero if there are none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_sorted_values() {
        assert!((median([9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }
}
