//! `riverrun queue tail`: records as lines.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use riverrun_queue::{Offset, Park, QueueError, QueueView, Record, StartAt, Tailer};
use serde_json::{Map, Value};

use super::{partition, queue_failure};
use crate::exit::Failure;
use crate::text::bytes::put_json;
use crate::text::time::{TIME_FORMS, now, parse_time};

const EXAMPLES: &str = "\
Examples:
  riverrun queue tail quotes --from end --follow
  riverrun queue tail quotes --from -15m
  riverrun queue tail --partition riverrun-data/logs/7014b4a1-5af8-4dd2-bc34-d4f7874e2d66/0";

/// Flags of `queue tail`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct TailArgs {
    /// The queue's directory
    #[arg(value_name = "DIR")]
    pub(super) dir: PathBuf,
    /// DIR is a partition of a server on this machine, <log dir>/<topic id>/<partition>, which is only read; `riverrun
    /// topic describe` tells the id. Records come when the server has written them into its segments: with durability 2
    /// and 4 at once (unless journal.async.write is set), with 1 and 3, which sync through the journal, about ten
    /// seconds later. Before the first ones DIR may be missing; --follow waits for it
    #[arg(long, conflicts_with_all = ["name", "synced"])]
    partition: bool,
    /// Place to begin: start, end, an offset, a time such as 2013-01-01T10:00:00Z or 2013-01-01, milliseconds since
    /// 1970 (more than 12 digits), or a time ago such as -90s, -15m, -1h, -2d
    #[arg(long, value_name = "PLACE", default_value = "start", value_parser = parse_place, allow_hyphen_values = true)]
    pub(super) from: StartAt,
    /// Go on where a tailer of this name has ended, and keep the place for the next; --from is for a new name. While no
    /// tailer of this name runs, retention removes unread records, too: the next one goes on at the first record that
    /// is left, and says how many are missing
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Begin at --from also if the name has a place, which is forgotten
    #[arg(long, requires = "name")]
    reset: bool,
    /// End after so many records
    #[arg(long, value_name = "COUNT")]
    pub(super) count: Option<u64>,
    /// At the end, wait for more
    #[arg(long)]
    pub(super) follow: bool,
    /// Show only records that a sync has covered
    #[arg(long)]
    synced: bool,
    /// Print one JSON object on each line
    #[arg(long)]
    pub(super) json: bool,
}

/// An offset is at most this long: a longer number is a time in milliseconds.
const OFFSET_DIGITS_MAX: usize = 12;

fn parse_place(text: &str) -> Result<StartAt, String> {
    let is_offset = text.len() <= OFFSET_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "start" => Ok(StartAt::Start),
        "end" => Ok(StartAt::End),
        _ if is_offset && !text.is_empty() => {
            text.parse().map(|offset| StartAt::Offset(Offset(offset))).map_err(|error| format!("{error}"))
        }
        _ => parse_time(text, now())
            .map(StartAt::Time)
            .map_err(|_| format!("it must be start, end, an offset, or a time: {TIME_FORMS}")),
    }
}

pub(super) fn run(args: &TailArgs) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.partition {
        return partition::tail(args, &mut out);
    }
    let mut tailer = open(args).map_err(|error| not_open(args, &error))?;
    let missed = tailer.missed();
    if missed > 0 {
        let from = tailer.offset();
        tracing::warn!(
            "{missed} records that were not read under this name were removed: it goes on at {from}"
        );
    }
    tailer.set_synced_only(args.synced);
    let mut line = Vec::new();
    let mut printed = 0;
    while args.count.is_none_or(|count| printed < count) && read_line(&mut tailer, args, &mut out, &mut line)?
    {
        out.write_all(&line).map_err(|error| Failure::output(&error))?;
        printed += 1;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    tailer.keep_place().map_err(|error| queue_failure(&error))
}

/// The user may not know that a partition is another thing than a queue.
fn not_open(args: &TailArgs, error: &QueueError) -> Failure {
    let failure = queue_failure(error);
    let is_segment = |entry: std::fs::DirEntry| entry.path().extension().is_some_and(|name| name == "log");
    let holds_segments =
        args.dir.read_dir().is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_segment)));
    if matches!(error, QueueError::NoQueue { .. }) && holds_segments {
        return failure.advise("with --partition it reads a partition of a server");
    }
    failure
}

/// Only a place is something to write.
fn open(args: &TailArgs) -> Result<Tailer, QueueError> {
    let Some(name) = &args.name else { return QueueView::open(&args.dir)?.tailer(args.from) };
    let queue = super::open(&args.dir)?;
    if args.reset {
        queue.remove_tailer(name)?;
    }
    queue.named_tailer(name, args.from)
}

/// Puts the next record into `line`; false if there is none and none is waited for. Before it waits, what was
/// printed is shown, and the place is kept.
fn read_line(
    tailer: &mut Tailer,
    args: &TailArgs,
    out: &mut impl std::io::Write,
    line: &mut Vec<u8>,
) -> Result<bool, Failure> {
    line.clear();
    if let Some(record) = tailer.next().map_err(|error| queue_failure(&error))? {
        push(line, &record, args.json);
        return Ok(true);
    }
    if !args.follow {
        return Ok(false);
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    tailer.keep_place().map_err(|error| queue_failure(&error))?;
    let record = tailer.wait(&mut Park::default(), None).map_err(|error| queue_failure(&error))?;
    if let Some(record) = &record {
        push(line, record, args.json);
    }
    Ok(record.is_some())
}

/// Puts a record's line behind `line`.
pub(super) fn push(line: &mut Vec<u8>, record: &Record<'_>, json: bool) {
    if json {
        let mut object = Map::new();
        object.insert("offset".to_owned(), record.offset.0.into());
        object.insert("timestamp".to_owned(), record.timestamp.0.into());
        put_json(&mut object, "key", record.key);
        put_json(&mut object, "value", record.value);
        line.extend_from_slice(Value::Object(object).to_string().as_bytes());
    } else {
        line.extend_from_slice(record.value.unwrap_or_default());
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_an_offset_or_a_time() {
        assert_eq!(parse_place("start"), Ok(StartAt::Start));
        assert_eq!(parse_place("end"), Ok(StartAt::End));
        assert_eq!(parse_place("17"), Ok(StartAt::Offset(Offset(17))));
        assert!(matches!(parse_place("2013-01-01"), Ok(StartAt::Time(_))));
        for bad in ["", "middle", "-"] {
            assert!(parse_place(bad).is_err(), "{bad:?}");
        }
    }
}
