//! `riverrun group`: consumer groups, one file for each command.

mod delete;
mod describe;
mod list;
mod offsets;
mod reset;

use clap::Subcommand;

use crate::exit::Failure;
use crate::runtime::block_on;

/// Commands on consumer groups.
#[derive(Subcommand, Debug)]
pub enum GroupCommand {
    /// List the groups that there are
    List(list::ListArgs),
    /// Show groups with their members, committed offsets and lag
    Describe(describe::DescribeArgs),
    /// Move the committed offsets of a group that has no members
    Reset(reset::ResetArgs),
    /// Delete groups with their committed offsets
    Delete(delete::DeleteArgs),
}

/// Does what the command line says.
pub fn run(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(args) => block_on(Box::pin(list::run(args))),
        GroupCommand::Describe(args) => block_on(Box::pin(describe::run(args))),
        GroupCommand::Reset(args) => block_on(Box::pin(reset::run(args))),
        GroupCommand::Delete(args) => block_on(Box::pin(delete::run(args))),
    }
}
