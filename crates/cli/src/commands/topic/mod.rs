//! `riverrun topic`: topics, one file for each command.

mod alter;
mod create;
mod delete;
mod describe;
mod list;

use clap::Subcommand;

pub(crate) use self::alter::changes;
pub(crate) use self::describe::{DURABILITY, WANTED};

use crate::exit::Failure;

/// Commands on topics.
#[derive(Subcommand, Debug)]
pub(crate) enum TopicCommand {
    /// Create topics
    Create(create::CreateArgs),
    /// List the topics that there are
    List(list::ListArgs),
    /// Show topics with their partitions, offsets, sizes and own configuration
    Describe(describe::DescribeArgs),
    /// Give a topic more partitions, or change its configuration
    Alter(alter::AlterArgs),
    /// Delete topics with all their records
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(args) => create::run(args).await,
        TopicCommand::List(args) => list::run(args).await,
        TopicCommand::Describe(args) => describe::run(args).await,
        TopicCommand::Alter(args) => alter::run(args).await,
        TopicCommand::Delete(args) => delete::run(args).await,
    }
}
