//! `riverrun group list`.

use clap::Args;
use riverrun_client::{Admin, GroupListing};
use riverrun_measure::text::table::{Column, Table};
use serde::Serialize;

use crate::args::ClientArgs;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `group list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A group in the list; fields and columns have the names that Kafka's own tool prints.
#[derive(Serialize)]
struct Group {
    #[serde(rename = "group")]
    name: String,
    r#type: Option<String>,
    state: Option<String>,
    /// The protocol type: `consumer`, `connect`, or empty.
    protocol: String,
}

impl From<GroupListing> for Group {
    fn from(listing: GroupListing) -> Self {
        let GroupListing { group, protocol_type, state, group_type } = listing;
        Self { name: group, r#type: group_type, state, protocol: protocol_type }
    }
}

pub(super) async fn run(args: ListArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let groups: Vec<Group> = admin.list_groups().await?.into_iter().map(Group::from).collect();
    args.output.print(&groups, |groups| text(groups))
}

fn text(groups: &[Group]) -> String {
    let columns =
        [Column::Left("GROUP"), Column::Left("TYPE"), Column::Left("STATE"), Column::Left("PROTOCOL")];
    let mut table = Table::new(&columns);
    for group in groups {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        table.row(&[group.name.clone(), known(&group.r#type), known(&group.state), group.protocol.clone()]);
    }
    table.render(0)
}
