//! `riverrun perf`: loads one topic and prints the results, in the words of Kafka's own performance tools.
//!
//! Owns flags and output lines that scripts know from `kafka-producer-perf-test`, `kafka-consumer-perf-test` and
//! `kafka-e2e-latency`, and what those leave out: latency from the time at which a record was due, in microseconds.
//! The measurements themselves are in `riverrun-bench`.

mod consume;
mod date;
mod end_to_end;
mod hdr;
mod lines;
mod produce;
mod producer_metrics;
mod properties;

use clap::{Args, Subcommand};
use riverrun_bench::load::LoadError;

use crate::exit::{Exit, Failure};
use crate::runtime::block_on;

/// Flags of `perf`.
#[derive(Args, Debug)]
pub struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

/// The measurements.
#[derive(Subcommand, Debug)]
enum PerfCommand {
    /// Send records, and print rates and latencies (flags and lines of kafka-producer-perf-test)
    ///
    /// With a throughput, each record has a time at which it is due, and its latency counts from there: the wait for a
    /// slow server is part of it. The latency from the call of send, as Kafka's tool counts it, is printed as well. Both
    /// are measured for every record, in microseconds, and never clipped. A record that could not be delivered counts
    /// with the time until that was known; rates and numbers of records are of acked records.
    Produce(produce::ProduceArgs),
    /// Read records, and print rates (flags and lines of kafka-consumer-perf-test)
    Consume(consume::ConsumeArgs),
    /// Send a record, read it, and again: print latencies (flags and lines of kafka-e2e-latency)
    EndToEnd(end_to_end::EndToEndArgs),
}

/// Does what the command line says.
pub fn run(args: PerfArgs) -> Result<(), Failure> {
    match args.command {
        PerfCommand::Produce(args) => block_on(Box::pin(produce::run(args))),
        PerfCommand::Consume(args) => block_on(Box::pin(consume::run(args))),
        PerfCommand::EndToEnd(args) => block_on(Box::pin(end_to_end::run(args))),
    }
}

fn load_failure(error: LoadError) -> Failure {
    match error {
        LoadError::Client(error) => error.into(),
        LoadError::Thread(_) | LoadError::Broken => Failure::new(Exit::Failed, error.to_string()),
    }
}
