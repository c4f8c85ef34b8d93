//! `riverrun bench`: workloads and suites on one server or on several, and a page that shows the results.
//!
//! Owns flags, file names and what people see; what is measured, and how, is in `riverrun-bench`.

mod list;
mod report;
mod run;
mod turns;
mod worker;

use clap::{Args, Subcommand};
use riverrun_bench::input::InputError;

use crate::exit::{Exit, Failure};
use crate::runtime::block_on;

/// Flags of `bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

/// The commands of `bench`.
#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// Run workload files, Trogdor specs or named suites on one or several servers, and write a result for each run
    Run(run::RunArgs),
    /// List the named suites and their scenarios, or show one scenario's file
    List(list::ListArgs),
    /// Make one HTML page of results: throughput over time, latency percentiles, servers side by side
    Report(report::ReportArgs),
    /// Produce and consume for a runner elsewhere
    Worker(worker::WorkerArgs),
}

/// Does what the command line says.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    match args.command {
        BenchCommand::Run(args) => block_on(Box::pin(run::run(args))),
        BenchCommand::List(args) => list::run(&args),
        BenchCommand::Report(args) => report::run(&args),
        BenchCommand::Worker(args) => block_on(Box::pin(worker::run(&args))),
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        match error {
            InputError::Read { file, source } => Self::io(file, &source),
            other => Self::new(Exit::Usage, other.to_string()),
        }
    }
}
