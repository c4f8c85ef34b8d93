//! The loop of `riverrun consume`: poll, print, commit what is printed. What fails is tried again by the consumer, and
//! given up here when that takes too long.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::{Duration, Instant};

use riverrun_client::{Consumer, ConsumerRecord, StartAt, TopicPartition};
use riverrun_types::Offset;

use super::format::{Format, RecordView};
use crate::exit::Failure;

/// How long one poll waits: the time in which an end that is reached is noticed.
const POLL: Duration = Duration::from_millis(200);
/// Time between two commits at least.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Trouble that lasts so long is told of.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// How long it takes to leave a group at most when reading has failed: the same may stand in the way.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// When reading ends before its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// After so many records.
    pub(super) records: Option<u64>,
    /// When something has not worked for so long.
    pub(super) trouble: Duration,
}

/// Prints records to stdout.
pub(super) struct Printer {
    format: Format,
    escape: bool,
    buffer: Vec<u8>,
}

impl Printer {
    pub(super) fn new(format: Format, escape: bool) -> Self {
        Self { format, escape, buffer: Vec::new() }
    }

    /// Prints records; when it returns, the system has them.
    fn print(&mut self, records: &[ConsumerRecord]) -> Result<(), Failure> {
        self.buffer.clear();
        for record in records {
            self.format.push(&mut self.buffer, &view(record), self.escape);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&self.buffer).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }
}

fn view(record: &ConsumerRecord) -> RecordView<'_> {
    RecordView {
        topic: &record.topic,
        partition: record.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: record.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_deref())).collect(),
    }
}

/// A consumer whose records are printed.
///
/// Invariants: the consumer's positions are never beyond what was printed, so that a commit is right at any time.
pub(super) struct Reading {
    consumer: Consumer,
    printer: Printer,
    left: u64,
    printed: u64,
    commits: bool,
    committed_at: Instant,
    trouble_max: Duration,
    /// Whether the trouble that there is was told of.
    has_told: bool,
}

impl Reading {
    pub(super) fn new(consumer: Consumer, printer: Printer, limits: Limits, commits: bool) -> Self {
        Self {
            consumer,
            printer,
            left: limits.records.unwrap_or(u64::MAX),
            printed: 0,
            commits,
            committed_at: Instant::now(),
            trouble_max: limits.trouble,
            has_told: false,
        }
    }

    pub(super) fn consumer(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    pub(super) fn printed(&self) -> u64 {
        self.printed
    }

    /// Reads until `ends` are reached, `--max` is, or Ctrl-C. Fails when something has not worked for too long.
    pub(super) async fn run(
        &mut self,
        ends: Option<BTreeMap<TopicPartition, Offset>>,
    ) -> Result<(), Failure> {
        let interrupt = tokio::signal::ctrl_c();
        tokio::pin!(interrupt);
        while self.left > 0 && !self.is_at(ends.as_ref()) {
            let records = tokio::select! {
                records = self.consumer.poll(POLL) => records?,
                _ = &mut interrupt => return Ok(()),
            };
            self.print(&records)?;
            self.check_trouble()?;
            if self.commits && self.committed_at.elapsed() >= COMMIT_INTERVAL {
                self.consumer.commit().await?;
                self.committed_at = Instant::now();
            }
        }
        Ok(())
    }

    fn check_trouble(&mut self) -> Result<(), Failure> {
        let trouble =
            self.consumer.trouble().filter(|trouble| trouble.lasts() >= TELL_AFTER.min(self.trouble_max));
        let Some(trouble) = trouble else {
            self.has_told = false;
            return Ok(());
        };
        if trouble.lasts() >= self.trouble_max {
            let after = format!("given up after {} s", trouble.lasts().as_secs());
            let failure = Failure::from(trouble.error).about(after);
            return Err(failure.advise("--timeout with more seconds, or look at the server's log"));
        }
        if !std::mem::replace(&mut self.has_told, true) {
            eprintln!("trying again: {}", trouble.error);
        }
        Ok(())
    }

    /// Whether everything that is read has been read up to its end. A group member that has no partition yet is
    /// not done.
    fn is_at(&self, ends: Option<&BTreeMap<TopicPartition, Offset>>) -> bool {
        let Some(ends) = ends else { return false };
        let assignment = self.consumer.assignment();
        let is_read = |partition: &TopicPartition| {
            let end = ends.get(partition).copied().unwrap_or(Offset::ZERO);
            self.consumer.position(partition).is_some_and(|position| position >= end)
        };
        !assignment.is_empty() && assignment.iter().all(is_read)
    }

    fn print(&mut self, records: &[ConsumerRecord]) -> Result<(), Failure> {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(records.len());
        let (wanted, rest) = records.split_at(count);
        self.printer.print(wanted)?;
        self.printed += count as u64;
        self.left -= count as u64;
        self.give_back(rest)
    }

    /// Moves positions back to the first record of each partition that was not wanted.
    fn give_back(&mut self, records: &[ConsumerRecord]) -> Result<(), Failure> {
        let mut first = BTreeMap::new();
        for record in records {
            let partition = TopicPartition { topic: record.topic.clone(), partition: record.partition };
            first.entry(partition).or_insert(record.offset);
        }
        for (partition, offset) in first {
            self.consumer.seek(&partition, StartAt::Offset(offset))?;
        }
        Ok(())
    }

    /// Commits what was printed, unless printing failed, and leaves the group.
    pub(super) async fn close(mut self, commit: bool) -> Result<(), Failure> {
        if !commit {
            return match tokio::time::timeout(LEAVE_WAIT, self.consumer.close()).await {
                Ok(closed) => Ok(closed?),
                // The group notices by itself that nobody is there.
                Err(_) => Ok(()),
            };
        }
        if self.commits {
            self.consumer.commit().await?;
        }
        Ok(self.consumer.close().await?)
    }
}
