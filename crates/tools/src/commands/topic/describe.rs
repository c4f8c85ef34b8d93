//! `riverrun topic describe`: all that there is to know of a topic.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use riverrun_client::{
    Admin, ClientError, ConfigEntry, ConfigResource, ConfigSource, FoundOffset, Isolation, OffsetSpec,
    PartitionInfo, TopicInfo, TopicPartition,
};
use riverrun_measure::text::number;
use riverrun_measure::text::printable::printable;
use riverrun_measure::text::table::{Column, Table};
use riverrun_types::{DurabilityLevel, NodeId, TopicId};
use serde::Serialize;

use crate::args::ClientArgs;
use crate::commands::outcome;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// The option that says what acks promise.
pub(crate) const DURABILITY: &str = "durability";
/// Further options, which a Riverrun server answers if they are asked by name: the level that all of the topic's options come
/// to, the one that is reached, and the records that are not synced.
pub(crate) const WANTED: &str = "durability.wanted";
const REACHED: &str = "durability.reached";
const UNSYNCED: &str = "durability.unsynced.records";

const JSON: &str = "\
With --json, durability and durability_reached are levels: numbers from 1 to 4, or null where the
server does not say. All offsets, sizes and counts are numbers, too.";

/// Flags of `topic describe`.
#[derive(Args, Debug)]
#[command(after_help = JSON)]
pub struct DescribeArgs {
    /// Names of the topics
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Topic {
    name: String,
    id: String,
    /// The id in its other form, which names directories in the log dirs.
    uuid: String,
    internal: bool,
    /// The level that is wanted, 1 to 4.
    durability: Option<u8>,
    /// The level that acked records have now; another while a change is under way.
    durability_reached: Option<u8>,
    /// Records that are appended and not synced yet.
    unsynced_records: Option<i64>,
    configs: BTreeMap<String, Option<String>>,
    partitions: Vec<Partition>,
}

#[derive(Serialize)]
struct Partition {
    #[serde(rename = "partition")]
    index: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<i32>,
    in_sync: Vec<i32>,
    begin_offset: Option<i64>,
    end_offset: Option<i64>,
    size_bytes: Option<i64>,
    /// Why it does not tell its offsets.
    error: Option<String>,
}

pub(super) async fn run(args: DescribeArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    // A server that does not tell sizes is no reason to hide the rest.
    let sizes = admin.partition_sizes().await.unwrap_or_default();
    let mut topics = Vec::new();
    for (name, result) in admin.describe_topics(&args.names).await {
        let described = match result {
            Ok(info) => describe(&admin, info, &sizes).await,
            Err(error) => Err(error),
        };
        let about = |error| Failure::from(error).about(format!("topic {}", printable(&name)));
        topics.push(described.map_err(about));
    }
    outcome::describe(args.output, topics, text)
}

async fn describe(
    admin: &Admin,
    info: TopicInfo,
    sizes: &BTreeMap<TopicPartition, i64>,
) -> Result<Topic, ClientError> {
    let resource = ConfigResource::Topic(info.name.clone());
    let configs = admin.describe_configs(&resource).await?;
    let state = admin.describe_configs_named(&resource, &[WANTED, REACHED, UNSYNCED]).await?;
    // At once: a partition that does not answer takes the whole time that it is given.
    let (begins, ends) =
        tokio::join!(offsets(admin, &info, OffsetSpec::Earliest), offsets(admin, &info, OffsetSpec::Latest));
    let partitions = info.partitions.iter().map(|partition| {
        let name = TopicPartition::new(info.name.as_str(), partition.index);
        let size_bytes = sizes.get(&name).copied();
        let (begin, end) = (begins.get(&name), ends.get(&name));
        let error = end.or(begin).and_then(|found| found.as_ref().err().cloned());
        // A partition without a leader was not asked.
        let error = partition.led(&info.name).err().map(|error| error.to_string()).or(error);
        describe_partition(partition, begin, end, size_bytes, error)
    });
    let own = configs.iter().filter(|entry| entry.source == ConfigSource::Topic);
    let value =
        |entries: &[ConfigEntry], name: &str| entries.iter().find(|entry| entry.name == name)?.value.clone();
    let level = |entries: &[ConfigEntry], name: &str| {
        let level: DurabilityLevel = value(entries, name)?.parse().ok()?;
        Some(level.number())
    };
    Ok(Topic {
        partitions: partitions.collect(),
        id: info.id.to_string(),
        uuid: uuid(info.id),
        internal: info.internal,
        durability: level(&state, WANTED).or_else(|| level(&configs, DURABILITY)),
        durability_reached: level(&state, REACHED),
        unsynced_records: value(&state, UNSYNCED).and_then(|records| records.parse().ok()),
        configs: own.map(|entry| (entry.name.clone(), entry.value.clone())).collect(),
        name: info.name,
    })
}

/// The form that names directories.
fn uuid(id: TopicId) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(id.0));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// One offset of each partition that has a leader to tell it, or why it does not.
type Offsets = BTreeMap<TopicPartition, Result<Option<i64>, String>>;

