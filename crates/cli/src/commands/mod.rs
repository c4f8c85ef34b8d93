//! What each command does, one file for each.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod consume;
pub(crate) mod demo;
pub(crate) mod group;
pub(crate) mod log;
mod outcome;
pub(crate) mod perf;
pub(crate) mod produce;
pub(crate) mod queue;
pub(crate) mod serve;
pub(crate) mod topic;

use std::future::Future;

use tokio::runtime::Builder;

use crate::args::Command;
use crate::exit::Failure;

/// Does what the command line says.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Topic(command) => block_on(topic::run(command)),
        Command::Produce(args) => block_on(produce::run(args)),
        Command::Consume(args) => block_on(consume::run(args)),
        Command::Perf(command) => block_on(perf::run(command)),
        Command::Bench(command) => block_on(bench::run(command)),
        Command::Group(command) => block_on(group::run(command)),
        Command::Config(command) => config::run(command),
        Command::Log(command) => log::run(command),
        Command::Queue(command) => queue::run(command),
        Command::Demo(args) => demo::run(&args),
    }
}

/// Runs a future on a runtime of its own, and does not wait for what it leaves behind.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start threads", &error))?;
    let outcome = runtime.block_on(future);
    runtime.shutdown_background();
    outcome
}
