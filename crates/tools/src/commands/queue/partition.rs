//! `riverrun queue tail --partition`: records of a server's partition, from the files that the server writes.
//!
//! Guarantees that nothing is written or locked: the server does not notice. What it has only in memory or in its journal
//! comes when it gets into the segments.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use riverrun_queue::{Batch, Offset, PartitionTailer, QueueError, StartAt, TimestampMs};

use super::queue_failure;
use super::tail::{TailArgs, push};
use crate::exit::{Exit, Failure};

/// Time between two looks for more.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Prints records as `args` say.
pub(super) fn tail(args: &TailArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut tailer = open(args)?;
    let mut printer = Printer::new(args);
    while printer.left > 0 {
        match tailer.next_batch().map_err(|error| queue_failure(&error))? {
            Some(batch) => printer.print(&batch, out)?,
            None if !args.follow => break,
            None => {
                out.flush().map_err(|error| Failure::output(&error))?;
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
    }
    out.flush().map_err(|error| Failure::output(&error))
}

/// Opens the partition. The server makes the directory of a new one with the first records that get into its segments:
/// `--follow` waits for it, but not for a log dir.
fn open(args: &TailArgs) -> Result<PartitionTailer, Failure> {
    let mut from = args.from;
    let mut is_told = false;
    loop {
        let error = match PartitionTailer::open(&args.dir, from) {
            Ok(tailer) => return Ok(tailer),
            Err(error) => error,
        };
        let is_missing =
            matches!(&error, QueueError::Io { source, .. } if source.kind() == ErrorKind::NotFound);
        let log_dir = args.dir.ancestors().nth(2);
        if !is_missing || !log_dir.is_some_and(|dir| dir.as_os_str().is_empty() || dir.is_dir()) {
            return Err(queue_failure(&error));
        }
        if !args.follow {
            return Err(queue_failure(&error).advise(
                "the server makes the directory of a new partition with its first records, at the levels that sync about \
                 ten seconds after they were acked; --follow waits for it",
            ));
        }
        if !is_told {
            tracing::warn!("{} is not there yet: waiting for it", args.dir.display());
            is_told = true;
        }
        // All later records come after the end that was asked for.
        if from == StartAt::End {
            from = StartAt::Start;
        }
        std::thread::sleep(LOOK_INTERVAL * 10);
    }
}

/// Prints what a batch holds of what is wanted.
///
/// Invariants: no record below `from` is printed, and none older than `from_time` before the first that is not.
struct Printer<'a> {
    args: &'a TailArgs,
    left: u64,
    from: Offset,
    from_time: TimestampMs,
    line: Vec<u8>,
}

impl<'a> Printer<'a> {
    fn new(args: &'a TailArgs) -> Self {
        let (mut from, mut from_time) = (Offset::ZERO, TimestampMs(i64::MIN));
        match args.from {
            StartAt::Offset(offset) => from = offset,
            StartAt::Time(time) => from_time = time,
            StartAt::Start | StartAt::End => {}
        }
        Self { args, left: args.count.unwrap_or(u64::MAX), from, from_time, line: Vec::new() }
    }

    fn print(&mut self, batch: &Batch<'_>, out: &mut impl Write) -> Result<(), Failure> {
        if batch.header().is_control() {
            return Ok(());
        }
        let failed = |error: riverrun_records::BatchError| {
            let exit = if error.is_damage() { Exit::CheckFailed } else { Exit::Failed };
            let (dir, offset) = (self.args.dir.display(), batch.header().base_offset());
            Failure::new(exit, format!("{dir}: the batch at offset {offset} cannot be read: {error}"))
        };
        for record in &batch.records().map_err(failed)? {
            let record = record.map_err(failed)?;
            if self.left == 0 {
                break;
            }
            if record.offset < self.from || record.timestamp < self.from_time {
                continue;
            }
            self.from_time = TimestampMs(i64::MIN);
            self.left -= 1;
            self.line.clear();
            push(&mut self.line, &record, self.args.json);
            out.write_all(&self.line).map_err(|error| Failure::output(&error))?;
        }
        Ok(())
    }
}
