//! `cargo xtask bench`: records per second, processor time and memory of the server, side by side with Kafka 4.3.1 in
//! one run.
//!
//! Owns the options and the order of a run: install, measure, print, write JSON. `docs/benchmarks.md` says how to run
//! it and what each column means. A missed goal is printed and is no error: a run fails only if something could not be
//! measured.

mod client;
mod durability;
mod goals;
mod latency;
mod level;
mod machine;
pub(crate) mod metrics;
mod mount;
pub(crate) mod probe;
mod queue;
mod startup;
mod throughput;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::clients::checkout;
use crate::clients::install::{Kit, Profile, Toolbox};
use crate::clients::server::{Launch, ServerKind};
use goals::Goal;
use level::Level;
use machine::{Client, Machine, Programs};

/// Options that Kafka's start script passes to the virtual machine, with a heap of 2 GB.
const KAFKA_JVM_OPTIONS: &[&str] = &[
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// The client of measurements whose times no virtual machine may be part of.
const PROBE: Client = Client::Ours("one blocking socket");

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
    /// The cost of an ack that survives a loss of power, side by side with Kafka
    Durability(durability::Options),
    /// One record at a time, acked after its sync, beside the device's own time
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
    #[command(flatten)]
    place: Place,
}

/// Arguments that all benchmarks of a server share.
#[derive(Args)]
struct Place {
    /// A server to measure instead of the one of this checkout, which is built first
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Directory for the servers' data, emptied before and after; `target/bench` when absent
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Also write everything measured as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Programs and directory of a section.
struct Bench {
    toolbox: Toolbox,
    data: PathBuf,
    kinds: Vec<ServerKind>,
    /// A binary to measure instead of that of this checkout.
    binary: Option<PathBuf>,
}

impl Bench {
    /// Fetches and builds all programs, and describes the machine before anything is started on it.
    fn prepare(place: &Place, kinds: Vec<ServerKind>, client: Client) -> anyhow::Result<(Self, Machine)> {
        let has_kafka = client == Client::KafkaTools || kinds.contains(&ServerKind::Kafka);
        let mut kits: BTreeSet<_> = has_kafka.then_some(Kit::Java).into_iter().collect();
        let toolbox = Toolbox::new(checkout()?, Profile::Dist);
        let is_ours = kinds.contains(&ServerKind::Riverrun);
        ensure!(is_ours || place.server.is_none(), "--server is one of Riverrun, which --only leaves out");
        if is_ours && place.server.is_none() {
            kits.insert(Kit::Server);
        }
        toolbox.install(&kits)?;
        let data = place.data.clone().unwrap_or_else(|| toolbox.bench_dir());
        fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
        let programs = Programs { binary: place.server.as_deref(), has_kafka };
        let machine = Machine::look(&toolbox, Some(&data), client, programs);
        Ok((Self { toolbox, data, kinds, binary: place.server.clone() }, machine))
    }

    /// A server's empty directory, ready for its first start. Ours has its defaults: each topic has its own durability
    /// level.
    fn launch(&self, kind: ServerKind) -> anyhow::Result<Launch<'_>> {
        let launch = Launch::prepare(kind, &self.toolbox, self.data.join(kind.name()))?;
        let launch = launch.with_jvm_options(KAFKA_JVM_OPTIONS);
        Ok(match &self.binary {
            Some(binary) => launch.with_binary(binary.clone()),
            None => launch,
        })
    }

    /// As [`launch`](Self::launch), with all topics of ours at one level.
    fn launch_at(&self, kind: ServerKind, level: Level) -> anyhow::Result<Launch<'_>> {
        Ok(self.launch(kind)?.with_own_settings([level.setting()]))
    }

    /// Removes a server's files.
    fn clear(&self, kind: ServerKind) -> anyhow::Result<()> {
        let dir = self.data.join(kind.name());
        fs::remove_dir_all(&dir).with_context(|| format!("could not clear {}", dir.display()))
    }
}

/// The servers that are compared, or the one that the options name.
fn kinds(only: Option<ServerKind>) -> Vec<ServerKind> {
    only.map_or_else(|| vec![ServerKind::Kafka, ServerKind::Riverrun], |only| vec![only])
}

/// Name of a round; rounds before the first are named `before`.
fn round_named(round: u32, before: &str) -> String {
    if round == 0 { before.to_owned() } else { format!("round {round}") }
}

/// Results of a run, as written to the JSON file.
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

    /// Compares the results with the goals.
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
    let client = if options.startup { PROBE } else { Client::KafkaTools };
    let (bench, machine) = Bench::prepare(&options.place, kinds(options.only), client)?;
    let mut findings = Findings::new(machine);
    let result = measure(&bench, options, &mut findings);
    findings.judge();
    print(&findings);
    options.place.write_json(&findings)?;
    result
}

/// Results before an error stay in `findings`: they took minutes.
fn measure(bench: &Bench, options: &ServerOptions, findings: &mut Findings) -> anyhow::Result<()> {
    if !options.startup {
        let section = throughput::Section {
            level: options.durability,
            rounds: options.rounds,
            records: options.records,
        };
        throughput::measure(bench, &section, &mut findings.throughput)?;
    }
    if !options.throughput {
        let (level, partitions) = (options.durability, options.startup_partitions);
        let section = startup::Section { level, rounds: options.rounds, partitions };
        startup::measure(bench, &section, &mut findings.startup)?;
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

impl Place {
    /// Writes the results, if a file was named.
    fn write_json(&self, findings: &impl Serialize) -> anyhow::Result<()> {
        self.json.as_deref().map_or(Ok(()), |file| write_json(file, findings))
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

/// The median over the rounds of ours by the other contender's; `None` if they were never measured in the same round.
/// Rounds are paired because the machine's speed changes between them.
fn ratio_by_round(
    ours: impl Iterator<Item = (u32, f64)>,
    others: impl Iterator<Item = (u32, f64)>,
) -> Option<f64> {
    let others: BTreeMap<u32, f64> = others.collect();
    let ratios: Vec<_> = ours.filter_map(|(round, of)| Some(of / others.get(&round)?)).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_sorted_values() {
        assert!((median([9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let ratio = |ours: &[(u32, f64)], others: &[(u32, f64)]| {
            ratio_by_round(ours.iter().copied(), others.iter().copied()).map(|ratio| format!("{ratio:.2}"))
        };
        let others = [(2, 100.0), (1, 10.0)];
        assert_eq!(ratio(&[(1, 20.0), (2, 400.0), (3, 9.0)], &others).as_deref(), Some("3.00"));
        assert_eq!(ratio(&[(3, 9.0)], &others), None);
    }
}
