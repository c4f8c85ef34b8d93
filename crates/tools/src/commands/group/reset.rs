//! `riverrun group reset`: moves the committed offsets of a group.
//!
//! Shows what it would do, and does it only with `--execute`. Refuses a group that has members: they would go on
//! from where they are, and commit over it.

use std::collections::BTreeMap;

use clap::Args;
use riverrun_client::{Admin, OffsetSpec, TopicPartition};
use riverrun_measure::text::number;
use riverrun_measure::text::printable::printable;
use riverrun_measure::text::table::{Column, Table};
use riverrun_protocol::ErrorCode;
use riverrun_types::{Offset, TimestampMs};
use serde::Serialize;

use super::offsets::find;
use crate::args::ClientArgs;
use crate::exit::{Exit, Failure};
use crate::text::output::OutputArgs;
use crate::text::time::{now, parse_time};

const EXAMPLES: &str = "\
Examples:
  riverrun group reset readers --topic clicks --to-earliest
  riverrun group reset readers --topic clicks --to-earliest --execute
  riverrun group reset readers --topic clicks:0,2 --to-time -1h --execute
  riverrun group reset readers --all-topics --shift-by -100 --execute

Without --execute it only shows what would change. A group that has members is not reset.";

/// Flags of `group reset`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ResetArgs {
    /// Name of the group
    group: String,
    #[command(flatten)]
    of: OfArgs,
    #[command(flatten)]
    to: ToArgs,
    /// Do it; without this, only show what would change
    #[arg(long)]
    execute: bool,
    /// Only show what would change; the default
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    #[command(flatten)]
    client: ClientArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The topics whose offsets are reset.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct OfArgs {
    /// A topic, or some of its partitions as TOPIC:0,2; repeatable
    #[arg(long = "topic", value_name = "TOPIC[:PARTITIONS]", value_parser = parse_selection)]
    topics: Vec<Selection>,
    /// All partitions for which the group has committed an offset
    #[arg(long)]
    all_topics: bool,
}

/// The flags that name the new offsets.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
struct ToArgs {
    /// To the first record that is there
    #[arg(long)]
    to_earliest: bool,
    /// To the end: only new records
    #[arg(long)]
    to_latest: bool,
    /// To this offset, or the nearest that there is
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// To the first record at this time or later: RFC 3339, milliseconds since 1970, or a time ago such as -1h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = |text: &str| parse_time(text, now()).map(|time| time.0))]
    to_time: Option<i64>,
    /// By so many records, back if negative
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

/// The new offsets, as one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Earliest,
    Latest,
    Offset(i64),
    Time(TimestampMs),
    ShiftBy(i64),
}

impl ToArgs {
    fn goal(&self) -> Goal {
        match self {
            Self { to_earliest: true, .. } => Goal::Earliest,
            Self { to_offset: Some(offset), .. } => Goal::Offset(*offset),
            Self { to_time: Some(time), .. } => Goal::Time(TimestampMs(*time)),
            Self { shift_by: Some(count), .. } => Goal::ShiftBy(*count),
            // The command line requires one of the five.
            Self { .. } => Goal::Latest,
        }
    }
}

/// A topic, and which of its partitions; none for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selection {
    topic: String,
    partitions: Option<Vec<i32>>,
}

/// A topic's name has no colon, so the first one ends it.
fn parse_selection(text: &str) -> Result<Selection, String> {
    let (topic, list) = match text.split_once(':') {
        None => (text, None),
        Some((topic, list)) => (topic, Some(list)),
    };
    if topic.is_empty() {
        return Err("a topic has a name".to_owned());
    }
    let number = |text: &str| text.trim().parse().ok().filter(|number: &i32| *number >= 0);
    let partitions = list.map(|list| list.split(',').map(number).collect::<Option<Vec<_>>>());
    match partitions {
        Some(None) => Err("partitions are numbers from 0, separated by commas".to_owned()),
        partitions => Ok(Selection { topic: topic.to_owned(), partitions: partitions.flatten() }),
    }
}

/// A partition's committed offset before and after.
#[derive(Serialize)]
struct Move {
    topic: String,
    partition: i32,
    from: Option<i64>,
    to: i64,
}

#[derive(Serialize)]
struct Plan {
    group: String,
    executed: bool,
    partitions: Vec<Move>,
}