async fn offsets(admin: &Admin, info: &TopicInfo, spec: OffsetSpec) -> Offsets {
    let partitions = info.partitions.iter().filter(|partition| partition.leader.is_some());
    let wanted = partitions.map(|partition| (TopicPartition::new(info.name.as_str(), partition.index), spec));
    let found = admin.list_offsets(wanted.collect(), Isolation::ReadUncommitted).await;
    let told = |found: Result<Option<FoundOffset>, ClientError>| {
        found.map(|found| found.map(|found| found.offset.0)).map_err(|error| error.to_string())
    };
    found.into_iter().map(|(partition, found)| (partition, told(found))).collect()
}

fn describe_partition(
    partition: &PartitionInfo,
    begin: Option<&Result<Option<i64>, String>>,
    end: Option<&Result<Option<i64>, String>>,
    size_bytes: Option<i64>,
    error: Option<String>,
) -> Partition {
    let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    let offset = |found: Option<&Result<Option<i64>, String>>| found?.as_ref().ok().copied().flatten();
    Partition {
        index: partition.index,
        leader: partition.leader.map(|leader| leader.0),
        leader_epoch: partition.leader_epoch.0,
        replicas: numbers(&partition.replicas),
        in_sync: numbers(&partition.in_sync),
        begin_offset: offset(begin),
        end_offset: offset(end),
        size_bytes,
        error,
    }
}

fn text(topic: &Topic) -> String {
    let mut text = format!("{}\n  id          {} ({})\n", printable(&topic.name), topic.id, topic.uuid);
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<11} {}", printable(value)).expect("a String takes every text");
    };
    if let Some(level) = topic.durability {
        line("durability", &durability(level));
    }
    if let Some(reached) = topic.durability_reached.filter(|reached| topic.durability != Some(*reached)) {
        line("not yet", &durability(reached));
    }
    if let Some(records) = topic.unsynced_records {
        line("unsynced", &number::records(records.max(0).cast_unsigned()));
    }
    let records: i64 = topic.partitions.iter().filter_map(|p| Some(p.end_offset? - p.begin_offset?)).sum();
    let silent = topic.partitions.iter().filter(|partition| partition.error.is_some()).count();
    let without = match silent {
        0 => String::new(),
        silent => format!(", without {}", number::counted(silent, "partition")),
    };
    line(
        "offsets",
        &format!("{} from first to last{without}", number::count(records.max(0).cast_unsigned())),
    );
    for (name, value) in &topic.configs {
        line("config", &format!("{name}={}", value.as_deref().unwrap_or_default()));
    }
    text += &partitions_table(&topic.partitions).render(2);
    for partition in &topic.partitions {
        if let Some(error) = &partition.error {
            let (index, error) = (partition.index, printable(error));
            writeln!(text, "  partition {index} does not answer: {error}")
                .expect("a String takes every text");
        }
    }
    text
}

fn durability(level: u8) -> String {
    match level.to_string().parse::<DurabilityLevel>() {
        Ok(known) => format!("level {level}: acked records survive {}", known.survives()),
        Err(_) => format!("level {level}"),
    }
}

fn partitions_table(partitions: &[Partition]) -> Table {
    let mut table = Table::new(&[
        Column::Right("PARTITION"),
        Column::Right("LEADER"),
        Column::Right("EPOCH"),
        Column::Left("REPLICAS"),
        Column::Left("IN SYNC"),
        Column::Right("BEGIN"),
        Column::Right("END"),
        Column::Right("SIZE"),
    ]);
    let known = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    let list = |nodes: &[i32]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    for partition in partitions {
        table.row(&[
            partition.index.to_string(),
            known(partition.leader.map(i64::from)),
            partition.leader_epoch.to_string(),
            list(&partition.replicas),
            list(&partition.in_sync),
            known(partition.begin_offset),
            known(partition.end_offset),
            partition.size_bytes.map_or("-".to_owned(), |size| number::bytes(size.max(0).cast_unsigned())),
        ]);
    }
    table
}
