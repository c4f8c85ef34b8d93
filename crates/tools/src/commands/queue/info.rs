//! `riverrun queue info` and `riverrun queue verify`: both read only.

use std::path::PathBuf;

use clap::Args;
use riverrun_measure::text::number;
use riverrun_queue::QueueView;
use serde::Serialize;

use super::queue_failure;
use crate::exit::Failure;
use crate::text::output::OutputArgs;

/// Flags of `queue info` and `queue verify`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    /// The queue's directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Info {
    start_offset: i64,
    end_offset: i64,
    segments: usize,
    segment_bytes: u64,
    unsynced_bytes: u64,
    poisoned: bool,
    /// Whether nobody has the queue open, and it was last used before a boot or through another mount, so that the files
    /// have to be read to find out what they hold: how many records above the last sync are whole, and where the first is
    /// not.
    unrecovered: bool,
    unrecovered_records: i64,
    cut_at: Option<String>,
}

#[derive(Serialize)]
struct Verified {
    records: u64,
}

fn open(args: &InfoArgs) -> Result<QueueView, Failure> {
    QueueView::open(&args.dir).map_err(|error| queue_failure(&error))
}

pub(super) fn run(args: &InfoArgs) -> Result<(), Failure> {
    let queue = open(args)?;
    let status = queue.status().map_err(|error| queue_failure(&error))?;
    let recovery = queue.recovery();
    let info = Info {
        start_offset: status.start_offset.0,
        end_offset: status.end_offset.0,
        segments: status.segments,
        segment_bytes: status.segment_bytes,
        unsynced_bytes: status.unsynced_bytes,
        poisoned: status.poisoned,
        unrecovered: recovery.from_disk,
        unrecovered_records: recovery.records_kept,
        cut_at: recovery.cut_at.as_ref().map(|(path, at)| format!("{} at byte {at}", path.display())),
    };
    args.output.print(&info, text)
}

fn text(info: &Info) -> String {
    let poisoned = "a sync has failed: nothing is appended until the machine starts anew\n";
    let records = number::count(u64::try_from(info.unrecovered_records).unwrap_or(0));
    let unrecovered = format!("recovery   is due, and will keep {records} records above the last sync\n");
    format!(
        "offsets    {} up to {}\nsegments   {} of {}\nnot synced {}\n{}{}{}",
        info.start_offset,
        info.end_offset,
        info.segments,
        number::bytes(info.segment_bytes),
        number::bytes(info.unsynced_bytes),
        if info.poisoned { poisoned } else { "" },
        if info.unrecovered { &unrecovered } else { "" },
        info.cut_at.as_ref().map_or_else(String::new, |place| format!("not whole  from {place} on\n")),
    )
}

pub(super) fn verify(args: &InfoArgs) -> Result<(), Failure> {
    let records = open(args)?.verify().map_err(|error| queue_failure(&error))?;
    args.output
        .print(&Verified { records }, |found| format!("{}, all good\n", number::records(found.records)))
}
