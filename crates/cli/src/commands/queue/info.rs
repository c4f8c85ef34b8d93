//! `riverrun queue info` and `riverrun queue verify`.

use std::path::PathBuf;

use clap::Args;
use riverrun_queue::Queue;
use serde::Serialize;

use super::queue_failure;
use crate::exit::Failure;
use crate::text::number;
use crate::text::output::OutputArgs;

/// Flags of `queue info` and `queue verify`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
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
    /// Whether opening had to read the files to find out what they hold, and how many records above the last
    /// sync it kept.
    recovered_from_disk: bool,
    recovered_records: i64,
    cut_at: Option<String>,
}

#[derive(Serialize)]
struct Verified {
    records: u64,
}

fn open(args: &InfoArgs) -> Result<Queue, Failure> {
    Queue::open(&args.dir).map_err(|error| queue_failure(&error))
}

pub(crate) fn run(args: &InfoArgs) -> Result<(), Failure> {
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
        recovered_from_disk: recovery.from_disk,
        recovered_records: recovery.records_kept,
        cut_at: recovery.cut_at.as_ref().map(|(path, at)| format!("{} at byte {at}", path.display())),
    };
    args.output.print(&info, text)
}

fn text(info: &Info) -> String {
    let poisoned = "a sync has failed: nothing is appended until the machine starts anew\n";
    let recovered = format!("recovered  {} records above the last sync\n", info.recovered_records);
    format!(
        "offsets    {} up to {}\nsegments   {} of {}\nnot synced {}\n{}{}{}",
        info.start_offset,
        info.end_offset,
        info.segments,
        number::bytes(info.segment_bytes),
        number::bytes(info.unsynced_bytes),
        if info.poisoned { poisoned } else { "" },
        if info.recovered_from_disk { &recovered } else { "" },
        info.cut_at.as_ref().map_or_else(String::new, |place| format!("cut        {place}\n")),
    )
}

pub(crate) fn verify(args: &InfoArgs) -> Result<(), Failure> {
    let records = open(args)?.verify().map_err(|error| queue_failure(&error))?;
    args.output
        .print(&Verified { records }, |found| format!("{} records, all good\n", number::count(found.records)))
}
