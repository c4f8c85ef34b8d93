//! Developer tasks: `cargo xtask TASK`. Each task is a module; this file only names them.

#![cfg_attr(
    not(feature = "bench"),
    expect(dead_code, reason = "the benchmarks use more of the servers' control")
)]

#[cfg(feature = "bench")]
mod attack;
#[cfg(feature = "bench")]
mod bench;
mod clients;
#[cfg(feature = "bench")]
mod crash;
mod crate_graph;
mod formats;
mod fuzz;
mod gen_protocol;
mod model;
mod module_graph;
mod readme_demo;
#[cfg(feature = "bench")]
mod report_page;
#[cfg(feature = "bench")]
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of Riverrun")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Attacks the server in every way we know, beside an honest client that must not notice
    #[cfg(feature = "bench")]
    Attack(attack::Options),
    /// Makes an attack: started by `attack` alone
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    AttackAttacker(attack::AttackerOptions),
    /// Burns processor time for `attack`: started by it alone
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    AttackBurner(attack::BurnOptions),
    /// Produces and fetches while `attack` attacks: started by it alone
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    AttackHonest(attack::HonestOptions),
    /// Measures the server side by side with Kafka
    #[cfg(feature = "bench")]
    Bench(bench::Options),
    /// Installs real Kafka clients and runs them against our server, or against Kafka itself
    Clients(clients::Options),
    /// Crashes the server again and again under load, and checks it against its acks
    #[cfg(feature = "bench")]
    Crash(crash::Options),
    /// Appends to a queue until it is crashed: started by `crash` alone
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    CrashAppender(crash::AppenderOptions),
    /// Records the events of `crash`: started by `crash` alone
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    CrashRecorder(crash::RecorderOptions),
    /// Copies the drawings of our file formats to docs/format/
    Formats,
    /// Runs every fuzz target for a while
    Fuzz(fuzz::Options),
    /// Writes the wire protocol's generated code from its schema
    GenProtocol,
    /// Searches the replication model for a broken promise
    Model(model::Options),
    /// Runs the README's first command, the demo, and checks its output
    ReadmeDemo,
    /// Clicks through the page of `riverrun bench report` in a browser
    #[cfg(feature = "bench")]
    ReportPage,
    /// Checks that the crates depend on each other only as the design's table allows
    CrateGraph,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        #[cfg(feature = "bench")]
        Task::Attack(options) => attack::run(&options),
        #[cfg(feature = "bench")]
        Task::AttackAttacker(options) => attack::be_attacker(&options),
        #[cfg(feature = "bench")]
        Task::AttackBurner(options) => attack::be_burner(&options),
        #[cfg(feature = "bench")]
        Task::AttackHonest(options) => attack::be_honest(&options),
        #[cfg(feature = "bench")]
        Task::Bench(options) => bench::run(&options),
        Task::Clients(options) => clients::run(&options),
        #[cfg(feature = "bench")]
        Task::Crash(options) => crash::run(&options),
        #[cfg(feature = "bench")]
        Task::CrashAppender(options) => crash::append(&options),
        #[cfg(feature = "bench")]
        Task::CrashRecorder(options) => crash::record(&options),
        Task::Formats => formats::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::GenProtocol => gen_protocol::run(),
        Task::Model(options) => model::run(&options),
        Task::ReadmeDemo => readme_demo::run(),
        #[cfg(feature = "bench")]
        Task::ReportPage => report_page::run(),
        Task::CrateGraph => crate_graph::run(),
    };
    if let Err(error) = result {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
