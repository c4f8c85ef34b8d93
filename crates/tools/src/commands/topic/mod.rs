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
use crate::runtime::block_on;

/// Commands on topics.
#[derive(Subcommand, Debug)]
pub enum TopicCommand {
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

/// Does what the command line says.
pub fn run(command: TopicCommand) -> Result<(), Failure> {
    match command {
        TopicCommand::Create(args) => block_on(Box::pin(create::run(args))),
        TopicCommand::List(args) => block_on(Box::pin(list::run(args))),
        TopicCommand::Describe(args) => block_on(Box::pin(describe::run(args))),
        TopicCommand::Alter(args) => block_on(Box::pin(alter::run(args))),
        TopicCommand::Delete(args) => block_on(Box::pin(delete::run(args))),
    }
}
