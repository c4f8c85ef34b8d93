//! `riverrun group describe`: members, and how far each partition is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use clap::Args;
use riverrun_client::{
    Admin, ClientError, FoundOffset, GroupDescription, GroupMember, Isolation, OffsetSpec, TopicPartition,
};
use riverrun_measure::text::number;
use riverrun_measure::text::printable::printable;
use riverrun_measure::text::table::{Column, Table};
use serde::Serialize;

use crate::args::ClientArgs;
use crate::commands::outcome;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `group describe`.
#[derive(Args, Debug)]
pub struct DescribeArgs {
    /// Names of the groups
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Group {
    #[serde(rename = "group")]
    name: String,
    r#type: String,
    state: String,
    assignor: String,
    epoch: Option<i32>,
    /// Records that are not read yet, over all partitions of which that is known; none if it is of no one.
    lag: Option<i64>,
    members: Vec<Member>,
    partitions: Vec<Partition>,
}

#[derive(Serialize)]
struct Member {
    #[serde(rename = "member_id")]
    id: String,
    instance_id: Option<String>,
    client_id: String,
    host: String,
    /// The protocol that it speaks, where the server says so: `classic` or `consumer`.
    protocol: Option<&'static str>,
    topics: Vec<String>,
    partitions: Vec<String>,
}

#[derive(Serialize)]
struct Partition {
    topic: String,
    #[serde(rename = "partition")]
    index: i32,
    committed: Option<i64>,
    end: Option<i64>,
    lag: Option<i64>,
    member_id: Option<String>,
    client_id: Option<String>,
    /// Why it does not tell where it ends.
    error: Option<String>,
}

pub(super) async fn run(args: DescribeArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    let mut groups = Vec::new();
    for (name, result) in admin.describe_groups(&args.groups).await {
        let described = match result {
            Ok(group) => describe(&admin, group).await,
            Err(error) => Err(error.into()),
        };
        groups.push(described.map_err(|failure| failure.about(format!("group {}", printable(&name)))));
    }
    outcome::describe(args.output, groups, text)
}

async fn describe(admin: &Admin, group: GroupDescription) -> Result<Group, Failure> {
    let committed = admin.group_offsets(&group.group).await?;
    let assigned = group.members.iter().flat_map(|member| &member.assignment);
    let partitions: BTreeSet<TopicPartition> = committed.keys().chain(assigned).cloned().collect();
    let wanted = partitions.iter().map(|partition| (partition.clone(), OffsetSpec::Latest));
    let ends = admin.list_offsets(wanted.collect(), Isolation::ReadUncommitted).await;
    // A topic that was deleted since has no end, and is shown all the same.
    let mut ends: BTreeMap<TopicPartition, End> =
        ends.into_iter().map(|(partition, end)| (partition, told(end))).collect();
    let readers = readers(&group.members);
    let partitions: Vec<Partition> = partitions
        .iter()
        .map(|partition| {
            let committed = committed.get(partition).map(|committed| committed.offset.0);
            describe_partition(partition, committed, ends.remove(partition), readers.get(partition).copied())
        })
        .collect();
    Ok(Group {
        lag: total_lag(&partitions),
        members: group.members.iter().map(describe_member).collect(),
        partitions,
        r#type: group.group_type,
        state: group.state,
        assignor: group.assignor,
        epoch: group.epoch,
        name: group.group,
    })
}

/// The end of a partition, or why it does not say.
type End = Result<Option<i64>, String>;

fn told(end: Result<Option<FoundOffset>, ClientError>) -> End {
    end.map(|end| end.map(|end| end.offset.0)).map_err(|error| error.to_string())
}

fn total_lag(partitions: &[Partition]) -> Option<i64> {
    partitions.iter().filter_map(|partition| partition.lag).reduce(i64::saturating_add)
}

/// The member that reads each partition; where several do, the first of them.
fn readers(members: &[GroupMember]) -> HashMap<&TopicPartition, &GroupMember> {
    let named = members
        .iter()
        .rev()
        .flat_map(|member| member.assignment.iter().map(move |partition| (partition, member)));
    named.collect()
}

fn describe_partition(
    partition: &TopicPartition,
    committed: Option<i64>,
    end: Option<End>,
    reader: Option<&GroupMember>,
) -> Partition {
    let (end, error) = match end {
        Some(Ok(end)) => (end, None),
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    Partition {
        topic: partition.topic.to_string(),
        index: partition.partition,
        committed,
        end,
        lag: committed.zip(end).map(|(committed, end)| end.saturating_sub(committed).max(0)),
        member_id: reader.map(|member| member.member_id.clone()),
        client_id: reader.map(|member| member.client_id.clone()),
        error,
    }
}

fn describe_member(member: &GroupMember) -> Member {
    Member {
        id: member.member_id.clone(),
        instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        host: member.host.clone(),
        protocol: member.protocol,
        topics: member.topics.clone(),
        partitions: member.assignment.iter().map(ToString::to_string).collect(),
    }
}

fn text(group: &Group) -> String {
    let mut text = format!(
        "{}\n  state       {} ({}, {})\n  members     {}\n  lag         {}\n",
        printable(&group.name),
        group.state,
        group.r#type,
        if group.assignor.is_empty() { "no assignor yet" } else { &group.assignor },
        group.members.len(),
        group.lag.map_or("-".to_owned(), |lag| number::count(lag.max(0).cast_unsigned())),
    );
    if !group.members.is_empty() {
        text += &members_table(&group.members).render(2);
    }
    if group.partitions.is_empty() {
        writeln!(text, "  nothing is committed").expect("a String takes every text");
    } else {
        text += &partitions_table(&group.partitions).render(2);
    }
    for partition in &group.partitions {
        if let Some(error) = &partition.error {
            let (topic, index) = (printable(&partition.topic), partition.index);
            writeln!(text, "  {topic}-{index} does not say where it ends: {}", printable(error))
                .expect("a String takes every text");
        }
    }
    text
}

fn members_table(members: &[Member]) -> Table {
    let mut table = Table::new(&[
        Column::Left("MEMBER"),
        Column::Left("CLIENT"),
        Column::Left("HOST"),
        Column::Left("PROTOCOL"),
        Column::Right("PARTITIONS"),
    ]);
    for member in members {
        let id = member.instance_id.as_ref().unwrap_or(&member.id);
        let (protocol, count) = (member.protocol.unwrap_or("-"), member.partitions.len().to_string());
        table.row(&[id.clone(), member.client_id.clone(), member.host.clone(), protocol.to_owned(), count]);
    }
    table
}

fn partitions_table(partitions: &[Partition]) -> Table {
    let mut table = Table::new(&[
        Column::Left("TOPIC"),
        Column::Right("PARTITION"),
        Column::Right("COMMITTED"),
        Column::Right("END"),
        Column::Right("LAG"),
        Column::Left("MEMBER"),
    ]);
    let known = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    for partition in partitions {
        table.row(&[
            partition.topic.clone(),
            partition.index.to_string(),
            known(partition.committed),
            known(partition.end),
            known(partition.lag),
            partition.member_id.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_group_that_rolls_tell_their_protocol() {
        let member = |protocol| Member {
            id: "m".to_owned(),
            instance_id: None,
            client_id: "c".to_owned(),
            host: "/h".to_owned(),
            protocol,
            topics: Vec::new(),
            partitions: Vec::new(),
        };
        let members = [Some("classic"), Some("consumer"), None].map(member);
        let text = members_table(&members).render(0);
        let protocols: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().nth(3)).collect();
        assert_eq!(protocols, ["PROTOCOL", "classic", "consumer", "-"]);
    }

    #[test]
    fn a_lag_that_is_not_known_is_not_zero() {
        let partition =
            |committed| describe_partition(&TopicPartition::new("t", 0), committed, Some(Ok(Some(9))), None);
        let group = |committed: &[Option<i64>]| {
            let partitions: Vec<_> = committed.iter().copied().map(partition).collect();
            Group {
                name: "g".to_owned(),
                r#type: "classic".to_owned(),
                state: "Stable".to_owned(),
                assignor: "range".to_owned(),
                epoch: None,
                lag: total_lag(&partitions),
                members: Vec::new(),
                partitions,
            }
        };
        for (committed, lag, line) in [
            (&[][..], None, "lag         -\n"),
            (&[None, None], None, "lag         -\n"),
            (&[None, Some(4)], Some(5), "lag         5\n"),
            (&[Some(9)], Some(0), "lag         0\n"),
        ] {
            let group = group(committed);
            assert_eq!(group.lag, lag, "{committed:?}");
            assert!(text(&group).contains(line), "{line} in {}", text(&group));
        }
    }
}
