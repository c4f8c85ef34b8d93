//! `config get`, `config describe` and `config set` ask a running server for its configuration, or change it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use riverrun_client::{Admin, ConfigEntry, ConfigResource};
use riverrun_measure::text::printable::printable;
use riverrun_measure::text::table::{Column, Table};
use serde::Serialize;

use super::target::Target;
use crate::args::{ClientArgs, parse_pair};
use crate::commands::outcome::{outcome, report};
use crate::commands::topic::{DURABILITY, WANTED, changes};
use crate::exit::{Exit, Failure};
use crate::text::output::OutputArgs;

const GET_EXAMPLES: &str = "\
Examples:
  riverrun config get --topic clicks
  riverrun config get --topic clicks retention.ms cleanup.policy
  riverrun config get --group readers
  riverrun config describe --broker 1 log.retention.hours

Where flush.messages or flush.ms has records synced that durability alone would not, the level that
holds stands beside durability, as durability.wanted.";

const SET_EXAMPLES: &str = "\
Examples:
  riverrun config set --topic clicks retention.ms=86400000 cleanup.policy=compact
  riverrun config set --topic clicks --unset retention.ms
  riverrun config set --group readers consumer.session.timeout.ms=60000
  riverrun config set --broker 1 cordoned.log.dirs=/disk/2";

/// Flags of `config get` and `config describe`.
#[derive(Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArgs {
    #[command(flatten)]
    target: Target,
    /// Options to show [default: all]
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Flags of `config set`.
#[derive(Args, Debug)]
#[command(after_help = SET_EXAMPLES)]
#[group(id = "changes", required = true, multiple = true, args = ["set", "unset"])]
pub struct SetArgs {
    #[command(flatten)]
    target: Target,
    /// Options to set
    #[arg(value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// Return an option to the default; repeatable
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

/// An option with all that the server says of it.
#[derive(Serialize)]
struct Described {
    name: String,
    value: Option<String>,
    source: String,
    read_only: bool,
    documentation: Option<String>,
    synonyms: Vec<Synonym>,
}

/// A value that the option has or would fall back to.
#[derive(Serialize)]
struct Synonym {
    name: String,
    value: Option<String>,
    source: String,
}

/// The entries that were asked for, in the order of the keys, with the level that holds beside a `durability` that does not.
async fn entries(args: &GetArgs) -> Result<Vec<ConfigEntry>, Failure> {
    let resource = args.target.resource();
    let admin = Admin::new(args.client.cluster()).await?;
    let about = |error| Failure::from(error).about(printable(&resource.to_string()));
    let mut entries = if args.keys.is_empty() {
        admin.describe_configs(&resource).await.map_err(about)?
    } else {
        let keys: Vec<&str> = args.keys.iter().map(String::as_str).collect();
        in_order(&keys, &admin.describe_configs_named(&resource, &keys).await.map_err(about)?, &resource)?
    };
    let place = entries.iter().position(|entry| entry.name == DURABILITY);
    let is_shown = entries.iter().any(|entry| entry.name == WANTED);
    if let Some(place) = place.filter(|_| !is_shown) {
        let wanted = admin.describe_configs_named(&resource, &[WANTED]).await.map_err(about)?;
        let differs = |wanted: &ConfigEntry| wanted.value != entries[place].value;
        if let Some(wanted) = wanted.into_iter().next().filter(differs) {
            entries.insert(place + 1, wanted);
        }
    }
    Ok(entries)
}

/// The entries of these keys, or that one of them is none.
fn in_order(
    keys: &[&str],
    entries: &[ConfigEntry],
    resource: &ConfigResource,
) -> Result<Vec<ConfigEntry>, Failure> {
    let find = |key: &&str| {
        let found = entries.iter().find(|entry| entry.name == *key).cloned();
        found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("{resource} has no option {key:?}"))
                .advise("riverrun config docs   (every option with its range)")
        })
    };
    keys.iter().map(find).collect()
}

pub(super) async fn get(args: GetArgs) -> Result<(), Failure> {
    let values: BTreeMap<String, Option<String>> =
        entries(&args).await?.into_iter().map(|entry| (entry.name, entry.value)).collect();
    args.output.print(&values, |values| {
        let mut text = String::new();
        for (name, value) in values {
            let value = value.as_deref().map(printable).unwrap_or_default();
            writeln!(text, "{}={value}", printable(name)).expect("a String takes every text");
        }
        text
    })
}

pub(super) async fn describe(args: GetArgs) -> Result<(), Failure> {
    let entries: Vec<Described> = entries(&args).await?.into_iter().map(described).collect();
    args.output.print(&entries, |entries| text(entries, !args.keys.is_empty()))
}

fn described(entry: ConfigEntry) -> Described {
    let synonyms = entry.synonyms.into_iter().map(|synonym| Synonym {
        name: synonym.name,
        value: synonym.value,
        source: synonym.source.to_string(),
    });
    Described {
        synonyms: synonyms.collect(),
        source: entry.source.to_string(),
        read_only: entry.read_only,
        documentation: entry.doc,
        value: entry.value,
        name: entry.name,
    }
}

/// A table of all options; with `in_full`, each with its text and its fallbacks.
fn text(entries: &[Described], in_full: bool) -> String {
    if in_full {
        return entries.iter().map(full_text).collect::<Vec<_>>().join("\n");
    }
    let mut table = Table::new(&[Column::Left("OPTION"), Column::Left("VALUE"), Column::Left("FROM")]);
    for entry in entries {
        let value = entry.value.clone().unwrap_or_else(|| "(not set)".to_owned());
        table.row(&[entry.name.clone(), value, entry.source.clone()]);
    }
    table.render(0)
}

fn full_text(entry: &Described) -> String {
    let shown = |value: &Option<String>| value.as_deref().map_or_else(|| "(not set)".to_owned(), printable);
    let mut text = format!("{}={}\n", printable(&entry.name), shown(&entry.value));
    if let Some(documentation) = &entry.documentation {
        let lines = documentation.lines().map(|line| format!("  {}\n", printable(line.trim())));
        text.extend(lines);
    }
    let change = if entry.read_only { "cannot be changed while the server runs" } else { "can be changed" };
    writeln!(text, "  from: {}; {change}", entry.source).expect("a String takes every text");
    for synonym in &entry.synonyms {
        writeln!(text, "  {}: {}={}", synonym.source, printable(&synonym.name), shown(&synonym.value))
            .expect("a String takes every text");
    }
    text
}

pub(super) async fn set(args: SetArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let changes = BTreeMap::from([(args.target.resource(), changes(&args.set, &args.unset))]);
    let done = if args.dry_run { "would be changed" } else { "changed" };
    let results = admin.alter_configs(&changes, args.dry_run).await;
    let told = |(resource, result): (ConfigResource, _)| {
        let (kind, name) = match resource {
            ConfigResource::Topic(name) => ("topic", name),
            ConfigResource::Group(name) => ("group", name),
            other => ("server", other.to_string()),
        };
        outcome(kind, name, result, |()| done.to_owned())
    };
    report(args.output, results.into_iter().map(told).collect())
}
