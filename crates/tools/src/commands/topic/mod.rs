//! `riverrun topic`: topics, one file for each command.

mod alter;
mod create;
mod delete;
mod describe;
mod list;

use clap::Subcommand;
use riverrun_client::ClientError;
use riverrun_protocol::ErrorCode;

pub(crate) use self::alter::changes;
pub(crate) use self::describe::{DURABILITY, WANTED};

use crate::commands::outcome::{Outcome, outcome};
use crate::exit::Failure;
use crate::runtime::block_on;

/// Advice about a topic of the server's own, which is there to stay as it is.
const OWN: &str = "riverrun group delete GROUP   (a group with its offsets): topics of the server's own are neither deleted nor \
                   given partitions";

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

/// The outcome for a topic that is there. A server that refuses its name does not find fault with the letters.
fn changed<T>(name: String, result: Result<T, ClientError>, done: impl FnOnce(T) -> String) -> Outcome {
    let code = result.as_ref().err().and_then(ClientError::code);
    let (name, result) = outcome("topic", name, result, done);
    let advised = |failure: Failure| match code {
        Some(ErrorCode::INVALID_TOPIC_EXCEPTION) => failure.advise(OWN),
        _ => failure,
    };
    (name, result.map_err(advised))
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
