//! `riverrun`: the one binary. A server, a client for any Kafka server, tools for the files, and a demo.
//!
//! Owns the command line as a whole, and the commands on a server's inside (`serve`, `log`, `config check` and the demo's
//! server) in `commands`, one file or folder each. The commands of a client, and what all of them share (text, JSON, exit
//! codes, the log), are in `riverrun-tools`; everything behind that is in the other library crates.

// A reader of stdout or stderr that has left, or a full disk behind it, is no panic: `text::output` and `logging` write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod allocator;
mod args;
mod commands;
#[cfg(all(test, feature = "bench"))]
mod reference;

use std::process::ExitCode;

use riverrun_tools::logging;

fn main() -> ExitCode {
    allocator::bound_arenas();
    riverrun_env::ignore_file_size_signal();
    let (cli, json) = match args::parse() {
        Ok(parsed) => parsed,
        Err(failure) => return failure.report(true),
    };
    let _last_lines = match logging::start(cli.log_level.as_deref(), cli.command.default_log_level()) {
        Ok(last_lines) => last_lines,
        Err(failure) => return failure.report(json),
    };
    match commands::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}
