//! `riverrun topic delete`.

use clap::Args;
use riverrun_client::Admin;
use riverrun_protocol::ErrorCode;

use super::changed;
use crate::args::ClientArgs;
use crate::commands::outcome::report;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

const EXAMPLES: &str = "\
Examples:
  riverrun topic delete clicks
  riverrun topic delete clicks users --if-exists";

/// Flags of `topic delete`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DeleteArgs {
    /// Names of the topics
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// A topic that does not exist is no error
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: DeleteArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let results = admin.delete_topics(&args.names).await;
    let missing = Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let outcomes = results.into_iter().map(|(name, result)| match result {
        Err(error) if args.if_exists && error.code() == missing => (name, Ok("does not exist".to_owned())),
        result => changed(name, result, |()| "deleted".to_owned()),
    });
    report(args.output, outcomes.collect())
}
