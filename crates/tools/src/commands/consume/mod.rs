//! `riverrun consume`: records of topics, printed.
//!
//! Without a group it reads partitions directly; with one it shares them, and commits what it has printed, never
//! more. It ends at the end of the topics, as it was at the start, unless `--follow` is given.

mod format;
mod places;
mod reading;
mod silent;
mod start;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use riverrun_client::{Consumer, ConsumerOptions, GroupProtocol, OffsetReset};
use riverrun_measure::text::number;
use riverrun_types::Offset;

use self::format::Format;
use self::reading::{Limits, Plan, Printer, Reading};
use self::start::From;
use crate::args::{ClientArgs, parse_partition};
use crate::exit::Failure;
use crate::logging;
use crate::runtime::block_on;

/// How long partitions that do not answer hold up the others at the start.
const PATIENCE: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "\
Examples:
  riverrun consume clicks                                 all records that there are, then the end
  riverrun consume clicks --follow                        the same, then new records
  riverrun consume clicks --from end                      only new records
  riverrun consume clicks --from -10 --format key-value   the last 10 of each partition
  riverrun consume clicks --from -1h --format json | jq .
  riverrun consume clicks --from 2013-01-01T10:00:00Z --max 100
  riverrun consume clicks --group readers --follow
  riverrun consume clicks --format '{partition}/{offset} {timestamp} {key}: {value}'

Reading ends at the end that the partitions had when it began, unless --follow is given or --from
is `end`. With a group it goes on from the committed offsets, commits the records that it has
printed, and ends when its partitions have been read. Failed requests are tried again, but not
longer than --timeout. A partition that is offline does not hold up the others: it is named on
stderr, and if it is not back within --timeout, the exit code is 4 when the rest has been read.
With --follow it waits without a bound for a partition, and for a server that was there at the
start. A damaged batch ends it with exit code 5, and the error names the place. A missing key or
value is printed as null. On a terminal control characters are escaped.";

/// Flags of `consume`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConsumeArgs {
    /// The topics
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Place to begin: beginning, end, an offset (that at least one of the partitions has), -N for the last N of each
    /// partition, @MILLISECONDS since 1970, a time such as 2013-01-01T10:00:00Z, or a time ago such as -90s, -15m, -1h.
    /// With a group it is beginning or end, and holds for partitions without a committed offset
    #[arg(long, value_name = "PLACE", default_value = "beginning", allow_hyphen_values = true)]
    from: From,
    /// Read only this partition; repeatable
    #[arg(long = "partition", value_name = "N", conflicts_with = "group", allow_negative_numbers = true, value_parser = parse_partition)]
    partitions: Vec<i32>,
    /// Share the topics with this group, and commit
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// How the group assigns partitions to its members
    #[arg(long, value_name = "PROTOCOL", requires = "group", default_value = "consumer")]
    group_protocol: ProtocolArg,
    /// Go on with new records, until Ctrl-C or SIGTERM
    #[arg(long, conflicts_with = "until_end")]
    follow: bool,
    /// End at the end, even with --from end
    #[arg(long)]
    until_end: bool,
    /// Stop after so many records
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// How to print a record: value, key-value, json, hex, or a template such as '{offset} {key}={value}' with `{topic}`,
    /// `{partition}`, `{offset}`, `{timestamp}`, `{timestamp_ms}`, `{key}`, `{value}`, `{headers}`, \n, \t
    #[arg(long, value_name = "FORMAT", default_value = "value")]
    format: Format,
    /// The same as --format json: one JSON object on each line
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// `--group-protocol`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolArg {
    /// One member computes the assignment
    Classic,
    /// The server computes the assignment (KIP-848)
    Consumer,
}

impl ConsumeArgs {
    fn follows(&self) -> bool {
        self.follow || (self.from == From::End && !self.until_end)
    }

    /// A reader that follows waits for partitions however long they are away.
    fn limits(&self) -> Limits {
        let trouble = (!self.follows()).then(|| self.client.timeout());
        Limits { records: self.max, trouble }
    }

