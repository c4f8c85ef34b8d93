//! `riverrun config`: configuration of topics, groups and servers, and of a server that is still to be started.

mod admin;
mod check;
mod docs;
mod target;

use clap::Subcommand;

use super::block_on;
use crate::exit::Failure;

/// Commands on configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Print the values that hold for a topic, a group or a server
    Get(admin::GetArgs),
    /// Print values with where each comes from and what it does
    Describe(admin::GetArgs),
    /// Change the configuration of a topic, a group or a server
    Set(admin::SetArgs),
    /// Print every option that a server, a topic and a group know, with type, range, default and text
    Docs,
    /// Check a server's configuration file without starting
    Check(check::CheckArgs),
}

pub(crate) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Get(args) => block_on(admin::get(args)),
        ConfigCommand::Describe(args) => block_on(admin::describe(args)),
        ConfigCommand::Set(args) => block_on(admin::set(args)),
        ConfigCommand::Docs => docs::run(),
        ConfigCommand::Check(args) => check::run(&args),
    }
}
