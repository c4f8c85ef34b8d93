//! `riverrun topic alter`.

use std::collections::BTreeMap;

use clap::Args;
use riverrun_client::{Admin, ConfigChange, ConfigOperation, ConfigResource};
use riverrun_measure::text::number;
use riverrun_types::limits::TOPIC_PARTITIONS_MAX;

use super::changed;
use crate::args::{ClientArgs, parse_pair};
use crate::commands::outcome::{Outcome, outcome, report};
use crate::exit::Failure;
use crate::text::output::OutputArgs;

const EXAMPLES: &str = "\
Examples:
  riverrun topic alter clicks --partitions 12
  riverrun topic alter clicks --config retention.ms=86400000 --unset cleanup.policy

More partitions change where a key goes: records with the same key, sent before and after, may lie
in different partitions.";

/// Flags of `topic alter`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[group(id = "changes", required = true, multiple = true, args = ["partitions", "configs", "unset"])]
pub struct AlterArgs {
    /// Name of the topic
    name: String,
    /// How many partitions it has afterwards; only more are possible
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=i64::from(TOPIC_PARTITIONS_MAX)))]
    partitions: Option<i32>,
    /// Set an option of the topic; repeatable
    #[arg(long = "config", short, value_name = "KEY=VALUE", value_parser = parse_pair)]
    configs: Vec<(String, String)>,
    /// Return an option of the topic to the server's default; repeatable
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Only say whether it would work
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) async fn run(args: AlterArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let mut outcomes = Vec::new();
    let changes = changes(&args.configs, &args.unset);
    if !changes.is_empty() {
        outcomes.extend(alter_configs(&admin, &args.name, changes, args.dry_run).await);
    }
    // Configuration first: unlike a partition count it can be taken back if the other half fails.
    if let Some(count) = args.partitions.filter(|_| outcomes.iter().all(|(_, result)| result.is_ok())) {
        let totals = BTreeMap::from([(args.name.clone(), count)]);
        let done = if args.dry_run { "would get" } else { "has" };
        for (name, result) in admin.create_partitions(&totals, args.dry_run).await {
            outcomes
                .push(changed(name, result, |()| format!("{done} {}", number::counted(count, "partition"))));
        }
    }
    report(args.output, outcomes)
}

/// Options to set and to unset, as changes.
pub(crate) fn changes(set: &[(String, String)], unset: &[String]) -> Vec<ConfigChange> {
    let set = set.iter().map(|(name, value)| ConfigChange::set(name, value));
    let unset =
        unset.iter().map(|name| ConfigChange { name: name.clone(), operation: ConfigOperation::Delete });
    set.chain(unset).collect()
}

async fn alter_configs(
    admin: &Admin,
    topic: &str,
    changes: Vec<ConfigChange>,
    dry_run: bool,
) -> Vec<Outcome> {
    let changes = BTreeMap::from([(ConfigResource::Topic(topic.to_owned()), changes)]);
    let done = if dry_run { "configuration would be changed" } else { "configuration changed" };
    let results = admin.alter_configs(&changes, dry_run).await;
    let told = |(_, result)| outcome("topic", topic.to_owned(), result, |()| done.to_owned());
    results.into_iter().map(told).collect()
}
