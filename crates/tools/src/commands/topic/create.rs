//! `riverrun topic create`.

use clap::Args;
use riverrun_client::{Admin, ClientError, CreatedTopic, NewTopic};
use riverrun_measure::text::number;
use riverrun_protocol::ErrorCode;
use riverrun_types::limits::TOPIC_PARTITIONS_MAX;

use crate::args::{ClientArgs, parse_pair};
use crate::commands::outcome::{Outcome, outcome, report};
use crate::exit::Failure;
use crate::text::output::OutputArgs;

const EXAMPLES: &str = "\
Examples:
  riverrun topic create clicks --partitions 6
  riverrun topic create users --config cleanup.policy=compact --if-not-exists";

/// Flags of `topic create`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CreateArgs {
    /// Names of the topics
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// How many partitions [default: the server's num.partitions]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=i64::from(TOPIC_PARTITIONS_MAX)))]
    partitions: Option<i32>,
    /// How many replicas of each partition [default: the server's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// Set an option of the topic; repeatable
    #[arg(long = "config", short, value_name = "KEY=VALUE", value_parser = parse_pair)]
    configs: Vec<(String, String)>,
    /// A topic that exists already is no error
    #[arg(long)]
    if_not_exists: bool,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: CreateArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let topics = args.names.iter().map(|name| NewTopic {
        name: name.clone(),
        partitions: args.partitions,
        replication: args.replication_factor,
        configs: args.configs.iter().cloned().collect(),
    });
    let results = admin.create_topics(topics.collect(), args.dry_run).await;
    let outcomes = results.into_iter().map(|(name, result)| told(&args, name, result));
    report(args.output, outcomes.collect())
}

fn told(args: &CreateArgs, name: String, result: Result<CreatedTopic, ClientError>) -> Outcome {
    let exists = Some(ErrorCode::TOPIC_ALREADY_EXISTS);
    if args.if_not_exists && result.as_ref().is_err_and(|error| error.code() == exists) {
        return (name, Ok("exists already".to_owned()));
    }
    let verb = if args.dry_run { "would be created" } else { "created" };
    outcome("topic", name, result, |topic| match topic.partitions {
        ..=0 => verb.to_owned(),
        count => format!("{verb}, {}", number::counted(count, "partition")),
    })
}
