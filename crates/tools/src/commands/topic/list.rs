//! `riverrun topic list`.

use clap::Args;
use riverrun_client::{Admin, TopicInfo};
use riverrun_measure::text::table::{Column, Table};
use serde::Serialize;

use crate::args::ClientArgs;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `topic list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Show the server's own topics as well, such as `__consumer_offsets`
    #[arg(long)]
    internal: bool,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A topic in the list.
#[derive(Serialize)]
struct Topic {
    name: String,
    id: String,
    partitions: usize,
    replication_factor: usize,
    internal: bool,
}

impl From<TopicInfo> for Topic {
    fn from(topic: TopicInfo) -> Self {
        Self {
            id: topic.id.to_string(),
            partitions: topic.partitions.len(),
            replication_factor: topic.partitions.first().map_or(0, |partition| partition.replicas.len()),
            internal: topic.internal,
            name: topic.name,
        }
    }
}

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let topics = admin.list_topics().await?.into_iter().filter(|topic| args.internal || !topic.internal);
    let topics: Vec<Topic> = topics.map(Topic::from).collect();
    args.output.print(&topics, |topics| text(topics))
}

fn text(topics: &[Topic]) -> String {
    let mut table = Table::new(&[
        Column::Left("NAME"),
        Column::Right("PARTITIONS"),
        Column::Right("REPLICAS"),
        Column::Left("ID"),
    ]);
    for topic in topics {
        let (partitions, replicas) = (topic.partitions.to_string(), topic.replication_factor.to_string());
        table.row(&[topic.name.clone(), partitions, replicas, topic.id.clone()]);
    }
    table.render(0)
}
