//! The commands on a server's inside, one file or folder for each. `riverrun-tools` has the others.

pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod log;
pub(crate) mod serve;

use riverrun_tools::commands::{bench, consume, group, perf, produce, queue, topic};
use riverrun_tools::exit::Failure;

use crate::args::Command;

/// Does what the command line says.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Topic(command) => topic::run(command),
        Command::Produce(args) => produce::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Perf(args) => perf::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Group(command) => group::run(command),
        Command::Config(command) => config::run(command),
        Command::Log(command) => log::run(command),
        Command::Queue(command) => queue::run(command),
        Command::Demo(args) => demo::run(&args),
    }
}
