//! `riverrun perf`: loads one topic and says what came of it, in the words of Kafka's own performance tools.
//!
//! Owns flags and output lines that scripts know from `kafka-producer-perf-test`, `kafka-consumer-perf-test` and
//! `kafka-e2e-latency`, and what those leave out: latency from the time at which a record was due, in microseconds.
//! What is measured, and how, is in `riverrun-bench`.

mod consume;
mod date;
mod end_to_end;
mod hdr;
mod lines;
mod produce;
mod producer_metrics;
mod properties;

use clap::Subcommand;
use riverrun_bench::load::LoadError;

use crate::exit::{Exit, Failure};

/// What to measure.
#[derive(Subcommand, Debug)]
pub(crate) enum PerfCommand {
    /// Send records, and print rates and latencies (flags and lines of kafka-producer-perf-test)
    ///
    /// With a throughput, each record has a time at which it is due, and its latency counts from there: what waits
    /// because the server is slow has waited. The latency from the call of send, as Kafka's tool counts it, is printed
    /// as well. Both are measured for every record, in microseconds, and never clipped. A record that could not be delivered
    /// counts with what it waited until that was known; rates and numbers of records are of what was acked.
    Produce(produce::ProduceArgs),
    /// Read records, and print rates (flags and lines of kafka-consumer-perf-test)
    Consume(consume::ConsumeArgs),
    /// Send a record, read it, and again: print latencies (flags and lines of kafka-e2e-latency)
    EndToEnd(end_to_end::EndToEndArgs),
}

pub(crate) async fn run(command: PerfCommand) -> Result<(), Failure> {
    match command {
        PerfCommand::Produce(args) => produce::run(args).await,
        PerfCommand::Consume(args) => consume::run(args).await,
        PerfCommand::EndToEnd(args) => end_to_end::run(args).await,
    }
}

fn load_failure(error: LoadError) -> Failure {
    match error {
        LoadError::Client(error) => error.into(),
        LoadError::Thread(_) | LoadError::Broken => Failure::new(Exit::Failed, error.to_string()),
    }
}
