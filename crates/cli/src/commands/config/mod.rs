//! `riverrun config`: configuration of topics, groups and servers, and of a server that is still to be started.

mod check;
mod docs;

use clap::Subcommand;
use riverrun_broker::config::ConfigError;
use riverrun_tools::commands::config::{self, GetArgs, SetArgs};
use riverrun_tools::exit::Failure;

/// Commands on configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Print the values that hold for a topic, a group or a server
    Get(GetArgs),
    /// Print values with where each comes from and what it does
    Describe(GetArgs),
    /// Change the configuration of a topic, a group or a server
    Set(SetArgs),
    /// Print every option that a server, a topic and a group know, with type, range, default and text
    Docs,
    /// Check a server's configuration file without starting
    Check(check::CheckArgs),
}

pub(crate) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Get(args) => config::get(args),
        ConfigCommand::Describe(args) => config::describe(args),
        ConfigCommand::Set(args) => config::set(args),
        ConfigCommand::Docs => docs::run(),
        ConfigCommand::Check(args) => check::run(&args),
    }
}

/// An option that is wrong, with where to read what would be right.
pub(crate) fn config_failure(error: &ConfigError) -> Failure {
    Failure::usage(error.to_string()).advise("riverrun config docs   (every option with its range)")
}