/// The known state of a partition before it is moved.
#[derive(Clone, Copy, Debug)]
struct Known {
    begin: Offset,
    end: Offset,
    committed: Option<Offset>,
    /// The first record of the time that is the goal.
    at_time: Option<Offset>,
}

pub(super) async fn run(args: ResetArgs) -> Result<(), Failure> {
    let admin = Admin::new(args.client.cluster()).await?;
    refuse_active(&admin, &args.group).await?;
    let committed: BTreeMap<TopicPartition, Offset> =
        admin.group_offsets(&args.group).await?.into_iter().map(|(name, at)| (name, at.offset)).collect();
    let partitions = if args.of.all_topics {
        committed.keys().cloned().collect()
    } else {
        select(&admin, &args.of.topics).await?
    };
    if partitions.is_empty() {
        let text = format!("group {} has committed nothing", printable(&args.group));
        return Err(
            Failure::new(Exit::NotFound, text).advise("--topic NAME   (names the topics to begin with)")
        );
    }
    let moves = plan(&admin, &partitions, &committed, args.to.goal()).await?;
    if args.execute {
        execute(&admin, &args.group, &moves).await?;
    }
    let partitions = moves.into_iter().map(|(partition, (from, to))| Move {
        topic: partition.topic.to_string(),
        partition: partition.partition,
        from: from.map(|offset| offset.0),
        to: to.0,
    });
    let plan = Plan { group: args.group, executed: args.execute, partitions: partitions.collect() };
    args.output.print(&plan, text)
}

async fn refuse_active(admin: &Admin, group: &str) -> Result<(), Failure> {
    for (_, result) in admin.describe_groups(&[group.to_owned()]).await {
        match result {
            Ok(description) if !description.members.is_empty() => {
                let members = number::counted(description.members.len(), "member");
                let text = format!("group {} has {members}, and is not moved meanwhile", printable(group));
                return Err(Failure::new(Exit::Conflict, text).advise("stop its consumers, then again"));
            }
            Ok(_) => {}
            // A group that does not exist yet can be given offsets to begin with.
            Err(error) if error.code() == Some(ErrorCode::GROUP_ID_NOT_FOUND) => {}
            Err(error) => return Err(Failure::from(error).about(format!("group {}", printable(group)))),
        }
    }
    Ok(())
}

async fn select(admin: &Admin, selections: &[Selection]) -> Result<Vec<TopicPartition>, Failure> {
    let names: Vec<String> = selections.iter().map(|selection| selection.topic.clone()).collect();
    let mut partitions = Vec::new();
    for (selection, (name, result)) in selections.iter().zip(admin.describe_topics(&names).await) {
        let topic =
            result.map_err(|error| Failure::from(error).about(format!("topic {}", printable(&name))))?;
        let count = topic.partition_count();
        let wanted = selection.partitions.clone().unwrap_or_else(|| (0..count).collect());
        if let Some(missing) = wanted.iter().find(|index| **index >= count) {
            let text = format!("topic {} has no partition {missing}; it has {count}", printable(&name));
            return Err(Failure::new(Exit::NotFound, text));
        }
        partitions.extend(wanted.into_iter().map(|index| TopicPartition::new(name.as_str(), index)));
    }
    Ok(partitions)
}

type Moves = BTreeMap<TopicPartition, (Option<Offset>, Offset)>;

async fn plan(
    admin: &Admin,
    partitions: &[TopicPartition],
    committed: &BTreeMap<TopicPartition, Offset>,
    goal: Goal,
) -> Result<Moves, Failure> {
    let begins = find(admin, partitions, OffsetSpec::Earliest).await?;
    let ends = find(admin, partitions, OffsetSpec::Latest).await?;
    let at_time = match goal {
        Goal::Time(time) => find(admin, partitions, OffsetSpec::Timestamp(time)).await?,
        _ => BTreeMap::new(),
    };
    let mut moves = Moves::new();
    for partition in partitions {
        let of = |offsets: &BTreeMap<TopicPartition, Offset>| offsets.get(partition).copied();
        let begin = of(&begins).unwrap_or(Offset::ZERO);
        let end = of(&ends).unwrap_or(begin).max(begin);
        let known = Known { begin, end, committed: of(committed), at_time: of(&at_time) };
        let to = reached(goal, known).map_err(|text| Failure::usage(text).about(partition))?;
        moves.insert(partition.clone(), (known.committed, to));
    }
    Ok(moves)
}

