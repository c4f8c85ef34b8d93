//! `riverrun group`: consumer groups, one file for each command.

mod delete;
mod describe;
mod list;
mod offsets;
mod reset;

use clap::Subcommand;

use crate::exit::Failure;

/// Commands on consumer groups.
#[derive(Subcommand, Debug)]
pub(crate) enum GroupCommand {
    /// List the groups that there are
    List(list::ListArgs),
    /// Show groups with their members, committed offsets and lag
    Describe(describe::DescribeArgs),
    /// Move the committed offsets of a group that has no members
    Reset(reset::ResetArgs),
    /// Delete groups with what they have committed
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(command: GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::List(args) => list::run(args).await,
        GroupCommand::Describe(args) => describe::run(args).await,
        GroupCommand::Reset(args) => reset::run(args).await,
        GroupCommand::Delete(args) => delete::run(args).await,
    }
}