    fn options(&self) -> Result<ConsumerOptions, Failure> {
        let offset_reset = match self.from {
            From::End => OffsetReset::Latest,
            From::Beginning => OffsetReset::Earliest,
            _ if self.group.is_some() => {
                return Err(Failure::usage("with --group, --from is beginning or end")
                    .advise("riverrun group reset GROUP --help   (moves the committed offsets of a group)"));
            }
            _ => OffsetReset::Earliest,
        };
        Ok(ConsumerOptions {
            group: self.group.clone(),
            group_protocol: match self.group_protocol {
                ProtocolArg::Classic => GroupProtocol::Classic,
                ProtocolArg::Consumer => GroupProtocol::Consumer,
            },
            auto_commit_interval: None,
            offset_reset,
            ..ConsumerOptions::new(self.client.cluster())
        })
    }
}

/// Does what the command line says.
pub fn run(args: ConsumeArgs) -> Result<(), Failure> {
    block_on(Box::pin(consume(args)))
}

async fn consume(args: ConsumeArgs) -> Result<(), Failure> {
    let consumer = Consumer::new(args.options()?).await?;
    let format = if args.json { Format::Json } else { args.format.clone() };
    let printer = Printer::new(format, std::io::stdout().is_terminal());
    let mut reading = Reading::new(consumer, printer, args.limits(), args.group.is_some());
    let outcome = read(&mut reading, &args).await;
    let count = reading.printed();
    let closed = reading.close(outcome.is_ok()).await;
    if std::io::stderr().is_terminal() {
        let hint = if args.follows() { "" } else { "; --follow waits for more" };
        logging::note(&format!("{}{hint}", number::records(count)));
    }
    outcome.and(closed)
}

async fn read(reading: &mut Reading, args: &ConsumeArgs) -> Result<(), Failure> {
    let consumer = reading.consumer();
    let partitions = places::partitions(consumer, &args.topics, &args.partitions).await?;
    let known = places::bounds(consumer, &partitions, PATIENCE).await?;
    if args.group.is_some() {
        consumer.subscribe(&args.topics).await?;
    } else {
        if let From::Offset(offset) = args.from {
            places::check_offset(&known, Offset(offset))?;
        }
        consumer.assign(places::starts(&known, args.from)).await?;
        // Nothing is read before it is known where to begin.
        let silent: Vec<_> = known.silent.iter().cloned().collect();
        consumer.pause(&silent)?;
    }
    let from = args.group.is_none().then_some(args.from);
    reading.run(Plan::new(known, from, args.follows())).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        consume: ConsumeArgs,
    }

    fn args(flags: &[&str]) -> Result<ConsumeArgs, clap::Error> {
        Line::try_parse_from([&["consume", "topic"], flags].concat()).map(|line| line.consume)
    }

    #[test]
    fn reading_follows_only_when_asked_or_from_the_end() {
        for (flags, follows) in [
            (&[][..], false),
            (&["--follow"], true),
            (&["--from", "end"], true),
            (&["--from", "end", "--until-end"], false),
            (&["--from", "-1h"], false),
        ] {
            let args = args(&[flags, &["--timeout", "7"]].concat()).expect("valid flags");
            assert_eq!(args.follows(), follows, "{flags:?}");
            let trouble = args.limits().trouble;
            assert_eq!(trouble, (!follows).then(|| Duration::from_secs(7)), "{flags:?}");
        }
        assert!(args(&["--follow", "--until-end"]).is_err());
    }

    #[test]
    fn with_a_group_only_beginning_or_end_are_places() {
        for (from, good) in [("beginning", true), ("end", true), ("5", false), ("-1h", false), ("-5", false)]
        {
            let args = args(&["--group", "g", "--from", from]).expect("valid flags");
            assert_eq!(args.options().is_ok(), good, "{from}");
        }
        assert!(args(&["--group", "g", "--partition", "0"]).is_err());
        assert!(args(&["--group-protocol", "classic"]).is_err());
    }

    #[test]
    fn a_bad_format_or_place_is_a_usage_error() {
        assert!(args(&["--format", "yaml"]).is_err());
        assert!(args(&["--from", "yesterday"]).is_err());
        assert!(args(&["--json", "--format", "hex"]).is_err());
    }
}
