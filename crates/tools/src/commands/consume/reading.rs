//! The loop of `riverrun consume`: poll, print, commit what is printed. What fails is tried again by the consumer, and
//! given up here when that takes too long.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::{Duration, Instant};

use riverrun_client::{ClientError, Consumer, ConsumerRecord, ErrorKind, StartAt, TopicPartition};
use riverrun_protocol::ErrorCode;
use riverrun_types::Offset;
use tokio::task::JoinHandle;

use super::format::{Format, RecordView};
use super::places::{self, Known};
use super::silent::Silent;
use super::start::From;
use crate::exit::{Exit, Failure};
use crate::signals::StopSignals;

/// How long one poll waits: the time in which an end that is reached is noticed.
const POLL: Duration = Duration::from_millis(200);
/// Time between two commits at least.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks whether a partition answers again that did not say where it begins and ends.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The warning where nobody waits for the last commit.
const NOT_COMMITTED: &str = "the records printed last may not be committed, and come again";
/// How long it takes to leave a group at most when reading has failed: the same may stand in the way.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// When reading ends before its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// After so many records.
    pub(super) records: Option<u64>,
    /// When something has not worked for so long; never where what comes is followed.
    pub(super) trouble: Option<Duration>,
}

/// The partitions to be read, and how far.
///
/// Invariants: a partition is in `waiting` until its bounds are known, and only then in `ends`.
pub(super) struct Plan {
    /// The partitions' ends at the start, or when they first answered.
    ends: BTreeMap<TopicPartition, Offset>,
    /// Those of which nothing is known yet.
    waiting: BTreeSet<TopicPartition>,
    /// The place to begin in these; none if a group says it.
    from: Option<From>,
    /// Whether reading goes on beyond the ends.
    follows: bool,
    /// Asks those that are waited for.
    look: Option<JoinHandle<Result<Known, Failure>>>,
}

impl Plan {
    pub(super) fn new(known: Known, from: Option<From>, follows: bool) -> Self {
        let ends = known.bounds.into_iter().map(|(partition, bounds)| (partition, bounds.end)).collect();
        Self { ends, waiting: known.silent, from, follows, look: None }
    }
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
    silent: Silent,
    /// Signals to end, from the beginning of reading on.
    stop: Option<StopSignals>,
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
            silent: Silent::new(limits.trouble),
            stop: None,
        }
    }

    pub(super) fn consumer(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    pub(super) fn printed(&self) -> u64 {
        self.printed
    }

    /// Reads until the end that is planned, `--max`, or a signal. Fails when something has not worked for too long:
    /// at once if nothing can be read, otherwise when the rest has been.
    pub(super) async fn run(&mut self, plan: Plan) -> Result<(), Failure> {
        let mut stop = StopSignals::new()?;
        let ended = self.read(plan, &mut stop).await;
        self.stop = Some(stop);
        ended
    }

    async fn read(&mut self, mut plan: Plan, stop: &mut StopSignals) -> Result<(), Failure> {
        while self.left > 0 && !self.is_done(&plan) {
            let records = tokio::select! {
                records = self.consumer.poll(POLL) => records.map_err(advise_protocol)?,
                () = stop.next() => return Ok(()),
            };
            self.print(&records)?;
            self.silent.take(self.consumer.troubles())?;
            self.look_after(&mut plan).await?;
            if self.commits && self.committed_at.elapsed() >= COMMIT_INTERVAL {
                tokio::select! {
                    committed = self.consumer.commit() => committed?,
                    () = stop.next() => return Ok(()),
                }
                self.committed_at = Instant::now();
            }
        }
        match self.silent.failure() {
            Some(failure) if self.left > 0 => {
                stop.or_at_once(self.commit(), NOT_COMMITTED).await.and(Err(failure))
            }
            _ => Ok(()),
        }
    }

    /// Asks the partitions of which nothing is known, from time to time, and begins with those that answer.
    async fn look_after(&mut self, plan: &mut Plan) -> Result<(), Failure> {
        if let Some(look) = plan.look.take_if(|look| look.is_finished()) {
            let broken = |error| Failure::new(Exit::Failed, format!("a task has failed: {error}"));
            let mut back = Vec::new();
            for (partition, bounds) in look.await.map_err(broken)??.bounds {
                plan.waiting.remove(&partition);
                if let Some(from) = plan.from {
                    self.consumer.seek(&partition, places::start(bounds, from))?;
                    back.push(partition.clone());
                }
                plan.ends.insert(partition, bounds.end);
            }
            self.consumer.resume(&back)?;
        }
        if plan.look.is_none() && !plan.waiting.is_empty() {
            let known = places::bounds(&self.consumer, &plan.waiting, Duration::ZERO);
            plan.look = Some(tokio::spawn(async move {
                tokio::time::sleep(LOOK_INTERVAL).await;
                known.await
            }));
        }
        Ok(())
    }

    /// Whether everything that is read has been read up to its end, but for what was given up. A group member that has
    /// no partition yet is not done.
    fn is_done(&self, plan: &Plan) -> bool {
        if plan.follows {
            return false;
        }
        let assignment = self.consumer.assignment();
        let is_read = |partition: &TopicPartition| {
            let end = plan.ends.get(partition).copied().unwrap_or(Offset::ZERO);
            let position = self.consumer.position(partition).filter(|_| !plan.waiting.contains(partition));
            position.is_some_and(|position| position >= end) || self.silent.has_given_up(partition)
        };
        !assignment.is_empty() && assignment.iter().all(is_read)
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        if self.commits {
            self.consumer.commit().await?;
        }
        Ok(())
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

    /// Commits what was printed, unless printing failed, and leaves the group; neither if it is stopped meanwhile.
    pub(super) async fn close(mut self, commit: bool) -> Result<(), Failure> {
        if !commit {
            return match self.consumer.close_within(LEAVE_WAIT).await {
                // The group notices by itself that nobody is there.
                Err(error) if error.kind() == ErrorKind::Retry => Ok(()),
                closed => Ok(closed?),
            };
        }
        let stop = self.stop.take();
        let leave = async {
            self.commit().await?;
            Ok(self.consumer.close().await?)
        };
        match stop {
            Some(mut stop) => stop.or_at_once(leave, NOT_COMMITTED).await,
            None => leave.await,
        }
    }
}

/// A group whose members use the other protocol takes no member of this one, whatever the server calls that.
fn advise_protocol(error: ClientError) -> Failure {
    let other = match error.code() {
        Some(ErrorCode::GROUP_ID_NOT_FOUND) => "classic",
        Some(ErrorCode::INCONSISTENT_GROUP_PROTOCOL) => "consumer",
        _ => return error.into(),
    };
    let advice = format!(
        "--group-protocol {other}, if the group's members use it (riverrun group describe NAME shows that), or another --group"
    );
    Failure::new(Exit::Conflict, error.to_string()).advise(advice)
}
