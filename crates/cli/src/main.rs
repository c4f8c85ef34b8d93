//! `riverrun`: the one binary. A server, a client for any Kafka server, tools for the files, and a demo.
//!
//! Owns the command line and what people and programs see of it: text, JSON, exit codes. What a command does is in
//! `commands`, one file each; everything behind that is in the library crates.

// A reader of stdout or stderr that has left, or a full disk behind it, is no panic: `text::output` and `logging` write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod allocator;
mod args;
mod commands;
mod exit;
mod input;
mod logging;
#[cfg(test)]
mod reference;
mod signals;
mod text;

use std::process::ExitCode;

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
