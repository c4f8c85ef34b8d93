//! `riverrun bench`: workloads and suites on one server or on several, and a page that shows what came of it.
//!
//! Owns flags, file names and what people see; what is measured, and how, is in `riverrun-bench`.

mod list;
mod report;
mod run;
mod turns;
mod worker;

use clap::Subcommand;
use riverrun_bench::input::InputError;

use crate::exit::{Exit, Failure};

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    /// Run workload files, Trogdor specs or named suites on one or several servers, and write a result for each run
    Run(run::RunArgs),
    /// List the named suites and their scenarios, or show one scenario's file
    List(list::ListArgs),
    /// Make one HTML page of results: throughput over time, latency percentiles, servers side by side
    Report(report::ReportArgs),
    /// Produce and consume for a runner elsewhere
    Worker(worker::WorkerArgs),
}

pub(crate) async fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Run(args) => run::run(args).await,
        BenchCommand::List(args) => list::run(&args),
        BenchCommand::Report(args) => report::run(&args),
        BenchCommand::Worker(args) => worker::run(&args).await,
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