/// The offset that a goal means in one partition: always one that is there, or the end.
fn reached(goal: Goal, known: Known) -> Result<Offset, &'static str> {
    let offset = match goal {
        Goal::Earliest => known.begin,
        Goal::Latest => known.end,
        Goal::Offset(offset) => Offset(offset),
        Goal::Time(_) => known.at_time.unwrap_or(known.end),
        Goal::ShiftBy(count) => {
            let committed = known.committed.ok_or("nothing is committed that could be shifted")?;
            Offset(committed.0.saturating_add(count))
        }
    };
    Ok(offset.clamp(known.begin, known.end))
}

async fn execute(admin: &Admin, group: &str, moves: &Moves) -> Result<(), Failure> {
    let offsets = moves.iter().map(|(partition, (_, to))| (partition.clone(), *to)).collect();
    for (partition, result) in admin.alter_group_offsets(group, &offsets).await {
        result.map_err(|error| Failure::from(error).about(&partition))?;
    }
    Ok(())
}

fn text(plan: &Plan) -> String {
    let mut table = Table::new(&[
        Column::Left("TOPIC"),
        Column::Right("PARTITION"),
        Column::Right("FROM"),
        Column::Right("TO"),
    ]);
    for step in &plan.partitions {
        let from = step.from.map_or("-".to_owned(), |offset| offset.to_string());
        table.row(&[step.topic.clone(), step.partition.to_string(), from, step.to.to_string()]);
    }
    let note = if plan.executed { "" } else { "nothing was changed; --execute does it\n" };
    table.render(0) + note
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reset: ResetArgs,
    }

    fn goal(flags: &[&str]) -> Result<Goal, clap::Error> {
        let line = [&["reset", "group", "--topic", "t"], flags].concat();
        Line::try_parse_from(line).map(|line| line.reset.to.goal())
    }

    #[test]
    fn exactly_one_goal_is_given() {
        for (flags, expected) in [
            (&["--to-earliest"][..], Goal::Earliest),
            (&["--to-latest"], Goal::Latest),
            (&["--to-offset", "7"], Goal::Offset(7)),
            (&["--to-time", "1357034400000"], Goal::Time(TimestampMs(1_357_034_400_000))),
            (&["--shift-by", "-3"], Goal::ShiftBy(-3)),
        ] {
            assert_eq!(goal(flags).expect("one goal"), expected, "{flags:?}");
        }
        assert!(matches!(goal(&["--to-time", "-1h"]), Ok(Goal::Time(_))));
        for bad in
            [&[][..], &["--to-earliest", "--to-latest"], &["--to-offset", "-1"], &["--to-time", "soon"]]
        {
            assert!(goal(bad).is_err(), "{bad:?}");
        }
        assert!(goal(&["--to-latest", "--execute", "--dry-run"]).is_err());
    }

    #[test]
    fn a_selection_is_a_topic_or_some_of_its_partitions() {
        let selection =
            |topic: &str, partitions: Option<Vec<i32>>| Selection { topic: topic.to_owned(), partitions };
        assert_eq!(parse_selection("t"), Ok(selection("t", None)));
        assert_eq!(parse_selection("t:0,2"), Ok(selection("t", Some(vec![0, 2]))));
        for bad in ["", ":0", "t:", "t:a", "t:-1", "t:0,", "t:0:1", "t:99999999999"] {
            assert!(parse_selection(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_goal_is_always_an_offset_that_is_there() {
        let known = Known { begin: Offset(10), end: Offset(20), committed: Some(Offset(15)), at_time: None };
        for (goal, offset) in [
            (Goal::Earliest, 10),
            (Goal::Latest, 20),
            (Goal::Offset(3), 10),
            (Goal::Offset(i64::MAX), 20),
            (Goal::Time(TimestampMs(0)), 20),
            (Goal::ShiftBy(-3), 12),
            (Goal::ShiftBy(i64::MIN), 10),
            (Goal::ShiftBy(i64::MAX), 20),
        ] {
            assert_eq!(reached(goal, known), Ok(Offset(offset)), "{goal:?}");
        }
        let timed = Known { at_time: Some(Offset(17)), ..known };
        assert_eq!(reached(Goal::Time(TimestampMs(0)), timed), Ok(Offset(17)));
        assert!(reached(Goal::ShiftBy(1), Known { committed: None, ..known }).is_err());
    }
}
